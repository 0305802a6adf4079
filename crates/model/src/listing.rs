//! Pages of objects, versions and uploads. One rule for all three: walk everything in order, group, cut.

use object_controller::api::{
    ListObjects, ListUploads, ListVersions, ObjectEntry, ObjectPage, UploadEntry, UploadPage, VersionEntry, VersionPage,
};
use types::VersionId;

use crate::state::{Bucket, Version};

/// The common prefix that `key` falls into, if any.
fn group<'a>(key: &'a str, prefix: &str, delimiter: Option<&str>) -> Option<&'a str> {
    let delimiter = delimiter.filter(|d| !d.is_empty())?;
    let rest = key.strip_prefix(prefix)?;
    let at = rest.find(delimiter)?;
    Some(&key[..prefix.len() + at + delimiter.len()])
}

/// What one page shows, in order.
enum Item<T> {
    Entry(T),
    Prefix(String),
}

/// Cuts the ordered `entries` into groups and a page; the flag says whether more follow.
fn page<T>(
    entries: impl Iterator<Item = (String, T)>,
    prefix: &str,
    delimiter: Option<&str>,
    max: u32,
) -> (Vec<Item<T>>, bool) {
    let mut items: Vec<Item<T>> = Vec::new();
    for (key, entry) in entries.filter(|(key, _)| key.starts_with(prefix)) {
        let item = match group(&key, prefix, delimiter) {
            Some(g) if matches!(items.last(), Some(Item::Prefix(p)) if p == g) => continue,
            Some(g) => Item::Prefix(g.to_owned()),
            None => Item::Entry(entry),
        };
        if items.len() == max as usize {
            return (items, max > 0);
        }
        items.push(item);
    }
    (items, false)
}

fn object_entry(key: &str, version: &Version) -> Option<ObjectEntry> {
    let info = &version.object()?.info;
    Some(ObjectEntry {
        key: key.to_owned(),
        etag: info.etag,
        size: info.size,
        modified_ms: info.modified_ms,
        storage_class: info.meta.header("x-amz-storage-class").map(str::to_owned),
        checksum: info.checksum.as_ref().map(|c| (c.algorithm, c.kind)),
    })
}

/// Whether `key` lies after the marker, or after the whole group that the marker names.
fn is_after(key: &str, marker: &str, prefix: &str, delimiter: Option<&str>, marker_is_prefix: bool) -> bool {
    let names_group = marker_is_prefix || group(marker, prefix, delimiter) == Some(marker);
    key > marker && !(names_group && key.starts_with(marker))
}

/// One page of live current versions.
pub fn objects(bucket: &Bucket, request: &ListObjects) -> ObjectPage {
    let delimiter = request.delimiter.as_deref();
    let entries = bucket
        .keys
        .keys()
        .filter(|key| match &request.after {
            Some(after) => is_after(key, after, &request.prefix, delimiter, request.after_is_prefix),
            None => true,
        })
        .filter_map(|key| Some((key.clone(), object_entry(key, bucket.newest(key)?)?)));
    let (items, truncated) = page(entries, &request.prefix, delimiter, request.max);
    let mut answer = ObjectPage { truncated, ..ObjectPage::default() };
    if let Some(last) = items.last().filter(|_| truncated) {
        answer.next_is_prefix = matches!(last, Item::Prefix(_));
        answer.next = Some(match last {
            Item::Entry(entry) => entry.key.clone(),
            Item::Prefix(prefix) => prefix.clone(),
        });
    }
    for item in items {
        match item {
            Item::Entry(entry) => answer.objects.push(entry),
            Item::Prefix(prefix) => answer.prefixes.push(prefix),
        }
    }
    answer
}

fn version_entries(key: &str, versions: &[Version]) -> Vec<(u64, VersionEntry)> {
    let newest = versions.last().map(|v| v.sequence);
    let entry = |v: &Version| VersionEntry {
        key: key.to_owned(),
        version: v.id,
        is_latest: Some(v.sequence) == newest,
        modified_ms: v.modified_ms,
        object: object_entry(key, v),
    };
    versions.iter().rev().map(|v| (v.sequence, entry(v))).collect()
}

/// Versions of the marker's key that come after the marker's version.
fn older_than(bucket: &Bucket, key: &str, marker: VersionId) -> u64 {
    match marker {
        VersionId::Id { sequence, .. } => sequence,
        VersionId::Null => bucket.version(key, VersionId::Null).map_or(0, |v| v.sequence),
    }
}

/// One page of all versions and delete markers.
pub fn versions(bucket: &Bucket, request: &ListVersions) -> VersionPage {
    let delimiter = request.delimiter.as_deref();
    let shown = |key: &str, sequence: u64| match (&request.key_marker, request.version_marker) {
        (None, _) => true,
        (Some(marker), Some(version)) if key == marker => sequence < older_than(bucket, marker, version),
        (Some(marker), _) => is_after(key, marker, &request.prefix, delimiter, false),
    };
    let all = bucket.keys.iter().flat_map(|(key, versions)| version_entries(key, versions));
    let entries = all.filter(|(sequence, e)| shown(&e.key, *sequence)).map(|(_, e)| (e.key.clone(), e));
    let (items, truncated) = page(entries, &request.prefix, delimiter, request.max);
    let mut answer = VersionPage { truncated, ..VersionPage::default() };
    match items.last().filter(|_| truncated) {
        Some(Item::Entry(entry)) => {
            answer.next_key = Some(entry.key.clone());
            answer.next_version = Some(entry.version);
        }
        Some(Item::Prefix(prefix)) => answer.next_key = Some(prefix.clone()),
        None => {}
    }
    for item in items {
        match item {
            Item::Entry(entry) => answer.versions.push(entry),
            Item::Prefix(prefix) => answer.prefixes.push(prefix),
        }
    }
    answer
}

/// One page of uploads in progress.
pub fn uploads(bucket: &Bucket, request: &ListUploads) -> UploadPage {
    let delimiter = request.delimiter.as_deref();
    let entries = bucket
        .uploads
        .iter()
        .filter(|(_, upload)| upload.completed.is_none())
        .filter(|((key, id), _)| match (&request.key_marker, request.upload_marker) {
            (None, _) => true,
            (Some(marker), Some(upload)) if key == marker => *id > upload,
            (Some(marker), _) => is_after(key, marker, &request.prefix, delimiter, false),
        })
        .map(|((key, id), upload)| {
            let meta = &upload.info.object.meta;
            let entry = UploadEntry {
                key: key.clone(),
                upload: *id,
                initiated_ms: upload.info.initiated_ms,
                storage_class: meta.header("x-amz-storage-class").map(str::to_owned),
                checksum: upload.info.checksum,
            };
            (key.clone(), entry)
        });
    let (items, truncated) = page(entries, &request.prefix, delimiter, request.max);
    let mut answer = UploadPage { truncated, ..UploadPage::default() };
    match items.last().filter(|_| truncated) {
        Some(Item::Entry(entry)) => {
            answer.next_key = Some(entry.key.clone());
            answer.next_upload = Some(entry.upload);
        }
        Some(Item::Prefix(prefix)) => answer.next_key = Some(prefix.clone()),
        None => {}
    }
    for item in items {
        match item {
            Item::Entry(entry) => answer.uploads.push(entry),
            Item::Prefix(prefix) => answer.prefixes.push(prefix),
        }
    }
    answer
}
