//! `ashlar admin bucket|node|disk|object`: asks, and shows the answer.

use super::{Client, Failure, print, show_tree};
use crate::cli::{BucketCommand, DiskCommand, NodeCommand, ObjectCommand, SetDurability};
use hyper::Method;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::process::ExitCode;

pub(super) async fn bucket(client: &Client, command: BucketCommand, as_json: bool) -> Result<ExitCode, Failure> {
    match command {
        BucketCommand::List => {
            let list = client.ask(Method::GET, "/v1/buckets", None, as_json).await?;
            print(&list, as_json, show_buckets);
        }
        BucketCommand::Durability { bucket } => {
            let one = client.ask(Method::GET, &path("/v1/buckets/", &bucket)?, None, as_json).await?;
            print(&one, as_json, show_tree);
        }
        BucketCommand::SetDurability(SetDurability { bucket, rf, ec, ec_after, default }) => {
            if rf.is_none() && ec.is_none() && ec_after.is_none() && !default {
                return Err("say what is to change: --rf, --ec, --ec-after or --default".into());
            }
            let wish = json!({ "default": default, "rf": rf, "ec": ec, "ec_after_ms": ec_after });
            let path = format!("{}/durability", path("/v1/buckets/", &bucket)?);
            let set = client.ask(Method::PUT, &path, Some(wish), as_json).await?;
            print(&set, as_json, show_tree);
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn node(client: &Client, command: NodeCommand, as_json: bool) -> Result<ExitCode, Failure> {
    let (wish, args) = match command {
        NodeCommand::List => {
            let list = client.ask(Method::GET, "/v1/nodes", None, as_json).await?;
            print(&list, as_json, show_nodes);
            return Ok(ExitCode::SUCCESS);
        }
        NodeCommand::Drain(args) => ("drain", args),
        NodeCommand::Resume(args) => ("activate", args),
        NodeCommand::Maintenance(args) => ("maintain", args),
        NodeCommand::Remove(args) => ("remove", args),
    };
    change(client, &path("/v1/nodes/", &args.node)?, wish, args.force, as_json).await
}

pub(super) async fn disk(client: &Client, command: DiskCommand, as_json: bool) -> Result<ExitCode, Failure> {
    let (wish, args) = match command {
        DiskCommand::List => {
            let list = client.ask(Method::GET, "/v1/disks", None, as_json).await?;
            print(&list, as_json, show_disks);
            return Ok(ExitCode::SUCCESS);
        }
        DiskCommand::Drain(args) => ("drain", args),
        DiskCommand::Resume(args) => ("activate", args),
        DiskCommand::Remove(args) => ("remove", args),
        DiskCommand::Lose(args) => ("lose", args),
    };
    change(client, &format!("/v1/disks/{}", args.disk), wish, args.force, as_json).await
}

/// Exit code 1 if it has fewer sound copies than it should.
pub(super) async fn object(client: &Client, command: ObjectCommand, as_json: bool) -> Result<ExitCode, Failure> {
    let ObjectCommand::Stat { bucket, key, version_id } = command;
    let wish = json!({ "bucket": bucket, "key": key, "version_id": version_id });
    let stat = client.ask(Method::POST, "/v1/objects/stat", Some(wish), as_json).await?;
    print(&stat, as_json, show_tree);
    Ok(if stat["ok"] == Value::Bool(true) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn change(client: &Client, path: &str, wish: &str, force: bool, as_json: bool) -> Result<ExitCode, Failure> {
    let body = json!({ "wish": wish, "force": force });
    let done = client.ask(Method::POST, path, Some(body), as_json).await?;
    print(&done, as_json, show_tree);
    Ok(ExitCode::SUCCESS)
}

fn path(prefix: &str, name: &str) -> Result<String, Failure> {
    let mut path = prefix.as_bytes().to_vec();
    s3::auth::uri_encode(&mut path, name, false);
    Ok(String::from_utf8(path)?)
}

/// A line for each, below names of columns.
fn table(rows: &Value, columns: &[(&str, &str, usize)]) -> String {
    let cell = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    let mut text = String::new();
    for (title, _, width) in columns {
        let _ = write!(text, "{title:width$} ");
    }
    for row in rows.as_array().into_iter().flatten() {
        text.truncate(text.trim_end().len());
        text.push('\n');
        for (_, field, width) in columns {
            let _ = write!(text, "{:width$} ", cell(&row[*field]));
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

fn show_buckets(list: &Value) -> String {
    let columns = [
        ("BUCKET", "bucket", 32),
        ("RF", "rf", 3),
        ("SAID BY", "rf_said_by", 8),
        ("EC", "ec", 6),
        ("SAID BY", "ec_said_by", 8),
        ("AFTER MS", "ec_after_ms", 12),
    ];
    table(&list["buckets"], &columns)
}

fn show_nodes(list: &Value) -> String {
    let columns = [
        ("NODE", "name", 5),
        ("STATE", "state", 12),
        ("HEALTH", "health", 8),
        ("VOTER", "voter", 6),
        ("RACK", "rack", 10),
        ("REPLICAS", "replicas", 9),
        ("BYTES", "replica_bytes", 15),
        ("S3", "s3", 28),
        ("ADMIN", "admin", 0),
    ];
    table(&list["nodes"], &columns)
}

fn show_disks(list: &Value) -> String {
    let columns = [
        ("DISK", "disk", 17),
        ("NODE", "node", 5),
        ("STATE", "state", 9),
        ("HEALTH", "health", 8),
        ("FREE", "free_bytes", 15),
        ("TOTAL", "total_bytes", 15),
        ("REPLICAS", "replicas", 9),
        ("LAST", "last_replicas", 0),
    ];
    table(&list["disks"], &columns)
}

#[cfg(test)]
mod tests {
    use super::{path, show_disks};
    use serde_json::json;

    #[test]
    fn a_list_is_a_line_for_each_and_shows_what_is_not_known() {
        let list = json!({ "disks": [{ "disk": "00ab", "node": 2, "state": "active", "free_bytes": null, "last_replicas": 3 }] });
        let text = show_disks(&list);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].starts_with("DISK ") && lines[1].starts_with("00ab ") && lines[1].ends_with('3'), "{text}");
        assert!(lines[1].contains(" - "), "{text}");
    }

    #[test]
    fn a_name_is_one_piece_of_a_path() {
        assert_eq!(path("/v1/nodes/", "a/b").expect("text"), "/v1/nodes/a%2Fb");
    }
}
