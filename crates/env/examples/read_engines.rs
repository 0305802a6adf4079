//! Cold reads by the pool of threads against io_uring: `cargo run --release -p ashlar-env --example read_engines -- FOLDER`.
//!
//! Random direct reads of one file, so that each goes to the disk; rounds are interleaved; latency and CPU of the whole
//! process for one read. The askers are tasks of a runtime with two threads, as in the server.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::path::Path;
use std::sync::Arc;

use env::Env;
use env::buf::BufPool;
use env::disk::{Caching, Disk, DiskFile, Open};
use env::real_disk::RealDisk;
use env::ring::Ring;

const FILE_BYTES: u64 = 1 << 30;
const ROUNDS: u32 = 5;

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let env = Env::system(8);
    let plain = RealDisk::open(Path::new(&folder), true).unwrap();
    fill(&plain);
    let ringed = RealDisk::open(Path::new(&folder), true).unwrap().with_ring(Some(Ring::start().unwrap()));
    println!("bytes depth engine  us/read  cpu-us/read");
    for bytes in [4096, 69632] {
        for depth in [1, 4, 16] {
            for round in 0..ROUNDS {
                for (name, disk) in [("threads", &plain), ("io_uring", &ringed)] {
                    let file = disk.open("engines", Open::Read, Caching::Direct).unwrap();
                    let reads = 4000 / depth * depth;
                    let (before, began) = (cpu_us(), env.clock.monotonic());
                    runtime.block_on(run(&env, file, bytes, depth, reads));
                    let (took, cpu) = (env.clock.monotonic() - began, cpu_us() - before);
                    let per = |us: f64| us / reads as f64;
                    println!("{bytes} {depth} {name} {:.1} {:.1} ({round})", per(took.as_secs_f64() * 1e6), per(cpu));
                }
            }
        }
    }
    plain.remove("engines").unwrap();
}

async fn run(env: &Env, file: Arc<dyn DiskFile>, bytes: usize, depth: usize, reads: usize) {
    let pool = BufPool::new(64 << 20);
    let tasks = (0..depth).map(|_| {
        let (env, file, pool) = (env.clone(), file.clone(), pool.clone());
        tokio::spawn(async move {
            for _ in 0..reads / depth {
                let offset = env.random.next_u64() % (FILE_BYTES / 4096 - 32) * 4096;
                let mut buf = pool.take(bytes).await;
                buf.set_len_for_overwrite(bytes);
                let count = match file.clone().start_read(buf, 0..bytes, offset) {
                    Ok(reading) => reading.await.unwrap().1,
                    Err(mut buf) => {
                        let file = file.clone();
                        env.tasks.run(move || file.read_at(&mut buf, offset)).await
                    }
                };
                assert_eq!(count.unwrap(), bytes);
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

fn fill(disk: &RealDisk) {
    let _ = disk.remove("engines");
    let file = disk.open("engines", Open::CreateNew, Caching::Direct).unwrap();
    let block = env::buf::AlignedBuf::zeroed(1 << 20);
    for index in 0..FILE_BYTES >> 20 {
        file.write_at(&block, index << 20).unwrap();
    }
    file.sync_data().unwrap();
}

/// User and system time of this process so far.
fn cpu_us() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<f64> =
        stat.rsplit(')').next().unwrap().split_whitespace().map(|f| f.parse().unwrap_or(0.0)).collect();
    (fields[11] + fields[12]) * 10_000.0
}
