//! GetObjectAttributes.

use super::copy::{checksum_element, write_checksum};
use super::parts;
use crate::error::{S3Code, S3Error, S3Result};
use crate::limits::LIST_PARTS_MAX;
use crate::ops::{Service, headers, key_of};
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::{HttpDate, S3Response};
use crate::xml::XmlWriter;
use http::header;
use object_controller::api::{ObjectInfo, ObjectStore, ReadHandle};

const KNOWN: [&str; 5] = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"];

pub async fn get_object_attributes<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    let key = key_of(request)?;
    let version = headers::version_of(&request.query)?;
    let access = service.access(&request.identity, &bucket);
    let actions = match version {
        None => [Action::GetObject, Action::GetObjectAttributes],
        Some(_) => [Action::GetObjectVersion, Action::GetObjectVersionAttributes],
    };
    for action in actions {
        access.require_key(action, key)?;
    }
    let wanted = wanted(request)?;
    let want = |name: &str| wanted.iter().any(|w| w == name);
    let found = service.store.lookup(&bucket, key, version, want("ObjectParts")).await;
    let handle = found.map_err(|e| access.hide_absence(e.into()))?;
    let info = handle.info();

    let mut w = XmlWriter::document("GetObjectAttributesResponse");
    if want("ETag") {
        w.display("ETag", info.etag);
    }
    if want("Checksum") && info.checksum.is_some() {
        w.nest("Checksum", |w| write_checksum(w, info.checksum.as_ref()));
    }
    if let (true, Some(count)) = (want("ObjectParts"), info.parts) {
        write_parts(&mut w, handle.as_ref(), request, count).await?;
    }
    if want("StorageClass") {
        w.text("StorageClass", info.meta.header("x-amz-storage-class").unwrap_or("STANDARD"));
    }
    if want("ObjectSize") {
        w.display("ObjectSize", info.size);
    }
    Ok(respond(w, info))
}

fn respond(w: XmlWriter, info: &ObjectInfo) -> S3Response {
    let mut response = S3Response::xml(w.finish());
    response.set(header::LAST_MODIFIED, HttpDate::of(info.modified_ms).as_str());
    headers::set_version(&mut response, info.version);
    response
}

fn wanted(request: &S3Request) -> S3Result<Vec<String>> {
    let name = "x-amz-object-attributes";
    let mut wanted = Vec::new();
    for value in request.headers.get_all(name) {
        wanted.extend(value.to_str().unwrap_or("?").split(',').map(|v| v.trim().to_owned()));
    }
    wanted.retain(|v| !v.is_empty());
    match wanted.iter().find(|v| !KNOWN.contains(&v.as_str())) {
        Some(unknown) => Err(S3Error::invalid_argument(name, unknown, "Invalid attribute name specified.")),
        None if wanted.is_empty() => Err(S3Error::with(
            S3Code::InvalidRequest,
            "Missing required header for this request: x-amz-object-attributes",
        )),
        None => Ok(wanted),
    }
}

fn number(request: &S3Request, name: &str, default: u32) -> S3Result<u32> {
    match request.header(name) {
        None => Ok(default),
        Some(text) => {
            text.trim().parse().map_err(|_| S3Error::invalid_argument(name, text, "The value is not a number"))
        }
    }
}

async fn write_parts(w: &mut XmlWriter, handle: &dyn ReadHandle, request: &S3Request, count: u32) -> S3Result<()> {
    let marker = number(request, "x-amz-part-number-marker", 0)?;
    let max = number(request, "x-amz-max-parts", LIST_PARTS_MAX)?.min(LIST_PARTS_MAX);
    let index = parts::first_from(handle, count, marker.saturating_add(1)).await?;
    let mut parts = handle.parts(index, max + 1).await?;
    let truncated = parts.len() > max as usize;
    parts.truncate(max as usize);
    w.nest("ObjectParts", |w| {
        w.display("PartsCount", count);
        w.display("PartNumberMarker", marker);
        w.display("NextPartNumberMarker", parts.last().map_or(0, |p| p.number));
        w.display("MaxParts", max);
        w.display("IsTruncated", truncated);
        for part in parts.iter().filter(|p| p.checksum.is_some()) {
            w.nest("Part", |w| {
                w.display("PartNumber", part.number);
                w.display("Size", part.size);
                if let Some(c) = &part.checksum {
                    w.text(checksum_element(c.algorithm), &c.text());
                }
            });
        }
    });
    Ok(())
}
