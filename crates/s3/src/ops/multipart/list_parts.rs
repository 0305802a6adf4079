//! ListParts.

use super::upload_of;
use crate::error::S3Result;
use crate::limits::LIST_PARTS_MAX;
use crate::ops::list::paging;
use crate::ops::object::checksum_element;
use crate::ops::{Service, headers, key_of};
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::S3Response;
use crate::xml::XmlWriter;
use object_controller::api::ObjectStore;

pub async fn list_parts<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    let key = key_of(request)?;
    service.access(&request.identity, &bucket).require_key(Action::ListMultipartUploadParts, key)?;
    let query = &request.query;
    let encoding = paging::Encoding::of(query)?;
    let max = paging::max_of(query, "max-parts", LIST_PARTS_MAX)?;
    let after = match query.get("part-number-marker") {
        Some(text) if !text.is_empty() => paging::max_of(query, "part-number-marker", u32::MAX)?,
        _ => 0,
    };
    let id = upload_of(request)?;
    let upload = service.store.upload(&bucket, key, &id).await?;
    let page = service.store.list_parts(&bucket, key, &id, after, max).await?;
    let owner = service.display_name(&bucket.owner, &request.identity);

    let mut w = XmlWriter::document("ListPartsResult");
    w.text("Bucket", bucket.name.as_str());
    w.text("Key", &encoding.write(key.as_str()));
    w.display("UploadId", id);
    paging::write_owner(&mut w, "Initiator", &bucket.owner, &owner);
    paging::write_owner(&mut w, "Owner", &bucket.owner, &owner);
    w.text("StorageClass", upload.object.meta.header("x-amz-storage-class").unwrap_or("STANDARD"));
    w.display("PartNumberMarker", after);
    if let Some(last) = page.parts.last() {
        w.display("NextPartNumberMarker", last.number);
    }
    w.display("MaxParts", max);
    w.display("IsTruncated", page.truncated);
    if let Some((algorithm, kind)) = upload.checksum {
        w.text("ChecksumAlgorithm", algorithm.name());
        w.text("ChecksumType", headers::kind_name(kind));
    }
    for part in &page.parts {
        w.nest("Part", |w| {
            w.display("PartNumber", part.number);
            w.time_ms("LastModified", part.modified_ms);
            w.etag("ETag", &part.etag);
            w.display("Size", part.size);
            if let Some(checksum) = &part.checksum {
                w.text(checksum_element(checksum.algorithm), &checksum.text());
            }
        });
    }
    Ok(S3Response::xml(w.finish()))
}
