//! The client half of `ashlar admin`: signed requests to the admin port, progress on the way, answers for people or as JSON.

mod manage;

use crate::cli::{AdminArgs, AdminCommand, ClusterCommand, UserCommand};
use crate::credentials::{self, RootKeys};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use indicatif::{ProgressBar, ProgressStyle};
use s3::auth::{Scope, SigningKey, format_amz_date};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::process::ExitCode;

/// Anything that ends the command, as a sentence for its user.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs one admin command. The exit code is 1 when an audit or scrub found something.
pub async fn run(args: AdminArgs, now_ms: u64) -> Result<ExitCode, Failure> {
    let keys = credentials::find(&args.data_dir)?;
    let client = Client { address: args.admin.clone(), keys, now_ms };
    match args.command {
        AdminCommand::Info => {
            let info = client.ask(Method::GET, "/v1/info", None, args.json).await?;
            print(&info, args.json, show_tree);
            Ok(ExitCode::SUCCESS)
        }
        AdminCommand::Audit => verdict(client.ask(Method::POST, "/v1/audit", None, args.json).await?, args.json),
        AdminCommand::Scrub => verdict(client.ask(Method::POST, "/v1/scrub", None, args.json).await?, args.json),
        AdminCommand::FlushCaches => {
            let done = client.ask(Method::POST, "/v1/caches/flush", None, args.json).await?;
            print(&done, args.json, show_tree);
            Ok(ExitCode::SUCCESS)
        }
        AdminCommand::Curator(command) => crate::admin_curator::run(&client, command, args.json).await,
        AdminCommand::User(command) => user(&client, command, args.json).await,
        AdminCommand::Bucket(command) => manage::bucket(&client, command, args.json).await,
        AdminCommand::Node(command) => manage::node(&client, command, args.json).await,
        AdminCommand::Disk(command) => manage::disk(&client, command, args.json).await,
        AdminCommand::Object(command) => manage::object(&client, command, args.json).await,
        AdminCommand::Cluster(ClusterCommand::Status) => {
            let status = client.ask(Method::GET, "/v1/cluster", None, args.json).await?;
            print(&status, args.json, show_tree);
            Ok(ExitCode::SUCCESS)
        }
        AdminCommand::Cluster(ClusterCommand::JoinToken { valid }) => {
            let body = json!({ "valid_seconds": valid / 1000 });
            let made = client.ask(Method::POST, "/v1/cluster/join-tokens", Some(body), args.json).await?;
            print(&made, args.json, |made| format!("{}\n", made["token"].as_str().unwrap_or_default()));
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn user(client: &Client, command: UserCommand, as_json: bool) -> Result<ExitCode, Failure> {
    match command {
        UserCommand::Create { name, access_key, secret_key, email } => {
            let body = json!({ "name": name, "access_key": access_key, "secret_key": secret_key, "email": email });
            let made = client.ask(Method::POST, "/v1/users", Some(body), as_json).await?;
            print(&made, as_json, show_tree);
        }
        UserCommand::List => {
            let list = client.ask(Method::GET, "/v1/users", None, as_json).await?;
            print(&list, as_json, show_users);
        }
        UserCommand::Delete { name } => {
            let mut path = b"/v1/users/".to_vec();
            s3::auth::uri_encode(&mut path, &name, false);
            let path = String::from_utf8(path)?;
            client.ask(Method::DELETE, &path, None, as_json).await?;
            print(&json!({}), as_json, |_| format!("deleted user {name}\n"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn verdict(report: Value, as_json: bool) -> Result<ExitCode, Failure> {
    print(&report, as_json, show_tree);
    Ok(if report["ok"] == Value::Bool(true) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// For people, or as a line of JSON.
pub fn print(value: &Value, as_json: bool, show: impl FnOnce(&Value) -> String) {
    use std::io::Write as _;
    let text = if as_json { format!("{value}\n") } else { show(value) };
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn show_users(list: &Value) -> String {
    let mut text = format!("{:24} {:24} {}\n", "NAME", "ACCESS KEY", "CANONICAL ID");
    for user in list["users"].as_array().into_iter().flatten() {
        let field = |name: &str| user[name].as_str().unwrap_or("").to_owned();
        let _ = writeln!(text, "{:24} {:24} {}", field("display_name"), field("access_key"), field("user_id"));
    }
    text
}

/// `name: value` lines, nested values indented, lists one item a line.
fn show_tree(value: &Value) -> String {
    fn show(value: &Value, depth: usize, text: &mut String) {
        let indent = "  ".repeat(depth);
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let label = name.replace('_', " ");
                    match value {
                        Value::Object(_) | Value::Array(_) => {
                            let _ = writeln!(text, "{indent}{label}:");
                            show(value, depth + 1, text);
                        }
                        Value::String(s) => _ = writeln!(text, "{indent}{label}: {s}"),
                        plain => _ = writeln!(text, "{indent}{label}: {plain}"),
                    }
                }
            }
            Value::Array(items) => {
                for item in items {
                    match item {
                        Value::Object(_) | Value::Array(_) => {
                            let _ = writeln!(text, "{indent}-");
                            show(item, depth + 1, text);
                        }
                        Value::String(s) => _ = writeln!(text, "{indent}- {s}"),
                        plain => _ = writeln!(text, "{indent}- {plain}"),
                    }
                }
            }
            Value::String(s) => _ = writeln!(text, "{indent}{s}"),
            plain => _ = writeln!(text, "{indent}{plain}"),
        }
    }
    let mut text = String::new();
    show(value, 0, &mut text);
    text
}

/// Who asks the admin port.
pub struct Client {
    address: String,
    keys: RootKeys,
    now_ms: u64,
}

impl Client {
    /// The same as of this moment: a signature is good for some minutes.
    pub fn now(&self) -> Client {
        let now_ms = env::Env::system(1).clock.wall_ms();
        Client { address: self.address.clone(), keys: self.keys.clone(), now_ms }
    }

    /// One request; lines of progress move a bar (unless the answer goes to a program), the last line is the result.
    pub async fn ask(&self, method: Method, path: &str, body: Option<Value>, quiet: bool) -> Result<Value, Failure> {
        let address = self.address.trim_start_matches("http://").trim_end_matches('/');
        let stream = tokio::net::TcpStream::connect(address).await.map_err(|e| {
            format!("cannot reach the admin port at {address}: {e}; is the server running, and is --admin its address?")
        })?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let body = body.map(|b| b.to_string()).unwrap_or_default();
        let mut response = sender.send_request(self.signed(&method, path, address, body)?).await?;
        let (status, mut lines) = (response.status(), Lines::default());
        let bar = (!quiet).then(progress_bar);
        let mut last = Value::Null;
        while let Some(frame) = response.frame().await {
            if let Some(data) = frame?.data_ref() {
                for line in lines.push(data) {
                    last = serde_json::from_slice(&line)?;
                    show_progress(bar.as_ref(), &last);
                }
            }
        }
        if let Some(line) = lines.rest() {
            last = serde_json::from_slice(&line)?;
        }
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        connection.abort();
        match (status.is_success(), last) {
            (_, Value::Object(mut o)) if o.contains_key("error") => {
                let error = o.remove("error").unwrap_or_default();
                Err(error.as_str().map_or_else(|| error.to_string(), str::to_owned).into())
            }
            (true, Value::Object(mut o)) if o.contains_key("result") => Ok(o.remove("result").unwrap_or_default()),
            (true, value) => Ok(value),
            (false, _) => Err(format!("the server answered {status}").into()),
        }
    }

    fn signed(&self, method: &Method, path: &str, host: &str, body: String) -> Result<Request<Full<Bytes>>, Failure> {
        let timestamp = format_amz_date(self.now_ms);
        let scope = Scope { date: &timestamp[..8], region: "us-east-1", service: "ashlar" };
        let digest = hex::encode(Sha256::digest(body.as_bytes()));
        let canonical = format!(
            "{method}\n{path}\n\nhost:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{timestamp}\n\nhost;x-amz-content-sha256;x-amz-date\n{digest}"
        );
        let hashed = hex::encode(Sha256::digest(canonical.as_bytes()));
        let to_sign = format!("AWS4-HMAC-SHA256\n{timestamp}\n{scope}\n{hashed}");
        let signature = SigningKey::derive(&self.keys.secret_key, &scope).sign(to_sign.as_bytes());
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature={}",
            self.keys.access_key,
            String::from_utf8_lossy(&signature)
        );
        Ok(Request::builder()
            .method(method.clone())
            .uri(path)
            .header("host", host)
            .header("x-amz-content-sha256", digest)
            .header("x-amz-date", timestamp)
            .header("authorization", authorization)
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))?)
    }
}

fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg} {eta}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn show_progress(bar: Option<&ProgressBar>, line: &Value) {
    let (Some(bar), Some(step)) = (bar, line.get("progress")) else { return };
    bar.set_length(step["total"].as_u64().unwrap_or(0));
    bar.set_position(step["done"].as_u64().unwrap_or(0));
    bar.set_message(step["unit"].as_str().unwrap_or("").to_owned());
}

/// Cuts a byte stream into lines.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn push(&mut self, data: &[u8]) -> Vec<Vec<u8>> {
        self.0.extend_from_slice(data);
        let mut lines = Vec::new();
        while let Some(end) = self.0.iter().position(|b| *b == b'\n') {
            let mut line: Vec<u8> = self.0.drain(..=end).collect();
            line.pop();
            lines.push(line);
        }
        lines
    }

    fn rest(self) -> Option<Vec<u8>> {
        (!self.0.is_empty()).then_some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_shown_as_indented_lines() {
        let text = show_tree(&json!({ "ok": true, "disks": [{ "free_bytes": 5 }], "name": "n1" }));
        assert!(text.contains("free bytes: 5") && text.contains("ok: true") && text.contains("name: n1"), "{text}");
    }

    #[test]
    fn lines_are_cut_wherever_the_pieces_end() {
        let mut lines = Lines::default();
        assert!(lines.push(b"{\"a\"").is_empty());
        assert_eq!(lines.push(b":1}\n{}\n{"), [b"{\"a\":1}".to_vec(), b"{}".to_vec()]);
        assert_eq!(lines.rest(), Some(b"{".to_vec()));
    }
}
