//! Clients that stall. The clock is paused: it leaps to the next timeout whenever nothing else can happen.

use crate::support::{Server, read_answer, read_to_end, signed_head};
use tokio::io::AsyncWriteExt;

#[tokio::test(start_paused = true)]
async fn row_55_a_head_that_never_ends_is_cut_off() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /b/k HTTP/1.1\r\nHost: h\r\nA: ").await.expect("sent");
    assert_eq!(read_to_end(&mut stream).await.matches("200").count(), 0);
    assert!(server.calls().is_empty());
}

#[tokio::test(start_paused = true)]
async fn row_55_an_idle_connection_is_closed() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    assert_eq!(read_to_end(&mut stream).await, "");
}

#[tokio::test(start_paused = true)]
async fn row_55_a_body_that_stalls_is_a_timeout_and_stores_nothing() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    let (head, _) = signed_head("PUT", "/b/k", "UNSIGNED-PAYLOAD", &[("content-length", "10")]);
    stream.write_all(head.as_bytes()).await.expect("sent");
    stream.write_all(b"abc").await.expect("sent");
    let answer = read_answer(&mut stream).await;
    assert!(answer.contains("<Code>RequestTimeout</Code>"), "{answer}");
    assert!(server.stored().is_empty());
    assert_eq!(read_to_end(&mut stream).await, "", "the connection ends");
}

#[tokio::test(start_paused = true)]
async fn row_55_a_reader_that_stalls_is_cut_off() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /b/huge HTTP/1.1\r\nHost: h\r\n\r\n").await.expect("sent");
    // Nothing is read; the server's buffers fill, and it gives up.
    server.seen.observed.notified().await;
    let observations = server.seen.observations.lock();
    assert!(observations[0].aborted && observations[0].bytes_out < 1 << 30);
}
