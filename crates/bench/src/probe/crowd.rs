//! Many connections that ask for little: slow readers, slow writers, and such that mostly wait.
//!
//! Promises: a member whose connection ends opens another, and that is counted; nobody sends or takes more than a few bytes a second.
//! Refuses to know: what is measured meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::client::{Client, Request, Target};
use crate::{BenchError, clock};

/// How often a slow one moves, and how many bytes.
const PACE: Duration = Duration::from_secs(1);
const PACE_BYTES: usize = 4;
/// How often one that waits asks for something.
const PATIENCE: Duration = Duration::from_secs(5);
/// Receive buffer of a slow reader: the kernel doubles it, and it must not swallow the answer.
const READER_BUFFER_BYTES: u32 = 4 << 10;
/// Length of what a slow writer says it will send.
const WRITER_BODY_BYTES: usize = 64 << 10;
/// A crowd must have gathered within this time.
const GATHER_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two looks at how many there are.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Connections begun before the others get a turn: accept queues are short.
const BURST: usize = 64;

/// What a member does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Habit {
    /// GET of a large object, read a few bytes a second.
    Reads,
    /// PUT of a body that comes a few bytes a second.
    Writes,
    /// HEAD now and then on a connection that is kept.
    Waits,
}

/// Members together.
#[derive(Default)]
struct Counts {
    /// Connections that were begun and got as far as their request.
    settled: AtomicU64,
    /// Connections that ended against our will.
    ended: AtomicU64,
}

/// Connections of their own habits; they end when this is dropped.
pub(super) struct Crowd {
    members: JoinSet<()>,
    counts: Arc<Counts>,
    place: Place,
}

/// Where they ask, and for what.
#[derive(Clone)]
pub(super) struct Place {
    target: Target,
    address: SocketAddr,
    /// `/bucket/key` of a large object.
    large: String,
    /// `/bucket/` and the beginning of keys that are never finished.
    written: String,
}

impl Place {
    /// Looks the address up.
    pub(super) async fn new(target: &Target, bucket: &str, large: &str) -> Result<Place, BenchError> {
        let found = tokio::net::lookup_host(&target.address).await;
        let mut found = found.map_err(BenchError::local(format!("look up {}", target.address)))?;
        let unknown = || BenchError::Usage(format!("{} has no address", target.address));
        let address = found.next().ok_or_else(unknown)?;
        let large = format!("/{bucket}/{large}");
        Ok(Place { target: target.clone(), address, large, written: format!("/{bucket}/never-finished-") })
    }
}

impl Crowd {
    pub(super) fn new(place: Place) -> Crowd {
        Crowd { members: JoinSet::new(), counts: Arc::default(), place }
    }

    /// Adds members with these habits in turn, and waits until each has sent its first request.
    pub(super) async fn add(&mut self, count: usize, habits: &[Habit]) -> Result<(), BenchError> {
        let wanted = self.members.len() + count;
        let deadline = clock::monotonic() + GATHER_TIMEOUT;
        for (number, habit) in (self.members.len()..wanted).zip(habits.iter().cycle()) {
            self.members.spawn(live(self.place.clone(), *habit, number, self.counts.clone()));
            if number % BURST == 0 {
                tokio::task::yield_now().await;
            }
        }
        while self.settled() < wanted as u64 {
            if clock::monotonic() >= deadline {
                return Err(BenchError::Server(format!("took only {} of {wanted} connections", self.settled())));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }

    /// Connections that got as far as their request, ended ones included.
    fn settled(&self) -> u64 {
        self.counts.settled.load(Ordering::Relaxed)
    }

    /// Connections that ended against our will, so far.
    pub(super) fn ended(&self) -> u64 {
        self.counts.ended.load(Ordering::Relaxed)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Ends all of them.
    pub(super) async fn disperse(mut self) {
        self.members.shutdown().await;
    }
}

async fn live(place: Place, habit: Habit, number: usize, counts: Arc<Counts>) {
    loop {
        // How it ended does not matter: it was not to end.
        let _ = match habit {
            Habit::Reads => read_slowly(&place, &counts).await,
            Habit::Writes => write_slowly(&place, number, &counts).await,
            Habit::Waits => wait(&place, &counts).await,
        };
        counts.ended.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PACE).await;
    }
}

async fn connect(place: &Place, receive_buffer: Option<u32>) -> std::io::Result<TcpStream> {
    let socket = if place.address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(bytes) = receive_buffer {
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.connect(place.address).await
}

async fn read_slowly(place: &Place, counts: &Counts) -> std::io::Result<()> {
    let mut stream = connect(place, Some(READER_BUFFER_BYTES)).await?;
    let request = Request { method: "GET", path: &place.large, ..Request::default() };
    stream.write_all(Client::new(&place.target).request_head(&request).as_bytes()).await?;
    counts.settled.fetch_add(1, Ordering::Relaxed);
    let mut piece = [0; PACE_BYTES];
    while stream.read(&mut piece).await? > 0 {
        tokio::time::sleep(PACE).await;
    }
    Ok(())
}

async fn write_slowly(place: &Place, number: usize, counts: &Counts) -> std::io::Result<()> {
    let mut stream = connect(place, None).await?;
    let path = format!("{}{number}", place.written);
    let body = vec![0; WRITER_BODY_BYTES];
    let request = Request { method: "PUT", path: &path, body: Some(&body), ..Request::default() };
    stream.write_all(Client::new(&place.target).request_head(&request).as_bytes()).await?;
    counts.settled.fetch_add(1, Ordering::Relaxed);
    for piece in body.chunks(PACE_BYTES) {
        stream.write_all(piece).await?;
        // An answer before the end of the body is a refusal.
        if stream.try_read(&mut [0; 1]).is_ok() {
            return Ok(());
        }
        tokio::time::sleep(PACE).await;
    }
    Ok(())
}

async fn wait(place: &Place, counts: &Counts) -> std::io::Result<()> {
    let mut client = Client::new(&place.target);
    let mut is_first = true;
    while client.head(&place.large).await.is_ok() {
        if is_first {
            counts.settled.fetch_add(1, Ordering::Relaxed);
            is_first = false;
        }
        tokio::time::sleep(PATIENCE).await;
    }
    Ok(())
}

/// What a fresh connection that asks for the large object is answered, if that is a refusal: its head and its body.
pub(super) async fn refusal(place: &Place) -> Option<String> {
    let ask = async {
        let mut stream = connect(place, None).await?;
        let request = Request { method: "GET", path: &place.large, ..Request::default() };
        stream.write_all(Client::new(&place.target).request_head(&request).as_bytes()).await?;
        let mut answer = Vec::new();
        let mut piece = [0; 4096];
        while !answer.windows(8).any(|end| end == b"</Error>") && !answer.starts_with(b"HTTP/1.1 200") {
            match stream.read(&mut piece).await? {
                0 => break,
                count => answer.extend_from_slice(&piece[..count]),
            }
        }
        std::io::Result::Ok(answer)
    };
    let answer = tokio::time::timeout(PATIENCE, ask).await.ok()?.ok()?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    (!text.starts_with("HTTP/1.1 200")).then_some(text)
}
