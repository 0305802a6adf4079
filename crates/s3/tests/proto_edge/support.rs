//! A server with a trivial handler, and a client that writes raw bytes and signs by itself.

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use object_controller::api::{Account, BodySource, Credential, ReadBody, StoreError};
use parking_lot::Mutex;
use s3::auth::{AuthConfig, Authenticator, CredentialSource};
use s3::error::S3Error;
use s3::request::{Identity, S3Request};
use s3::response::{S3Body, S3Response};
use s3::server::{Handler, Observation, Observer, ServerConfig, serve};
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

pub const ACCESS_KEY: &str = "AKIATEST";
pub const SECRET: &str = "the secret of the protocol tests";
/// 20130524T000000Z
pub const NOW: u64 = 1_369_353_600_000;
pub const DATE: &str = "20130524T000000Z";

pub struct OneCredential;

impl CredentialSource for OneCredential {
    fn credential(&self, access_key: &str) -> Option<Arc<Credential>> {
        let account =
            Account { canonical_id: "c".into(), display_name: "tester".into(), email: String::new(), is_root: false };
        (access_key == ACCESS_KEY)
            .then(|| Arc::new(Credential { access_key: ACCESS_KEY.into(), secret_key: SECRET.into(), account }))
    }
}

/// What reached the handler: method, key, who.
#[derive(Default)]
pub struct Seen {
    pub calls: Mutex<Vec<String>>,
    pub stored: Mutex<Vec<(String, Bytes)>>,
    pub observations: Mutex<Vec<Observation>>,
    pub wait: Notify,
    pub observed: Notify,
}

/// Stores bodies in a vector; keys choose what else it does.
pub struct TestHandler(pub Arc<Seen>);

impl Handler for TestHandler {
    async fn handle(&self, mut request: S3Request) -> S3Response {
        let key = request.key.as_ref().map_or(String::new(), |k| k.as_str().to_owned());
        let who = match &request.identity {
            Identity::Anonymous => "anonymous".to_owned(),
            Identity::Account(c) => c.account.display_name.clone(),
        };
        self.0.calls.lock().push(format!("{} {key} {who}", request.method));
        match (request.method.as_str(), key.as_str()) {
            ("PUT", "unread") => S3Error::new(s3::error::S3Code::AccessDenied).into(),
            ("PUT", _) => match read(&mut request).await {
                Ok(bytes) => {
                    self.0.stored.lock().push((key, bytes));
                    S3Response::ok().operation("PutObject")
                }
                Err(e) => e.into(),
            },
            ("GET", "stream") => streamed(vec![Ok(Some("abc".into())), Ok(Some("def".into())), Ok(None)], 6),
            ("GET", "short") => streamed(vec![Ok(Some("abc".into())), Ok(None)], 6),
            ("GET", "long") => streamed(vec![Ok(Some("abcdefghi".into())), Ok(None)], 6),
            ("GET", "damaged") => streamed(vec![Ok(Some("abc".into())), Err(StoreError::Damaged("test".into()))], 6),
            ("GET", "unreadable") => streamed(vec![Err(StoreError::Damaged("test".into()))], 6),
            ("GET", "unavailable") => streamed(vec![Err(StoreError::Unavailable("test".into()))], 6),
            ("GET", "late") => {
                let mut r = S3Response::ok().operation("GetObject");
                r.body = S3Body::from_read(Box::new(Late(Some("abcdef".into()))), 6);
                r
            }
            ("GET", "huge") => {
                let piece = Bytes::from(vec![0; 1 << 20]);
                streamed((0..1024).map(|_| Ok(Some(piece.clone()))).collect(), 1 << 30)
            }
            ("GET", "wait") => {
                self.0.wait.notified().await;
                S3Response::ok()
            }
            ("GET", "missing") | ("HEAD", "missing") => S3Error::new(s3::error::S3Code::NoSuchKey).into(),
            ("GET", "meta") => {
                let mut r = S3Response::ok();
                let value = request.headers.get("x-amz-meta-a").cloned();
                r.body = S3Body::Full(Bytes::from(format!("{value:?}")));
                r
            }
            ("HEAD", _) => {
                let mut r = S3Response::ok();
                r.body = S3Body::Full(Bytes::from_static(b"hello"));
                r
            }
            _ => {
                let mut r = S3Response::ok().operation("GetObject");
                r.body = S3Body::Full(Bytes::from_static(b"hello"));
                r
            }
        }
    }
}

async fn read(request: &mut S3Request) -> Result<Bytes, S3Error> {
    let mut data = Vec::new();
    while let Some(piece) = BodySource::next(&mut request.body).await? {
        data.extend_from_slice(&piece);
    }
    BodySource::finish(&mut request.body)?;
    Ok(data.into())
}

/// A piece that comes only when the server had every chance to send the head without it, as from a disk.
struct Late(Option<Bytes>);

impl ReadBody for Late {
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Option<Bytes>, StoreError>> + Send + '_>> {
        let piece = self.0.take();
        Box::pin(async move {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            Ok(piece)
        })
    }
}

fn streamed(pieces: Vec<Result<Option<Bytes>, StoreError>>, len: u64) -> S3Response {
    struct Pieces(std::vec::IntoIter<Result<Option<Bytes>, StoreError>>);
    impl ReadBody for Pieces {
        fn next(&mut self) -> Pin<Box<dyn Future<Output = Result<Option<Bytes>, StoreError>> + Send + '_>> {
            let piece = self.0.next().unwrap_or(Ok(None));
            Box::pin(async move { piece })
        }
    }
    let mut r = S3Response::ok().operation("GetObject");
    r.body = S3Body::from_read(Box::new(Pieces(pieces.into_iter())), len);
    r
}

struct Recorder(Arc<Seen>);

impl Observer for Recorder {
    fn observe(&self, observation: &Observation) {
        self.0.observations.lock().push(observation.clone());
        self.0.observed.notify_one();
    }
}

/// A running server.
pub struct Server {
    pub address: SocketAddr,
    pub seen: Arc<Seen>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<usize>,
}

impl Server {
    pub async fn start() -> Self {
        Self::start_with(ServerConfig { domains: vec!["localhost".into()], ..ServerConfig::default() }).await
    }

    pub async fn start_with(config: ServerConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let auth = AuthConfig { region: "us-east-1".into(), service: "s3", now_ms: Arc::new(|| NOW) };
        let authenticator = Arc::new(Authenticator::new(auth, Arc::new(OneCredential)));
        let seen = Arc::new(Seen::default());
        let (handler, recorder) = (Arc::new(TestHandler(Arc::clone(&seen))), Arc::new(Recorder(Arc::clone(&seen))));
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(listener, config, authenticator, handler, recorder, async {
            let _ = stopped.await;
        }));
        Server { address, seen, stop: Some(stop), task }
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("the server listens")
    }

    pub fn begin_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Stops it; how many connections had to be cut off.
    pub async fn stop(mut self) -> usize {
        self.begin_stop();
        self.task.await.expect("no panic")
    }

    /// Sends `raw` on a connection of its own and reads until the server closes.
    pub async fn exchange(&self, raw: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(raw).await.expect("sent");
        read_to_end(&mut stream).await
    }

    pub fn calls(&self) -> Vec<String> {
        self.seen.calls.lock().clone()
    }

    pub fn stored(&self) -> Vec<(String, Bytes)> {
        self.seen.stored.lock().clone()
    }
}

/// Reads until the server closes, cleanly or not.
pub async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut out = Vec::new();
    let _ = stream.read_to_end(&mut out).await;
    String::from_utf8_lossy(&out).into_owned()
}

/// Reads one answer with a Content-Length (none: no body).
pub async fn read_answer(stream: &mut TcpStream) -> String {
    let mut out = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&out).into_owned();
        if let Some(head) = text.find("\r\n\r\n") {
            let length = text[..head]
                .to_ascii_lowercase()
                .split("content-length: ")
                .nth(1)
                .map_or(0, |t| t.split("\r\n").next().and_then(|n| n.parse::<usize>().ok()).expect("a number"));
            if out.len() >= head + 4 + length {
                return text;
            }
        }
        let mut buf = [0; 4096];
        let n = stream.read(&mut buf).await.expect("an answer");
        assert!(n > 0, "closed within an answer: {text}");
        out.extend_from_slice(&buf[..n]);
    }
}

fn hmac(key: &[u8], data: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length");
    mac.update(data);
    mac.finalize().into_bytes().to_vec()
}

pub fn signing_key() -> Vec<u8> {
    let mut key = format!("AWS4{SECRET}").into_bytes();
    for part in ["20130524", "us-east-1", "s3", "aws4_request"] {
        key = hmac(&key, part.as_bytes());
    }
    key
}

pub fn sign(text: &str) -> String {
    hex::encode(hmac(&signing_key(), text.as_bytes()))
}

pub const SCOPE: &str = "20130524/us-east-1/s3/aws4_request";

/// A request head: the path is sent and signed as given (it must be canonical), all headers are signed.
pub fn signed_head(method: &str, path: &str, payload: &str, headers: &[(&str, &str)]) -> (String, String) {
    let mut all: Vec<(String, String)> = headers.iter().map(|(n, v)| (n.to_lowercase(), (*v).to_owned())).collect();
    all.push(("host".into(), "127.0.0.1".into()));
    all.push(("x-amz-date".into(), DATE.into()));
    all.push(("x-amz-content-sha256".into(), payload.into()));
    all.sort();
    let names: Vec<&str> = all.iter().map(|(n, _)| n.as_str()).collect();
    let names = names.join(";");
    let lines: String = all.iter().map(|(n, v)| format!("{n}:{v}\n")).collect();
    let (path_only, query) = path.split_once('?').unwrap_or((path, ""));
    let canonical = format!("{method}\n{path_only}\n{query}\n{lines}\n{names}\n{payload}");
    let digest = hex::encode(Sha256::digest(canonical.as_bytes()));
    let signature = sign(&format!("AWS4-HMAC-SHA256\n{DATE}\n{SCOPE}\n{digest}"));
    let mut head = format!("{method} {path} HTTP/1.1\r\n");
    for (n, v) in &all {
        head.push_str(&format!("{n}: {v}\r\n"));
    }
    head.push_str(&format!(
        "authorization: AWS4-HMAC-SHA256 Credential={ACCESS_KEY}/{SCOPE}, SignedHeaders={names}, Signature={signature}\r\n\r\n"
    ));
    (head, signature)
}

/// A whole signed request.
pub fn signed(method: &str, path: &str, body: &[u8], headers: &[(&str, &str)]) -> Vec<u8> {
    let length = body.len().to_string();
    let digest = hex::encode(Sha256::digest(body));
    let headers = [headers, &[("content-length", length.as_str())]].concat();
    let (head, _) = signed_head(method, path, &digest, &headers);
    [head.as_bytes(), body].concat()
}
