//! ListMultipartUploads.

use super::paging::{self, Encoding};
use crate::error::S3Result;
use crate::ops::{Service, headers};
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::S3Response;
use crate::xml::XmlWriter;
use object_controller::api::{ListUploads, ObjectStore, UploadId};
use types::limits::LIST_MAX_KEYS;

pub async fn list_multipart_uploads<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    service.access(&request.identity, &bucket).require(Action::ListBucketMultipartUploads)?;
    let query = &request.query;
    let encoding = Encoding::of(query)?;
    let key_marker = paging::given(query, "key-marker");
    // Without a key marker AWS ignores the other one.
    let upload_marker = paging::given(query, "upload-id-marker").filter(|_| key_marker.is_some());
    let asked = ListUploads {
        prefix: query.get("prefix").unwrap_or_default().to_owned(),
        delimiter: paging::given(query, "delimiter"),
        upload_marker: upload_marker.as_deref().map(upload_from_text).transpose()?,
        key_marker,
        max: paging::max_of(query, "max-uploads", LIST_MAX_KEYS)?,
    };
    let page = service.store.list_uploads(&bucket, asked.clone()).await?;
    let owner = service.display_name(&bucket.owner, &request.identity);

    let mut w = XmlWriter::document("ListMultipartUploadsResult");
    w.text("Bucket", bucket.name.as_str());
    w.text("KeyMarker", &encoding.write(asked.key_marker.as_deref().unwrap_or_default()));
    w.text("UploadIdMarker", upload_marker.as_deref().unwrap_or_default());
    if page.truncated {
        w.text_opt("NextKeyMarker", page.next_key.as_deref().map(|k| encoding.write(k)).as_deref());
        w.text_opt("NextUploadIdMarker", page.next_upload.map(|u| u.to_string()).as_deref());
    }
    w.text("Prefix", &encoding.write(&asked.prefix));
    if let Some(delimiter) = &asked.delimiter {
        w.text("Delimiter", &encoding.write(delimiter));
    }
    encoding.note(&mut w);
    w.display("MaxUploads", asked.max);
    w.display("IsTruncated", page.truncated);
    for upload in &page.uploads {
        w.nest("Upload", |w| {
            w.text("Key", &encoding.write(&upload.key));
            w.display("UploadId", upload.upload);
            paging::write_owner(w, "Initiator", &bucket.owner, &owner);
            paging::write_owner(w, "Owner", &bucket.owner, &owner);
            w.text("StorageClass", upload.storage_class.as_deref().unwrap_or("STANDARD"));
            w.time_ms("Initiated", upload.initiated_ms);
            if let Some((algorithm, kind)) = upload.checksum {
                w.text("ChecksumAlgorithm", algorithm.name());
                w.text("ChecksumType", headers::kind_name(kind));
            }
        });
    }
    paging::write_prefixes(&mut w, &page.prefixes, encoding);
    Ok(S3Response::xml(w.finish()))
}

fn upload_from_text(text: &str) -> S3Result<UploadId> {
    text.parse().map_err(|_| paging::bad_marker("upload-id-marker", text, "Invalid uploadId marker"))
}
