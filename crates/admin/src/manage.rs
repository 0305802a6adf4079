//! Routes by which an operator looks at and changes buckets, nodes, disks, and looks at where an object lies.
//!
//! Promises: authenticates before it reads what is wanted; a refusal has its reason in words and changes nothing. Refuses to know:
//! what would break; it is told through [`Operations`](crate::Operations).

use crate::api::{AdminConfig, authenticated_body, failure};
use crate::operations::{BucketWish, ChangeWish, Manage, ObjectWish, Refused};
use axum::Router;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use http::StatusCode;
use object_controller::api::ObjectStore;
use serde::de::DeserializeOwned;

/// The routes.
pub(crate) fn routes<S: ObjectStore>() -> Router<AdminConfig<S>> {
    Router::new()
        .route("/v1/buckets", get(buckets))
        .route("/v1/buckets/{name}", get(bucket))
        .route("/v1/buckets/{name}/durability", put(set_durability))
        .route("/v1/nodes", get(nodes))
        .route("/v1/nodes/{name}", post(change_node))
        .route("/v1/disks", get(disks))
        .route("/v1/disks/{id}", post(change_disk))
        .route("/v1/objects/stat", post(object))
}

async fn buckets<S: ObjectStore>(State(config): State<AdminConfig<S>>, request: Request) -> Response {
    ask(config, request, |_| Ok(Manage::Buckets)).await
}

async fn bucket<S: ObjectStore>(
    State(config): State<AdminConfig<S>>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    ask(config, request, |_| Ok(Manage::Bucket(name))).await
}

async fn set_durability<S: ObjectStore>(
    State(config): State<AdminConfig<S>>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    ask(config, request, |body| Ok(Manage::SetDurability(name, parse::<BucketWish>(body)?))).await
}

async fn nodes<S: ObjectStore>(State(config): State<AdminConfig<S>>, request: Request) -> Response {
    ask(config, request, |_| Ok(Manage::Nodes)).await
}

async fn change_node<S: ObjectStore>(
    State(config): State<AdminConfig<S>>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    ask(config, request, |body| Ok(Manage::Node(name, parse::<ChangeWish>(body)?))).await
}

async fn disks<S: ObjectStore>(State(config): State<AdminConfig<S>>, request: Request) -> Response {
    ask(config, request, |_| Ok(Manage::Disks)).await
}

async fn change_disk<S: ObjectStore>(
    State(config): State<AdminConfig<S>>,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    ask(config, request, |body| Ok(Manage::Disk(id, parse::<ChangeWish>(body)?))).await
}

async fn object<S: ObjectStore>(State(config): State<AdminConfig<S>>, request: Request) -> Response {
    ask(config, request, |body| Ok(Manage::Object(parse::<ObjectWish>(body)?))).await
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|e| format!("the body is not what belongs here: {e}"))
}

/// Authenticates first: what the body holds is nobody's business before.
async fn ask<S: ObjectStore>(
    config: AdminConfig<S>,
    request: Request,
    wanted: impl FnOnce(&[u8]) -> Result<Manage, String>,
) -> Response {
    let body = match authenticated_body(&config, request).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let wanted = match wanted(&body) {
        Ok(wanted) => wanted,
        Err(what) => return failure(StatusCode::BAD_REQUEST, &what),
    };
    match config.operations.manage(wanted).await {
        Ok(value) => axum::Json(value).into_response(),
        Err(Refused::Unknown(what)) => failure(StatusCode::NOT_FOUND, &what),
        Err(Refused::Wrong(what)) => failure(StatusCode::BAD_REQUEST, &what),
        Err(Refused::Breaks(what)) => failure(StatusCode::CONFLICT, &what),
        Err(Refused::Unavailable(what)) => failure(StatusCode::SERVICE_UNAVAILABLE, &what),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::operations::{BucketWish, ChangeWish};

    #[test]
    fn a_wish_with_a_misspelt_field_is_no_wish() {
        let wish: BucketWish = parse(br#"{"rf":3,"ec":"4+2"}"#).expect("a wish");
        assert_eq!((wish.default, wish.rf, wish.ec.as_deref(), wish.ec_after_ms), (false, Some(3), Some("4+2"), None));
        assert!(parse::<BucketWish>(br#"{"replicas":3}"#).is_err(), "a misspelt number is not no number");
        let drain: ChangeWish = parse(br#"{"wish":"drain"}"#).expect("a wish");
        assert_eq!((drain.wish.as_str(), drain.force), ("drain", false));
        assert!(
            parse::<ChangeWish>(b"").is_err() && parse::<ChangeWish>(br#"{"wish":"drain","forced":true}"#).is_err()
        );
    }
}
