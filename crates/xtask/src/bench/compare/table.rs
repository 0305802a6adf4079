//! The table: rows, columns, verdicts, and the words around them.
//!
//! Promises: medians and spreads over all rounds of one run, ours first; what was not measured is said with its reason.
//! Refuses to know: how it was measured.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};

use super::rows::{Figure, MEMORY, PEAK, Per, ROWS, Row};
use super::servers::ServerId;
use super::{Race, Samples};
use crate::Outcome;
use crate::bench::machine;
use crate::bench::spread::{Spread, number};

/// Servers that an S3 user would think of and that are not in the table.
const ABSENT: [&str; 4] = [
    "Ceph RGW: in no package registry as a program; Debian's packages want a cluster of daemons",
    "MinIO: in no package registry as a program, no longer maintained",
    "RustFS: on crates.io since 1.0.1, which asks for rustc 1.98.1; this project builds with 1.95",
    "SeaweedFS: in no package registry as a program",
];

/// A finished comparison.
pub struct Table {
    /// When, as `2026-12-01T04:00Z`.
    pub date: String,
    /// Of the checkout.
    pub commit: String,
    /// Processors and kernel.
    pub machine: String,
    /// What `ashlar bench floor` said.
    pub floor: Value,
    /// Servers and how they were configured, in the order of the columns.
    pub servers: Vec<(ServerId, String)>,
    /// The rows.
    pub lines: Vec<Line>,
    rounds: u32,
    seconds: f64,
    missing: Vec<String>,
    errors: Vec<String>,
}

/// One row with its figures.
pub struct Line {
    /// What it is.
    pub row: Row,
    /// The figures of the servers that have one.
    pub cells: Vec<(ServerId, Spread)>,
}

impl Line {
    /// The figure of one server.
    pub fn cell(&self, id: ServerId) -> Option<&Spread> {
        self.cells.iter().find(|(server, _)| *server == id).map(|(_, spread)| spread)
    }

    /// The target's verdict on ours.
    pub fn verdict(&self) -> String {
        self.cell(ServerId::Ours).map_or("not measured".into(), |ours| self.row.verdict(ours.median))
    }

    /// Whether ours is ahead of every store in the row.
    fn race(&self) -> String {
        let medians: Vec<(ServerId, f64)> =
            self.cells.iter().map(|(server, spread)| (*server, spread.median)).collect();
        let has_peer = medians.iter().any(|(server, _)| server.is_peer());
        if !has_peer || self.cell(ServerId::Ours).is_none() || matches!(self.row.per, Per::Server(_)) {
            return "-".into();
        }
        let behind: Vec<&str> = self.row.behind(&medians).into_iter().map(ServerId::label).collect();
        if behind.is_empty() { "yes".into() } else { format!("no: {}", behind.join(", ")) }
    }
}

impl Table {
    pub(super) fn make(
        root: &Path,
        race: &Race,
        floor: Value,
        missing: Vec<String>,
        samples: &Samples,
        rounds: u32,
    ) -> Table {
        let mut servers: Vec<_> = race.servers.iter().map(|server| (server.id, server.about.clone())).collect();
        servers.sort_by_key(|(id, _)| *id);
        let memory = |row: &Row, id: ServerId| {
            let server = race.servers.iter().find(|server| server.id == id)?;
            let value = if row.figure == Figure::PeakMemory { server.peak_mib()? } else { server.idle_mib };
            Spread::of(vec![value])
        };
        let cell = |row: &Row, id: ServerId| {
            if row.step == MEMORY { memory(row, id) } else { spread(row, id, samples) }
        };
        let line = |row: &Row| {
            let concerned = servers.iter().map(|(id, _)| *id).filter(|id| row.concerns(*id));
            Line { row: *row, cells: concerned.filter_map(|id| Some((id, cell(row, id)?))).collect() }
        };
        Table {
            date: machine::ask("date", &["-u", "+%Y-%m-%dT%H:%MZ"], root),
            commit: commit(root),
            machine: machine::describe(),
            floor,
            lines: ROWS.iter().chain([&PEAK]).map(line).collect(),
            servers,
            rounds,
            seconds: race.seconds,
            missing,
            errors: race.errors.clone(),
        }
    }

    /// A run in which ours failed requests is no result. Those of peers are only named.
    pub fn verdict(&self) -> Outcome {
        let own = ServerId::Ours.label();
        match self.errors.iter().find(|error| error.contains(&format!(", {own}:"))) {
            Some(error) => Err(format!("the figures are not a result: {error}")),
            None => Ok(()),
        }
    }

    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(text, "# Comparison of {}\n", self.date);
        let _ =
            writeln!(text, "Written by `cargo xtask bench --compare`; not edited by hand. Commit {}.\n", self.commit);
        let _ = writeln!(text, "Machine: {}. {}\n", self.machine, floor_text(&self.floor));
        let _ = writeln!(
            text,
            "{} rounds of {} s a step, interleaved step by step; while one server is measured the others stand still. Medians, \
             and the smallest and largest round. CPU is the server's; the load generator runs on the same processors.\n",
            self.rounds,
            number(self.seconds)
        );
        for (id, about) in &self.servers {
            let _ = writeln!(text, "* **{}**: {about}.", id.label());
        }
        let _ = writeln!(text, "\n{}", self.rows());
        let _ = writeln!(text, "Not measured here:\n");
        for reason in self.missing.iter().map(String::as_str).chain(ABSENT) {
            let _ = writeln!(text, "* {}.", reason.lines().next().unwrap_or_default());
        }
        if !self.errors.is_empty() {
            let _ = writeln!(text, "\nFailed requests, whose steps have no figure:\n");
        }
        for error in &self.errors {
            let _ = writeln!(text, "* {error}");
        }
        text
    }

    fn rows(&self) -> String {
        let others: Vec<ServerId> = self.servers.iter().map(|(id, _)| *id).filter(|id| *id != ServerId::Ours).collect();
        let mut text = String::from("| what | ours | target | verdict | ahead of every store |");
        for id in &others {
            let _ = write!(text, " {} |", id.label());
        }
        let _ = writeln!(text, "\n|{}", " --- |".repeat(5 + others.len()));
        for line in &self.lines {
            let cell = |id: ServerId| line.cell(id).map_or("-".into(), Spread::text);
            let (target, verdict) = (line.row.target_text(), line.verdict());
            let _ = write!(text, "| {} | **{}** | {target} | {verdict} |", line.row.name, cell(ServerId::Ours));
            let _ = write!(text, " {} |", line.race());
            for id in &others {
                let _ = write!(text, " {} |", cell(*id));
            }
            text.push('\n');
        }
        text
    }

    /// The table as JSON.
    pub fn json(&self) -> Value {
        let line = |line: &Line| {
            let cells: serde_json::Map<String, Value> =
                line.cells.iter().map(|(id, spread)| (id.label().to_owned(), spread.json())).collect();
            json!({
                "name": line.row.name,
                "target": line.row.target_text(),
                "verdict": line.verdict(),
                "ahead_of_every_store": line.race(),
                "cells": cells,
            })
        };
        let servers: serde_json::Map<String, Value> =
            self.servers.iter().map(|(id, about)| (id.label().to_owned(), about.clone().into())).collect();
        json!({
            "date": self.date, "commit": self.commit, "machine": self.machine, "floor": self.floor, "servers": servers,
            "rounds": self.rounds, "seconds": self.seconds, "not_measured": self.missing, "errors": self.errors,
            "rows": self.lines.iter().map(line).collect::<Vec<_>>(),
        })
    }
}

fn commit(root: &Path) -> String {
    let commit = machine::ask("git", &["rev-parse", "--short", "HEAD"], root);
    let clean = machine::ask("git", &["status", "--porcelain", "--untracked-files=no"], root).is_empty();
    if clean { commit } else { format!("{commit}-changed") }
}

fn floor_text(floor: &Value) -> String {
    let figure = |name: &str| floor[name].as_f64().map_or("-".into(), number);
    format!(
        "Its floor in the same run: a 4 KiB append with fdatasync {} µs, an overwrite {} µs, O_DIRECT write {} MB/s, memcpy {} GB/s, \
         MD5 {} GB/s.",
        figure("append_sync_us"),
        figure("overwrite_sync_us"),
        figure("direct_write_mb_s"),
        figure("memcpy_gb_s"),
        figure("md5_gb_s")
    )
}

/// A row's figure of one server over the rounds; a round that failed, or whose divisor is missing, is left out.
fn spread(row: &Row, id: ServerId, samples: &Samples) -> Option<Spread> {
    let of = |step: &'static str, id: ServerId| samples.get(&(step, id));
    let own = of(row.step, id).or_else(|| of(row.or_step?, id))?;
    let divisors = match row.per {
        Per::One => None,
        Per::Server(other) => Some(of(row.step, other)?),
        Per::Step(other) => Some(of(other, id)?),
    };
    let value = |round: usize| {
        let value = row.figure.of(own.get(round)?.as_ref()?)?;
        let Some(divisors) = divisors else { return Some(value) };
        let divisor = row.figure.of(divisors.get(round)?.as_ref()?)?;
        (divisor > 0.0).then(|| value / divisor)
    };
    Spread::of((0..own.len()).filter_map(value).collect())
}

#[cfg(test)]
pub(super) mod tests {
    use super::{Line, Table, spread};
    use crate::bench::compare::Samples;
    use crate::bench::compare::loadgen::Sample;
    use crate::bench::compare::rows::{ROWS, Row};
    use crate::bench::compare::servers::ServerId::{self, Garage, GarageSync, Hyper, Ours};
    use crate::bench::spread::Spread;

    fn row(name: &str) -> Row {
        *ROWS.iter().find(|row| row.name == name).expect("a row of this name")
    }

    fn rates(values: &[f64]) -> Vec<Option<Sample>> {
        values.iter().map(|rate| Some(Sample { per_second: *rate, operations: 1.0, ..Sample::default() })).collect()
    }

    pub fn line(name: &str, cells: &[(ServerId, f64)]) -> Line {
        let cells = cells.iter().map(|(id, value)| (*id, Spread::of(vec![*value]).expect("a value"))).collect();
        Line { row: row(name), cells }
    }

    pub fn table(lines: Vec<Line>) -> Table {
        Table {
            date: "2026-12-01T04:00Z".into(),
            commit: "abc1234".into(),
            machine: "2 x <fast> & \"new\" processor".into(),
            floor: serde_json::json!({ "append_sync_us": 191.0 }),
            servers: vec![(Ours, "a".into()), (Garage, "b".into()), (Hyper, "c".into())],
            lines,
            rounds: 3,
            seconds: 2.0,
            missing: vec!["nginx: gone\nmore".into()],
            errors: vec!["LIST, round 1, garage: 3 requests failed".into()],
        }
    }

    #[test]
    fn a_ratio_is_taken_round_by_round_and_a_failed_round_is_left_out() {
        let mut samples = Samples::new();
        samples.insert(("PUT 4K c16", Ours), rates(&[2200.0, 4400.0, 9000.0]));
        let mut other = rates(&[100.0, 100.0, 100.0]);
        other[2] = None;
        samples.insert(("PUT 4K c16", GarageSync), other);
        let times = spread(&row("PUT 4 KiB c16, ops/s, times Garage with fsync"), Ours, &samples).expect("two rounds");
        assert_eq!((times.rounds, times.median), (vec![22.0, 44.0], 33.0));
        assert_eq!(spread(&row("PUT 4 KiB c64, ops/s"), Ours, &samples), None);
    }

    #[test]
    fn the_table_names_target_verdict_and_the_store_that_is_ahead() {
        let heads = line("HEAD c16, CPU s per 10k", &[(Ours, 0.5), (Garage, 0.25), (Hyper, 0.1)]);
        let text = table(vec![heads]).markdown();
        let expected =
            "| HEAD c16, CPU s per 10k | **0.5** | ≤ 0.2 | 2.50 times the target | no: garage | 0.25 | 0.1 |";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("* nginx: gone.\n") && text.contains("append with fdatasync 191 µs"), "{text}");
    }

    #[test]
    fn failed_requests_of_a_peer_are_named_and_those_of_ours_fail_the_run() {
        let mut table = table(vec![]);
        assert!(table.markdown().contains("garage: 3 requests failed") && table.verdict().is_ok());
        table.errors.push("HEAD c1, round 2, ours: 1 requests failed".into());
        assert!(table.verdict().is_err());
    }
}
