//! From hyper's request to a handler and back.
//!
//! Promises: nothing reaches the handler before its target was parsed and its credentials held; every answer carries the ids.

use super::connection::ConnectionState;
use super::reply::{Account, ReplyBody, micros_since};
use super::slots::Slots;
use super::{Handler, Observer, ServerConfig};
use crate::auth::{Authenticated, Authenticator, Head};
use crate::body::{Expectations, Leftover, RequestBody, Source};
use crate::error::{S3Code, S3Error, S3Result};
use crate::limits;
use crate::names;
use crate::request::{AuthenticationKind, Query, S3Request, Target};
use crate::response::{S3Body, S3Response};
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body::Body;
use hyper::body::Incoming;
use md5_lanes::Lanes;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::time::Instant;

/// What all connections share.
pub struct Shared<H> {
    /// Settings.
    pub config: ServerConfig,
    /// Verifies.
    pub authenticator: Arc<Authenticator>,
    /// Answers.
    pub handler: Arc<H>,
    /// Is told.
    pub observer: Arc<dyn Observer>,
    /// The host id as a header; `None` if it cannot be one.
    pub host_id: Option<HeaderValue>,
    /// Slots for requests.
    pub slots: Arc<Slots>,
    /// Where long bodies are hashed together.
    pub lanes: Lanes,
    /// Numbers requests.
    pub request_ids: RequestIds,
}

/// Mints request ids: unique within a process, unlikely to repeat over restarts. They are no secret.
pub struct RequestIds {
    seed: u64,
    next: AtomicU64,
}

impl RequestIds {
    /// Starts from the time of the start.
    pub fn new(now_ms: u64) -> Self {
        RequestIds { seed: now_ms, next: AtomicU64::new(0) }
    }

    fn mint(&self) -> RequestId {
        const HEX: &[u8; 16] = b"0123456789ABCDEF";
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        // An odd multiplier permutes the 64-bit numbers, so ids of one start never collide.
        let mixed = (self.seed << 20).wrapping_add(n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        RequestId(std::array::from_fn(|digit| HEX[(mixed >> (60 - 4 * digit)) as usize & 15]))
    }
}

/// The id of one request.
#[derive(Clone, Copy)]
pub struct RequestId([u8; 16]);

impl RequestId {
    /// As text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("hex digits are ASCII")
    }
}

/// Answers one request.
pub async fn answer<H: Handler>(
    shared: Arc<Shared<H>>,
    connection: Arc<ConnectionState>,
    request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Infallible> {
    let began = Instant::now();
    let request_id = shared.request_ids.mint();
    let (parts, body) = request.into_parts();
    let is_head = parts.method == Method::HEAD;
    let uri = parts.uri.clone();
    let expects_continue = expects_continue(&parts.headers);
    let has_interim = expects_continue && body.is_end_stream() && parts.version > Version::HTTP_10;
    let received = (!body.is_end_stream()).then(|| Arc::new(Leftover::default()));
    let source = Source::incoming(body, received.clone());
    let slot = Slots::take(&shared.slots);
    let fresh = if shared.handler.is_fresh() { Ok(()) } else { shared.handler.refresh().await };
    let prepared = match &slot {
        Some(_) if fresh.is_err() => {
            drop(source);
            fresh.and(Err(S3Error::new(S3Code::ServiceUnavailable)))
        }
        Some(_) => prepare(&shared, parts, source, connection.remote),
        None => {
            drop(source);
            Err(S3Error::new(S3Code::SlowDown).header(header::RETRY_AFTER, HeaderValue::from_static("1")))
        }
    };
    let mut response = match prepared {
        Ok(request) => {
            if has_interim {
                connection.interim.owe();
            }
            shared.handler.handle(request).await
        }
        Err(e) => e.into(),
    };
    let first = begin(&mut response, is_head).await;
    settle_unread_body(&connection, received.as_deref(), expects_continue, &mut response);
    complete(&mut response, is_head, &uri, request_id, &shared);
    let account = Account {
        observer: Arc::clone(&shared.observer),
        _slot: slot,
        request_id,
        operation: response.operation,
        status: response.status.as_u16(),
        began,
        first_byte_us: micros_since(began),
        received,
    };
    let mut out = Response::new(ReplyBody::new(response.body, first, account));
    *out.status_mut() = response.status;
    *out.headers_mut() = response.headers;
    Ok(out)
}

fn prepare<H>(shared: &Shared<H>, parts: Parts, source: Source, remote: SocketAddr) -> S3Result<S3Request> {
    let target =
        Target::parse(parts.uri.path(), parts.uri.query().unwrap_or(""), host_of(&parts)?, &shared.config.domains)?;
    let mut headers = parts.headers;
    let authenticated = authenticate(&shared.authenticator, &parts.method, &target, &headers)?;
    if authenticated.kind == AuthenticationKind::Presigned {
        hoist(&target.query, &mut headers)?;
    }
    // A body of GET and HEAD is nobody's.
    let expectations = match parts.method {
        Method::GET | Method::HEAD => Expectations::default(),
        _ => Expectations::of(&headers, &authenticated.payload),
    };
    Ok(S3Request {
        method: parts.method,
        bucket: target.bucket,
        key: target.key,
        query: target.query,
        virtual_host: target.virtual_host,
        uri: parts.uri,
        remote,
        identity: authenticated.identity,
        authentication: authenticated.kind,
        body: RequestBody::new(source, expectations, authenticated.signer).sharing(Some(shared.lanes.clone())),
        headers,
    })
}

fn expects_continue(headers: &HeaderMap) -> bool {
    headers.get(header::EXPECT).is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// The one Host header. A target with an authority of its own must name the same.
fn host_of(parts: &Parts) -> S3Result<&str> {
    let bad = || S3Error::with(S3Code::InvalidRequest, "The request needs exactly one valid Host header");
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return Err(bad()) };
    let host = host.to_str().map_err(|_| bad())?;
    match parts.uri.authority() {
        Some(a) if !a.as_str().eq_ignore_ascii_case(host) => Err(bad()),
        _ => Ok(host),
    }
}

/// A CORS preflight cannot be signed (browsers send it by themselves) and answers nothing but the bucket's CORS rules.
fn authenticate(
    authenticator: &Authenticator,
    method: &Method,
    target: &Target,
    headers: &HeaderMap,
) -> S3Result<Authenticated> {
    if method == Method::CONNECT {
        return Err(S3Error::new(S3Code::MethodNotAllowed));
    }
    if method == Method::OPTIONS {
        return Ok(Authenticated::preflight());
    }
    authenticator.authenticate(&Head { method: method.as_str(), path: &target.path, query: &target.query, headers })
}

/// SDKs move `x-amz-*` headers into the query of a presigned URL, where they are signed with it. Headers win; what speaks of
/// a body's checksum stays out, because SDKs compute that before there is a body. What cannot be a header is refused (row 58): it was
/// asked for, and must not be passed over.
fn hoist(query: &Query, headers: &mut HeaderMap) -> S3Result<()> {
    for (name, value) in query.iter() {
        let Some(head) = name.get(..6) else { continue };
        if !head.eq_ignore_ascii_case("x-amz-") {
            continue;
        }
        let lower = name.to_ascii_lowercase();
        let own = ["algorithm", "credential", "date", "expires", "signedheaders", "signature", "content-sha256"];
        let rest = &lower[6..];
        if own.contains(&rest) || rest.starts_with("checksum-") || rest.starts_with("sdk-") {
            continue;
        }
        let bad = || S3Error::invalid_argument(name, value, "The parameter is not valid as a header");
        let header = HeaderName::from_bytes(lower.as_bytes()).map_err(|_| bad())?;
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| bad())?;
        headers.entry(header).or_insert(value);
    }
    Ok(())
}

/// Waits for the first piece of a body that comes in pieces, so that it leaves in one segment with the head: a client that
/// delays its acknowledgements would else wait for it. If there is none, the answer is an error, as nothing was said yet.
async fn begin(response: &mut S3Response, is_head: bool) -> Option<Bytes> {
    let S3Body::Stream(body, _) = &mut response.body else { return None };
    if is_head {
        return None;
    }
    let failed = match body.next().await {
        Ok(Some(piece)) => return Some(piece),
        Ok(None) => S3Error::with(S3Code::InternalError, "The object is shorter than announced"),
        Err(e) => e.into(),
    };
    let mut error = S3Response::from(failed).operation(response.operation);
    // What browsers need to see it was written for this answer too.
    let seen = |name: &HeaderName| *name == header::VARY || name.as_str().starts_with("access-control-");
    error.headers.extend(response.headers.drain().filter_map(|(name, value)| Some((name.filter(seen)?, value))));
    *response = error;
    None
}

/// Decides what becomes of a body that the handler did not read to its end.
fn settle_unread_body(
    connection: &ConnectionState,
    received: Option<&Leftover>,
    expects_continue: bool,
    response: &mut S3Response,
) {
    let Some((received, body)) = received.and_then(|r| r.take().map(|b| (r, b))) else { return };
    // The client waits for a word before it sends: whether it will is ambiguous to the framing.
    let may_not_come = expects_continue && !received.polled();
    if may_not_come || body.size_hint().lower() > limits::DRAIN_MAX_BYTES {
        response.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        connection.linger();
        return;
    }
    connection.drain(body);
}

/// Writes the error's XML, the ids, and what HEAD needs.
fn complete<H>(response: &mut S3Response, is_head: bool, uri: &Uri, request_id: RequestId, shared: &Shared<H>) {
    let request_id = request_id.as_str();
    if let Some(e) = &response.error {
        // What is not implemented is the client's matter.
        if response.status.is_server_error() && response.status != StatusCode::NOT_IMPLEMENTED {
            tracing::warn!(request_id, code = e.code.name(), message = %e.message, "a request failed");
        }
        let bodiless = is_head || response.status == StatusCode::NOT_MODIFIED;
        response.body = if bodiless {
            S3Body::Empty
        } else {
            response.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
            S3Body::Full(e.xml(uri.path(), request_id, &shared.config.host_id))
        };
    }
    if is_head {
        let len = match &response.body {
            S3Body::Empty => None,
            S3Body::Full(b) => Some(b.len() as u64),
            S3Body::Stream(_, len) => Some(*len),
        };
        if let Some(len) = len {
            response.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(len));
        }
        response.body = S3Body::Empty;
    }
    response.set(names::X_AMZ_REQUEST_ID, request_id);
    if let Some(host_id) = &shared.host_id {
        response.headers.insert(names::X_AMZ_ID_2, host_id.clone());
    }
    response.headers.insert(header::SERVER, HeaderValue::from_static("Ashlar"));
}
