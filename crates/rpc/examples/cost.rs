//! CPU time of a call between two nodes: TCP on the loopback, mutual TLS, both sides in this process.
//!
//! Promises: counts the process's own CPU time, so other programs change little. Refuses to know: networks, disks.
//! `cargo run --release -p ashlar-rpc --example cost`
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use bytes::Bytes;
use env::Env;
use env::buf::BufPool;
use futures_util::future::join_all;
use rpc::handlers::Handlers;
use rpc::tcp::{Admission, Identity, KeySha256, Listener, Pace, Peers, TcpConfig, Trust};
use rpc::{Boxed, Handler, Message, Service, Transport};
use std::sync::Arc;
use std::time::Duration;
use types::NodeId;

const BULK: Service = Service(3);
/// Ticks of /proc/self/stat in a second.
const TICKS: f64 = 100.0;

struct Both(String);

impl Trust for Both {
    fn node_of(&self, key: KeySha256) -> Option<NodeId> {
        (1..=2).find(|node| identity(*node).key_sha256() == key)
    }

    fn key_of(&self, node: NodeId) -> Option<KeySha256> {
        Some(identity(node).key_sha256())
    }

    fn address_of(&self, _: NodeId) -> Option<String> {
        Some(self.0.clone())
    }
}

/// Says how many bytes came, or gives as many as are asked for.
struct Counter(Bytes);

impl Handler for Counter {
    fn call(&self, _: NodeId, message: Message) -> Boxed<Result<Message, String>> {
        let wanted = message.head.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize);
        let answer = Message { head: Bytes::new(), body: self.0.slice(..wanted) };
        Box::pin(async move { Ok(answer) })
    }

    fn receive(&self, _: NodeId, _: Message) {}
}

fn identity(node: NodeId) -> Identity {
    Identity::from_secret([node as u8; 32])
}

fn config(env: &Env, node: NodeId, trust: Arc<dyn Trust>) -> TcpConfig {
    let memory = || BufPool::new(64 << 20);
    let (call_memory, answer_memory) = (memory(), memory());
    let (identity, env, bulk) = (identity(node), env.clone(), Arc::new([BULK]));
    TcpConfig { node, identity, trust, env, bulk, call_memory, answer_memory, pace: Pace::default() }
}

fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / TICKS
}

async fn measure(
    peers: &Peers,
    clock: &dyn env::clock::Clock,
    calls: usize,
    at_once: usize,
    sent: usize,
    wanted: usize,
) {
    let message = Message { head: Bytes::copy_from_slice(&(wanted as u32).to_le_bytes()), body: vec![7; sent].into() };
    let one = |_| async {
        for _ in 0..calls / at_once {
            peers.call(2, BULK, message.clone(), Duration::from_secs(30)).await.unwrap();
        }
    };
    let (cpu, wall) = (cpu_seconds(), clock.monotonic());
    join_all((0..at_once).map(one)).await;
    let (cpu, wall) = (cpu_seconds() - cpu, (clock.monotonic() - wall).as_secs_f64());
    let rate = calls as f64 / wall;
    println!("| {sent} B | {wanted} B | {at_once} | {:.1} µs | {rate:.0} |", cpu * 1e6 / calls as f64);
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let env = Env::system(1);
    runtime.block_on(async {
        let handlers = Handlers::new().with(BULK, Arc::new(Counter(vec![9; 1 << 20].into())));
        let nowhere: Arc<dyn Trust> = Arc::new(Both(String::new()));
        let address = "127.0.0.1:0".parse().unwrap();
        let listener = Listener::bind(config(&env, 2, nowhere), address, Admission::Members, handlers).await.unwrap();
        let trust: Arc<dyn Trust> = Arc::new(Both(listener.address().to_string()));
        let peers = Peers::new(config(&env, 1, trust), Handlers::new());
        measure(&peers, &*env.clock, 64, 8, 1 << 20, 0).await;
        println!("| sent | answered | at once | CPU a call, both sides | calls/s |\n| --- | --- | --- | --- | --- |");
        measure(&peers, &*env.clock, 8000, 8, 1 << 20, 0).await;
        measure(&peers, &*env.clock, 8000, 8, 0, 1 << 20).await;
        measure(&peers, &*env.clock, 8000, 1, 1 << 20, 0).await;
        measure(&peers, &*env.clock, 200_000, 1, 256, 256).await;
        measure(&peers, &*env.clock, 1_000_000, 64, 256, 256).await;
    });
}
