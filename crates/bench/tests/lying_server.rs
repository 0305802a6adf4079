//! The client against a server that lies: each lie must be seen.

use bench::client::signature::{Credentials, PayloadSigning};
use bench::client::{Client, ClientError, Expected, Target};
use bench::content::Content;
use bench::{Config, Operation};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Answers every request on every connection with the same bytes; `close` ends the connection after each answer.
async fn server(answer: Vec<u8>, close: bool) -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound").to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut request = Vec::new();
                let mut piece = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut piece).await {
                    request.extend_from_slice(&piece[..count]);
                    if request.ends_with(b"\r\n\r\n") {
                        request.clear();
                        if stream.write_all(&answer).await.is_err() || close {
                            return;
                        }
                    }
                }
            });
        }
    });
    let credentials = Credentials { access_key: "a".into(), secret_key: "s".into() };
    Target { address, region: "us-east-1".into(), credentials, payload: PayloadSigning::Unsigned }
}

fn answer(body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

fn expected() -> Expected {
    Expected::range(Content::new(5), 0, 300_000)
}

#[tokio::test]
async fn the_right_bytes_are_taken_also_on_a_kept_connection() {
    let mut client = Client::new(&server(answer(&Content::new(5).bytes(300_000)), false).await);
    for _ in 0..3 {
        assert_eq!(client.get("/b/k", &expected()).await.expect("right bytes").received_bytes, 300_000);
    }
}

#[tokio::test]
async fn a_chunked_body_is_put_together() {
    let bytes = Content::new(5).bytes(300_000);
    let mut answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for part in bytes.chunks(70_001) {
        answer.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
        answer.extend_from_slice(part);
        answer.extend_from_slice(b"\r\n");
    }
    answer.extend_from_slice(b"0\r\n\r\n");
    let mut client = Client::new(&server(answer, false).await);
    for _ in 0..2 {
        client.get("/b/k", &expected()).await.expect("right bytes");
    }
}

#[tokio::test]
async fn one_wrong_byte_is_seen() {
    let mut bytes = Content::new(5).bytes(300_000);
    bytes[299_999] ^= 0x80;
    let mut client = Client::new(&server(answer(&bytes), false).await);
    let error = client.get("/b/k", &expected()).await.expect_err("a wrong byte");
    assert!(matches!(error, ClientError::WrongBytes { at: 299_999 }), "{error}");
    assert!(error.is_wrong_data() && !error.leaves_outcome_unknown());
}

#[tokio::test]
async fn a_short_body_with_a_matching_length_is_seen() {
    let mut client = Client::new(&server(answer(&Content::new(5).bytes(299_999)), false).await);
    let error = client.get("/b/k", &expected()).await.expect_err("a short body");
    assert!(matches!(error, ClientError::WrongLength { expected: 300_000, found: 299_999 }), "{error}");
}

#[tokio::test]
async fn a_body_that_ends_early_leaves_the_outcome_unknown() {
    let mut bytes = answer(&Content::new(5).bytes(300_000));
    bytes.truncate(bytes.len() - 1);
    let mut client = Client::new(&server(bytes, true).await);
    let error = client.get("/b/k", &expected()).await.expect_err("an early end");
    assert!(error.leaves_outcome_unknown(), "{error}");
}

#[tokio::test]
async fn an_error_inside_a_200_answer_to_a_copy_is_an_error() {
    let body = b"<Error><Code>InternalError</Code></Error>";
    let mut client = Client::new(&server(answer(body), false).await);
    let error = client.copy("/b/k", "/b/l").await.expect_err("an error in the body");
    assert!(error.leaves_outcome_unknown(), "{error}");
}

#[tokio::test]
async fn a_load_run_counts_the_lies_and_is_not_good() {
    let target = server(answer(&vec![0; 4096]), false).await;
    let mut config = Config::new(target, "b", Operation::Get);
    config.count = Some(20);
    config.prepare = false;
    let report = bench::run(config).await.expect("the run itself goes on");
    assert_eq!((report.operations, report.errors), (0, 20));
    assert!(report.error_samples[0].contains("WRONG BYTES") && !report.is_good(), "{report}");
}
