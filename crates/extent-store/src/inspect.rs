//! A disk, a group file, a frame in words, for `ashlar inspect`.
//!
//! Promises: pure functions of what was read; content is never shown. Refuses to know: how to read it, where it is printed.

use std::fmt::Write as _;

use crate::format::{FileHeader, FileKind, FrameHeader};
use crate::identity::DiskIdentity;
use crate::store::{DiskHealth, FoundFile, Quarantined, Scanned};

/// A disk: its identity, how many files, what is in quarantine, what is not ours.
pub fn disk(
    identity: &DiskIdentity,
    health: &DiskHealth,
    files: &[FoundFile],
    quarantined: &[Quarantined],
    strangers: &[String],
) -> String {
    let mut text = String::new();
    let fenced = files.iter().filter(|file| file.fence.is_some()).count();
    line(&mut text, "disk", identity.disk);
    line(&mut text, "cluster", identity.cluster);
    line(&mut text, "node", identity.node);
    line(&mut text, "incarnation", identity.incarnation);
    line(&mut text, "suspect", health.suspect);
    line(&mut text, "group files", format_args!("{} ({fenced} fenced)", files.len()));
    for file in quarantined {
        let what = format_args!("{} {} B since {} ms: {}", file.name, file.allocated_bytes, file.since_ms, file.reason);
        line(&mut text, "quarantined", what);
    }
    for path in strangers {
        line(&mut text, "stranger", path);
    }
    text
}

/// A group file: its header, then one line for each frame, hole and damaged stretch.
pub fn group(header: &FileHeader, file_bytes: u64, found: Option<&FoundFile>, items: &[Scanned]) -> String {
    let mut text = String::new();
    line(&mut text, "group", header.group);
    line(&mut text, "file generation", header.generation);
    line(&mut text, "cluster", header.cluster);
    line(&mut text, "disk", header.disk);
    line(&mut text, "kind", if header.kind == FileKind::Appended { "appended" } else { "copy" });
    if header.kind == FileKind::Copy {
        line(&mut text, "sealed length", header.sealed_length);
    }
    line(&mut text, "file bytes", file_bytes);
    if let Some(fence) = found.and_then(|file| file.fence) {
        line(&mut text, "fence", format_args!("generation {} at {}", fence.generation, fence.length));
    }
    for item in items {
        text.push_str(&scanned(item));
        text.push('\n');
    }
    text
}

/// One line for what stands at one place of a file.
pub fn scanned(item: &Scanned) -> String {
    match item {
        Scanned::Frame(header) => format!(
            "{:>12} {:>8} frame  {} index {} payload {} home {}/{:?}",
            header.address.offset,
            header.frame_bytes(),
            header.origin.content,
            header.origin.index,
            header.payload_bytes(),
            header.origin.bucket,
            header.origin.key.as_str(),
        ),
        Scanned::Hole { offset, bytes } => format!("{offset:>12} {bytes:>8} hole"),
        Scanned::Damaged { offset, bytes, damage, header } => {
            let whose = header.as_ref().map(|h| format!(" {} index {}", h.origin.content, h.origin.index));
            format!("{offset:>12} {bytes:>8} DAMAGED {damage}{}", whose.unwrap_or_default())
        }
    }
}

/// A frame's header, one field a line.
pub fn frame(header: &FrameHeader) -> String {
    let mut text = String::new();
    line(&mut text, "cluster", header.cluster);
    line(&mut text, "group", header.address.group);
    line(&mut text, "file generation", header.address.generation);
    line(&mut text, "offset", header.address.offset);
    line(&mut text, "frame bytes", header.frame_bytes());
    line(&mut text, "content", header.origin.content);
    line(&mut text, "index", header.origin.index);
    line(&mut text, "home bucket", header.origin.bucket);
    // Quoted: keys may hold control characters that would play with a terminal.
    line(&mut text, "home key", format_args!("{:?}", header.origin.key.as_str()));
    line(&mut text, "payload bytes", header.payload_bytes());
    for (index, crc) in header.crcs.as_slice().iter().enumerate() {
        line(&mut text, &format!("slice {index}"), format_args!("crc32c {crc:08x}"));
    }
    text
}

fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{name:<16} {value}");
}
