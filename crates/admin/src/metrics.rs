//! Counters and histograms of requests, in Prometheus' text form.
//!
//! One family set is made at start; a request touches two counters and two histograms, found by operation in a small table.

use parking_lot::RwLock;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use s3::server::{Observation, Observer};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// Upper bounds of latency buckets, in seconds: 100 µs to about 13 s, doubling.
const LATENCY_BUCKETS: usize = 18;
const LATENCY_FIRST_SECONDS: f64 = 0.000_1;

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

type Histograms = Family<OperationLabel, Histogram>;

/// All metrics of a process.
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    aborted: Counter,
    bytes_in: Counter,
    bytes_out: Counter,
    duration: Histograms,
    first_byte: Histograms,
    sync: Histogram,
    handles: RwLock<BTreeMap<(&'static str, u16), Handles>>,
}

/// What one (operation, status) touches, so that a request takes no family lock of its own.
#[derive(Clone)]
struct Handles {
    requests: Counter,
    duration: Histogram,
    first_byte: Histogram,
}

fn latency() -> Histogram {
    Histogram::new(prometheus_client::metrics::histogram::exponential_buckets(
        LATENCY_FIRST_SECONDS,
        2.0,
        LATENCY_BUCKETS as u16,
    ))
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
        let duration: Histograms = Family::new_with_constructor(latency);
        registry.register("request_seconds", "From the request's head to the end of the answer", duration.clone());
        let first_byte: Histograms = Family::new_with_constructor(latency);
        registry.register("first_byte_seconds", "From the request's head to the answer's head", first_byte.clone());
        let sync = latency();
        registry.register("fdatasync_seconds", "Duration of fdatasync on data and log files", sync.clone());
        let handles = RwLock::default();
        Arc::new(Metrics { registry, requests, aborted, bytes_in, bytes_out, duration, first_byte, sync, handles })
    }

    /// One fdatasync took this long.
    pub fn observe_sync(&self, seconds: f64) {
        self.sync.observe(seconds);
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

    fn handles(&self, operation: &'static str, code: u16) -> Handles {
        if let Some(found) = self.handles.read().get(&(operation, code)) {
            return found.clone();
        }
        let label = OperationLabel { operation };
        let made = Handles {
            requests: self.requests.get_or_create(&RequestLabels { operation, code }).clone(),
            duration: self.duration.get_or_create(&label).clone(),
            first_byte: self.first_byte.get_or_create(&label).clone(),
        };
        self.handles.write().insert((operation, code), made.clone());
        made
    }
}

impl Observer for Metrics {
    fn observe(&self, o: &Observation) {
        let handles = self.handles(o.operation, o.status);
        handles.requests.inc();
        handles.duration.observe(o.duration_us as f64 / 1e6);
        handles.first_byte.observe(o.first_byte_us as f64 / 1e6);
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
        assert!(text.contains("gauge\nashlar_disk_free_bytes 12\n") && text.ends_with("# EOF\n"), "{text}");
        assert!(text.contains("# TYPE ashlar_hits counter\nashlar_hits_total 3\n"), "{text}");
    }
}
