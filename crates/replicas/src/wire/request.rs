//! What may be asked of a disk of another node.

use super::codec::{In, Malformed, Out};
use crate::limits;
use extent_store::{Depth, FrameAddress, ReadRequest};
use types::{AttemptId, DiskId, GroupId};

/// Version of requests and answers.
pub const VERSION: u8 = 1;

/// A question to one disk. Frames travel in the message's body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// Which disk.
    pub disk: DiskId,
    /// What.
    pub what: What,
}

/// The operations of a disk; the moments they give are those of [`extent_store::DiskStore`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// Creates the file of a new group.
    Create {
        /// Group.
        group: GroupId,
        /// File generation.
        generation: u32,
        /// Bytes to reserve.
        preallocate_bytes: u64,
    },
    /// Appends the frame in the body, which must be this one.
    Append(FrameAddress),
    /// Refuses older generations from now on and gives the durable length.
    Fence {
        /// Group.
        group: GroupId,
        /// Generation of the fence.
        generation: u32,
    },
    /// Reads a range of an extent; header and covering slices are in the answer's body.
    Read(ReadRequest),
    /// Reads a whole frame; it is in the answer's body.
    ReadFrame(FrameAddress),
    /// One page of a walk over a file; its items are in the answer's body.
    Scan {
        /// Group.
        group: GroupId,
        /// File generation.
        generation: u32,
        /// How closely.
        depth: Depth,
        /// Where the page begins.
        from: u64,
    },
    /// How the disk is.
    Status,
    /// One page of the files on the disk, those behind this one; in the answer's body.
    Files(Option<(GroupId, u32)>),
    /// Makes holes.
    Punch {
        /// Group.
        group: GroupId,
        /// File generation.
        generation: u32,
        /// Offsets and lengths.
        ranges: Vec<(u64, u64)>,
    },
    /// Removes a file for good.
    Drop {
        /// Group.
        group: GroupId,
        /// File generation.
        generation: u32,
    },
    /// Forgets the fence of a group without files.
    ForgetFence(GroupId),
    /// Sets a file aside.
    Quarantine {
        /// Group.
        group: GroupId,
        /// File generation.
        generation: u32,
        /// Why.
        reason: String,
    },
    /// One page of what is set aside, behind this name; in the answer's body.
    Quarantined(String),
    /// Begins a copy.
    BeginCopy {
        /// Group.
        group: GroupId,
        /// Generation of the new file.
        generation: u32,
        /// Length of the sealed group.
        sealed_length: u64,
        /// Drawn by the caller; names this copy in the calls that follow.
        token: u64,
    },
    /// Writes the frame in the body into a copy, the `sequence`-th from 0.
    PutCopy {
        /// Of the copy.
        token: u64,
        /// Counted by the caller.
        sequence: u64,
    },
    /// Verifies a copy and gives it its name.
    FinishCopy {
        /// Of the copy.
        token: u64,
        /// Frames that must be in it.
        frames: u64,
    },
    /// Gives a copy up.
    EndCopy {
        /// Of the copy.
        token: u64,
    },
}

impl Request {
    /// The head of the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Out::default();
        out.u8(VERSION);
        out.u64(self.disk.0);
        self.what.encode(&mut out);
        out.0
    }

    /// Reads a head.
    pub fn decode(head: &[u8]) -> Result<Request, Malformed> {
        let mut input = In(head);
        if input.u8()? != VERSION {
            return Err(Malformed("a version this program does not speak"));
        }
        let disk = DiskId(input.u64()?);
        let what = What::decode(&mut input)?;
        input.end()?;
        Ok(Request { disk, what })
    }
}

impl What {
    fn encode(&self, out: &mut Out) {
        match self {
            What::Create { group, generation, preallocate_bytes } => {
                out.u8(1);
                file(out, *group, *generation);
                out.u64(*preallocate_bytes);
            }
            What::Append(address) => {
                out.u8(2);
                frame(out, address);
            }
            What::Fence { group, generation } => {
                out.u8(3);
                file(out, *group, *generation);
            }
            What::Read(wanted) => {
                out.u8(4);
                frame(out, &wanted.address);
                out.u32(wanted.content.node);
                out.u32(wanted.content.session);
                out.u64(wanted.content.sequence);
                out.u32(wanted.index);
                out.u32(wanted.payload_bytes);
                out.u32(wanted.range.start);
                out.u32(wanted.range.end);
            }
            What::ReadFrame(address) => {
                out.u8(5);
                frame(out, address);
            }
            What::Scan { group, generation, depth, from } => {
                out.u8(6);
                file(out, *group, *generation);
                out.u8(u8::from(*depth == Depth::Payloads));
                out.u64(*from);
            }
            What::Status => out.u8(7),
            What::Files(after) => {
                out.u8(8);
                out.u8(u8::from(after.is_some()));
                let (group, generation) = after.unwrap_or((GroupId(0), 0));
                file(out, group, generation);
            }
            What::Punch { group, generation, ranges } => {
                out.u8(9);
                file(out, *group, *generation);
                out.u32(ranges.len() as u32);
                for (offset, bytes) in ranges {
                    out.u64(*offset);
                    out.u64(*bytes);
                }
            }
            What::Drop { group, generation } => {
                out.u8(10);
                file(out, *group, *generation);
            }
            What::ForgetFence(group) => {
                out.u8(11);
                out.u64(group.0);
            }
            What::Quarantine { group, generation, reason } => {
                out.u8(12);
                file(out, *group, *generation);
                out.text(&reason[..reason.floor_char_boundary(limits::REASON_MAX_BYTES)]);
            }
            What::Quarantined(after) => {
                out.u8(13);
                out.text(after);
            }
            What::BeginCopy { group, generation, sealed_length, token } => {
                out.u8(14);
                file(out, *group, *generation);
                out.u64(*sealed_length);
                out.u64(*token);
            }
            What::PutCopy { token, sequence } => {
                out.u8(15);
                out.u64(*token);
                out.u64(*sequence);
            }
            What::FinishCopy { token, frames } => {
                out.u8(16);
                out.u64(*token);
                out.u64(*frames);
            }
            What::EndCopy { token } => {
                out.u8(17);
                out.u64(*token);
            }
        }
    }

    fn decode(input: &mut In<'_>) -> Result<What, Malformed> {
        Ok(match input.u8()? {
            1 => {
                let (group, generation) = read_file(input)?;
                What::Create { group, generation, preallocate_bytes: input.u64()? }
            }
            2 => What::Append(read_frame(input)?),
            3 => {
                let (group, generation) = read_file(input)?;
                What::Fence { group, generation }
            }
            4 => What::Read(read_request(input)?),
            5 => What::ReadFrame(read_frame(input)?),
            6 => {
                let (group, generation) = read_file(input)?;
                let depth = if input.flag()? { Depth::Payloads } else { Depth::Headers };
                What::Scan { group, generation, depth, from: input.u64()? }
            }
            7 => What::Status,
            8 => {
                let some = input.flag()?;
                let file = read_file(input)?;
                What::Files(some.then_some(file))
            }
            9 => {
                let (group, generation) = read_file(input)?;
                let count = input.count(limits::PUNCH_RANGES, 16)?;
                let ranges = (0..count).map(|_| Ok((input.u64()?, input.u64()?))).collect::<Result<_, _>>()?;
                What::Punch { group, generation, ranges }
            }
            10 => {
                let (group, generation) = read_file(input)?;
                What::Drop { group, generation }
            }
            11 => What::ForgetFence(GroupId(input.u64()?)),
            12 => {
                let (group, generation) = read_file(input)?;
                What::Quarantine { group, generation, reason: input.text(limits::REASON_MAX_BYTES)?.to_owned() }
            }
            13 => What::Quarantined(input.text(limits::NAME_MAX_BYTES)?.to_owned()),
            14 => {
                let (group, generation) = read_file(input)?;
                What::BeginCopy { group, generation, sealed_length: input.u64()?, token: input.u64()? }
            }
            15 => What::PutCopy { token: input.u64()?, sequence: input.u64()? },
            16 => What::FinishCopy { token: input.u64()?, frames: input.u64()? },
            17 => What::EndCopy { token: input.u64()? },
            _ => return Err(Malformed("an unknown operation")),
        })
    }
}

fn file(out: &mut Out, group: GroupId, generation: u32) {
    out.u64(group.0);
    out.u32(generation);
}

fn read_file(input: &mut In<'_>) -> Result<(GroupId, u32), Malformed> {
    Ok((GroupId(input.u64()?), input.u32()?))
}

fn frame(out: &mut Out, address: &FrameAddress) {
    file(out, address.group, address.generation);
    out.u64(address.offset);
}

fn read_frame(input: &mut In<'_>) -> Result<FrameAddress, Malformed> {
    let (group, generation) = read_file(input)?;
    Ok(FrameAddress { group, generation, offset: input.u64()? })
}

fn read_request(input: &mut In<'_>) -> Result<ReadRequest, Malformed> {
    let address = read_frame(input)?;
    let content = AttemptId { node: input.u32()?, session: input.u32()?, sequence: input.u64()? };
    let (index, payload_bytes) = (input.u32()?, input.u32()?);
    Ok(ReadRequest { address, content, index, payload_bytes, range: input.u32()?..input.u32()? })
}
