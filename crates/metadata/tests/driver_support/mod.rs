//! A state machine that is easy to check, and simulated nodes to run it on.
#![allow(dead_code)] // Each test binary uses its part.

use env::disk::Disk;
use env::sim_disk::SimDisk;
use env::{Env, SimEnv};
use metadata::command::{Command, Entry, Outcome, RootCommand};
use metadata::node::{FolderConfig, Metadata, MetadataConfig, ProposeError, StartError};
use metadata::rows::Home;
use metadata::shard::{Shard, ShardId, StateMachine};
use metadata::tree::{Read, TreeError, WriteBatch};
use std::sync::Arc;
use types::{AttemptId, BucketId, ObjectKey};

/// Family of the rows below.
const FAMILY: u8 = 200;

/// Every entry names a word. It becomes a row with the entry's place among the shard's entries and its stamp.
pub struct Words;

impl StateMachine for Words {
    fn apply(
        &mut self,
        shard: &Shard,
        entry: &Entry,
        read: &dyn Read,
        batch: &mut WriteBatch,
    ) -> Result<Outcome, TreeError> {
        let Command::Root(RootCommand::DeleteUser(word)) = &entry.command else { return Ok(Outcome::Session(7)) };
        let count = count(read, shard.id)? + 1;
        batch.put(count_key(shard.id), count.to_le_bytes().to_vec());
        let mut value = count.to_le_bytes().to_vec();
        value.extend_from_slice(&entry.stamp_ms.to_le_bytes());
        batch.put(word_key(shard.id, word), value);
        Ok(Outcome::Left(count))
    }

    /// The row that every entry reads and writes: were it not what the tree says, places would be wrong.
    fn keeps(&self) -> fn(&[u8]) -> bool {
        |key| key.starts_with(&[FAMILY, 0])
    }
}

fn count_key(shard: ShardId) -> Vec<u8> {
    vec![FAMILY, 0, shard.0 as u8]
}

fn word_key(shard: ShardId, word: &str) -> Vec<u8> {
    [&[FAMILY, 1, shard.0 as u8], word.as_bytes()].concat()
}

/// Entries applied to the shard.
pub fn count(read: &dyn Read, shard: ShardId) -> Result<u32, TreeError> {
    let value = read.get(&count_key(shard))?;
    Ok(value.and_then(|v| v.as_ref().try_into().ok()).map_or(0, u32::from_le_bytes))
}

/// Place and stamp of a word.
pub fn word(read: &dyn Read, shard: ShardId, word: &str) -> Option<(u32, u64)> {
    let value = read.get(&word_key(shard, word)).expect("reads")?;
    let (place, stamp) = value.split_first_chunk::<4>().expect("place and stamp");
    Some((u32::from_le_bytes(*place), u64::from_le_bytes(stamp.try_into().expect("a stamp"))))
}

/// All words of the shard, by their places.
pub fn words(read: &dyn Read, shard: ShardId) -> Vec<(u32, String)> {
    let mut found: Vec<_> = read
        .range(&word_key(shard, ""), &[FAMILY, 1, shard.0 as u8 + 1])
        .map(|row| row.expect("reads"))
        .map(|(key, value)| {
            let (place, _) = value.split_first_chunk::<4>().expect("place and stamp");
            (u32::from_le_bytes(*place), String::from_utf8(key[3..].to_vec()).expect("text"))
        })
        .collect();
    found.sort();
    assert_eq!(found.len() as u32, count(read, shard).expect("reads"), "as many words as entries");
    assert!(found.iter().zip(1..).all(|((place, _), n)| *place == n), "each entry was applied once, in order");
    found
}

pub fn command(word: &str) -> Command {
    Command::Root(RootCommand::DeleteUser(word.to_owned()))
}

/// A small store in folders on these disks.
pub fn config(env: &Env, disks: &[SimDisk]) -> MetadataConfig {
    let folders =
        disks.iter().map(|disk| FolderConfig { disk: Arc::new(disk.clone()) as Arc<dyn Disk>, dir: "m".to_owned() });
    let config = MetadataConfig::small(env.clone(), 1, folders.collect());
    MetadataConfig {
        create: true,
        segment_bytes: 64 << 10,
        memtable_bytes: 4 << 10,
        log_bytes: 256 << 10,
        splits: vec![home("m"), home("t")],
        ..config
    }
}

pub fn home(key: &str) -> Home {
    Home { bucket: BucketId(1), key: ObjectKey::new(key).expect("a key") }
}

pub fn open(env: &Env, disks: &[SimDisk]) -> Result<Metadata, StartError> {
    Metadata::open(config(env, disks), Box::new(Words))
}

pub fn attempt(n: u64) -> AttemptId {
    AttemptId { node: 1, session: 1, sequence: n }
}

pub const NEVER: u64 = u64::MAX;

/// Proposes a word in the simulation.
pub fn propose(sim: &SimEnv, metadata: &Metadata, shard: u32, word: &str) -> Result<Outcome, ProposeError> {
    let (metadata, command) = (metadata.clone(), command(word));
    sim.scheduler.block_on(async move { metadata.propose(ShardId(shard), attempt(1), NEVER, command).await })
}
