//! What a disk of another node answers.

use super::codec::{In, Malformed, Out};
use super::fault::{Fault, put_damage, read_damage};
use super::request::VERSION;
use crate::limits;
use bytes::Bytes;
use extent_store::{Fence, FoundFile, FrameHeader, Quarantined, ScanPage, Scanned};
use types::GroupId;

/// How a disk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Size of its file system.
    pub total_bytes: u64,
    /// What may still be written.
    pub free_bytes: u64,
    /// A write or sync failed there: nothing new should be placed on it.
    pub suspect: bool,
    /// Files found at its start that are not ours.
    pub strangers: u64,
}

/// The head of an answer; frames, slices and lists are in the body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is done, to the moment that the operation promises.
    Done,
    /// It was not done.
    Fault(Fault),
    /// Durable length, of a fence.
    Length(u64),
    /// Of a status.
    Status(Status),
    /// Whether a fence was forgotten.
    Flag(bool),
    /// Where the next page begins, of a walk.
    Next(Option<u64>),
    /// Whether more follows, of a list.
    More(bool),
    /// The name of what was set aside.
    Name(String),
}

impl Answer {
    /// The head of the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Out::default();
        out.u8(VERSION);
        match self {
            Answer::Done => out.u8(0),
            Answer::Fault(fault) => {
                out.u8(1);
                fault.encode(&mut out);
            }
            Answer::Length(length) => {
                out.u8(2);
                out.u64(*length);
            }
            Answer::Status(status) => {
                out.u8(3);
                out.u64(status.total_bytes);
                out.u64(status.free_bytes);
                out.u8(u8::from(status.suspect));
                out.u64(status.strangers);
            }
            Answer::Flag(flag) => {
                out.u8(4);
                out.u8(u8::from(*flag));
            }
            Answer::Next(next) => {
                out.u8(5);
                out.u8(u8::from(next.is_some()));
                out.u64(next.unwrap_or(0));
            }
            Answer::More(more) => {
                out.u8(6);
                out.u8(u8::from(*more));
            }
            Answer::Name(name) => {
                out.u8(7);
                out.text(name);
            }
        }
        out.0
    }

    /// Reads a head.
    pub fn decode(head: &[u8]) -> Result<Answer, Malformed> {
        let mut input = In(head);
        if input.u8()? != VERSION {
            return Err(Malformed("a version this program does not speak"));
        }
        let answer = match input.u8()? {
            0 => Answer::Done,
            1 => Answer::Fault(Fault::decode(&mut input)?),
            2 => Answer::Length(input.u64()?),
            3 => Answer::Status(Status {
                total_bytes: input.u64()?,
                free_bytes: input.u64()?,
                suspect: input.flag()?,
                strangers: input.u64()?,
            }),
            4 => Answer::Flag(input.flag()?),
            5 => {
                let (some, next) = (input.flag()?, input.u64()?);
                Answer::Next(some.then_some(next))
            }
            6 => Answer::More(input.flag()?),
            7 => Answer::Name(input.text(limits::NAME_MAX_BYTES)?.to_owned()),
            _ => return Err(Malformed("an unknown answer")),
        };
        input.end()?;
        Ok(answer)
    }
}

/// Items of a walk, as many as the body may hold; the page's `next` is where the first that was left out stands.
pub fn encode_scan(page: &ScanPage) -> (Bytes, Option<u64>) {
    let mut out = Out::default();
    for item in &page.items {
        let before = out.0.len();
        put_scanned(&mut out, item);
        if out.0.len() > limits::LIST_BYTES && before > 0 {
            out.0.truncate(before);
            return (out.0.into(), Some(place(item)));
        }
    }
    (out.0.into(), page.next)
}

/// The items of a walk's page.
pub fn decode_scan(body: &[u8], next: Option<u64>) -> Result<ScanPage, Malformed> {
    let (mut input, mut items) = (In(body), Vec::new());
    while !input.0.is_empty() {
        if items.len() == extent_store::limits::SCAN_PAGE_ITEMS {
            return Err(Malformed("more items than a page has"));
        }
        items.push(read_scanned(&mut input)?);
    }
    Ok(ScanPage { items, next })
}

fn place(item: &Scanned) -> u64 {
    match item {
        Scanned::Frame(header) => header.address.offset,
        Scanned::Hole { offset, .. } | Scanned::Damaged { offset, .. } => *offset,
    }
}

fn put_scanned(out: &mut Out, item: &Scanned) {
    match item {
        Scanned::Frame(header) => {
            out.u8(0);
            put_header(out, header);
        }
        Scanned::Hole { offset, bytes } => {
            out.u8(1);
            out.u64(*offset);
            out.u64(*bytes);
        }
        Scanned::Damaged { offset, bytes, damage, header } => {
            out.u8(2);
            out.u64(*offset);
            out.u64(*bytes);
            put_damage(out, *damage);
            out.u8(u8::from(header.is_some()));
            if let Some(header) = header {
                put_header(out, header);
            }
        }
    }
}

fn read_scanned(input: &mut In<'_>) -> Result<Scanned, Malformed> {
    Ok(match input.u8()? {
        0 => Scanned::Frame(read_header(input)?),
        1 => Scanned::Hole { offset: input.u64()?, bytes: input.u64()? },
        2 => {
            let (offset, bytes, damage) = (input.u64()?, input.u64()?, read_damage(input)?);
            let header = if input.flag()? { Some(Box::new(read_header(input)?)) } else { None };
            Scanned::Damaged { offset, bytes, damage, header }
        }
        _ => return Err(Malformed("an unknown item of a walk")),
    })
}

/// The block as it stands on a disk without its zeros: its own checksum goes with it.
fn put_header(out: &mut Out, header: &FrameHeader) {
    let mut block = [0; extent_store::limits::HEADER_BYTES];
    header.encode(&mut block);
    let (front, checksum) = block.split_at(block.len() - 4);
    let used = front.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    out.u16(used as u16);
    out.raw(&front[..used]);
    out.raw(checksum);
}

fn read_header(input: &mut In<'_>) -> Result<FrameHeader, Malformed> {
    let used = usize::from(input.u16()?);
    let mut block = [0; extent_store::limits::HEADER_BYTES];
    let end = block.len() - 4;
    if used > end {
        return Err(Malformed("a header that is too long"));
    }
    block[..used].copy_from_slice(input.take(used)?);
    block[end..].copy_from_slice(input.take(4)?);
    FrameHeader::decode(&block).map_err(|_| Malformed("a header that is not sound"))
}

/// Files, at most `limits::LIST_FILES` of them.
pub fn encode_files(files: &[FoundFile]) -> Bytes {
    let mut out = Out::default();
    for file in files {
        out.u64(file.group.0);
        out.u32(file.generation);
        out.u8(u8::from(file.fence.is_some()));
        let fence = file.fence.unwrap_or(Fence { generation: 0, length: 0 });
        out.u32(fence.generation);
        out.u64(fence.length);
    }
    out.0.into()
}

/// The files of one page.
pub fn decode_files(body: &[u8]) -> Result<Vec<FoundFile>, Malformed> {
    let (mut input, mut files) = (In(body), Vec::new());
    while !input.0.is_empty() {
        if files.len() == limits::LIST_FILES {
            return Err(Malformed("more files than a page has"));
        }
        let (group, generation) = (GroupId(input.u64()?), input.u32()?);
        let (some, fence) = (input.flag()?, Fence { generation: input.u32()?, length: input.u64()? });
        files.push(FoundFile { group, generation, fence: some.then_some(fence) });
    }
    Ok(files)
}

/// What is set aside, at most `limits::LIST_QUARANTINED` of them.
pub fn encode_quarantined(files: &[Quarantined]) -> Bytes {
    let mut out = Out::default();
    for file in files {
        out.text(&file.name);
        out.u64(file.group.0);
        out.u32(file.generation);
        out.u64(file.since_ms);
        out.text(&file.reason[..file.reason.floor_char_boundary(limits::REASON_MAX_BYTES)]);
        out.u64(file.allocated_bytes);
    }
    out.0.into()
}

/// One page of what is set aside.
pub fn decode_quarantined(body: &[u8]) -> Result<Vec<Quarantined>, Malformed> {
    let (mut input, mut files) = (In(body), Vec::new());
    while !input.0.is_empty() {
        if files.len() == limits::LIST_QUARANTINED {
            return Err(Malformed("more files than a page has"));
        }
        files.push(Quarantined {
            name: input.text(limits::NAME_MAX_BYTES)?.to_owned(),
            group: GroupId(input.u64()?),
            generation: input.u32()?,
            since_ms: input.u64()?,
            reason: input.text(limits::REASON_MAX_BYTES)?.to_owned(),
            allocated_bytes: input.u64()?,
        });
    }
    Ok(files)
}
