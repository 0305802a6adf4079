//! `ashlar inspect`.

use crate::cli::InspectArgs;
use crate::server::Failure;
use std::process::ExitCode;

/// Prints.
pub fn run(_args: InspectArgs) -> Result<ExitCode, Failure> {
    Err("not there yet".into())
}
