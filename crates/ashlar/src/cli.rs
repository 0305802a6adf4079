//! The command line as types. Knows no logic: each subcommand's story is in its own file.

mod manage;

pub use manage::{BucketCommand, DiskCommand, NodeCommand, ObjectCommand, SetDurability};

use crate::admin_curator::CuratorCommand;
use ::balancer::NodeAddress;
use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;
use types::DiskId;

/// An S3-compatible object store that scales out, is fast and heals itself.
#[derive(Parser)]
#[command(name = "ashlar", version, max_term_width = 120)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run a store on this machine.
    Server(ServerArgs),
    /// Ask or tell a running server.
    Admin(AdminArgs),
    /// Print what lies on a disk. Reads only; the server may be running.
    Inspect(InspectArgs),
    /// Load an S3 endpoint and report rates and latencies; every byte is verified.
    Bench(bench::cli::BenchArgs),
    /// Stand in front of nodes: each request goes to the healthy one whose turn it is.
    Balancer(BalancerArgs),
    /// Run a whole cluster on this machine, each node a process of its own; for development and tests.
    Dev(DevArgs),
}

#[derive(Args, Clone)]
pub struct ServerArgs {
    /// Data folder, one for each disk; made if missing at the very first start.
    #[arg(long = "data-dir", default_value = "./ashlar-data")]
    pub data_dirs: Vec<PathBuf>,
    /// Address of the S3 endpoint; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:9000")]
    pub listen: SocketAddr,
    /// Address of health, metrics and the admin API; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:9001")]
    pub admin_listen: SocketAddr,
    /// Join the cluster of this token (`ashlar admin cluster join-token`), with empty data folders. Later starts need it no more.
    #[arg(long, value_name = "TOKEN", env = "ASHLAR_JOIN_TOKEN", hide_env_values = true)]
    pub join: Option<String>,
    /// Address for the messages of other nodes; port 0 takes a free one and keeps it.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub rpc_listen: SocketAddr,
    /// The rack the node stands in: copies are put into different ones.
    #[arg(long, value_name = "NAME")]
    pub rack: Option<String>,
    /// Copies of data and metadata, on so many distinct data folders.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=3))]
    pub rf: u8,
    /// Take data folders that are not part of this store yet as new disks (for this start).
    #[arg(long)]
    pub add_disk: bool,
    /// Go on without this disk: it is gone for good. What has no copy on another disk is lost with it. Repeatable.
    #[arg(long = "lost-disk", value_name = "ID")]
    pub lost_disks: Vec<DiskId>,
    /// Memory for caches and buffers together.
    #[arg(long, default_value = "1GiB", value_parser = parse_bytes)]
    pub memory: u64,
    /// Of it, the caches of metadata: blocks, and small objects as they were read; a quarter if left out.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub metadata_cache: Option<u64>,
    /// Threads that serve requests; one for each processor if left out.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// How data is read that is not in memory: by io_uring where the machine allows it, or by threads only.
    #[arg(long, value_enum, default_value_t = Io::Auto)]
    pub io: Io,
    /// Region that signatures must name.
    #[arg(long, default_value = "us-east-1")]
    pub region: String,
    /// Domain whose sub-domains are buckets (virtual-host style).
    #[arg(long, default_value = "localhost")]
    pub domain: Vec<String>,
    /// Print one line {endpoint, admin, pid} when ready, and logs as JSON.
    #[arg(long)]
    pub json: bool,
    /// Length of a day in lifecycle rules, for tests. Lifecycle is not there yet: accepted and unused.
    #[arg(long, hide = true)]
    pub lifecycle_day: Option<String>,
    /// Wait between condemning and reclaiming space; shorter in tests.
    #[arg(long, hide = true, default_value = "10m", value_parser = parse_duration_ms)]
    pub reclaim_delay: u64,
    /// Bytes of an extent group.
    #[arg(long, hide = true, default_value = "64MiB", value_parser = parse_bytes)]
    pub group_size: u64,
}

/// Engines of `--io`.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Io {
    /// io_uring if a try at the start succeeds, else threads.
    Auto,
    /// A pool of threads.
    Threads,
    /// io_uring; the start fails if it is not allowed.
    #[value(name = "io_uring")]
    Uring,
}

#[derive(Args)]
pub struct AdminArgs {
    /// Admin address of the server.
    #[arg(long, global = true, default_value = "127.0.0.1:9001", env = "ASHLAR_ADMIN")]
    pub admin: String,
    /// Data folder to take the root keys from, if they are not in ASHLAR_ROOT_ACCESS_KEY and ASHLAR_ROOT_SECRET_KEY.
    #[arg(long, global = true, default_value = "./ashlar-data")]
    pub data_dir: PathBuf,
    /// Answer in JSON.
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: AdminCommand,
}

#[derive(Subcommand)]
pub enum AdminCommand {
    /// Version, disks, space, buckets, work in progress.
    Info,
    /// Prove that referenced extents are the stored extents; names what differs. Exit code 1 if anything does.
    Audit,
    /// Read and verify every replica of every extent; repairs from another disk's replica. Exit code 1 if damage is left.
    Scrub,
    /// Write what is in memory alone to the metadata's tables, and let caches go: what is read next is read as after a restart.
    FlushCaches,
    /// Accounts, each with its own keys and buckets.
    #[command(subcommand)]
    User(UserCommand),
    /// The nodes of the cluster.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// How the bytes of buckets are kept.
    #[command(subcommand)]
    Bucket(BucketCommand),
    /// Take a node out of service, back, or out for good. Refused with what it would break.
    #[command(subcommand)]
    Node(NodeCommand),
    /// Take a disk out of service, back, or out for good. Refused with what it would break.
    #[command(subcommand)]
    Disk(DiskCommand),
    /// Where an object lies.
    #[command(subcommand)]
    Object(ObjectCommand),
    /// Copies: how many there are, and what is done about them.
    #[command(subcommand)]
    Curator(CuratorCommand),
}

#[derive(Subcommand)]
pub enum ClusterCommand {
    /// Nodes and disks, and what is thought of them.
    Status,
    /// Make a token that admits one node: `ashlar server --join TOKEN` with empty data folders. It is shown once.
    JoinToken {
        /// How long it admits, such as 10m or 1h.
        #[arg(long, default_value = "1h", value_parser = parse_duration_ms)]
        valid: u64,
    },
}

#[derive(Subcommand)]
pub enum UserCommand {
    /// Add an account and print its keys.
    Create {
        name: String,
        /// Minted if left out.
        #[arg(long)]
        access_key: Option<String>,
        /// Minted if left out.
        #[arg(long, requires = "access_key")]
        secret_key: Option<String>,
        #[arg(long)]
        email: Option<String>,
    },
    /// List accounts (never their secrets).
    List,
    /// Remove an account that owns no buckets.
    Delete { name: String },
}

#[derive(Args)]
pub struct InspectArgs {
    /// Data folder to look into; `object` takes several, in case copies of the metadata are not where they were.
    #[arg(long = "data-dir", value_name = "DIR", global = true, default_value = "./ashlar-data")]
    pub data_dirs: Vec<PathBuf>,
    /// Answer in JSON.
    #[arg(long, global = true)]
    pub json: bool,
    #[command(subcommand)]
    pub command: InspectCommand,
}

#[derive(Subcommand)]
pub enum InspectCommand {
    /// Identity, space, and how many groups of which state.
    Disk,
    /// The frames of one extent group.
    Egroup { group: String },
    /// One frame: header, slices, whether they verify.
    Extent {
        group: String,
        /// Offset of the frame in the group's file.
        offset: u64,
    },
    /// Segments and records of the Raft log.
    Log,
    /// Where an object's bytes are (asks the metadata of a stopped server, all of its copies).
    Object {
        bucket: String,
        key: String,
        #[arg(long)]
        version_id: Option<String>,
    },
}

#[derive(Args)]
pub struct BalancerArgs {
    /// Address for clients; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:9010")]
    pub listen: SocketAddr,
    /// Address of health and metrics of the balancer itself; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:9011")]
    pub admin_listen: SocketAddr,
    /// A node: its S3 endpoint, and its admin address, which is asked whether the node is ready. Repeatable.
    #[arg(long = "node", value_name = "ENDPOINT[,ADMIN]", required = true)]
    pub nodes: Vec<NodeAddress>,
    /// Time between two checks of a node.
    #[arg(long, default_value = "500ms", value_parser = parse_duration_ms)]
    pub check_every: u64,
    /// Speak TLS with clients: the certificate and those that sign it, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The certificate's private key, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Print one line {endpoint, admin, pid} when ready, and logs as JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct DevArgs {
    #[command(flatten)]
    pub cluster: DevClusterArgs,
    #[command(subcommand)]
    pub command: Option<DevCommand>,
}

#[derive(Args)]
pub struct DevClusterArgs {
    /// Nodes of a new cluster; left out, those that the folder has.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub nodes: Option<u16>,
    /// Data folders of each node.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub disks: Option<u16>,
    /// Load balancers in front of all nodes.
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=16))]
    pub balancers: Option<u16>,
    /// Folder of the whole cluster; ports and keys are kept in it, so that a second start brings the same cluster back.
    #[arg(long, default_value = "./ashlar-dev")]
    pub data_dir: PathBuf,
    /// Run node n in the network namespace PREFIXn, at the address 10.77.0.n: for tests that made these.
    #[arg(long, hide = true, value_name = "PREFIX")]
    pub networks: Option<String>,
    /// Print one line {access_key, secret_key, nodes, balancers} when all are ready.
    #[arg(long)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum DevCommand {
    /// Start one node of the cluster again, with its ports and folders, in the foreground.
    StartNode {
        /// n1, n2, ...
        name: String,
        /// Folder of the whole cluster.
        #[arg(long, default_value = "./ashlar-dev")]
        data_dir: PathBuf,
        /// Print one line {endpoint, admin, pid} when ready, and logs as JSON.
        #[arg(long)]
        json: bool,
    },
}

/// `64MiB`, `1GiB`, `500k`, `4096`: binary units, case and the `iB` are optional.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| format!("'{text}' is not a size; write it as 512MiB or 1GiB"))?;
    let shift = match &lower[digits.len()..] {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        unit => return Err(format!("'{unit}' is not a unit of size; use KiB, MiB, GiB or TiB")),
    };
    number.checked_mul(1 << shift).ok_or_else(|| format!("'{text}' is too large"))
}

/// `500ms`, `2s`, `10m`, `1h` in milliseconds.
pub fn parse_duration_ms(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| format!("'{text}' is not a duration; write it as 2s or 10m"))?;
    let unit = match &text[digits.len()..] {
        "ms" => 1,
        "s" | "" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        unit => return Err(format!("'{unit}' is not a unit of time; use ms, s, m, h or d")),
    };
    number.checked_mul(unit).ok_or_else(|| format!("'{text}' is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read_as_people_write_them() {
        assert_eq!(parse_bytes("1GiB"), Ok(1 << 30));
        assert_eq!(parse_bytes("64m"), Ok(64 << 20));
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert!(parse_bytes("1XB").is_err() && parse_bytes("GiB").is_err() && parse_bytes("99999999999T").is_err());
        assert_eq!(parse_duration_ms("2s"), Ok(2000));
        assert_eq!(parse_duration_ms("10m"), Ok(600_000));
        assert!(parse_duration_ms("x").is_err());
    }

    #[test]
    fn the_command_line_is_well_formed() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
