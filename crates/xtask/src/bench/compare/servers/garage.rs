//! Garage, twice: as it comes, and with both fsync switches on.
//!
//! Promises: one node, one copy, LMDB, set up by its own command line as its documentation says. Refuses to know: its code (AGPL),
//! which is run and never read.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{ACCESS_KEY, BUCKET, Peer, Process, SECRET_KEY, START_LIMIT, ServerId, free_port, program, spawn};
use crate::process::{make_folder, wait_until};

const VERSION: &str = "2.5.0";
/// The engine that its documentation recommends; the others would only make the build longer.
const OPTIONS: [&str; 3] = ["--no-default-features", "--features", "bundled-libs,metrics,lmdb"];

/// Whether it syncs before it answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// As it comes.
    No,
    /// metadata_fsync and data_fsync.
    Yes,
}

/// Starts both.
pub fn start(folder: &Path, peers: &Path) -> Result<Vec<Peer>, String> {
    let program = program(peers, "garage", VERSION, &OPTIONS)?;
    Ok(vec![start_one(&program, folder, Sync::No)?, start_one(&program, folder, Sync::Yes)?])
}

fn start_one(program: &Path, folder: &Path, sync: Sync) -> Result<Peer, String> {
    let (id, name) = match sync {
        Sync::No => (ServerId::Garage, "garage"),
        Sync::Yes => (ServerId::GarageSync, "garage-fsync"),
    };
    let folder = make_folder(&folder.join(name))?;
    let (api, rpc) = (free_port()?, free_port()?);
    let config = folder.join("garage.toml");
    let text = configuration(&folder, api, rpc, sync);
    fs::write(&config, text).map_err(|error| format!("{}: {error}", config.display()))?;
    // Without a log line for each request: it shall not lose by that.
    let child = spawn(command(program, &config).arg("server").env("RUST_LOG", "warn"), &folder, name)?;
    let switches = if sync == Sync::Yes { "metadata_fsync and data_fsync on" } else { "as it comes, nothing synced" };
    let mut peer = Peer {
        id,
        about: format!("Garage {VERSION}, LMDB, one node, {switches}, no request log"),
        address: format!("127.0.0.1:{api}"),
        keys: (ACCESS_KEY, SECRET_KEY),
        process: Process::Own(child),
        files: None,
        idle_mib: f64::NAN,
    };
    peer.wait_for_port(rpc)?;
    set_up(program, &config)?;
    peer.wait_for_port(api)?;
    Ok(peer)
}

fn configuration(folder: &Path, api: u16, rpc: u16, sync: Sync) -> String {
    let sync = sync == Sync::Yes;
    let folder = folder.display();
    format!(
        r#"metadata_dir = "{folder}/meta"
data_dir = "{folder}/data"
db_engine = "lmdb"
replication_factor = 1
metadata_fsync = {sync}
data_fsync = {sync}
rpc_bind_addr = "127.0.0.1:{rpc}"
rpc_public_addr = "127.0.0.1:{rpc}"
rpc_secret = "{SECRET_KEY}"

[s3_api]
s3_region = "us-east-1"
api_bind_addr = "127.0.0.1:{api}"
"#
    )
}

fn command(program: &Path, config: &PathBuf) -> Command {
    let mut command = Command::new(program);
    command.arg("-c").arg(config);
    command
}

/// Layout, key, bucket.
fn set_up(program: &Path, config: &PathBuf) -> Result<(), String> {
    let ask = |words: &[&str]| {
        let output = command(program, config).args(words).env("RUST_LOG", "error").output();
        let output = output.map_err(|error| format!("garage {}: {error}", words.join(" ")))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        Err(format!("garage {}: {}", words.join(" "), text(&output.stderr)))
    };
    if !wait_until(START_LIMIT, || ask(&["status"]).is_ok()) {
        return Err(format!("it does not answer its own command line: {:?}", ask(&["status"])));
    }
    let node = ask(&["node", "id", "-q"])?;
    let node = node.split('@').next().unwrap_or_default();
    ask(&["layout", "assign", "-z", "here", "-c", "100G", node])?;
    ask(&["layout", "apply", "--version", "1"])?;
    ask(&["key", "import", "--yes", "-n", BUCKET, ACCESS_KEY, SECRET_KEY])?;
    // The layout takes a moment to be known everywhere.
    if !wait_until(START_LIMIT, || ask(&["bucket", "create", BUCKET]).is_ok()) {
        return Err(format!("no bucket can be made: {:?}", ask(&["bucket", "create", BUCKET])));
    }
    ask(&["bucket", "allow", "--read", "--write", "--owner", BUCKET, "--key", ACCESS_KEY])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Sync, configuration};
    use std::path::Path;

    #[test]
    fn both_switches_are_on_or_off_together() {
        let on = configuration(Path::new("/x"), 1, 2, Sync::Yes);
        assert!(on.contains("metadata_fsync = true\ndata_fsync = true\n"), "{on}");
        assert!(!configuration(Path::new("/x"), 1, 2, Sync::No).contains("true"));
    }
}
