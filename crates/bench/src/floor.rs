//! What the machine itself can do, measured in the same run as the server.
//!
//! Promises: each figure is the plain system call or loop, without a server. Refuses to know: objects. The file it writes
//! lies in a folder that the caller names and is removed at the end.

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use md5::{Digest, Md5};
use serde::Serialize;

use crate::{BenchError, clock};

const BLOCK_BYTES: usize = 4096;
const LARGE_BYTES: usize = 1 << 20;
/// Appends timed for the fdatasync floor; at 0.2 ms each the whole takes under a second.
const SYNCS: u64 = 1000;
/// MiB written without the page cache.
const DIRECT_WRITES: u64 = 512;
/// MiB hashed or copied.
const MEMORY_ROUNDS: usize = 256;

/// What the machine itself can do.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Floor {
    /// One append of 4 KiB and its fdatasync, one writer.
    pub append_sync_us: f64,
    /// One overwrite of preallocated 4 KiB and its fdatasync, one writer.
    pub overwrite_sync_us: f64,
    /// Sequential O_DIRECT writes of 1 MiB, 10^6 bytes a second; `None` where the file system refuses O_DIRECT.
    pub direct_write_mb_s: Option<f64>,
    /// Copy of 1 MiB that lies in cache, 10^9 bytes a second.
    pub memcpy_gb_s: f64,
    /// MD5 of one stream, 10^9 bytes a second.
    pub md5_gb_s: f64,
}

/// Measures in `folder`.
pub fn measure(folder: &Path) -> Result<Floor, BenchError> {
    let path = folder.join(format!("ashlar-floor-{}", std::process::id()));
    let result = measure_file(&path);
    // Whatever happened, the file is ours to remove; one that was never made is no error.
    let _ = std::fs::remove_file(&path);
    let (append_sync_us, overwrite_sync_us, direct_write_mb_s) =
        result.map_err(BenchError::local(format!("measure in {}", folder.display())))?;
    Ok(Floor { append_sync_us, overwrite_sync_us, direct_write_mb_s, memcpy_gb_s: memcpy(), md5_gb_s: md5() })
}

fn measure_file(path: &Path) -> std::io::Result<(f64, f64, Option<f64>)> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    let block = [7; BLOCK_BYTES];
    let append = sync_each(&file, &block)?;
    let overwrite = sync_each(&file, &block)?;
    Ok((append, overwrite, direct(path).ok()))
}

/// Writes block after block from offset 0, each followed by fdatasync; microseconds for one. The first call appends, the
/// second overwrites.
fn sync_each(file: &File, block: &[u8]) -> std::io::Result<f64> {
    let began = clock::monotonic();
    for index in 0..SYNCS {
        file.write_all_at(block, index * block.len() as u64)?;
        file.sync_data()?;
    }
    Ok((clock::monotonic() - began).as_secs_f64() * 1e6 / SYNCS as f64)
}

fn direct(path: &Path) -> std::io::Result<f64> {
    let file = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path)?;
    let room = vec![7; LARGE_BYTES + BLOCK_BYTES];
    let start = room.as_ptr().align_offset(BLOCK_BYTES);
    let block = &room[start..start + LARGE_BYTES];
    let began = clock::monotonic();
    for index in 0..DIRECT_WRITES {
        file.write_all_at(block, index * LARGE_BYTES as u64)?;
    }
    file.sync_data()?;
    Ok(DIRECT_WRITES as f64 * LARGE_BYTES as f64 / 1e6 / (clock::monotonic() - began).as_secs_f64())
}

fn memcpy() -> f64 {
    let from = vec![1; LARGE_BYTES];
    let mut to = vec![0; LARGE_BYTES];
    let began = clock::monotonic();
    for _ in 0..MEMORY_ROUNDS {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
    }
    gigabytes_per_second(clock::monotonic() - began)
}

fn md5() -> f64 {
    let from = vec![1; LARGE_BYTES];
    let mut hash = Md5::new();
    let began = clock::monotonic();
    for _ in 0..MEMORY_ROUNDS {
        hash.update(black_box(&from));
    }
    black_box(hash.finalize());
    gigabytes_per_second(clock::monotonic() - began)
}

fn gigabytes_per_second(time: Duration) -> f64 {
    (MEMORY_ROUNDS * LARGE_BYTES) as f64 / 1e9 / time.as_secs_f64()
}
