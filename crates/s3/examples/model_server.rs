//! Serves the model store on 127.0.0.1, to drive S3 test suites and clients at the edge alone. Nothing is kept.
//!
//! `model_server PORT [ACCOUNTS_FILE]`: writes two accounts, `main` and `alt`, as JSON to the file (or standard output).
#![allow(clippy::print_stdout, clippy::disallowed_methods)]

use model::ModelStore;
use object_controller::api::{Account, Credential, NewUser, ObjectStore};
use s3::auth::{AuthConfig, Authenticator};
use s3::ops::Service;
use s3::server::{NoObserver, ServerConfig, serve};
use std::error::Error;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

async fn account(store: &ModelStore, name: &str) -> Result<serde_json::Value, Box<dyn Error>> {
    let user = NewUser { name: name.into(), access_key: None, secret_key: None, email: Some(format!("{name}@test")) };
    let credential = store.create_user(user).await?;
    Ok(serde_json::json!({
        "access_key": credential.access_key,
        "secret_key": credential.secret_key,
        "user_id": credential.account.canonical_id,
        "display_name": credential.account.display_name,
        "email": credential.account.email,
    }))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let port: u16 = arguments.next().ok_or("usage: model_server PORT [ACCOUNTS_FILE]")?.parse()?;
    let account_of_root =
        Account { canonical_id: "0".repeat(64), display_name: "root".into(), email: String::new(), is_root: true };
    let root = Credential {
        access_key: "model-root".into(),
        secret_key: "model-root-secret".into(),
        account: account_of_root,
    };
    let store = Arc::new(ModelStore::new(root, now_ms));
    let accounts = serde_json::json!({ "main": account(&store, "main").await?, "alt": account(&store, "alt").await? });
    let text = serde_json::to_string_pretty(&accounts)?;
    match arguments.next() {
        Some(path) => std::fs::write(path, text)?,
        None => println!("{text}"),
    }
    let config = AuthConfig { region: "us-east-1".into(), service: "s3", now_ms: Arc::new(now_ms) };
    let authenticator = Arc::new(Authenticator::new(config, Arc::clone(&store) as _));
    let service = Arc::new(Service::new(store, Arc::clone(&authenticator)));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening on {}", listener.local_addr()?);
    serve(listener, ServerConfig::default(), authenticator, service, Arc::new(NoObserver), std::future::pending())
        .await;
    Ok(())
}
