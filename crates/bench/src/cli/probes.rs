//! The options of the probes, each with its method in its help.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::{TargetArgs, binary_or_this, parse_size, prepare_folder};
use crate::BenchError;
use crate::probe::connections::ConnectionsConfig;
use crate::probe::scale::ScaleConfig;
use crate::probe::soak::SoakConfig;
use crate::probe::tree::TreeConfig;
use crate::probe::ttfb::TtfbConfig;
use crate::probe::{Findings, Subject};

#[derive(Args, Debug)]
pub(super) struct SubjectArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// The server's admin API, for its counters and to empty its caches.
    #[arg(long, default_value = "127.0.0.1:9001", env = "ASHLAR_ADMIN")]
    admin: String,
    /// The server's process, to see what the kernel counts: bytes read from the device.
    #[arg(long)]
    pid: Option<u32>,
}

impl SubjectArgs {
    fn subject(&self) -> Result<Subject, BenchError> {
        let admin = self.admin.trim_start_matches("http://").trim_end_matches('/').to_owned();
        Ok(Subject { target: self.target.target()?, admin, pid: self.pid })
    }
}

/// Time to first byte: GET and HEAD, uncached and cached, beside O_DIRECT reads of the same disk.
///
/// Method: puts --objects objects of --size bytes. In batches of 64 keys far from each other, the server is told to empty its caches
/// (block cache of the metadata; page cache of all its files), keys that are not measured are asked for so that indexes of the tree
/// are in memory, then each key of the batch is asked for once: from sending the request to the first byte of the answer's body
/// (which comes with its head), or to the head of the answer to a HEAD. The server's counters say how many reads that cost: exactly one
/// read of an extent per GET (with --pid, at least its bytes from the device) and, filters being wrong once in 120, at most 1.05 blocks of the tree per HEAD. After each batch random
/// places of a file as large as the whole set, in --folder on the same disk, are read once around the page cache: 64 KiB and 4 KiB.
/// Then 256 keys are asked for from the caches. Verdict: GET at most two 64 KiB reads + 0.2 ms, HEAD at most two 4 KiB reads + 0.1 ms.
/// If the 4 KiB reads take microseconds, something below the disk is a cache, and the figures say nothing.
#[derive(Args, Debug)]
pub(super) struct TtfbArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// A folder on the disk that the server uses.
    #[arg(long, default_value = ".")]
    folder: PathBuf,
    /// Bucket; created if it is not there.
    #[arg(long, default_value = "ashlar-ttfb")]
    bucket: String,
    /// All keys begin with this.
    #[arg(long, default_value = "ttfb/")]
    prefix: String,
    /// Objects, rounded up to whole batches.
    #[arg(long, default_value_t = 4096)]
    objects: u64,
    /// Bytes of an object.
    #[arg(long, default_value = "64K", value_parser = parse_size)]
    size: u64,
    /// Decides contents and order.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Do not put the objects first.
    #[arg(long)]
    no_prepare: bool,
}

impl TtfbArgs {
    fn config(&self, progress: bool) -> Result<TtfbConfig, BenchError> {
        Ok(TtfbConfig {
            subject: self.subject.subject()?,
            folder: self.folder.clone(),
            bucket: self.bucket.clone(),
            prefix: self.prefix.clone(),
            objects: self.objects,
            size_bytes: self.size,
            seed: self.seed,
            prepare: !self.no_prepare,
            progress,
        })
    }
}

/// Many keys in three levels: loading, listing every level, walking all of them cold and warm, a hot set beside a walk.
///
/// Method: puts top x middle x leaf objects (those that are there already are not put again), empties the server's caches, lists root,
/// every top and every middle prefix by delimiter and compares each answer with what must be there; empties the caches, walks all
/// keys in pages of 1,000, and walks them again. Each key must be at its place. entries_per_second counts the time from the first byte
/// sent to the last byte received, without what the client does with a page. A warm walk must read nothing from the device: with
/// --pid that is what the kernel counted for the process, background work included, in the quietest of up to three walks; without, blocks that the server's own cache lacked. Then --hot random keys
/// are asked for by HEAD until they are warm, and again between the pages of a full walk and after it: their share of blocks found in
/// the cache of the metadata must stay above 80 % of what it was.
#[derive(Args, Debug)]
pub(super) struct TreeArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Bucket; created if it is not there.
    #[arg(long, default_value = "ashlar-tree")]
    bucket: String,
    /// All keys begin with this.
    #[arg(long, default_value = "")]
    prefix: String,
    /// Prefixes at the root.
    #[arg(long, default_value_t = 10)]
    top: u64,
    /// Prefixes in each of those.
    #[arg(long, default_value_t = 500)]
    middle: u64,
    /// Keys in each of those.
    #[arg(long, default_value_t = 1024)]
    leaf: u64,
    /// Bytes of an object.
    #[arg(long, default_value = "0", value_parser = parse_size)]
    size: u64,
    /// Connections that load.
    #[arg(long, short, default_value_t = 64)]
    concurrency: u32,
    /// Keys of the hot set.
    #[arg(long, default_value_t = 2000)]
    hot: u64,
    /// Measure what is there.
    #[arg(long)]
    no_load: bool,
    /// Decides contents and hot keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl TreeArgs {
    fn config(&self, progress: bool) -> Result<TreeConfig, BenchError> {
        Ok(TreeConfig {
            subject: self.subject.subject()?,
            bucket: self.bucket.clone(),
            prefix: self.prefix.clone(),
            top: self.top,
            middle: self.middle,
            leaf: self.leaf,
            body_bytes: self.size,
            concurrency: self.concurrency,
            hot: self.hot,
            load: !self.no_load,
            seed: self.seed,
            progress,
        })
    }
}

/// Many keep-alive connections beside a few that are measured.
///
/// Method: GETs, then PUTs, by --concurrency connections with one request in flight each, alone; then the same among --connections others,
/// of which a quarter read 8 MiB at 4 bytes a second, a quarter send a body so slowly, and half ask for something every 5 s. In turns,
/// --pairs times; medians are shown. p99 among the crowd must be at most 1.5 times that alone. The crowd shares the machine with what
/// is measured. Then slow writers are added until the server's queue of requests is full: the answer must be 503 SlowDown with
/// Retry-After, and the server must serve again when they are gone.
#[derive(Args, Debug)]
pub(super) struct ConnectionsArgs {
    #[command(flatten)]
    subject: SubjectArgs,
    /// Bucket; created if it is not there.
    #[arg(long, default_value = "ashlar-connections")]
    bucket: String,
    /// Connections of the crowd.
    #[arg(long, default_value_t = 1000)]
    connections: usize,
    /// Connections that are measured.
    #[arg(long, short, default_value_t = 8)]
    concurrency: u32,
    /// Bytes of an object that is measured.
    #[arg(long, default_value = "4K", value_parser = parse_size)]
    size: u64,
    /// Seconds of each measurement. A crowd lives through two; a server may cut off who is slow for a minute.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Pairs of measurements.
    #[arg(long, default_value_t = 3)]
    pairs: u32,
    /// Slow writers at most, to fill the server's queue; 0 leaves that part out.
    #[arg(long, default_value_t = 4500)]
    fill_queue: usize,
}

impl ConnectionsArgs {
    fn config(&self) -> Result<ConnectionsConfig, BenchError> {
        Ok(ConnectionsConfig {
            subject: self.subject.subject()?,
            bucket: self.bucket.clone(),
            crowd: self.connections,
            concurrency: self.concurrency,
            size_bytes: self.size,
            seconds: self.seconds,
            pairs: self.pairs,
            fill_queue: self.fill_queue,
        })
    }
}

/// Processor time of small requests with one worker thread and with several.
///
/// Method: starts two servers that differ in --workers only, and has HEAD, GET and PUT of small objects done by each in turns, --rounds
/// times. Processor time is that of the server's process; medians are compared: with more workers at most 1.1 times that with one.
#[derive(Args, Debug)]
pub(super) struct ScaleArgs {
    /// The binary to test; this one if left out.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Folder for the data; must be empty.
    #[arg(long)]
    folder: PathBuf,
    /// Worker threads of the second server.
    #[arg(long, default_value_t = 2)]
    workers: u32,
    /// Connections.
    #[arg(long, short, default_value_t = 16)]
    concurrency: u32,
    /// Bytes of an object.
    #[arg(long, default_value = "4K", value_parser = parse_size)]
    size: u64,
    /// Seconds of each step.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Rounds.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Further options of `ashlar server`.
    #[arg(last = true)]
    server_options: Vec<String>,
}

impl ScaleArgs {
    fn config(&self) -> Result<ScaleConfig, BenchError> {
        prepare_folder(&self.folder)?;
        Ok(ScaleConfig {
            binary: binary_or_this(self.binary.as_ref())?,
            folder: self.folder.clone(),
            workers: self.workers,
            concurrency: self.concurrency,
            size_bytes: self.size,
            seconds: self.seconds,
            rounds: self.rounds,
            options: self.server_options.clone(),
        })
    }
}

/// Mixed load for hours: latency, memory, descriptors, files and space must stay what they are.
///
/// Method: starts a server that reclaims space after 5 s, fills it, then has --workers connections put, overwrite, get, head, delete, list
/// and upload in parts, each on keys of its own, --rate operations a second in all; whatever is read is compared with what was
/// acknowledged. Every --sample: latencies since the last one, memory, descriptors, files, space, live data, processor time. A scrub
/// begins every --scrub-every. At the end everything is compared once more and the audit must be clean. p50 and p99 of small
/// requests in the last quarter should be at most 1.2 times those of the first; memory, descriptors, files, and space beyond the
/// live data must not grow over the second half (Theil-Sen slope; 5 %, space 15 %, or the noise of one sample where that is more). With
/// --memory among the server's options, its peak must be at most that and a tenth.
#[derive(Args, Debug)]
pub(super) struct SoakArgs {
    /// How long: 90s, 10m, 1h.
    #[arg(long = "for", default_value = "1h", value_parser = parse_duration)]
    duration: Duration,
    /// Operations a second, all connections together; 0 is as many as there can be.
    #[arg(long, default_value_t = 0.0)]
    rate: f64,
    /// Connections.
    #[arg(long, default_value_t = 8)]
    workers: u32,
    /// Time between samples.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    sample: Duration,
    /// Time between scrubs; 0s leaves them out.
    #[arg(long, default_value = "10m", value_parser = parse_duration)]
    scrub_every: Duration,
    /// Decides the load.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The binary to test; this one if left out.
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Folder for the data; must be empty.
    #[arg(long)]
    folder: PathBuf,
    /// Data folders of the server.
    #[arg(long, default_value_t = 1)]
    disks: u32,
    /// Also write the samples to this file, tab-separated.
    #[arg(long)]
    tsv: Option<PathBuf>,
    /// Further options of `ashlar server`, such as --memory 256MiB.
    #[arg(last = true)]
    server_options: Vec<String>,
}

impl SoakArgs {
    fn config(&self, progress: bool) -> Result<SoakConfig, BenchError> {
        prepare_folder(&self.folder)?;
        Ok(SoakConfig {
            binary: binary_or_this(self.binary.as_ref())?,
            folder: self.folder.clone(),
            disks: self.disks,
            memory_bytes: memory_of(&self.server_options),
            options: self.server_options.clone(),
            duration: self.duration,
            sample: self.sample,
            scrub_every: self.scrub_every,
            workers: self.workers,
            rate: self.rate,
            seed: self.seed,
            tsv: self.tsv.clone(),
            progress,
        })
    }
}

/// One of the probes.
pub(super) enum Probe<'a> {
    Ttfb(&'a TtfbArgs),
    Tree(&'a TreeArgs),
    Connections(&'a ConnectionsArgs),
    Scale(&'a ScaleArgs),
    Soak(&'a SoakArgs),
}

impl Probe<'_> {
    /// Runs it.
    pub(super) async fn run(self, progress: bool) -> Result<Findings, BenchError> {
        match self {
            Probe::Ttfb(args) => crate::probe::ttfb::run(&args.config(progress)?).await,
            Probe::Tree(args) => crate::probe::tree::run(&args.config(progress)?).await,
            Probe::Connections(args) => crate::probe::connections::run(&args.config()?).await,
            Probe::Scale(args) => crate::probe::scale::run(&args.config()?).await,
            Probe::Soak(args) => crate::probe::soak::run(&args.config(progress)?).await,
        }
    }
}

/// What the server is told to keep within, if it is told.
fn memory_of(options: &[String]) -> Option<u64> {
    let at = options.iter().position(|option| option == "--memory")?;
    parse_size(options.get(at + 1)?).ok()
}

/// `250ms`, `90s`, `10m`, `1h`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as 90s, 10m or 1h");
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit_ms = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::{memory_of, parse_duration};
    use std::time::Duration;

    #[test]
    fn the_memory_of_a_server_is_read_from_its_options() {
        let options = ["--rf", "1", "--memory", "256MiB"].map(str::to_owned);
        assert_eq!((memory_of(&options), memory_of(&options[..3])), (Some(256 << 20), None));
    }

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse_duration("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert!(["", "5", "s", "5d", "99999999999999999h"].iter().all(|text| parse_duration(text).is_err()));
    }
}
