//! What a run measured.
//!
//! Promises: figures of one run only, with units in the names. Refuses to know: other runs, targets.

use std::fmt;

use serde::Serialize;

use crate::Operation;
use crate::histogram::Quantiles;
use crate::machine::{DiskReading, ProcessReading};

/// What a run measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was done.
    pub operation: Operation,
    /// Length of an object, part or range.
    pub size_bytes: u64,
    /// Connections.
    pub concurrency: u32,
    /// Measured time.
    pub seconds: f64,
    /// Operations that were answered well and checked.
    pub operations: u64,
    /// Operations that were not.
    pub errors: u64,
    /// The first few of them.
    pub error_samples: Vec<String>,
    /// Bytes of objects moved.
    pub bytes: u64,
    /// Entries of listings.
    pub entries: u64,
    /// Rate of operations.
    pub operations_per_second: f64,
    /// Rate of object bytes, in 10^6.
    pub megabytes_per_second: f64,
    /// From the first byte sent to the last byte received.
    pub latency: Quantiles,
    /// From the first byte sent to the first byte received.
    pub time_to_first_byte: Quantiles,
    /// With `--pid`.
    pub server: Option<ServerUse>,
    /// With `--disk`.
    pub disk: Option<DiskUse>,
}

/// What the server process used.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ServerUse {
    /// Processor time during the run.
    pub cpu_seconds: f64,
    /// The same for ten thousand operations.
    pub cpu_seconds_per_10k: f64,
    /// The same for 10^9 object bytes; zero if none moved.
    pub cpu_seconds_per_gb: f64,
    /// Memory at the end.
    pub resident_bytes: u64,
    /// The most memory since the process began.
    pub peak_bytes: u64,
}

impl ServerUse {
    pub(crate) fn new(before: ProcessReading, after: ProcessReading, operations: u64, bytes: u64) -> ServerUse {
        let cpu_seconds = after.cpu_seconds - before.cpu_seconds;
        ServerUse {
            cpu_seconds,
            cpu_seconds_per_10k: per(cpu_seconds * 1e4, operations as f64),
            cpu_seconds_per_gb: per(cpu_seconds, bytes as f64 / 1e9),
            resident_bytes: after.resident_bytes,
            peak_bytes: after.peak_bytes,
        }
    }
}

/// What happened on the block device, by whomever.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DiskUse {
    /// Totals.
    #[serde(flatten)]
    pub total: DiskReading,
    /// Flushes for one operation.
    pub flushes_per_operation: f64,
    /// Bytes written for one operation.
    pub bytes_per_operation: f64,
}

impl DiskUse {
    pub(crate) fn new(total: DiskReading, operations: u64) -> DiskUse {
        DiskUse {
            total,
            flushes_per_operation: per(total.flushes as f64, operations as f64),
            bytes_per_operation: per(total.written_bytes as f64, operations as f64),
        }
    }
}

fn per(value: f64, count: f64) -> f64 {
    if count > 0.0 { value / count } else { 0.0 }
}

impl Report {
    /// Whether nothing failed and something was done.
    pub fn is_good(&self) -> bool {
        self.errors == 0 && self.operations > 0
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { operation, size_bytes, concurrency, seconds, .. } = self;
        writeln!(f, "{operation:?} of {size_bytes} bytes, {concurrency} connections, {seconds:.2} s")?;
        writeln!(
            f,
            "  {} operations, {} errors, {:.1}/s, {:.2} MB/s",
            self.operations, self.errors, self.operations_per_second, self.megabytes_per_second
        )?;
        let q = self.latency;
        writeln!(
            f,
            "  latency ms       p50 {:.3}  p90 {:.3}  p99 {:.3}  max {:.3}",
            q.p50_ms, q.p90_ms, q.p99_ms, q.max_ms
        )?;
        let q = self.time_to_first_byte;
        writeln!(
            f,
            "  first byte ms    p50 {:.3}  p90 {:.3}  p99 {:.3}  max {:.3}",
            q.p50_ms, q.p90_ms, q.p99_ms, q.max_ms
        )?;
        if self.entries > 0 {
            writeln!(f, "  entries          {} ({:.0}/s)", self.entries, self.entries as f64 / seconds)?;
        }
        if let Some(server) = self.server {
            writeln!(
                f,
                "  server           {:.2} CPU s, {:.3} per 10k operations, {:.3} per GB, {} MiB now, {} MiB peak",
                server.cpu_seconds,
                server.cpu_seconds_per_10k,
                server.cpu_seconds_per_gb,
                server.resident_bytes >> 20,
                server.peak_bytes >> 20
            )?;
        }
        if let Some(disk) = self.disk {
            writeln!(
                f,
                "  disk             {} writes, {} MiB, {} flushes; {:.3} flushes and {:.0} bytes per operation",
                disk.total.writes,
                disk.total.written_bytes >> 20,
                disk.total.flushes,
                disk.flushes_per_operation,
                disk.bytes_per_operation
            )?;
        }
        for sample in &self.error_samples {
            writeln!(f, "  ERROR {sample}")?;
        }
        Ok(())
    }
}
