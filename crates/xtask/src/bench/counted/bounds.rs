//! The bounds of counted quantities.
//!
//! Promises: each line of the file gives a name, what was measured, the bound and the reason; each count is judged by the line of
//! its name, and a name on one side only is a failure. Refuses to know: how anything is counted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::Count;
use crate::bench::spread::number;

/// Counts that begin so are left out where they cannot be taken.
const INSTRUCTIONS: &str = "instructions ";
/// Below this part of what was measured, the bound is worth tightening.
const LOOSE: f64 = 0.8;

/// One line of the file.
#[derive(Debug, PartialEq)]
struct Bound {
    measured: f64,
    bound: f64,
}

/// The file.
#[derive(Debug)]
pub struct Bounds(BTreeMap<String, Bound>);

/// What became of all counts.
pub struct Verdict {
    /// One line a count.
    pub text: String,
    /// Counts within their bounds.
    pub passed: u32,
    /// Counts above, or without a bound; bounds without a count.
    pub failed: u32,
    /// Bounds whose counts could not be taken.
    pub skipped: u32,
}

impl Bounds {
    /// Reads the file.
    pub fn read(path: &Path) -> Result<Bounds, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Bounds::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn parse(text: &str) -> Result<Bounds, String> {
        let mut bounds = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what: &str| format!("line {}: {what}; wanted: name | measured | bound | reason", index + 1);
            let parts: Vec<&str> = line.split('|').map(str::trim).collect();
            let [name, measured, bound, reason] = parts[..] else { return Err(wrong("not four parts")) };
            let figure = |text: &str| text.replace(',', "").parse::<f64>().map_err(|_| wrong("not a number"));
            let (measured, bound) = (figure(measured)?, figure(bound)?);
            if reason.is_empty() || measured > bound {
                return Err(wrong("no reason, or a bound below what was measured"));
            }
            if bounds.insert(name.to_owned(), Bound { measured, bound }).is_some() {
                return Err(wrong("a second bound for the same count"));
            }
        }
        Ok(Bounds(bounds))
    }

    /// Judges all counts; instructions only if `with_instructions`.
    pub fn judge(&self, counts: &[Count], with_instructions: bool) -> Verdict {
        let mut verdict = Verdict { text: String::new(), passed: 0, failed: 0, skipped: 0 };
        let is_judged = |name: &str| with_instructions || !name.starts_with(INSTRUCTIONS);
        for (name, count) in counts {
            let (word, bound) = match self.0.get(name) {
                _ if !is_judged(name) => ("-", "not judged".into()),
                None => ("FAIL", "no bound".into()),
                Some(line) if count.is_nan() || *count > line.bound => {
                    ("FAIL", format!("at most {}", exact(line.bound)))
                }
                Some(line) if *count < line.measured * LOOSE => {
                    ("ok", format!("at most {}; the bound can be tightened", exact(line.bound)))
                }
                Some(line) => ("ok", format!("at most {}", exact(line.bound))),
            };
            match word {
                "ok" => verdict.passed += 1,
                "FAIL" => verdict.failed += 1,
                _ => {}
            }
            let _ = writeln!(verdict.text, "{word:4} {name}: {} ({bound})", exact(*count));
        }
        for name in self.0.keys().filter(|name| !counts.iter().any(|(counted, _)| counted == *name)) {
            // Bytes are the kernel's to tell; instructions were said to be skipped.
            if !is_judged(name) || name.starts_with("bytes written ") {
                verdict.skipped += 1;
                let _ = writeln!(verdict.text, "-    {name}: not counted here");
            } else {
                verdict.failed += 1;
                let _ = writeln!(verdict.text, "FAIL {name}: has a bound and was not counted");
            }
        }
        verdict.text.truncate(verdict.text.trim_end().len());
        verdict
    }
}

/// Small counts with all their digits: 1.004 syncs are not 1.
fn exact(value: f64) -> String {
    if value.abs() >= 100.0 { number(value) } else { format!("{value:.3}") }
}

#[cfg(test)]
mod tests {
    use super::Bounds;

    const FILE: &str = "# a comment\n\nsyncs per PUT | 1 | 1.05 | one log record, one sync\n\
                        instructions per HEAD | 70,000 | 80,000 | callgrind\nbytes written per PUT | 9,000 | 10,000 | the log\n";

    fn judge(counts: &[(&str, f64)], with_instructions: bool) -> (u32, u32, u32, String) {
        let counts: Vec<_> = counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let verdict = Bounds::parse(FILE).expect("a good file").judge(&counts, with_instructions);
        (verdict.passed, verdict.failed, verdict.skipped, verdict.text)
    }

    #[test]
    fn a_count_above_its_bound_fails_and_one_below_passes() {
        let good = [("syncs per PUT", 1.004), ("instructions per HEAD", 79_000.0), ("bytes written per PUT", 9216.0)];
        let (passed, failed, skipped, text) = judge(&good, true);
        assert_eq!((passed, failed, skipped), (3, 0, 0), "{text}");
        let bad = [("syncs per PUT", 1.1), ("instructions per HEAD", 80_001.0), ("bytes written per PUT", f64::NAN)];
        assert_eq!(judge(&bad, true).1, 3);
    }

    #[test]
    fn a_count_without_a_bound_and_a_bound_without_a_count_fail() {
        let (passed, failed, skipped, text) = judge(&[("seeks per LIST", 3.0), ("instructions per HEAD", 1.0)], true);
        assert_eq!((passed, failed, skipped), (1, 2, 1), "{text}");
        assert!(text.contains("FAIL syncs per PUT: has a bound") && text.contains("can be tightened"), "{text}");
    }

    #[test]
    fn skipped_instructions_are_shown_and_not_judged() {
        let (passed, failed, skipped, text) = judge(&[("syncs per PUT", 1.0), ("instructions per HEAD", 9e9)], false);
        assert_eq!((passed, failed, skipped), (1, 0, 1), "{text}");
        assert!(text.contains("-    instructions per HEAD: 9,000,000,000 (not judged)"), "{text}");
    }

    #[test]
    fn a_line_without_a_reason_or_with_a_bound_below_the_measured_value_is_refused() {
        for line in ["a | 1 | 2 |", "a | 3 | 2 | why", "a | 1 | 2", "a | x | 2 | why", "a | 1 | 2 | w\na | 1 | 2 | w"] {
            assert!(Bounds::parse(line).is_err(), "{line}");
        }
    }
}
