//! Counts, and their text for `/metrics`.
//!
//! Promises: a counter only grows. Refuses to know: who reads them.

use crate::answer::Answer;
use crate::nodes::{Node, Nodes};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What is counted beside the nodes' own counts.
#[derive(Default)]
pub struct Counts {
    /// Clients' connections at the moment.
    pub connections: AtomicUsize,
    /// Connections refused because there were too many.
    pub refused_connections: AtomicU64,
    /// Attempts at requests after the first.
    pub retries: AtomicU64,
    /// Answers that were begun and cut off.
    pub aborted: AtomicU64,
    no_node: AtomicU64,
    unanswered: AtomicU64,
    malformed: AtomicU64,
    internal: AtomicU64,
}

impl Counts {
    /// The balancer answered itself.
    pub fn answered(&self, answer: Answer) {
        self.of(answer).fetch_add(1, Ordering::Relaxed);
    }

    fn of(&self, answer: Answer) -> &AtomicU64 {
        match answer {
            Answer::NoNode => &self.no_node,
            Answer::Unanswered => &self.unanswered,
            Answer::Malformed => &self.malformed,
            Answer::Internal => &self.internal,
        }
    }

    /// All of it as Prometheus reads it.
    pub fn text(&self, nodes: &Nodes) -> String {
        let mut out = String::new();
        metric(&mut out, "connections", "gauge", "Clients' connections.");
        sample(&mut out, "connections", "", self.connections.load(Ordering::Relaxed) as u64);
        let totals = [
            (
                "refused_connections_total",
                "Connections refused because there were too many.",
                &self.refused_connections,
            ),
            ("retries_total", "Attempts at requests after the first.", &self.retries),
            ("aborted_answers_total", "Answers that were begun and cut off.", &self.aborted),
        ];
        for (name, help, count) in totals {
            metric(&mut out, name, "counter", help);
            sample(&mut out, name, "", count.load(Ordering::Relaxed));
        }
        metric(&mut out, "own_answers_total", "counter", "Answers that no node gave, by status.");
        for answer in [Answer::NoNode, Answer::Unanswered, Answer::Malformed, Answer::Internal] {
            let label = format!("{{status=\"{}\"}}", answer.status());
            sample(&mut out, "own_answers_total", &label, self.of(answer).load(Ordering::Relaxed));
        }
        type Value = fn(&Node) -> u64;
        let of_nodes: [(&str, &str, Value); 3] = [
            ("node_requests_total", "Requests sent to a node.", |node| node.requests.load(Ordering::Relaxed)),
            ("node_refused_total", "Times that a node could not be connected to.", |node| {
                node.refused.load(Ordering::Relaxed)
            }),
            ("node_broken_total", "Requests that a node did not answer to the end.", |node| {
                node.broken.load(Ordering::Relaxed)
            }),
        ];
        for (name, help, value) in of_nodes {
            metric(&mut out, name, "counter", help);
            nodes.all().iter().for_each(|node| sample(&mut out, name, &label(node), value(node)));
        }
        metric(&mut out, "node_up", "gauge", "Whether a node gets requests.");
        for (index, node) in nodes.all().iter().enumerate() {
            sample(&mut out, "node_up", &label(node), u64::from(nodes.is_healthy(index)));
        }
        out
    }
}

fn label(node: &Node) -> String {
    format!("{{node=\"{}\"}}", node.names.endpoint.replace(['"', '\\'], "_"))
}

fn metric(out: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(out, "# HELP ashlar_balancer_{name} {help}\n# TYPE ashlar_balancer_{name} {kind}");
}

fn sample(out: &mut String, name: &str, labels: &str, value: u64) {
    let _ = writeln!(out, "ashlar_balancer_{name}{labels} {value}");
}
