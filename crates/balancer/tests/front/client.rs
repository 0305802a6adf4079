//! A client of the tests: sends bytes as they are, reads answers to their end.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::PATIENCE;
use crate::backend::find;

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<String> {
        crate::header(&self.head, name)
    }
}

/// A connection.
pub struct Client<S = TcpStream> {
    pub stream: S,
    buf: Vec<u8>,
}

impl Client {
    pub async fn connect(address: std::net::SocketAddr) -> Client {
        let stream = TcpStream::connect(address).await.expect("connected");
        stream.set_nodelay(true).expect("set");
        Client::over(stream)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    pub fn over(stream: S) -> Client<S> {
        Client { stream, buf: Vec::new() }
    }

    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.expect("sent");
        self.stream.flush().await.expect("sent");
    }

    /// A whole request and its answer.
    pub async fn ask(&mut self, method: &str, target: &str, headers: &str, body: &str) -> Answer {
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        self.send(format!("{method} {target} HTTP/1.1\r\nHost: bucket.test\r\n{length}{headers}\r\n{body}")).await;
        self.answer(method == "HEAD").await
    }

    /// The next answer, which may be an interim one.
    pub async fn answer(&mut self, bodiless: bool) -> Answer {
        self.maybe_answer(bodiless).await.expect("an answer")
    }

    /// The next answer, if it comes whole.
    pub async fn maybe_answer(&mut self, bodiless: bool) -> Option<Answer> {
        let head = self.head().await?;
        let status: u16 = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        let length = crate::header(&head, "content-length").map(|text| text.parse::<usize>().expect("a number"));
        let none = bodiless || status < 200 || status == 204 || status == 304;
        let body = if none {
            Vec::new()
        } else if crate::header(&head, "transfer-encoding").is_some() {
            self.until(b"0\r\n\r\n").await?
        } else {
            self.exactly(length.expect("a length")).await?
        };
        Some(Answer { status, head, body })
    }

    pub async fn head(&mut self) -> Option<String> {
        let head = self.until(b"\r\n\r\n").await?;
        Some(String::from_utf8_lossy(&head).into_owned())
    }

    pub async fn exactly(&mut self, length: usize) -> Option<Vec<u8>> {
        while self.buf.len() < length {
            self.more().await?;
        }
        let rest = self.buf.split_off(length);
        Some(std::mem::replace(&mut self.buf, rest))
    }

    async fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = find(&self.buf, end) {
                return self.exactly(at + end.len()).await;
            }
            self.more().await?;
        }
    }

    /// Reads on; `None` at the end.
    async fn more(&mut self) -> Option<()> {
        let read = timeout(PATIENCE, self.stream.read_buf(&mut self.buf)).await.expect("in time");
        read.is_ok_and(|n| n > 0).then_some(())
    }

    /// What was not read yet, once the other side has closed.
    pub async fn rest(&mut self) -> Vec<u8> {
        while self.more().await.is_some() {}
        std::mem::take(&mut self.buf)
    }
}
