//! ListObjects: live newest versions, over `current` alone.

use super::group::{Pager, Scope, Step, text};
use crate::format::family;
use crate::format::key::HEAD_BYTES;
use crate::format::version::{ChecksumHead, VersionHead};
use crate::read::ReadError;
use crate::tree::Read;
use bytes::Bytes;
use types::{BucketId, Checksum, ETag};

/// ListObjects. The page begins strictly after `after`; where `after` is a common prefix of this listing, after that group.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListObjects<'a> {
    /// Only keys that begin so.
    pub prefix: &'a str,
    /// Groups keys by what follows the prefix up to this text; `None` or empty: no groups.
    pub delimiter: Option<&'a str>,
    /// Marker, start-after or decoded token.
    pub after: Option<&'a str>,
    /// `after` was a common prefix of the former page: skip everything that begins so.
    pub after_is_prefix: bool,
    /// Keys and common prefixes together; 0 answers an empty page that is not truncated.
    pub max: u32,
}

/// A live current version in a listing, borrowed from its row.
#[derive(Clone, Copy, Debug)]
pub struct ObjectRef<'a> {
    /// Key.
    pub key: &'a str,
    /// Entity tag.
    pub etag: ETag,
    /// Bytes.
    pub size: u64,
    /// Milliseconds since the epoch.
    pub modified_ms: u64,
    /// Storage class, if one was given.
    pub storage_class: Option<&'a str>,
    /// The stored checksum.
    pub checksum: Option<ChecksumHead<'a>>,
}

impl<'a> ObjectRef<'a> {
    /// Of a row that is no delete marker.
    pub(super) fn new(key: &'a str, head: &VersionHead<'a>) -> Option<Self> {
        let object = head.object?;
        Some(ObjectRef {
            key,
            etag: object.etag,
            size: object.size,
            modified_ms: head.modified_ms,
            storage_class: object.storage_class,
            checksum: object.checksum,
        })
    }
}

/// Takes a page as it is read: entries and common prefixes in order.
pub trait ObjectSink {
    /// The next object.
    fn object(&mut self, object: ObjectRef<'_>);
    /// The next common prefix.
    fn prefix(&mut self, prefix: &str);
}

/// A live current version in a listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectEntry {
    /// Key.
    pub key: String,
    /// Entity tag.
    pub etag: ETag,
    /// Bytes.
    pub size: u64,
    /// Milliseconds since the epoch.
    pub modified_ms: u64,
    /// Storage class, if one was given.
    pub storage_class: Option<String>,
    /// The stored checksum.
    pub checksum: Option<Checksum>,
}

impl From<ObjectRef<'_>> for ObjectEntry {
    fn from(object: ObjectRef<'_>) -> Self {
        ObjectEntry {
            key: object.key.to_owned(),
            etag: object.etag,
            size: object.size,
            modified_ms: object.modified_ms,
            storage_class: object.storage_class.map(str::to_owned),
            checksum: object.checksum.map(|c| c.to_owned()),
        }
    }
}

/// One page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectPage {
    /// Objects in order.
    pub objects: Vec<ObjectEntry>,
    /// Common prefixes in order.
    pub prefixes: Vec<String>,
    /// More follow.
    pub truncated: bool,
    /// Last key or common prefix of the page: where the next begins, if truncated.
    pub next: Option<String>,
    /// `next` is a common prefix.
    pub next_is_prefix: bool,
}

impl ObjectSink for ObjectPage {
    fn object(&mut self, object: ObjectRef<'_>) {
        self.objects.push(object.into());
    }

    fn prefix(&mut self, prefix: &str) {
        self.prefixes.push(prefix.to_owned());
    }
}

/// Where a page that is not the last one ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageEnd {
    /// Last key or common prefix.
    pub next: String,
    /// It is a common prefix.
    pub is_prefix: bool,
}

/// One page as a value.
pub fn objects(read: &dyn Read, bucket: BucketId, request: &ListObjects<'_>) -> Result<ObjectPage, ReadError> {
    let mut page = ObjectPage::default();
    if let Some(end) = objects_into(read, bucket, request, &mut page)? {
        page.truncated = true;
        page.next = Some(end.next);
        page.next_is_prefix = end.is_prefix;
    }
    Ok(page)
}

/// One page into `sink`; `Some` if more follow.
pub fn objects_into(
    read: &dyn Read,
    bucket: BucketId,
    request: &ListObjects<'_>,
    sink: &mut dyn ObjectSink,
) -> Result<Option<PageEnd>, ReadError> {
    if request.max == 0 {
        return Ok(None);
    }
    let scope = Scope::new(bucket, request.prefix, request.delimiter);
    let end = scope.end(family::CURRENT);
    let mut from = scope.start(family::CURRENT, request.after, request.after_is_prefix);
    let mut pager = Pager::new(scope, request.max);
    let mut last = Last::default();
    while from < end {
        let mut pass_group = false;
        for row in read.range(&from, &end) {
            let (row_key, value) = row?;
            let key = row_key.get(HEAD_BYTES..).unwrap_or_default();
            match pager.step(key) {
                Step::InGroup => continue,
                Step::PassGroup => {
                    pass_group = true;
                    break;
                }
                Step::Full => return last.page_end().map(Some),
                Step::Entry => {
                    if let Some(object) = ObjectRef::new(text(key)?, &VersionHead::read(&value)?) {
                        sink.object(object);
                    }
                    last = Last { row_key, group: None };
                }
                Step::Prefix(len) => {
                    sink.prefix(text(&key[..len])?);
                    last = Last { row_key, group: Some(len) };
                }
            }
        }
        if !pass_group {
            break;
        }
        from = pager.after_group(family::CURRENT);
    }
    Ok(None)
}

/// The last item shown, kept as the row it came from.
#[derive(Default)]
struct Last {
    row_key: Bytes,
    group: Option<usize>,
}

impl Last {
    fn page_end(&self) -> Result<PageEnd, ReadError> {
        let key = self.row_key.get(HEAD_BYTES..).unwrap_or_default();
        let shown = self.group.map_or(key, |len| &key[..len]);
        Ok(PageEnd { next: text(shown)?.to_owned(), is_prefix: self.group.is_some() })
    }
}
