//! What stands in the files of a group, replica by replica, by the headers of the frames.
//!
//! Promises: every sound header below the end of every readable file is reported, with who holds it; what cannot be read is
//! reported as that. Refuses to know: which frames ought to be there; payloads.

use crate::access::Access;
use crate::ranges::{self, FIRST, Ranges};
use env::disk::is_transient;
use extent_store::{Damage, Depth, FrameHeader, ReadError, Scanned};
use metadata::rows::{GroupRecord, Home, Replica};
use replicas::{Replica as Disk, Whereabouts, is_away};
use std::collections::BTreeMap;
use types::{ContentId, GroupId};

/// A frame that some replicas hold.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    pub(crate) home: Home,
    pub(crate) content: ContentId,
    pub(crate) index: u32,
    pub(crate) payload_bytes: u32,
    pub(crate) frame_bytes: u64,
    /// Places of the replicas in the record.
    pub(crate) on: Vec<usize>,
}

/// How the file of one replica was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum File {
    /// Walked to its end.
    Walked {
        /// Blocks that are neither frames nor zeros.
        damaged: Ranges,
        /// Zeros.
        holes: Ranges,
        /// End of the file, or the beginning of a frame that it cuts off.
        end: u64,
    },
    /// There is none.
    Missing,
    /// The disk is lost.
    NoDisk,
    /// The disk cannot be asked just now; why. What it has is still there.
    Away(String),
    /// It cannot be walked; why.
    Unreadable(String),
    /// It could not be walked just now, for want of descriptors or memory.
    Short,
}

/// A whole group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) frames: BTreeMap<(u64, ContentId, u32), Standing>,
    pub(crate) files: Vec<File>,
}

impl Found {
    /// Where frames stand, on any replica.
    pub(crate) fn ranges(&self) -> Ranges {
        ranges::merge(self.frames.iter().map(|((offset, ..), frame)| (*offset, frame.frame_bytes)))
    }
}

/// Walks every replica that the record lists.
pub(crate) async fn look(access: &Access, group: GroupId, record: &GroupRecord) -> Found {
    let mut found = Found::default();
    for (place, replica) in record.replicas.iter().enumerate() {
        let file = match access.disks().get(replica.disk) {
            None if access.disks().whereabouts(replica.disk) == Whereabouts::Lost => File::NoDisk,
            None => File::Away("it is not known where the disk is".into()),
            // It is asked again when it was heard; every one of many groups would wait for it.
            Some(disk) if disk.is_silent() => File::Away(format!("node {} is silent", disk.node())),
            Some(disk) => match walk(&disk, group, replica, place, &mut found).await {
                Ok(file) => file,
                Err(ReadError::Missing) => File::Missing,
                Err(ReadError::Io(error)) if is_transient(&error) => File::Short,
                Err(ReadError::Io(error)) if is_away(&error) => File::Away(error.to_string()),
                Err(error) => File::Unreadable(error.to_string()),
            },
        };
        found.files.push(file);
    }
    found
}

/// One file's headers.
async fn walk(
    disk: &Disk,
    group: GroupId,
    replica: &Replica,
    place: usize,
    found: &mut Found,
) -> Result<File, ReadError> {
    let (mut damaged, mut holes, mut end) = (Vec::new(), Vec::new(), FIRST);
    let mut from = Some(0);
    while let Some(at) = from {
        let page = disk.scan_page(group, replica.file_generation, Depth::Headers, at).await?;
        for item in page.items {
            end = end_of(&item).max(end);
            match item {
                Scanned::Frame(header) => note(found, header, place),
                Scanned::Hole { offset, bytes } => holes.push((offset, bytes)),
                Scanned::Damaged { offset, bytes, .. } => damaged.push((offset, bytes)),
            }
        }
        from = page.next;
    }
    Ok(File::Walked { damaged: ranges::merge(damaged), holes: ranges::merge(holes), end })
}

fn end_of(item: &Scanned) -> u64 {
    match item {
        Scanned::Frame(header) => header.address.offset + header.frame_bytes(),
        Scanned::Hole { offset, bytes } => offset + bytes,
        Scanned::Damaged { offset, damage: Damage::Truncated, .. } => *offset,
        Scanned::Damaged { offset, bytes, .. } => offset + bytes,
    }
}

fn note(found: &mut Found, header: FrameHeader, place: usize) {
    let key = (header.address.offset, header.origin.content, header.origin.index);
    let standing = found.frames.entry(key).or_insert_with(|| Standing {
        payload_bytes: header.payload_bytes(),
        frame_bytes: header.frame_bytes(),
        content: header.origin.content,
        index: header.origin.index,
        home: Home { bucket: header.origin.bucket, key: header.origin.key },
        on: Vec::new(),
    });
    standing.on.push(place);
}
