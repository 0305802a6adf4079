//! Routes about the curators: how redundancy stands, what they do, and that they hurry.
//!
//! Promises: each needs a root signature, as all of the API. Refuses to know: what the answers mean.

use crate::api::{AdminConfig, authenticated_body, failure};
use crate::operations::CuratorAsk;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::StatusCode;
use object_controller::api::ObjectStore;

/// A boost ends by itself, and within a day.
const BOOST_SECONDS_MAX: u64 = 24 * 3600;

/// All of them.
pub(crate) fn routes<S: ObjectStore>() -> Router<AdminConfig<S>> {
    Router::new()
        .route("/v1/curator/status", get(status))
        .route("/v1/curator/tasks", get(tasks))
        .route("/v1/curator/scan", post(scan))
        .route("/v1/curator/boost", post(boost))
}

async fn status<S: ObjectStore>(State(config): State<AdminConfig<S>>, request: Request) -> Response {
    answer(&config, request, |_| Ok(CuratorAsk::Status)).await
}

async fn tasks<S: ObjectStore>(State(config): State<AdminConfig<S>>, request: Request) -> Response {
    answer(&config, request, |_| Ok(CuratorAsk::Tasks)).await
}

/// The body of "scan".
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Scan {
    full: bool,
}

async fn scan<S: ObjectStore>(State(config): State<AdminConfig<S>>, request: Request) -> Response {
    let read = |body: &[u8]| serde_json::from_slice(body).map(|Scan { full }| CuratorAsk::Scan { full });
    answer(&config, request, |body| read(body).map_err(|e| format!("the body does not ask for a scan: {e}"))).await
}

/// The body of "boost".
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Boost {
    seconds: u64,
}

async fn boost<S: ObjectStore>(State(config): State<AdminConfig<S>>, request: Request) -> Response {
    let read = |body: &[u8]| match serde_json::from_slice(body) {
        Ok(Boost { seconds }) if seconds <= BOOST_SECONDS_MAX => Ok(CuratorAsk::Boost { seconds }),
        Ok(_) => Err(format!("limits are lifted for at most {BOOST_SECONDS_MAX} seconds")),
        Err(e) => Err(format!("the body does not say for how long: {e}")),
    };
    answer(&config, request, read).await
}

async fn answer<S: ObjectStore>(
    config: &AdminConfig<S>,
    request: Request,
    read: impl FnOnce(&[u8]) -> Result<CuratorAsk, String>,
) -> Response {
    let body = match authenticated_body(config, request).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let ask = match read(&body) {
        Ok(ask) => ask,
        Err(message) => return failure(StatusCode::BAD_REQUEST, &message),
    };
    match config.operations.curator(ask).await {
        Ok(value) => axum::Json(value).into_response(),
        Err(message) => failure(StatusCode::SERVICE_UNAVAILABLE, &message),
    }
}
