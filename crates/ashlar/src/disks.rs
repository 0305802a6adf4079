//! The list of the disks that a node has: a small file `disks` beside every disk's identity, the same in all of them.
//!
//! Promises: a disk that is not there (not mounted, left out of the command line, dead) is noticed at every start, as long as
//! one other is there; the file is written whole or not at all, and the newest one that can be read counts. A disk is in the list
//! before it gets its identity. Refuses to know: what disks hold; what is done about a missing one ([`crate::birth`]).

use env::disk::Disk;
use env::small_file;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io;
use types::{ClusterId, DiskId};

const NAME: &str = "disks";
/// 2 knows the starts of disks; a list of format 1 is read and knows none.
const FORMAT: u32 = 2;
const OLDEST_FORMAT: u32 = 1;
/// Far more than any node's disks need; a file that is larger is damaged.
const MAX_BYTES: usize = 1 << 20;

/// What is known of one disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownDisk {
    /// Where it was when it was last there, for messages.
    pub path: String,
    /// Whether it was to keep metadata then.
    pub metadata: bool,
    /// The operator said that it is gone for good.
    pub lost: bool,
    /// How often it was started when it was last here: a disk that knows of fewer starts is an old image of itself.
    #[serde(default)]
    pub incarnation: u64,
}

/// All disks of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskList {
    /// Raised by every change.
    pub version: u64,
    /// By id.
    pub disks: BTreeMap<DiskId, KnownDisk>,
}

/// One disk's copy of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Whose list.
    pub cluster: ClusterId,
    /// The disk that has or is about to get this folder.
    pub this: DiskId,
    /// The list.
    pub list: DiskList,
}

#[derive(Serialize, Deserialize)]
struct Text {
    format: u32,
    cluster: String,
    version: u64,
    this: String,
    disks: BTreeMap<String, KnownDisk>,
}

/// The folder's copy; `None` if it has none. Damage is an error of kind `InvalidData`.
pub fn read(disk: &dyn Disk) -> io::Result<Option<Copy>> {
    small_file::read(disk, NAME, MAX_BYTES + 1)?.map(|bytes| decode(&bytes)).transpose()
}

/// Replaces the folder's copy. Durable when it returns.
pub fn write(disk: &dyn Disk, copy: &Copy) -> io::Result<()> {
    small_file::replace(disk, NAME, &encode(copy))
}

/// One line of JSON and one with its digest.
fn encode(copy: &Copy) -> Vec<u8> {
    let disks = copy.list.disks.iter().map(|(id, disk)| (id.to_string(), disk.clone())).collect();
    let text = Text {
        format: FORMAT,
        cluster: copy.cluster.to_string(),
        version: copy.list.version,
        this: copy.this.to_string(),
        disks,
    };
    let line = serde_json::to_string(&text).expect("text and numbers can be written as JSON");
    format!("{line}\nsha256 {}\n", hex::encode(Sha256::digest(line.as_bytes()))).into_bytes()
}

fn decode(bytes: &[u8]) -> io::Result<Copy> {
    if bytes.len() > MAX_BYTES {
        return Err(damaged("it is too long"));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| damaged("it is not text"))?;
    let (line, digest) = text.split_once('\n').ok_or_else(|| damaged("it is cut off"))?;
    if digest != format!("sha256 {}\n", hex::encode(Sha256::digest(line.as_bytes()))) {
        return Err(damaged("its digest differs"));
    }
    let text: Text = serde_json::from_str(line).map_err(|e| damaged(&e.to_string()))?;
    if !(OLDEST_FORMAT..=FORMAT).contains(&text.format) {
        return Err(damaged(&format!("it has format {}, this program knows {OLDEST_FORMAT} to {FORMAT}", text.format)));
    }
    let id = |id: &str| id.parse::<DiskId>().map_err(|e| damaged(&e.to_string()));
    let disks = text.disks.into_iter().map(|(name, disk)| Ok((id(&name)?, disk))).collect::<io::Result<_>>()?;
    let cluster = text.cluster.parse().map_err(|e: types::ids::IdError| damaged(&e.to_string()))?;
    Ok(Copy { cluster, this: id(&text.this)?, list: DiskList { version: text.version, disks } })
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the file {NAME} is damaged: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use env::sim_disk::{CrashPolicy, SimDisk};

    fn copy(version: u64) -> Copy {
        let disk = |path: &str, lost| KnownDisk { path: path.to_owned(), metadata: true, lost, incarnation: 5 };
        let disks = [(DiskId(1), disk("/mnt/a", false)), (DiskId(2), disk("/mnt/b", true))].into_iter().collect();
        Copy { cluster: ClusterId(9), this: DiskId(1), list: DiskList { version, disks } }
    }

    #[test]
    fn the_list_has_its_golden_text_and_any_changed_byte_is_seen() {
        let bytes = encode(&copy(3));
        let expected = r#"{"format":2,"cluster":"0000000000000009","version":3,"this":"0000000000000001","disks":{"0000000000000001":{"path":"/mnt/a","metadata":true,"lost":false,"incarnation":5},"0000000000000002":{"path":"/mnt/b","metadata":true,"lost":true,"incarnation":5}}}"#;
        assert_eq!(bytes.split(|b| *b == b'\n').next(), Some(expected.as_bytes()));
        assert_eq!(decode(&bytes).expect("sound"), copy(3));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert!(decode(&bad).is_err(), "byte {at}");
            assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_list_of_the_first_format_is_read_and_knows_no_starts() {
        let line = r#"{"format":1,"cluster":"0000000000000009","version":3,"this":"0000000000000001","disks":{"0000000000000001":{"path":"/mnt/a","metadata":true,"lost":false}}}"#;
        let digest = hex::encode(Sha256::digest(line.as_bytes()));
        let read = decode(format!("{line}\nsha256 {digest}\n").as_bytes()).expect("sound");
        assert_eq!(read.list.disks[&DiskId(1)].incarnation, 0);
    }

    #[test]
    fn a_power_cut_leaves_the_old_list_or_the_new_one() {
        let disk = SimDisk::new(1, 1 << 20);
        write(&disk, &copy(1)).expect("writes");
        let before = disk.mutations();
        write(&disk.fork(), &copy(2)).expect("writes");
        for cut in 0..8 {
            let disk = disk.fork();
            disk.crash_after(before + cut);
            let written = write(&disk, &copy(2)).is_ok();
            let after = disk.crash(CrashPolicy::KeepNone);
            let found = read(&after).expect("sound").expect("there");
            assert!(found == copy(2) || (!written && found == copy(1)), "cut {cut}");
            write(&after, &copy(3)).expect("what is unfinished is in nobody's way");
        }
    }
}
