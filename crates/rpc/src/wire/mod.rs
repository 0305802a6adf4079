//! What lies on the wire, inside TLS: frames. docs/wire-protocol.md draws them.
//!
//! Promises: explicit little-endian, a version, checksums; bytes of a peer never panic and never make memory grow beyond the limits.
//! Refuses to know: sockets, who the peer is, what the payload means.

mod frame;
mod read;
mod write;

pub(crate) use frame::{HEADER_BYTES, Header, Kind, fits};
pub(crate) use read::{Frame, FrameReader, Payload, Room};
pub(crate) use write::FrameWriter;
