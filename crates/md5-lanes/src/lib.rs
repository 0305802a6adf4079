//! MD5 of many streams at once: each stream is one lane of a wide register.
//!
//! MD5 of one stream cannot be spread over a register, as each step needs the one before; but the same step of eight or
//! sixteen streams costs little more than that of one. So streams leave their bytes with [`Lanes`], and whichever of them
//! must get on hashes for all that have bytes waiting, on its own thread: nothing waits for a timer, there is no thread.
//!
//! Promises: the digest is that of the bytes in the order they were pushed, whatever other streams do or how they end; a
//! stream by itself hashes its bytes as they come; bytes held back are within a budget.
//! Refuses to know: what the bytes are, tasks and clocks.

mod hash;
mod job;
mod kernel;
mod lanes;
pub mod limits;
mod stream;

pub use kernel::Kernel;
pub use lanes::{Lanes, Work};
pub use stream::Stream;
