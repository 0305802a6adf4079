//! Byte ranges of reads and of part copies.
//!
//! Promises: constant work whatever is sent; answers as AWS does (cases 66 to 70).

use crate::error::{S3Code, S3Error, S3Result};

/// What a `Range` header asks of a version of some size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selection {
    /// Everything: there is no range, or one that is not understood (several ranges are not).
    Whole,
    /// That many bytes from there.
    Part { offset: u64, len: u64 },
    /// 416.
    Unsatisfiable,
}

/// A number of digits only; one that is too large for the type is larger than any object.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// Reads the header for a version of `size` bytes.
pub fn select(header: &str, size: u64) -> Selection {
    let Some((first, last)) = header.trim().strip_prefix("bytes=").and_then(|spec| spec.trim().split_once('-')) else {
        return Selection::Whole;
    };
    let (first, last) = (first.trim(), last.trim());
    match (number(first), number(last)) {
        (None, Some(0)) if first.is_empty() => Selection::Unsatisfiable,
        (None, Some(_)) if first.is_empty() && size == 0 => Selection::Whole,
        (None, Some(n)) if first.is_empty() => {
            let len = n.min(size);
            Selection::Part { offset: size - len, len }
        }
        (Some(from), Some(to)) if from > to => Selection::Whole,
        (Some(from), _) if from >= size && (last.is_empty() || number(last).is_some()) => Selection::Unsatisfiable,
        (Some(from), None) if last.is_empty() => Selection::Part { offset: from, len: size - from },
        (Some(from), Some(to)) => Selection::Part { offset: from, len: to.min(size - 1) - from + 1 },
        _ => Selection::Whole,
    }
}

/// `x-amz-copy-source-range`: exactly `bytes=first-last`, within the source.
pub fn parse_copy_range(header: &str, size: u64) -> S3Result<(u64, u64)> {
    let bad = |message: &'static str| S3Error::invalid_argument("x-amz-copy-source-range", header, message);
    let format = || bad("The range must have the form bytes=first-last, counted from zero");
    let (first, last) = header.strip_prefix("bytes=").and_then(|s| s.split_once('-')).ok_or_else(format)?;
    let (first, last) = number(first).zip(number(last)).filter(|(f, l)| f <= l).ok_or_else(format)?;
    if last >= size {
        return Err(unsatisfiable(header, size));
    }
    Ok((first, last - first + 1))
}

/// The error of an unsatisfiable range.
pub fn unsatisfiable(header: &str, size: u64) -> S3Error {
    let error =
        S3Error::new(S3Code::InvalidRange).extra("RangeRequested", header).extra("ActualObjectSize", size.to_string());
    match http::HeaderValue::from_str(&format!("bytes */{size}")) {
        Ok(value) => error.header(http::header::CONTENT_RANGE, value),
        Err(_) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(offset: u64, len: u64) -> Selection {
        Selection::Part { offset, len }
    }

    #[test]
    fn cases_66_to_70_ranges_select_as_on_aws() {
        for (header, size, want) in [
            ("bytes=-1", 0, Selection::Whole),
            ("bytes=-524288", 0, Selection::Whole),
            ("bytes=0-0", 0, Selection::Unsatisfiable),
            ("bytes=0-", 0, Selection::Unsatisfiable),
            ("bytes=-0", 10, Selection::Unsatisfiable),
            ("bytes=5-100", 10, part(5, 5)),
            ("bytes=10-", 10, Selection::Unsatisfiable),
            ("bytes=-100", 10, part(0, 10)),
            ("bytes=-3", 10, part(7, 3)),
            ("bytes=0-0", 10, part(0, 1)),
            ("bytes=9-9", 10, part(9, 1)),
        ] {
            assert_eq!(select(header, size), want, "{header} of {size}");
        }
    }

    #[test]
    fn row_62_strange_ranges_are_the_whole_or_unsatisfiable() {
        let many = format!("bytes={}", vec!["0-0"; 1000].join(","));
        for header in
            [many.as_str(), "bytes=5-2", "bytes=a-b", "bytes=-", "bytes=", "lines=0-1", "bytes=+1-2", "bytes=0-x", ""]
        {
            assert_eq!(select(header, 10), Selection::Whole, "{header}");
        }
        assert_eq!(select("bytes=0-99999999999999999999999", 10), part(0, 10));
        assert_eq!(select("bytes=99999999999999999999999-", 10), Selection::Unsatisfiable);
        assert_eq!(select("bytes=18446744073709551615-18446744073709551615", 10), Selection::Unsatisfiable);
        assert_eq!(select("bytes=-18446744073709551615", 10), part(0, 10));
    }

    #[test]
    fn a_copy_range_lies_within_its_source() {
        assert_eq!(parse_copy_range("bytes=0-9", 10).ok(), Some((0, 10)));
        for bad in ["bytes=0-10", "bytes=5-2", "bytes=-5", "bytes=5-", "0-9", "bytes=0-9,11-12"] {
            assert!(parse_copy_range(bad, 10).is_err(), "{bad}");
        }
    }
}
