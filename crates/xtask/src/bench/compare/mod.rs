//! `cargo xtask bench --compare`: ours beside peers and floors, each a separate program on this machine.
//!
//! Promises: every step is done to one server after the other before the next step, and all of it again each round; while one server
//! is measured the others stand still; a failed request of ours fails the run. Refuses to know: what the figures should be (`rows`).

mod history;
mod loadgen;
mod plot;
mod rows;
mod servers;
mod steps;
mod table;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::{BenchArgs, machine};
use crate::Outcome;
use crate::process::{self, empty_folder, make_folder, step, target_folder, wait_until};
use loadgen::{Loadgen, Sample};
use servers::{Peer, ServerId};
use steps::{PutCounts, STEPS, Step};
use table::Table;

const ROUNDS: u32 = 3;
const SECONDS: f64 = 2.0;
/// What three rounds leave on the disk: 1.8 GB a round for each of three stores, and the files of one round twice.
const FREE_BYTES_MIN: u64 = 20 << 30;
/// A server counts as quiet when it used no more processor time than this in a moment, and is waited for no longer than that.
const QUIET_TICKS: u64 = 1;
const QUIET_MOMENT: Duration = Duration::from_millis(100);
const QUIET_LIMIT: Duration = Duration::from_secs(2);

/// What every run of every step measured, by round.
type Samples = BTreeMap<(&'static str, ServerId), Vec<Option<Sample>>>;

/// Measures, prints, writes.
pub(super) fn run(root: &Path, binary: &Path, args: &BenchArgs) -> Outcome {
    let folder = empty_folder(root, "compare")?;
    if let Some(free) = machine::free_bytes(&folder).filter(|free| *free < FREE_BYTES_MIN) {
        return Err(format!(
            "{} GiB are free below {}, {} are wanted",
            free >> 30,
            folder.display(),
            FREE_BYTES_MIN >> 30
        ));
    }
    let peers = absolute(&args.peers.clone().unwrap_or_else(|| target_folder(root).join("peers")))?;
    let loadgen = Loadgen::provide(root, &args.loadgen, machine::device_of(&folder))?;
    let floor = step("the machine's floor", || floor(binary, &folder))?;
    let (servers, mut missing) = step("start of all servers", || servers::start_all(root, binary, &folder, &peers))?;
    let mut race = Race { loadgen, servers, seconds: args.seconds.unwrap_or(SECONDS), errors: Vec::new() };
    race.servers.iter().for_each(Peer::pause);
    missing.extend(step("preparation", || race.prepare(args.list_keys))?);
    for text in &missing {
        println!("   NOT MEASURED {text}");
    }
    let rounds = args.rounds.unwrap_or(ROUNDS);
    let mut samples = Samples::new();
    for round in 0..rounds {
        step(&format!("round {} of {rounds}", round + 1), || race.round(round, &mut samples))?;
    }
    race.servers.iter().for_each(Peer::resume);
    let table = Table::make(root, &race, floor, missing, &samples, rounds);
    drop(race);
    publish(root, &table, args)?;
    // Data of many gigabytes; it is left there after a failure only.
    let _ = std::fs::remove_dir_all(&folder);
    table.verdict()
}

fn absolute(path: &Path) -> Result<PathBuf, String> {
    std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn floor(binary: &Path, folder: &Path) -> Result<Value, String> {
    let (text, _) = process::output(Command::new(binary).args(["bench", "floor", "--folder"]).arg(folder))?;
    serde_json::from_str(&text).map_err(|error| format!("the floor is not JSON: {error}"))
}

/// All that a run of a step needs.
struct Race {
    loadgen: Loadgen,
    servers: Vec<Peer>,
    seconds: f64,
    /// Failed requests, as sentences.
    errors: Vec<String>,
}

impl Race {
    /// Buckets and the objects that all rounds read. Every server but the one at work stands still from here on. A peer that cannot
    /// be prepared is left out; the texts say why.
    fn prepare(&mut self, list_keys: u64) -> Result<Vec<String>, String> {
        let mut missing = Vec::new();
        let mut prepared = Vec::new();
        for server in std::mem::take(&mut self.servers) {
            println!("   {}", server.id.label());
            server.resume();
            let done = self.prepare_one(&server, list_keys);
            server.pause();
            match done {
                Ok(()) => prepared.push(server),
                Err(error) if server.id.is_peer() => missing.push(format!("{}: {error}", server.id.label())),
                Err(error) => return Err(error),
            }
        }
        self.servers = prepared;
        Ok(missing)
    }

    fn prepare_one(&self, server: &Peer, list_keys: u64) -> Outcome {
        // nginx takes files only; its bucket is a folder that is there already.
        if server.id != ServerId::Nginx {
            self.must(server, &["mkbucket"])?;
        }
        let put = ["put", "--conc", "16", "--count"];
        let warm = server.id.warm_objects().to_string();
        self.must(server, &[&put[..], &[&warm, "--prefix", steps::WARM_PREFIX]].concat())?;
        if server.id.is_store() {
            let size = steps::COPIED_BYTES.to_string();
            self.must(server, &["put", "--count", "1", "--size", &size, "--prefix", steps::COPIED_PREFIX])?;
        }
        if STEPS.iter().any(|step| step.keys == steps::Keys::Listed && step.servers.contains(&server.id)) {
            let (keys, groups) = (list_keys.to_string(), steps::LISTED_GROUPS.to_string());
            let listed = [&keys, "--size", "100", "--fanout", &groups, "--prefix", steps::LISTED_PREFIX];
            self.must(server, &[&put[..], &listed].concat())?;
        }
        Ok(())
    }

    fn must(&self, server: &Peer, words: &[&str]) -> Outcome {
        let arguments: Vec<String> = words.iter().map(|word| (*word).to_owned()).chain(server.arguments()).collect();
        let sample = self.loadgen.run(&arguments, &server.pids(), 0.0)?;
        match sample.errors {
            0.0 => Ok(()),
            errors => {
                Err(format!("{}: {}: {errors} errors, the last: {}", server.id.label(), words.join(" "), sample.error))
            }
        }
    }

    fn round(&mut self, round: u32, samples: &mut Samples) -> Outcome {
        let mut put: BTreeMap<ServerId, PutCounts> = BTreeMap::new();
        for step in &STEPS {
            let mut line = format!("   {:24}", step.name);
            for offset in 0..self.servers.len() {
                // Another server is first each round.
                let index = (offset + round as usize) % self.servers.len();
                let id = self.servers[index].id;
                if !step.servers.contains(&id) {
                    continue;
                }
                let sample = self.measure(index, step, round, put.entry(id).or_default())?;
                let rate = sample.as_ref().map_or("failed".into(), |s| super::spread::number(s.per_second));
                line += &format!(" {} {rate}/s;", id.label());
                samples.entry((step.name, id)).or_default().push(sample);
            }
            println!("{line}");
        }
        let prefix = steps::round_prefix(round);
        self.servers.iter().try_for_each(|server| server.forget(&prefix))
    }

    /// One step on one server, while the others stand still. `None` if requests failed: that is no figure.
    fn measure(
        &mut self,
        index: usize,
        step: &Step,
        round: u32,
        put: &mut PutCounts,
    ) -> Result<Option<Sample>, String> {
        let server = &self.servers[index];
        let Some(mut arguments) = step.arguments(server.id, round, self.seconds, put) else { return Ok(None) };
        arguments.extend(server.arguments());
        let pids = server.pids();
        server.resume();
        become_quiet(&pids);
        let sample = self.loadgen.run(&arguments, &pids, self.seconds);
        server.pause();
        let sample = sample?;
        if sample.errors > 0.0 || sample.operations == 0.0 {
            let what = format!("{}, round {}, {}", step.name, round + 1, server.id.label());
            self.errors.push(format!("{what}: {} requests failed, the last: {}", sample.errors, sample.error));
            return Ok(None);
        }
        if step.operation == "put" {
            put.insert(step.name, sample.next);
        }
        Ok(Some(sample))
    }
}

/// What others left to be written is written first, and what the server itself still had to do is done, within reason.
fn become_quiet(pids: &[u32]) {
    // Without it the figures are a little less clean, which is no reason to stop.
    let _ = process::run(&mut Command::new("sync"));
    wait_until(QUIET_LIMIT, || {
        let before = machine::ticks(pids);
        std::thread::sleep(QUIET_MOMENT);
        machine::ticks(pids) - before <= QUIET_TICKS
    });
}

fn publish(root: &Path, table: &Table, args: &BenchArgs) -> Outcome {
    let folder = make_folder(&target_folder(root).join("bench"))?;
    let (text, json, plot) = (table.markdown(), table.json(), plot::svg(table));
    println!("\n{text}");
    let json = serde_json::to_string_pretty(&json).map_err(|error| error.to_string())?;
    for (name, content) in [("compare.md", &text), ("compare.json", &json), ("compare.svg", &plot)] {
        write(&folder.join(name), content)?;
    }
    let docs = root.join("docs/bench");
    if args.docs {
        make_folder(&docs)?;
        write(&docs.join("compare.md"), &text)?;
        write(&docs.join("compare.svg"), &plot)?;
    }
    if args.record {
        make_folder(&docs)?;
        history::append(&docs.join("history.tsv"), table)?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Outcome {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}
