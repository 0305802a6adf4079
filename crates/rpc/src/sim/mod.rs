//! A network that exists in a simulated world and fails by its seed.
//!
//! Promises: it keeps the contract of [`crate::Transport`] to the letter and not an inch beyond: calls are delivered once or not at all
//! and in any order, answers get lost, what cannot have been delivered may be reported as unreachable or not at all; messages without
//! answer may be lost, doubled and overtaken as its [`Faults`] say. Refuses to know: connections, bytes on a wire, TLS.

mod faults;
mod net;
mod peers;
mod post;

pub use faults::Faults;
pub use net::{Counts, SimNet};
