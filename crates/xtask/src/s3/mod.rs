//! `cargo xtask s3`: the ceph/s3-tests suite, run by the tool in `../shared/tools/s3tests`.
//!
//! Promises: success only if every test that issue 2 asks for passes, but for the excused ones, each named with its reason; the
//! other areas are reported as they stand; without a checkout it says that it was skipped. Refuses to know: how the suite works;
//! it is not ours and lies outside the project.

mod excuse;
mod judge;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use crate::clients::python_command;
use crate::process::{self, empty_folder, release_binary, step};
use crate::server::{ACCESS_KEY, SECRET_KEY, Server};
use crate::{Outcome, provision};
use judge::Lists;

/// Options of `cargo xtask s3`.
#[derive(Args)]
pub struct S3Args {
    /// A checkout of github ceph/s3-tests, outside the project.
    #[arg(long)]
    checkout: Option<PathBuf>,
    /// The folder of the scoring tool.
    #[arg(long, default_value = "../shared/tools/s3tests")]
    tool: PathBuf,
    /// Use this binary instead of building one.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Tests at a time.
    #[arg(long, default_value_t = 2)]
    jobs: u32,
    /// Only the first so many tests.
    #[arg(long, default_value_t = 0)]
    limit: usize,
}

/// How long one test may take: a busy machine must not fail one.
const TEST_SECONDS: &str = "600";

/// Runs the suite and judges.
pub fn run(root: &Path, args: &S3Args) -> Outcome {
    let Some(checkout) = &args.checkout else {
        println!("s3: SKIPPED, no --checkout of ceph/s3-tests was given");
        println!("s3: 0 passed, 0 failed, 1 skipped");
        return Ok(());
    };
    let tool = root.join(&args.tool);
    let lists = Lists::read(&tool, args.limit)?;
    lists.check_excuses(checkout)?;
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => step("release build", || release_binary(root))?,
    };
    let programs = provision::python_from(root, "s3tests", &root.join("tests-clients/s3tests.txt"))?;
    let folder = empty_folder(root, "s3")?;
    let server = start(&binary, &folder)?;
    let scoring = Scoring { programs: &programs, tool: &tool, checkout, server: &server, folder: &folder };
    let mut results = scoring.run("together", &lists, &lists.together(), args.jobs)?;
    results += &scoring.run("alone", &lists, &lists.alone(), 1)?;
    lists.judge(&results)
}

/// With a lifecycle day of two seconds if this build knows the switch.
fn start(binary: &Path, folder: &Path) -> Result<Server, String> {
    Server::start(binary, folder, &["--lifecycle-day", "2s"]).or_else(|_| Server::start(binary, folder, &[]))
}

/// What the tool needs in each of its runs.
struct Scoring<'a> {
    programs: &'a Path,
    tool: &'a Path,
    checkout: &'a Path,
    server: &'a Server,
    folder: &'a Path,
}

impl Scoring<'_> {
    /// Runs these tests as accounts of their own; answers the tool's lines of results.
    fn run(&self, name: &str, lists: &Lists, ids: &[&str], jobs: u32) -> Result<String, String> {
        if ids.is_empty() {
            return Ok(String::new());
        }
        let folder = self.folder.join(name);
        lists.write(&folder, ids)?;
        let (accounts, results) = (folder.join("accounts.json"), folder.join("results.jsonl"));
        self.write_accounts(name, &accounts)?;
        let mut command = python_command(self.programs, &self.tool.join("s3tests_bar.py"));
        command.arg("--checkout").arg(self.checkout).args(["--endpoint", &self.server.address]);
        command.arg("--accounts").arg(accounts).arg("--lists").arg(&folder);
        command.args(["--jobs", &jobs.to_string(), "--timeout", TEST_SECONDS, "--out"]).arg(&results);
        // Its exit code counts areas that are not asked for yet; we judge by the results.
        let (text, _) = step(&format!("{} s3-tests {name}", ids.len()), || process::output(&mut command))?;
        println!("{text}");
        read(&results)
    }

    fn write_accounts(&self, run: &str, path: &Path) -> Outcome {
        let mut accounts = serde_json::Map::new();
        for name in ["main", "alt"] {
            let user = format!("{name}-{run}");
            let email = format!("{user}@example.com");
            let mut account = self.server.admin_command(&["user", "create", &user, "--email", &email])?;
            if account["access_key"].as_str() == Some(ACCESS_KEY) || account["secret_key"].as_str() == Some(SECRET_KEY)
            {
                return Err(format!("user {user} has the root keys"));
            }
            account["region"] = json!("us-east-1");
            accounts.insert(name.to_owned(), account);
        }
        fs::write(path, Value::Object(accounts).to_string()).map_err(|error| format!("{}: {error}", path.display()))
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
