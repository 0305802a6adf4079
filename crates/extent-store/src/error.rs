//! What can go wrong, one enum for each operation, each mapped to what the caller should do.

use std::io;
use std::sync::Arc;

use crate::format::FormatError;

/// What the caller should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Try the same again later.
    Retry,
    /// Go to another group or replica.
    Elsewhere,
    /// There is no room on this disk.
    NoSpace,
    /// A newer generation rules.
    Fenced,
    /// It is not here.
    NotFound,
    /// The bytes are wrong: another replica, and a finding for the curator.
    Corrupt,
    /// A mistake of the caller.
    Bug,
}

/// A disk's error, shared by all who waited for the same sync.
pub type SharedIo = Arc<io::Error>;

/// Why a disk could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk failed.
    #[error("the disk cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// Why a group file was not created.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// No room for the file or what is reserved for it.
    #[error("no space for a new group file")]
    NoSpace,
    /// A fence of this or a newer generation came first.
    #[error("fenced by generation {0}")]
    Fenced(u32),
    /// This group already has a file of this generation here.
    #[error("the file exists already")]
    Exists,
    /// The disk failed.
    #[error("the file could not be made: {0}")]
    Io(io::Error),
    /// The store is shutting down or its writer is gone.
    #[error("the store is closed")]
    Closed,
}

/// Why an append was not acknowledged. What was not acknowledged may or may not be in the file.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AppendError {
    /// No room; final for this file.
    #[error("no space on the disk")]
    NoSpace,
    /// A write or sync failed; final for this file (rule R3).
    #[error("the file failed: {0}")]
    Failed(SharedIo),
    /// The group was fenced by this generation.
    #[error("fenced by generation {0}")]
    Fenced(u32),
    /// No file of that group and generation is open for appends: never created, or found at start (nothing stays open, R23).
    #[error("no such file is open for appends")]
    Stale,
    /// Appends of a file come in offset order without gaps; this one should have begun at `expected`.
    #[error("the next frame begins at {expected}")]
    OutOfOrder {
        /// End of the last accepted frame.
        expected: u64,
    },
    /// The file would pass its largest length.
    #[error("the group file is full")]
    Full,
    /// Too many appends wait for this disk.
    #[error("the disk's queue is full")]
    Busy,
    /// The store is shutting down or its writer is gone.
    #[error("the store is closed")]
    Closed,
}

impl AppendError {
    /// What to do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            AppendError::NoSpace => ErrorKind::NoSpace,
            AppendError::Failed(_) | AppendError::Full | AppendError::Closed => ErrorKind::Elsewhere,
            AppendError::Fenced(_) | AppendError::Stale => ErrorKind::Fenced,
            AppendError::OutOfOrder { .. } => ErrorKind::Bug,
            AppendError::Busy => ErrorKind::Retry,
        }
    }
}

/// Why a fence was not answered.
#[derive(Debug, thiserror::Error)]
pub enum FenceError {
    /// A newer fence rules.
    #[error("fenced by the newer generation {0}")]
    Superseded(u32),
    /// The disk failed. Appends are refused all the same, but the fence may not outlive a restart.
    #[error("the fence could not be stored: {0}")]
    Io(io::Error),
    /// The group's file cannot be judged (foreign or damaged header).
    #[error("the group's file is damaged: {0}")]
    Damaged(Damage),
    /// The store is shutting down or its writer is gone.
    #[error("the store is closed")]
    Closed,
}

/// What is wrong with bytes that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The header of the file is not sound.
    #[error("file header: {0}")]
    FileHeader(FormatError),
    /// The header of the file names another cluster, disk, group or generation.
    #[error("the file belongs to another {0}")]
    ForeignFile(&'static str),
    /// The header of the frame is not sound.
    #[error("frame header: {0}")]
    Header(FormatError),
    /// A sound frame header that names another cluster, group, generation or offset: a misdirected or foreign write.
    #[error("the frame belongs to another {0}")]
    Misplaced(&'static str),
    /// A sound frame that is not the extent that was asked for.
    #[error("the frame holds another {0}")]
    OtherExtent(&'static str),
    /// The payload of this slice does not match its CRC.
    #[error("slice {0} does not match its checksum")]
    Slice(u32),
    /// The file ends inside the frame.
    #[error("the file ends inside the frame")]
    Truncated,
    /// The disk gives an error for these bytes.
    #[error("the disk cannot read it")]
    Unreadable,
    /// The padding behind the payload is not zero.
    #[error("the padding is not zero")]
    Padding,
}

/// Why nothing was read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no such file, or a hole where the frame would be.
    #[error("not here")]
    Missing,
    /// Bytes are there but wrong.
    #[error("damaged: {0}")]
    Damaged(Damage),
    /// The disk failed.
    #[error("the disk could not be read: {0}")]
    Io(io::Error),
    /// The question makes no sense (range outside of the payload, offset off the boundary).
    #[error("not a possible extent or range")]
    Invalid,
}

impl ReadError {
    /// What to do.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ReadError::Missing => ErrorKind::NotFound,
            ReadError::Damaged(_) => ErrorKind::Corrupt,
            ReadError::Io(_) => ErrorKind::Elsewhere,
            ReadError::Invalid => ErrorKind::Bug,
        }
    }
}

/// Why holes were not punched.
#[derive(Debug, thiserror::Error)]
pub enum PunchError {
    /// There is no such file.
    #[error("no such file")]
    Missing,
    /// The file may still be appended to or was never fenced here: a hole in it would look like its end.
    #[error("the group is not fenced on this disk")]
    NotFenced,
    /// A range is off the boundaries, overlaps the file's header, or cuts a frame in two.
    #[error("{offset}+{bytes} is not a run of whole frames")]
    NotWholeFrames {
        /// Begin of the range.
        offset: u64,
        /// Its length.
        bytes: u64,
    },
    /// The disk failed.
    #[error("the disk failed: {0}")]
    Io(#[from] io::Error),
}

/// Why a copy was not made. The unfinished file is removed.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// No room.
    #[error("no space for the copy")]
    NoSpace,
    /// This group already has a file of this generation here.
    #[error("the file exists already")]
    Exists,
    /// A frame of another group, out of order, or beyond the length.
    #[error("a frame that does not belong into this copy")]
    ForeignFrame,
    /// What was written does not read back.
    #[error("the copy does not read back: {0}")]
    NotReadBack(ReadError),
    /// The disk failed.
    #[error("the disk failed: {0}")]
    Io(io::Error),
}

/// Why a file could not be dropped, set aside, restored or purged.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is no such file.
    #[error("no such file")]
    Missing,
    /// A file of that group and generation is in the way.
    #[error("the file exists already")]
    Exists,
    /// The disk failed.
    #[error("the disk failed: {0}")]
    Io(#[from] io::Error),
    /// The store is shutting down or its writer is gone.
    #[error("the store is closed")]
    Closed,
}

pub(crate) fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}
