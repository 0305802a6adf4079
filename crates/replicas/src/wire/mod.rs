//! The messages of service 3, version 1. docs/wire-protocol.md describes the bytes.
//!
//! Promises: encoding is a function of the values; decoding never panics, is bounded by the bytes at hand, and takes only
//! what encoding gives. Refuses to know: who sends them; what is done about them.

mod answer;
mod codec;
mod fault;
mod request;

pub use answer::{
    Answer, Status, decode_files, decode_quarantined, decode_scan, encode_files, encode_quarantined, encode_scan,
};
pub use codec::Malformed;
pub use fault::{Fault, IoFault};
pub use request::{Request, VERSION, What};
