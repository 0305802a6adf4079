//! Test programs outside cargo and their closing lines.
//!
//! Promises: a part without a closing line `N passed, N failed, N skipped` counts as failed, whatever its exit code.
//! Refuses to know: what is tested.

use std::process::Command;

use crate::process;

/// The sum of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// One word.
    pub name: &'static str,
    /// Tests that passed.
    pub passed: u32,
    /// Tests that failed.
    pub failed: u32,
    /// Tests that could not run here.
    pub skipped: u32,
}

impl Tally {
    /// A part that could not even begin.
    pub fn broken(name: &'static str) -> Tally {
        Tally { name, passed: 0, failed: 1, skipped: 0 }
    }

    /// The line that CI reads.
    pub fn line(&self) -> String {
        format!("{}: {} passed, {} failed, {} skipped", self.name, self.passed, self.failed, self.skipped)
    }

    /// Adds another program of the same part.
    pub fn add(&mut self, other: &Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// Runs a test program, shows its output and reads its closing line.
pub fn run(name: &'static str, command: &mut Command) -> Tally {
    let (text, succeeded) = match process::output(command) {
        Ok(done) => done,
        Err(error) => {
            println!("FAIL {name}: {error}");
            return Tally::broken(name);
        }
    };
    let closing = text.lines().rev().find_map(|line| parse(name, line));
    for line in text.lines().filter(|line| parse(name, line).is_none()) {
        println!("  {line}");
    }
    match closing {
        // A program that says that all is well and exits with failure is not believed.
        Some(tally) if succeeded || tally.failed > 0 => tally,
        _ => {
            println!("FAIL {name}: ended badly");
            Tally::broken(name)
        }
    }
}

fn parse(name: &'static str, line: &str) -> Option<Tally> {
    let line = line.split_once(": ").map_or(line, |(_, rest)| rest);
    let mut numbers = line.split(", ").zip(["passed", "failed", "skipped"]).map(|(part, word)| {
        let (number, found) = part.split_once(' ')?;
        (found == word).then(|| number.parse().ok())?
    });
    let tally =
        Tally { name, passed: numbers.next()??, failed: numbers.next()??, skipped: numbers.next().unwrap_or(Some(0))? };
    Some(tally)
}

#[cfg(test)]
mod tests {
    use super::{Tally, parse};

    #[test]
    fn closing_lines_are_read_with_and_without_a_word_and_skips() {
        let expected = Tally { name: "x", passed: 3, failed: 1, skipped: 2 };
        assert_eq!(parse("x", "crash: 3 passed, 1 failed, 2 skipped"), Some(expected.clone()));
        assert_eq!(parse("x", "3 passed, 1 failed"), Some(Tally { skipped: 0, ..expected }));
        assert_eq!(parse("x", "3 passed in 4 s"), None);
        assert_eq!(parse("x", "ok a test: with a colon"), None);
    }
}
