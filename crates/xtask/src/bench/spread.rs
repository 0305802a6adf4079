//! The median of some rounds, and how far they lie apart.
//!
//! Promises: no round is left out. Refuses to know: what was measured.

use serde_json::{Value, json};

/// The figure of some rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// Each round's value, in order of the rounds.
    pub rounds: Vec<f64>,
    /// The middle one, or the mean of the middle two.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// `None` without a value.
    pub fn of(rounds: Vec<f64>) -> Option<Spread> {
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Spread { rounds, median, min, max })
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max, "rounds": self.rounds })
    }

    /// `median (min-max)`, or the value alone if it is the only one.
    pub fn text(&self) -> String {
        match self.rounds.len() {
            1 => number(self.median),
            _ => format!("{} ({}-{})", number(self.median), number(self.min), number(self.max)),
        }
    }
}

/// A figure to three digits that count, whole numbers with thousands apart.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 100.0 {
        return thousands(value.round());
    }
    let digits = if size >= 10.0 {
        1
    } else if size >= 1.0 {
        2
    } else {
        3
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn thousands(whole: f64) -> String {
    let digits = format!("{:.0}", whole.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if whole < 0.0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::{Spread, number};

    #[test]
    fn the_median_of_three_rounds_is_the_middle_one_and_the_outlier_is_seen_in_the_spread() {
        let spread = Spread::of(vec![3.0, 100.0, 2.0]).expect("three values");
        assert_eq!((spread.median, spread.min, spread.max), (3.0, 2.0, 100.0));
        assert_eq!(spread.text(), "3 (2-100)");
        assert_eq!(Spread::of(vec![1.0, 4.0]).expect("two values").median, 2.5);
        assert_eq!(Spread::of(vec![]), None);
    }

    #[test]
    fn numbers_keep_three_digits_that_count() {
        let texts: Vec<String> = [0.0712, 1.25, 1.0, 18.84, 441.6, 10_402.4, 1_234_567.0, 0.0].map(number).to_vec();
        assert_eq!(texts, ["0.071", "1.25", "1", "18.8", "442", "10,402", "1,234,567", "0"]);
    }
}
