//! What one durable append costs on this machine: raw ways of writing 4 KiB, then the log, then a proposal end to end.
//!
//! `cargo run --release -p ashlar-metadata --example log_floor -- DIRECTORY`. Prints p50 and p99; asserts nothing.
#![allow(clippy::print_stdout)]

use bytes::Bytes;
use env::Env;
use env::buf::AlignedBuf;
use env::clock::{Clock, SystemClock};
use env::disk::{Caching, Disk, Open};
use env::real_disk::RealDisk;
use metadata::command::{Command, Entry, Outcome, RootCommand};
use metadata::log::format::{Item, LogEntry};
use metadata::log::{Log, LogConfig};
use metadata::node::{FolderConfig, Metadata, MetadataConfig};
use metadata::shard::{ROOT, Shard, ShardId, StateMachine};
use metadata::tree::{Read, TreeError, WriteBatch};
use std::path::Path;
use std::sync::Arc;
use types::AttemptId;

type AnyResult<T> = Result<T, Box<dyn std::error::Error>>;

const ROUNDS: u64 = 1000;

struct One;

impl StateMachine for One {
    fn apply(&mut self, _: &Shard, entry: &Entry, _: &dyn Read, batch: &mut WriteBatch) -> Result<Outcome, TreeError> {
        batch.put([&[200], entry.attempt.to_bytes().as_slice()].concat(), vec![0; 300]);
        Ok(Outcome::Done)
    }
}

fn main() -> AnyResult<()> {
    let root = std::env::args().nth(1).ok_or("name a directory")?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(Path::new(&root), true)?);
    for (name, caching, fill) in [
        ("direct, written before", Caching::Direct, true),
        ("direct, reserved only", Caching::Direct, false),
        ("buffered, written before", Caching::Buffered, true),
        ("buffered, reserved only", Caching::Buffered, false),
    ] {
        raw(&*disk, name, caching, fill)?;
    }
    log(&disk)?;
    proposals(&disk, 1)?;
    proposals(&disk, 64)?;
    Ok(())
}

fn raw(disk: &dyn Disk, name: &str, caching: Caching, fill: bool) -> AnyResult<()> {
    let file = disk.open("raw", Open::CreateNew, caching)?;
    file.allocate(0, ROUNDS * 4096)?;
    let zeros = AlignedBuf::zeroed(1 << 20);
    for offset in (0..ROUNDS * 4096).step_by(1 << 20).filter(|_| fill) {
        file.write_at(&zeros, offset)?;
    }
    file.sync_data()?;
    let mut times = Vec::new();
    for round in 0..ROUNDS {
        times.push(timed(|| {
            file.write_at(&zeros[..4096], round * 4096)?;
            file.sync_data()
        })?);
    }
    report(name, times);
    Ok(disk.remove("raw")?)
}

fn log(disk: &Arc<dyn Disk>) -> AnyResult<()> {
    let config = LogConfig { disk: disk.clone(), dir: "floor-log".to_owned(), segment_bytes: 4 << 20 };
    let mut log = Log::create(config, 1)?;
    let mut times = Vec::new();
    for index in 1..=ROUNDS {
        let data = Bytes::from_static(&[0; 400]);
        let item = Item::Entry(LogEntry { shard: ShardId(1), index, term: 1, kind: 0, data });
        times.push(timed(|| log.append(&[item]))?);
        if index % 200 == 0 {
            log.truncate(&[(ShardId(1), index, 1)])?;
        }
    }
    report("log append of 400 bytes", times);
    Ok(())
}

fn proposals(disk: &Arc<dyn Disk>, writers: u64) -> AnyResult<()> {
    let folder = FolderConfig { disk: disk.clone(), dir: format!("floor-{writers}") };
    let config = MetadataConfig { create: true, ..MetadataConfig::small(Env::system(1), 1, vec![folder]) };
    let metadata = Metadata::open(config, Box::new(One))?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let before = metadata.stats();
    let begun = SystemClock.monotonic();
    let mut tasks = Vec::new();
    for writer in 0..writers {
        let metadata = metadata.clone();
        tasks.push(runtime.spawn(async move {
            let mut times = Vec::new();
            for sequence in 0..ROUNDS {
                let begun = SystemClock.monotonic();
                let attempt = AttemptId { node: 1, session: writer as u32, sequence };
                let command = Command::Root(RootCommand::NewSession { node: 1 });
                metadata.propose(ROOT, attempt, u64::MAX, command).await.map_err(|e| e.to_string())?;
                times.push(SystemClock.monotonic() - begun);
            }
            Ok::<_, String>(times)
        }));
    }
    let mut times = Vec::new();
    for task in tasks {
        times.extend(runtime.block_on(task)??);
    }
    let seconds = (SystemClock.monotonic() - begun).as_secs_f64();
    let appends = metadata.stats().appends - before.appends;
    println!(
        "{:.0} proposals/s, {:.3} appends a proposal",
        times.len() as f64 / seconds,
        appends as f64 / times.len() as f64
    );
    report(&format!("proposal, {writers} writers"), times);
    metadata.close();
    Ok(())
}

fn timed<E>(act: impl FnOnce() -> Result<(), E>) -> Result<std::time::Duration, E> {
    let begun = SystemClock.monotonic();
    act()?;
    Ok(SystemClock.monotonic() - begun)
}

fn report(name: &str, mut times: Vec<std::time::Duration>) {
    times.sort_unstable();
    let at = |percent: usize| times[times.len() * percent / 100];
    println!("{name}: p50 {:?}, p99 {:?}", at(50), at(99));
}
