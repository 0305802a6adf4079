//! A node of the tests: it records what it is sent, byte for byte, and answers as it is told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// What a node does with a request once its head has come.
#[derive(Clone)]
pub enum Deed {
    /// Reads the body to its end and sends these bytes.
    Answer(Vec<u8>),
    /// Sends these bytes before it reads anything of the body, then reads the body and sends the others.
    Interim(Vec<u8>, Vec<u8>),
    /// Sends these bytes, then closes without reading on.
    AnswerAndClose(Vec<u8>),
    /// Reads nothing more and closes.
    Close,
    /// Reads what comes, and never answers.
    Hang,
    /// Sends these bytes, waits for the word, sends the others.
    Halves(Vec<u8>, Vec<u8>, watch::Receiver<bool>),
}

/// What a node was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A head, with its empty line.
    Head(String),
    /// Bytes of a body as they came, framing included.
    Body(Vec<u8>),
    /// The body is complete.
    Complete,
    /// The connection ended before that.
    Gone,
}

/// A node.
pub struct Backend {
    pub address: SocketAddr,
    pub admin: SocketAddr,
    ready: watch::Sender<Readiness>,
    seen: mpsc::UnboundedReceiver<Seen>,
    deed: watch::Sender<Deed>,
    dead: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

/// What a node says of itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    NotReady,
    Silent,
}

pub fn ok(body: &str) -> Deed {
    Deed::Answer(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

impl Backend {
    pub async fn start(deed: Deed) -> Backend {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let admin_listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (address, admin) = (listener.local_addr().expect("bound"), admin_listener.local_addr().expect("bound"));
        let (ready, readiness) = watch::channel(Readiness::Ready);
        let (tell, seen) = mpsc::unbounded_channel();
        let (deed, deeds) = watch::channel(deed);
        let dead = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        let is_dead = Arc::clone(&dead);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                if is_dead.load(Ordering::Relaxed) {
                    return;
                }
                connections.spawn(serve(stream, tell.clone(), deeds.clone()));
            }
        });
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = admin_listener.accept().await {
                connections.spawn(answer_check(stream, *readiness.borrow()));
            }
        });
        Backend { address, admin, ready, seen, deed, dead, tasks }
    }

    /// `--node` of it.
    pub fn name(&self) -> String {
        format!("{},{}", self.address, self.admin)
    }

    pub fn say(&self, readiness: Readiness) {
        self.ready.send_replace(readiness);
    }

    pub fn set(&self, deed: Deed) {
        self.deed.send_replace(deed);
    }

    /// The next thing it was sent.
    pub async fn next(&mut self) -> Seen {
        let waited = tokio::time::timeout(crate::PATIENCE, self.seen.recv()).await;
        waited.expect("in time").expect("the node lives")
    }

    /// The next head; whatever else came before is passed over.
    pub async fn head(&mut self) -> String {
        loop {
            if let Seen::Head(head) = self.next().await {
                return head;
            }
        }
    }

    /// The whole body of the latest head, framing included, and how it ended.
    pub async fn body(&mut self) -> (Vec<u8>, Seen) {
        let mut body = Vec::new();
        loop {
            match self.next().await {
                Seen::Body(bytes) => body.extend(bytes),
                end => return (body, end),
            }
        }
    }

    /// Heads that have come and were not taken.
    pub fn heads(&mut self) -> Vec<String> {
        let mut heads = Vec::new();
        while let Ok(seen) = self.seen.try_recv() {
            if let Seen::Head(head) = seen {
                heads.push(head);
            }
        }
        heads
    }

    /// Its port is closed, and so are its connections; its admin port lives on if `admin_lives`.
    pub async fn die(&mut self, admin_lives: bool) {
        self.dead.store(true, Ordering::Relaxed);
        // Woken by one last connection.
        drop(TcpStream::connect(self.address).await);
        if admin_lives {
            self.tasks.join_next().await;
        } else {
            self.tasks.shutdown().await;
        }
    }
}

async fn answer_check(mut stream: TcpStream, readiness: Readiness) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    assert!(head.starts_with(b"GET /-/ready HTTP/1.1\r\n"), "{}", String::from_utf8_lossy(&head));
    let answer: &[u8] = match readiness {
        Readiness::Ready => b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        Readiness::NotReady => b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n",
        Readiness::Silent => return std::future::pending().await,
    };
    // The asker may have stopped waiting.
    let _ = stream.write_all(answer).await;
}

/// The requests of one connection.
async fn serve(mut stream: TcpStream, tell: mpsc::UnboundedSender<Seen>, deeds: watch::Receiver<Deed>) {
    let mut buf = Vec::new();
    loop {
        let Some(head) = read_head(&mut stream, &mut buf).await else { return };
        let deed = deeds.borrow().clone();
        // Nobody may be listening any more.
        let _ = tell.send(Seen::Head(head.clone()));
        let (before, after) = match deed {
            Deed::Answer(answer) => (Vec::new(), answer),
            Deed::Interim(interim, answer) => (interim, answer),
            Deed::AnswerAndClose(answer) => {
                let _ = stream.write_all(&answer).await;
                return;
            }
            Deed::Close => return,
            Deed::Hang => {
                while stream.read(&mut [0; 4096]).await.is_ok_and(|n| n > 0) {}
                let _ = tell.send(Seen::Gone);
                return;
            }
            Deed::Halves(first, second, mut word) => {
                let _ = stream.write_all(&first).await;
                let gone = async { while stream.read(&mut [0; 4096]).await.is_ok_and(|n| n > 0) {} };
                tokio::select! {
                    _ = word.wait_for(|said| *said) => {}
                    () = gone => {
                        let _ = tell.send(Seen::Gone);
                        return;
                    }
                }
                let _ = stream.write_all(&second).await;
                continue;
            }
        };
        if stream.write_all(&before).await.is_err() {
            return;
        }
        if !read_body(&mut stream, &mut buf, &head, &tell).await {
            let _ = tell.send(Seen::Gone);
            return;
        }
        let _ = tell.send(Seen::Complete);
        if stream.write_all(&after).await.is_err() {
            return;
        }
    }
}

async fn read_head(stream: &mut TcpStream, buf: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = find(buf, b"\r\n\r\n") {
            let rest = buf.split_off(end + 4);
            let head = std::mem::replace(buf, rest);
            return Some(String::from_utf8_lossy(&head).into_owned());
        }
        if stream.read_buf(buf).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

/// Whether it was complete. Chunked bodies end where a final chunk without trailers does, which test bodies do not contain.
async fn read_body(stream: &mut TcpStream, buf: &mut Vec<u8>, head: &str, tell: &mpsc::UnboundedSender<Seen>) -> bool {
    let value = |name: &str| crate::header(head, name);
    let length: usize = value("content-length").map_or(0, |text| text.parse().expect("a number"));
    let chunked = value("transfer-encoding").is_some();
    let mut got = 0;
    let mut tail = Vec::new();
    loop {
        let take = if chunked { buf.len() } else { buf.len().min(length - got) };
        let rest = buf.split_off(take);
        let piece = std::mem::replace(buf, rest);
        if !piece.is_empty() {
            got += piece.len();
            tail.extend_from_slice(&piece);
            let _ = tell.send(Seen::Body(piece));
        }
        if if chunked { tail.ends_with(b"0\r\n\r\n") } else { got == length } {
            return true;
        }
        if stream.read_buf(buf).await.unwrap_or(0) == 0 {
            return false;
        }
    }
}

pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
