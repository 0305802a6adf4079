//! `ashlar dev`: a whole cluster on this machine, each node and balancer a process of its own.
//!
//! Promises: the same folder brings the same cluster back, on the same ports; no process outlives this one; nothing is started again
//! by itself. Refuses to know: what nodes do.
#![allow(clippy::print_stdout)]

mod child;
mod plan;

use crate::cli::{DevArgs, DevClusterArgs, DevCommand};
use crate::credentials::{self, RootKeys};
use crate::server::Failure;
use child::Child;
use plan::{BalancerPlan, NodePlan, Plan, local};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Memory of a node: many of them share a machine.
const NODE_MEMORY: &str = "128MiB";
/// Small extent groups, so that a little data has many of them.
const NODE_GROUP_SIZE: &str = "8MiB";
/// How often it is looked whether all still run.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Runs a cluster until it is told to end, or becomes one of its nodes.
pub async fn run(args: DevArgs) -> Result<(), Failure> {
    match args.command {
        Some(DevCommand::StartNode { name, data_dir, json }) => start_node(&name, &data_dir, json),
        None => run_cluster(&args.cluster).await,
    }
}

async fn run_cluster(args: &DevClusterArgs) -> Result<(), Failure> {
    let plan = Plan::load_or_make(args)?;
    let ended = crate::signals::end_asked()?;
    let mut ended = std::pin::pin!(ended);
    let keys = keys(&args.data_dir)?;
    let mut children = Vec::new();
    let result = tokio::select! {
        () = &mut ended => Ok(()),
        started = start(&plan, args, &keys, &mut children) => match started {
            Ok(line) => {
                show(args, &line);
                tokio::select! { () = ended => {}, () = watch(&mut children) => {} }
                Ok(())
            }
            Err(failure) => Err(failure),
        }
    };
    end(children).await;
    result
}

/// One key pair for all nodes, kept in the cluster's folder.
fn keys(folder: &Path) -> Result<RootKeys, Failure> {
    let env = env::Env::system(1);
    let folders = [folder.to_owned()];
    let place = credentials::Place { folders: &folders, copies: 1, newborn: true };
    Ok(credentials::find_or_make(&place, |bytes| env.random.fill(bytes))?.0)
}

/// Starts everything, nodes first; what there is to say when all are ready.
async fn start(
    plan: &Plan,
    args: &DevClusterArgs,
    keys: &RootKeys,
    children: &mut Vec<Child>,
) -> Result<Value, Failure> {
    let folder = args.data_dir.as_path();
    let mut said = BTreeMap::new();
    // Those that were members before need each other to become ready; those that are to join need a cluster that is.
    let (members, new): (Vec<_>, Vec<_>) = plan.nodes.iter().partition(|node| node.is_born(folder));
    for node in &members {
        children.push(Child::start(&node.name, folder, node_command(node, folder, keys, true)?)?);
    }
    for node in &members {
        let child = children.iter_mut().find(|child| child.name == node.name).ok_or("a child that was just added")?;
        said.insert(&node.name, child.ready(folder).await?);
    }
    for node in new {
        let mut command = node_command(node, folder, keys, true)?;
        if let Some(first) = plan.nodes.first().filter(|first| *first != node) {
            command.env("ASHLAR_JOIN_TOKEN", join_token(first, keys).await?);
        }
        said.insert(&node.name, started(&node.name, folder, command, children).await?);
    }
    let describe = |node: &NodePlan| {
        let ready = &said[&node.name];
        json!({
            "name": node.name,
            "pid": ready["pid"],
            "endpoint": ready["endpoint"],
            "admin": ready["admin"],
            "data_dirs": node.data_dirs(folder),
        })
    };
    let nodes: Vec<Value> = plan.nodes.iter().map(describe).collect();
    let mut balancers = Vec::new();
    for (index, balancer) in plan.balancers.iter().enumerate() {
        let command = balancer_command(balancer, &plan.nodes)?;
        let ready = started(&format!("balancer{}", index + 1), folder, command, children).await?;
        balancers.push(json!({"pid": ready["pid"], "endpoint": ready["endpoint"], "admin": ready["admin"]}));
    }
    Ok(json!({
        "access_key": keys.access_key,
        "secret_key": keys.secret_key,
        "nodes": nodes,
        "balancers": balancers,
    }))
}

/// A token that admits one node to the cluster of `first`, which is ready.
async fn join_token(first: &NodePlan, keys: &RootKeys) -> Result<String, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["admin", "cluster", "join-token", "--json", "--admin", &first.at(first.admin_port)]);
    command.env("ASHLAR_ROOT_ACCESS_KEY", &keys.access_key).env("ASHLAR_ROOT_SECRET_KEY", &keys.secret_key);
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let said: Value = serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("no join token: {}", String::from_utf8_lossy(&output.stderr).trim()))?;
    Ok(said["token"].as_str().ok_or("the answer holds no token")?.to_owned())
}

async fn started(name: &str, folder: &Path, command: Command, children: &mut Vec<Child>) -> Result<Value, Failure> {
    let child = Child::start(name, folder, command)?;
    children.push(child);
    let child = children.last_mut().ok_or("a child that was just added")?;
    child.ready(folder).await
}

fn node_command(node: &NodePlan, folder: &Path, keys: &RootKeys, json: bool) -> Result<Command, Failure> {
    let mut command = node.program()?;
    command.args(["server", "--listen", &node.at(node.port), "--admin-listen", &node.at(node.admin_port)]);
    command.args(["--rpc-listen", &node.at(node.rpc_port)]);
    for dir in node.data_dirs(folder) {
        command.arg("--data-dir").arg(dir);
    }
    command.args(["--memory", NODE_MEMORY, "--group-size", NODE_GROUP_SIZE]);
    if json {
        command.arg("--json");
    }
    command.env("ASHLAR_ROOT_ACCESS_KEY", &keys.access_key).env("ASHLAR_ROOT_SECRET_KEY", &keys.secret_key);
    Ok(command)
}

fn balancer_command(balancer: &BalancerPlan, nodes: &[NodePlan]) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([
        "balancer",
        "--listen",
        &local(balancer.port),
        "--admin-listen",
        &local(balancer.admin_port),
        "--json",
    ]);
    for node in nodes {
        command.arg("--node").arg(format!("{},{}", node.at(node.port), node.at(node.admin_port)));
    }
    Ok(command)
}

/// Becomes that node: this very process, so that its pid is the node's.
fn start_node(name: &str, folder: &Path, json: bool) -> Result<(), Failure> {
    let none = || format!("{} holds no cluster; `ashlar dev` makes one", folder.display());
    let plan = Plan::load(folder)?.ok_or_else(none)?;
    let other = || format!("the cluster in {} has no node {name}", folder.display());
    let node = plan.nodes.iter().find(|node| node.name == name).ok_or_else(other)?;
    Err(node_command(node, folder, &keys(folder)?, json)?.exec().into())
}

/// Says once of each process that it has ended; comes back when none is left.
async fn watch(children: &mut [Child]) {
    let mut running: Vec<&mut Child> = children.iter_mut().collect();
    while !running.is_empty() {
        tokio::time::sleep(LOOK_EVERY).await;
        running.retain_mut(|child| match child.ended() {
            Ok(None) => true,
            Ok(Some(status)) => {
                tracing::warn!(name = child.name, pid = child.pid(), %status, "a process has ended and is not started again");
                false
            }
            Err(error) => {
                tracing::warn!(name = child.name, %error, "a process cannot be waited for");
                false
            }
        });
    }
}

/// Ends all: balancers first, then what they stand in front of.
async fn end(mut children: Vec<Child>) {
    let first_balancer = children.iter().position(|child| child.name.starts_with("balancer")).unwrap_or(children.len());
    let mut balancers = children.split_off(first_balancer);
    for group in [&mut balancers, &mut children] {
        group.iter_mut().for_each(Child::ask_to_end);
        for child in group {
            child.end().await;
        }
    }
}

fn show(args: &DevClusterArgs, line: &Value) {
    if args.json {
        println!("{line}");
    } else {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        println!("The cluster is ready.\n");
        for node in line["nodes"].as_array().into_iter().flatten() {
            println!("  {:10}{}  admin {}", text(&node["name"]), text(&node["endpoint"]), text(&node["admin"]));
        }
        for balancer in line["balancers"].as_array().into_iter().flatten() {
            println!("  balancer  {}", text(&balancer["endpoint"]));
        }
        let (access, secret) = (text(&line["access_key"]), text(&line["secret_key"]));
        println!("\n  Access key  {access}\n  Secret key  {secret}\n  Logs        {}/*.log", args.data_dir.display());
    }
    let _ = std::io::stdout().flush();
}
