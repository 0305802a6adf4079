//! GetObject and HeadObject: one story, told with or without the bytes.

use super::parts;
use super::range::{self, Selection};
use crate::access::Access;
use crate::conditions::{self, Judgement};
use crate::error::{S3Code, S3Error, S3Result};
use crate::names;
use crate::ops::{Service, headers, key_of};
use crate::policy::Action;
use crate::request::{Identity, S3Request};
use crate::response::{S3Body, S3Response};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};
use object_controller::api::{ObjectInfo, ObjectStore, PartInfo, ReadHandle};
use types::limits::PART_NUMBER_MAX;

const X_AMZ_MP_PARTS_COUNT: HeaderName = HeaderName::from_static("x-amz-mp-parts-count");
const X_AMZ_TAGGING_COUNT: HeaderName = HeaderName::from_static("x-amz-tagging-count");
/// Headers of the answer that a signed request may choose.
const OVERRIDES: [(&str, HeaderName); 6] = [
    ("response-content-type", header::CONTENT_TYPE),
    ("response-content-language", header::CONTENT_LANGUAGE),
    ("response-expires", header::EXPIRES),
    ("response-cache-control", header::CACHE_CONTROL),
    ("response-content-disposition", header::CONTENT_DISPOSITION),
    ("response-content-encoding", header::CONTENT_ENCODING),
];

pub async fn get_object<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    read(service, request, true).await
}

pub async fn head_object<S: ObjectStore>(service: &Service<S>, request: &S3Request) -> S3Result<S3Response> {
    read(service, request, false).await
}

/// What of the version is answered.
enum Answer {
    Whole,
    Range { offset: u64, len: u64 },
    Part { part: PartInfo, count: Option<u32> },
}

async fn read<S: ObjectStore>(service: &Service<S>, request: &S3Request, want_body: bool) -> S3Result<S3Response> {
    let bucket = service.open_bucket(request)?;
    let key = key_of(request)?;
    let version = headers::version_of(&request.query)?;
    let access = service.access(&request.identity, &bucket);
    let action = if version.is_some() { Action::GetObjectVersion } else { Action::GetObject };
    access.require_key(action, key)?;
    check_overrides(request)?;
    headers::refuse_unsupported(&request.headers)?;
    let part_number = part_number(request)?;

    let by_part = part_number.is_some();
    let handle = service
        .store
        .lookup(&bucket, key, version, want_body || by_part)
        .await
        .map_err(|e| access.hide_absence(e.into()))?;
    match conditions::judge(&conditions::of_read(&request.headers), &handle.info().etag, handle.info().modified_ms) {
        Judgement::Proceed => {}
        Judgement::NotModified => return Ok(not_modified(handle.info())),
        Judgement::Failed(name) => return Err(S3Error::new(S3Code::PreconditionFailed).extra("Condition", name)),
    }
    let answer = match (part_number, request.header(header::RANGE)) {
        (Some(number), _) => find_part(handle.as_ref(), number).await?,
        (None, Some(text)) => match range::select(text, handle.info().size) {
            Selection::Whole => Answer::Whole,
            Selection::Part { offset, len } => Answer::Range { offset, len },
            Selection::Unsatisfiable => return Err(range::unsatisfiable(text, handle.info().size)),
        },
        (None, None) => Answer::Whole,
    };
    Ok(respond(request, &access, handle, &answer, want_body))
}

fn not_modified(info: &ObjectInfo) -> S3Response {
    let mut response = S3Response::status(StatusCode::NOT_MODIFIED);
    headers::set_identity(&mut response, info);
    response
}

fn respond(
    request: &S3Request,
    access: &Access<'_>,
    handle: Box<dyn ReadHandle>,
    answer: &Answer,
    want_body: bool,
) -> S3Response {
    let info = handle.info();
    let mut response = S3Response::ok();
    headers::set_object(&mut response, info);
    set_overrides(&mut response, request);
    // A count of tags is a reading of tags.
    let key = request.key.as_ref().map(|k| k.as_str());
    if !info.tags.is_empty() && access.allows(Action::GetObjectTagging, key) {
        response.set(X_AMZ_TAGGING_COUNT, &info.tags.len().to_string());
    }
    let wants_checksum =
        request.header(names::X_AMZ_CHECKSUM_MODE).is_some_and(|mode| mode.eq_ignore_ascii_case("enabled"));
    let (offset, len) = match answer {
        Answer::Whole => {
            if wants_checksum {
                headers::set_checksum(&mut response, info.checksum.as_ref());
            }
            (0, info.size)
        }
        Answer::Range { offset, len } => (*offset, *len),
        Answer::Part { part, count } => {
            if let Some(count) = count {
                response.set(X_AMZ_MP_PARTS_COUNT, &count.to_string());
            }
            if wants_checksum {
                set_part_checksum(&mut response, part, info);
            }
            (part.offset, part.size)
        }
    };
    // An empty part has no first and last byte to name.
    if !matches!(answer, Answer::Whole) && len > 0 {
        response.status = StatusCode::PARTIAL_CONTENT;
        let range = format!("bytes {offset}-{}/{}", offset + len - 1, info.size);
        response.set(header::CONTENT_RANGE, &range);
    }
    response.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(len));
    response.body = match (want_body, len) {
        (false, _) => S3Body::Empty,
        (true, 0) => S3Body::Full(Bytes::new()),
        (true, _) => S3Body::from_read(handle.read(offset, len), len),
    };
    response
}

/// The part's own checksum, so that its reader can verify it, and the type of the whole object's.
fn set_part_checksum(response: &mut S3Response, part: &PartInfo, info: &ObjectInfo) {
    headers::set_checksum(response, part.checksum.as_ref());
    if let (Some(_), Some(whole)) = (&part.checksum, &info.checksum) {
        response.set(headers::X_AMZ_CHECKSUM_TYPE, headers::kind_name(whole.kind));
    }
}

/// `partNumber`, which excludes a range.
fn part_number(request: &S3Request) -> S3Result<Option<u32>> {
    let Some(text) = request.query.get("partNumber") else { return Ok(None) };
    let number = text.parse().ok().filter(|n| (1..=PART_NUMBER_MAX).contains(n)).ok_or_else(|| {
        S3Error::invalid_argument("partNumber", text, "Part number must be an integer between 1 and 10000, inclusive")
    })?;
    if request.headers.contains_key(header::RANGE) {
        return Err(S3Error::with(
            S3Code::InvalidRequest,
            "Cannot specify both Range header and partNumber query parameter",
        ));
    }
    Ok(Some(number))
}

async fn find_part(handle: &dyn ReadHandle, number: u32) -> S3Result<Answer> {
    let info = handle.info();
    let Some(count) = info.parts else {
        // An object that was put whole is its own only part.
        return match number {
            1 => Ok(Answer::Part {
                part: PartInfo { number: 1, offset: 0, size: info.size, checksum: info.checksum.clone() },
                count: None,
            }),
            _ => Err(S3Error::new(S3Code::InvalidPartNumber)
                .extra("PartNumberRequested", number.to_string())
                .extra("ActualPartCount", "1")),
        };
    };
    let index = parts::first_from(handle, count, number).await?;
    let found = handle.parts(index, 1).await?.into_iter().next().filter(|p| p.number == number);
    let part = found.ok_or_else(|| S3Error::new(S3Code::InvalidPart).extra("PartNumber", number.to_string()))?;
    Ok(Answer::Part { part, count: Some(count) })
}

/// Overrides are for signed requests only (row 59), and cannot split the answer (row 58).
fn check_overrides(request: &S3Request) -> S3Result<()> {
    for (parameter, _) in OVERRIDES {
        let Some(value) = request.query.get(parameter) else { continue };
        match request.identity {
            Identity::Anonymous => {
                return Err(S3Error::with(
                    S3Code::InvalidRequest,
                    "Request specific response headers cannot be used for anonymous GET requests.",
                ));
            }
            Identity::Account(_) if value.chars().any(char::is_control) => {
                return Err(S3Error::invalid_argument(parameter, value, "Header value cannot be represented"));
            }
            Identity::Account(_) => {}
        }
    }
    Ok(())
}

fn set_overrides(response: &mut S3Response, request: &S3Request) {
    for (parameter, name) in OVERRIDES {
        if let Some(value) = request.query.get(parameter) {
            response.set(name, value);
        }
    }
}
