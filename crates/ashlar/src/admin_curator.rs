//! `ashlar admin curator …`: how redundancy stands, what is done about it, and that it hurry.
//!
//! Promises: numbers are those of the admin API; people get them in their units. Refuses to know: where they come from.

use crate::admin_client::{Client, Failure, print};
use crate::cli::parse_duration_ms;
use clap::Subcommand;
use hyper::Method;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

/// Between two looks of `--watch`.
const WATCH: Duration = Duration::from_secs(2);

#[derive(Subcommand)]
pub enum CuratorCommand {
    /// How many copies groups have of those they require, what is being done, and how long that will take.
    Status {
        /// Look again every two seconds until every group has its copies.
        #[arg(long)]
        watch: bool,
    },
    /// What is under way and what waits, the most urgent first.
    Tasks,
    /// Plan anew on all nodes, by the records as they are now.
    Scan {
        /// Compare the files of all disks with the records as well.
        #[arg(long)]
        full: bool,
    },
    /// Lift the limits of background work for a while: clients may have to wait.
    Boost {
        /// For how long, such as 30m; 0s ends it.
        #[arg(long = "for", value_name = "DUR", value_parser = parse_duration_ms)]
        time_ms: u64,
    },
}

/// Runs one of them.
pub async fn run(client: &Client, command: CuratorCommand, as_json: bool) -> Result<ExitCode, Failure> {
    let scan = |full| Some(json!({ "full": full }));
    let answer = match command {
        CuratorCommand::Status { watch: true } => return watch(client, as_json).await,
        CuratorCommand::Status { watch: false } => client.ask(Method::GET, "/v1/curator/status", None, as_json).await?,
        CuratorCommand::Tasks => {
            let tasks = client.ask(Method::GET, "/v1/curator/tasks", None, as_json).await?;
            print(&tasks, as_json, show_tasks);
            return Ok(ExitCode::SUCCESS);
        }
        CuratorCommand::Scan { full } => client.ask(Method::POST, "/v1/curator/scan", scan(full), as_json).await?,
        CuratorCommand::Boost { time_ms } => {
            let body = json!({ "seconds": time_ms.div_ceil(1000) });
            client.ask(Method::POST, "/v1/curator/boost", Some(body), as_json).await?
        }
    };
    print(&answer, as_json, show_status);
    Ok(ExitCode::SUCCESS)
}

async fn watch(client: &Client, as_json: bool) -> Result<ExitCode, Failure> {
    loop {
        let status = client.now().ask(Method::GET, "/v1/curator/status", None, true).await?;
        print(&status, as_json, show_status);
        if status["fully_redundant"] == Value::Bool(true) {
            return Ok(ExitCode::SUCCESS);
        }
        tokio::time::sleep(WATCH).await;
    }
}

fn amount(value: &Value) -> String {
    let number = |name: &str| value[name].as_u64().unwrap_or(0);
    format!("{} groups, {}", number("groups"), bytes(number("bytes")))
}

fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    let mut scaled = count as f64;
    while scaled >= 1024.0 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{scaled:.1} {}", units[unit]) }
}

fn duration(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

fn show_status(status: &Value) -> String {
    let census = &status["census"];
    let full = status["fully_redundant"] == Value::Bool(true);
    let mut text = format!("fully redundant: {}\n", if full { "yes" } else { "no" });
    for standing in census["standings"].as_array().into_iter().flatten() {
        let (sound, required) = (&standing["sound"], &standing["required"]);
        let _ = writeln!(text, "  {sound} of {required} copies: {}", amount(standing));
    }
    let at_risk = amount(&census["at_risk"]);
    let _ = writeln!(text, "short of copies: {}; in one place alone: {at_risk}", amount(&census["short"]));
    for (name, label) in
        [("unreadable", "on no node that answers"), ("leaving", "on disks that drain"), ("surplus", "surplus")]
    {
        if census[name]["groups"].as_u64().unwrap_or(0) > 0 {
            let _ = writeln!(text, "{label}: {}", amount(&census[name]));
        }
    }
    let open = (&census["unsealed_groups"], &census["unsealed_hurt_groups"]);
    let _ = writeln!(text, "open: {} groups, {} of them with a replica that cannot be asked", open.0, open.1);
    let rate = status["bytes_per_second"].as_u64().unwrap_or(0);
    let left = match status["seconds_to_full_redundancy"].as_u64() {
        Some(seconds) => duration(seconds),
        None => "unknown, nothing moves just now".to_owned(),
    };
    let missing = bytes(census["missing_bytes"].as_u64().unwrap_or(0));
    let _ = writeln!(text, "to be copied: {missing} at {}/s, {left}", bytes(rate));
    if let Some(boost) = status["boost_ms"].as_u64() {
        let _ = writeln!(text, "limits are lifted for another {}", duration(boost.div_ceil(1000)));
    }
    for node in status["nodes"].as_array().into_iter().flatten() {
        show_node(node, &mut text);
    }
    text
}

fn show_node(node: &Value, text: &mut String) {
    let _ = write!(text, "node {}: ", node["node"]);
    if let Some(error) = node["error"].as_str() {
        let _ = writeln!(text, "{error}");
        return;
    }
    let by_priority = |name: &str| {
        let counts = node[name].as_array().into_iter().flatten().map(|amount| amount["groups"].to_string());
        counts.collect::<Vec<_>>().join("/")
    };
    let (waiting, done) = (by_priority("waiting"), by_priority("done"));
    let rate = bytes(node["bytes_per_second"].as_u64().unwrap_or(0));
    let (running, pace) = (&node["running"], &node["pace_percent"]);
    let _ = writeln!(
        text,
        "{running} tasks run, {waiting} wait and {done} are done by priority 1 to 5; {rate}/s, pace {pace} %"
    );
    if let Some(why) = node["last_error"].as_str() {
        let _ = writeln!(text, "  waited last: {why}");
    }
}

fn show_tasks(tasks: &Value) -> String {
    let mut text = format!(
        "{:>4} {:>4} {:8} {:18} {:>8} {:>10} {}\n",
        "NODE", "PRIO", "TASK", "GROUP", "READABLE", "BYTES", "STATE"
    );
    for task in tasks["tasks"].as_array().into_iter().flatten() {
        let word = |name: &str| task[name].as_str().unwrap_or("").to_owned();
        let number = |name: &str| task[name].as_u64().unwrap_or(0);
        let state = match task["running_ms"].as_u64() {
            Some(ms) => format!("runs for {}", duration(ms / 1000)),
            None => "waits".to_owned(),
        };
        let (node, priority, readable) = (number("node"), number("priority"), number("readable"));
        let (kind, group, size) = (word("kind"), word("group"), bytes(number("bytes")));
        let _ = writeln!(text, "{node:>4} {priority:>4} {kind:8} {group:18} {readable:>8} {size:>10} {state}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{bytes, duration, show_status, show_tasks};
    use serde_json::json;

    #[test]
    fn a_status_is_shown_in_the_units_of_people() {
        let amount = json!({ "groups": 3, "bytes": 3_u64 << 20 });
        let status = json!({
            "fully_redundant": false,
            "census": {
                "standings": [{ "required": 2, "sound": 1, "groups": 3, "bytes": 3_u64 << 20 }],
                "short": amount, "at_risk": amount, "missing_bytes": 3_u64 << 20, "unsealed_groups": 2, "unsealed_hurt_groups": 0,
            },
            "bytes_per_second": 1_u64 << 20,
            "seconds_to_full_redundancy": 3,
            "boost_ms": 61_000,
            "nodes": [{ "node": 1, "running": 1, "waiting": [amount], "done": [amount], "pace_percent": 50 }, { "node": 2, "error": "away" }],
        });
        let text = show_status(&status);
        for part in [
            "fully redundant: no",
            "1 of 2 copies: 3 groups, 3.0 MiB",
            "at 1.0 MiB/s, 3 s",
            "1 min 1 s",
            "node 2: away",
            "pace 50 %",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let tasks = json!({ "tasks": [{ "node": 1, "group": "00ff", "kind": "add", "priority": 1, "readable": 1, "bytes": 4096, "running_ms": null }] });
        assert!(show_tasks(&tasks).contains("4.0 KiB waits"), "{}", show_tasks(&tasks));
    }

    #[test]
    fn sizes_and_times_are_short() {
        assert_eq!((bytes(512), bytes(1536), bytes(5 << 40)), ("512 B".into(), "1.5 KiB".into(), "5.0 TiB".into()));
        assert_eq!(
            (duration(59), duration(125), duration(7260)),
            ("59 s".into(), "2 min 5 s".into(), "2 h 1 min".into())
        );
    }
}
