//! Answers: what a handler hands back, and the two date forms of S3.
//!
//! Promises: a value, no I/O. Refuses to know: hyper.

use crate::error::S3Error;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use object_controller::api::ReadBody;

/// The bytes of an answer.
pub enum S3Body {
    /// None. A `Content-Length` among the headers is kept (HEAD).
    Empty,
    /// All of them; leaves in one segment with the head.
    Full(Bytes),
    /// Exactly that many bytes as they come. An error, or an end too early, aborts the connection.
    Stream(Box<dyn ReadBody>, u64),
}

impl S3Body {
    /// `len` bytes of `body`, in one piece if they are in memory already.
    pub fn from_read(mut body: Box<dyn ReadBody>, len: u64) -> Self {
        match body.take_ready() {
            Some(b) if b.len() as u64 == len => S3Body::Full(b),
            // A short or long answer is a mistake of the store; the stream of the wrong length aborts.
            Some(b) => S3Body::Stream(Box::new(OnePiece(Some(b))), len),
            None => S3Body::Stream(body, len),
        }
    }
}

/// Ready bytes of the wrong length, streamed so that the length check of the server sees them.
struct OnePiece(Option<Bytes>);

impl ReadBody for OnePiece {
    fn next(
        &mut self,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<Option<Bytes>, object_controller::api::StoreError>> + Send + '_>>
    {
        let piece = self.0.take();
        Box::pin(async move { Ok(piece) })
    }
}

/// An answer. The server adds the request id, host id, date and server headers.
pub struct S3Response {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: S3Body,
    /// Name of the operation for metrics and logs, such as `GetObject`; set by the handler.
    pub operation: &'static str,
    /// The error this answer tells, if it is one; the server writes its XML (nothing for HEAD).
    pub error: Option<Box<S3Error>>,
}

/// Room for the headers of an answer, so that the map is made once.
const HEADERS: usize = 12;

impl S3Response {
    /// That status without a body.
    pub fn status(status: StatusCode) -> Self {
        S3Response {
            status,
            headers: HeaderMap::with_capacity(HEADERS),
            body: S3Body::Empty,
            operation: "-",
            error: None,
        }
    }

    /// 200 without a body.
    pub fn ok() -> Self {
        Self::status(StatusCode::OK)
    }

    /// 204.
    pub fn no_content() -> Self {
        Self::status(StatusCode::NO_CONTENT)
    }

    /// 200 with an XML document.
    pub fn xml(document: Bytes) -> Self {
        let mut r = Self::ok();
        r.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        r.body = S3Body::Full(document);
        r
    }

    /// Sets a header to a text of ours.
    pub fn set_static(&mut self, name: HeaderName, value: &'static str) {
        self.headers.insert(name, HeaderValue::from_static(value));
    }

    /// Sets a header; a value that is no header value (CR, LF, NUL) is an error of ours or of stored data: it is dropped, never split.
    pub fn set(&mut self, name: HeaderName, value: &str) {
        if let Ok(v) = HeaderValue::from_bytes(value.as_bytes()) {
            self.headers.insert(name, v);
        }
    }

    /// The same with the operation's name.
    #[must_use]
    pub fn operation(mut self, name: &'static str) -> Self {
        self.operation = name;
        self
    }
}

impl From<S3Error> for S3Response {
    fn from(e: S3Error) -> Self {
        let mut r = Self::status(e.status());
        e.write_headers(&mut r.headers);
        r.error = Some(Box::new(e));
        r
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, whole seconds.
pub struct HttpDate([u8; 29]);

impl HttpDate {
    /// Of milliseconds since the epoch.
    pub fn of(ms: u64) -> Self {
        const WEEKDAYS: &[[u8; 3]; 7] = &[*b"Thu", *b"Fri", *b"Sat", *b"Sun", *b"Mon", *b"Tue", *b"Wed"];
        const MONTHS: &[[u8; 3]; 12] = &[
            *b"Jan", *b"Feb", *b"Mar", *b"Apr", *b"May", *b"Jun", *b"Jul", *b"Aug", *b"Sep", *b"Oct", *b"Nov", *b"Dec",
        ];
        let mut text = *b"Thu, 00 Jan 0000 00:00:00 GMT";
        let ([year, month, day], [hour, minute, second, _]) = date_fields(ms);
        let days = ms.min(LAST_SECOND * 1000) / 86_400_000;
        text[0..3].copy_from_slice(&WEEKDAYS[(days % 7) as usize]);
        put_pair(&mut text, 5, day);
        text[8..11].copy_from_slice(&MONTHS[(month as usize + 11) % 12]);
        put_year(&mut text, 12, year);
        put_pair(&mut text, 17, hour);
        put_pair(&mut text, 20, minute);
        put_pair(&mut text, 23, second);
        HttpDate(text)
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits, names and marks are ASCII")
    }
}

/// The last second of the year 9999, beyond which neither form can say a date.
const LAST_SECOND: u64 = 253_402_300_799;

/// `2026-01-31T00:00:00.000Z`.
pub fn iso_date(ms: u64) -> String {
    IsoDate::of(ms).as_str().to_owned()
}

/// The same without a place on the heap.
pub struct IsoDate([u8; 24]);

impl IsoDate {
    /// Of milliseconds since the epoch.
    #[inline]
    pub fn of(ms: u64) -> Self {
        let mut text = *b"0000-00-00T00:00:00.000Z";
        let ([year, month, day], [hour, minute, second, milli]) = date_fields(ms);
        put_year(&mut text, 0, year);
        put_pair(&mut text, 5, month);
        put_pair(&mut text, 8, day);
        put_pair(&mut text, 11, hour);
        put_pair(&mut text, 14, minute);
        put_pair(&mut text, 17, second);
        text[20] = b'0' + (milli / 100) as u8;
        put_pair(&mut text, 21, milli % 100);
        IsoDate(text)
    }

    /// As ASCII.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits and marks are ASCII")
    }
}

/// `20260131T000000Z`: the form of signatures.
pub struct BasicDate([u8; 16]);

impl BasicDate {
    /// Of milliseconds since the epoch.
    pub fn of(ms: u64) -> Self {
        let mut text = *b"00000000T000000Z";
        let ([year, month, day], [hour, minute, second, _]) = date_fields(ms);
        put_year(&mut text, 0, year);
        put_pair(&mut text, 4, month);
        put_pair(&mut text, 6, day);
        put_pair(&mut text, 9, hour);
        put_pair(&mut text, 11, minute);
        put_pair(&mut text, 13, second);
        BasicDate(text)
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("digits and marks are ASCII")
    }
}

/// Year, month, day; hour, minute, second, millisecond.
fn date_fields(ms: u64) -> ([u64; 3], [u64; 4]) {
    let ms = ms.min(LAST_SECOND * 1000 + 999);
    let (year, month, day) = civil(ms / 86_400_000);
    let second = ms / 1000 % 86_400;
    ([year, month, day], [second / 3600, second / 60 % 60, second % 60, ms % 1000])
}

/// Two digits of each number below 100. Not `format!`: dates stand in every signed request and a thousand times in a page of a
/// listing.
const PAIRS: [[u8; 2]; 100] = {
    let mut table = [[0; 2]; 100];
    let mut value = 0;
    while value < 100 {
        table[value] = [b'0' + (value / 10) as u8, b'0' + (value % 10) as u8];
        value += 1;
    }
    table
};

#[inline]
fn put_pair<const N: usize>(text: &mut [u8; N], at: usize, value: u64) {
    text[at..at + 2].copy_from_slice(&PAIRS[(value % 100) as usize]);
}

#[inline]
fn put_year<const N: usize>(text: &mut [u8; N], at: usize, year: u64) {
    put_pair(text, at, year / 100);
    put_pair(text, at + 2, year);
}

/// Year, month and day of a count of days since the epoch (Gregorian, years counted from March).
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let era = z / 146_097;
    let doe = z % 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_58_a_value_that_would_split_the_answer_is_dropped() {
        let mut r = S3Response::ok();
        for bad in ["a\r\nSet-Cookie: x", "a\nb", "a\0b"] {
            r.set(header::CONTENT_TYPE, bad);
            assert!(r.headers.is_empty());
        }
        r.set(header::CONTENT_TYPE, "text/plain; charset=é");
        assert_eq!(r.headers.len(), 1);
    }

    #[test]
    fn dates_have_the_forms_of_s3() {
        assert_eq!(iso_date(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(iso_date(951_782_400_123), "2000-02-29T00:00:00.123Z");
        assert_eq!(iso_date(1_796_083_199_999), "2026-11-30T23:59:59.999Z");
        assert_eq!(iso_date(u64::MAX), "9999-12-31T23:59:59.999Z");
        assert_eq!(HttpDate::of(784_111_777_999).as_str(), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(HttpDate::of(u64::MAX).as_str(), "Fri, 31 Dec 9999 23:59:59 GMT");
        for day in 0..40_000 {
            let ms = day * 86_400_000 + 3_723_000;
            let known = httpdate::fmt_http_date(std::time::UNIX_EPOCH + std::time::Duration::from_millis(ms));
            assert_eq!(HttpDate::of(ms).as_str(), known);
        }
    }
}
