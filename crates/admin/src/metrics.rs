//! Counters and histograms of requests, in Prometheus' text form.
//!
//! One family set is made at start; a request touches two counters and two histograms, found by operation in a small table.

use crate::latency::Latency;
use parking_lot::RwLock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use s3::server::{Observation, Observer};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// Labels of a request.
#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct RequestLabels {
    operation: &'static str,
    code: u16,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

type Latencies = Family<OperationLabel, Latency>;

/// All metrics of a process.
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    aborted: Counter,
    bytes_in: Counter,
    bytes_out: Counter,
    duration: Latencies,
    first_byte: Latencies,
    sync: Latency,
    handles: RwLock<BTreeMap<(&'static str, u16), Handles>>,
}

/// What one (operation, status) touches, so that a request takes no family lock of its own, and none alone.
struct Handles {
    requests: Counter,
    duration: Latency,
    first_byte: Latency,
}

impl Metrics {
    /// Registers every family.
    pub fn new() -> Arc<Metrics> {
        let mut registry = Registry::with_prefix("ashlar");
        let requests = Family::default();
        registry.register("requests", "Requests by operation and HTTP status", requests.clone());
        let aborted = Counter::default();
        registry.register("aborted_responses", "Responses cut off after their head was sent", aborted.clone());
        let bytes_in = Counter::default();
        registry.register("received_bytes", "Body bytes received", bytes_in.clone());
        let bytes_out = Counter::default();
        registry.register("sent_bytes", "Body bytes sent", bytes_out.clone());
        let duration = Latencies::default();
        registry.register("request_seconds", "From the request's head to the end of the answer", duration.clone());
        let first_byte = Latencies::default();
        registry.register("first_byte_seconds", "From the request's head to the answer's head", first_byte.clone());
        let sync = Latency::default();
        registry.register("fdatasync_seconds", "Duration of fdatasync on data and log files", sync.clone());
        let handles = RwLock::default();
        Arc::new(Metrics { registry, requests, aborted, bytes_in, bytes_out, duration, first_byte, sync, handles })
    }

    /// One fdatasync took this long.
    pub fn observe_sync(&self, seconds: f64) {
        self.sync.observe_us((seconds * 1e6) as u64);
    }

    /// The text form, with gauges read now; those whose names end in `_total` are counters.
    pub fn text(&self, gauges: &[(&'static str, &'static str, f64)]) -> String {
        let mut text = String::new();
        if encode(&mut text, &self.registry).is_err() {
            return String::new();
        }
        let end = text.rfind("# EOF").unwrap_or(text.len());
        text.truncate(end);
        for (name, help, value) in gauges {
            // OpenMetrics: a counter's family goes without the suffix that its sample has.
            let (family, kind) = name.strip_suffix("_total").map_or((*name, "gauge"), |family| (family, "counter"));
            let _ =
                write!(text, "# HELP ashlar_{family} {help}.\n# TYPE ashlar_{family} {kind}\nashlar_{name} {value}\n");
        }
        text.push_str("# EOF\n");
        text
    }

    fn make_handles(&self, operation: &'static str, code: u16) {
        let label = OperationLabel { operation };
        let made = Handles {
            requests: self.requests.get_or_create(&RequestLabels { operation, code }).clone(),
            duration: self.duration.get_or_create(&label).clone(),
            first_byte: self.first_byte.get_or_create(&label).clone(),
        };
        self.handles.write().insert((operation, code), made);
    }
}

impl Observer for Metrics {
    fn observe(&self, o: &Observation) {
        let key = (o.operation, o.status);
        let mut handles = self.handles.read();
        if !handles.contains_key(&key) {
            drop(handles);
            self.make_handles(o.operation, o.status);
            handles = self.handles.read();
        }
        if let Some(handles) = handles.get(&key) {
            handles.requests.inc();
            handles.duration.observe_us(o.duration_us);
            handles.first_byte.observe_us(o.first_byte_us);
        }
        self.bytes_in.inc_by(o.bytes_in);
        self.bytes_out.inc_by(o.bytes_out);
        if o.aborted {
            self.aborted.inc();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_counted_by_operation_and_status() {
        let metrics = Metrics::new();
        let observation = Observation {
            operation: "GetObject",
            status: 200,
            duration_us: 250,
            first_byte_us: 100,
            bytes_in: 0,
            bytes_out: 4096,
            aborted: false,
        };
        metrics.observe(&observation);
        metrics.observe(&observation);
        let text = metrics.text(&[("disk_free_bytes", "Free bytes", 12.0), ("hits_total", "Hits", 3.0)]);
        assert!(text.contains("ashlar_requests_total{operation=\"GetObject\",code=\"200\"} 2"), "{text}");
        assert!(text.contains("ashlar_sent_bytes_total 8192"), "{text}");
        for (bound, count) in [("0.0002", 0), ("0.0004", 2), ("+Inf", 2)] {
            let line = format!("ashlar_request_seconds_bucket{{le=\"{bound}\",operation=\"GetObject\"}} {count}\n");
            assert!(text.contains(&line), "{text}");
        }
        assert!(text.contains("gauge\nashlar_disk_free_bytes 12\n") && text.ends_with("# EOF\n"), "{text}");
        assert!(text.contains("# TYPE ashlar_hits counter\nashlar_hits_total 3\n"), "{text}");
    }
}
