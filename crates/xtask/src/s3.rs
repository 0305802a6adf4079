//! `cargo xtask s3`: the ceph/s3-tests suite, scored by the tool in `../shared/tools/s3tests`.
//!
//! Promises: success only if every test that issue 2 asks for passes; the other areas are reported as they stand; without a
//! checkout it says that it was skipped. Refuses to know: how the suite works; it is not ours and lies outside the project.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use crate::clients::python_command;
use crate::process::{self, empty_folder, release_binary, step};
use crate::server::{ACCESS_KEY, SECRET_KEY, Server};
use crate::{Outcome, provision};

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
    limit: u32,
}

/// The areas whose tests must all pass.
const REQUIRED_AREAS: [&str; 14] = [
    "listing",
    "multipart",
    "bucket",
    "post-object",
    "request-headers",
    "versioning",
    "conditional",
    "object",
    "range-atomic-read",
    "tagging",
    "cors",
    "copy",
    "multi-delete",
    "checksum",
];

/// Tests that AWS with ACLs disabled, or AWS itself, answers otherwise: by the need column, or by what they do.
const NOT_AS_AWS: [&str; 2] = ["ACLs", "wider than AWS"];
/// AWS's answer wins over the suite's.
const AWS_WINS: [&str; 1] = ["test_non_multipart_get_part"];

/// Runs the suite and judges.
pub fn run(root: &Path, args: &S3Args) -> Outcome {
    let Some(checkout) = &args.checkout else {
        println!("s3: SKIPPED, no --checkout of ceph/s3-tests was given");
        println!("s3: 0 passed, 0 failed, 1 skipped");
        return Ok(());
    };
    let tool = root.join(&args.tool);
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => step("release build", || release_binary(root))?,
    };
    let programs = provision::python_from(root, "s3tests", &root.join("tests-clients/s3tests.txt"))?;
    let folder = empty_folder(root, "s3")?;
    let server = start(&binary, &folder)?;
    write_accounts(&server, &folder.join("accounts.json"))?;
    let results = folder.join("results.jsonl");
    let mut command = python_command(&programs, &tool.join("s3tests_bar.py"));
    command
        .arg("--checkout")
        .arg(checkout)
        .args(["--endpoint", &server.address, "--accounts"])
        .arg(folder.join("accounts.json"));
    command.args(["--jobs", &args.jobs.to_string(), "--limit", &args.limit.to_string(), "--out"]).arg(&results);
    // Its exit code counts areas that are not asked for yet; we judge by the results.
    let (text, _) = step("s3-tests", || process::output(&mut command))?;
    println!("{text}");
    judge(&tool, checkout, &results, args.limit)
}

/// With a lifecycle day of two seconds if this build knows the switch.
fn start(binary: &Path, folder: &Path) -> Result<Server, String> {
    Server::start(binary, folder, &["--lifecycle-day", "2s"]).or_else(|_| Server::start(binary, folder, &[]))
}

fn write_accounts(server: &Server, path: &Path) -> Outcome {
    let mut accounts = serde_json::Map::new();
    for (number, name) in ["main", "alt"].into_iter().enumerate() {
        let email = format!("{name}@example.com");
        let mut account = server.admin_command(&["user", "create", name, "--email", &email])?;
        if account["access_key"].as_str() == Some(ACCESS_KEY) || account["secret_key"].as_str() == Some(SECRET_KEY) {
            return Err(format!("user {number} has the root keys"));
        }
        account["region"] = json!("us-east-1");
        accounts.insert(name.to_owned(), account);
    }
    fs::write(path, Value::Object(accounts).to_string()).map_err(|error| format!("{}: {error}", path.display()))
}

/// One test of the list.
struct Listed {
    area: String,
    need: String,
}

fn judge(tool: &Path, checkout: &Path, results: &Path, limit: u32) -> Outcome {
    let areas = read_areas(&read(&tool.join("s3tests-areas.tsv"))?);
    let good = read_results(&read(results)?);
    let setters = tests_that_set_acls(checkout)?;
    let list = read(&tool.join("s3tests-target.txt"))?;
    let ids = list.lines().map(str::trim).filter(|id| !id.is_empty()).take(if limit == 0 {
        usize::MAX
    } else {
        limit as usize
    });
    let (mut passed, mut missed, mut excluded) = (0, Vec::new(), Vec::new());
    for id in ids {
        let Some(listed) = areas.get(id).filter(|listed| REQUIRED_AREAS.contains(&listed.area.as_str())) else {
            continue;
        };
        if good.get(id).copied().unwrap_or(false) {
            passed += 1;
        } else if is_excluded(id, listed, &setters) {
            excluded.push(id);
        } else {
            missed.push(id);
        }
    }
    println!("\nRequired by issue 2 ({} areas):", REQUIRED_AREAS.len());
    excluded.iter().for_each(|id| println!("  excluded, AWS answers otherwise: {}", short(id)));
    missed
        .iter()
        .for_each(|id| println!("  MISSED {} ({})", short(id), areas.get(*id).map_or("?", |listed| &listed.area)));
    println!("s3: {passed} passed, {} failed, {} skipped", missed.len(), excluded.len());
    if missed.is_empty() { Ok(()) } else { Err(format!("{} required tests do not pass", missed.len())) }
}

fn short(id: &str) -> &str {
    id.rsplit("::").next().unwrap_or(id)
}

fn is_excluded(id: &str, listed: &Listed, setters: &[String]) -> bool {
    NOT_AS_AWS.iter().any(|word| listed.need.contains(word))
        || AWS_WINS.contains(&short(id))
        || setters.iter().any(|name| name == short(id))
}

/// Names of the suite's test functions in whose body an ACL is set, directly or by its usual setters.
fn tests_that_set_acls(checkout: &Path) -> Result<Vec<String>, String> {
    let folder = checkout.join("s3tests/functional");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names = Vec::new();
    for path in entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "py"))
    {
        names.extend(acl_setters(&read(&path)?));
    }
    Ok(names)
}

fn acl_setters(source: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut current = None;
    for line in source.lines() {
        if let Some(rest) = line.strip_prefix("def ") {
            current = rest.split('(').next().filter(|name| name.starts_with("test_"));
        } else if let Some(name) = current.filter(|name| sets_acl(line) && names.last().is_none_or(|last| last != name))
        {
            names.push(name.to_owned());
        }
    }
    names
}

/// What sets an ACL in the suite: boto's calls and argument, form fields, and the suite's own helpers.
const ACL_WORDS: [&str; 9] = [
    "put_object_acl(",
    "put_bucket_acl(",
    "ACL=",
    "x-amz-acl",
    "\"acl\"",
    "_setup_bucket_acl(",
    "_setup_bucket_object_acl(",
    "_setup_access(",
    "_acl_grant_",
];

/// A canned ACL `private` changes nothing: a test that sets only that is not excused.
fn sets_acl(line: &str) -> bool {
    let line = line.trim_start();
    !line.starts_with('#') && !line.contains("private") && ACL_WORDS.iter().any(|word| line.contains(word))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn read_areas(table: &str) -> BTreeMap<String, Listed> {
    let row = |line: &str| {
        let mut fields = line.split('\t');
        let (id, area) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        Some((id, Listed { area, need: fields.nth(1).unwrap_or_default().to_owned() }))
    };
    table.lines().skip(1).filter_map(row).collect()
}

fn read_results(lines: &str) -> BTreeMap<String, bool> {
    let row = |line: &str| {
        let result: Value = serde_json::from_str(line).ok()?;
        let outcome = result["outcome"].as_str()?;
        Some((result["id"].as_str()?.to_owned(), matches!(outcome, "passed" | "teardown-error")))
    };
    lines.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::{Listed, acl_setters, is_excluded, read_areas, read_results};

    #[test]
    fn the_need_column_and_the_one_named_test_are_excluded() {
        let listed = |need: &str| Listed { area: "object".into(), need: need.into() };
        assert!(is_excluded("f.py::test_a", &listed("ACLs on by default"), &[]));
        assert!(is_excluded("f.py::test_a", &listed("needs If-None-Match (wider than AWS)"), &[]));
        assert!(is_excluded("f.py::test_non_multipart_get_part", &listed(""), &[]));
        assert!(!is_excluded("f.py::test_a", &listed("needs a debug day"), &[]));
    }

    #[test]
    fn tests_that_set_an_acl_are_found_by_their_bodies() {
        let source = "def test_a():\n    c.put_object(ACL='public-read')\n\ndef test_c():\n    c.put_object(ACL='private')\n\ndef test_b():\n    pass\n    # put_object_acl(\ndef helper():\n    c.put_bucket_acl()\n";
        assert_eq!(acl_setters(source), ["test_a"]);
    }

    #[test]
    fn the_tables_of_the_tool_are_read() {
        let areas = read_areas("node\tarea\ttier\twhy\tmarks\nt::x\tcopy\ttarget\tneed\t\n");
        assert_eq!((areas["t::x"].area.as_str(), areas["t::x"].need.as_str()), ("copy", "need"));
        let results =
            read_results("{\"id\":\"a\",\"outcome\":\"passed\"}\n{\"id\":\"b\",\"outcome\":\"failed\"}\nnot json\n");
        assert_eq!((results["a"], results["b"]), (true, false));
    }
}
