//! Row 57 of the attacks: a request that two parsers may understand differently is refused, and what hides behind it never runs.

use crate::Front;
use crate::backend::{Backend, ok};
use tokio::io::AsyncWriteExt;

const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n";

/// Sends a request and the hidden one behind it; what came back, and which targets the node saw.
async fn smuggle(request: &str, byte_by_byte: bool) -> (String, Vec<String>) {
    let mut node = Backend::start(ok("done")).await;
    let front = Front::start(&[&node]).await;
    let mut client = front.client().await;
    let bytes = [request, HIDDEN].concat();
    for piece in bytes.as_bytes().chunks(if byte_by_byte { 1 } else { bytes.len() }) {
        // It may have been closed already.
        if client.stream.write_all(piece).await.is_err() {
            break;
        }
    }
    let answer = String::from_utf8_lossy(&client.rest().await).into_owned();
    let targets = node.heads().iter().map(|head| head.split(' ').nth(1).unwrap_or_default().to_owned()).collect();
    (answer, targets)
}

#[tokio::test]
async fn row_57_ambiguous_heads_are_refused_and_reach_no_node() {
    let heads = [
        "POST /k HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        "POST /k HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nContent-Length: 30\r\n\r\n",
        "POST /k HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nContent-Length: 0\r\n\r\n",
        "POST /k HTTP/1.1\r\nHost: h\r\nContent-Length: 0, 0\r\n\r\n",
        "POST /k HTTP/1.1\r\nHost: h\r\nContent-Length: +0\r\n\r\n",
        "POST /k HTTP/1.1\r\nHost: h\r\nContent-Length : 0\r\n\r\n",
        "POST /k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST /k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n",
        "POST /k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /k HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET /k HTTP/1.1\r\nHost: h\r\nA: b\r\n folded\r\n\r\n",
        "GET /k HTTP/1.1\nHost: h\r\n\r\n",
        "GET /k HTTP/1.1\r\nHost: h\n\n",
        "GET /k HTTP/1.1\r\nHost: h\r\nA: b\rc\r\n\r\n",
        "GET /k /l HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /k\u{1} HTTP/1.1\r\nHost: h\r\n\r\n",
        "GET /k HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n",
        "GET http://i/k HTTP/1.1\r\nHost: h\r\n\r\n",
        "\r\n\r\n\r\n\r\n\r\n\r\nGET /k HTTP/1.1\r\nHost: h\r\n\r\n",
    ];
    for head in heads {
        for byte_by_byte in [false, true] {
            let (answer, targets) = smuggle(head, byte_by_byte).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{head:?}: {answer:?}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{head:?}: {answer:?}");
            assert!(targets.is_empty(), "{head:?}: {targets:?}");
        }
    }
}

#[tokio::test]
async fn row_57_bad_chunks_never_complete_and_what_hides_behind_them_never_runs() {
    let bodies = [
        "1;x=y\r\na\r\n0\r\n\r\n",
        "1\r\nab\r\n0\r\n\r\n",
        "00000000000000001\r\na\r\n0\r\n\r\n",
        "1\na\r\n0\r\n\r\n",
        "g\r\n",
        "-1\r\n",
    ];
    for body in bodies {
        for byte_by_byte in [false, true] {
            let request = format!("PUT /k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
            let (answer, targets) = smuggle(&request, byte_by_byte).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{body:?}: {answer:?}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{body:?}: {answer:?}");
            assert!(targets.iter().all(|target| target == "/k"), "{body:?}: {targets:?}");
        }
    }
}

#[tokio::test]
async fn row_57_a_bad_request_behind_a_good_one_does_not_disturb_its_answer() {
    let good = "GET /good HTTP/1.1\r\nHost: h\r\n\r\n";
    let bad = "GET /bad HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n";
    let (answer, targets) = smuggle(&[good, bad].concat(), false).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("done"), "{answer:?}");
    assert!(!targets.iter().any(|target| target == "/hidden" || target == "/bad"), "{targets:?}");
}

#[tokio::test]
async fn row_54_a_head_without_end_is_refused() {
    let head = format!("GET /k HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n", "x".repeat(64 << 10));
    let (answer, targets) = smuggle(&head, false).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && targets.is_empty(), "{answer:?}");
}
