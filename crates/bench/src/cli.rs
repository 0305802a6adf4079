//! The command line of `ashlar bench`.
//!
//! Promises: `--json` prints one JSON value on standard output and nothing else. Refuses to know: how anything is measured.
#![allow(clippy::print_stdout)] // This file is the terminal side of the crate.

mod probes;

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::chaos::{self, ChaosConfig, ClusterConfig, Fault};
use crate::client::Target;
use crate::client::signature::{Credentials, PayloadSigning};
use crate::crash::{self, CrashConfig, ServerConfig};
use crate::table::{self, TableConfig};
use crate::{BenchError, Config, Operation, clock, floor, hyper_floor};
use probes::{ConnectionsArgs, Probe, ScaleArgs, SoakArgs, TreeArgs, TtfbArgs};

/// Load generator, benchmark table and crash tester for any S3 endpoint.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// Print one JSON value instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// PutObject of new keys.
    Put(LoadArgs),
    /// GetObject of random keys, every byte compared.
    Get(LoadArgs),
    /// GetObject of random ranges, every byte compared.
    Ranged(LoadArgs),
    /// HeadObject of random keys.
    Head(LoadArgs),
    /// DeleteObject of keys that were put before.
    Delete(LoadArgs),
    /// Pages of ListObjectsV2.
    List(LoadArgs),
    /// CopyObject.
    Copy(LoadArgs),
    /// Whole multipart uploads.
    Multipart(LoadArgs),
    /// GET 50 %, PUT 25 %, HEAD 15 %, DELETE 5 %, LIST 5 %.
    Mixed(LoadArgs),
    /// The benchmark table with targets, and the machine's floor.
    Table(TableArgs),
    /// The machine's floor alone.
    Floor(FloorArgs),
    /// kill -9 under verified load, round after round.
    Crash(CrashArgs),
    /// Faults on a local cluster under verified load; the history of every key is checked.
    Chaos(ChaosArgs),
    Ttfb(TtfbArgs),
    Tree(TreeArgs),
    Connections(ConnectionsArgs),
    Scale(ScaleArgs),
    Soak(SoakArgs),
    /// A bare HTTP server that answers each GET with the body of the first PUT: the floor of `cargo xtask bench --compare`.
    #[command(hide = true)]
    HyperFloor(HyperFloorArgs),
}

#[derive(Args, Debug)]
struct TargetArgs {
    /// The server, by http.
    #[arg(long, default_value = "http://127.0.0.1:9000")]
    endpoint: String,
    /// Region of the signature.
    #[arg(long, default_value = "us-east-1")]
    region: String,
    /// Access key id.
    #[arg(long, env = "ASHLAR_ROOT_ACCESS_KEY")]
    access_key: String,
    /// Secret access key.
    #[arg(long, env = "ASHLAR_ROOT_SECRET_KEY", hide_env_values = true)]
    secret_key: String,
    /// Sign the SHA-256 of each body.
    #[arg(long)]
    signed_payload: bool,
}

impl TargetArgs {
    fn target(&self) -> Result<Target, BenchError> {
        let address = self.endpoint.strip_prefix("http://").unwrap_or(&self.endpoint).trim_end_matches('/');
        if address.contains("://") {
            return Err(BenchError::Usage("--endpoint must be an http URL".into()));
        }
        Ok(Target {
            address: address.to_owned(),
            region: self.region.clone(),
            credentials: Credentials { access_key: self.access_key.clone(), secret_key: self.secret_key.clone() },
            payload: if self.signed_payload { PayloadSigning::Sha256 } else { PayloadSigning::Unsigned },
        })
    }
}

#[derive(Args, Debug)]
struct LoadArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Bucket; created if it is not there.
    #[arg(long, default_value = "ashlar-bench")]
    bucket: String,
    /// Length of an object, part or range: 4096, 4K, 1M.
    #[arg(long, default_value = "4K", value_parser = parse_size)]
    size: u64,
    /// Length of the objects that ranges are read of.
    #[arg(long, default_value = "8M", value_parser = parse_size)]
    object_size: u64,
    /// Connections with one request in flight each.
    #[arg(long, short, default_value_t = 16)]
    concurrency: u32,
    /// End after so many operations.
    #[arg(long)]
    count: Option<u64>,
    /// End after so many seconds; 10 if there is no count.
    #[arg(long)]
    seconds: Option<f64>,
    /// Seconds before anything is measured.
    #[arg(long, default_value_t = 0.0)]
    warmup: f64,
    /// Keys to read.
    #[arg(long, default_value_t = 1000)]
    objects: u64,
    /// All keys begin with this.
    #[arg(long, default_value = "bench/")]
    prefix: String,
    /// Spread keys over so many sub-prefixes.
    #[arg(long, default_value_t = 0)]
    fanout: u64,
    /// Decides all contents.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Do not put the keys to be read first.
    #[arg(long)]
    no_prepare: bool,
    /// Entries of a page.
    #[arg(long, default_value_t = 1000)]
    page: u32,
    /// Group listings by it.
    #[arg(long)]
    delimiter: Option<String>,
    /// Parts of an upload.
    #[arg(long, default_value_t = 8)]
    parts: u32,
    /// Parts of one upload sent at the same time.
    #[arg(long, default_value_t = 8)]
    parallel_parts: u32,
    /// Also report this server process's processor time and memory.
    #[arg(long)]
    pid: Option<u32>,
    /// Also report this block device's writes and flushes (a name like vda).
    #[arg(long)]
    disk: Option<String>,
}

impl LoadArgs {
    fn config(&self, operation: Operation, progress: bool) -> Result<Config, BenchError> {
        let seconds = self.seconds.or(if self.count.is_none() { Some(10.0) } else { None });
        Ok(Config {
            target: self.target.target()?,
            bucket: self.bucket.clone(),
            operation,
            size_bytes: self.size,
            object_bytes: self.object_size,
            concurrency: self.concurrency,
            count: self.count,
            duration: seconds.map(duration).transpose()?,
            warmup: duration(self.warmup)?,
            objects: self.objects,
            prefix: self.prefix.clone(),
            fanout: self.fanout,
            seed: self.seed,
            prepare: !self.no_prepare,
            page_keys: self.page,
            delimiter: self.delimiter.clone(),
            parts: self.parts,
            parallel_parts: self.parallel_parts,
            pid: self.pid,
            disk: self.disk.clone(),
            progress,
        })
    }
}

#[derive(Args, Debug)]
struct TableArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// The server's process.
    #[arg(long)]
    pid: u32,
    /// The block device its data lie on (a name like vda).
    #[arg(long)]
    disk: Option<String>,
    /// A folder on that device, for the floor.
    #[arg(long, default_value = ".")]
    folder: PathBuf,
    /// Seconds of each step.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Keys of the listing.
    #[arg(long, default_value_t = 100_000)]
    list_keys: u64,
    /// Interleaved rounds; the median is shown.
    #[arg(long, default_value_t = 1)]
    rounds: u32,
}

#[derive(Args, Debug)]
struct FloorArgs {
    /// Where to write.
    #[arg(long, default_value = ".")]
    folder: PathBuf,
}

#[derive(Args, Debug)]
struct CrashArgs {
    /// Kills.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
    /// Writers.
    #[arg(long, default_value_t = 8)]
    writers: u32,
    /// Repeats a run; from the clock if left out.
    #[arg(long)]
    seed: Option<u64>,
    /// The binary to test; this one if left out.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Folder for the data; must be empty. Kept if a promise was broken.
    #[arg(long)]
    folder: PathBuf,
    /// Data folders of the server.
    #[arg(long, default_value_t = 1)]
    disks: u32,
    /// The bucket keeps versions; old ones are read and deleted too.
    #[arg(long)]
    versioned: bool,
    /// Further options of `ashlar server`, such as --rf 2.
    #[arg(last = true)]
    server_options: Vec<String>,
}

#[derive(Args, Debug)]
struct ChaosArgs {
    /// What is done, one after the other.
    #[arg(long = "fault", value_enum, default_values_t = [Fault::KillNode])]
    faults: Vec<Fault>,
    /// Nodes of the cluster.
    #[arg(long, default_value_t = 3)]
    nodes: u32,
    /// Balancers in front of them; 0: clients go to the nodes in turn.
    #[arg(long, default_value_t = 0)]
    balancers: u32,
    /// How long each fault lasts.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Clients.
    #[arg(long, default_value_t = 8)]
    clients: u32,
    /// Repeats a run's choices; from the clock if left out.
    #[arg(long)]
    seed: Option<u64>,
    /// The binary to test; this one if left out.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Folder for the data; must be empty. Kept.
    #[arg(long)]
    folder: PathBuf,
    /// Further options of `ashlar dev`.
    #[arg(last = true)]
    dev_options: Vec<String>,
}

#[derive(Args, Debug)]
struct HyperFloorArgs {
    /// Where to listen; port 0 takes a free one. The address is printed as one JSON line.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

/// Does what the arguments say. `Ok(false)` means that it was done and something was not as it should be.
pub fn execute(args: &BenchArgs) -> Result<bool, BenchError> {
    // One thread: on a small machine the load generator must leave the processors to the server.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(BenchError::local("make a runtime"))?;
    let json = args.json;
    match &args.command {
        Command::Put(load) => run_load(&runtime, load, Operation::Put, json),
        Command::Get(load) => run_load(&runtime, load, Operation::Get, json),
        Command::Ranged(load) => run_load(&runtime, load, Operation::Ranged, json),
        Command::Head(load) => run_load(&runtime, load, Operation::Head, json),
        Command::Delete(load) => run_load(&runtime, load, Operation::Delete, json),
        Command::List(load) => run_load(&runtime, load, Operation::List, json),
        Command::Copy(load) => run_load(&runtime, load, Operation::Copy, json),
        Command::Multipart(load) => run_load(&runtime, load, Operation::Multipart, json),
        Command::Mixed(load) => run_load(&runtime, load, Operation::Mixed, json),
        Command::Table(table) => run_table(&runtime, table, json),
        Command::Floor(args) => {
            let floor = floor::measure(&args.folder)?;
            print_json(&floor)?;
            Ok(true)
        }
        Command::Crash(crash) => run_crash(&runtime, crash, json),
        Command::Chaos(args) => run_chaos(&runtime, args, json),
        Command::Ttfb(args) => run_probe(&runtime, Probe::Ttfb(args), json),
        Command::Tree(args) => run_probe(&runtime, Probe::Tree(args), json),
        Command::Connections(args) => run_probe(&runtime, Probe::Connections(args), json),
        Command::Scale(args) => run_probe(&runtime, Probe::Scale(args), json),
        Command::Soak(args) => run_probe(&runtime, Probe::Soak(args), json),
        Command::HyperFloor(args) => {
            hyper_floor::serve(args.listen, |address| println!("{}", serde_json::json!({ "endpoint": address })))?;
            Ok(true)
        }
    }
}

fn run_load(
    runtime: &tokio::runtime::Runtime,
    args: &LoadArgs,
    operation: Operation,
    json: bool,
) -> Result<bool, BenchError> {
    let report = runtime.block_on(crate::run(args.config(operation, !json)?))?;
    if json {
        print_json(&report)?
    } else {
        print!("{report}")
    }
    Ok(report.is_good())
}

fn run_table(runtime: &tokio::runtime::Runtime, args: &TableArgs, json: bool) -> Result<bool, BenchError> {
    if args.rounds == 0 {
        return Err(BenchError::Usage("--rounds must be at least 1".into()));
    }
    let config = TableConfig {
        target: args.target.target()?,
        pid: args.pid,
        disk: args.disk.clone(),
        folder: args.folder.clone(),
        seconds: args.seconds,
        list_keys: args.list_keys,
        rounds: args.rounds,
    };
    let table = runtime.block_on(table::measure(&config))?;
    if json {
        print_json(&table)?
    } else {
        print!("{table}")
    }
    Ok(table.errors.is_empty())
}

fn run_probe(runtime: &tokio::runtime::Runtime, probe: Probe<'_>, json: bool) -> Result<bool, BenchError> {
    let findings = runtime.block_on(probe.run(!json))?;
    if json {
        print_json(&findings)?
    } else {
        print!("{findings}")
    }
    Ok(findings.is_good())
}

fn run_crash(runtime: &tokio::runtime::Runtime, args: &CrashArgs, json: bool) -> Result<bool, BenchError> {
    prepare_folder(&args.folder)?;
    let binary = binary_or_this(args.binary.as_ref())?;
    let server = ServerConfig {
        binary,
        folder: args.folder.clone(),
        disks: args.disks.max(1),
        options: args.server_options.clone(),
    };
    let seed = args.seed.unwrap_or_else(clock::wall_ms);
    let config = CrashConfig {
        server,
        rounds: args.rounds,
        writers: args.writers.max(1),
        seed,
        versioned: args.versioned,
        verbose: !json,
    };
    let result = runtime.block_on(crash::run(&config));
    tell_trial("crash", result, &args.folder, seed, json)
}

fn run_chaos(runtime: &tokio::runtime::Runtime, args: &ChaosArgs, json: bool) -> Result<bool, BenchError> {
    if args.faults.iter().any(|fault| fault.is_of_network()) {
        chaos::enter()?;
    }
    prepare_folder(&args.folder)?;
    let seed = args.seed.unwrap_or_else(clock::wall_ms);
    let config = ChaosConfig {
        cluster: ClusterConfig {
            binary: binary_or_this(args.binary.as_ref())?,
            folder: args.folder.clone(),
            nodes: args.nodes,
            balancers: args.balancers,
            options: args.dev_options.clone(),
        },
        faults: args.faults.clone(),
        lasts: duration(args.seconds)?,
        clients: args.clients.max(1),
        seed,
        verbose: !json,
    };
    let result = runtime.block_on(chaos::run(&config));
    tell_trial("chaos", result, &args.folder, seed, json)
}

/// The report, or what went wrong and what is needed to look into it; whether all was well.
fn tell_trial<R: Serialize + Display>(
    what: &str,
    result: Result<R, BenchError>,
    folder: &Path,
    seed: u64,
    json: bool,
) -> Result<bool, BenchError> {
    match result {
        Ok(report) if json => print_json(&report).map(|()| true),
        Ok(report) => {
            print!("{report}");
            Ok(true)
        }
        Err(error) => {
            crash::note_failure(folder, &format!("seed {seed}: {error}"));
            eprintln!("{error}\nseed {seed}; data and logs are kept in {}", folder.display());
            if json {
                print_json(&serde_json::json!({"seed": seed, "error": error.to_string()}))?;
            } else {
                println!("{what}: 0 passed, 1 failed, 0 skipped");
            }
            Ok(false)
        }
    }
}

fn binary_or_this(binary: Option<&PathBuf>) -> Result<PathBuf, BenchError> {
    match binary {
        Some(binary) => Ok(binary.clone()),
        None => std::env::current_exe().map_err(BenchError::local("find this program's file")),
    }
}

fn prepare_folder(folder: &Path) -> Result<(), BenchError> {
    std::fs::create_dir_all(folder).map_err(BenchError::local(folder.display().to_string()))?;
    let mut entries = std::fs::read_dir(folder).map_err(BenchError::local(folder.display().to_string()))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(BenchError::Usage(format!("{} is not empty", folder.display()))),
    }
}

fn print_json(value: &impl Serialize) -> Result<(), BenchError> {
    let text =
        serde_json::to_string(value).map_err(|error| BenchError::Usage(format!("cannot print as JSON: {error}")))?;
    println!("{text}");
    Ok(())
}

fn duration(seconds: f64) -> Result<Duration, BenchError> {
    Duration::try_from_secs_f64(seconds).map_err(|_| BenchError::Usage("seconds must not be negative".into()))
}

/// `4096`, `4K`, `4KiB`, `1M`, `2G`; always powers of 1024.
fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(format!("{text:?} is not a size such as 4096, 4K or 1M")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{text:?} is not a size such as 4096, 4K or 1M"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text:?} is too large"))
}

#[cfg(test)]
mod tests {
    use super::{BenchArgs, parse_size};
    use clap::{Args, FromArgMatches};

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_size("4K"), Ok(4096));
        assert_eq!(parse_size("1MiB"), Ok(1 << 20));
        assert_eq!(parse_size("17"), Ok(17));
        assert!(parse_size("4X").is_err() && parse_size("K").is_err() && parse_size("99999999999G").is_err());
    }

    #[test]
    fn every_subcommand_is_well_formed_and_keys_are_taken() {
        let command = BenchArgs::augment_args(clap::Command::new("bench"));
        command.clone().debug_assert();
        let line = ["bench", "put", "--size", "1M", "--access-key", "a", "--secret-key", "s", "--json"];
        let matches = command.try_get_matches_from(line).expect("a valid line");
        assert!(BenchArgs::from_arg_matches(&matches).expect("parsed").json);
    }
}
