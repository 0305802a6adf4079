//! ListObjects and ListObjectsV2.

use super::paging::{self, Encoding};
use crate::access::Access;
use crate::error::S3Result;
use crate::ops::Service;
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::{IsoDate, S3Response};
use crate::xml::XmlWriter;
use object_controller::api::{BucketInfo, ListObjects, ObjectEntry, ObjectPage, ObjectStore};
use std::sync::Arc;
use types::limits::LIST_MAX_KEYS;
use types::{ChecksumAlgorithm, ChecksumKind};

/// Bytes an entry takes about, to make room once.
const ENTRY_BYTES: usize = 400;

type Kind = (ChecksumAlgorithm, ChecksumKind);

struct Asked {
    bucket: Arc<BucketInfo>,
    request: ListObjects,
    encoding: Encoding,
    /// Id and display name.
    owner: Option<(String, String)>,
}

impl Asked {
    fn new<S: ObjectStore>(service: &Service<S>, request: &S3Request, owner: bool) -> S3Result<Asked> {
        let bucket = service.open_bucket(request)?;
        Access::new(&service.policies, &request.identity, &bucket).require(Action::ListBucket)?;
        let query = &request.query;
        let encoding = Encoding::of(query)?;
        let owner = owner.then(|| (bucket.owner.clone(), service.display_name(&bucket.owner, &request.identity)));
        let request = ListObjects {
            prefix: query.get("prefix").unwrap_or_default().to_owned(),
            delimiter: paging::given(query, "delimiter"),
            after: None,
            after_is_prefix: false,
            max: paging::max_of(query, "max-keys", LIST_MAX_KEYS)?,
        };
        Ok(Asked { bucket, request, encoding, owner })
    }

    fn write_head(&self, w: &mut XmlWriter) {
        w.text("Name", self.bucket.name.as_str());
        w.display("MaxKeys", self.request.max);
        w.text_opt("Delimiter", self.request.delimiter.as_deref().map(|d| self.encoding.write(d)).as_deref());
        self.encoding.note(w);
    }

    fn write_entries(&self, w: &mut XmlWriter, page: &ObjectPage) {
        w.display("IsTruncated", page.truncated);
        w.reserve(page.objects.len() * ENTRY_BYTES);
        let mut checksum = (None, String::new());
        for entry in &page.objects {
            self.write_entry(w, entry, &mut checksum);
        }
        paging::write_prefixes(w, &page.prefixes, self.encoding);
    }

    /// One entry. In few pieces: there are a thousand of them in a page. `checksum` is what was written of the last one, for most
    /// are of one kind.
    fn write_entry(&self, w: &mut XmlWriter, entry: &ObjectEntry, checksum: &mut (Option<Kind>, String)) {
        w.raw("<Contents><Key>");
        w.escaped(&self.encoding.write(&entry.key));
        w.raw("</Key><LastModified>");
        w.harmless(IsoDate::of(entry.modified_ms).as_bytes());
        w.raw("</LastModified><ETag>");
        w.quoted(&entry.etag);
        w.raw("</ETag>");
        if checksum.0 != entry.checksum {
            *checksum = (entry.checksum, entry.checksum.map_or_else(String::new, paging::checksum_kind));
        }
        w.markup(&checksum.1);
        w.raw("<Size>");
        w.harmless(itoa::Buffer::new().format(entry.size).as_bytes());
        w.raw("</Size>");
        if let Some((id, name)) = &self.owner {
            paging::write_owner(w, "Owner", id, name);
        }
        match &entry.storage_class {
            None => w.raw("<StorageClass>STANDARD</StorageClass></Contents>"),
            Some(class) => {
                w.text("StorageClass", class);
                w.raw("</Contents>");
            }
        }
    }
}

pub async fn list_objects<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let mut asked = Asked::new(service, request, true)?;
    asked.request.after = paging::given(&request.query, "marker");
    let page = service.store.list_objects(&asked.bucket, asked.request.clone()).await?;
    let mut w = XmlWriter::document("ListBucketResult");
    asked.write_head(&mut w);
    // The SDKs decode the prefix of the second version only: here AWS answers it as it came.
    w.text("Prefix", &asked.request.prefix);
    w.text("Marker", &asked.encoding.write(asked.request.after.as_deref().unwrap_or_default()));
    // Without a delimiter the last key is the next marker, and AWS does not repeat it.
    if let (true, Some(_), Some(next)) = (page.truncated, &asked.request.delimiter, &page.next) {
        w.text("NextMarker", &asked.encoding.write(next));
    }
    asked.write_entries(&mut w, &page);
    Ok(S3Response::xml(w.finish()))
}

pub async fn list_objects_v2<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let query = &request.query;
    let mut asked = Asked::new(service, request, query.get("fetch-owner") == Some("true"))?;
    let token = query.get("continuation-token");
    let start_after = paging::given(query, "start-after");
    match token.filter(|t| !t.is_empty()) {
        Some(token) => {
            let (after, is_prefix) = paging::decode_token(token, asked.bucket.id.0)?;
            asked.request.after = Some(after);
            asked.request.after_is_prefix = is_prefix;
        }
        None => asked.request.after = start_after.clone(),
    }
    let page = service.store.list_objects(&asked.bucket, asked.request.clone()).await?;
    let mut w = XmlWriter::document("ListBucketResult");
    asked.write_head(&mut w);
    w.text("Prefix", &asked.encoding.write(&asked.request.prefix));
    w.display("KeyCount", page.objects.len() + page.prefixes.len());
    if let Some(start_after) = &start_after {
        w.text("StartAfter", &asked.encoding.write(start_after));
    }
    w.text_opt("ContinuationToken", token);
    if let (true, Some(next)) = (page.truncated, &page.next) {
        w.text("NextContinuationToken", &paging::encode_token(next, page.next_is_prefix, asked.bucket.id.0));
    }
    asked.write_entries(&mut w, &page);
    Ok(S3Response::xml(w.finish()))
}
