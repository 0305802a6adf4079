//! The rows of the table: what is read off each step, and what it should be.
//!
//! Promises: every target of issue 3 that a single node can be measured for stands here once. Refuses to know: how it is printed.

use super::loadgen::Sample;
use super::servers::ServerId::{self, GarageSync, Hyper, Ours};

/// A figure of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Operations a second.
    Rate,
    /// Median latency, ms.
    P50,
    /// Median time to the first byte, ms.
    FirstByte,
    /// Processor seconds of the server for 10,000 operations.
    CpuPer10k,
    /// Processor seconds of the server for 10^9 bytes of objects.
    CpuPerGb,
    /// Device flushes of one operation.
    Flushes,
    /// 1,000 bytes written to the device for one operation.
    Written,
    /// MiB of memory after the start.
    IdleMemory,
    /// The most MiB of memory in the whole run.
    PeakMemory,
}

impl Figure {
    /// Reads it off; `None` if the run did nothing.
    pub fn of(self, sample: &Sample) -> Option<f64> {
        let per_operation = |value: f64| (sample.operations > 0.0).then(|| value / sample.operations);
        match self {
            Figure::Rate => Some(sample.per_second),
            Figure::P50 => Some(sample.p50_ms),
            Figure::FirstByte => Some(sample.first_byte_p50_ms),
            Figure::CpuPer10k => per_operation(sample.cpu_seconds * 1e4),
            Figure::CpuPerGb => per_operation(sample.cpu_seconds * 1e9 / sample.size_bytes),
            Figure::Flushes => per_operation(sample.flushes),
            Figure::Written => per_operation(sample.written_bytes / 1e3),
            Figure::IdleMemory | Figure::PeakMemory => None,
        }
    }
}

/// What a figure is divided by, round by round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    /// Nothing.
    One,
    /// The same figure of this server.
    Server(ServerId),
    /// The same figure of the same server in another step.
    Step(&'static str),
}

/// What our figure should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// Nothing was set.
    None,
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
}

/// Which servers have the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// All that did the step.
    All,
    /// Stores: what a floor needs says nothing.
    Stores,
    /// Stores that sync what they acknowledge: what the others write, the kernel writes later.
    Durable,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What it says, unit included.
    pub name: &'static str,
    /// The step it is read off.
    pub step: &'static str,
    /// Another step that stands for it on some servers.
    pub or_step: Option<&'static str>,
    /// The figure.
    pub figure: Figure,
    /// What it is divided by.
    pub per: Per,
    /// What it should be.
    pub target: Target,
    /// Whose figure it is.
    pub of: Of,
}

const ROW: Row =
    Row { name: "", step: "", or_step: None, figure: Figure::Rate, per: Per::One, target: Target::None, of: Of::All };

const fn at_most(name: &'static str, step: &'static str, figure: Figure, target: f64) -> Row {
    Row { name, step, figure, target: Target::AtMost(target), ..ROW }
}

const fn rate(name: &'static str, step: &'static str) -> Row {
    Row { name, step, ..ROW }
}

/// All rows.
pub const ROWS: [Row; 33] = [
    rate("PUT 4 KiB c1, ops/s", "PUT 4K c1"),
    at_most("PUT 4 KiB c1, p50 ms", "PUT 4K c1", Figure::P50, 1.0),
    rate("PUT 4 KiB c16, ops/s", "PUT 4K c16"),
    times_garage("PUT 4 KiB c16, ops/s, times Garage with fsync", "PUT 4K c16", 22.0),
    rate("PUT 4 KiB c64, ops/s", "PUT 4K c64"),
    times_garage("PUT 4 KiB c64, ops/s, times Garage with fsync", "PUT 4K c64", 27.0),
    at_most("PUT 4 KiB c16, CPU s per 10k", "PUT 4K c16", Figure::CpuPer10k, 0.8),
    at_most("PUT 4 KiB c64, CPU s per 10k", "PUT 4K c64", Figure::CpuPer10k, 0.8),
    Row { of: Of::Durable, ..at_most("PUT 4 KiB c1, device flushes", "PUT 4K c1", Figure::Flushes, 2.0) },
    Row { of: Of::Durable, ..at_most("PUT 4 KiB c64, device flushes", "PUT 4K c64", Figure::Flushes, 0.1) },
    Row { of: Of::Durable, ..at_most("PUT 4 KiB c1, kB written", "PUT 4K c1", Figure::Written, 16.0) },
    Row { of: Of::Durable, ..at_most("PUT 4 KiB c16, kB written", "PUT 4K c16", Figure::Written, 12.0) },
    at_most("GET 4 KiB c16, CPU s per 10k", "GET 4K c16", Figure::CpuPer10k, 0.25),
    times_hyper("GET 4 KiB c16, CPU, times bare hyper", "GET 4K c16"),
    at_most("HEAD c16, CPU s per 10k", "HEAD c16", Figure::CpuPer10k, 0.2),
    times_hyper("HEAD c16, CPU, times bare hyper", "HEAD c16"),
    at_most("GET 4 KiB c1, first byte p50 ms", "GET 4K c1", Figure::FirstByte, 0.09),
    at_most("HEAD c1, first byte p50 ms", "HEAD c1", Figure::FirstByte, 0.07),
    rate("GET 4 KiB c1, delayed ACKs, ops/s", "GET 4K c1 delayed ACK"),
    Row {
        per: Per::Step("GET 4K c1"),
        target: Target::AtLeast(0.9),
        ..rate("GET 4 KiB c1, delayed ACKs, share of the rate", "GET 4K c1 delayed ACK")
    },
    at_most("DELETE c16, CPU s per 10k", "DELETE c16", Figure::CpuPer10k, 0.6),
    at_most("PUT 1 MiB c1, CPU s per GB", "PUT 1M c1", Figure::CpuPerGb, 1.8),
    at_most("PUT 32 MiB c1, CPU s per GB", "PUT 32M c1", Figure::CpuPerGb, 1.8),
    at_most("PUT 1 MiB c16, CPU s per GB", "PUT 1M c16", Figure::CpuPerGb, 0.9),
    at_most("PUT 32 MiB c16, CPU s per GB", "PUT 32M c16", Figure::CpuPerGb, 0.9),
    at_most("GET 1 MiB c1, CPU s per GB", "GET 1M c1", Figure::CpuPerGb, 0.5),
    at_most("GET 32 MiB c1, CPU s per GB", "GET 32M c1", Figure::CpuPerGb, 0.5),
    at_most("LIST of 1,000 keys, p50 ms", "LIST", Figure::P50, 1.5),
    at_most("LIST of 1,000 keys, CPU s per 10k", "LIST", Figure::CpuPer10k, 12.0),
    at_most("LIST of 100 groups of 1,000 keys, p50 ms", "LIST groups", Figure::P50, 2.0),
    Row { or_step: Some("copy 64M, bytes moved"), ..at_most("copy of 64 MiB, p50 ms", "copy 64M", Figure::P50, 2.0) },
    at_most("multipart 8 x 8 MiB, p50 ms", "multipart 8 x 8M", Figure::P50, 120.0),
    Row { of: Of::Stores, ..at_most("memory idle, MiB", MEMORY, Figure::IdleMemory, 64.0) },
];

/// The step, as it were, of figures about memory, which belong to the whole run.
pub const MEMORY: &str = "memory";

/// The row that ends the table: `--memory 1GiB` and a tenth.
pub const PEAK: Row =
    Row { of: Of::Stores, ..at_most("memory peak (--memory 1GiB), MiB", MEMORY, Figure::PeakMemory, 1126.0) };

const fn times_garage(name: &'static str, step: &'static str, times: f64) -> Row {
    Row { per: Per::Server(GarageSync), target: Target::AtLeast(times), ..rate(name, step) }
}

const fn times_hyper(name: &'static str, step: &'static str) -> Row {
    Row { per: Per::Server(Hyper), ..at_most(name, step, Figure::CpuPer10k, 2.0) }
}

impl Row {
    /// Whether a larger value is better.
    pub fn more_is_better(&self) -> bool {
        self.figure == Figure::Rate
    }

    /// Whether this server can have a value here.
    pub fn concerns(&self, server: ServerId) -> bool {
        let has = match self.of {
            Of::All => true,
            Of::Stores => server.is_store(),
            Of::Durable => server.is_durable(),
        };
        has && self.per != Per::Server(server)
    }

    /// How our value stands to the target.
    pub fn verdict(&self, ours: f64) -> String {
        let (reached, share) = match self.target {
            Target::None => return "-".into(),
            Target::AtMost(target) => (ours <= target, ours / target),
            Target::AtLeast(target) => (ours >= target, ours / target),
        };
        if reached { "reached".into() } else { format!("{share:.2} times the target") }
    }

    /// The target in words.
    pub fn target_text(&self) -> String {
        match self.target {
            Target::None => "-".into(),
            Target::AtMost(target) => format!("≤ {}", crate::bench::spread::number(target)),
            Target::AtLeast(target) => format!("≥ {}", crate::bench::spread::number(target)),
        }
    }

    /// The stores that are better than ours, of `medians`.
    pub fn behind(&self, medians: &[(ServerId, f64)]) -> Vec<ServerId> {
        let Some(ours) = medians.iter().find(|(server, _)| *server == Ours).map(|(_, value)| *value) else {
            return Vec::new();
        };
        let better = |value: f64| if self.more_is_better() { value > ours } else { value < ours };
        medians.iter().filter(|(server, value)| server.is_peer() && better(*value)).map(|(server, _)| *server).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Figure, PEAK, ROWS, Row, Target};
    use crate::bench::compare::loadgen::Sample;
    use crate::bench::compare::servers::ServerId::{Garage, GarageSync, Nginx, Ours};
    use crate::bench::compare::steps::STEPS;

    fn row(name: &str) -> Row {
        *ROWS.iter().find(|row| row.name == name).expect("a row of this name")
    }

    #[test]
    fn every_row_is_read_off_a_step_that_exists() {
        for row in ROWS.iter().chain([&PEAK]) {
            assert!(row.step == super::MEMORY || STEPS.iter().any(|step| step.name == row.step), "{}", row.name);
        }
    }

    #[test]
    fn figures_are_per_operation_and_per_byte_and_nothing_done_is_no_figure() {
        let sample = Sample {
            operations: 2000.0,
            size_bytes: 1e6,
            cpu_seconds: 4.0,
            flushes: 1000.0,
            written_bytes: 2e7,
            ..Sample::default()
        };
        let of = |figure: Figure| figure.of(&sample).expect("a figure");
        assert_eq!(of(Figure::CpuPer10k), 20.0);
        assert_eq!(of(Figure::CpuPerGb), 2.0);
        assert_eq!((of(Figure::Flushes), of(Figure::Written)), (0.5, 10.0));
        assert_eq!(Figure::CpuPer10k.of(&Sample::default()), None);
    }

    #[test]
    fn a_verdict_says_reached_or_how_far_away_in_the_direction_of_the_target() {
        let most = row("HEAD c16, CPU s per 10k");
        assert_eq!((most.verdict(0.2).as_str(), most.verdict(0.5).as_str()), ("reached", "2.50 times the target"));
        let least = row("PUT 4 KiB c16, ops/s, times Garage with fsync");
        assert_eq!(least.target, Target::AtLeast(22.0));
        assert_eq!((least.verdict(22.0).as_str(), least.verdict(11.0).as_str()), ("reached", "0.50 times the target"));
        assert_eq!(row("PUT 4 KiB c1, ops/s").verdict(1.0), "-");
    }

    #[test]
    fn a_better_peer_is_named_and_the_floor_is_no_peer() {
        let medians = [(Ours, 0.4), (Garage, 0.3), (GarageSync, 0.5), (Nginx, 0.1)];
        assert_eq!(row("HEAD c16, CPU s per 10k").behind(&medians), [Garage]);
        assert_eq!(row("PUT 4 KiB c1, ops/s").behind(&medians), [GarageSync]);
    }

    #[test]
    fn bytes_written_are_only_compared_between_stores_that_sync() {
        let written = row("PUT 4 KiB c1, kB written");
        assert!(written.concerns(Ours) && written.concerns(GarageSync) && !written.concerns(Garage));
        assert!(!row("PUT 4 KiB c16, ops/s, times Garage with fsync").concerns(GarageSync));
    }
}
