//! `ashlar inspect`: what is in a data folder, in words or as JSON.
//!
//! Promises: `disk`, `egroup`, `extent` and `log` only read, and may look at the folder of a running server (what is being written
//! just then may look torn). `object` ([`object`]) opens the metadata of a *stopped* server as a start does, reads, and closes it.
//! Bytes of objects are never shown. Refuses to know: how to mend anything.

mod object;

use crate::cli::{InspectArgs, InspectCommand};
use crate::server::Failure;
use env::Env;
use env::buf::{AlignedBuf, BufPool};
use env::disk::{Caching, Disk, DiskCounters, DiskFile, Open, Space};
use env::real_disk::RealDisk;
use extent_store::{Depth, DiskIdentity, DiskStore, FoundFile, FrameScan, Scanned, StoreConfig};
use metadata::log::format::{self, BLOCK_BYTES, FIRST_FRAME, FrameHeader, Item, SegmentHeader};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use types::GroupId;

/// Buffers of a tool: two full frames.
const BUFFER_BYTES: usize = 4 << 20;

/// An answer in both forms.
struct Shown {
    text: String,
    json: Value,
    /// Damage, or something that is not there.
    bad: bool,
}

/// Prints. The exit code is 1 when what was asked for is damaged or not there.
pub fn run(args: InspectArgs) -> Result<ExitCode, Failure> {
    let shown = match &args.command {
        InspectCommand::Disk => show_disk(only(&args.data_dirs)?)?,
        InspectCommand::Egroup { group } => show_group(only(&args.data_dirs)?, parse_group(group)?)?,
        InspectCommand::Extent { group, offset } => show_extent(only(&args.data_dirs)?, parse_group(group)?, *offset)?,
        InspectCommand::Log => show_log(only(&args.data_dirs)?)?,
        InspectCommand::Object { bucket, key, version_id } => {
            object::show(&args.data_dirs, bucket, key, version_id.as_deref())?
        }
    };
    let text = if args.json { format!("{}\n", shown.json) } else { shown.text };
    // A reader that went away (a pager) is no failure of ours.
    let _ = io::stdout().write_all(text.as_bytes());
    Ok(if shown.bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn only(paths: &[PathBuf]) -> Result<&Path, Failure> {
    match paths {
        [path] => Ok(path),
        _ => Err("only `inspect object` looks into several folders at once: name one --data-dir".into()),
    }
}

fn parse_group(text: &str) -> Result<GroupId, Failure> {
    text.parse().map_err(|_| format!("'{text}' is not the id of an extent group: 16 hexadecimal digits").into())
}

fn in_folder<E: std::fmt::Display>(path: &Path) -> impl Fn(E) -> Failure {
    let path = path.display().to_string();
    move |error| format!("data folder {path}: {error}").into()
}

fn open_disk(path: &Path) -> Result<RealDisk, Failure> {
    RealDisk::open(path, false).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => in_folder(path)("it is not there; name the data folder of a server with --data-dir"),
        _ => in_folder(path)(error),
    })
}

/// The folder's disk and extent store; nothing in it is changed.
fn open_store(path: &Path) -> Result<(DiskStore, Arc<ReadOnly>), Failure> {
    let disk = Arc::new(ReadOnly(open_disk(path)?));
    let identity = DiskIdentity::read(&*disk).map_err(in_folder(path))?;
    let identity = identity.ok_or_else(|| in_folder(path)("it was never a data folder of a server"))?;
    let config = StoreConfig::new(BufPool::new(BUFFER_BYTES));
    let (store, _) = DiskStore::open(&Env::system(1), disk.clone(), identity, config).map_err(in_folder(path))?;
    Ok((store, disk))
}

fn show_disk(path: &Path) -> Result<Shown, Failure> {
    let (store, _) = open_store(path)?;
    let (identity, files, health) = (*store.identity(), store.list_files(), store.health());
    let quarantined = wait(store.quarantined())?.map_err(in_folder(path))?;
    let space = store.space().map_err(in_folder(path))?;
    let mut text = extent_store::inspect::disk(&identity, &health, &files, &quarantined, store.strangers());
    let _ = writeln!(text, "{:<16} {} of {} free", "bytes", space.free_bytes, space.total_bytes);
    for file in &files {
        let _ = writeln!(text, "{:<16} {} generation {}", "file", file.group, file.generation);
    }
    let file = |f: &FoundFile| {
        json!({
            "group": f.group.to_string(),
            "generation": f.generation,
            "fence": f.fence.map(|fence| json!({ "generation": fence.generation, "length": fence.length })),
        })
    };
    let set_aside = |q: &extent_store::Quarantined| {
        json!({
            "name": q.name,
            "group": q.group.to_string(),
            "generation": q.generation,
            "since_ms": q.since_ms,
            "reason": q.reason,
            "allocated_bytes": q.allocated_bytes,
        })
    };
    let json = json!({
        "cluster": identity.cluster.to_string(),
        "node": identity.node,
        "disk": identity.disk.to_string(),
        "incarnation": identity.incarnation,
        "total_bytes": space.total_bytes,
        "free_bytes": space.free_bytes,
        "files": files.iter().map(file).collect::<Vec<_>>(),
        "quarantined": quarantined.iter().map(set_aside).collect::<Vec<_>>(),
        "strangers": store.strangers(),
    });
    Ok(Shown { text, json, bad: false })
}

/// The files of a group on this disk; an error if there is none.
fn files_of(store: &DiskStore, path: &Path, group: GroupId) -> Result<Vec<FoundFile>, Failure> {
    let files: Vec<_> = store.list_files().into_iter().filter(|file| file.group == group).collect();
    match files.is_empty() {
        true => Err(in_folder(path)(format!("no file of group {group}; `inspect disk` lists those that are here"))),
        false => Ok(files),
    }
}

fn scan(store: &DiskStore, path: &Path, file: &FoundFile) -> Result<FrameScan, Failure> {
    store.scan(file.group, file.generation, Depth::Payloads).map_err(in_folder(path))
}

fn show_group(path: &Path, group: GroupId) -> Result<Shown, Failure> {
    let (store, _) = open_store(path)?;
    let mut shown = Shown { text: String::new(), json: Value::Null, bad: false };
    let mut values = Vec::new();
    for file in files_of(&store, path, group)? {
        let mut scan = scan(&store, path, &file)?;
        let items: Vec<Scanned> = scan.by_ref().collect();
        let header = scan.file_header();
        shown.bad |= items.iter().any(|item| matches!(item, Scanned::Damaged { .. }));
        shown.text += &extent_store::inspect::group(header, scan.file_bytes(), Some(&file), &items);
        values.push(json!({
            "group": header.group.to_string(),
            "generation": header.generation,
            "kind": format!("{:?}", header.kind).to_lowercase(),
            "sealed_length": header.sealed_length,
            "file_bytes": scan.file_bytes(),
            "items": items.iter().map(item_json).collect::<Vec<_>>(),
        }));
    }
    shown.json = json!({ "files": values });
    Ok(shown)
}

fn item_json(item: &Scanned) -> Value {
    match item {
        Scanned::Frame(header) => frame_json(header),
        Scanned::Hole { offset, bytes } => json!({ "what": "hole", "offset": offset, "bytes": bytes }),
        Scanned::Damaged { offset, bytes, damage, header } => json!({
            "what": "damaged",
            "offset": offset,
            "bytes": bytes,
            "damage": damage.to_string(),
            "frame": header.as_deref().map(frame_json),
        }),
    }
}

fn frame_json(header: &extent_store::FrameHeader) -> Value {
    json!({
        "what": "frame",
        "offset": header.address.offset,
        "bytes": header.frame_bytes(),
        "content": header.origin.content.to_string(),
        "index": header.origin.index,
        "bucket_id": header.origin.bucket.to_string(),
        "key": header.origin.key.as_str(),
        "payload_bytes": header.payload_bytes(),
        "crc32c": header.crcs.as_slice().iter().map(|crc| format!("{crc:08x}")).collect::<Vec<_>>(),
    })
}

fn show_extent(path: &Path, group: GroupId, offset: u64) -> Result<Shown, Failure> {
    let (store, _) = open_store(path)?;
    let at = |item: &Scanned| match item {
        Scanned::Frame(header) => header.address.offset == offset,
        Scanned::Hole { offset: start, bytes } | Scanned::Damaged { offset: start, bytes, .. } => {
            (*start..start + bytes).contains(&offset)
        }
    };
    let mut shown = Shown { text: String::new(), json: Value::Null, bad: false };
    let mut values = Vec::new();
    for file in files_of(&store, path, group)? {
        let Some(item) = scan(&store, path, &file)?.find(at) else { continue };
        match &item {
            Scanned::Frame(header) => {
                shown.text += &extent_store::inspect::frame(header);
                shown.text += "payload and padding verify\n";
            }
            other => {
                shown.bad = true;
                shown.text += &extent_store::inspect::scanned(other);
                shown.text.push('\n');
            }
        }
        values.push(json!({ "generation": file.generation, "found": item_json(&item) }));
    }
    if values.is_empty() {
        return Err(in_folder(path)(format!(
            "no frame of group {group} begins at {offset}; `inspect egroup` lists them"
        )));
    }
    shown.json = json!({ "files": values });
    Ok(shown)
}

/// One segment of the Raft log, as far as its frames prove themselves.
struct Segment {
    name: String,
    header: SegmentHeader,
    frames: Vec<(FrameHeader, Vec<Item>)>,
    /// Where the frames end although there are some of the same use of the segment behind: no torn tail looks like that.
    damaged_at: Option<u64>,
}

fn show_log(path: &Path) -> Result<Shown, Failure> {
    let disk = ReadOnly(open_disk(path)?);
    let mut shown = Shown { text: String::new(), json: Value::Null, bad: false };
    let mut values = Vec::new();
    let logs = disk.list("log").unwrap_or_default();
    if logs.is_empty() {
        return Err(in_folder(path)(
            "no log is here; with several data folders only some keep the metadata and its log",
        ));
    }
    for dir in logs {
        let dir = format!("log/{dir}");
        for name in disk.list(&dir).unwrap_or_default().into_iter().filter(|name| name.ends_with(".seg")) {
            match read_segment(&disk, &format!("{dir}/{name}")) {
                Ok(Some(segment)) => {
                    shown.bad |= segment.damaged_at.is_some();
                    segment_text(&segment, &mut shown.text);
                    values.push(segment_json(&segment));
                }
                Ok(None) => {
                    let _ = writeln!(shown.text, "{dir}/{name}: not in use");
                    values.push(json!({ "file": format!("{dir}/{name}"), "in_use": false }));
                }
                Err(error) => {
                    shown.bad = true;
                    let _ = writeln!(shown.text, "{dir}/{name}: {error}");
                    values.push(json!({ "file": format!("{dir}/{name}"), "error": error.to_string() }));
                }
            }
        }
    }
    shown.json = json!({ "segments": values });
    Ok(shown)
}

/// `None`: a spare that holds nothing.
fn read_segment(disk: &dyn Disk, name: &str) -> io::Result<Option<Segment>> {
    let file = disk.open(name, Open::Read, Caching::Buffered)?;
    let mut block = AlignedBuf::zeroed(BLOCK_BYTES);
    let mut found = None;
    for copy in 0..2 {
        file.read_at(&mut block, copy * BLOCK_BYTES as u64)?;
        found = found.or(SegmentHeader::decode(&block));
    }
    let Some(header) = found.filter(|header| header.segment != 0) else { return Ok(None) };
    let mut segment = Segment { name: name.to_owned(), header, frames: Vec::new(), damaged_at: None };
    let mut at = u64::from(FIRST_FRAME);
    // Ends at the first block that is no frame of this use of the segment: the log's end, or damage.
    while file.read_at(&mut block, at)? == BLOCK_BYTES {
        let Some(frame) = FrameHeader::peek(&block) else { break };
        let ours = is_of(&frame, &header, at);
        let bytes = format::frame_bytes(frame.payload_bytes as usize);
        if !ours || at + bytes as u64 > u64::from(header.segment_bytes) {
            break;
        }
        let mut whole = AlignedBuf::zeroed(bytes);
        if file.read_at(&mut whole, at)? < bytes || !frame.proves(&whole) {
            break;
        }
        let payload = &whole[format::FRAME_HEADER_BYTES..format::FRAME_HEADER_BYTES + frame.payload_bytes as usize];
        let payload = bytes_of(payload);
        segment.frames.push((frame, Item::decode_all(payload, frame.items).unwrap_or_default()));
        at += bytes as u64;
    }
    let mut behind = at + BLOCK_BYTES as u64;
    while segment.damaged_at.is_none() && file.read_at(&mut block, behind)? == BLOCK_BYTES {
        let frame = FrameHeader::peek(&block).filter(|frame| is_of(frame, &header, behind));
        segment.damaged_at = frame.map(|_| at);
        behind += BLOCK_BYTES as u64;
    }
    Ok(Some(segment))
}

/// Whether a frame found at `offset` was written there in this use of the segment.
fn is_of(frame: &FrameHeader, header: &SegmentHeader, offset: u64) -> bool {
    frame.at.segment == header.segment && u64::from(frame.at.offset) == offset && frame.log == header.log
}

fn bytes_of(payload: &[u8]) -> hyper::body::Bytes {
    hyper::body::Bytes::copy_from_slice(payload)
}

fn segment_text(segment: &Segment, text: &mut String) {
    let (name, header) = (&segment.name, &segment.header);
    let _ = writeln!(
        text,
        "{name}: segment {} of log {:016x}, {} frames",
        header.segment,
        header.log,
        segment.frames.len()
    );
    for (frame, items) in &segment.frames {
        let _ = writeln!(text, "{:>12} {} payload bytes, {} items", frame.at.offset, frame.payload_bytes, frame.items);
        for item in items {
            let _ = writeln!(text, "{:>12} {}", "", item_text(item));
        }
    }
    if let Some(at) = segment.damaged_at {
        let _ = writeln!(
            text,
            "{at:>12} DAMAGED: there are frames behind this place; start with this folder's copies, if any"
        );
    }
}

fn item_text(item: &Item) -> String {
    match item {
        Item::Entry(e) => {
            format!("entry shard {} index {} term {} ({} bytes)", e.shard.0, e.index, e.term, e.data.len())
        }
        Item::HardState(shard, state) => {
            format!("state shard {} term {} vote {} commit {}", shard.0, state.term, state.vote, state.commit)
        }
        Item::Truncated(shard, index, term) => format!("truncated shard {} after {index} of term {term}", shard.0),
        Item::Oldest(segment) => format!("segments below {segment} are not needed"),
        Item::Local(shard, index, data) => format!("local shard {} after {index} ({} bytes)", shard.0, data.len()),
        Item::LogSet(set) => format!("log set {}: {:x?}", set.version, set.members),
        Item::End(next) => format!("goes on in segment {next}"),
    }
}

fn segment_json(segment: &Segment) -> Value {
    let frame = |(frame, items): &(FrameHeader, Vec<Item>)| {
        json!({
            "offset": frame.at.offset,
            "payload_bytes": frame.payload_bytes,
            "items": items.iter().map(item_text).collect::<Vec<_>>(),
        })
    };
    json!({
        "file": segment.name,
        "in_use": true,
        "segment": segment.header.segment,
        "log": format!("{:016x}", segment.header.log),
        "segment_bytes": segment.header.segment_bytes,
        "damaged_at": segment.damaged_at,
        "frames": segment.frames.iter().map(frame).collect::<Vec<_>>(),
    })
}

/// Runs a future of the extent store, whose work is done by its own threads. The caller is on no runtime.
fn wait<T>(future: impl Future<Output = T>) -> io::Result<T> {
    Ok(tokio::runtime::Builder::new_current_thread().build()?.block_on(future))
}

/// A disk that lets everything be read and pretends to have done what a start does to directories.
#[derive(Debug)]
struct ReadOnly(RealDisk);

impl Disk for ReadOnly {
    fn open(&self, path: &str, how: Open, caching: Caching) -> io::Result<Arc<dyn DiskFile>> {
        if how == Open::Read { self.0.open(path, how, caching) } else { Err(io::ErrorKind::ReadOnlyFilesystem.into()) }
    }

    fn create_dir_all(&self, _path: &str) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        self.0.list(dir)
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    /// The file of a running server's copy in progress is no leftover.
    fn remove(&self, _path: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        self.0.space()
    }

    fn host_path(&self) -> Option<&Path> {
        self.0.host_path()
    }

    fn counters(&self) -> DiskCounters {
        self.0.counters()
    }
}
