//! What one listing is about: prefix, delimiter, where it begins and ends. Shared by the three listings.

use crate::format::{family, key};
use types::BucketId;

/// Rows of one common prefix that are read on before the rest is passed over by a seek: where few keys share a prefix,
/// reading on is cheaper.
pub const ROWS_BEFORE_SEEK: u32 = 8;

/// Prefix and delimiter of one listing.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    pub bucket: BucketId,
    prefix: &'a [u8],
    delimiter: Option<&'a [u8]>,
}

impl<'a> Scope<'a> {
    pub fn new(bucket: BucketId, prefix: &'a str, delimiter: Option<&'a str>) -> Self {
        let delimiter = delimiter.filter(|d| !d.is_empty()).map(str::as_bytes);
        Scope { bucket, prefix: prefix.as_bytes(), delimiter }
    }

    /// Length of the common prefix that `key`, which begins with the prefix, falls into.
    pub fn group(&self, key: &[u8]) -> Option<usize> {
        let delimiter = self.delimiter?;
        let rest = key.get(self.prefix.len()..)?;
        let at = match delimiter {
            [byte] => rest.iter().position(|b| b == byte)?,
            _ => rest.windows(delimiter.len()).position(|w| w == delimiter)?,
        };
        Some(self.prefix.len() + at + delimiter.len())
    }

    /// Whether a marker is one of this listing's common prefixes: then the page begins after the whole group.
    pub fn names_group(&self, marker: &str) -> bool {
        let marker = marker.as_bytes();
        marker.starts_with(self.prefix) && self.group(marker) == Some(marker.len())
    }

    /// First row of the page.
    pub fn start(&self, family: u8, after: Option<&str>, after_is_prefix: bool) -> Vec<u8> {
        let start = key::from_key(family, self.bucket, self.prefix);
        match after {
            None => start,
            Some(p) if after_is_prefix || self.names_group(p) => start.max(self.after_group(family, p.as_bytes())),
            Some(k) => start.max(key::after_key(family, self.bucket, k.as_bytes())),
        }
    }

    /// First row after everything that begins with the common prefix `group`.
    pub fn after_group(&self, family: u8, group: &[u8]) -> Vec<u8> {
        key::after_prefix(family, self.bucket, group)
    }

    /// First row that is not in the listing any more.
    pub fn end(&self, family: u8) -> Vec<u8> {
        key::after_prefix(family, self.bucket, self.prefix)
    }
}

/// What a step of a listing found.
pub enum Step {
    /// More of the common prefix that was shown last; read on.
    InGroup,
    /// Too much of it: seek.
    PassGroup,
    /// The page is full and here is something more.
    Full,
    /// The next entry.
    Entry,
    /// The next common prefix, so many bytes of the key.
    Prefix(usize),
}

/// Counts the page and remembers the group that was shown last.
pub struct Pager<'a> {
    scope: Scope<'a>,
    left: u32,
    group: Vec<u8>,
    in_group: u32,
}

impl<'a> Pager<'a> {
    pub fn new(scope: Scope<'a>, max: u32) -> Self {
        Pager { scope, left: max, group: Vec::new(), in_group: 0 }
    }

    /// Classifies the next key in order.
    pub fn step(&mut self, key: &[u8]) -> Step {
        if !self.group.is_empty() && key.starts_with(&self.group) {
            self.in_group += 1;
            return if self.in_group > ROWS_BEFORE_SEEK { Step::PassGroup } else { Step::InGroup };
        }
        if self.left == 0 {
            return Step::Full;
        }
        self.left -= 1;
        self.group.clear();
        self.in_group = 0;
        match self.scope.group(key) {
            Some(len) => {
                self.group.extend_from_slice(&key[..len]);
                Step::Prefix(len)
            }
            None => Step::Entry,
        }
    }

    /// Where to go on after [`Step::PassGroup`].
    pub fn after_group(&self, family: u8) -> Vec<u8> {
        self.scope.after_group(family, &self.group)
    }
}

/// The text of a key or common prefix.
pub fn text(key: &[u8]) -> Result<&str, crate::format::FormatError> {
    std::str::from_utf8(key).map_err(|_| crate::format::FormatError::new(family::CURRENT, "key is not UTF-8"))
}
