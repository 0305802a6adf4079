//! Headers of objects: read into what is stored, refused if they ask for what is not done, and written back.
//!
//! Promises: only known system headers and `x-amz-meta-*` are ever stored; nothing that is asked for is silently left out.
//! Values that are not plain ASCII come back in the encoded words of RFC 2047, so no answer can be split by one.

use crate::error::{S3Code, S3Error, S3Result};
use crate::names;
use crate::request::Query;
use crate::response::{HttpDate, S3Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use object_controller::api::{NewObject, ObjectInfo, ObjectMeta, Tag};
use types::{Checksum, ChecksumAlgorithm, ChecksumKind, VersionId, limits};

const META_PREFIX: &str = "x-amz-meta-";
/// System headers that are stored as they come.
const KEPT: [HeaderName; 6] = [
    header::CONTENT_TYPE,
    header::CACHE_CONTROL,
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::EXPIRES,
];
const STORAGE_CLASSES: [&str; 9] = [
    "STANDARD",
    "REDUCED_REDUNDANCY",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER",
    "DEEP_ARCHIVE",
    "GLACIER_IR",
    "OUTPOSTS",
];
/// What an object is said to be if its writer did not say.
const DEFAULT_CONTENT_TYPE: &str = "binary/octet-stream";
/// Canned ACLs that change nothing where ACLs are disabled.
const HARMLESS_ACLS: [&str; 2] = ["private", "bucket-owner-full-control"];
const CANNED_ACLS: [&str; 8] = [
    "private",
    "public-read",
    "public-read-write",
    "aws-exec-read",
    "authenticated-read",
    "bucket-owner-read",
    "bucket-owner-full-control",
    "log-delivery-write",
];

pub const X_AMZ_VERSION_ID: HeaderName = HeaderName::from_static("x-amz-version-id");
pub const X_AMZ_CHECKSUM_TYPE: HeaderName = HeaderName::from_static("x-amz-checksum-type");
pub const X_AMZ_DELETE_MARKER: HeaderName = HeaderName::from_static("x-amz-delete-marker");

/// A value as text: UTF-8, or else taken for Latin-1.
fn text_of(value: &HeaderValue) -> String {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => text.to_owned(),
        Err(_) => value.as_bytes().iter().map(|b| char::from(*b)).collect(),
    }
}

/// Refuses headers that ask for what is not done: encryption, locks, appending.
pub fn refuse_unsupported(headers: &HeaderMap) -> S3Result<()> {
    for name in headers.keys().map(HeaderName::as_str) {
        let encrypts = name.starts_with("x-amz-server-side-encryption")
            || name.starts_with("x-amz-copy-source-server-side-encryption");
        if encrypts || name == "x-amz-write-offset-bytes" {
            return Err(S3Error::with(S3Code::NotImplemented, format!("The header {name} is not implemented"))
                .extra("Header", name));
        }
        if name.starts_with("x-amz-object-lock-") {
            return Err(S3Error::with(S3Code::InvalidRequest, "Bucket is missing Object Lock Configuration"));
        }
    }
    Ok(())
}

/// ACLs are disabled: what would change anything is refused.
pub fn refuse_acls(headers: &HeaderMap) -> S3Result<()> {
    if headers.keys().any(|name| name.as_str().starts_with("x-amz-grant-")) {
        return Err(S3Error::new(S3Code::AccessControlListNotSupported));
    }
    match headers.get(names::X_AMZ_ACL).map(text_of) {
        None => Ok(()),
        Some(acl) if HARMLESS_ACLS.contains(&acl.as_str()) => Ok(()),
        Some(acl) if CANNED_ACLS.contains(&acl.as_str()) => Err(S3Error::new(S3Code::AccessControlListNotSupported)),
        Some(acl) => Err(S3Error::invalid_argument("x-amz-acl", acl, "The canned ACL is not known")),
    }
}

/// Everything an upload says of its object. The tags need a permission of their own: ask for it if there are any.
pub fn new_object(headers: &HeaderMap) -> S3Result<NewObject> {
    refuse_unsupported(headers)?;
    refuse_acls(headers)?;
    let tags = match headers.get(names::X_AMZ_TAGGING) {
        Some(value) => tags_of_header(&text_of(value))?,
        None => Vec::new(),
    };
    Ok(NewObject { meta: meta_of(headers)?, tags })
}

/// System headers and user metadata.
pub fn meta_of(headers: &HeaderMap) -> S3Result<ObjectMeta> {
    let mut meta = ObjectMeta::default();
    for name in KEPT {
        let Some(value) = headers.get(&name).map(text_of) else { continue };
        let value = if name == header::CONTENT_ENCODING { without_framing(value) } else { value };
        if !value.is_empty() {
            meta.headers.push((name.as_str().to_owned(), value));
        }
    }
    meta.headers.extend(placement_of(headers)?);
    meta.user = user_metadata(headers)?;
    Ok(meta)
}

/// Storage class and redirect: what a copy never takes from its source.
pub fn placement_of(headers: &HeaderMap) -> S3Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    if let Some(class) = headers.get(names::X_AMZ_STORAGE_CLASS).map(text_of) {
        if !STORAGE_CLASSES.contains(&class.as_str()) {
            return Err(S3Error::new(S3Code::InvalidStorageClass).extra("StorageClassRequested", class));
        }
        if class != "STANDARD" {
            found.push((names::X_AMZ_STORAGE_CLASS.as_str().to_owned(), class));
        }
    }
    if let Some(to) = headers.get(names::X_AMZ_WEBSITE_REDIRECT_LOCATION).map(text_of) {
        if !["/", "http://", "https://"].iter().any(|start| to.starts_with(start)) {
            return Err(S3Error::with(
                S3Code::InvalidRedirectLocation,
                "The website redirect location must have a prefix of 'http://' or 'https://' or '/'.",
            ));
        }
        found.push((names::X_AMZ_WEBSITE_REDIRECT_LOCATION.as_str().to_owned(), to));
    }
    Ok(found)
}

/// `aws-chunked` names the framing of the request, not the object's encoding; any other value is kept as it is (case 146).
fn without_framing(value: String) -> String {
    let is_framing = |encoding: &str| encoding.eq_ignore_ascii_case("aws-chunked");
    if !value.split(',').any(|e| is_framing(e.trim())) {
        return value;
    }
    let kept = value.split(',').map(str::trim).filter(|e| !e.is_empty() && !is_framing(e));
    kept.collect::<Vec<_>>().join(", ")
}

fn user_metadata(headers: &HeaderMap) -> S3Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    let mut bytes = 0;
    for full_name in headers.keys() {
        let Some(name) = full_name.as_str().strip_prefix(META_PREFIX) else { continue };
        let values: Vec<String> = headers.get_all(full_name).iter().map(text_of).collect();
        let value = values.join(",");
        bytes += name.len() + value.len();
        found.push((name.to_owned(), value));
    }
    if bytes > limits::USER_METADATA_MAX_BYTES {
        return Err(S3Error::new(S3Code::MetadataTooLarge)
            .extra("Size", bytes.to_string())
            .extra("MaxSizeAllowed", limits::USER_METADATA_MAX_BYTES.to_string()));
    }
    Ok(found)
}

/// Tags in the form `a=1&b=2`.
pub fn tags_of_header(text: &str) -> S3Result<Vec<Tag>> {
    let bad = |_| {
        S3Error::invalid_argument(
            "x-amz-tagging",
            text,
            "The tags must have the form of a URL's query, without repeated names",
        )
    };
    let query = Query::parse(text).map_err(bad)?;
    let mut tags: Vec<Tag> = query.iter().map(|(k, v)| Tag { key: k.to_owned(), value: v.to_owned() }).collect();
    check_tags(&tags, limits::OBJECT_TAGS_MAX)?;
    tags.sort_by(|a, b| a.key.cmp(&b.key));
    Ok(tags)
}

/// AWS's rules for tags.
pub fn check_tags(tags: &[Tag], max: usize) -> S3Result<()> {
    let invalid = |message: &'static str| Err(S3Error::with(S3Code::InvalidTag, message));
    if tags.len() > max {
        return invalid("There are more tags than allowed");
    }
    for (i, tag) in tags.iter().enumerate() {
        let fits = |text: &str| text.chars().all(|c| c.is_alphanumeric() || " +-=._:/@".contains(c));
        if !(1..=128).contains(&tag.key.chars().count()) || !fits(&tag.key) {
            return invalid("The TagKey you have provided is invalid");
        }
        if tag.value.chars().count() > 256 || !fits(&tag.value) {
            return invalid("The TagValue you have provided is invalid");
        }
        if tag.key.starts_with("aws:") {
            return invalid("System tags cannot be added/updated by requester");
        }
        if tags[..i].iter().any(|other| other.key == tag.key) {
            return invalid("Cannot provide multiple Tags with the same key");
        }
    }
    Ok(())
}

/// A checksum algorithm by its name; any but the known ones is refused (case 114).
pub fn checksum_algorithm(name: &str) -> S3Result<ChecksumAlgorithm> {
    let unknown = || {
        S3Error::with(
            S3Code::InvalidRequest,
            "The checksum algorithm is none of CRC32, CRC32C, CRC64NVME, SHA1 and SHA256",
        )
    };
    ChecksumAlgorithm::parse(name).ok_or_else(unknown)
}

/// `versionId` of the query: absent, `null`, or an id of ours.
pub fn version_of(query: &Query) -> S3Result<Option<VersionId>> {
    query.get("versionId").map(version_from_text).transpose()
}

/// A version id as a client gives it.
pub fn version_from_text(text: &str) -> S3Result<VersionId> {
    text.parse().map_err(|_| S3Error::invalid_argument("versionId", text, "Invalid version id specified"))
}

/// Names the version, in a bucket that has any.
pub fn set_version(response: &mut S3Response, version: Option<VersionId>) {
    if let Some(version) = version {
        response.set(X_AMZ_VERSION_ID, &version.to_string());
    }
}

/// Names the new version of a write. Where versioning is suspended AWS names none.
pub fn set_new_version(response: &mut S3Response, version: Option<VersionId>) {
    set_version(response, version.filter(|v| *v != VersionId::Null));
}

pub fn set_etag(response: &mut S3Response, etag: &types::ETag) {
    let mut quoted = Vec::with_capacity(48);
    quoted.push(b'"');
    etag.text(|text| quoted.extend_from_slice(text));
    quoted.push(b'"');
    // Takes the text as it is, without another copy.
    if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(quoted)) {
        response.headers.insert(header::ETAG, value);
    }
}

/// `FULL_OBJECT` or `COMPOSITE`.
pub fn kind_name(kind: ChecksumKind) -> &'static str {
    match kind {
        ChecksumKind::FullObject => "FULL_OBJECT",
        ChecksumKind::Composite { .. } => "COMPOSITE",
    }
}

pub fn set_checksum(response: &mut S3Response, checksum: Option<&Checksum>) {
    let Some(checksum) = checksum else { return };
    response.set(HeaderName::from_static(checksum.algorithm.header()), &checksum.text());
    response.set(X_AMZ_CHECKSUM_TYPE, kind_name(checksum.kind));
}

/// What identifies a version: also sent with 304.
pub fn set_identity(response: &mut S3Response, info: &ObjectInfo) {
    set_etag(response, &info.etag);
    response.set(header::LAST_MODIFIED, HttpDate::of(info.modified_ms).as_str());
    set_version(response, info.version);
    for name in [header::CACHE_CONTROL, header::EXPIRES] {
        if let Some(value) = info.meta.header(name.as_str()) {
            response.set(name, value);
        }
    }
}

/// All headers of a version, but for length, range and checksum.
pub fn set_object(response: &mut S3Response, info: &ObjectInfo) {
    set_identity(response, info);
    response.set_static(header::ACCEPT_RANGES, "bytes");
    response.set_static(header::CONTENT_TYPE, DEFAULT_CONTENT_TYPE);
    for (name, value) in &info.meta.headers {
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            response.set(name, value);
        }
    }
    for (name, value) in &info.meta.user {
        if let Ok(name) = HeaderName::from_bytes(format!("{META_PREFIX}{name}").as_bytes()) {
            response.set(name, &encoded_word(value));
        }
    }
}

/// Plain ASCII as it is, anything else as encoded words of RFC 2047.
fn encoded_word(value: &str) -> String {
    if value.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return value.to_owned();
    }
    format!("=?UTF-8?B?{}?=", STANDARD.encode(value))
}
