//! The server's own counters, read from its admin port, and the kernel's account of what it wrote.
//!
//! Promises: a counter that the server does not have is an error when it is read, never zero. Refuses to know: what they mean.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use crate::bench::machine;
use crate::server::Server;

/// All counters at one moment, or what was added between two.
pub struct Counters {
    metrics: BTreeMap<String, f64>,
    written_bytes: Option<f64>,
}

/// Counters that are read here; a server without one of them is too old or was renamed.
const WANTED: [&str; 7] = [
    "log_syncs",
    "data_syncs",
    "log_entries",
    "data_appended_bytes",
    "data_reads",
    "metadata_cache_hits_total",
    "metadata_cache_misses_total",
];

impl Counters {
    /// Reads them now.
    pub fn read(server: &Server) -> Result<Counters, String> {
        let metrics = parse(&get(&server.admin, "/metrics").map_err(|error| format!("metrics: {error}"))?);
        match WANTED.iter().find(|name| !metrics.contains_key(**name)) {
            Some(name) => Err(format!("the server has no metric ashlar_{name}")),
            None => {
                Ok(Counters { metrics, written_bytes: machine::written_bytes(server.pid()).map(|bytes| bytes as f64) })
            }
        }
    }

    /// What was added since `before`.
    pub fn since(&self, before: &Counters) -> Counters {
        let added = |(name, value): (&String, &f64)| {
            (name.clone(), value - before.metrics.get(name).copied().unwrap_or_default())
        };
        let written_bytes = self.written_bytes.zip(before.written_bytes).map(|(now, then)| now - then);
        Counters { metrics: self.metrics.iter().map(added).collect(), written_bytes }
    }

    /// One of [`WANTED`].
    pub fn of(&self, name: &str) -> f64 {
        debug_assert!(WANTED.contains(&name), "{name}");
        self.metrics.get(name).copied().unwrap_or(f64::NAN)
    }

    /// Blocks of the tree that were looked into, cached or not.
    pub fn blocks(&self) -> Option<f64> {
        Some(self.of("metadata_cache_hits_total") + self.of("metadata_cache_misses_total"))
    }

    /// Bytes that the process wrote to block devices, where the kernel tells.
    pub fn written_bytes(&self) -> Option<f64> {
        self.written_bytes
    }
}

/// Plain samples by their names without the prefix; those with labels are not wanted.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let sample = |line: &str| {
        let (name, value) = line.strip_prefix("ashlar_")?.split_once(' ')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    text.lines().filter_map(sample).collect()
}

fn get(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::{Counters, parse};

    #[test]
    fn plain_samples_are_read_and_what_was_added_is_their_difference() {
        let text = "HTTP/1.1 200 OK\r\n\r\n# HELP ashlar_log_syncs x.\nashlar_log_syncs 12\nashlar_requests_total{a=\"b\"} 3\n";
        let before = Counters { metrics: parse(text), written_bytes: Some(10.0) };
        assert_eq!(before.metrics.len(), 2, "the labelled one has a name that nobody asks for");
        let after = Counters { metrics: parse("ashlar_log_syncs 15\n"), written_bytes: Some(4106.0) };
        let spent = after.since(&before);
        assert_eq!((spent.of("log_syncs"), spent.written_bytes()), (3.0, Some(4096.0)));
        assert!(spent.of("data_syncs").is_nan());
    }
}
