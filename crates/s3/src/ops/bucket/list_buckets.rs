//! ListBuckets: only the caller's own.

use crate::error::{S3Code, S3Error, S3Result};
use crate::limits::LIST_BUCKETS_MAX;
use crate::ops::Service;
use crate::ops::list::paging;
use crate::request::{Identity, S3Request};
use crate::response::S3Response;
use crate::xml::XmlWriter;
use object_controller::api::ObjectStore;

pub fn list_buckets<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let Identity::Account(credential) = &request.identity else {
        return Err(S3Error::new(S3Code::AccessDenied));
    };
    let query = &request.query;
    let max = paging::max_of(query, "max-buckets", LIST_BUCKETS_MAX)? as usize;
    let prefix = query.get("prefix").unwrap_or_default();
    let region = query.get("bucket-region");
    let after = match query.get("continuation-token") {
        Some(token) => Some(paging::decode_token(token, 0)?.0),
        None => None,
    };
    let account = &credential.account;
    let mut rest = service
        .store
        .buckets(&account.canonical_id)
        .into_iter()
        .filter(|b| b.name.as_str().starts_with(prefix))
        .filter(|b| region.is_none_or(|r| r == service.region_of(b)))
        .filter(|b| after.as_deref().is_none_or(|a| b.name.as_str() > a));
    let page: Vec<_> = rest.by_ref().take(max).collect();
    let more = rest.next().is_some();

    let mut w = XmlWriter::document("ListAllMyBucketsResult");
    paging::write_owner(&mut w, "Owner", &account.canonical_id, &account.display_name);
    w.nest("Buckets", |w| {
        for bucket in &page {
            w.nest("Bucket", |w| {
                w.text("Name", bucket.name.as_str());
                w.time_ms("CreationDate", bucket.created_ms);
                if query.has("max-buckets") || region.is_some() {
                    w.text("BucketRegion", service.region_of(bucket));
                }
            });
        }
    });
    if let Some(last) = page.last().filter(|_| more) {
        w.text("ContinuationToken", &paging::encode_token(last.name.as_str(), false, 0));
    }
    if !prefix.is_empty() {
        w.text("Prefix", prefix);
    }
    Ok(S3Response::xml(w.finish()))
}
