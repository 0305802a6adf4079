//! `ashlar inspect object`: what the metadata of a stopped server says of one object.
//!
//! Promises: the metadata is opened as a start does, with all copies that the store's list of disks names, so that no copy is
//! taken for lost; bytes of objects are never shown. Refuses to know: data disks, a server that runs.

use super::{Shown, in_folder, open_disk};
use crate::birth::FIRST_NODE;
use crate::disks::{self, KnownDisk};
use crate::server::Failure;
use env::Env;
use env::disk::Disk;
use env::real_disk::RealDisk;
use extent_store::DiskIdentity;
use metadata::directory::Directory;
use metadata::node::{FolderConfig, Metadata, MetadataConfig, StartError};
use metadata::read::object::Lookup;
use metadata::read::{ReadError, content, object, root};
use metadata::rows::{BodyId, BodyRow, ContentBytes, DataRef, Run};
use metadata::tree::Read;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use types::{BucketId, BucketName, DiskId, ObjectKey, VersionId};

/// Parts of a manifest that are shown.
const PARTS_SHOWN: usize = 10_000;

/// Looks an object up.
pub(super) fn show(paths: &[PathBuf], bucket: &str, key: &str, version: Option<&str>) -> Result<Shown, Failure> {
    let bucket = BucketName::new(bucket).map_err(|_| format!("'{bucket}' is not the name of a bucket"))?;
    let key = ObjectKey::new(key).map_err(|_| format!("'{key}' is not a key"))?;
    let version: Option<VersionId> =
        version.map(str::parse).transpose().map_err(|_| "--version-id is not the id of a version")?;
    let folders = metadata_folders(paths)?;
    let folders = folders.into_iter().map(|disk| FolderConfig { disk, dir: String::new() }).collect();
    let config = MetadataConfig::small(Env::system(2), FIRST_NODE, folders);
    let machine = Box::new(metadata::apply::Schema::new(Arc::new(Directory::default())));
    let metadata = Metadata::open(config, machine).map_err(|error| match error {
        StartError::Set(_) => Failure::from(format!(
            "{error}. Mount the disk of the one that cannot be read, or name its folder with a further --data-dir; if it is \
             gone for good, start the server without its --data-dir and see what it says"
        )),
        error => error.into(),
    })?;
    let json = describe(&metadata.snapshot(), &bucket, &key, version);
    metadata.close();
    let json = json?;
    let text = serde_json::to_string_pretty(&json)? + "\n";
    let bad = json.get("missing").is_some();
    Ok(Shown { text, json, bad })
}

/// The folders that keep the metadata: of those given, and those that the store's own list says are the others.
fn metadata_folders(paths: &[PathBuf]) -> Result<Vec<Arc<dyn Disk>>, Failure> {
    let mut opened: BTreeMap<DiskId, RealDisk> = BTreeMap::new();
    let mut newest: Option<disks::DiskList> = None;
    for path in paths {
        let (id, disk) = open_locked(path)?;
        // Damaged: the other folders have one as well, and without any the folders given are taken as they are.
        let list = disks::read(&disk).ok().flatten().map(|copy| copy.list);
        newest = newest.into_iter().chain(list).max_by_key(|list| list.version);
        opened.insert(id, disk);
    }
    let list = newest.unwrap_or_default();
    for (id, known) in list.disks.iter().filter(|(_, known)| known.metadata && !known.lost) {
        if !opened.contains_key(id) {
            opened.insert(*id, open_listed(*id, known)?);
        }
    }
    let keeps = |disk: &RealDisk| disk.list("log").is_ok_and(|names| !names.is_empty());
    let kept: Vec<Arc<dyn Disk>> =
        opened.into_values().filter(|disk| keeps(disk)).map(|disk| Arc::new(disk) as Arc<dyn Disk>).collect();
    match kept.is_empty() {
        true => Err("no folder given keeps the store's metadata: name all of its folders with --data-dir".into()),
        false => Ok(kept),
    }
}

fn open_locked(path: &Path) -> Result<(DiskId, RealDisk), Failure> {
    let disk = open_disk(path)?;
    disk.lock().map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => {
            in_folder(path)("a server runs on it; stop that first: an object is looked up as a start does")
        }
        _ => in_folder(path)(error),
    })?;
    let identity = DiskIdentity::read(&disk).map_err(in_folder(path))?;
    let identity = identity.ok_or_else(|| in_folder(path)("it was never a data folder of a server"))?;
    Ok((identity.disk, disk))
}

/// A copy's folder where the list says it was.
fn open_listed(id: DiskId, known: &KnownDisk) -> Result<RealDisk, Failure> {
    let path = Path::new(&known.path);
    let why = match open_locked(path) {
        Ok((found, disk)) if found == id => return Ok(disk),
        Ok((found, _)) => format!("{} is disk {found} now", path.display()),
        Err(error) => error.to_string(),
    };
    Err(format!(
        "the store keeps its metadata in copies, and the one on disk {id} cannot be opened: {why}. Mount it there, or name the \
         folder where it is now with a further --data-dir"
    )
    .into())
}

fn describe(
    read: &dyn Read,
    name: &BucketName,
    key: &ObjectKey,
    version: Option<VersionId>,
) -> Result<Value, ReadError> {
    let Some(bucket) = root::bucket_by_name(read, name)? else { return Ok(json!({ "missing": "bucket" })) };
    let row = match object::lookup(read, bucket.id, key, version, true)? {
        Lookup::Live(row) => row,
        Lookup::NoSuchKey(marker) => {
            return Ok(json!({ "missing": "key", "delete_marker": marker.map(|id| id.to_string()) }));
        }
        Lookup::NoSuchVersion => return Ok(json!({ "missing": "version" })),
        Lookup::DeleteMarker(id, at) => return Ok(json!({ "delete_marker": id.to_string(), "modified_ms": at })),
    };
    let Some(object) = &row.object else { return Ok(json!({ "missing": "object" })) };
    let bodies = match object.data {
        DataRef::Body(id) => vec![body(read, bucket.id, key, BodyId::whole(id))?],
        DataRef::Manifest { id, .. } => content::manifest(read, bucket.id, key, id, 0, PARTS_SHOWN)?
            .iter()
            .map(|part| {
                let body = body(read, bucket.id, key, part.body_id(id))?;
                Ok(json!({ "part": part.number, "offset": part.offset, "size": part.size, "body": body }))
            })
            .collect::<Result<_, ReadError>>()?,
    };
    Ok(json!({
        "bucket_id": bucket.id.to_string(),
        "key": key.as_str(),
        "version": row.version_id().to_string(),
        "sequence": row.sequence,
        "size": object.size,
        "etag": object.etag.to_string(),
        "modified_ms": row.modified_ms,
        "bodies": bodies,
    }))
}

fn body(read: &dyn Read, bucket: BucketId, key: &ObjectKey, id: BodyId) -> Result<Value, ReadError> {
    Ok(match content::body(read, bucket, key, id)? {
        None => json!({ "missing": id.id.to_string() }),
        Some(BodyRow::Content { bytes: ContentBytes::Inline(bytes), .. }) => json!({ "inline_bytes": bytes.len() }),
        Some(BodyRow::Content { size, bytes: ContentBytes::Extents { runs, .. } }) => {
            json!({ "content": id.id.to_string(), "size": size, "runs": runs_json(read, &runs)? })
        }
        Some(BodyRow::Reference(reference)) => json!({
            "owner": id.id.to_string(),
            "content": reference.content.to_string(),
            "home_bucket_id": reference.home.bucket.to_string(),
            "home_key": reference.home.key.as_str(),
            "offset": reference.offset,
            "size": reference.size,
            "runs": runs_json(read, &reference.runs)?,
        }),
    })
}

fn runs_json(read: &dyn Read, runs: &[Run]) -> Result<Vec<Value>, ReadError> {
    let mut values = Vec::new();
    for run in runs {
        let record = root::group(read, run.group)?;
        let replicas = record.iter().flat_map(|r| &r.replicas);
        let replicas: Vec<_> = replicas
            .map(|r| json!({ "disk": r.disk.to_string(), "generation": r.file_generation, "state": format!("{:?}", r.state) }))
            .collect();
        values.push(json!({
            "group": run.group.to_string(),
            "offset": run.offset,
            "extents": run.extents,
            "last_bytes": run.last_bytes,
            "group_state": record.as_ref().map(|r| format!("{:?}", r.state)),
            "replicas": replicas,
        }));
    }
    Ok(values)
}
