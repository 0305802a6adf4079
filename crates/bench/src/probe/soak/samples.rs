//! Samples of a soak and what they say: latency by quarters, growth by a slope that outliers do not move.
//!
//! Promises: growth is judged over the second half, when caches are full and the first compactions are done; space in relation to the
//! live data. Refuses to know: how a sample was taken.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use super::super::{Check, Findings, Line, median, ratio};
use crate::BenchError;
use crate::histogram::Histogram;

/// Memory may be above what the server was told by so much.
const MEMORY_FACTOR: f64 = 1.1;
/// How much the last quarter may be above the first.
const LATER_MAX: f64 = 1.2;
/// What may grow over the second half, as a share of the median, or in all where that is more: the noise of one sample.
const GROWTH_SHARE: f64 = 0.05;
const GROWTH_BYTES: f64 = (16 << 20) as f64;
const GROWTH_COUNT: f64 = 16.0;
/// The same of space on disk, which goes up and down with compactions and open groups.
const SPACE_SHARE: f64 = 0.15;
const SPACE_BYTES: f64 = (128 << 20) as f64;

/// What was seen at one moment, and since the one before.
pub(super) struct Sample {
    pub(super) second: f64,
    pub(super) small: Histogram,
    pub(super) other: Histogram,
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: u64,
    pub(super) peak_bytes: u64,
    pub(super) descriptors: u64,
    pub(super) files: u64,
    pub(super) data_bytes: u64,
    pub(super) live_bytes: u64,
    pub(super) live_objects: u64,
}

/// A number of a sample.
type Measure = fn(&Sample) -> f64;

/// Names of the columns of [`Sample::row`].
const COLUMNS: &str = "second\toperations\tsmall_p50_ms\tsmall_p99_ms\tother_p50_ms\tother_p99_ms\tcpu_seconds\tresident_bytes\t\
                       descriptors\tfiles\tdata_bytes\tlive_bytes\tlive_objects";

impl Sample {
    fn row(&self) -> String {
        let (small, other) = (self.small.summary(), self.other.summary());
        format!(
            "{:.1}\t{}\t{:.3}\t{:.3}\t{:.3}\t{:.3}\t{:.2}\t{}\t{}\t{}\t{}\t{}\t{}",
            self.second,
            self.small.count() + self.other.count(),
            small.p50_ms,
            small.p99_ms,
            other.p50_ms,
            other.p99_ms,
            self.cpu_seconds,
            self.resident_bytes,
            self.descriptors,
            self.files,
            self.data_bytes,
            self.live_bytes,
            self.live_objects
        )
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let small = self.small.summary();
        write!(
            f,
            "p50 {:.2} p99 {:.2} ms, {} MiB resident, {} descriptors, {} files, {} of {} MiB live",
            small.p50_ms,
            small.p99_ms,
            self.resident_bytes >> 20,
            self.descriptors,
            self.files,
            self.live_bytes >> 20,
            self.data_bytes >> 20
        )
    }
}

/// All samples of a run.
pub(super) struct Samples {
    list: Vec<Sample>,
    tsv: Option<File>,
}

impl Samples {
    /// With a path, each sample is also a line of that file.
    pub(super) fn new(tsv: Option<&Path>) -> Result<Samples, BenchError> {
        let create = |path: &Path| File::create(path).map_err(BenchError::local(path.display().to_string()));
        let mut samples = Samples { list: Vec::new(), tsv: tsv.map(create).transpose()? };
        samples.write(COLUMNS)?;
        Ok(samples)
    }

    fn write(&mut self, line: &str) -> Result<(), BenchError> {
        match &mut self.tsv {
            Some(file) => writeln!(file, "{line}").map_err(BenchError::local("write the samples")),
            None => Ok(()),
        }
    }

    pub(super) fn add(&mut self, sample: Sample) -> Result<(), BenchError> {
        self.write(&sample.row())?;
        self.list.push(sample);
        Ok(())
    }

    /// Adds the table and the verdicts.
    pub(super) fn judge(&self, memory_bytes: Option<u64>, findings: &mut Findings) {
        let quarters: Vec<Histogram> = (0..4).map(|number| self.quarter(number)).collect();
        for (number, small) in (1..).zip(&quarters) {
            findings.lines.push(Line::times(format!("small requests, quarter {number}"), small));
        }
        let (first, last) = (quarters[0].summary(), quarters[3].summary());
        let (p50, p99) = (ratio(last.p50_ms, first.p50_ms), ratio(last.p99_ms, first.p99_ms));
        findings.checks.push(Check::time("p50 of the last quarter, of the first", p50, LATER_MAX));
        findings.checks.push(Check::time("p99 of the last quarter, of the first", p99, LATER_MAX));
        self.judge_growth(findings);
        let peak = self.list.iter().map(|sample| sample.peak_bytes).max().unwrap_or(0);
        if let Some(memory) = memory_bytes {
            let limit = memory as f64 * MEMORY_FACTOR;
            findings.checks.push(Check::count("peak of memory, bytes", peak as f64, limit));
        }
        let operations: u64 = self.list.iter().map(|sample| sample.small.count() + sample.other.count()).sum();
        let cpu: f64 = self.list.iter().map(|sample| sample.cpu_seconds).sum();
        let figures = [("operations", operations as f64), ("server_cpu_s", cpu), ("peak_MiB", (peak >> 20) as f64)];
        findings.lines.push(Line::new("in all", &figures));
    }

    fn quarter(&self, number: usize) -> Histogram {
        let of = |quarter: usize| self.list.len() * quarter / 4;
        let mut sum = Histogram::default();
        for sample in &self.list[of(number)..of(number + 1)] {
            sum.merge(&sample.small);
        }
        sum
    }

    fn judge_growth(&self, findings: &mut Findings) {
        let kinds: [(&str, Measure, f64, f64); 4] = [
            ("resident memory", |s| s.resident_bytes as f64, GROWTH_SHARE, GROWTH_BYTES),
            ("open descriptors", |s| s.descriptors as f64, GROWTH_SHARE, GROWTH_COUNT),
            ("files", |s| s.files as f64, GROWTH_SHARE, GROWTH_COUNT),
            ("space beyond the live data", |s| s.data_bytes as f64 - s.live_bytes as f64, SPACE_SHARE, SPACE_BYTES),
        ];
        let second_half = &self.list[self.list.len() / 2..];
        for (name, of, share, least) in kinds {
            let values: Vec<f64> = second_half.iter().map(of).collect();
            let (usual, grown) = (median(values.clone()), growth(&values));
            let first = self.list.first().map_or(0.0, of);
            let figures = [("at_first", first), ("median_of_second_half", usual), ("growth_in_it", grown)];
            findings.lines.push(Line::new(name, &figures));
            findings.checks.push(Check::count(
                format!("growth of {name}, second half"),
                grown,
                least.max(share * usual),
            ));
        }
    }
}

/// The median of the slopes of all pairs (Theil and Sen), times the length: what was gained from the first to the last value.
fn growth(values: &[f64]) -> f64 {
    let slopes = (0..values.len()).flat_map(|i| (i + 1..values.len()).map(move |j| (i, j)));
    let slopes: Vec<f64> = slopes.map(|(i, j)| (values[j] - values[i]) / (j - i) as f64).collect();
    median(slopes) * values.len().saturating_sub(1) as f64
}

#[cfg(test)]
mod tests {
    use super::{Sample, Samples, growth};
    use crate::histogram::Histogram;
    use crate::probe::Findings;
    use std::time::Duration;

    fn samples(of: impl Fn(u64) -> (u64, u64)) -> Findings {
        let mut samples = Samples::new(None).expect("no file");
        for number in 0..80 {
            let (micros, descriptors) = of(number);
            let mut small = Histogram::default();
            (0..100).for_each(|_| small.record(Duration::from_micros(micros)));
            let sample = Sample {
                second: number as f64,
                small,
                other: Histogram::default(),
                cpu_seconds: 0.1,
                resident_bytes: 100 << 20,
                peak_bytes: 120 << 20,
                descriptors,
                files: 50,
                data_bytes: 1 << 30,
                live_bytes: 1 << 29,
                live_objects: 1000,
            };
            samples.add(sample).expect("kept");
        }
        let mut findings = Findings::new("soak");
        samples.judge(Some(110 << 20), &mut findings);
        findings
    }

    fn missed(findings: &Findings) -> Vec<&str> {
        findings.checks.iter().filter(|check| !check.holds).map(|check| check.name.as_str()).collect()
    }

    #[test]
    fn a_line_grows_by_its_whole_height_and_outliers_do_not() {
        let line: Vec<f64> = (0..101).map(f64::from).collect();
        assert_eq!(growth(&line), 100.0);
        let mut flat = vec![5.0; 50];
        flat[7] = 1000.0;
        flat[49] = 900.0;
        assert_eq!((growth(&flat), growth(&[1.0]), growth(&[])), (0.0, 0.0, 0.0));
    }

    #[test]
    fn a_leak_of_descriptors_is_a_failure_and_a_slower_last_quarter_is_shown() {
        let steady = samples(|_| (500, 30));
        assert_eq!(missed(&steady), Vec::<&str>::new());
        let leaking = samples(|number| (500, 30 + number));
        assert_eq!(missed(&leaking), ["growth of open descriptors, second half"]);
        assert!(!leaking.is_good());
        let slower = samples(|number| (500 + 5 * number, 30));
        let late = ["p50 of the last quarter, of the first", "p99 of the last quarter, of the first"];
        assert_eq!((missed(&slower), slower.is_good()), (late.to_vec(), true));
    }
}
