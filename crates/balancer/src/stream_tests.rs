//! Tests of the stream, over memory.

use super::{ClientStream, Returned};
use crate::connection::Connection;
use crate::limits::{CLIENT_IDLE_MAX, HEAD_TIMEOUT, HOLD_MAX_BYTES};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

fn pair(size: usize) -> (ClientStream<DuplexStream>, DuplexStream, oneshot::Receiver<Returned<DuplexStream>>) {
    let (ours, theirs) = duplex(size);
    let (back, returned) = oneshot::channel();
    let connection = Arc::new(Connection::new(([127, 0, 0, 1], 1).into()));
    connection.set_waiting(true);
    (ClientStream::new(ours, connection, back), theirs, returned)
}

#[tokio::test]
async fn a_head_leaves_with_the_first_bytes_of_its_body() {
    let (mut stream, mut client, _returned) = pair(1 << 20);
    stream.write_all(b"head").await.expect("written");
    let nothing = tokio::time::timeout(Duration::ZERO, client.read_u8()).await;
    assert!(nothing.is_err(), "the head waits");
    stream.write_all(&[7; HOLD_MAX_BYTES]).await.expect("written");
    let mut buf = vec![0; 2 * HOLD_MAX_BYTES];
    assert_eq!(client.read(&mut buf).await.expect("read"), 4 + HOLD_MAX_BYTES, "both at once");
    stream.write_all(b"tail").await.expect("written");
    stream.flush().await.expect("flushed");
    assert_eq!(client.read(&mut buf).await.expect("read"), 4);
}

#[tokio::test]
async fn what_is_held_leaves_when_nothing_more_comes() {
    let (mut stream, mut client, _returned) = pair(1 << 10);
    stream.write_all(b"head").await.expect("written");
    let mut buf = [0; 8];
    tokio::select! {
        _ = stream.read(&mut buf) => panic!("the client says nothing"),
        byte = client.read_u8() => assert_eq!(byte.expect("read"), b'h'),
    }
}

#[tokio::test]
async fn everything_written_arrives_in_order_however_little_fits() {
    let (mut stream, mut client, _returned) = pair(7);
    let written: Vec<u8> = (0..40_000u32).map(|i| i as u8).collect();
    let expected = written.clone();
    let write = async move {
        for piece in [&written[..3], &written[3..9000], &written[9000..9001], &written[9001..]] {
            stream.write_all(piece).await.expect("written");
        }
        stream.shutdown().await.expect("shut down");
    };
    let mut got = Vec::new();
    let (_, read) = tokio::join!(write, client.read_to_end(&mut got));
    read.expect("read");
    assert!(got == expected);
}

#[tokio::test(start_paused = true)]
async fn a_head_has_fifteen_seconds_and_an_idle_connection_more() {
    let (mut stream, mut client, _returned) = pair(1 << 10);
    let mut buf = vec![0; 64];
    let began = Instant::now();
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("written");
    assert_eq!(stream.read(&mut buf).await.expect("read"), 18);
    let error = stream.read(&mut buf).await.expect_err("too late");
    assert_eq!((error.kind(), began.elapsed().as_secs()), (io::ErrorKind::TimedOut, CLIENT_IDLE_MAX.as_secs()));

    let (mut stream, mut client, _returned) = pair(1 << 10);
    let began = Instant::now();
    let drip = async {
        loop {
            client.write_all(b"x").await.expect("written");
            sleep(Duration::from_secs(4)).await;
        }
    };
    let read = async { while stream.read(&mut buf).await.is_ok_and(|n| n > 0) {} };
    tokio::select! { () = drip => {}, () = read => {} }
    assert_eq!(began.elapsed(), HEAD_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_timed_while_a_request_is_in_flight() {
    let (mut stream, mut client, _returned) = pair(1 << 10);
    stream.connection.set_waiting(false);
    let later = async {
        sleep(10 * CLIENT_IDLE_MAX).await;
        client.write_all(b"G").await.expect("written");
    };
    let mut buf = [0; 8];
    let (_, read) = tokio::join!(later, stream.read(&mut buf));
    assert_eq!(read.expect("read"), 1);
}

#[tokio::test]
async fn a_violated_head_ends_so_that_a_parser_refuses_it_and_a_violated_body_is_an_error() {
    let (mut stream, mut client, _returned) = pair(1 << 10);
    client.write_all(b"GET / HTTP/1.1\nGET /second HTTP/1.1\r\n\r\n").await.expect("written");
    let mut got = Vec::new();
    stream.read_to_end(&mut got).await.expect("read");
    assert_eq!(got, b"GET / HTTP/1.1\0\r\n\r\n");
    assert!(!stream.connection.is_violated());

    let (mut stream, mut client, _returned) = pair(1 << 10);
    client.write_all(b"PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\n").await.expect("written");
    let mut got = Vec::new();
    let error = stream.read_to_end(&mut got).await.expect_err("refused");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(got.ends_with(b"\r\n\r\n1;x=y\r\0"), "the head arrived: {got:?}");
    assert!(stream.connection.is_violated());
}

#[tokio::test]
async fn the_socket_comes_back_with_what_was_not_written() {
    let (mut stream, _client, returned) = pair(1 << 10);
    stream.write_all(b"rest").await.expect("written");
    drop(stream);
    assert_eq!(returned.await.expect("back").1, b"rest");
}
