//! Reads multipart/form-data as it arrives.
//!
//! Promises: at most the fields before the file are held in memory, bounded; the file is handed on in slices of what came in; a
//! form that ends before its file's delimiter is `IncompleteBody`. What follows the file is not looked at.

use super::disposition::part_names;
use crate::body::Source;
use crate::error::{S3Code, S3Error, S3Result};
use crate::limits;
use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem;

/// All that stands before the file: field values, their heads and delimiters.
const PRE_DATA_MAX_BYTES: usize =
    limits::FORM_FIELDS_MAX_BYTES + limits::FORM_FIELDS_MAX * (256 + limits::FORM_BOUNDARY_MAX_BYTES);

/// A form up to its file.
pub struct FormReader {
    source: Source,
    /// `\r\n--boundary`.
    delimiter: Bytes,
    buffer: BytesMut,
    taken: usize,
}

fn malformed(why: &'static str) -> S3Error {
    S3Error::with(S3Code::MalformedPOSTRequest, why)
}

impl FormReader {
    /// Reads from `source`.
    pub fn new(source: Source, boundary: &str) -> Self {
        // The first delimiter lacks its line break; with one put before, all are alike.
        FormReader {
            source,
            delimiter: Bytes::from(format!("\r\n--{boundary}")),
            buffer: BytesMut::from(&b"\r\n"[..]),
            taken: 0,
        }
    }

    /// The fields before the file (names in lower case) and the file.
    pub async fn read_fields(mut self) -> S3Result<(Vec<(String, String)>, FormFile)> {
        let mut fields: Vec<(String, String)> = Vec::new();
        let mut value_bytes = 0;
        self.take_until_delimiter().await?;
        loop {
            if !self.begin_part().await? {
                return Err(S3Error::new(S3Code::IncorrectNumberOfFilesInPostRequest));
            }
            let (name, file_name) = part_names(&self.take_head().await?)?;
            let name = name.to_ascii_lowercase();
            if name == "file" {
                return Ok((fields, self.into_file(file_name)));
            }
            let value = self.take_until_delimiter().await?;
            value_bytes += name.len() + value.len();
            if value_bytes > limits::FORM_FIELDS_MAX_BYTES || fields.len() >= limits::FORM_FIELDS_MAX {
                return Err(S3Error::new(S3Code::MaxPostPreDataLengthExceededError));
            }
            if fields.iter().any(|(n, _)| *n == name) {
                return Err(S3Error::invalid_argument(name, "", "A form field was sent twice"));
            }
            let value = String::from_utf8(value.to_vec()).map_err(|_| malformed("A field is not UTF-8"))?;
            fields.push((name, value));
        }
    }

    /// More bytes into the buffer. An end here is an end too early.
    async fn fill(&mut self) -> S3Result<()> {
        if self.taken + self.buffer.len() > PRE_DATA_MAX_BYTES {
            return Err(S3Error::new(S3Code::MaxPostPreDataLengthExceededError));
        }
        match self.source.next().await? {
            Some(bytes) => {
                self.buffer.extend_from_slice(&bytes);
                Ok(())
            }
            None => Err(malformed("The form ends too early")),
        }
    }

    fn take(&mut self, n: usize) -> Bytes {
        self.taken += n;
        self.buffer.split_to(n).freeze()
    }

    async fn take_until(&mut self, pattern: &[u8]) -> S3Result<Bytes> {
        let mut from = 0;
        loop {
            if let Some(i) = memmem::find(&self.buffer[from..], pattern) {
                let out = self.take(from + i);
                self.taken += pattern.len();
                self.buffer.advance(pattern.len());
                return Ok(out);
            }
            from = self.buffer.len().saturating_sub(pattern.len() - 1);
            self.fill().await?;
        }
    }

    async fn take_until_delimiter(&mut self) -> S3Result<Bytes> {
        let delimiter = self.delimiter.clone();
        self.take_until(&delimiter).await
    }

    /// After a delimiter: true if a part follows, false at the end of the form.
    async fn begin_part(&mut self) -> S3Result<bool> {
        while self.buffer.len() < 2 {
            self.fill().await?;
        }
        if self.buffer.starts_with(b"--") {
            return Ok(false);
        }
        let padding = self.take_until(b"\r\n").await?;
        if padding.iter().any(|c| !matches!(c, b' ' | b'\t')) {
            return Err(malformed("A delimiter is malformed"));
        }
        Ok(true)
    }

    async fn take_head(&mut self) -> S3Result<Bytes> {
        let head = self.take_until(b"\r\n\r\n").await?;
        if head.len() > limits::FORM_PART_HEAD_MAX_BYTES {
            return Err(S3Error::new(S3Code::MaxPostPreDataLengthExceededError));
        }
        Ok(head)
    }

    fn into_file(self, file_name: Option<String>) -> FormFile {
        FormFile {
            source: self.source,
            delimiter: self.delimiter,
            buffer: self.buffer.freeze(),
            ended: false,
            file_name,
        }
    }
}

/// The file of a form: the bytes up to the next delimiter.
pub struct FormFile {
    source: Source,
    delimiter: Bytes,
    buffer: Bytes,
    ended: bool,
    file_name: Option<String>,
}

impl FormFile {
    /// The file's name without the folders of the client's machine; empty if it has none.
    pub fn base_name(&self) -> &str {
        let name = self.file_name.as_deref().unwrap_or("");
        name.rsplit(['/', '\\']).next().unwrap_or(name)
    }

    /// The next bytes; `None` after the last. Never empty.
    pub async fn next(&mut self) -> S3Result<Option<Bytes>> {
        if self.ended {
            return Ok(None);
        }
        loop {
            if let Some(i) = memmem::find(&self.buffer, &self.delimiter) {
                self.ended = true;
                let last = self.buffer.split_to(i);
                return Ok((!last.is_empty()).then_some(last));
            }
            let keep = self.possible_delimiter();
            let sure = self.buffer.split_to(self.buffer.len() - keep);
            if !sure.is_empty() {
                return Ok(Some(sure));
            }
            let next = self.source.next().await?.ok_or_else(|| S3Error::new(S3Code::IncompleteBody))?;
            self.buffer = if self.buffer.is_empty() {
                next
            } else {
                let mut joined = BytesMut::with_capacity(self.buffer.len() + next.len());
                joined.extend_from_slice(&self.buffer);
                joined.extend_from_slice(&next);
                joined.freeze()
            };
        }
    }

    /// How many bytes at the buffer's end may begin a delimiter.
    fn possible_delimiter(&self) -> usize {
        let longest = self.buffer.len().min(self.delimiter.len() - 1);
        (1..=longest).rev().find(|n| self.buffer.ends_with(&self.delimiter[..*n])).unwrap_or(0)
    }
}
