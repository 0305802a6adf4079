//! The table of what we want to beat: one row per figure, with its target and the distance to it.
//!
//! Promises: every figure comes from a checked run against the given server; the machine's floor is measured in the same
//! run; with several rounds the steps are interleaved and the median is shown.
//! Refuses to know: other servers. Targets were set from measurements of peers on a machine of the same kind.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::client::Target;
use crate::floor::{self, Floor};
use crate::{BenchError, Config, Operation, Report, clock, machine};

/// How the table is made.
#[derive(Clone, Debug)]
pub struct TableConfig {
    /// The server.
    pub target: Target,
    /// Its process.
    pub pid: u32,
    /// The block device its data lie on, without `/dev/`; `None` leaves the rows about flushes and bytes out.
    pub disk: Option<String>,
    /// A folder on that device for the floor.
    pub folder: PathBuf,
    /// Measured time of each step.
    pub seconds: f64,
    /// Keys in the listed bucket, in 100 groups.
    pub list_keys: u64,
    /// Interleaved rounds.
    pub rounds: u32,
}

/// One figure.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// Unit of the value.
    pub unit: String,
    /// The median over the rounds.
    pub value: f64,
    /// What it should be.
    pub target: Option<f64>,
    /// Whether more is better.
    pub more_is_better: bool,
}

/// The whole table.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// Processors and kernel.
    pub machine: String,
    /// What the machine itself can do.
    pub floor: Floor,
    /// The figures.
    pub rows: Vec<Row>,
    /// Errors of any step; a table with errors is not a result.
    pub errors: Vec<String>,
}

/// One run and the figures taken from it.
struct Step {
    config: Config,
    figures: fn(&Report) -> Vec<Row>,
}

fn at_most(name: &str, unit: &str, value: f64, target: f64) -> Row {
    Row { name: name.into(), unit: unit.into(), value, target: Some(target), more_is_better: false }
}

fn at_least(name: &str, unit: &str, value: f64, target: f64) -> Row {
    Row { more_is_better: true, ..at_most(name, unit, value, target) }
}

fn plain(name: &str, unit: &str, value: f64) -> Row {
    Row { target: None, more_is_better: true, ..at_most(name, unit, value, 0.0) }
}

fn cpu_10k(report: &Report) -> f64 {
    report.server.map_or(f64::NAN, |server| server.cpu_seconds_per_10k)
}

fn cpu_gb(report: &Report) -> f64 {
    report.server.map_or(f64::NAN, |server| server.cpu_seconds_per_gb)
}

fn disk_rows(report: &Report, rows: impl FnOnce(f64, f64) -> Vec<Row>) -> Vec<Row> {
    report.disk.map(|disk| rows(disk.flushes_per_operation, disk.bytes_per_operation / 1e3)).unwrap_or_default()
}

/// Measures everything.
pub async fn measure(config: &TableConfig) -> Result<Table, BenchError> {
    let floor = floor::measure(&config.folder)?;
    let idle = machine::process(config.pid)?;
    let mut rounds: Vec<Vec<Row>> = Vec::new();
    let mut errors = Vec::new();
    for round in 0..config.rounds {
        let mut rows = Vec::new();
        for step in steps(config, round) {
            let report = crate::run(step.config).await?;
            errors.extend(report.error_samples.iter().cloned());
            rows.extend((step.figures)(&report));
        }
        rounds.push(rows);
    }
    let mut rows = medians(&rounds);
    let peak = machine::process(config.pid)?;
    rows.push(at_most("resident memory, before", "MiB", idle.resident_bytes as f64 / 1048576.0, 64.0));
    rows.push(plain("resident memory, peak", "MiB", peak.peak_bytes as f64 / 1048576.0));
    Ok(Table { machine: machine::describe(), floor, rows, errors })
}

fn medians(rounds: &[Vec<Row>]) -> Vec<Row> {
    let Some(first) = rounds.first() else { return Vec::new() };
    let median = |index: usize, row: &Row| {
        let mut values: Vec<f64> = rounds.iter().filter_map(|rows| rows.get(index)).map(|row| row.value).collect();
        values.sort_by(f64::total_cmp);
        Row { value: values[values.len() / 2], ..row.clone() }
    };
    first.iter().enumerate().map(|(index, row)| median(index, row)).collect()
}

/// A builder of steps that share target, process and disk.
struct StepMaker<'a> {
    config: &'a TableConfig,
    run: String,
}

impl StepMaker<'_> {
    fn step(&self, operation: Operation, size_bytes: u64, concurrency: u32, figures: fn(&Report) -> Vec<Row>) -> Step {
        let mut config = Config::new(self.config.target.clone(), "ashlar-bench", operation);
        config.size_bytes = size_bytes;
        config.concurrency = concurrency;
        config.duration = Some(Duration::from_secs_f64(self.config.seconds));
        config.prefix = format!("{}/{operation:?}-{size_bytes}-{concurrency}/", self.run);
        config.pid = Some(self.config.pid);
        config.disk.clone_from(&self.config.disk);
        Step { config, figures }
    }

    fn with(&self, mut step: Step, change: impl FnOnce(&mut Config)) -> Step {
        change(&mut step.config);
        step
    }
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn steps(config: &TableConfig, round: u32) -> Vec<Step> {
    // Keys of their own for each round and table, so that a PUT is never an overwrite.
    let maker = StepMaker { config, run: format!("{}-{round}", clock::wall_ms()) };
    let mut steps = small_steps(&maker);
    steps.extend(large_steps(&maker));
    steps.extend(list_steps(&maker));
    steps
}

fn small_steps(maker: &StepMaker<'_>) -> Vec<Step> {
    let reads = |step| maker.with(step, |config| config.warmup = Duration::from_millis(300));
    vec![
        maker.step(Operation::Put, 4 * KIB, 1, |r| {
            let mut rows = vec![
                plain("PUT 4K c1", "ops/s", r.operations_per_second),
                at_most("PUT 4K c1, p50", "ms", r.latency.p50_ms, 1.0),
            ];
            rows.extend(disk_rows(r, |flushes, kb| {
                vec![
                    at_most("PUT 4K c1, device flushes", "per op", flushes, 2.0),
                    at_most("PUT 4K c1, written", "kB per op", kb, 16.0),
                ]
            }));
            rows
        }),
        maker.step(Operation::Put, 4 * KIB, 16, |r| {
            let mut rows = vec![
                at_least("PUT 4K c16", "ops/s", r.operations_per_second, 9010.0),
                at_most("PUT 4K c16, server CPU", "s per 10k", cpu_10k(r), 0.8),
            ];
            rows.extend(disk_rows(r, |_, kb| vec![at_most("PUT 4K c16, written", "kB per op", kb, 12.0)]));
            rows
        }),
        maker.step(Operation::Put, 4 * KIB, 64, |r| {
            let mut rows = vec![
                at_least("PUT 4K c64", "ops/s", r.operations_per_second, 10400.0),
                at_most("PUT 4K c64, server CPU", "s per 10k", cpu_10k(r), 0.8),
            ];
            rows.extend(disk_rows(r, |flushes, _| vec![at_most("PUT 4K c64, device flushes", "per op", flushes, 0.1)]));
            rows
        }),
        reads(maker.step(Operation::Get, 4 * KIB, 1, |r| {
            vec![
                at_most("GET 4K c1, first byte p50", "ms", r.time_to_first_byte.p50_ms, 0.09),
                // An answer in two segments to a client that delays its ACKs costs 40 ms.
                at_most("GET 4K c1, p99 with delayed ACKs (a stall is 40)", "ms", r.latency.p99_ms, 5.0),
                plain("GET 4K c1", "ops/s", r.operations_per_second),
            ]
        })),
        reads(maker.step(Operation::Get, 4 * KIB, 16, |r| {
            vec![
                plain("GET 4K c16", "ops/s", r.operations_per_second),
                at_most("GET 4K c16, server CPU", "s per 10k", cpu_10k(r), 0.25),
            ]
        })),
        reads(maker.step(Operation::Head, 4 * KIB, 1, |r| {
            vec![at_most("HEAD c1, first byte p50", "ms", r.time_to_first_byte.p50_ms, 0.07)]
        })),
        reads(maker.step(Operation::Head, 4 * KIB, 16, |r| {
            vec![at_most("HEAD c16, server CPU", "s per 10k", cpu_10k(r), 0.2)]
        })),
        maker.with(
            maker.step(Operation::Delete, 4 * KIB, 16, |r| {
                vec![
                    plain("DELETE c16", "ops/s", r.operations_per_second),
                    at_most("DELETE c16, server CPU", "s per 10k", cpu_10k(r), 0.6),
                ]
            }),
            |config| config.count = Some(20_000),
        ),
    ]
}

fn large_steps(maker: &StepMaker<'_>) -> Vec<Step> {
    let few = |step, objects| maker.with(step, |config| config.objects = objects);
    vec![
        maker.step(Operation::Put, MIB, 1, |r| {
            vec![
                plain("PUT 1M c1", "MB/s", r.megabytes_per_second),
                at_most("PUT 1M c1, server CPU", "s per GB", cpu_gb(r), 1.8),
            ]
        }),
        maker
            .step(Operation::Put, 32 * MIB, 1, |r| vec![at_most("PUT 32M c1, server CPU", "s per GB", cpu_gb(r), 1.8)]),
        maker.step(Operation::Put, MIB, 16, |r| {
            vec![
                plain("PUT 1M c16", "MB/s", r.megabytes_per_second),
                at_most("PUT 1M c16, server CPU", "s per GB", cpu_gb(r), 0.9),
            ]
        }),
        few(
            maker.step(Operation::Get, MIB, 1, |r| {
                vec![
                    plain("GET 1M c1", "MB/s", r.megabytes_per_second),
                    at_most("GET 1M c1, server CPU", "s per GB", cpu_gb(r), 0.5),
                ]
            }),
            100,
        ),
        few(
            maker.step(Operation::Get, 32 * MIB, 1, |r| {
                vec![at_most("GET 32M c1, server CPU", "s per GB", cpu_gb(r), 0.5)]
            }),
            4,
        ),
        maker.with(
            maker.step(Operation::Copy, 64 * MIB, 1, |r| {
                vec![at_most("copy of 64M c1, p50", "ms", r.latency.p50_ms, 2.0)]
            }),
            |config| {
                config.count = Some(200);
            },
        ),
        maker.with(
            maker.step(Operation::Multipart, 8 * MIB, 1, |r| {
                vec![at_most("multipart 8 x 8M, p50", "ms", r.latency.p50_ms, 120.0)]
            }),
            |config| {
                config.count = Some(15);
            },
        ),
    ]
}

fn list_steps(maker: &StepMaker<'_>) -> Vec<Step> {
    let listed = |config: &mut Config| {
        config.objects = maker.config.list_keys;
        config.fanout = 100;
        // The same keys in each round and table: putting them is the long part.
        config.prefix = "listed/".into();
    };
    vec![
        maker.with(
            maker.step(Operation::List, 100, 1, |r| {
                vec![
                    at_most("LIST pages of 1000, p50", "ms", r.latency.p50_ms, 1.5),
                    at_most("LIST pages of 1000, server CPU", "s per 10k", cpu_10k(r), 12.0),
                ]
            }),
            listed,
        ),
        maker.with(
            maker.step(Operation::List, 100, 1, |r| {
                vec![at_most("LIST of 100 groups by delimiter, p50", "ms", r.latency.p50_ms, 2.0)]
            }),
            |config| {
                listed(config);
                config.delimiter = Some("/".into());
            },
        ),
    ]
}

impl Row {
    /// How many times better (above 1) or worse (below 1) than the target.
    pub fn distance(&self) -> Option<f64> {
        let target = self.target?;
        Some(if self.more_is_better { self.value / target } else { target / self.value })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let floor = &self.floor;
        writeln!(f, "machine: {}", self.machine)?;
        writeln!(
            f,
            "floor: 4K append + fdatasync {:.0} us, overwrite + fdatasync {:.0} us",
            floor.append_sync_us, floor.overwrite_sync_us
        )?;
        match floor.direct_write_mb_s {
            Some(rate) => writeln!(
                f,
                "floor: O_DIRECT write {rate:.0} MB/s, memcpy {:.1} GB/s, MD5 {:.2} GB/s",
                floor.memcpy_gb_s, floor.md5_gb_s
            )?,
            None => writeln!(
                f,
                "floor: no O_DIRECT here, memcpy {:.1} GB/s, MD5 {:.2} GB/s",
                floor.memcpy_gb_s, floor.md5_gb_s
            )?,
        }
        writeln!(f, "\n| figure | unit | ours | target | distance |\n|---|---|---|---|---|")?;
        for row in &self.rows {
            let target = row
                .target
                .map_or("-".into(), |target| format!("{} {target}", if row.more_is_better { ">=" } else { "<=" }));
            let distance = match row.distance() {
                Some(distance) if distance >= 1.0 => format!("reached, {distance:.2}x"),
                Some(distance) => format!("missed, {distance:.2}x"),
                None => "-".into(),
            };
            writeln!(f, "| {} | {} | {:.3} | {target} | {distance} |", row.name, row.unit, row.value)?;
        }
        for error in &self.errors {
            writeln!(f, "ERROR {error}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{at_least, at_most, medians};

    #[test]
    fn distance_is_above_one_when_the_target_is_reached() {
        assert_eq!(at_most("a", "ms", 1.0, 2.0).distance(), Some(2.0));
        assert_eq!(at_least("a", "ops/s", 50.0, 100.0).distance(), Some(0.5));
    }

    #[test]
    fn the_median_of_three_rounds_ignores_the_outlier() {
        let rounds: Vec<_> = [3.0, 100.0, 2.0].iter().map(|value| vec![at_most("a", "ms", *value, 1.0)]).collect();
        assert_eq!(medians(&rounds)[0].value, 3.0);
    }
}
