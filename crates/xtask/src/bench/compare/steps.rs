//! What is done to each server, in order, once a round.
//!
//! Promises: each step is one run of the load generator; reads concern keys that the preparation or a former step of the round put;
//! a key is never put twice. Refuses to know: what is read off the figures.

use std::collections::BTreeMap;

use super::servers::ServerId::{self, Garage, GarageSync, Hyper, Nginx, Ours, S3sFs};

/// Objects of 4 KiB that small reads choose from.
pub const WARM_OBJECTS: u64 = 1000;
/// Prefix of these.
pub const WARM_PREFIX: &str = "warm/";
/// Prefix of the keys to be listed, in [`LISTED_GROUPS`] groups.
pub const LISTED_PREFIX: &str = "listed/";
/// Groups of the listing by delimiter.
pub const LISTED_GROUPS: u64 = 100;
/// Prefix of the one object that is copied.
pub const COPIED_PREFIX: &str = "copied/";
/// Its size.
pub const COPIED_BYTES: u64 = 64 << 20;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Large objects that a step reads at most: all of them stay in the page cache.
const LARGE_OBJECTS_MAX: u64 = 100;

/// Where the keys of a step come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// New ones, under a prefix of this round and step.
    Fresh,
    /// Those that were put before the first round.
    Warm,
    /// Those that the named step put in this round.
    PutBy(&'static str),
    /// The keys to be listed.
    Listed,
}

/// One run of the load generator on each of some servers.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Its name, to which rows refer.
    pub name: &'static str,
    /// Word of the load generator.
    pub operation: &'static str,
    /// Bytes of an object, of a part for multipart uploads.
    pub size_bytes: u64,
    /// Connections with one request in flight each.
    pub connections: u64,
    /// Which keys.
    pub keys: Keys,
    /// End after so many operations, even if there is time left: what is put must fit on the disk.
    pub count: Option<u64>,
    /// Whether a count is all that ends it.
    pub timed: bool,
    /// Further options.
    pub options: &'static [&'static str],
    /// Servers that take part.
    pub servers: &'static [ServerId],
}

const ALL: &[ServerId] = &[Ours, Garage, GarageSync, S3sFs, Nginx, Hyper];
const DISKS: &[ServerId] = &[Ours, Garage, GarageSync, S3sFs, Nginx];
const STORES: &[ServerId] = &[Ours, Garage, GarageSync, S3sFs];
/// s3s-fs sorts the whole bucket for each page: seconds.
const LISTERS: &[ServerId] = &[Ours, Garage];

const PLAIN: Step = Step {
    name: "",
    operation: "put",
    size_bytes: 4 * KIB,
    connections: 1,
    keys: Keys::Fresh,
    count: None,
    timed: true,
    options: &[],
    servers: DISKS,
};

const READ: Step =
    Step { operation: "get", keys: Keys::Warm, options: &["--warmup-secs", "0.2"], servers: ALL, ..PLAIN };

/// All steps.
pub const STEPS: [Step; 20] = [
    Step { name: "PUT 4K c1", ..PLAIN },
    Step { name: "PUT 4K c16", connections: 16, ..PLAIN },
    Step { name: "PUT 4K c64", connections: 64, ..PLAIN },
    Step { name: "GET 4K c1", ..READ },
    Step { name: "GET 4K c1 delayed ACK", options: &["--warmup-secs", "0.2", "--quickack", "0"], ..READ },
    Step { name: "GET 4K c16", connections: 16, ..READ },
    Step { name: "HEAD c1", operation: "head", ..READ },
    Step { name: "HEAD c16", operation: "head", connections: 16, ..READ },
    Step { name: "DELETE c16", operation: "delete", connections: 16, keys: Keys::PutBy("PUT 4K c16"), ..PLAIN },
    Step { name: "PUT 1M c1", size_bytes: MIB, count: Some(300), ..PLAIN },
    Step { name: "PUT 1M c16", size_bytes: MIB, connections: 16, count: Some(300), ..PLAIN },
    Step { name: "PUT 32M c1", size_bytes: 32 * MIB, count: Some(8), ..PLAIN },
    Step { name: "PUT 32M c16", size_bytes: 32 * MIB, connections: 16, count: Some(16), ..PLAIN },
    Step { name: "GET 1M c1", operation: "get", size_bytes: MIB, keys: Keys::PutBy("PUT 1M c1"), ..PLAIN },
    Step { name: "GET 32M c1", operation: "get", size_bytes: 32 * MIB, keys: Keys::PutBy("PUT 32M c1"), ..PLAIN },
    Step { name: "LIST", operation: "list", size_bytes: 100, keys: Keys::Listed, servers: LISTERS, ..PLAIN },
    Step {
        name: "LIST groups",
        operation: "list",
        size_bytes: 100,
        keys: Keys::Listed,
        options: &["--delimiter", "/"],
        servers: LISTERS,
        ..PLAIN
    },
    Step {
        name: "copy 64M",
        operation: "copy",
        size_bytes: COPIED_BYTES,
        count: Some(100),
        options: &["--src", "copied/00000000"],
        servers: &[Ours, Garage, GarageSync],
        ..PLAIN
    },
    // This one copies the bytes: a hundred times 64 MiB would be too much.
    Step {
        name: "copy 64M, bytes moved",
        operation: "copy",
        size_bytes: COPIED_BYTES,
        count: Some(8),
        options: &["--src", "copied/00000000"],
        servers: &[S3sFs],
        ..PLAIN
    },
    Step {
        name: "multipart 8 x 8M",
        operation: "mpu",
        size_bytes: 8 * MIB,
        connections: 8,
        count: Some(5),
        timed: false,
        options: &["--parts", "8"],
        servers: STORES,
        ..PLAIN
    },
];

/// How many keys each putting step put, by its name.
pub type PutCounts = BTreeMap<&'static str, u64>;

impl Step {
    /// The load generator's arguments but for those that name the server; `None` if there is nothing to read or delete, because the
    /// step that puts it failed.
    pub fn arguments(&self, server: ServerId, round: u32, seconds: f64, put: &PutCounts) -> Option<Vec<String>> {
        let mut words = vec![self.operation.to_owned()];
        let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
        add("--size", self.size_bytes.to_string());
        add("--conc", self.connections.to_string());
        if self.timed {
            add("--secs", seconds.to_string());
        }
        if let Some(count) = self.count {
            add("--count", count.to_string());
        }
        match self.keys {
            Keys::Fresh => add("--prefix", fresh_prefix(round, self.name)),
            Keys::Warm => {
                add("--prefix", WARM_PREFIX.to_owned());
                add("--objects", server.warm_objects().to_string());
            }
            Keys::Listed => add("--prefix", LISTED_PREFIX.to_owned()),
            Keys::PutBy(step) => {
                let count = *put.get(step).filter(|count| **count > 0)?;
                add("--prefix", fresh_prefix(round, step));
                if self.operation == "delete" {
                    add("--count", count.to_string());
                } else {
                    add("--objects", count.min(LARGE_OBJECTS_MAX).to_string());
                }
            }
        }
        words.extend(self.options.iter().map(|word| (*word).to_owned()));
        Some(words)
    }
}

/// Folder, as it were, of everything that a round puts.
pub fn round_prefix(round: u32) -> String {
    format!("round{round}")
}

fn fresh_prefix(round: u32, step: &str) -> String {
    let step: String = step.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    format!("{}/{step}/", round_prefix(round))
}

#[cfg(test)]
mod tests {
    use super::{Keys, PutCounts, STEPS};
    use crate::bench::compare::servers::ServerId::Ours;

    fn step(name: &str) -> &'static super::Step {
        STEPS.iter().find(|step| step.name == name).expect("a step of this name")
    }

    #[test]
    fn what_is_deleted_and_read_was_put_by_an_earlier_step_of_the_round() {
        for (index, reader) in STEPS.iter().enumerate() {
            if let Keys::PutBy(name) = reader.keys {
                let writer = STEPS.iter().position(|step| step.name == name).expect("the step exists");
                assert!(writer < index && STEPS[writer].size_bytes == reader.size_bytes, "{}", reader.name);
            }
        }
        let put = PutCounts::from([("PUT 4K c16", 777), ("PUT 1M c1", 400)]);
        let delete = step("DELETE c16").arguments(Ours, 2, 1.5, &put).expect("something to delete").join(" ");
        assert!(
            delete.contains("--prefix round2/PUT-4K-c16/ --count 777") && delete.contains("--secs 1.5"),
            "{delete}"
        );
        let get = step("GET 1M c1").arguments(Ours, 0, 2.0, &put).expect("something to read").join(" ");
        assert!(get.contains("--prefix round0/PUT-1M-c1/ --objects 100"), "{get}");
        assert_eq!(step("GET 32M c1").arguments(Ours, 0, 2.0, &put), None);
    }
}
