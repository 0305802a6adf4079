//! The server over real sockets: framing, attacks, ends of connections, shutdown.

use crate::support::{Server, read_answer, read_to_end, signed, signed_head};
use s3::server::ServerConfig;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const GET: &[u8] = b"GET /b/k HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";

#[tokio::test]
async fn an_answer_carries_ids_date_and_server_and_keeps_the_connection() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    for _ in 0..2 {
        stream.write_all(GET).await.expect("sent");
        let answer = read_answer(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        for header in ["x-amz-request-id: ", "x-amz-id-2: ", "date: ", "server: Ashlar", "content-length: 5"] {
            assert!(answer.contains(header), "{header} {answer}");
        }
        assert!(answer.ends_with("\r\n\r\nhello"));
    }
    assert_eq!(server.calls(), ["GET k anonymous", "GET k anonymous"]);
}

#[tokio::test]
async fn head_and_small_body_leave_in_one_segment() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    stream.write_all(GET).await.expect("sent");
    let mut buf = [0; 4096];
    let n = stream.read(&mut buf).await.expect("an answer");
    assert!(buf[..n].ends_with(b"\r\n\r\nhello"));
}

#[tokio::test]
async fn head_and_first_bytes_of_a_stream_leave_in_one_segment_also_if_those_come_late() {
    let server = Server::start().await;
    for key in ["stream", "late"] {
        let mut stream = server.connect().await;
        stream.write_all(format!("GET /b/{key} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).await.expect("sent");
        let mut buf = [0; 4096];
        let n = stream.read(&mut buf).await.expect("an answer");
        let answer = String::from_utf8_lossy(&buf[..n]);
        assert!(answer.contains("\r\n\r\nabc"), "{answer}");
    }
}

#[tokio::test]
async fn a_body_whose_first_bytes_cannot_be_had_is_an_error_and_not_a_broken_answer() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    for (key, status, code) in [("unreadable", 500, "InternalError"), ("unavailable", 503, "ServiceUnavailable")] {
        stream.write_all(format!("GET /b/{key} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).await.expect("sent");
        let answer = read_answer(&mut stream).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.contains(&format!("<Code>{code}</Code>")) && answer.contains("<RequestId>"), "{answer}");
    }
    stream.write_all(GET).await.expect("the connection is as good as before");
    assert!(read_answer(&mut stream).await.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn errors_are_xml_and_head_errors_have_no_body() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    stream.write_all(b"HEAD /b/missing HTTP/1.1\r\nHost: h\r\n\r\n").await.expect("sent");
    stream.write_all(b"GET /b/missing HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await.expect("sent");
    let both = read_to_end(&mut stream).await;
    let (head, get) = both.split_once("\r\n\r\n").expect("two answers");
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");
    assert!(head.contains("x-amz-request-id: "));
    assert!(get.starts_with("HTTP/1.1 404"), "no body before the second answer: {get}");
    assert!(get.contains("<Error><Code>NoSuchKey</Code>") && get.contains("<Resource>/b/missing</Resource>"), "{get}");
    assert!(get.contains("<HostId>") && get.contains("<RequestId>"));
}

#[tokio::test]
async fn head_names_the_length_without_a_body() {
    let server = Server::start().await;
    let answer = server.exchange(b"HEAD /b/k HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await;
    assert!(answer.contains("content-length: 5\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
}

#[tokio::test]
async fn a_signed_put_is_stored_and_a_forged_one_is_not() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    stream.write_all(&signed("PUT", "/b/a%20b", b"data", &[])).await.expect("sent");
    assert!(read_answer(&mut stream).await.starts_with("HTTP/1.1 200"));
    assert_eq!(server.stored(), [("a b".to_owned(), "data".into())]);
    // Row 9: another body under the same signature.
    let mut replayed = signed("PUT", "/b/a%20b", b"data", &[]);
    let end = replayed.len();
    replayed[end - 4..].copy_from_slice(b"evil");
    stream.write_all(&replayed).await.expect("sent");
    let answer = read_answer(&mut stream).await;
    assert!(answer.contains("<Code>XAmzContentSHA256Mismatch</Code>"), "{answer}");
    let forged = signed("PUT", "/b/k", b"data", &[]);
    let forged = String::from_utf8(forged).expect("text").replace("PUT /b/k", "PUT /b/j");
    stream.write_all(forged.as_bytes()).await.expect("sent");
    let answer = read_answer(&mut stream).await;
    assert!(answer.contains("<Code>SignatureDoesNotMatch</Code>") && answer.contains("<CanonicalRequest>PUT\n/b/j"));
    assert!(!answer.contains(crate::support::SECRET));
    assert_eq!(server.stored().len(), 1);
}

#[tokio::test]
async fn row_57_a_smuggled_request_never_runs() {
    let server = Server::start().await;
    let smuggled = "GET /b/smuggled HTTP/1.1\r\nHost: h\r\n\r\n";
    for head in [
        "PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "PUT /b/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nContent-Length: 39\r\n\r\n",
        "PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
        "GET /b/k HTTP/1.1\r\nHost: h\r\nA: b\r\n folded\r\n\r\n",
        "GET /b/k HTTP/1.1\nHost: h\n\n",
        "GET /b/k HTTP/1.1\r\nHost: h\n\r\n",
        "PUT /b/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n",
        "PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length : 0\r\n\r\n",
        "PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n",
    ] {
        let answer = server.exchange(format!("{head}{smuggled}").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{head:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{head:?}: {answer}");
    }
    assert_eq!(server.calls(), Vec::<String>::new());
}

#[tokio::test]
async fn row_57_a_smuggled_request_that_arrives_byte_by_byte_is_refused_too() {
    let server = Server::start().await;
    for raw in [
        "PUT /b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET /b/k HTTP/1.1\r\nHost: h\r\n folded: x\r\n\r\n",
        "GET /b/k HTTP/1.1\nHost: h\n\n",
    ] {
        let mut stream = server.connect().await;
        for byte in raw.bytes() {
            if stream.write_all(&[byte]).await.is_err() {
                break;
            }
            tokio::task::yield_now().await;
        }
        let answer = read_to_end(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{raw:?}: {answer}");
    }
    assert!(server.calls().is_empty());
}

#[tokio::test]
async fn row_57_a_bad_request_behind_a_good_one_does_not_disturb_its_answer() {
    let server = Server::start().await;
    let raw = [GET, b"GET /b/evil HTTP/1.1\nHost: h\n\n", GET].concat();
    let answer = server.exchange(&raw).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("hello"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 2, "{answer}");
    assert!(answer.contains("HTTP/1.1 400"), "{answer}");
    assert_eq!(server.calls(), ["GET k anonymous"]);
}

#[tokio::test]
async fn row_57_chunk_extensions_and_bad_chunks_store_nothing() {
    let server = Server::start().await;
    let head = "PUT /b/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in
        ["1;a=b\r\nx\r\n0\r\n\r\n", "1\nx\r\n0\r\n\r\n", "00000000000000001\r\nx\r\n0\r\n\r\n", "1\r\nxy\r\n0\r\n\r\n"]
    {
        let answer =
            server.exchange(format!("{head}{body}GET /b/smuggled HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).await;
        assert!(!answer.contains(" 200 "), "{body:?}: {answer}");
    }
    assert!(server.stored().is_empty());
    assert!(server.calls().iter().all(|c| !c.contains("smuggled")));
}

#[tokio::test]
async fn a_body_in_http_chunks_is_stored() {
    let server = Server::start().await;
    let raw = b"PUT /b/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    assert!(server.exchange(raw).await.starts_with("HTTP/1.1 200"));
    assert_eq!(server.stored(), [("k".to_owned(), "abcde".into())]);
}

#[tokio::test]
async fn row_54_too_many_or_too_large_headers_are_refused() {
    let server = Server::start().await;
    let many: String = (0..10_000).map(|i| format!("h{i}: x\r\n")).collect();
    let answer = server.exchange(format!("GET / HTTP/1.1\r\nHost: h\r\n{many}\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    let some: String = (0..150).map(|i| format!("h{i}: x\r\n")).collect();
    let answer = server.exchange(format!("GET / HTTP/1.1\r\nHost: h\r\n{some}\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    let large = "x".repeat(1 << 20);
    let answer = server.exchange(format!("GET / HTTP/1.1\r\nHost: h\r\nA: {large}\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    assert!(server.calls().is_empty());
}

#[tokio::test]
async fn row_66_and_22_targets_are_literal_or_refused() {
    let server = Server::start().await;
    for bad in ["/b/%", "/b/%00", "/b/%ff", "/b/%zz"] {
        let raw = format!("GET {bad} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        assert!(server.exchange(raw.as_bytes()).await.starts_with("HTTP/1.1 400"), "{bad}");
    }
    for (path, key) in [("/b/../other/x", "../other/x"), ("/b//a//b", "/a//b"), ("/b/%2e%2e/x", "../x")] {
        let raw = format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        server.exchange(raw.as_bytes()).await;
        assert_eq!(server.calls().last().expect("called"), &format!("GET {key} anonymous"));
    }
}

#[tokio::test]
async fn a_request_without_exactly_one_host_is_refused() {
    let server = Server::start().await;
    for head in [
        "GET /b/k HTTP/1.1\r\n",
        "GET /b/k HTTP/1.1\r\nHost: a\r\nHost: b\r\n",
        "GET http://other/b/k HTTP/1.1\r\nHost: a\r\n",
    ] {
        let answer = server.exchange(format!("{head}Connection: close\r\n\r\n").as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{head:?} {answer}");
    }
    assert!(server.calls().is_empty());
}

#[tokio::test]
async fn a_stream_of_the_announced_length_ends_cleanly() {
    let server = Server::start().await;
    let answer = server.exchange(b"GET /b/stream HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await;
    assert!(answer.ends_with("\r\n\r\nabcdef") && answer.contains("content-length: 6"), "{answer}");
}

#[tokio::test]
async fn a_damaged_or_short_stream_is_never_a_whole_answer() {
    let server = Server::start().await;
    for key in ["damaged", "short", "long"] {
        let mut stream = server.connect().await;
        stream.write_all(format!("GET /b/{key} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).await.expect("sent");
        // Not `Connection: close`: a clean end would leave the connection open.
        let answer = read_to_end(&mut stream).await;
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, b)| b);
        assert!(body.len() < 6, "{key}: {answer}");
    }
    let aborted = server.seen.observations.lock().iter().filter(|o| o.aborted).count();
    assert_eq!(aborted, 3);
}

#[tokio::test]
async fn a_refused_small_body_is_drained_and_the_connection_lives() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    let body = vec![b'x'; 512 << 10];
    stream.write_all(&signed("PUT", "/b/unread", &body, &[])).await.expect("sent");
    assert!(read_answer(&mut stream).await.starts_with("HTTP/1.1 403"));
    stream.write_all(GET).await.expect("sent");
    assert!(read_answer(&mut stream).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_refused_large_body_is_answered_before_the_connection_ends() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    let (head, _) = signed_head("PUT", "/b/unread", "UNSIGNED-PAYLOAD", &[("content-length", "1000000000")]);
    stream.write_all(head.as_bytes()).await.expect("sent");
    let (mut reader, mut writer) = stream.split();
    let send = async {
        let piece = vec![0; 64 << 10];
        // Ends with an error when the server closes.
        while writer.write_all(&piece).await.is_ok() {}
    };
    let receive = async {
        let mut buf = vec![0; 4096];
        let n = reader.read(&mut buf).await.expect("an answer and no reset before it");
        String::from_utf8_lossy(&buf[..n]).into_owned()
    };
    let ((), answer) = tokio::join!(send, receive);
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
}

#[tokio::test]
async fn case_121_expect_continue_is_sent_only_if_the_body_is_wanted() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    let (head, _) =
        signed_head("PUT", "/b/k", "UNSIGNED-PAYLOAD", &[("content-length", "3"), ("expect", "100-continue")]);
    stream.write_all(head.as_bytes()).await.expect("sent");
    assert!(read_answer(&mut stream).await.starts_with("HTTP/1.1 100 Continue"));
    stream.write_all(b"abc").await.expect("sent");
    assert!(read_answer(&mut stream).await.starts_with("HTTP/1.1 200"));
    // A signature that does not hold: the final answer, no 100, and an end.
    let bad = head.replace("/b/k", "/b/j");
    let answer = server.exchange(bad.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
}

#[tokio::test]
async fn case_121_a_body_of_no_bytes_is_continued_as_well() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    let (head, _) =
        signed_head("PUT", "/b/k", "UNSIGNED-PAYLOAD", &[("content-length", "0"), ("expect", "100-continue")]);
    // Twice, for the connection must be as good as new.
    for _ in 0..2 {
        stream.write_all(head.as_bytes()).await.expect("sent");
        let mut answer = read_answer(&mut stream).await;
        if answer.ends_with("Continue\r\n\r\n") {
            answer += &read_answer(&mut stream).await;
        }
        assert!(answer.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"), "{answer}");
    }
    // Refused: nobody wants the body.
    let mut other = server.connect().await;
    other.write_all(head.replace("/b/k", "/b/j").as_bytes()).await.expect("sent");
    assert!(read_answer(&mut other).await.starts_with("HTTP/1.1 403"));
}

#[tokio::test]
async fn a_pipelined_request_that_expects_to_be_continued_tears_no_other_answer() {
    let server = Server::start().await;
    let (head, _) = signed_head(
        "PUT",
        "/b/k",
        "UNSIGNED-PAYLOAD",
        &[("content-length", "0"), ("expect", "100-continue"), ("connection", "close")],
    );
    let answers = server.exchange(&[GET, GET, head.as_bytes()].concat()).await;
    let heads: Vec<&str> = answers.split("HTTP/1.1 ").filter(|a| !a.is_empty() && !a.starts_with("100 ")).collect();
    assert_eq!(heads.len(), 3, "{answers}");
    assert!(heads.iter().all(|a| a.starts_with("200 OK\r\n")), "{answers}");
}

/// A presigned request for the metadata of a key, with `extra` in its query.
fn presigned(extra: &str) -> String {
    let query = format!(
        "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIATEST%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date={}&X-Amz-Expires=60&X-Amz-SignedHeaders=host&{extra}",
        crate::support::DATE
    );
    let canonical = format!("GET\n/b/meta\n{query}\nhost:h\n\nhost\nUNSIGNED-PAYLOAD");
    let digest = hex::encode(<sha2::Sha256 as sha2::Digest>::digest(canonical.as_bytes()));
    let text = format!("AWS4-HMAC-SHA256\n{}\n{}\n{digest}", crate::support::DATE, crate::support::SCOPE);
    let signature = crate::support::sign(&text);
    format!("GET /b/meta?{query}&X-Amz-Signature={signature} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
}

#[tokio::test]
async fn row_33_and_presigned_headers_in_the_query_are_headers() {
    let server = Server::start().await;
    let answer = server.exchange(presigned("x-amz-meta-a=v").as_bytes()).await;
    assert!(answer.ends_with("Some(\"v\")"), "{answer}");
    let answer = server.exchange(presigned("x-amz-meta-a=v%0D%0Ab%3A%20c").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("<Code>InvalidArgument</Code>"), "row 58: {answer}");
    // Without a signature a query parameter is no header.
    let raw = b"GET /b/meta?x-amz-meta-a=v HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    assert!(server.exchange(raw).await.ends_with("None"));
}

#[tokio::test]
async fn too_many_requests_are_told_to_slow_down() {
    let server = Server::start_with(ServerConfig { max_requests: 1, ..ServerConfig::default() }).await;
    let mut first = server.connect().await;
    first.write_all(b"GET /b/wait HTTP/1.1\r\nHost: h\r\n\r\n").await.expect("sent");
    while server.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    let answer = server.exchange(b"GET /b/k HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("<Code>SlowDown</Code>"), "{answer}");
    assert!(answer.contains("retry-after: 1"), "{answer}");
    server.seen.wait.notify_one();
    assert!(read_answer(&mut first).await.starts_with("HTTP/1.1 200"));
    let answer = server.exchange(b"GET /b/k HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "the slot is free again: {answer}");
}

#[tokio::test]
async fn row_55_one_address_cannot_take_all_connections() {
    let server = Server::start_with(ServerConfig { max_connections_per_address: 1, ..ServerConfig::default() }).await;
    let mut first = server.connect().await;
    first.write_all(GET).await.expect("sent");
    read_answer(&mut first).await;
    let mut second = server.connect().await;
    let answer = read_to_end(&mut second).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 503"), "{answer}");
    first.write_all(GET).await.expect("sent");
    assert!(read_answer(&mut first).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn shutdown_lets_requests_in_flight_end() {
    let mut server = Server::start().await;
    let mut idle = server.connect().await;
    idle.write_all(GET).await.expect("sent");
    read_answer(&mut idle).await;
    let mut busy = server.connect().await;
    busy.write_all(b"GET /b/wait HTTP/1.1\r\nHost: h\r\n\r\n").await.expect("sent");
    while server.calls().len() < 2 {
        tokio::task::yield_now().await;
    }
    server.begin_stop();
    assert_eq!(read_to_end(&mut idle).await, "", "an idle connection is closed");
    server.seen.wait.notify_one();
    assert!(read_to_end(&mut busy).await.starts_with("HTTP/1.1 200"));
    assert_eq!(server.stop().await, 0);
}

#[tokio::test]
async fn shutdown_cuts_off_what_exceeds_the_deadline() {
    let config = ServerConfig { shutdown_deadline: Duration::from_millis(20), ..ServerConfig::default() };
    let server = Server::start_with(config).await;
    let mut busy = server.connect().await;
    busy.write_all(b"GET /b/wait HTTP/1.1\r\nHost: h\r\n\r\n").await.expect("sent");
    while server.calls().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(server.stop().await, 1);
}

#[tokio::test]
async fn every_answer_is_observed_once() {
    let server = Server::start().await;
    let mut stream = server.connect().await;
    stream.write_all(&signed("PUT", "/b/k", b"12345", &[])).await.expect("sent");
    read_answer(&mut stream).await;
    stream.write_all(GET).await.expect("sent");
    read_answer(&mut stream).await;
    drop(stream);
    let seen = server.seen.clone();
    server.stop().await;
    let observations = seen.observations.lock();
    let told: Vec<_> =
        observations.iter().map(|o| (o.operation, o.status, o.bytes_in, o.bytes_out, o.aborted)).collect();
    assert_eq!(told, [("PutObject", 200, 5, 0, false), ("GetObject", 200, 0, 5, false)]);
}

#[tokio::test]
async fn a_virtual_host_names_the_bucket() {
    let server = Server::start().await;
    server.exchange(b"GET /b/k HTTP/1.1\r\nHost: bucket.localhost:9000\r\nConnection: close\r\n\r\n").await;
    assert_eq!(server.calls(), ["GET b/k anonymous"]);
}
