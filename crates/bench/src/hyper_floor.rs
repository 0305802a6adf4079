//! A bare HTTP server on the library that the store is built on: the floor that a small request is measured against.
//!
//! Promises: same library, same runtime with the same number of workers, same allocator as `ashlar server`; per request nothing but
//! what hyper does and one body that lies ready. It verifies nothing and stores nothing but that body.
//! Refuses to know: S3. It is no store, and listens only where it is told to.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

use crate::BenchError;
use crate::limits::FLOOR_BODY_BYTES;

/// What every GET is answered with: the body of the first PUT, so that a client which checks bodies can be pointed here.
type Ready = Arc<OnceLock<Bytes>>;

/// Serves until the process is ended; `ready` is called with the address once connections are taken.
pub fn serve(listen: SocketAddr, ready: impl FnOnce(SocketAddr)) -> Result<(), BenchError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(BenchError::local("make a runtime"))?;
    runtime.block_on(async {
        let listener = TcpListener::bind(listen).await.map_err(BenchError::local(format!("listen on {listen}")))?;
        ready(listener.local_addr().map_err(BenchError::local("read the address"))?);
        accept(listener).await
    })
}

async fn accept(listener: TcpListener) -> Result<(), BenchError> {
    let body = Ready::default();
    loop {
        let (stream, _) = listener.accept().await.map_err(BenchError::local("accept a connection"))?;
        tokio::spawn(connection(stream, body.clone()));
    }
}

async fn connection(stream: TcpStream, body: Ready) {
    // Without it the figures would show Nagle's algorithm; a connection that ends badly concerns its client alone.
    if stream.set_nodelay(true).is_ok() {
        let service = service_fn(|request| answer(request, &body));
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }
}

async fn answer(request: Request<Incoming>, body: &Ready) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() == Method::PUT {
        return Ok(status(keep_first(request, body).await));
    }
    let Some(ready) = body.get() else { return Ok(status(StatusCode::NOT_FOUND)) };
    if request.method() == Method::HEAD {
        let mut response = Response::new(Full::default());
        response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(ready.len()));
        return Ok(response);
    }
    Ok(Response::new(Full::new(ready.clone())))
}

async fn keep_first(request: Request<Incoming>, body: &Ready) -> StatusCode {
    match http_body_util::Limited::new(request.into_body(), FLOOR_BODY_BYTES).collect().await {
        Ok(whole) => {
            // A bucket is made by an empty PUT, which is no body to answer with.
            let whole = whole.to_bytes();
            if !whole.is_empty() {
                let _ = body.set(whole);
            }
            StatusCode::OK
        }
        Err(_) => StatusCode::PAYLOAD_TOO_LARGE,
    }
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::accept;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn each_get_is_answered_with_the_first_body_that_was_put() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        tokio::spawn(accept(listener));
        let ask = |request: &'static str| async move {
            let mut stream = TcpStream::connect(address).await.expect("connected");
            stream.write_all(request.as_bytes()).await.expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("answered");
            answer
        };
        assert!(ask("GET /b/k HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").await.starts_with("HTTP/1.1 404"));
        assert!(
            ask("PUT /b HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await.contains(" 200 ")
        );
        for body in ["first", "other"] {
            let put: &'static str = match body {
                "first" => "PUT /b/k HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: 5\r\n\r\nfirst",
                _ => "PUT /b/k HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: 5\r\n\r\nother",
            };
            assert!(ask(put).await.contains(" 200 "));
        }
        assert!(ask("GET /b/k HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").await.ends_with("\r\n\r\nfirst"));
        let head = ask("HEAD /b/k HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").await;
        assert!(head.contains("content-length: 5") && head.ends_with("\r\n\r\n"), "{head}");
    }
}
