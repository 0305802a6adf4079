//! One S3 client: one connection, one request at a time, every answer checked.
//!
//! Promises: an operation returns `Ok` only for the status that S3 documents for success; anything else is an error that
//! keeps the status and the code. Refuses to know: retries. A caller that wants one decides what an unknown outcome means.

mod body;
mod connection;
mod head;
pub mod signature;
pub mod xml;

use std::fmt::Write as _;
use std::time::Duration;

use time::OffsetDateTime;

pub use body::{BodySink, Expected};
use connection::Connection;
use signature::{Credentials, Parts, PayloadSigning, Signer, encode};

use crate::clock;
use crate::limits::REQUEST_TIMEOUT;

/// Where and as whom to ask.
#[derive(Clone, Debug)]
pub struct Target {
    /// `host:port`.
    pub address: String,
    /// Region of the signature.
    pub region: String,
    /// Whose signature.
    pub credentials: Credentials,
    /// Whether bodies are hashed into it.
    pub payload: PayloadSigning,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// The Content-Length header.
    pub content_length: Option<u64>,
    /// The ETag header, with its quotes.
    pub etag: Option<String>,
    /// The version id header.
    pub version_id: Option<String>,
    /// Length of the body that came.
    pub received_bytes: u64,
    /// The body, if it was to be kept or the status is an error.
    pub body: Vec<u8>,
    /// From the first byte sent to the first byte received.
    pub ttfb: Duration,
    /// From the first byte sent to the last byte received.
    pub total: Duration,
}

/// Why a request has no good answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server answered with another status than success.
    #[error("answered {status} {code}: {message}")]
    Status {
        /// HTTP status.
        status: u16,
        /// S3 error code, empty if the body had none.
        code: String,
        /// S3 error message.
        message: String,
    },
    /// The network failed; the outcome of a write is unknown.
    #[error("connection: {0}")]
    Io(#[from] std::io::Error),
    /// The connection ended early; the outcome of a write is unknown.
    #[error("connection closed {0}")]
    Closed(&'static str),
    /// No answer in time; the outcome of a write is unknown.
    #[error("no answer in time")]
    Timeout,
    /// The answer is not HTTP as we know it.
    #[error("not a proper answer: {0}")]
    Protocol(&'static str),
    /// The body differs from what was stored.
    #[error("WRONG BYTES: first difference at offset {at}")]
    WrongBytes {
        /// Offset in the body.
        at: u64,
    },
    /// The body has another length than what was stored.
    #[error("WRONG LENGTH: {found} bytes instead of {expected}")]
    WrongLength {
        /// What was stored.
        expected: u64,
        /// What came.
        found: u64,
    },
}

impl From<&'static str> for ClientError {
    fn from(what: &'static str) -> ClientError {
        ClientError::Protocol(what)
    }
}

impl ClientError {
    /// Whether a write that got this may or may not have happened: no answer, or an error of the server (promise P5).
    pub fn leaves_outcome_unknown(&self) -> bool {
        match self {
            ClientError::Io(_) | ClientError::Closed(_) | ClientError::Timeout | ClientError::Protocol(_) => true,
            ClientError::Status { status, .. } => *status >= 500,
            ClientError::WrongBytes { .. } | ClientError::WrongLength { .. } => false,
        }
    }

    /// Whether the server broke a promise by this answer.
    pub fn is_wrong_data(&self) -> bool {
        matches!(self, ClientError::WrongBytes { .. } | ClientError::WrongLength { .. })
    }

    /// The status, if there was an answer.
    pub fn status(&self) -> Option<u16> {
        match self {
            ClientError::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

/// One request in S3's terms.
#[derive(Default)]
pub struct Request<'a> {
    /// HTTP method.
    pub method: &'a str,
    /// `/bucket/key`, not encoded.
    pub path: &'a str,
    /// Name and value, not encoded, sorted by name.
    pub query: &'a [(&'a str, &'a str)],
    /// Lower-case names; all are signed.
    pub headers: &'a [(&'a str, String)],
    /// The body.
    pub body: Option<&'a [u8]>,
}

/// One S3 client.
pub struct Client {
    connection: Connection,
    signer: Signer,
    host: String,
    timeout: Duration,
}

impl Client {
    /// Connects at the first request.
    pub fn new(target: &Target) -> Client {
        Client {
            connection: Connection::new(target.address.clone()),
            signer: Signer::new(target.credentials.clone(), &target.region, target.payload),
            host: target.address.clone(),
            timeout: REQUEST_TIMEOUT,
        }
    }

    /// A client that gives a request up after `timeout`.
    pub(crate) fn impatient(target: &Target, timeout: Duration) -> Client {
        Client { timeout, ..Client::new(target) }
    }

    /// A client of another service than S3 at the same target, such as the admin API, whose answers may take so long.
    pub(crate) fn of_service(target: &Target, service: &'static str, timeout: Duration) -> Client {
        let client = Client::new(target);
        Client { signer: client.signer.for_service(service), timeout, ..client }
    }

    /// Sends a request and asks for the given success status.
    pub async fn call(
        &mut self,
        request: &Request<'_>,
        success: u16,
        mut sink: BodySink<'_>,
    ) -> Result<Response, ClientError> {
        let head = self.request_head(request);
        let body = request.body.unwrap_or_default();
        let has_body = request.method != "HEAD";
        let exchange = self.connection.exchange(head.as_bytes(), body, has_body, &mut sink);
        let response = match tokio::time::timeout(self.timeout, exchange).await {
            Ok(result) => result?,
            Err(_) => {
                self.connection.close();
                return Err(ClientError::Timeout);
            }
        };
        if response.status == success { Ok(response) } else { Err(status_error(&response)) }
    }

    /// The bytes of a request up to its body, signed now; for connections that are not driven by this client.
    pub(crate) fn request_head(&mut self, request: &Request<'_>) -> String {
        let path = encode(request.path, true);
        let query = canonical_query(request.query);
        let parts = Parts {
            method: request.method,
            path: &path,
            query: &query,
            host: &self.host,
            headers: request.headers,
            body: request.body,
        };
        let signature = self.signer.headers(&parts, &amz_date(clock::wall_ms()));
        let mark = if query.is_empty() { "" } else { "?" };
        let mut head = format!("{} {path}{mark}{query} HTTP/1.1\r\nhost: {}\r\n", request.method, self.host);
        for (name, value) in request.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if let Some(body) = request.body {
            let _ = write!(head, "content-length: {}\r\n", body.len());
        }
        head.push_str(&signature);
        head.push_str("\r\n");
        head
    }

    /// PutObject.
    pub async fn put(&mut self, path: &str, body: &[u8]) -> Result<Response, ClientError> {
        self.call(&Request { method: "PUT", path, body: Some(body), ..Request::default() }, 200, BodySink::Count).await
    }

    /// GetObject of the whole object, every byte compared.
    pub async fn get(&mut self, path: &str, expected: &Expected) -> Result<Response, ClientError> {
        self.call(&Request { method: "GET", path, ..Request::default() }, 200, BodySink::Compare(expected)).await
    }

    /// GetObject of a range that begins at `offset`, every byte compared.
    pub async fn get_range(&mut self, path: &str, offset: u64, expected: &Expected) -> Result<Response, ClientError> {
        let range = format!("bytes={offset}-{}", offset + expected.len() - 1);
        let request = Request { method: "GET", path, headers: &[("range", range)], ..Request::default() };
        self.call(&request, 206, BodySink::Compare(expected)).await
    }

    /// HeadObject.
    pub async fn head(&mut self, path: &str) -> Result<Response, ClientError> {
        self.call(&Request { method: "HEAD", path, ..Request::default() }, 200, BodySink::Count).await
    }

    /// DeleteObject.
    pub async fn delete(&mut self, path: &str) -> Result<Response, ClientError> {
        self.call(&Request { method: "DELETE", path, ..Request::default() }, 204, BodySink::Count).await
    }

    /// DeleteObject of one version, for good.
    pub async fn delete_version(&mut self, path: &str, version: &str) -> Result<Response, ClientError> {
        let query = [("versionId", version)];
        let request = Request { method: "DELETE", path, query: &query, ..Request::default() };
        self.call(&request, 204, BodySink::Count).await
    }

    /// GetObject of one version, every byte compared.
    pub async fn get_version(
        &mut self,
        path: &str,
        version: &str,
        expected: &Expected,
    ) -> Result<Response, ClientError> {
        let query = [("versionId", version)];
        let request = Request { method: "GET", path, query: &query, ..Request::default() };
        self.call(&request, 200, BodySink::Compare(expected)).await
    }

    /// PutBucketVersioning: from now on versions are kept.
    pub async fn keep_versions(&mut self, bucket: &str) -> Result<(), ClientError> {
        const ENABLED: &[u8] = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
        let (path, query) = (format!("/{bucket}"), [("versioning", "")]);
        let request = Request { method: "PUT", path: &path, query: &query, body: Some(ENABLED), ..Request::default() };
        self.call(&request, 200, BodySink::Count).await.map(drop)
    }

    /// CopyObject; `source` is `/bucket/key`. An error inside a 200 answer is an error.
    pub async fn copy(&mut self, source: &str, path: &str) -> Result<(Response, String), ClientError> {
        let headers = [("x-amz-copy-source", encode(source, true))];
        let request = Request { method: "PUT", path, headers: &headers, body: Some(&[]), ..Request::default() };
        let response = self.call(&request, 200, BodySink::Keep).await?;
        let etag = element_or_error(&response, "ETag")?;
        Ok((response, etag))
    }

    /// CreateBucket; a bucket that is already ours is fine.
    pub async fn create_bucket(&mut self, bucket: &str) -> Result<(), ClientError> {
        let request = Request { method: "PUT", path: &format!("/{bucket}"), body: Some(&[]), ..Request::default() };
        match self.call(&request, 200, BodySink::Count).await {
            Ok(_) => Ok(()),
            Err(ClientError::Status { code, .. }) if code == "BucketAlreadyOwnedByYou" => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// CreateMultipartUpload; returns the upload id.
    pub async fn create_upload(&mut self, path: &str) -> Result<String, ClientError> {
        let request =
            Request { method: "POST", path, query: &[("uploads", "")], body: Some(&[]), ..Request::default() };
        let response = self.call(&request, 200, BodySink::Keep).await?;
        element_or_error(&response, "UploadId")
    }

    /// UploadPart; returns the part's ETag.
    pub async fn upload_part(
        &mut self,
        path: &str,
        upload: &str,
        number: u32,
        body: &[u8],
    ) -> Result<String, ClientError> {
        let number = number.to_string();
        let query = [("partNumber", number.as_str()), ("uploadId", upload)];
        let request = Request { method: "PUT", path, query: &query, body: Some(body), ..Request::default() };
        self.call(&request, 200, BodySink::Count).await?.etag.ok_or(ClientError::Protocol("part without an ETag"))
    }

    /// CompleteMultipartUpload; returns the object's ETag. An error inside a 200 answer is an error.
    pub async fn complete_upload(
        &mut self,
        path: &str,
        upload: &str,
        parts: &[String],
    ) -> Result<(Response, String), ClientError> {
        let mut xml = String::from("<CompleteMultipartUpload>");
        for (index, etag) in parts.iter().enumerate() {
            let _ = write!(xml, "<Part><PartNumber>{}</PartNumber><ETag>{etag}</ETag></Part>", index + 1);
        }
        xml.push_str("</CompleteMultipartUpload>");
        let query = [("uploadId", upload)];
        let request = Request { method: "POST", path, query: &query, body: Some(xml.as_bytes()), ..Request::default() };
        let response = self.call(&request, 200, BodySink::Keep).await?;
        let etag = element_or_error(&response, "ETag")?;
        Ok((response, etag))
    }

    /// AbortMultipartUpload.
    pub async fn abort_upload(&mut self, path: &str, upload: &str) -> Result<(), ClientError> {
        let request = Request { method: "DELETE", path, query: &[("uploadId", upload)], ..Request::default() };
        self.call(&request, 204, BodySink::Count).await.map(|_| ())
    }

    /// One page of ListMultipartUploads: key and upload id.
    pub async fn list_uploads(&mut self, bucket: &str) -> Result<Vec<(String, String)>, ClientError> {
        let path = format!("/{bucket}");
        let request = Request { method: "GET", path: &path, query: &[("uploads", "")], ..Request::default() };
        let response = self.call(&request, 200, BodySink::Keep).await?;
        let body = String::from_utf8_lossy(&response.body);
        let field = |upload: &str, name| xml::first(upload, name).unwrap_or_default();
        Ok(xml::blocks(&body, "Upload").map(|upload| (field(upload, "Key"), field(upload, "UploadId"))).collect())
    }

    /// One page of ListObjectsV2.
    pub async fn list(&mut self, bucket: &str, page: &PageRequest<'_>) -> Result<(Response, Page), ClientError> {
        let path = format!("/{bucket}");
        let max_keys = page.max_keys.to_string();
        let mut query = Vec::with_capacity(5);
        if let Some(token) = page.token {
            query.push(("continuation-token", token));
        }
        if let Some(delimiter) = page.delimiter {
            query.push(("delimiter", delimiter));
        }
        query.push(("list-type", "2"));
        query.push(("max-keys", &max_keys));
        if !page.prefix.is_empty() {
            query.push(("prefix", page.prefix));
        }
        let request = Request { method: "GET", path: &path, query: &query, ..Request::default() };
        let response = self.call(&request, 200, BodySink::Keep).await?;
        let parsed = parse_page(&String::from_utf8_lossy(&response.body))?;
        Ok((response, parsed))
    }
}

/// What to list.
#[derive(Clone, Copy, Debug)]
pub struct PageRequest<'a> {
    /// Only keys that begin so.
    pub prefix: &'a str,
    /// Group keys by it.
    pub delimiter: Option<&'a str>,
    /// Where the last page ended.
    pub token: Option<&'a str>,
    /// At most so many entries.
    pub max_keys: u32,
}

/// One page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Key, ETag with quotes, size.
    pub objects: Vec<(String, String, u64)>,
    /// Groups of keys.
    pub common_prefixes: Vec<String>,
    /// Where to go on, if there is more.
    pub next: Option<String>,
}

fn parse_page(body: &str) -> Result<Page, ClientError> {
    let mut page = Page::default();
    for entry in xml::blocks(body, "Contents") {
        let key = xml::first(entry, "Key").ok_or("list entry without a key")?;
        let size = xml::first(entry, "Size").and_then(|size| size.parse().ok()).ok_or("list entry without a size")?;
        page.objects.push((key, xml::first(entry, "ETag").unwrap_or_default(), size));
    }
    page.common_prefixes =
        xml::blocks(body, "CommonPrefixes").filter_map(|prefix| xml::first(prefix, "Prefix")).collect();
    if xml::first(body, "IsTruncated").as_deref() == Some("true") {
        page.next = Some(xml::first(body, "NextContinuationToken").ok_or("truncated page without a token")?);
    }
    Ok(page)
}

fn canonical_query(query: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for (name, value) in query {
        let separator = if out.is_empty() { "" } else { "&" };
        let _ = write!(out, "{separator}{}={}", encode(name, false), encode(value, false));
    }
    out
}

fn amz_date(wall_ms: u64) -> String {
    let seconds = i64::try_from(wall_ms / 1000).unwrap_or(0);
    let t = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        t.year(),
        u8::from(t.month()),
        t.day(),
        t.hour(),
        t.minute(),
        t.second()
    )
}

fn status_error(response: &Response) -> ClientError {
    let body = String::from_utf8_lossy(&response.body);
    ClientError::Status {
        status: response.status,
        code: xml::first(&body, "Code").unwrap_or_default(),
        message: xml::first(&body, "Message").unwrap_or_default(),
    }
}

/// S3 may send 200 first and an error in the body later.
fn element_or_error(response: &Response, name: &str) -> Result<String, ClientError> {
    let body = String::from_utf8_lossy(&response.body);
    if body.contains("<Error>") {
        return Err(ClientError::Status {
            status: 500,
            code: xml::first(&body, "Code").unwrap_or_default(),
            message: "error inside a 200 answer".into(),
        });
    }
    xml::first(&body, name).ok_or(ClientError::Protocol("answer without the expected element"))
}

#[cfg(test)]
mod tests {
    use super::{amz_date, canonical_query, parse_page};

    #[test]
    fn dates_have_the_basic_iso_form() {
        assert_eq!(amz_date(1_369_353_600_000), "20130524T000000Z");
    }

    #[test]
    fn a_page_gives_its_keys_groups_and_token() {
        let body = "<R><IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;1</NextContinuationToken><Contents><Key>a</Key>\
                    <ETag>&quot;e&quot;</ETag><Size>3</Size></Contents><CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes></R>";
        let page = parse_page(body).expect("well formed");
        assert_eq!(page.objects, [("a".to_owned(), "\"e\"".to_owned(), 3)]);
        assert_eq!((page.common_prefixes, page.next.as_deref()), (vec!["b/".to_owned()], Some("t&1")));
        assert!(parse_page("<IsTruncated>true</IsTruncated>").is_err());
    }

    #[test]
    fn queries_are_encoded_for_the_signature() {
        assert_eq!(canonical_query(&[("delimiter", "/"), ("uploads", "")]), "delimiter=%2F&uploads=");
    }
}
