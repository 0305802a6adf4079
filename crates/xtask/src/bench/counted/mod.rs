//! `cargo xtask bench --counted`: what a request costs, in things that can be counted and are the same on a busy machine.
//!
//! Promises: fails if a count is above its bound in `counted-bounds.txt`, if a count has no bound or a bound no count; never looks
//! at time. What cannot be counted here is said. Refuses to know: why a bound is what it is; that stands beside the bound.
//! Allocations of a request, and seeks and rows of a page, are counted by tests of their crates, within the process.

mod bounds;
mod callgrind;
mod counters;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::machine;
use crate::Outcome;
use crate::process::{self, empty_folder, step};
use crate::server::{ACCESS_KEY, SECRET_KEY, Server};
use bounds::Bounds;
use callgrind::Instructions;
use counters::Counters;

/// A count and how much of it an operation took.
type Count = (String, f64);

/// Small objects that are read.
const OBJECTS: u32 = 2000;
/// Keys that are listed, in 100 groups.
const LISTED: u32 = 3000;

/// Valgrind runs one thread at a time and does not let go of the others while one waits in io_uring. No read counted here goes to a
/// disk, so it is the same code that is counted.
const UNDER_CALLGRIND: [&str; 2] = ["--io", "threads"];

/// Reads and lists are done over what lies here already.
const SMALL: [&str; 6] = ["--prefix", "small/", "--objects", "2000", "--size", "4K"];
const LISTS: [&str; 8] = ["--prefix", "listed/", "--objects", "3000", "--size", "100", "--fanout", "100"];
const GROUPS: [&str; 2] = ["--delimiter", "/"];

/// Counts, prints, judges.
pub(super) fn run(root: &Path, binary: &Path) -> Outcome {
    let bounds = Bounds::read(&root.join("crates/xtask/counted-bounds.txt"))?;
    let work = Work { binary: binary.to_owned(), folder: empty_folder(root, "counted")? };
    let mut counts = step("counts of the server itself", || work.by_the_server())?;
    let mut skipped = Vec::new();
    match step("instructions", || work.by_callgrind())? {
        Counted::All(instructions) => counts.extend(instructions),
        Counted::NotHere(reason) => skipped.push(reason),
    }
    let judged_here = machine::has_feature("avx2");
    if !judged_here {
        skipped.push("instructions are shown and not judged: the bounds are for x86-64 with AVX2".into());
    }
    for reason in &skipped {
        println!("counted: INSTRUCTIONS SKIPPED, {reason}");
    }
    let verdict = bounds.judge(&counts, skipped.is_empty());
    println!("{}", verdict.text);
    println!("counted: {} passed, {} failed, {} skipped", verdict.passed, verdict.failed, verdict.skipped);
    if verdict.failed > 0 { Err("a count is above its bound, see the lines marked FAIL".into()) } else { Ok(()) }
}

/// What came of counting instructions.
enum Counted {
    All(Vec<Count>),
    /// Callgrind cannot be had or does not work on this machine, and why.
    NotHere(String),
}

/// A store that is loaded, twice: once natively, once under callgrind.
struct Work {
    binary: PathBuf,
    folder: PathBuf,
}

impl Work {
    /// Runs `ashlar bench` to its end; every answer is checked by it.
    fn load(&self, server: &Server, words: &[&str], options: &[&str], count: u32) -> Result<f64, String> {
        let mut command = Command::new(&self.binary);
        command.args(["bench", "--json"]).args(words).args(options);
        command.args(["--count", &count.to_string(), "--endpoint", &format!("http://{}", server.address)]);
        command.env("ASHLAR_ROOT_ACCESS_KEY", ACCESS_KEY).env("ASHLAR_ROOT_SECRET_KEY", SECRET_KEY);
        let (text, succeeded) = process::output(&mut command)?;
        let report: Value = serde_json::from_str(&text).map_err(|_| format!("{words:?} reported nothing"))?;
        match report["operations"].as_f64() {
            Some(operations) if succeeded && operations > 0.0 => Ok(operations),
            _ => Err(format!("{words:?}: {}", report["error_samples"])),
        }
    }

    /// A server without instruments, and its own counters.
    fn by_the_server(&self) -> Result<Vec<Count>, String> {
        let server = Server::start(&self.binary, &self.folder, &[])?;
        let one = ["-c", "1", "--no-prepare"];
        let mut counts = Vec::new();
        let mut count = |words: &[&str], options: &[&str], operations: u32, figures: &[Figure]| {
            let before = Counters::read(&server)?;
            let operations = self.load(&server, words, options, operations)?;
            let spent = Counters::read(&server)?.since(&before);
            counts.extend(figures.iter().filter_map(|(name, of)| Some(((*name).to_owned(), of(&spent)? / operations))));
            Ok::<(), String>(())
        };
        // What is to be read, and the source of the copies.
        count(&["put"], &["--prefix", "small/", "--size", "4K"], OBJECTS, &[])?;
        count(&["put"], &["--prefix", "listed/", "--fanout", "100", "--size", "100"], LISTED, &[])?;
        count(&["copy"], &["--size", "8M", "-c", "1"], 1, &[])?;
        server.admin_command(&["flush-caches"])?;

        let put = |prefix: &'static str| ["put", "--prefix", prefix];
        count(&put("one/"), &[&one[..], &["--size", "4K"]].concat(), 500, &PUT_ONE)?;
        count(&put("many/"), &["--no-prepare", "-c", "64", "--size", "4K"], 4000, &PUT_MANY)?;
        count(&put("large/"), &[&one[..], &["--size", "1M"]].concat(), 40, &PUT_LARGE)?;
        count(&["delete", "--prefix", "one/"], &one, 500, &DELETE)?;
        count(&["copy", "--size", "8M"], &one, 50, &COPY)?;
        for (words, options, operations, figures) in [
            (&["head"][..], &SMALL[..], OBJECTS, &HEAD[..]),
            (&["get"], &SMALL, OBJECTS, &GET),
            (&["list"], &LISTS, 60, &LIST),
        ] {
            let options = [options, &one].concat();
            // The first time fills the caches.
            count(words, &options, operations, &[])?;
            count(words, &options, operations, figures)?;
        }
        server.stop()?;
        Ok(counts)
    }

    /// The same store under callgrind, which counts every instruction of the process. Where callgrind does not work that is no
    /// failure; a request that fails under it is one.
    fn by_callgrind(&self) -> Result<Counted, String> {
        let started = callgrind::wrapper(&self.folder).and_then(|wrapper| {
            let wrapper: Vec<&str> = wrapper.iter().map(String::as_str).collect();
            let server = Server::start_under(&wrapper, &self.binary, &self.folder, &UNDER_CALLGRIND)?;
            callgrind::probe(&server).map(|()| server)
        });
        match started {
            Ok(server) => self.under(server).map(Counted::All),
            Err(reason) => Ok(Counted::NotHere(reason)),
        }
    }

    fn under(&self, server: Server) -> Result<Vec<Count>, String> {
        let one = ["-c", "1", "--no-prepare"];
        let fresh = ["--prefix", "counted/"];
        let groups = [&LISTS[..], &GROUPS].concat();
        let small = [&fresh[..], &["--size", "4K"]].concat();
        let work: [(&str, &str, &[&str], u32); 6] = [
            ("instructions per HEAD", "head", &SMALL, 400),
            ("instructions per GET 4 KiB", "get", &SMALL, 400),
            ("instructions per LIST of 1,000 keys", "list", &LISTS, 30),
            ("instructions per LIST of 100 groups", "list", &groups, 10),
            ("instructions per PUT 4 KiB", "put", &small, 400),
            ("instructions per DELETE", "delete", &fresh, 400),
        ];
        let mut counts = Vec::new();
        for (name, word, options, operations) in work {
            let options = [options, &one].concat();
            if ["head", "get", "list"].contains(&word) {
                // Once over everything, so that no block is read from disk while it counts.
                self.load(&server, &[word], &options, if word == "list" { 6 } else { 2 * OBJECTS })?;
            }
            let instructions = Instructions::begin(&server, &self.folder)?;
            let done = self.load(&server, &[word], &options, operations)?;
            counts.push((name.to_owned(), instructions.end()? / done));
        }
        server.stop()?;
        Ok(counts)
    }
}

/// The name of a count, and how it is read off what was spent; `None` where the kernel does not tell.
type Figure = (&'static str, fn(&Counters) -> Option<f64>);

const PUT_ONE: [Figure; 3] = [
    ("syncs per PUT 4 KiB, one writer", |spent| Some(spent.of("log_syncs") + spent.of("data_syncs"))),
    ("log entries per PUT", |spent| Some(spent.of("log_entries"))),
    ("bytes written per PUT 4 KiB, one writer", |spent| spent.written_bytes()),
];
const PUT_MANY: [Figure; 1] =
    [("syncs per PUT 4 KiB, 64 writers", |spent| Some(spent.of("log_syncs") + spent.of("data_syncs")))];
const PUT_LARGE: [Figure; 2] = [
    ("syncs per PUT 1 MiB, one writer", |spent| Some(spent.of("log_syncs") + spent.of("data_syncs"))),
    ("bytes appended to extents per PUT 1 MiB", |spent| Some(spent.of("data_appended_bytes"))),
];
const DELETE: [Figure; 1] =
    [("syncs per DELETE, one writer", |spent| Some(spent.of("log_syncs") + spent.of("data_syncs")))];
const COPY: [Figure; 2] = [
    ("bytes appended to extents per copy of 8 MiB", |spent| Some(spent.of("data_appended_bytes"))),
    ("syncs per copy, one writer", |spent| Some(spent.of("log_syncs") + spent.of("data_syncs"))),
];
const HEAD: [Figure; 2] = [
    ("blocks of the tree per HEAD", Counters::blocks),
    ("reads of data files per HEAD", |spent| Some(spent.of("data_reads"))),
];
const GET: [Figure; 2] = [
    ("blocks of the tree per GET 4 KiB", Counters::blocks),
    ("reads of data files per GET 4 KiB", |spent| Some(spent.of("data_reads"))),
];
const LIST: [Figure; 1] = [("reads of data files per LIST of 1,000 keys", |spent| Some(spent.of("data_reads")))];
