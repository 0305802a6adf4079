//! What passes through: as if there were no balancer.

use crate::backend::{Backend, Deed, Seen, ok};
use crate::client::Client;
use crate::{Front, config, header, tls_files};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

#[tokio::test]
async fn target_host_and_headers_arrive_as_they_were_sent() {
    let mut node = Backend::start(ok("")).await;
    let front = Front::start(&[&node]).await;
    let mut client = front.client().await;
    let sent = [
        ("host", "Bucket.Example.COM:8080"),
        ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
        ("x-amz-trailer", "x-amz-checksum-crc32"),
        ("content-encoding", "aws-chunked,gzip"),
        ("x-amz-meta-two", "a  b"),
        ("x-amz-meta-utf8", "\u{e9}"),
        ("x-amz-meta-empty", ""),
        ("range", "bytes=0-"),
        ("te", "trailers"),
        ("accept-encoding", "identity"),
        (
            "authorization",
            "AWS4-HMAC-SHA256 Credential=A/d/r/s3/aws4_request, SignedHeaders=host;x-amz-meta-two, Signature=0",
        ),
    ];
    let targets =
        ["/b//a/../b/./%2F%e2?list-type=2&prefix=%20+&x=&y", "/lead//", "/\u{fc}\"{}|^", "*", "/b?versionId=null&x=%"];
    for target in targets {
        let headers: String = sent.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        client.send(format!("PUT {target} HTTP/1.1\r\n{headers}Content-Length: 0\r\n\r\n")).await;
        assert_eq!(client.answer(false).await.status, 200, "{target}");
        let head = node.head().await;
        assert!(head.starts_with(&format!("PUT {target} HTTP/1.1\r\n")), "{head}");
        for (name, value) in sent {
            assert_eq!(header(&head, name).as_deref(), Some(value), "{head}");
        }
        assert_eq!(header(&head, "x-forwarded-for").as_deref(), Some("127.0.0.1"));
        assert_eq!(head.lines().count(), 2 + sent.len() + 2, "nothing else was added:\n{head}");
    }
}

#[tokio::test]
async fn answers_without_bodies_leave_the_connection_in_step() {
    let node = Backend::start(ok("")).await;
    let front = Front::start(&[&node]).await;
    let mut client = front.client().await;
    let cases = [
        ("HEAD", "200 OK", "Content-Length: 1000\r\nETag: \"x\"\r\n", Some("1000")),
        ("HEAD", "404 Not Found", "", None),
        ("DELETE", "204 No Content", "", None),
        ("GET", "304 Not Modified", "ETag: \"x\"\r\nContent-Length: 1000\r\n", Some("1000")),
        ("GET", "304 Not Modified", "ETag: \"x\"\r\n", None),
    ];
    for (method, status, headers, length) in cases {
        node.set(Deed::Answer(format!("HTTP/1.1 {status}\r\n{headers}\r\n").into_bytes()));
        let answer = client.ask(method, "/k", "", "").await;
        assert!(answer.head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{}", answer.head);
        assert_eq!(answer.header("content-length").as_deref(), length, "{method} {status}");
        assert_eq!(answer.header("connection").as_deref(), Some("keep-alive"));
        assert_eq!(answer.header("transfer-encoding"), None, "{method} {status}");
        node.set(ok("in step"));
        assert_eq!(client.ask("GET", "/k", "", "").await.text(), "in step", "after {method} {status}");
    }
}

#[tokio::test]
async fn bodies_stream_both_ways() {
    let (word, heard) = watch::channel(false);
    let mut node = Backend::start(ok("done")).await;
    let front = Front::start(&[&node]).await;
    // Pingora may hold back what is smaller than a segment.
    let half = "x".repeat(2000);
    for chunked in [false, true] {
        let mut client = front.client().await;
        let (framing, first, second) = match chunked {
            false => ("Content-Length: 2004", half.clone(), "rest"),
            true => ("Transfer-Encoding: chunked", format!("7d0\r\n{half}\r\n"), "4\r\nrest\r\n0\r\n\r\n"),
        };
        client.send(format!("PUT /k HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n{first}")).await;
        node.head().await;
        let mut got = Vec::new();
        while got.len() < first.len() {
            let Seen::Body(bytes) = node.next().await else { panic!("a piece of the body") };
            got.extend(bytes);
        }
        assert!(got.eq_ignore_ascii_case(first.as_bytes()), "before the rest is sent");
        client.send(second).await;
        assert_eq!(node.body().await, (second.as_bytes().to_vec(), Seen::Complete));
        assert_eq!(client.answer(false).await.text(), "done");
    }
    for (first, second) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf", "rest"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", "4\r\nrest\r\n0\r\n\r\n"),
    ] {
        node.set(Deed::Halves(first.into(), second.into(), heard.clone()));
        word.send_replace(false);
        let mut client = front.client().await;
        client.send("GET /k HTTP/1.1\r\nHost: h\r\n\r\n").await;
        assert!(client.head().await.is_some());
        let body = first.split_once("\r\n\r\n").expect("a head").1;
        assert_eq!(client.exactly(body.len()).await.as_deref(), Some(body.as_bytes()), "before the rest is sent");
        word.send_replace(true);
        assert_eq!(client.exactly(second.len()).await.as_deref(), Some(second.as_bytes()));
    }
}

#[tokio::test]
async fn bodies_larger_than_any_buffer_arrive_whole() {
    let body: String = (0..3_000_000u32).map(|i| char::from(b'a' + (i % 23) as u8)).collect();
    let mut node = Backend::start(ok(&body)).await;
    let front = Front::start(&[&node]).await;
    let mut client = front.client().await;
    let (mut reading, mut writing) = TcpStream::connect(front.address).await.expect("connected").into_split();
    let head = format!("PUT /k HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", body.len());
    tokio::io::AsyncWriteExt::write_all(&mut writing, head.as_bytes()).await.expect("sent");
    tokio::io::AsyncWriteExt::write_all(&mut writing, body.as_bytes()).await.expect("sent");
    node.head().await;
    let (got, end) = node.body().await;
    assert!(got == body.as_bytes() && end == Seen::Complete);
    assert_eq!(tokio::io::AsyncReadExt::read_u8(&mut reading).await.expect("an answer"), b'H');
    assert!(client.ask("GET", "/k", "", "").await.body == body.as_bytes());
}

#[tokio::test]
async fn a_client_that_asks_before_it_sends_hears_the_node() {
    let go_on = b"HTTP/1.1 100 Continue\r\n\r\n".to_vec();
    let Deed::Answer(done) = ok("done") else { panic!("an answer") };
    let mut node = Backend::start(Deed::Interim(go_on, done)).await;
    let front = Front::start(&[&node]).await;
    let mut client = front.client().await;
    let head = "PUT /k HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
    for _ in 0..3 {
        client.send(head).await;
        assert_eq!(client.answer(false).await.status, 100);
        assert_eq!(header(&node.head().await, "expect").as_deref(), Some("100-continue"));
        client.send("body").await;
        assert_eq!(node.body().await, (b"body".to_vec(), Seen::Complete));
        assert_eq!(client.answer(false).await.text(), "done");
    }
    // Refused before anything was sent: the answer comes without the body.
    let refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno".to_vec();
    node.set(Deed::AnswerAndClose(refusal));
    client.send(head).await;
    let answer = client.answer(false).await;
    assert_eq!((answer.status, answer.text().as_str()), (403, "no"));
    assert_eq!(
        answer.header("connection").as_deref(),
        Some("close"),
        "or the next request might be taken for the body"
    );
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_their_order() {
    let mut node = Backend::start(ok("one")).await;
    let front = Front::start(&[&node]).await;
    let mut client = front.client().await;
    client
        .send("PUT /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabcGET /2 HTTP/1.1\r\nHost: h\r\n\r\nGET /3")
        .await;
    assert_eq!(client.answer(false).await.text(), "one");
    assert_eq!(client.answer(false).await.text(), "one");
    client.send(" HTTP/1.1\r\nHost: h\r\n\r\n").await;
    assert_eq!(client.answer(false).await.text(), "one");
    let targets: Vec<String> =
        node.heads().iter().map(|head| head.split(' ').nth(1).expect("a target").to_owned()).collect();
    assert_eq!(targets, ["/1", "/2", "/3"]);
}

#[tokio::test]
async fn an_old_client_is_served_and_its_connection_closed() {
    let node = Backend::start(ok("done")).await;
    let front = Front::start(&[&node]).await;
    let mut client = front.client().await;
    client.send("GET /k HTTP/1.0\r\nHost: h\r\n\r\n").await;
    assert_eq!(client.answer(false).await.text(), "done");
    assert_eq!(client.rest().await, b"");
}

#[tokio::test]
async fn clients_may_speak_tls() {
    let node = Backend::start(ok("done")).await;
    let front = Front::with(balancer::Config { tls: Some(tls_files()), ..config(&[&node]) }).await;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(tls_files().certificate).expect("a certificate")).expect("trusted");
    let trust = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(trust));
    let name = || "localhost".try_into().expect("a name");
    let stream = TcpStream::connect(front.address).await.expect("connected");
    let mut client = Client::over(connector.connect(name(), stream).await.expect("TLS"));
    let long = "x".repeat(100_000);
    for body in ["", "short", &long] {
        node.set(ok(body));
        assert!(client.ask("PUT", "/k", "", body).await.text() == body);
    }
    // Nothing is served without TLS there.
    let mut plain = front.client().await;
    plain.send("GET /k HTTP/1.1\r\nHost: h\r\n\r\n").await;
    assert!(!plain.rest().await.starts_with(b"HTTP/"));
    let wrong = balancer::TlsFiles { certificate: tls_files().key, key: tls_files().certificate };
    let refused = balancer::Balancer::start(balancer::Config { tls: Some(wrong), ..config(&[&node]) }).await;
    assert!(matches!(refused, Err(balancer::StartError::Tls(_))));
}
