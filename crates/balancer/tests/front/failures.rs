//! Nodes and clients that fail in the middle.

use crate::backend::{Backend, Deed, Seen, ok};
use crate::{Front, config};
use balancer::Config;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;

/// Two nodes of which the first is to fail; a balancer in front of both, and turned so that the first is next.
async fn two(first: Deed) -> (Backend, Backend, Front) {
    let (first, second) = (Backend::start(first).await, Backend::start(ok("second")).await);
    // Checked once: what is found out later is found out by requests.
    let front = Front::with(Config { check_every: Duration::from_secs(3600), ..config(&[&first, &second]) }).await;
    (first, second, front)
}

#[tokio::test]
async fn a_request_whose_node_cannot_be_connected_to_goes_to_another() {
    for method in ["PUT", "GET", "DELETE", "POST"] {
        let (mut first, mut second, front) = two(ok("first")).await;
        first.die(true).await;
        let body = if method == "PUT" { "some bytes" } else { "" };
        let answer = front.client().await.ask(method, "/k", "", body).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "second"), "{method}");
        second.head().await;
        assert_eq!(second.body().await, (body.as_bytes().to_vec(), Seen::Complete));
        assert_eq!(front.metric(&format!("node_refused_total{{node=\"{}\"}}", first.address)).await, 1);
    }
}

#[tokio::test]
async fn a_mutation_that_was_sent_is_never_sent_again() {
    for method in ["PUT", "POST", "DELETE", "PATCH"] {
        let (mut first, mut second, front) = two(Deed::Close).await;
        let answer = front.client().await.ask(method, "/k", "", "some bytes").await;
        assert_eq!(answer.status, 502, "{method}");
        assert!(answer.text().contains("<Code>InternalError</Code>"), "{}", answer.text());
        assert!(answer.text().contains("may or may not have been carried out"), "{}", answer.text());
        assert_eq!(answer.header("connection").as_deref(), Some("close"));
        assert_eq!((first.heads().len(), second.heads().len()), (1, 0), "{method}");
    }
}

#[tokio::test]
async fn a_get_that_was_not_answered_is_asked_elsewhere() {
    for method in ["GET", "HEAD"] {
        let (mut first, mut second, front) = two(Deed::Close).await;
        let answer = front.client().await.ask(method, "/k", "Range: bytes=0-4\r\n", "").await;
        let body = if method == "GET" { "second" } else { "" };
        assert_eq!((answer.status, answer.text().as_str()), (200, body));
        assert_eq!((first.heads().len(), second.heads().len()), (1, 1));
        assert_eq!(front.metric("retries_total").await, 1);
    }
    let (first, second, front) = two(Deed::Close).await;
    second.set(Deed::Close);
    let answer = front.client().await.ask("GET", "/k", "", "").await;
    assert_eq!(answer.status, 502, "each node is asked once");
    assert_eq!(front.metric(&format!("node_broken_total{{node=\"{}\"}}", first.address)).await, 1);
}

#[tokio::test]
async fn an_answer_that_a_node_breaks_off_is_broken_off_and_not_asked_for_elsewhere() {
    let heads = [
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\nhalf of it\r\n",
    ];
    for head in heads {
        let (_first, mut second, front) = two(Deed::AnswerAndClose(head.as_bytes().to_vec())).await;
        let mut client = front.client().await;
        client.send("GET /k HTTP/1.1\r\nHost: h\r\n\r\n").await;
        let answer = client.head().await.expect("a head");
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let rest = client.rest().await;
        assert!(crate::backend::find(&rest, b"half of it").is_some(), "{rest:?}");
        assert!(!rest.ends_with(b"0\r\n\r\n") && rest.len() < 50, "{rest:?}");
        assert_eq!(second.heads().len(), 0);
        assert_eq!(front.metric("aborted_answers_total").await, 1);
    }
}

#[tokio::test]
async fn an_upload_that_its_client_breaks_off_is_broken_off_at_the_node() {
    let heads = ["Content-Length: 100\r\n\r\nhalf of it", "Transfer-Encoding: chunked\r\n\r\na\r\nhalf of it\r\n"];
    for head in heads {
        let mut node = Backend::start(ok("done")).await;
        let front = Front::start(&[&node]).await;
        let mut client = front.client().await;
        client.send(format!("PUT /k HTTP/1.1\r\nHost: h\r\n{head}")).await;
        node.head().await;
        let Seen::Body(begun) = node.next().await else { panic!("a piece of the body") };
        assert!(crate::backend::find(&begun, b"half of it").is_some());
        drop(client);
        let (rest, end) = node.body().await;
        assert_eq!((String::from_utf8_lossy(&rest).as_ref(), end), ("", Seen::Gone));
        assert_eq!(front.client().await.ask("GET", "/k", "", "").await.text(), "done", "the balancer goes on");
    }
}

#[tokio::test]
async fn a_download_that_its_client_breaks_off_is_broken_off_at_the_node() {
    let (_word, heard) = watch::channel(false);
    let mut node =
        Backend::start(Deed::Halves(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na".to_vec(), Vec::new(), heard))
            .await;
    let front = Front::start(&[&node]).await;
    let mut client = front.client().await;
    client.send("GET /k HTTP/1.1\r\nHost: h\r\n\r\n").await;
    assert!(client.head().await.is_some());
    node.head().await;
    drop(client);
    assert_eq!(node.next().await, Seen::Gone);
}

#[tokio::test]
async fn a_client_that_goes_before_the_answer_takes_its_request_with_it() {
    let mut node = Backend::start(Deed::Hang).await;
    let front = Front::start(&[&node]).await;
    let mut client = front.client().await;
    client.send("GET /k HTTP/1.1\r\nHost: h\r\n\r\n").await;
    node.head().await;
    drop(client);
    assert_eq!(node.next().await, Seen::Gone);
}

#[tokio::test]
async fn a_refusal_reaches_a_client_that_is_still_sending() {
    let refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 6\r\nConnection: close\r\n\r\nno way".to_vec();
    let node = Backend::start(Deed::AnswerAndClose(refusal)).await;
    let front = Front::start(&[&node]).await;
    let mut client = front.client().await;
    client.send(format!("PUT /k HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", 1 << 30)).await;
    let (mut reading, mut writing) = client.stream.into_split();
    let flood = async move {
        let piece = vec![7; 64 << 10];
        while writing.write_all(&piece).await.is_ok() {}
    };
    let read = async {
        let mut answer = Vec::new();
        // A reset after the answer is as good as its end.
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut reading, &mut answer).await;
        answer
    };
    let (_, answer) =
        tokio::time::timeout(crate::PATIENCE, async { tokio::join!(flood, read) }).await.expect("in time");
    let text = String::from_utf8_lossy(&answer);
    assert!(text.starts_with("HTTP/1.1 403 ") && text.ends_with("no way"), "{text}");
}

#[tokio::test]
async fn a_kept_connection_that_its_node_closes_costs_no_get() {
    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec();
    // It says that it keeps the connection, and closes it.
    let mut node = Backend::start(Deed::AnswerAndClose(answer)).await;
    let front = Front::start(&[&node]).await;
    let mut client = front.client().await;
    for _ in 0..100 {
        assert_eq!(client.ask("GET", "/k", "", "").await.text(), "ok");
    }
    assert_eq!(node.heads().len(), 100);
}
