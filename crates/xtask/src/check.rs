//! `cargo xtask check`: everything that can be said without running the project.
//!
//! Promises: what passes here passes the first step of CI. Refuses to know: tests.

use std::path::Path;

use crate::process::{self, cargo, is_installed, step};
use crate::{Outcome, tidy};

/// Runs all checks, the quick ones first.
pub fn run(root: &Path) -> Outcome {
    step("format", || process::run(cargo(root).args(["fmt", "--all", "--check"])))?;
    step("tidy", || tidy::run(root))?;
    step("lints", || {
        process::run(cargo(root).args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--quiet",
            "--",
            "-D",
            "warnings",
        ]))
    })?;
    if is_installed("cargo-deny") {
        step("advisories and licences", || process::run(cargo(root).args(["deny", "check", "--hide-inclusion-graph"])))
    } else {
        println!("== advisories and licences: skipped, cargo-deny is not installed");
        Ok(())
    }
}
