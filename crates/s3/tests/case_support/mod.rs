//! The real server over a model store, and a client that signs by itself.
#![allow(dead_code)]

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use model::ModelStore;
use object_controller::api::{Account, Credential, NewUser, ObjectStore};
use s3::auth::{AuthConfig, Authenticator};
use s3::ops::Service;
use s3::server::{NoObserver, ServerConfig, serve};
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// 20130524T000000Z
pub const NOW: u64 = 1_369_353_600_000;
pub const DATE: &str = "20130524T000000Z";
pub const SCOPE: &str = "20130524/us-east-1/s3/aws4_request";

/// Who sends a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Who {
    /// Owner of the buckets of the tests.
    Main,
    /// Another account.
    Alt,
    Root,
    Nobody,
    /// An access key that does not exist.
    Stranger,
    /// The access key of main with another secret.
    Forger,
}

impl Who {
    pub fn keys(self) -> Option<(&'static str, &'static str)> {
        match self {
            Who::Main => Some(("MAINKEY", "the secret of main")),
            Who::Alt => Some(("ALTKEY", "the secret of alt")),
            Who::Root => Some(("ROOTKEY", "the secret of root")),
            Who::Stranger => Some(("STRANGER", "no secret at all")),
            Who::Forger => Some(("MAINKEY", "a guess")),
            Who::Nobody => None,
        }
    }
}

pub struct Server {
    pub address: SocketAddr,
    pub store: Arc<ModelStore>,
    /// Canonical ids.
    pub main_id: String,
    pub alt_id: String,
}

/// A request: method, raw target, headers, body.
#[derive(Clone)]
pub struct Call {
    pub method: &'static str,
    pub target: String,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Bytes,
    pub who: Who,
    /// What `x-amz-content-sha256` says instead of the body's hash.
    pub payload: Option<&'static str>,
}

pub fn call(method: &'static str, target: impl Into<String>) -> Call {
    Call { method, target: target.into(), headers: Vec::new(), body: Bytes::new(), who: Who::Main, payload: None }
}

impl Call {
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_ascii_lowercase(), value.as_ref().to_vec()));
        self
    }
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }
    /// Sends `content` in one aws-chunk with an unsigned trailer of none.
    pub fn framed(mut self, content: &str) -> Self {
        self.payload = Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER");
        let size = content.len();
        self.header("x-amz-decoded-content-length", size.to_string())
            .body(format!("{size:x}\r\n{content}\r\n0\r\n\r\n"))
    }
    pub fn by(mut self, who: Who) -> Self {
        self.who = who;
        self
    }
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<String> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| String::from_utf8_lossy(v).into_owned())
    }
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
    /// The `Code` of an error.
    pub fn code(&self) -> String {
        self.all("Code").first().cloned().unwrap_or_default()
    }
    /// Status and code.
    pub fn failure(&self) -> (u16, String) {
        (self.status, self.code())
    }
    /// Texts of all elements of that name, in order.
    pub fn all(&self, element: &str) -> Vec<String> {
        let text = self.text();
        let (open, close) = (format!("<{element}>"), format!("</{element}>"));
        text.split(&open).skip(1).filter_map(|rest| rest.split(&close).next()).map(unescape).collect()
    }
    pub fn one(&self, element: &str) -> String {
        self.all(element).into_iter().next().unwrap_or_default()
    }
    pub fn etag(&self) -> String {
        self.header("etag").expect("an ETag").trim_matches('"').to_owned()
    }
    pub fn version(&self) -> String {
        self.header("x-amz-version-id").expect("a version")
    }
    #[track_caller]
    pub fn ok(self) -> Self {
        assert!((200..300).contains(&self.status), "{} {}", self.status, self.text());
        self
    }
}

fn unescape(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#13;", "\r")
        .replace("&#1;", "\u{1}")
        .replace("&amp;", "&")
}

impl Server {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (access_key, secret_key) = Who::Root.keys().expect("root has keys");
        let account =
            Account { canonical_id: "0".repeat(64), display_name: "root".into(), email: String::new(), is_root: true };
        let root = Credential { access_key: access_key.into(), secret_key: secret_key.into(), account };
        let ticks = AtomicU64::new(0);
        let store = ModelStore::new(root, move || NOW - 86_400_000 + 1000 * ticks.fetch_add(1, Ordering::Relaxed));
        let store = Arc::new(store);
        let mut ids = Vec::new();
        for (name, who) in [("main", Who::Main), ("alt", Who::Alt)] {
            let (access, secret) = who.keys().expect("an account");
            let (access_key, secret_key) = (Some(access.into()), Some(secret.into()));
            let user = NewUser { name: name.into(), access_key, secret_key, email: None };
            ids.push(store.create_user(user).await.expect("a user").account.canonical_id.clone());
        }
        let config = AuthConfig { region: "us-east-1".into(), service: "s3", now_ms: Arc::new(|| NOW) };
        let authenticator = Arc::new(Authenticator::new(config, Arc::clone(&store) as _));
        let service = Arc::new(Service::new(Arc::clone(&store), Arc::clone(&authenticator)));
        let (config, never) = (ServerConfig::default(), std::future::pending());
        tokio::spawn(serve(listener, config, authenticator, service, Arc::new(NoObserver), never));
        let alt_id = ids.pop().expect("two ids");
        let server = Server { address, store, main_id: ids.pop().expect("two ids"), alt_id };
        server.send(call("PUT", "/bucket")).await.ok();
        server
    }

    /// A server whose bucket has versioning switched on.
    pub async fn versioned() -> Self {
        let server = Self::start().await;
        server.versioning("Enabled").await;
        server
    }

    pub async fn versioning(&self, status: &str) {
        let body = format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>");
        self.send(call("PUT", "/bucket?versioning").body(body)).await.ok();
    }

    pub async fn put(&self, key: &str, body: &str) -> Answer {
        self.send(call("PUT", format!("/bucket/{key}")).body(body.to_owned())).await.ok()
    }

    pub async fn puts(&self, keys: &[&str]) {
        for key in keys {
            self.put(key, "x").await;
        }
    }

    pub async fn get(&self, target: &str) -> Answer {
        self.send(call("GET", target)).await
    }

    /// Keys and common prefixes of a listing of the bucket.
    pub async fn list(&self, query: &str) -> (Vec<String>, Vec<String>) {
        let answer = self.get(&format!("/bucket?{query}")).await.ok();
        (answer.all("Key"), answer.all("CommonPrefixes").iter().map(|p| inner(p, "Prefix")).collect())
    }

    pub async fn policy(&self, statements: &str) {
        let body = format!(r#"{{"Version":"2012-10-17","Statement":[{statements}]}}"#);
        let answer = self.send(call("PUT", "/bucket?policy").body(body)).await;
        assert_eq!(answer.status, 204, "case 157: {}", answer.text());
    }

    /// A statement that allows `actions` (a JSON list) to `alt` on `resource`.
    pub async fn allow_alt(&self, actions: &str, resource: &str) {
        let alt = &self.alt_id;
        self.policy(&format!(
            r#"{{"Effect":"Allow","Principal":{{"AWS":"{alt}"}},"Action":{actions},"Resource":["arn:aws:s3:::{resource}"]}}"#
        ))
        .await;
    }

    pub async fn send(&self, call: Call) -> Answer {
        self.try_send(call).await.expect("an answer")
    }

    /// `None` if the connection was closed before the answer could be read, as may happen to a body that nobody wants.
    pub async fn try_send(&self, call: Call) -> Option<Answer> {
        let mut stream = TcpStream::connect(self.address).await.expect("connected");
        let head = call.method == "HEAD";
        let sent = stream.write_all(&self.bytes_of(call, true)).await;
        let mut received = Vec::new();
        let ended = stream.read_to_end(&mut received).await;
        let whole = received.windows(4).any(|w| w == b"\r\n\r\n");
        assert!(whole || sent.is_err() || ended.is_err(), "an answer or a closed connection");
        whole.then(|| parse(&received, head).0)
    }

    /// The request as it goes over the wire, signed.
    pub fn bytes_of(&self, call: Call, close: bool) -> Vec<u8> {
        let mut headers = call.headers.clone();
        headers.push(("host".into(), self.address.to_string().into_bytes()));
        if let Some(keys) = call.who.keys() {
            sign(&call, keys, &mut headers);
        }
        if !call.body.is_empty() || matches!(call.method, "PUT" | "POST") {
            headers.push(("content-length".into(), call.body.len().to_string().into_bytes()));
        }
        if close {
            headers.push(("connection".into(), b"close".to_vec()));
        }
        let mut out = format!("{} {} HTTP/1.1\r\n", call.method, call.target).into_bytes();
        for (name, value) in headers {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(&value);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&call.body);
        out
    }
}

pub fn inner(xml: &str, element: &str) -> String {
    let (open, close) = (format!("<{element}>"), format!("</{element}>"));
    let rest = xml.split(&open).nth(1).unwrap_or_default();
    unescape(rest.split(&close).next().unwrap_or_default())
}

/// One answer, and how many bytes it took.
pub fn parse(received: &[u8], head_only: bool) -> (Answer, usize) {
    let end = received.windows(4).position(|w| w == b"\r\n\r\n").expect("a whole head");
    let mut lines = received[..end].split(|b| *b == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l));
    let status_line = String::from_utf8_lossy(lines.next().expect("a status line")).into_owned();
    let status = status_line.split(' ').nth(1).expect("a status").parse().expect("a number");
    let headers: Vec<(String, Vec<u8>)> = lines
        .map(|line| {
            let at = line.iter().position(|b| *b == b':').expect("a header");
            (String::from_utf8_lossy(&line[..at]).to_ascii_lowercase(), line[at + 1..].trim_ascii().to_vec())
        })
        .collect();
    let length = headers.iter().find(|(n, _)| n == "content-length");
    let length = length.map_or(0, |(_, v)| String::from_utf8_lossy(v).parse().expect("a length"));
    let length = if head_only || status == 304 || status == 204 { 0 } else { length };
    let body = received[end + 4..end + 4 + length].to_vec();
    (Answer { status, headers, body }, end + 4 + length)
}

pub fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

pub fn signing_key(secret: &str) -> Vec<u8> {
    let mut key = format!("AWS4{secret}").into_bytes();
    for part in SCOPE.split('/') {
        key = hmac(&key, part.as_bytes());
    }
    key
}

pub fn encode(text: &[u8], keep_slash: bool) -> String {
    let mut out = String::new();
    for b in text {
        match b {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(*b)),
            b'/' if keep_slash => out.push('/'),
            _ => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

fn decode(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((b, tail)) = rest.split_first() {
        if *b == b'%' && tail.len() >= 2 {
            let digits = String::from_utf8_lossy(&tail[..2]).into_owned();
            out.push(u8::from_str_radix(&digits, 16).expect("hex digits"));
            rest = &tail[2..];
        } else {
            out.push(*b);
            rest = tail;
        }
    }
    out
}

fn sign(call: &Call, (access, secret): (&str, &str), headers: &mut Vec<(String, Vec<u8>)>) {
    let hash = call.payload.map_or_else(|| hex::encode(Sha256::digest(&call.body)), str::to_owned);
    headers.push(("x-amz-content-sha256".into(), hash.clone().into_bytes()));
    headers.push(("x-amz-date".into(), DATE.into()));
    let (path, query) = call.target.split_once('?').unwrap_or((&call.target, ""));
    let mut pairs: Vec<(String, String)> = query
        .split('&')
        .filter(|p| !p.is_empty())
        .map(|p| {
            let (n, v) = p.split_once('=').unwrap_or((p, ""));
            (encode(&decode(&n.replace('+', "%20")), false), encode(&decode(&v.replace('+', "%20")), false))
        })
        .collect();
    pairs.sort();
    let query = pairs.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join("&");
    let mut signed: Vec<_> = headers.clone();
    signed.sort();
    let names = signed.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>().join(";");
    let mut canonical = format!("{}\n{}\n{query}\n", call.method, encode(&decode(path), true)).into_bytes();
    for (name, value) in &signed {
        canonical.extend_from_slice(format!("{name}:").as_bytes());
        canonical.extend_from_slice(value.trim_ascii());
        canonical.push(b'\n');
    }
    canonical.extend_from_slice(format!("\n{names}\n{hash}").as_bytes());
    let to_sign = format!("AWS4-HMAC-SHA256\n{DATE}\n{SCOPE}\n{}", hex::encode(Sha256::digest(&canonical)));
    let signature = hex::encode(hmac(&signing_key(secret), to_sign.as_bytes()));
    let value = format!("AWS4-HMAC-SHA256 Credential={access}/{SCOPE}, SignedHeaders={names}, Signature={signature}");
    headers.push(("authorization".into(), value.into_bytes()));
}

/// `Delete` of these keys.
pub fn delete_document(keys: &[&str], quiet: bool) -> String {
    let objects: String = keys.iter().map(|k| format!("<Object><Key>{k}</Key></Object>")).collect();
    format!("<Delete>{objects}<Quiet>{quiet}</Quiet></Delete>")
}

pub fn md5_base64(body: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(md5::Md5::digest(body))
}

/// A DeleteObjects request with its digest.
pub fn delete_objects(document: String) -> Call {
    let digest = md5_base64(document.as_bytes());
    call("POST", "/bucket?delete").header("content-md5", digest).body(document)
}
