//! Faults on a running cluster under verified load: what clients see of them, and whether a promise was broken.
//!
//! Promises: the history of every key is put in one order or the run ends as a broken promise (P1); lists count as reads of every key
//! they should name (P2); at the end every key that was ever written is read once more (P3), every byte compared (P4).
//! Refuses to know: how nodes work together. It runs `ashlar dev` and speaks S3.

mod cluster;
mod history;
mod linear;
mod load;
mod net;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinSet;

use crate::client::Client;
use crate::content::Dice;
use crate::{BenchError, clock};
pub use cluster::ClusterConfig;
use cluster::{Cluster, Signal};
use history::History;
use linear::{Action, Operation, Verdict};
use load::{Shared, Tally, Worker, fetch, list, now};
pub use net::enter;

const BUCKET: &str = "chaos";
/// Load before the fault.
const BEFORE: Duration = Duration::from_secs(4);
/// Load after it is healed.
const AFTER: Duration = Duration::from_secs(6);
/// The audit may first have to settle and reclaim what a crash left.
const AUDIT_WITHIN: Duration = Duration::from_secs(90);
/// A healed cluster answers every read within this time, or the read has failed.
const FINAL_READ_WITHIN: Duration = Duration::from_secs(30);

/// What is done to the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Nothing.
    None,
    /// kill -9 of a node, which is started again later.
    KillNode,
    /// kill -9 of the node that leads root.
    KillLeader,
    /// kill -9 of two nodes.
    KillTwo,
    /// kill -9 of a balancer, for good.
    KillBalancer,
    /// kill -9 of all nodes at once: a power cut.
    KillAll,
    /// SIGSTOP of a node.
    PauseNode,
    /// SIGSTOP of the node that leads root.
    PauseLeader,
    /// SIGSTOP of all nodes.
    PauseAll,
    /// Each node is killed and started again, one after the other.
    RestartEach,
    /// The node that leads root and the others do not hear each other; clients reach all of them.
    CutLeader,
    /// The others do not hear the node that leads root, which hears them.
    MuteLeader,
    /// The node that leads root does not hear the others, which hear it.
    DeafLeader,
    /// The node that leads root and one other do not hear each other; the rest hears both.
    PartLeader,
    /// A node that does not lead root and the others do not hear each other.
    CutFollower,
}

impl Fault {
    /// Whether it needs nodes in networks of their own.
    pub fn is_of_network(self) -> bool {
        matches!(
            self,
            Fault::CutLeader | Fault::MuteLeader | Fault::DeafLeader | Fault::PartLeader | Fault::CutFollower
        )
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct ChaosConfig {
    /// The cluster.
    pub cluster: ClusterConfig,
    /// Faults, one after the other, each with a history of its own on one cluster.
    pub faults: Vec<Fault>,
    /// How long each lasts.
    pub lasts: Duration,
    /// Clients.
    pub clients: u32,
    /// Decides the load and whom the faults meet.
    pub seed: u64,
    /// Say what is done on standard error.
    pub verbose: bool,
}

/// What one fault did to the clients.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Which.
    pub fault: Fault,
    /// Whom it met.
    pub whom: String,
    /// Requests.
    pub tried: u64,
    /// Of them, those that failed once.
    pub failed_once: u64,
    /// Of them, those that failed when they were sent once more.
    pub failed_twice: u64,
    /// Writes that were acknowledged.
    pub acknowledged_writes: u64,
    /// The longest time without a successful read, from the fault on, in milliseconds.
    pub read_gap_ms: u64,
    /// The longest time without a successful write.
    pub write_gap_ms: u64,
    /// Operations whose order was found, and their keys.
    pub operations: u64,
    /// Keys.
    pub keys: u64,
    /// Why requests failed, with counts.
    pub errors: Vec<(String, u64)>,
}

/// All of them. It is only made when no promise was broken: wrong bytes 0, lost acknowledged writes 0.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChaosReport {
    /// The seed of the run.
    pub seed: u64,
    /// In order.
    pub rows: Vec<Row>,
}

impl fmt::Display for ChaosReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| fault | whom | tried | failed once | after one retry | longest gap, reads | writes | wrong bytes | lost |"
        )?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- | --- | --- | --- |")?;
        for row in &self.rows {
            writeln!(
                f,
                "| {:?} | {} | {} | {} | {} | {} ms | {} ms | 0 | 0 of {} |",
                row.fault,
                row.whom,
                row.tried,
                row.failed_once,
                row.failed_twice,
                row.read_gap_ms,
                row.write_gap_ms,
                row.acknowledged_writes
            )?;
        }
        for row in &self.rows {
            writeln!(
                f,
                "{:?}: {} operations on {} keys in order; errors {:?}",
                row.fault, row.operations, row.keys, row.errors
            )?;
        }
        writeln!(f, "chaos: {} passed, 0 failed, 0 skipped", self.rows.len())
    }
}

/// Runs all faults; the first broken promise ends the run as [`BenchError::Broken`].
pub async fn run(config: &ChaosConfig) -> Result<ChaosReport, BenchError> {
    let networks = config.faults.iter().any(|fault| fault.is_of_network());
    let mut cluster = Cluster::start(&config.cluster, networks)?;
    let mut dice = Dice::new(config.seed);
    let mut report = ChaosReport { seed: config.seed, rows: Vec::new() };
    for (number, fault) in config.faults.iter().enumerate() {
        if config.verbose {
            eprintln!("{fault:?}");
        }
        let row = one(config, &mut cluster, *fault, number, &mut dice).await?;
        if config.verbose {
            eprintln!("{row:?}");
        }
        report.rows.push(row);
    }
    Ok(report)
}

async fn one(
    config: &ChaosConfig,
    cluster: &mut Cluster,
    fault: Fault,
    number: usize,
    dice: &mut Dice,
) -> Result<Row, BenchError> {
    let shared = Arc::new(Shared {
        bucket: format!("{BUCKET}-{number}"),
        targets: cluster.targets(),
        history: History::default(),
        stop: AtomicBool::new(false),
        numbers: AtomicU64::new(config.seed.wrapping_mul(1 << 20).wrapping_add((number as u64) << 40) | 1),
        tally: Mutex::new(Tally::default()),
    });
    let bucket = Client::new(&shared.targets[0]).create_bucket(&shared.bucket).await;
    bucket.map_err(BenchError::request("create the bucket"))?;
    let mut workers = JoinSet::new();
    for client in 0..config.clients {
        workers.spawn(Worker::new(shared.clone(), u64::from(client), dice.roll()).work());
    }
    watch(&mut workers, BEFORE).await?;
    shared.tally().reset_gaps();
    let whom = inflict(config, cluster, fault, &mut workers, dice).await?;
    watch(&mut workers, AFTER).await?;
    shared.stop.store(true, Ordering::Relaxed);
    while let Some(ended) = workers.join_next().await {
        ended.map_err(|error| BenchError::Server(format!("a client's task ended badly: {error}")))??;
    }
    read_everything(cluster, &shared).await?;
    let (operations, keys) = shared.history.judge()?;
    if let Some(node) = cluster.running().first() {
        cluster.audit(*node, AUDIT_WITHIN)?;
    }
    let tally = shared.tally().clone();
    let mut errors: Vec<(String, u64)> = tally.samples.into_iter().collect();
    errors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    errors.truncate(5);
    let ms = |gap: Duration| gap.as_millis() as u64;
    Ok(Row {
        fault,
        whom,
        tried: tally.tried,
        failed_once: tally.failed_once,
        failed_twice: tally.failed_twice,
        acknowledged_writes: tally.acknowledged_writes,
        read_gap_ms: ms(tally.gaps[0]),
        write_gap_ms: ms(tally.gaps[1]),
        operations,
        keys,
        errors,
    })
}

/// Lets the clients work for a while; one that ends has found a broken promise.
async fn watch(workers: &mut JoinSet<Result<(), BenchError>>, how_long: Duration) -> Result<(), BenchError> {
    match tokio::time::timeout(how_long, workers.join_next()).await {
        Err(_) | Ok(None) => Ok(()),
        Ok(Some(ended)) => {
            ended.map_err(|error| BenchError::Server(format!("a client's task ended badly: {error}")))??;
            Err(BenchError::Server("a client ended before its time".into()))
        }
    }
}

/// Does it, lets it last, heals it. Answers whom it met.
async fn inflict(
    config: &ChaosConfig,
    cluster: &mut Cluster,
    fault: Fault,
    workers: &mut JoinSet<Result<(), BenchError>>,
    dice: &mut Dice,
) -> Result<String, BenchError> {
    let count = cluster.len();
    let any = dice.below(count as u64) as usize;
    let leader = |cluster: &Cluster| {
        cluster.root_leader().ok_or_else(|| BenchError::Server("no node says who leads root".into()))
    };
    if fault.is_of_network() {
        let leader = leader(cluster)?;
        let cuts = cuts(fault, count, leader, dice);
        cluster.cut(&cuts)?;
        watch(workers, config.lasts).await?;
        cluster.heal(&cuts)?;
        return Ok(cuts.iter().map(|(from, to)| format!("n{}-|n{}", from + 1, to + 1)).collect::<Vec<_>>().join(" "));
    }
    let victims = match fault {
        Fault::CutLeader | Fault::MuteLeader | Fault::DeafLeader | Fault::PartLeader | Fault::CutFollower => Vec::new(),
        Fault::None | Fault::RestartEach | Fault::KillBalancer => Vec::new(),
        Fault::KillNode | Fault::PauseNode => vec![any],
        Fault::KillLeader | Fault::PauseLeader => vec![leader(cluster)?],
        Fault::KillTwo => vec![any, (any + 1) % count],
        Fault::KillAll | Fault::PauseAll => (0..count).collect(),
    };
    let pauses = matches!(fault, Fault::PauseNode | Fault::PauseLeader | Fault::PauseAll);
    for victim in &victims {
        cluster.signal(*victim, if pauses { Signal::Stop } else { Signal::Kill })?;
    }
    match fault {
        Fault::KillBalancer => cluster.kill_balancer(0)?,
        Fault::RestartEach => {
            for node in 0..count {
                cluster.signal(node, Signal::Kill)?;
                watch(workers, config.lasts / 4).await?;
                cluster.restart(node)?;
                watch(workers, config.lasts / 4).await?;
            }
        }
        _ => watch(workers, config.lasts).await?,
    }
    if pauses {
        victims.iter().try_for_each(|victim| cluster.signal(*victim, Signal::Go))?;
    } else if !victims.is_empty() {
        cluster.restart_all(&victims)?;
    }
    Ok(victims.iter().map(|victim| format!("n{}", victim + 1)).collect::<Vec<_>>().join(" "))
}

/// Who does not hear whom any more, as (from, to).
fn cuts(fault: Fault, count: usize, leader: usize, dice: &mut Dice) -> Vec<(usize, usize)> {
    let other = (leader + 1 + dice.below(count as u64 - 1) as usize) % count;
    let victim = if fault == Fault::CutFollower { other } else { leader };
    let others = (0..count).filter(|node| *node != victim);
    let others: Vec<usize> = if fault == Fault::PartLeader { vec![other] } else { others.collect() };
    let (mute, deaf) = (fault != Fault::DeafLeader, fault != Fault::MuteLeader);
    let from = others.iter().filter(|_| mute).map(|other| (victim, *other));
    let to = others.iter().filter(|_| deaf).map(|other| (*other, victim));
    from.chain(to).collect()
}

/// Reads every key once more, each through another node, and lists all of them.
async fn read_everything(cluster: &Cluster, shared: &Arc<Shared>) -> Result<(), BenchError> {
    let mut clients: Vec<Client> = cluster.node_targets().iter().map(Client::new).collect();
    let count = clients.len();
    for (at, key) in shared.history.keys().into_iter().enumerate() {
        let deadline = clock::monotonic() + FINAL_READ_WITHIN;
        loop {
            let called = now();
            match fetch(&mut clients[at % count], shared, &key, true).await? {
                Ok(found) => {
                    let action = Action::Read(found);
                    let operation = Operation { called, returned: now(), action, verdict: Verdict::Done };
                    break shared.history.note(&key, operation);
                }
                Err(error) if clock::monotonic() >= deadline => {
                    return Err(BenchError::Broken(format!("{key} cannot be read from a healed cluster: {error}")));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    }
    let called = now();
    let listed = list(&mut clients[0], shared, "hot/").await?.map_err(BenchError::request("list"))?;
    shared.history.note_list("hot/", called, now(), &listed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Fault, cuts};
    use crate::content::Dice;

    #[test]
    fn a_cut_is_between_the_victim_and_those_that_the_fault_names() {
        let cuts = |fault| cuts(fault, 3, 1, &mut Dice::new(1));
        assert_eq!(cuts(Fault::CutLeader), [(1, 0), (1, 2), (0, 1), (2, 1)]);
        assert_eq!(cuts(Fault::MuteLeader), [(1, 0), (1, 2)]);
        assert_eq!(cuts(Fault::DeafLeader), [(0, 1), (2, 1)]);
        let part = cuts(Fault::PartLeader);
        assert!(part.len() == 2 && part[0].0 == 1 && part[1] == (part[0].1, 1), "{part:?}");
        let follower = cuts(Fault::CutFollower);
        assert!(follower.len() == 4 && follower[0].0 != 1, "{follower:?}");
    }
}
