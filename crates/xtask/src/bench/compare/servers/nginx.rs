//! nginx from Debian: files by sendfile, PUT by DAV. The floor of what a web server does with a file.
//!
//! Promises: its own configuration and folder; nothing of the machine's own nginx is touched. Refuses to know: signatures.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{ACCESS_KEY, BUCKET, Peer, Process, SECRET_KEY, ServerId, free_port, spawn};
use crate::bench::machine;
use crate::process::{is_installed, make_folder};
use crate::provision;

/// Where Debian puts it, which is not on everybody's path.
const PROGRAM: &str = "/usr/sbin/nginx";

/// Starts it.
pub fn start(folder: &Path) -> Result<Peer, String> {
    if !Path::new(PROGRAM).is_file() && !is_installed("nginx") {
        provision::debian(&[("nginx", "nginx")])?;
    }
    let program = if Path::new(PROGRAM).is_file() { PROGRAM } else { "nginx" };
    let folder = make_folder(&folder.join("nginx"))?;
    make_folder(&folder.join("files").join(BUCKET))?;
    let port = free_port()?;
    let config = folder.join("nginx.conf");
    let text = configuration(&folder, port, machine::ask("id", &["-u"], &folder) == "0");
    fs::write(&config, text).map_err(|error| format!("{}: {error}", config.display()))?;
    let child = spawn(
        Command::new(program).arg("-p").arg(&folder).arg("-c").arg(&config).arg("-e").arg(folder.join("error.log")),
        &folder,
        "nginx",
    )?;
    let version = Command::new(program).arg("-v").output().map(|output| output.stderr).unwrap_or_default();
    let version = String::from_utf8_lossy(&version).trim().trim_start_matches("nginx version: ").to_owned();
    let mut peer = Peer {
        id: ServerId::Nginx,
        about: format!("{version}, static files and DAV, one worker a processor; nothing synced, no signatures"),
        address: format!("127.0.0.1:{port}"),
        keys: (ACCESS_KEY, SECRET_KEY),
        process: Process::Own(child),
        files: Some(folder.join("files")),
        idle_mib: f64::NAN,
    };
    peer.wait_for_port(port)?;
    Ok(peer)
}

fn configuration(folder: &Path, port: u16, is_root: bool) -> String {
    let folder = folder.display();
    // Started by root, its workers would become a user who may not write here.
    let user = if is_root { "user root;" } else { "" };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("  {name}_temp_path {folder}/temporary-{name};\n"))
        .concat();
    format!(
        "daemon off;\n{user}\nworker_processes auto;\npid {folder}/nginx.pid;\nevents {{ worker_connections 1024; }}\n\
         http {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  keepalive_timeout 3600;\n  \
         keepalive_requests 1000000000;\n  client_max_body_size 0;\n{temporary}  server {{\n    listen 127.0.0.1:{port};\n    \
         root {folder}/files;\n    location / {{ dav_methods PUT DELETE; create_full_put_path on; }}\n  }}\n}}\n"
    )
}
