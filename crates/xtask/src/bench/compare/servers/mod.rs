//! The programs that are compared, each behind the same small struct.
//!
//! Promises: a started server answers; a paused one uses no processor time; a dropped one has ended, by its own process id. Refuses
//! to know: what is asked of it.

mod ashlar;
mod garage;
mod nginx;
mod s3s;

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::bench::machine;
use crate::process::{run, step, wait_until};

pub use ashlar::{hyper, ours};

/// Keys of the peers. They guard nothing but data of this run; their form is the one that Garage asks for.
const ACCESS_KEY: &str = "GK0123456789abcdef01234567";
const SECRET_KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
/// The bucket of every server.
pub const BUCKET: &str = "bench";
/// A server that is not there by then will not come.
const START_LIMIT: Duration = Duration::from_secs(30);
/// A server that does not end by itself within this time is killed.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Which server, in the order of the table's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerId {
    /// This project.
    Ours,
    /// Garage as it comes.
    Garage,
    /// Garage with both of its fsync switches on: the peer of equal durability.
    GarageSync,
    /// The sample server of the s3s library, on a file system.
    S3sFs,
    /// nginx: files, no signatures.
    Nginx,
    /// A bare server on the HTTP library that ours is built on.
    Hyper,
}

impl ServerId {
    /// The head of its column.
    pub fn label(self) -> &'static str {
        match self {
            ServerId::Ours => "ours",
            ServerId::Garage => "garage",
            ServerId::GarageSync => "garage fsync",
            ServerId::S3sFs => "s3s-fs",
            ServerId::Nginx => "nginx",
            ServerId::Hyper => "bare hyper",
        }
    }

    /// Whether a 200 means that the bytes are synced.
    pub fn is_durable(self) -> bool {
        matches!(self, ServerId::Ours | ServerId::GarageSync)
    }

    /// Whether it speaks S3; the others are floors.
    pub fn is_store(self) -> bool {
        self == ServerId::Ours || self.is_peer()
    }

    /// Whether it is a store that ours should be ahead of.
    pub fn is_peer(self) -> bool {
        matches!(self, ServerId::Garage | ServerId::GarageSync | ServerId::S3sFs)
    }

    /// Small objects that reads choose from. The bare server has one.
    pub fn warm_objects(self) -> u64 {
        if self == ServerId::Hyper { 1 } else { super::steps::WARM_OBJECTS }
    }
}

/// A running server.
pub struct Peer {
    /// Which.
    pub id: ServerId,
    /// Version and configuration, for the table.
    pub about: String,
    address: String,
    keys: (&'static str, &'static str),
    process: Process,
    /// Where a file server keeps its files, so that a round's files can be removed at once.
    files: Option<PathBuf>,
    /// MiB after the start.
    pub idle_mib: f64,
}

/// The process, owned by us or by the struct that the tests use too.
enum Process {
    Own(Child),
    Ashlar(crate::server::Server),
}

impl Peer {
    /// The load generator's arguments that name the server.
    pub fn arguments(&self) -> Vec<String> {
        let (access, secret) = self.keys;
        ["--addr", &self.address, "--access", access, "--secret", secret, "--bucket", BUCKET]
            .map(str::to_owned)
            .to_vec()
    }

    /// Waits until the program that was just started listens.
    fn wait_for_port(&mut self, port: u16) -> Result<(), String> {
        match &mut self.process {
            Process::Own(child) => wait_for_port(child, port, self.id.label()),
            Process::Ashlar(_) => Ok(()),
        }
    }

    fn pid(&self) -> u32 {
        match &self.process {
            Process::Own(child) => child.id(),
            Process::Ashlar(server) => server.pid(),
        }
    }

    /// Its processes.
    pub fn pids(&self) -> Vec<u32> {
        machine::family(self.pid())
    }

    /// The most memory it ever used, MiB.
    pub fn peak_mib(&self) -> Option<f64> {
        machine::memory_mib(&self.pids()).map(|(_, peak)| peak)
    }

    /// Stops its processes where they are.
    pub fn pause(&self) {
        signal("STOP", &self.pids());
    }

    /// Lets them go on.
    pub fn resume(&self) {
        signal("CONT", &self.pids());
    }

    /// Removes what a round put, if it is nothing but files. A store reclaims in its own time.
    pub fn forget(&self, prefix: &str) -> Result<(), String> {
        let Some(files) = &self.files else { return Ok(()) };
        let folder = files.join(BUCKET).join(prefix);
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {error}", folder.display())),
            _ => Ok(()),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.resume();
        if let Process::Own(child) = &mut self.process {
            // Asked first: nginx takes its workers along only then.
            signal("TERM", &[child.id()]);
            let ended = wait_until(END_LIMIT, || child.try_wait().is_ok_and(|status| status.is_some()));
            if !ended {
                // Already ended is fine.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

fn signal(name: &str, pids: &[u32]) {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    // The shell's own kill: the program of that name is in no package that must be there. One that has ended is fine.
    let line = format!("kill -{name} {} 2>/dev/null", pids.join(" "));
    let _ = Command::new("sh").args(["-c", &line]).status();
}

/// Starts all servers that can be had. A peer that cannot is left out, and the text says why.
pub fn start_all(root: &Path, binary: &Path, folder: &Path, peers: &Path) -> Result<(Vec<Peer>, Vec<String>), String> {
    let mut servers = vec![ours(root, binary, folder)?];
    let mut missing = Vec::new();
    let others: [(&str, Result<Vec<Peer>, String>); 3] = [
        ("Garage", garage::start(folder, peers)),
        ("s3s-fs", s3s::start(folder, peers).map(|peer| vec![peer])),
        ("nginx", nginx::start(folder).map(|peer| vec![peer])),
    ];
    for (name, started) in others {
        match started {
            Ok(started) => servers.extend(started),
            Err(error) => missing.push(format!("{name}: {error}")),
        }
    }
    servers.push(hyper(binary, folder)?);
    for server in &mut servers {
        server.idle_mib = machine::memory_mib(&server.pids()).map_or(f64::NAN, |(now, _)| now);
    }
    Ok((servers, missing))
}

/// `bin/NAME` below the peers' folder, installed from crates.io if it is not there.
fn program(peers: &Path, name: &str, version: &str, options: &[&str]) -> Result<PathBuf, String> {
    let folder = peers.join(name);
    let program = folder.join("bin").join(name);
    if !program.is_file() {
        step(&format!("cargo install {name} {version}"), || {
            // As a user would, not with this project's own toolchain and target folder.
            run(Command::new("cargo")
                .args(["install", name, "--version", version, "--locked", "--quiet", "--root"])
                .arg(&folder)
                .args(options)
                .current_dir("/")
                .env_remove("RUSTUP_TOOLCHAIN")
                .env("CARGO_TARGET_DIR", peers.join(format!("{name}-target"))))
        })?;
    }
    Ok(program)
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| format!("no free port: {error}"))?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

/// Starts a program with its output in `folder/NAME.log`.
fn spawn(command: &mut Command, folder: &Path, name: &str) -> Result<Child, String> {
    let path = folder.join(format!("{name}.log"));
    let log = std::fs::File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let errors = log.try_clone().map_err(|error| error.to_string())?;
    let child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn();
    child.map_err(|error| format!("{name} cannot be run: {error}"))
}

/// Waits until it listens there.
fn wait_for_port(child: &mut Child, port: u16, name: &str) -> Result<(), String> {
    let mut ended = false;
    let listens = wait_until(START_LIMIT, || {
        ended = child.try_wait().is_ok_and(|status| status.is_some());
        ended || TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    if listens && !ended { Ok(()) } else { Err(format!("{name} did not begin to listen; see its log")) }
}
