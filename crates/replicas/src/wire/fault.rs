//! Errors of all operations in one form, so that a disk of another node fails in the words of one that is here.
//!
//! Promises: an error of a disk keeps its errno, so that "short of descriptors" stays that; what does not fit the operation
//! becomes an error of the disk, never a success and never "missing". Refuses to know: which call it answered.

use super::codec::{In, Malformed, Out};
use crate::away::Away;
use crate::limits;
use env::disk::is_transient;
use extent_store::format::FormatError;
use extent_store::{AppendError, CopyError, CreateError, Damage, FenceError, FileError, PunchError, ReadError};
use std::io;
use std::sync::Arc;

/// Why a disk did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No room.
    NoSpace,
    /// The disk failed.
    Io(IoFault),
    /// A fence of this generation is above.
    Fenced(u32),
    /// No such file is open for appends.
    Stale,
    /// The next frame begins there.
    OutOfOrder(u64),
    /// The file is full.
    Full,
    /// Too much waits.
    Busy,
    /// The disk is shutting down.
    Closed,
    /// The file exists.
    Exists,
    /// Bytes are wrong.
    Damaged(Damage),
    /// Not here.
    Missing,
    /// Not a possible question.
    Invalid,
    /// The group is not fenced.
    NotFenced,
    /// Not a run of whole frames.
    NotWholeFrames(u64, u64),
    /// A frame that does not belong into the copy.
    ForeignFrame,
    /// The copy does not read back.
    NotReadBack,
    /// The node has no such disk.
    NoDisk,
}

/// An error of a disk on its way between nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IoFault {
    /// The errno, or 0.
    pub code: i32,
    /// Whether the process lacked something for a moment.
    pub transient: bool,
    /// For people.
    pub text: String,
}

impl IoFault {
    fn of(error: &io::Error) -> IoFault {
        let mut text = error.to_string();
        text.truncate(text.floor_char_boundary(limits::ERROR_TEXT_BYTES));
        IoFault { code: error.raw_os_error().unwrap_or(0), transient: is_transient(error), text }
    }

    fn into_error(self) -> io::Error {
        match (self.code, self.transient) {
            (0, true) => io::Error::new(io::ErrorKind::WouldBlock, self.text),
            (0, false) => io::Error::other(self.text),
            (code, _) => io::Error::from_raw_os_error(code),
        }
    }
}

/// What names of fields a damaged header may carry: they are `&'static str` here and there.
const FIELDS: &[&str] = &[
    "field",
    "payload length",
    "number of slices",
    "key length",
    "key",
    "offset",
    "length of frame",
    "cluster",
    "disk",
    "group",
    "generation",
    "content",
    "index",
    "length",
    "frame",
];

fn field_code(name: &str) -> u32 {
    FIELDS.iter().position(|known| *known == name).unwrap_or(0) as u32
}

fn field_of(code: u32) -> &'static str {
    FIELDS.get(code as usize).copied().unwrap_or(FIELDS[0])
}

fn put_format(out: &mut Out, tag: u8, error: FormatError) {
    let (kind, detail) = match error {
        FormatError::Hole => (0, 0),
        FormatError::Short => (1, 0),
        FormatError::Magic => (2, 0),
        FormatError::Version(version) => (3, version),
        FormatError::Checksum => (4, 0),
        FormatError::Field(name) => (5, field_code(name)),
    };
    out.u8(tag);
    out.u8(kind);
    out.u32(detail);
}

fn format_of(kind: u8, detail: u32) -> Result<FormatError, Malformed> {
    Ok(match kind {
        0 => FormatError::Hole,
        1 => FormatError::Short,
        2 => FormatError::Magic,
        3 => FormatError::Version(detail),
        4 => FormatError::Checksum,
        5 => FormatError::Field(field_of(detail)),
        _ => return Err(Malformed("an unknown kind of damage")),
    })
}

/// Six bytes.
pub(super) fn put_damage(out: &mut Out, damage: Damage) {
    let (tag, detail) = match damage {
        Damage::FileHeader(error) => return put_format(out, 0, error),
        Damage::Header(error) => return put_format(out, 1, error),
        Damage::ForeignFile(what) => (2, field_code(what)),
        Damage::Misplaced(what) => (3, field_code(what)),
        Damage::OtherExtent(what) => (4, field_code(what)),
        Damage::Slice(index) => (5, index),
        Damage::Truncated => (6, 0),
        Damage::Unreadable => (7, 0),
        Damage::Padding => (8, 0),
    };
    out.u8(tag);
    out.u8(0);
    out.u32(detail);
}

pub(super) fn read_damage(input: &mut In<'_>) -> Result<Damage, Malformed> {
    let (tag, kind, detail) = (input.u8()?, input.u8()?, input.u32()?);
    Ok(match tag {
        0 => Damage::FileHeader(format_of(kind, detail)?),
        1 => Damage::Header(format_of(kind, detail)?),
        2 => Damage::ForeignFile(field_of(detail)),
        3 => Damage::Misplaced(field_of(detail)),
        4 => Damage::OtherExtent(field_of(detail)),
        5 => Damage::Slice(detail),
        6 => Damage::Truncated,
        7 => Damage::Unreadable,
        8 => Damage::Padding,
        _ => return Err(Malformed("an unknown damage")),
    })
}

impl Fault {
    pub(super) fn encode(&self, out: &mut Out) {
        match self {
            Fault::NoSpace => out.u8(1),
            Fault::Io(error) => {
                out.u8(2);
                out.u32(error.code.cast_unsigned());
                out.u8(u8::from(error.transient));
                out.text(&error.text);
            }
            Fault::Fenced(generation) => {
                out.u8(3);
                out.u32(*generation);
            }
            Fault::Stale => out.u8(4),
            Fault::OutOfOrder(expected) => {
                out.u8(5);
                out.u64(*expected);
            }
            Fault::Full => out.u8(6),
            Fault::Busy => out.u8(7),
            Fault::Closed => out.u8(8),
            Fault::Exists => out.u8(9),
            Fault::Damaged(damage) => {
                out.u8(10);
                put_damage(out, *damage);
            }
            Fault::Missing => out.u8(11),
            Fault::Invalid => out.u8(12),
            Fault::NotFenced => out.u8(13),
            Fault::NotWholeFrames(offset, bytes) => {
                out.u8(14);
                out.u64(*offset);
                out.u64(*bytes);
            }
            Fault::ForeignFrame => out.u8(15),
            Fault::NotReadBack => out.u8(16),
            Fault::NoDisk => out.u8(17),
        }
    }

    pub(super) fn decode(input: &mut In<'_>) -> Result<Fault, Malformed> {
        Ok(match input.u8()? {
            1 => Fault::NoSpace,
            2 => {
                let (code, transient) = (input.u32()?.cast_signed(), input.flag()?);
                Fault::Io(IoFault { code, transient, text: input.text(limits::ERROR_TEXT_BYTES)?.to_owned() })
            }
            3 => Fault::Fenced(input.u32()?),
            4 => Fault::Stale,
            5 => Fault::OutOfOrder(input.u64()?),
            6 => Fault::Full,
            7 => Fault::Busy,
            8 => Fault::Closed,
            9 => Fault::Exists,
            10 => Fault::Damaged(read_damage(input)?),
            11 => Fault::Missing,
            12 => Fault::Invalid,
            13 => Fault::NotFenced,
            14 => Fault::NotWholeFrames(input.u64()?, input.u64()?),
            15 => Fault::ForeignFrame,
            16 => Fault::NotReadBack,
            17 => Fault::NoDisk,
            _ => return Err(Malformed("an unknown error")),
        })
    }

    /// As an error of the disk. A disk that closes and one that the node does not have are away: both may come back.
    fn into_io(self) -> io::Error {
        match self {
            Fault::Io(error) => error.into_error(),
            Fault::Closed => Away::Closing.into(),
            Fault::NoDisk => Away::NoDisk.into(),
            Fault::Busy => io::Error::new(io::ErrorKind::WouldBlock, "the node is busy"),
            other => io::Error::other(format!("an answer that does not fit the question: {other:?}")),
        }
    }
}

impl From<&io::Error> for Fault {
    fn from(error: &io::Error) -> Fault {
        Fault::Io(IoFault::of(error))
    }
}

impl From<AppendError> for Fault {
    fn from(error: AppendError) -> Fault {
        match error {
            AppendError::NoSpace => Fault::NoSpace,
            AppendError::Failed(error) => (&*error).into(),
            AppendError::Fenced(generation) => Fault::Fenced(generation),
            AppendError::Stale => Fault::Stale,
            AppendError::OutOfOrder { expected } => Fault::OutOfOrder(expected),
            AppendError::Full => Fault::Full,
            AppendError::Busy => Fault::Busy,
            AppendError::Closed => Fault::Closed,
        }
    }
}

impl From<Fault> for AppendError {
    fn from(fault: Fault) -> AppendError {
        match fault {
            Fault::NoSpace => AppendError::NoSpace,
            Fault::Fenced(generation) => AppendError::Fenced(generation),
            Fault::Stale => AppendError::Stale,
            Fault::OutOfOrder(expected) => AppendError::OutOfOrder { expected },
            Fault::Full => AppendError::Full,
            Fault::Busy => AppendError::Busy,
            other => AppendError::Failed(Arc::new(other.into_io())),
        }
    }
}

impl From<CreateError> for Fault {
    fn from(error: CreateError) -> Fault {
        match error {
            CreateError::NoSpace => Fault::NoSpace,
            CreateError::Fenced(generation) => Fault::Fenced(generation),
            CreateError::Exists => Fault::Exists,
            CreateError::Io(error) => (&error).into(),
            CreateError::Closed => Fault::Closed,
        }
    }
}

impl From<Fault> for CreateError {
    fn from(fault: Fault) -> CreateError {
        match fault {
            Fault::NoSpace => CreateError::NoSpace,
            Fault::Fenced(generation) => CreateError::Fenced(generation),
            Fault::Exists => CreateError::Exists,
            other => CreateError::Io(other.into_io()),
        }
    }
}

impl From<FenceError> for Fault {
    fn from(error: FenceError) -> Fault {
        match error {
            FenceError::Superseded(generation) => Fault::Fenced(generation),
            FenceError::Io(error) => (&error).into(),
            FenceError::Damaged(damage) => Fault::Damaged(damage),
            FenceError::Closed => Fault::Closed,
        }
    }
}

impl From<Fault> for FenceError {
    fn from(fault: Fault) -> FenceError {
        match fault {
            Fault::Fenced(generation) => FenceError::Superseded(generation),
            Fault::Damaged(damage) => FenceError::Damaged(damage),
            other => FenceError::Io(other.into_io()),
        }
    }
}

impl From<ReadError> for Fault {
    fn from(error: ReadError) -> Fault {
        match error {
            ReadError::Missing => Fault::Missing,
            ReadError::Damaged(damage) => Fault::Damaged(damage),
            ReadError::Io(error) => (&error).into(),
            ReadError::Invalid => Fault::Invalid,
        }
    }
}

impl From<Fault> for ReadError {
    fn from(fault: Fault) -> ReadError {
        match fault {
            Fault::Missing => ReadError::Missing,
            Fault::Damaged(damage) => ReadError::Damaged(damage),
            Fault::Invalid => ReadError::Invalid,
            other => ReadError::Io(other.into_io()),
        }
    }
}

impl From<PunchError> for Fault {
    fn from(error: PunchError) -> Fault {
        match error {
            PunchError::Missing => Fault::Missing,
            PunchError::NotFenced => Fault::NotFenced,
            PunchError::NotWholeFrames { offset, bytes } => Fault::NotWholeFrames(offset, bytes),
            PunchError::Io(error) => (&error).into(),
        }
    }
}

impl From<Fault> for PunchError {
    fn from(fault: Fault) -> PunchError {
        match fault {
            Fault::Missing => PunchError::Missing,
            Fault::NotFenced => PunchError::NotFenced,
            Fault::NotWholeFrames(offset, bytes) => PunchError::NotWholeFrames { offset, bytes },
            other => PunchError::Io(other.into_io()),
        }
    }
}

impl From<CopyError> for Fault {
    fn from(error: CopyError) -> Fault {
        match error {
            CopyError::NoSpace => Fault::NoSpace,
            CopyError::Exists => Fault::Exists,
            CopyError::ForeignFrame => Fault::ForeignFrame,
            CopyError::NotReadBack(_) => Fault::NotReadBack,
            CopyError::Io(error) => (&error).into(),
        }
    }
}

impl From<Fault> for CopyError {
    fn from(fault: Fault) -> CopyError {
        match fault {
            Fault::NoSpace => CopyError::NoSpace,
            Fault::Exists => CopyError::Exists,
            Fault::ForeignFrame => CopyError::ForeignFrame,
            Fault::NotReadBack => CopyError::NotReadBack(ReadError::Damaged(Damage::Unreadable)),
            other => CopyError::Io(other.into_io()),
        }
    }
}

impl From<FileError> for Fault {
    fn from(error: FileError) -> Fault {
        match error {
            FileError::Missing => Fault::Missing,
            FileError::Exists => Fault::Exists,
            FileError::Io(error) => (&error).into(),
            FileError::Closed => Fault::Closed,
        }
    }
}

impl From<Fault> for FileError {
    fn from(fault: Fault) -> FileError {
        match fault {
            Fault::Missing => FileError::Missing,
            Fault::Exists => FileError::Exists,
            other => FileError::Io(other.into_io()),
        }
    }
}
