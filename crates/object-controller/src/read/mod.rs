//! Reading the bytes of a version: which extents, from which replica, in what order.
//!
//! Promises: every byte handed out was checked against its slice's checksum; where one replica is damaged another is tried and
//! the curator hears of it; only when none is left is it an error, and never "no such key". Refuses to know: HTTP ranges.

mod body;
mod extent;
mod layout;

pub(crate) use body::Body;
pub(crate) use extent::Extents;
pub(crate) use layout::{Layout, Piece, Stretch, parts_at};
