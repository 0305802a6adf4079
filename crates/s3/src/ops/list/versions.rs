//! ListObjectVersions.

use super::paging::{self, Encoding};
use crate::error::S3Result;
use crate::ops::{Service, headers};
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::S3Response;
use crate::xml::XmlWriter;
use object_controller::api::{ListVersions, ObjectStore, VersionEntry};
use types::limits::LIST_MAX_KEYS;

pub async fn list_object_versions<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    service.access(&request.identity, &bucket).require(Action::ListBucketVersions)?;
    let query = &request.query;
    let encoding = Encoding::of(query)?;
    let key_marker = paging::given(query, "key-marker");
    let version_marker = paging::given(query, "version-id-marker");
    if let (None, Some(version)) = (&key_marker, &version_marker) {
        let message = "A version-id marker cannot be specified without a key marker.";
        return Err(paging::bad_marker("version-id-marker", version, message));
    }
    let asked = ListVersions {
        prefix: query.get("prefix").unwrap_or_default().to_owned(),
        delimiter: paging::given(query, "delimiter"),
        version_marker: version_marker.as_deref().map(headers::version_from_text).transpose()?,
        key_marker,
        max: paging::max_of(query, "max-keys", LIST_MAX_KEYS)?,
    };
    let page = service.store.list_versions(&bucket, asked.clone()).await?;
    let owner = service.display_name(&bucket.owner, &request.identity);

    let mut w = XmlWriter::document("ListVersionsResult");
    w.text("Name", bucket.name.as_str());
    w.text("Prefix", &encoding.write(&asked.prefix));
    w.text("KeyMarker", &encoding.write(asked.key_marker.as_deref().unwrap_or_default()));
    w.text("VersionIdMarker", version_marker.as_deref().unwrap_or_default());
    w.display("MaxKeys", asked.max);
    if let Some(delimiter) = &asked.delimiter {
        w.text("Delimiter", &encoding.write(delimiter));
    }
    encoding.note(&mut w);
    w.display("IsTruncated", page.truncated);
    if page.truncated {
        w.text_opt("NextKeyMarker", page.next_key.as_deref().map(|k| encoding.write(k)).as_deref());
        w.text_opt("NextVersionIdMarker", page.next_version.map(|v| v.to_string()).as_deref());
    }
    for entry in &page.versions {
        write_version(&mut w, entry, encoding, &bucket.owner, &owner);
    }
    paging::write_prefixes(&mut w, &page.prefixes, encoding);
    Ok(S3Response::xml(w.finish()))
}

fn write_version(w: &mut XmlWriter, entry: &VersionEntry, encoding: Encoding, owner_id: &str, owner_name: &str) {
    w.open(if entry.object.is_some() { "Version" } else { "DeleteMarker" });
    w.text("Key", &encoding.write(&entry.key));
    w.display("VersionId", entry.version);
    w.display("IsLatest", entry.is_latest);
    w.time_ms("LastModified", entry.modified_ms);
    if let Some(object) = &entry.object {
        w.etag("ETag", &object.etag);
        paging::write_checksum_kind(w, object.checksum);
        w.number("Size", object.size);
        w.text("StorageClass", object.storage_class.as_deref().unwrap_or("STANDARD"));
    }
    paging::write_owner(w, "Owner", owner_id, owner_name);
    w.close();
}
