//! ListObjectVersions: `current` and `versions` merged, newest first within a key.

use super::group::{Pager, Scope, Step, text};
use super::object::{ObjectEntry, ObjectRef};
use crate::format::key::{self, Parsed};
use crate::format::version::VersionHead;
use crate::format::{FormatError, family};
use crate::read::{ReadError, object};
use crate::tree::{Read, Row, TreeError};
use types::{BucketId, ObjectKey, VersionId};

/// ListObjectVersions.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListVersions<'a> {
    /// Only keys that begin so.
    pub prefix: &'a str,
    /// Groups.
    pub delimiter: Option<&'a str>,
    /// Begins after all versions of this key, unless `version_marker` is given: then after that version of it.
    pub key_marker: Option<&'a str>,
    /// See `key_marker`.
    pub version_marker: Option<VersionId>,
    /// Versions, markers and common prefixes together; 0 answers an empty page that is not truncated.
    pub max: u32,
}

/// A version or delete marker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionEntry {
    /// Key.
    pub key: String,
    /// `Null` also in a bucket that never had versioning.
    pub version: VersionId,
    /// The newest of its key.
    pub is_latest: bool,
    /// Milliseconds since the epoch.
    pub modified_ms: u64,
    /// `None` for a delete marker.
    pub object: Option<ObjectEntry>,
}

/// One page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VersionPage {
    /// Versions and markers interleaved, in order.
    pub versions: Vec<VersionEntry>,
    /// Common prefixes in order.
    pub prefixes: Vec<String>,
    /// More follow.
    pub truncated: bool,
    /// Where the next page begins.
    pub next_key: Option<String>,
    /// Its version; `None` if the page ended with a common prefix.
    pub next_version: Option<VersionId>,
}

/// One page.
pub fn versions(read: &dyn Read, bucket: BucketId, request: &ListVersions<'_>) -> Result<VersionPage, ReadError> {
    let mut page = VersionPage::default();
    if request.max == 0 {
        return Ok(page);
    }
    let scope = Scope::new(bucket, request.prefix, request.delimiter);
    let marker = Marker::new(read, bucket, request)?;
    let mut pager = Pager::new(scope, request.max);
    let mut merge = Merge::new(read, &scope, marker.starts(&scope));
    let mut previous = Vec::new();
    while let Some(row) = merge.next()? {
        let parsed = Parsed::new(&row.0)?;
        match pager.step(&parsed.key) {
            Step::InGroup => {}
            Step::PassGroup => {
                let starts = [family::CURRENT, family::VERSIONS].map(|f| pager.after_group(f));
                merge = Merge::new(read, &scope, starts);
            }
            Step::Full => {
                page.truncated = true;
                return Ok(page);
            }
            Step::Prefix(len) => {
                let prefix = text(&parsed.key[..len])?;
                page.prefixes.push(prefix.to_owned());
                page.next_key = Some(prefix.to_owned());
                page.next_version = None;
            }
            Step::Entry => {
                let head = VersionHead::read(&row.1)?;
                let is_latest = marker.is_latest(&parsed.key, head.sequence).unwrap_or(previous != *parsed.key);
                let entry = entry(text(&parsed.key)?, &head, is_latest);
                page.next_key = Some(entry.key.clone());
                page.next_version = Some(entry.version);
                page.versions.push(entry);
            }
        }
        previous.clear();
        previous.extend_from_slice(&parsed.key);
    }
    page.next_key = None;
    page.next_version = None;
    Ok(page)
}

fn entry(key: &str, head: &VersionHead<'_>, is_latest: bool) -> VersionEntry {
    VersionEntry {
        key: key.to_owned(),
        version: head.version_id(),
        is_latest,
        modified_ms: head.modified_ms,
        object: ObjectRef::new(key, head).map(ObjectEntry::from),
    }
}

/// Where the page begins.
enum Marker<'a> {
    /// After all versions of a key, or at the beginning.
    Key(Option<&'a str>),
    /// Within the versions of a key: only those with a sequence below the marker's.
    Version { key: &'a str, below: u64, newest: Option<u64> },
}

impl<'a> Marker<'a> {
    fn new(read: &dyn Read, bucket: BucketId, request: &ListVersions<'a>) -> Result<Self, ReadError> {
        let (Some(text), Some(id)) = (request.key_marker, request.version_marker) else {
            return Ok(Marker::Key(request.key_marker));
        };
        let Ok(key) = ObjectKey::new(text) else { return Ok(Marker::Key(Some(text))) };
        let below = match id {
            VersionId::Id { sequence, .. } => sequence,
            VersionId::Null => object::version(read, bucket, &key, id)?.map_or(0, |row| row.sequence),
        };
        let newest = object::newest(read, bucket, &key)?.map(|row| row.sequence);
        Ok(Marker::Version { key: text, below, newest })
    }

    /// First rows in `current` and `versions`.
    fn starts(&self, scope: &Scope<'_>) -> [Vec<u8>; 2] {
        match self {
            Marker::Key(after) => [family::CURRENT, family::VERSIONS].map(|f| scope.start(f, *after, false)),
            Marker::Version { key, below, newest } => {
                let text = key.as_bytes();
                let is_below = newest.is_some_and(|n| n < *below);
                let current = if is_below { key::from_key } else { key::after_key };
                let starts =
                    [current(family::CURRENT, scope.bucket, text), key::below_sequence(scope.bucket, text, *below)];
                let first = [family::CURRENT, family::VERSIONS].map(|f| scope.start(f, None, false));
                let [a, b] = starts;
                let [first_a, first_b] = first;
                [a.max(first_a), b.max(first_b)]
            }
        }
    }

    /// For versions of the marker's key, whose newest may lie before the page: whether this is the newest.
    fn is_latest(&self, key: &[u8], sequence: u64) -> Option<bool> {
        match self {
            Marker::Version { key: of, newest, .. } if of.as_bytes() == key => Some(*newest == Some(sequence)),
            _ => None,
        }
    }
}

type Rows<'a> = std::iter::Peekable<Box<dyn Iterator<Item = Result<Row, TreeError>> + Send + 'a>>;

/// Rows of both families in order of their keys; of one key, that of `current` first.
struct Merge<'a> {
    current: Rows<'a>,
    others: Rows<'a>,
}

fn source<'a>(read: &'a dyn Read, from: &[u8], to: &[u8]) -> Rows<'a> {
    if from < to { read.range(from, to).peekable() } else { empty().peekable() }
}

fn empty<'a>() -> Box<dyn Iterator<Item = Result<Row, TreeError>> + Send + 'a> {
    Box::new(std::iter::empty())
}

impl<'a> Merge<'a> {
    fn new(read: &'a dyn Read, scope: &Scope<'_>, starts: [Vec<u8>; 2]) -> Self {
        let [current, others] = starts;
        Merge {
            current: source(read, &current, &scope.end(family::CURRENT)),
            others: source(read, &others, &scope.end(family::VERSIONS)),
        }
    }

    fn next(&mut self) -> Result<Option<Row>, ReadError> {
        let others_first = match (self.current.peek(), self.others.peek()) {
            (Some(Ok(a)), Some(Ok(b))) => is_before(&b.0, &a.0)?,
            (None, Some(_)) | (Some(Ok(_)), Some(Err(_))) => true,
            _ => false,
        };
        let source = if others_first { &mut self.others } else { &mut self.current };
        Ok(source.next().transpose()?)
    }
}

fn is_before(other: &[u8], current: &[u8]) -> Result<bool, FormatError> {
    Ok(Parsed::new(other)?.key < Parsed::new(current)?.key)
}
