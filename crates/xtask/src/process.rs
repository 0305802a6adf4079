//! Running other programs.
//!
//! Promises: each step is printed with the time it took; a program that fails is an error that names it.
//! Refuses to know: what the programs do.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Outcome;

/// How often something that is waited for is looked at.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Runs `work` as a step with a name and prints how long it took.
pub fn step<T>(name: &str, work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    println!("== {name}");
    #[allow(clippy::disallowed_methods)] // Automation measures real time and is never simulated.
    let began = Instant::now();
    let result = work();
    let word = if result.is_ok() { "done" } else { "FAILED" };
    println!("== {name}: {word} in {:.1} s", began.elapsed().as_secs_f64());
    result
}

/// Runs a command to its end, output on the terminal.
pub fn run(command: &mut Command) -> Outcome {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{} ended with {status}", name(command))),
        Err(error) => Err(format!("{} cannot be run: {error}", name(command))),
    }
}

/// Runs a command and returns what it printed, whether it succeeded or not; errors go to the terminal.
pub fn output(command: &mut Command) -> Result<(String, bool), String> {
    let output = command.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{} cannot be run: {error}", name(command)))?;
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success()))
}

fn name(command: &Command) -> String {
    let arguments = command.get_args().take(4).map(OsStr::to_string_lossy);
    let program = Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy();
    std::iter::once(program).chain(arguments).collect::<Vec<_>>().join(" ")
}

/// The cargo that runs us.
pub fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Asks again and again until the answer is yes; `false` if it is still no after `limit`.
pub fn wait_until(limit: Duration, mut check: impl FnMut() -> bool) -> bool {
    #[allow(clippy::disallowed_methods)] // Automation waits in real time and is never simulated.
    let now = Instant::now;
    let began = now();
    loop {
        if check() {
            return true;
        }
        if now() - began > limit {
            return false;
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
}

/// Whether a program of this name is found on the path.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Cargo's target folder.
pub fn target_folder(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(folder))
}

/// The binary that the black-box tests run: the one that cargo's tests have compiled already, assertions included.
pub fn test_binary(root: &Path) -> Result<PathBuf, String> {
    // As the tests are compiled, so that nothing is compiled twice: a build of the binary alone resolves other features.
    run(cargo(root).args(["test", "--workspace", "--locked", "--no-run", "--quiet"]))?;
    let binary = target_folder(root).join("debug/ashlar");
    if binary.is_file() { Ok(binary) } else { Err(format!("the build left no {}", binary.display())) }
}

/// The optimised binary.
pub fn release_binary(root: &Path) -> Result<PathBuf, String> {
    run(cargo(root).args(["build", "--release", "--locked", "--package", "ashlar"]))?;
    let binary = target_folder(root).join("release/ashlar");
    if binary.is_file() { Ok(binary) } else { Err(format!("the build left no {}", binary.display())) }
}

/// An empty folder under the target folder. It is left there after a failure, to be looked at.
pub fn empty_folder(root: &Path, name: &str) -> Result<PathBuf, String> {
    let folder = target_folder(root).join("xtask").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    make_folder(&folder)
}

/// A folder, made with those above it if it is not there.
pub fn make_folder(folder: &Path) -> Result<PathBuf, String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    Ok(folder.to_owned())
}
