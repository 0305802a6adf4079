//! Tags of a bucket, and the document that tags of buckets and objects share.

use crate::error::{S3Code, S3Error, S3Result};
use crate::limits::SETTING_MAX_BYTES;
use crate::ops::{Service, headers};
use crate::policy::Action;
use crate::request::S3Request;
use crate::response::S3Response;
use crate::xml::{self, XmlWriter};
use bytes::Bytes;
use object_controller::api::{BucketChange, ObjectStore, Tag};
use types::limits;

/// Reads a `Tagging` document of at most `max` tags.
pub fn parse_tagging(document: &[u8], max: usize) -> S3Result<Vec<Tag>> {
    let malformed = || S3Error::new(S3Code::MalformedXML);
    let root = xml::parse(document, "Tagging", SETTING_MAX_BYTES)?;
    let set = root.child("TagSet").ok_or_else(malformed)?;
    if root.children.len() != 1 || set.children.iter().any(|c| c.name != "Tag") {
        return Err(malformed());
    }
    let mut tags = Vec::with_capacity(set.children.len());
    for tag in &set.children {
        let (key, value) = (tag.required_text("Key")?, tag.required_text("Value")?);
        tags.push(Tag { key: key.to_owned(), value: value.to_owned() });
    }
    headers::check_tags(&tags, max)?;
    Ok(tags)
}

/// Writes it.
pub fn write_tagging(tags: &[Tag]) -> Bytes {
    let mut w = XmlWriter::document("Tagging");
    w.nest("TagSet", |w| {
        for tag in tags {
            w.nest("Tag", |w| {
                w.text("Key", &tag.key);
                w.text("Value", &tag.value);
            });
        }
    });
    w.finish()
}

pub fn get_tagging<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    service.access(&request.identity, &bucket).require(Action::GetBucketTagging)?;
    match &bucket.configs.tags {
        Some(tags) => Ok(S3Response::xml(write_tagging(tags))),
        None => Err(S3Error::new(S3Code::NoSuchTagSet).extra("BucketName", bucket.name.as_str())),
    }
}

pub async fn put_tagging<S: ObjectStore>(service: &Service<S>, mut request: S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(&request)?;
    service.access(&request.identity, &bucket).require(Action::PutBucketTagging)?;
    let document = request.body.read_all(SETTING_MAX_BYTES).await?;
    let tags = parse_tagging(&document, limits::BUCKET_TAGS_MAX)?;
    let tags = (!tags.is_empty()).then_some(tags);
    service.store.change_bucket(&bucket, BucketChange::Tags(tags)).await?;
    Ok(S3Response::no_content())
}

pub async fn delete_tagging<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    service.access(&request.identity, &bucket).require(Action::PutBucketTagging)?;
    service.store.change_bucket(&bucket, BucketChange::Tags(None)).await?;
    Ok(S3Response::no_content())
}
