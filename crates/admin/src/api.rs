//! Routes of the admin port.

use crate::auth::check_root;
use crate::metrics::Metrics;
use crate::operations::{Answer, Operations, Progress};
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use http::{StatusCode, header};
use object_controller::api::{Credential, NewUser, ObjectStore, StoreError};
use s3::auth::Authenticator;
use s3::error::S3Error;
use serde_json::{Value, json};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Bytes of an admin request's body.
const BODY_MAX_BYTES: usize = 1 << 20;
/// Progress lines waiting for a slow reader; further ones are left out.
const PROGRESS_QUEUE: usize = 16;

/// What the admin port serves.
pub struct AdminConfig<S> {
    /// Accounts.
    pub store: Arc<S>,
    /// Verifies signatures for service `ashlar`.
    pub authenticator: Arc<Authenticator>,
    /// The node.
    pub operations: Arc<dyn Operations>,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

impl<S> Clone for AdminConfig<S> {
    fn clone(&self) -> Self {
        AdminConfig {
            store: self.store.clone(),
            authenticator: self.authenticator.clone(),
            operations: self.operations.clone(),
            metrics: self.metrics.clone(),
        }
    }
}

/// Serves until `shutdown` is done.
pub async fn serve<S: ObjectStore>(
    listener: tokio::net::TcpListener,
    config: AdminConfig<S>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/-/live", get(|| async { "live" }))
        .route("/-/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/v1/info", get(info))
        .route("/v1/audit", post(audit))
        .route("/v1/scrub", post(scrub))
        .route("/v1/caches/flush", post(flush_caches))
        .route("/v1/cluster", get(cluster))
        .route("/v1/cluster/join-tokens", post(join_token))
        .route("/v1/users", get(list_users).post(create_user))
        .route("/v1/users/{name}", axum::routing::delete(delete_user))
        .merge(crate::manage::routes())
        .merge(crate::curator::routes())
        .with_state(config);
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service).with_graceful_shutdown(shutdown).await
}

async fn ready<S: ObjectStore>(State(config): State<AdminConfig<S>>) -> Response {
    if config.operations.ready() {
        "ready".into_response()
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting").into_response()
    }
}

async fn metrics<S: ObjectStore>(
    State(config): State<AdminConfig<S>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    if !peer.ip().to_canonical().is_loopback()
        && let Err(refusal) = authenticated_body(&config, request).await
    {
        return refusal;
    }
    let text = config.metrics.text(&config.operations.gauges());
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text).into_response()
}

async fn info<S: ObjectStore>(State(config): State<AdminConfig<S>>, request: Request) -> Response {
    match authenticated_body(&config, request).await {
        Ok(_) => axum::Json(config.operations.info()).into_response(),
        Err(refusal) => refusal,
    }
}

async fn audit<S: ObjectStore>(State(config): State<AdminConfig<S>>, request: Request) -> Response {
    long_work(config, request, |operations, progress| operations.audit(progress)).await
}

async fn scrub<S: ObjectStore>(State(config): State<AdminConfig<S>>, request: Request) -> Response {
    long_work(config, request, |operations, progress| operations.scrub(progress)).await
}

async fn flush_caches<S: ObjectStore>(State(config): State<AdminConfig<S>>, request: Request) -> Response {
    if let Err(refusal) = authenticated_body(&config, request).await {
        return refusal;
    }
    match config.operations.flush_caches().await {
        Ok(value) => axum::Json(value).into_response(),
        Err(message) => failure(StatusCode::INTERNAL_SERVER_ERROR, &message),
    }
}

async fn cluster<S: ObjectStore>(State(config): State<AdminConfig<S>>, request: Request) -> Response {
    match authenticated_body(&config, request).await {
        Ok(_) => axum::Json(config.operations.cluster()).into_response(),
        Err(refusal) => refusal,
    }
}

/// The body of "make a join token".
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct NewToken {
    valid_seconds: u64,
}

async fn join_token<S: ObjectStore>(State(config): State<AdminConfig<S>>, request: Request) -> Response {
    let body = match authenticated_body(&config, request).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let wanted: NewToken = match serde_json::from_slice(&body) {
        Ok(wanted) => wanted,
        Err(e) => return failure(StatusCode::BAD_REQUEST, &format!("the body does not ask for a token: {e}")),
    };
    match config.operations.join_token(wanted.valid_seconds).await {
        Ok(value) => axum::Json(value).into_response(),
        Err(message) => failure(StatusCode::SERVICE_UNAVAILABLE, &message),
    }
}

/// Answers lines of JSON: `{"progress": …}` while it works, then `{"result": …}` or `{"error": …}`.
async fn long_work<S: ObjectStore>(
    config: AdminConfig<S>,
    request: Request,
    work: impl for<'a> FnOnce(&'a dyn Operations, mpsc::Sender<Progress>) -> Answer<'a> + Send + 'static,
) -> Response {
    if let Err(refusal) = authenticated_body(&config, request).await {
        return refusal;
    }
    let (lines, answer) = mpsc::channel::<Value>(PROGRESS_QUEUE);
    tokio::spawn(async move {
        let (progress, mut steps) = mpsc::channel::<Progress>(PROGRESS_QUEUE);
        let forward = lines.clone();
        let forwarder = tokio::spawn(async move {
            while let Some(step) = steps.recv().await {
                if forward.send(json!({ "progress": step })).await.is_err() {
                    break;
                }
            }
        });
        let result = work(config.operations.as_ref(), progress).await;
        let _ = forwarder.await;
        let line = match result {
            Ok(value) => json!({ "result": value }),
            Err(message) => json!({ "error": message }),
        };
        let _ = lines.send(line).await;
    });
    let stream = futures_util::stream::unfold(answer, |mut answer| async move {
        let line = answer.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(format!("{line}\n"))), answer))
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(stream)).into_response()
}

async fn list_users<S: ObjectStore>(State(config): State<AdminConfig<S>>, request: Request) -> Response {
    if let Err(refusal) = authenticated_body(&config, request).await {
        return refusal;
    }
    let users: Vec<Value> = config.store.users().iter().map(|u| describe(u, false)).collect();
    axum::Json(json!({ "users": users })).into_response()
}

/// The body of "create user".
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateUser {
    name: String,
    access_key: Option<String>,
    secret_key: Option<String>,
    email: Option<String>,
}

async fn create_user<S: ObjectStore>(State(config): State<AdminConfig<S>>, request: Request) -> Response {
    let body = match authenticated_body(&config, request).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let wanted: CreateUser = match serde_json::from_slice(&body) {
        Ok(wanted) => wanted,
        Err(e) => return failure(StatusCode::BAD_REQUEST, &format!("the body is not a user: {e}")),
    };
    let CreateUser { name, access_key, secret_key, email } = wanted;
    match config.store.create_user(NewUser { name, access_key, secret_key, email }).await {
        Ok(user) => axum::Json(describe(&user, true)).into_response(),
        Err(e) => store_failure(&e),
    }
}

async fn delete_user<S: ObjectStore>(
    State(config): State<AdminConfig<S>>,
    axum::extract::Path(name): axum::extract::Path<String>,
    request: Request,
) -> Response {
    if let Err(refusal) = authenticated_body(&config, request).await {
        return refusal;
    }
    match config.store.delete_user(&name).await {
        Ok(()) => axum::Json(json!({})).into_response(),
        Err(e) => store_failure(&e),
    }
}

fn describe(user: &Credential, with_secret: bool) -> Value {
    let mut value = json!({
        "access_key": user.access_key,
        "user_id": user.account.canonical_id,
        "display_name": user.account.display_name,
        "email": user.account.email,
    });
    if with_secret {
        value["secret_key"] = Value::String(user.secret_key.clone());
    }
    value
}

pub(crate) async fn authenticated_body<S: ObjectStore>(
    config: &AdminConfig<S>,
    request: Request,
) -> Result<Bytes, Response> {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, BODY_MAX_BYTES)
        .await
        .map_err(|_| failure(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large"))?;
    check_root(&config.authenticator, &head, &body).map_err(|e| refusal(&e))?;
    Ok(body)
}

fn refusal(error: &S3Error) -> Response {
    failure(error.status(), &format!("{}: {}", error.code.name(), error.message))
}

fn store_failure(error: &StoreError) -> Response {
    let status = match error {
        StoreError::UserExists | StoreError::UserHasBuckets => StatusCode::CONFLICT,
        StoreError::NoSuchUser => StatusCode::NOT_FOUND,
        StoreError::InvalidState(_) => StatusCode::BAD_REQUEST,
        StoreError::Busy(_) | StoreError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        StoreError::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    failure(status, &error.to_string())
}

pub(crate) fn failure(status: StatusCode, message: &str) -> Response {
    (status, axum::Json(json!({ "error": message }))).into_response()
}
