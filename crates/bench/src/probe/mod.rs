//! One program for each promise about speed: time to first byte, listings of many keys, many connections, cores, an hour of load.
//!
//! Promises: every figure stands beside what it is judged by; a check says whether it counts something (the same on every machine) or
//! times something (true of this machine and minute). Refuses to know: how a server is built.

pub mod admin;
pub mod connections;
mod crowd;
mod direct;
pub mod scale;
pub mod soak;
pub mod tree;
pub mod ttfb;

use std::fmt;

use serde::Serialize;

use crate::client::Target;
use crate::histogram::{Histogram, Quantiles};
use crate::machine;

/// A running server that is looked at from outside.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its S3 endpoint.
    pub target: Target,
    /// `host:port` of its admin API.
    pub admin: String,
    /// Its process, for what the kernel counts.
    pub pid: Option<u32>,
}

/// One line of a table: figures with their names.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// What was measured.
    pub name: String,
    /// Name with unit, and value.
    pub figures: Vec<Figure>,
}

/// A number and what it is.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// With its unit.
    pub name: &'static str,
    /// The number.
    pub value: f64,
}

impl Line {
    /// A line of these figures.
    pub fn new(name: impl Into<String>, figures: &[(&'static str, f64)]) -> Line {
        let figure = |&(name, value): &(&'static str, f64)| Figure { name, value };
        Line { name: name.into(), figures: figures.iter().map(figure).collect() }
    }

    /// p50, p95 and p99 of a histogram, and how many values it has.
    pub fn times(name: impl Into<String>, histogram: &Histogram) -> Line {
        let Quantiles { p50_ms, p95_ms, p99_ms, .. } = histogram.summary();
        let count = histogram.count() as f64;
        Line::new(name, &[("p50_ms", p50_ms), ("p95_ms", p95_ms), ("p99_ms", p99_ms), ("count", count)])
    }
}

/// One figure and what it must not exceed or fall below.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What must hold.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// The bound, inclusive.
    pub limit: f64,
    /// Whether it is a lower bound.
    pub at_least: bool,
    /// Whether something was counted, not timed.
    pub counted: bool,
    /// Whether it holds.
    pub holds: bool,
}

impl Check {
    /// Something counted that must be at most `limit`.
    pub fn count(name: impl Into<String>, value: f64, limit: f64) -> Check {
        Check { name: name.into(), value, limit, at_least: false, counted: true, holds: value <= limit }
    }

    /// Something counted that must be at least `limit`.
    pub fn count_at_least(name: impl Into<String>, value: f64, limit: f64) -> Check {
        Check { at_least: true, holds: value >= limit, ..Check::count(name, value, limit) }
    }

    /// Something timed that should be at most `limit`.
    pub fn time(name: impl Into<String>, value: f64, limit: f64) -> Check {
        Check { counted: false, ..Check::count(name, value, limit) }
    }
}

/// What a probe found.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    /// Which program.
    pub probe: &'static str,
    /// Processors and kernel.
    pub machine: String,
    /// The table.
    pub lines: Vec<Line>,
    /// The verdicts.
    pub checks: Vec<Check>,
}

impl Findings {
    pub(crate) fn new(probe: &'static str) -> Findings {
        Findings { probe, machine: machine::describe(), lines: Vec::new(), checks: Vec::new() }
    }

    /// Whether everything that was counted is as it must be. Times depend on the machine: they are shown and judged by people.
    pub fn is_good(&self) -> bool {
        self.checks.iter().all(|check| check.holds || !check.counted)
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} on {}", self.probe, self.machine)?;
        let width = self.lines.iter().map(|line| line.name.len()).max().unwrap_or(0);
        for line in &self.lines {
            write!(f, "  {:width$}", line.name)?;
            for figure in &line.figures {
                write!(f, "  {} {}", figure.name, number(figure.value))?;
            }
            writeln!(f)?;
        }
        for check in &self.checks {
            let verdict = match (check.holds, check.counted) {
                (true, _) => "ok    ",
                (false, true) => "FAILED",
                (false, false) => "missed",
            };
            let (value, limit) = (number(check.value), number(check.limit));
            let bound = if check.at_least { "at least" } else { "at most" };
            writeln!(f, "  {verdict} {}: {value}, {bound} {limit}", check.name)?;
        }
        Ok(())
    }
}

/// Whole numbers plainly, others with three digits.
fn number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

fn ratio(value: f64, of: f64) -> f64 {
    if of > 0.0 { value / of } else { 0.0 }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::{Check, Findings, Line, median};

    #[test]
    fn a_missed_time_is_shown_but_only_a_wrong_count_is_a_failure() {
        let mut findings = Findings::new("test");
        findings.lines.push(Line::new("GET", &[("p50_ms", 1.25)]));
        findings.checks.push(Check::time("p50", 2.0, 1.0));
        assert!(findings.is_good() && findings.to_string().contains("missed p50: 2, at most 1"), "{findings}");
        findings.checks.push(Check::count("reads", 1.0, 1.0));
        assert!(findings.is_good());
        findings.checks.push(Check::count_at_least("keys", 9.0, 10.0));
        assert!(!findings.is_good() && findings.to_string().contains("FAILED keys: 9, at least 10"), "{findings}");
    }

    #[test]
    fn the_median_of_few_values_is_one_of_them() {
        assert_eq!((median(vec![3.0, 1.0, 2.0]), median(vec![1.0, 2.0]), median(Vec::new())), (2.0, 2.0, 0.0));
    }
}
