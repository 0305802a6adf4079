//! `cargo xtask clients`: unmodified S3 clients do real work on a real server.
//!
//! Promises: every client of the list runs, or its absence is counted. Refuses to know: what each client does; that is in
//! `tests-clients/`.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::Outcome;
use crate::blackbox::{self, Tally};
use crate::process::{empty_folder, release_binary, step};
use crate::provision;
use crate::server::{ACCESS_KEY, Balancer, SECRET_KEY, Server};

/// Options of `cargo xtask clients`.
#[derive(Args)]
pub struct ClientsArgs {
    /// Only these, by the names of the files in tests-clients.
    names: Vec<String>,
    /// Use this server instead of building one: the path of an ashlar binary.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Have them talk to a balancer in front of the server.
    #[arg(long)]
    balancer: bool,
}

/// A client and what it needs.
struct ClientTest {
    file: &'static str,
    needs: Need,
    quick: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// tests-clients/quick.txt
    QuickPython,
    /// tests-clients/all.txt
    AllPython,
    /// tests-clients/package.json
    Npm,
    /// A Debian package of the same name as the file; the script runs on the quick Python.
    Debian(&'static str),
}

/// Needs and order: the quick ones first.
const CLIENTS: [ClientTest; 9] = [
    ClientTest { file: "boto3_client.py", needs: Need::QuickPython, quick: true },
    ClientTest { file: "awscli_client.py", needs: Need::QuickPython, quick: true },
    ClientTest { file: "s3cmd_client.py", needs: Need::QuickPython, quick: true },
    ClientTest { file: "minio_client.py", needs: Need::QuickPython, quick: true },
    ClientTest { file: "rclone_client.py", needs: Need::Debian("rclone"), quick: true },
    ClientTest { file: "restic_client.py", needs: Need::Debian("restic"), quick: true },
    ClientTest { file: "aws_sdk_js_client.cjs", needs: Need::Npm, quick: false },
    ClientTest { file: "parquet_client.py", needs: Need::AllPython, quick: false },
    ClientTest { file: "deltalake_client.py", needs: Need::AllPython, quick: false },
];

/// Runs all clients, or the named ones.
pub fn run(root: &Path, args: &ClientsArgs) -> Outcome {
    let binary = match &args.binary {
        Some(binary) => binary.clone(),
        None => step("release build", || release_binary(root))?,
    };
    let wanted = |client: &ClientTest| {
        args.names.is_empty() || args.names.iter().any(|name| client.file.starts_with(name.as_str()))
    };
    let chosen: Vec<&ClientTest> = CLIENTS.iter().filter(|client| wanted(client)).collect();
    if chosen.is_empty() {
        return Err("no client has such a name".into());
    }
    let tally = run_chosen(root, &binary, &chosen, args.balancer)?;
    println!("{}", tally.line());
    if tally.failed == 0 { Ok(()) } else { Err("a client failed".into()) }
}

/// The quick subset, for `cargo xtask test`.
pub fn run_quick(root: &Path, binary: &Path) -> Result<Tally, String> {
    run_chosen(root, binary, &CLIENTS.iter().filter(|client| client.quick).collect::<Vec<_>>(), false)
}

fn run_chosen(root: &Path, binary: &Path, chosen: &[&ClientTest], balanced: bool) -> Result<Tally, String> {
    let folder = empty_folder(root, "clients")?;
    let server = Server::start(binary, &folder, &[])?;
    let balancer = balanced.then(|| Balancer::start(&server, &folder)).transpose()?;
    let address = balancer.as_ref().map_or(&server.address, |balancer| &balancer.address);
    let mut sum = Tally { name: "clients", passed: 0, failed: 0, skipped: 0 };
    for client in chosen {
        let tally = step(client.file, || match command(root, client) {
            Ok(mut command) => Ok(blackbox::run("clients", with_server(&mut command, address, &folder))),
            Err(error) => {
                println!("FAIL {}: {error}", client.file);
                Ok(Tally::broken("clients"))
            }
        })?;
        sum.add(&tally);
    }
    Ok(sum)
}

fn command(root: &Path, client: &ClientTest) -> Result<Command, String> {
    let script = root.join("tests-clients").join(client.file);
    let python = |name| provision::python(root, name).map(|programs| python_command(&programs, &script));
    match client.needs {
        Need::QuickPython => python("quick"),
        Need::AllPython => python("all"),
        Need::Debian(package) => {
            provision::debian(&[(package, package)])?;
            python("quick")
        }
        Need::Npm => {
            let modules = provision::npm(root)?;
            let mut command = Command::new("node");
            command.arg(script).env("NODE_PATH", modules);
            Ok(command)
        }
    }
}

/// A script run by a Python of ours, with that Python's programs first on the path.
pub fn python_command(programs: &Path, script: &Path) -> Command {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(programs.to_owned()).chain(std::env::split_paths(&path));
    let mut command = Command::new(programs.join("python"));
    command
        .arg(script)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("PATH", std::env::join_paths(folders).unwrap_or(path.clone()));
    command
}

fn with_server<'a>(command: &'a mut Command, address: &str, folder: &Path) -> &'a mut Command {
    command
        .env("ENDPOINT", format!("http://{address}"))
        .env("ACCESS", ACCESS_KEY)
        .env("SECRET", SECRET_KEY)
        .env("WORK", folder)
        // No settings of the person who runs this may reach the clients.
        .env("HOME", folder)
        .env("AWS_EC2_METADATA_DISABLED", "true")
}
