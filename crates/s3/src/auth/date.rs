//! The dates of signatures: `20130524T000000Z`, and the HTTP date in a `Date` header.

use std::time::UNIX_EPOCH;

/// Milliseconds since the epoch of `20130524T000000Z` or an HTTP date; `None` if it is neither or before 1970.
pub fn parse_amz_date(text: &str) -> Option<u64> {
    parse_basic(text).or_else(|| {
        // Python's `formatdate` (botocore) writes the zone in digits.
        let gmt = [" -0000", " +0000"].iter().find_map(|zone| text.strip_suffix(zone)).map(|t| format!("{t} GMT"));
        let t = httpdate::parse_http_date(gmt.as_deref().unwrap_or(text)).ok()?;
        u64::try_from(t.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
    })
}

fn parse_basic(text: &str) -> Option<u64> {
    let b: &[u8; 16] = text.as_bytes().try_into().ok()?;
    if b[8] != b'T' || b[15] != b'Z' {
        return None;
    }
    let number = |range: std::ops::Range<usize>| {
        b[range].iter().try_fold(0u64, |n, c| c.is_ascii_digit().then(|| n * 10 + u64::from(c - b'0')))
    };
    let (year, month, day) = (number(0..4)?, number(4..6)?, number(6..8)?);
    let (hour, minute, second) = (number(9..11)?, number(11..13)?, number(13..15)?);
    let days = days_since_epoch(year, month, day)?;
    (hour < 24 && minute < 60 && second < 60).then(|| ((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000)
}

/// Milliseconds since the epoch of `2007-12-01T12:00:00Z` or `2007-12-01T12:00:00.000Z`.
pub fn parse_iso_date(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z')?;
    let (seconds, millis) = match text.split_once('.') {
        Some((s, fraction)) => {
            let digits = (1..=9).contains(&fraction.len()) && fraction.bytes().all(|c| c.is_ascii_digit());
            (s, format!("{fraction:0<3}").get(..3).filter(|_| digits)?.parse::<u64>().ok()?)
        }
        None => (text, 0),
    };
    let b = seconds.as_bytes();
    let marks =
        b.len() == 19 && [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')].iter().all(|(i, c)| b[*i] == *c);
    if !marks || !seconds.is_ascii() {
        return None;
    }
    let basic: String = seconds.chars().filter(|c| *c != '-' && *c != ':').chain(['Z']).collect();
    parse_basic(&basic).map(|ms| ms + millis)
}

/// Days of a Gregorian date since 1970-01-01; `None` if there is no such day.
fn days_since_epoch(year: u64, month: u64, day: u64) -> Option<u64> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let length = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u64::from(leap),
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => return None,
    };
    if year < 1970 || !(1..=length).contains(&day) {
        return None;
    }
    let y = if month <= 2 { year - 1 } else { year };
    let shifted = (month + 9) % 12;
    let day_of_year = (153 * shifted + 2) / 5 + day - 1;
    let era = y / 400;
    let year_of_era = y % 400;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * 146_097 + day_of_era).checked_sub(719_468)
}

/// `20130524T000000Z`.
pub fn format_amz_date(ms: u64) -> String {
    crate::response::BasicDate::of(ms).as_str().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_survive_formatting() {
        assert_eq!(parse_amz_date("19700101T000000Z"), Some(0));
        assert_eq!(parse_amz_date("20000229T000000Z"), Some(951_782_400_000));
        assert_eq!(parse_amz_date("20261130T235959Z"), Some(1_796_083_199_000));
        assert_eq!(parse_amz_date("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777_000));
        assert_eq!(format_amz_date(951_782_400_000), "20000229T000000Z");
        assert_eq!(parse_iso_date("2000-02-29T00:00:00Z"), Some(951_782_400_000));
        assert_eq!(parse_iso_date("2000-02-29T00:00:00.12Z"), Some(951_782_400_120));
    }

    #[test]
    fn what_is_no_date_is_refused() {
        for bad in [
            "",
            "Bad Date",
            "20130524",
            "20130524T000000",
            "20130524t000000Z",
            "20130230T000000Z",
            "20131301T000000Z",
            "20130524T240000Z",
            "19500707T215304Z",
            "2013052éT00000Z",
            "Tue, 07 Jul 1950 21:53:04 GMT",
        ] {
            assert_eq!(parse_amz_date(bad), None, "{bad}");
        }
        for bad in [
            "",
            "Z",
            "2000-02-29 00:00:00+00:00",
            "2000-02-29T00:00:00",
            "2000-02-29T00:00:00.Z",
            "2000-02-29T00:00:00.éZ",
        ] {
            assert_eq!(parse_iso_date(bad), None, "{bad}");
        }
    }
}
