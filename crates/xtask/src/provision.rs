//! What the tests need besides cargo: Python packages, npm packages, Debian packages.
//!
//! Promises: installed once and kept under the target folder until the list of packages changes; pinned versions.
//! Refuses to know: what they are for.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Outcome;
use crate::process::{is_installed, run, step, target_folder};

/// A Python with the packages of `tests-clients/NAME.txt`; returns the folder of its programs.
pub fn python(root: &Path, name: &str) -> Result<PathBuf, String> {
    let list = root.join("tests-clients").join(format!("{name}.txt"));
    python_from(root, name, &list)
}

/// A Python with the packages that `list` names.
pub fn python_from(root: &Path, name: &str, list: &Path) -> Result<PathBuf, String> {
    let folder = target_folder(root).join("clients").join(name);
    once(&folder, list, || {
        make_environment(&folder)?;
        run(Command::new(folder.join("bin/python"))
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"])
            .arg(list))
    })?;
    Ok(folder.join("bin"))
}

fn make_environment(folder: &Path) -> Outcome {
    let make = || Command::new("python3").args(["-m", "venv"]).arg(folder).stdout(Stdio::null()).status();
    if make().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    debian(&[("python3", "python3"), ("", "python3-venv")])?;
    run(Command::new("python3").args(["-m", "venv"]).arg(folder))
}

/// The npm packages of `tests-clients/package.json`; returns their folder.
pub fn npm(root: &Path) -> Result<PathBuf, String> {
    debian(&[("node", "nodejs"), ("npm", "npm")])?;
    let list = root.join("tests-clients/package.json");
    let folder = target_folder(root).join("clients/npm");
    once(&folder, &list, || {
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        fs::copy(&list, folder.join("package.json")).map_err(|error| error.to_string())?;
        run(Command::new("npm").args(["install", "--no-audit", "--no-fund", "--silent"]).current_dir(&folder))
    })?;
    Ok(folder.join("node_modules"))
}

/// Debian packages whose program is missing, as (program, package). A package without a program is installed anyway.
pub fn debian(wanted: &[(&str, &str)]) -> Outcome {
    let missing: Vec<&str> =
        wanted.iter().filter(|(program, _)| !is_installed(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    step(&format!("Debian packages {}", missing.join(", ")), || {
        run(apt().args(["update", "-qq"]))?;
        run(apt().args(["install", "-y", "-qq", "--no-install-recommends"]).args(&missing))
    })
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
    command
}

/// Runs `install` unless `folder` was made from this very list.
fn once(folder: &Path, list: &Path, install: impl FnOnce() -> Outcome) -> Outcome {
    let wanted = fs::read_to_string(list).map_err(|error| format!("{}: {error}", list.display()))?;
    let stamp = folder.join("made-from");
    if fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
        return Ok(());
    }
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    step(&format!("install {}", list.display()), install)?;
    fs::write(stamp, wanted).map_err(|error| error.to_string())
}
