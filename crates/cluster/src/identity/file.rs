//! The file `node` in each data folder: the node's key, how often it was started, and which node of which cluster it is.
//!
//! One line of JSON and one with its SHA-256, mode 0600; the same in every folder (docs/adr/0007-node-file.md).
//! Promises: the key is durable before anybody hears of it, and so is the number of a start before that start is announced; the file
//! is written whole or not at all, and the newest of the copies counts, so a folder that was away does no harm.
//! Refuses to know: what the cluster map says of the node.

use super::NodeKey;
use env::disk::Disk;
use env::random::Random;
use env::small_file;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io;
use std::sync::Arc;
use types::{ClusterId, NodeId};

const NAME: &str = "node";
const FORMAT: u32 = 1;
/// Far more than the fields need; a longer file is damaged.
const MAX_BYTES: usize = 4096;

/// Who a node is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeFile {
    /// Its key.
    pub key: NodeKey,
    /// How often it was started.
    pub incarnation: u64,
    /// Its cluster and id, once it was born or admitted.
    pub member: Option<(ClusterId, NodeId)>,
}

/// A node cannot be told from its folders.
#[derive(Debug, thiserror::Error)]
pub enum NodeFileError {
    /// No sound copy, and at least one that is not.
    #[error(
        "the file `node` is damaged in every data folder that has it ({0}): put one back, or join again with empty folders"
    )]
    Damaged(String),
    /// Folders of different nodes.
    #[error("the data folders belong to different nodes: their files `node` hold different keys")]
    OtherKey,
    /// The node is another already.
    #[error("the data folders are node {1} of cluster {0} already")]
    Member(ClusterId, NodeId),
    /// A disk failed.
    #[error("the file `node` cannot be read or written: {0}")]
    Io(#[from] io::Error),
}

#[derive(Serialize, Deserialize)]
struct Text {
    format: u32,
    incarnation: u64,
    key: String,
    cluster: Option<String>,
    node: Option<NodeId>,
}

/// Begins a start of the node: reads who it is, or makes its key, and counts the start in every folder. Durable when it returns; after
/// a crash within, the next start counts from the newest copy.
pub fn start(disks: &[Arc<dyn Disk>], random: &dyn Random) -> Result<NodeFile, NodeFileError> {
    let mut file = match load(disks)? {
        Some(file) => file,
        None => NodeFile { key: NodeKey::generate(random), incarnation: 0, member: None },
    };
    file.incarnation = file.incarnation.saturating_add(1);
    write_all(disks, &file)?;
    Ok(file)
}

/// Writes down which node of which cluster it is. Durable when it returns. It never becomes another.
pub fn become_member(
    disks: &[Arc<dyn Disk>],
    file: &NodeFile,
    cluster: ClusterId,
    node: NodeId,
) -> Result<NodeFile, NodeFileError> {
    match file.member {
        Some(member) if member != (cluster, node) => Err(NodeFileError::Member(member.0, member.1)),
        Some(_) => Ok(file.clone()),
        None => {
            let file = NodeFile { member: Some((cluster, node)), ..file.clone() };
            write_all(disks, &file)?;
            Ok(file)
        }
    }
}

/// The newest sound copy; `None` if no folder has one.
pub fn load(disks: &[Arc<dyn Disk>]) -> Result<Option<NodeFile>, NodeFileError> {
    let mut newest: Option<NodeFile> = None;
    let mut damage = None;
    for disk in disks {
        let file = match read(&**disk) {
            Ok(Some(file)) => file,
            Ok(None) => continue,
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                damage = Some(e.to_string());
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        newest = Some(match newest.take() {
            Some(other) if other.key != file.key => return Err(NodeFileError::OtherKey),
            Some(other) => newer(other, file)?,
            None => file,
        });
    }
    match (newest, damage) {
        (None, Some(damage)) => Err(NodeFileError::Damaged(damage)),
        (newest, _) => Ok(newest),
    }
}

/// Of two copies with one key. A crash may leave the membership in one of them only.
fn newer(a: NodeFile, b: NodeFile) -> Result<NodeFile, NodeFileError> {
    let member = match (a.member, b.member) {
        (Some(a), Some(b)) if a != b => return Err(NodeFileError::Member(a.0, a.1)),
        (a, b) => a.or(b),
    };
    let incarnation = a.incarnation.max(b.incarnation);
    Ok(NodeFile { key: a.key, incarnation, member })
}

fn write_all(disks: &[Arc<dyn Disk>], file: &NodeFile) -> io::Result<()> {
    disks.iter().try_for_each(|disk| write(&**disk, file))
}

fn read(disk: &dyn Disk) -> io::Result<Option<NodeFile>> {
    small_file::read(disk, NAME, MAX_BYTES + 1)?.map(|bytes| decode(&bytes)).transpose()
}

fn write(disk: &dyn Disk, file: &NodeFile) -> io::Result<()> {
    small_file::replace(disk, NAME, &encode(file))
}

fn encode(file: &NodeFile) -> Vec<u8> {
    let text = Text {
        format: FORMAT,
        incarnation: file.incarnation,
        key: hex::encode(file.key.seed),
        cluster: file.member.map(|(cluster, _)| cluster.to_string()),
        node: file.member.map(|(_, node)| node),
    };
    let line = serde_json::to_string(&text).expect("text and numbers can be written as JSON");
    format!("{line}\nsha256 {}\n", hex::encode(Sha256::digest(line.as_bytes()))).into_bytes()
}

fn decode(bytes: &[u8]) -> io::Result<NodeFile> {
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not text"))?;
    let (line, digest) = text.split_once('\n').ok_or_else(|| damaged("it is cut off"))?;
    if digest != format!("sha256 {}\n", hex::encode(Sha256::digest(line.as_bytes()))) {
        return Err(damaged("its digest differs"));
    }
    // The error would quote the line, which holds the key.
    let text: Text = serde_json::from_str(line).map_err(|_| damaged("it does not hold what it must"))?;
    if text.format != FORMAT {
        return Err(damaged(&format!("it has format {}, this program knows {FORMAT}", text.format)));
    }
    let mut seed = [0; 32];
    hex::decode_to_slice(&text.key, &mut seed).map_err(|_| damaged("its key is none"))?;
    let cluster = text.cluster.map(|id| id.parse()).transpose().map_err(|_| damaged("its cluster is none"))?;
    let member = match (cluster, text.node) {
        (Some(cluster), Some(node)) => Some((cluster, node)),
        (None, None) => None,
        _ => return Err(damaged("it names a cluster without a node, or a node without a cluster")),
    };
    Ok(NodeFile { key: NodeKey::from_seed(seed), incarnation: text.incarnation, member })
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the file {NAME} is damaged: {why}"))
}

#[cfg(test)]
mod tests {
    use super::{NodeFile, NodeFileError, become_member, decode, encode, load, start, write};
    use crate::identity::NodeKey;
    use env::disk::{Caching, Disk, Open};
    use env::random::SimRandom;
    use env::sim_disk::{CrashPolicy, SimDisk};
    use std::sync::Arc;
    use types::ClusterId;

    fn file(incarnation: u64) -> NodeFile {
        NodeFile { key: NodeKey::from_seed([0xA1; 32]), incarnation, member: Some((ClusterId(9), 3)) }
    }

    fn disks(count: usize) -> Vec<Arc<dyn Disk>> {
        (0..count).map(|n| Arc::new(SimDisk::new(n as u64, 1 << 20)) as Arc<dyn Disk>).collect()
    }

    #[test]
    fn the_file_has_its_golden_text_and_any_changed_byte_is_seen() {
        let bytes = encode(&file(7));
        let key = "a1".repeat(32);
        let line = format!(r#"{{"format":1,"incarnation":7,"key":"{key}","cluster":"0000000000000009","node":3}}"#);
        assert_eq!(bytes.split(|b| *b == b'\n').next(), Some(line.as_bytes()));
        assert_eq!(decode(&bytes).expect("sound"), file(7));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(decode(&bad).is_err(), "byte {at}");
            assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_key_is_made_once_and_every_start_is_counted_in_all_folders() {
        let (disks, random) = (disks(2), SimRandom::new(5));
        let first = start(&disks, &random).expect("made");
        assert_eq!((first.incarnation, first.member), (1, None));
        let member = become_member(&disks, &first, ClusterId(9), 3).expect("written");
        let again = start(&disks[1..], &random).expect("read");
        assert_eq!(again, NodeFile { incarnation: 2, ..member.clone() });
        let both = start(&disks, &random).expect("read");
        assert_eq!(both.incarnation, 3, "the newest copy counts");
        assert!(matches!(become_member(&disks, &both, ClusterId(9), 4), Err(NodeFileError::Member(_, 3))));
        assert_eq!(become_member(&disks, &both, ClusterId(9), 3).expect("it is"), both);
    }

    #[test]
    fn damage_in_one_folder_is_healed_and_in_all_of_them_never_taken_for_a_new_node() {
        let (disks, random) = (disks(2), SimRandom::new(5));
        let first = start(&disks, &random).expect("made");
        let spoil = |disk: &Arc<dyn Disk>| {
            let open = disk.open("node", Open::ReadWrite, Caching::Buffered).expect("there");
            open.write_at(b"?", 3).expect("written");
        };
        spoil(&disks[0]);
        assert_eq!(start(&disks, &random).expect("the other").key, first.key);
        assert_eq!(start(&disks[..1], &random).expect("healed").incarnation, 3);
        disks.iter().for_each(spoil);
        assert!(matches!(start(&disks, &random), Err(NodeFileError::Damaged(_))));
    }

    #[test]
    fn folders_of_two_nodes_are_not_one_node() {
        let disks = disks(2);
        write(&*disks[0], &file(1)).expect("written");
        write(&*disks[1], &NodeFile { key: NodeKey::from_seed([2; 32]), ..file(1) }).expect("written");
        assert!(matches!(load(&disks), Err(NodeFileError::OtherKey)));
    }

    #[test]
    fn a_crash_in_the_middle_of_a_start_leaves_the_old_file_or_the_new_one() {
        let (disk, random) = (SimDisk::new(1, 1 << 20), SimRandom::new(5));
        write(&disk, &file(1)).expect("written");
        let before = disk.mutations();
        for policy in [CrashPolicy::KeepNone, CrashPolicy::KeepAll] {
            for cut in 0..8 {
                let disk = disk.fork();
                disk.crash_after(before + cut);
                let begun = start(&[Arc::new(disk.clone()) as Arc<dyn Disk>], &random).is_ok();
                let after: Arc<dyn Disk> = Arc::new(disk.crash(policy));
                let found = load(std::slice::from_ref(&after)).expect("sound").expect("there");
                assert!(found == file(2) || (!begun && found == file(1)), "cut {cut}: {found:?}");
                assert!(start(&[after], &random).is_ok(), "what is unfinished is in nobody's way");
            }
        }
    }
}
