//! Our own two servers: the store, and the bare HTTP server that is the floor of a small request.
//!
//! Promises: both run the same binary. Refuses to know: peers.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Peer, Process, ServerId};
use crate::bench::machine;
use crate::process::make_folder;
use crate::server;

/// The store, as its user would run it.
pub fn ours(root: &Path, binary: &Path, folder: &Path) -> Result<Peer, String> {
    let folder = make_folder(&folder.join("ours"))?;
    let server = server::Server::start(binary, &folder, &["--memory", "1GiB"])?;
    let commit = machine::ask("git", &["rev-parse", "--short", "HEAD"], root);
    Ok(Peer {
        id: ServerId::Ours,
        about: format!("ashlar {commit}, --memory 1GiB, one data folder; every 200 is synced"),
        address: server.address.clone(),
        keys: (server::ACCESS_KEY, server::SECRET_KEY),
        process: Process::Ashlar(server),
        files: None,
        idle_mib: f64::NAN,
    })
}

/// The bare server. It says where it listens in one line of JSON.
pub fn hyper(binary: &Path, folder: &Path) -> Result<Peer, String> {
    let log = std::fs::File::create(folder.join("hyper.log")).map_err(|error| format!("hyper.log: {error}"))?;
    let mut child = Command::new(binary)
        .args(["bench", "hyper-floor"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(|error| format!("{}: {error}", binary.display()))?;
    let stdout = child.stdout.take();
    let mut peer = Peer {
        id: ServerId::Hyper,
        about: "hyper, tokio and mimalloc as in ours; one ready body of 4 KiB for every key, nothing verified".into(),
        address: String::new(),
        keys: (super::ACCESS_KEY, super::SECRET_KEY),
        process: Process::Own(child),
        files: None,
        idle_mib: f64::NAN,
    };
    let mut line = String::new();
    let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut line));
    let ready: Value = serde_json::from_str(&line).map_err(|_| format!("the bare server did not start: {read:?}"))?;
    peer.address = ready["endpoint"].as_str().ok_or("the bare server did not say where it listens")?.to_owned();
    Ok(peer)
}
