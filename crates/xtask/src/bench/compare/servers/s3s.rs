//! s3s-fs: the sample server of the s3s library (Apache-2.0), objects as files, nothing synced.
//!
//! Promises: the newest version that this project's compiler builds. Refuses to know: anything else about it.

use std::path::Path;
use std::process::Command;

use super::{ACCESS_KEY, Peer, Process, SECRET_KEY, ServerId, free_port, program, spawn};
use crate::process::make_folder;

const VERSION: &str = "0.14.1";

/// Starts it.
pub fn start(folder: &Path, peers: &Path) -> Result<Peer, String> {
    let program = program(peers, "s3s-fs", VERSION, &["--features", "binary"])?;
    let folder = make_folder(&folder.join("s3s-fs"))?;
    let files = make_folder(&folder.join("files"))?;
    let port = free_port()?;
    let mut command = Command::new(program);
    command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
    command.args(["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY]).arg(&files).env("RUST_LOG", "error");
    let mut peer = Peer {
        id: ServerId::S3sFs,
        about: format!("s3s-fs {VERSION}, objects as files, nothing synced"),
        address: format!("127.0.0.1:{port}"),
        keys: (ACCESS_KEY, SECRET_KEY),
        process: Process::Own(spawn(&mut command, &folder, "s3s-fs")?),
        files: Some(files),
        idle_mib: f64::NAN,
    };
    peer.wait_for_port(port)?;
    Ok(peer)
}
