//! ListMultipartUploads: uploads in progress, by key, then by upload id (which a gateway mints in order).

use super::group::{Pager, Scope, Step, text};
use crate::format::key::{self, Parsed};
use crate::format::value::RowValue;
use crate::format::{FormatError, family};
use crate::read::ReadError;
use crate::rows::UploadRow;
use crate::tree::{Read, Row};
use types::{AttemptId, BucketId, ChecksumAlgorithm, ChecksumKind};

/// ListMultipartUploads.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListUploads<'a> {
    /// Only keys that begin so.
    pub prefix: &'a str,
    /// Groups.
    pub delimiter: Option<&'a str>,
    /// Begins after all uploads of this key, unless `upload_marker` is given.
    pub key_marker: Option<&'a str>,
    /// Then after that upload of it.
    pub upload_marker: Option<AttemptId>,
    /// Uploads and common prefixes together; 0 answers an empty page that is not truncated.
    pub max: u32,
}

/// An upload in progress.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UploadEntry {
    /// Key.
    pub key: String,
    /// Its id.
    pub upload: AttemptId,
    /// Milliseconds since the epoch.
    pub initiated_ms: u64,
    /// Storage class, if one was given.
    pub storage_class: Option<String>,
    /// Algorithm and kind, if one was chosen.
    pub checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
}

/// One page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UploadPage {
    /// Uploads in order.
    pub uploads: Vec<UploadEntry>,
    /// Common prefixes in order.
    pub prefixes: Vec<String>,
    /// More follow.
    pub truncated: bool,
    /// Where the next page begins.
    pub next_key: Option<String>,
    /// Its upload; `None` if the page ended with a common prefix.
    pub next_upload: Option<AttemptId>,
}

/// One page.
pub fn uploads(read: &dyn Read, bucket: BucketId, request: &ListUploads<'_>) -> Result<UploadPage, ReadError> {
    let mut page = UploadPage::default();
    if request.max == 0 {
        return Ok(page);
    }
    let scope = Scope::new(bucket, request.prefix, request.delimiter);
    let end = scope.end(family::UPLOADS);
    let mut from = match (request.key_marker, request.upload_marker) {
        (Some(k), Some(id)) => {
            let after = key::after_id(family::UPLOADS, bucket, k.as_bytes(), id);
            after.max(scope.start(family::UPLOADS, None, false))
        }
        (marker, _) => scope.start(family::UPLOADS, marker, false),
    };
    let mut pager = Pager::new(scope, request.max);
    while from < end {
        let mut pass_group = false;
        for row in read.range(&from, &end) {
            let row = row?;
            let parsed = Parsed::new(&row.0)?;
            match pager.step(&parsed.key) {
                Step::InGroup => continue,
                Step::PassGroup => {
                    pass_group = true;
                    break;
                }
                Step::Full => {
                    page.truncated = true;
                    return Ok(page);
                }
                Step::Entry => page.push(entry(&parsed, &row)?),
                Step::Prefix(len) => page.push_prefix(text(&parsed.key[..len])?),
            }
        }
        if !pass_group {
            break;
        }
        from = pager.after_group(family::UPLOADS);
    }
    page.next_key = None;
    page.next_upload = None;
    Ok(page)
}

impl UploadPage {
    fn push(&mut self, entry: UploadEntry) {
        self.next_key = Some(entry.key.clone());
        self.next_upload = Some(entry.upload);
        self.uploads.push(entry);
    }

    fn push_prefix(&mut self, prefix: &str) {
        self.next_key = Some(prefix.to_owned());
        self.next_upload = None;
        self.prefixes.push(prefix.to_owned());
    }
}

fn entry(parsed: &Parsed<'_>, row: &Row) -> Result<UploadEntry, FormatError> {
    let upload = UploadRow::decode(&row.1)?;
    Ok(UploadEntry {
        key: parsed.text()?.to_owned(),
        upload: parsed.id(0)?,
        initiated_ms: upload.initiated_ms,
        storage_class: upload.meta.header("x-amz-storage-class").map(str::to_owned),
        checksum: upload.checksum,
    })
}
