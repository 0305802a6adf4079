//! Asks a node whether it is ready, again and again, by itself.
//!
//! Promises: one failed check and the node is not picked any more; one that passed and it is again. A check ends within
//! [`CHECK_TIMEOUT`]. Refuses to know: requests.

use crate::limits::{CHECK_ANSWER_MAX_BYTES, CHECK_TIMEOUT};
use crate::nodes::{Node, Nodes};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Checks every node once; done when all have answered or failed to.
pub async fn check_all(nodes: &Arc<Nodes>) {
    let mut checks = JoinSet::new();
    for index in 0..nodes.all().len() {
        let nodes = Arc::clone(nodes);
        checks.spawn(async move { check_and_tell(&nodes, index, true).await });
    }
    while checks.join_next().await.is_some() {}
}

/// Checks one node for ever.
pub async fn watch(nodes: Arc<Nodes>, index: usize, every: Duration) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        check_and_tell(&nodes, index, false).await;
    }
}

async fn check_and_tell(nodes: &Nodes, index: usize, first: bool) {
    let Some(node) = nodes.all().get(index) else { return };
    let result = timeout(CHECK_TIMEOUT, check(node)).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    let is_news = nodes.set_healthy(index, result.is_ok());
    if !is_news && !first {
        return;
    }
    match result {
        Ok(()) => tracing::info!(node = node.names.endpoint, "a node is ready and gets requests"),
        Err(error) => tracing::warn!(node = node.names.endpoint, %error, "a node is not ready and gets no requests"),
    }
}

/// Connects to the node's endpoint by its name, so that a node may move and of several addresses the right one is found, and asks.
async fn check(node: &Node) -> io::Result<()> {
    let stream = TcpStream::connect(&node.names.endpoint).await?;
    let address = stream.peer_addr()?;
    match &node.names.admin {
        Some(admin) => {
            let status = ask(TcpStream::connect(admin).await?, "GET /-/ready", admin).await?;
            if status != 200 {
                return Err(io::Error::other(format!("it answered {status} when asked whether it is ready")));
            }
        }
        None => {
            // Nobody may list the buckets without a signature: any answer but a failure shows that it works.
            let status = ask(stream, "GET /", &node.names.endpoint).await?;
            if status >= 500 {
                return Err(io::Error::other(format!("it answered {status}")));
            }
        }
    }
    *node.address.write() = Some(address);
    Ok(())
}

async fn ask(mut stream: TcpStream, what: &str, host: &str) -> io::Result<u16> {
    let request =
        format!("{what} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: ashlar-balancer\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::with_capacity(CHECK_ANSWER_MAX_BYTES);
    while answer.len() < CHECK_ANSWER_MAX_BYTES && !answer.contains(&b'\n') {
        if stream.read_buf(&mut answer).await? == 0 {
            break;
        }
    }
    status(&answer).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it did not answer in HTTP"))
}

fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|c| *c == b'\r').next()?;
    let text = std::str::from_utf8(line).ok()?;
    let mut words = text.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    words.next().filter(|code| code.len() == 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::status;

    #[test]
    fn only_a_status_line_is_an_answer() {
        assert_eq!(status(b"HTTP/1.1 200 OK\r\nx: y"), Some(200));
        assert_eq!(status(b"HTTP/1.0 503\r\n"), Some(503));
        for wrong in [&b""[..], b"SSH-2.0-x\r\n", b"HTTP/1.1 20\r\n", b"HTTP/1.1 abc OK\r\n", b"\xff\r\n"] {
            assert_eq!(status(wrong), None, "{wrong:?}");
        }
    }
}
