//! DeleteObjects: each entry authorised and answered for itself.

use crate::access::Access;
use crate::conditions::{any_date, bare_etag};
use crate::error::{S3Code, S3Error, S3Result};
use crate::limits::{DELETE_CONCURRENT_MAX, XML_MAX_BYTES};
use crate::ops::{Service, headers};
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::S3Response;
use crate::xml::{self, XmlNode, XmlWriter};
use futures_util::future::join_all;
use object_controller::api::{BucketInfo, DeleteConditions, DeleteObject, DeleteOutcome, ObjectStore};
use std::sync::Arc;
use types::{ObjectKey, VersionId, limits};

/// An entry as it was sent.
struct Entry {
    key: String,
    version: Option<String>,
    conditions: DeleteConditions,
}

pub async fn delete_objects<S: ObjectStore>(service: &Service<S>, mut request: S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(&request)?;
    let digest = request.headers.contains_key("content-md5") || request.body.declared_checksum().is_some();
    request.body.check()?;
    if !digest {
        return Err(S3Error::with(S3Code::InvalidRequest, "Missing required header for this request: Content-MD5"));
    }
    let document = request.body.read_all(XML_MAX_BYTES).await?;
    let (entries, quiet) = parse(&document)?;
    let access = service.access(&request.identity, &bucket);
    let mut w = XmlWriter::document("DeleteResult");
    for group in entries.chunks(DELETE_CONCURRENT_MAX) {
        let results = join_all(group.iter().map(|entry| delete(service, &bucket, &access, entry))).await;
        for (entry, result) in group.iter().zip(results) {
            match result {
                Ok(_) if quiet => {}
                Ok(done) => write_deleted(&mut w, entry, done),
                Err(error) => write_error(&mut w, entry, &error),
            }
        }
    }
    Ok(S3Response::xml(w.finish()))
}

fn parse(document: &[u8]) -> S3Result<(Vec<Entry>, bool)> {
    let malformed = || S3Error::new(S3Code::MalformedXML);
    let root = xml::parse(document, "Delete", XML_MAX_BYTES)?;
    let quiet = match root.child_text("Quiet").map(str::trim) {
        None | Some("false" | "False" | "FALSE") => false,
        Some("true" | "True" | "TRUE") => true,
        Some(_) => return Err(malformed()),
    };
    let entries = root.all("Object").map(parse_entry).collect::<S3Result<Vec<_>>>()?;
    if entries.is_empty() || entries.len() > limits::DELETE_OBJECTS_MAX {
        return Err(malformed());
    }
    Ok((entries, quiet))
}

fn parse_entry(node: &XmlNode) -> S3Result<Entry> {
    let malformed = || S3Error::new(S3Code::MalformedXML);
    let text = |name: &str| node.child_text(name).map(str::trim).filter(|t| !t.is_empty());
    let conditions = DeleteConditions {
        if_match: text("ETag").map(|e| bare_etag(e).to_owned()),
        if_match_last_modified: match text("LastModifiedTime") {
            Some(t) => Some(any_date(t).ok_or_else(malformed)?),
            None => None,
        },
        if_match_size: match text("Size") {
            Some(t) => Some(t.parse().map_err(|_| malformed())?),
            None => None,
        },
    };
    let version = text("VersionId").map(str::to_owned);
    Ok(Entry { key: node.required_text("Key")?.to_owned(), version, conditions })
}

async fn delete<S: ObjectStore>(
    service: &Service<S>,
    bucket: &Arc<BucketInfo>,
    access: &Access<'_>,
    entry: &Entry,
) -> S3Result<DeleteOutcome> {
    let key = ObjectKey::new(&entry.key)?;
    let version = match &entry.version {
        Some(text) => Some(headers::version_from_text(text).map_err(|_| S3Error::new(S3Code::NoSuchVersion))?),
        None => None,
    };
    let action = if version.is_some() { Action::DeleteObjectVersion } else { Action::DeleteObject };
    access.require_key(action, &key)?;
    let conditions = entry.conditions.clone();
    let request = DeleteObject { bucket: Arc::clone(bucket), key, version, conditions };
    Ok(service.store.delete_object(request).await?)
}

fn write_deleted(w: &mut XmlWriter, entry: &Entry, done: DeleteOutcome) {
    w.nest("Deleted", |w| {
        w.text("Key", &entry.key);
        w.text_opt("VersionId", entry.version.as_deref());
        if done.delete_marker {
            w.display("DeleteMarker", true);
            w.text_opt("DeleteMarkerVersionId", done.version.as_ref().map(VersionId::to_string).as_deref());
        }
    });
}

fn write_error(w: &mut XmlWriter, entry: &Entry, error: &S3Error) {
    w.nest("Error", |w| {
        w.text("Key", &entry.key);
        w.text_opt("VersionId", entry.version.as_deref());
        w.text("Code", error.code.name());
        w.text("Message", &error.message);
    });
}
