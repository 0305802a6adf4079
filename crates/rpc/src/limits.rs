//! The bounds of messages, queues and waits.
//!
//! Promises: with these, memory is bounded for whatever a peer sends (see each). Refuses to know: what the services need; whoever
//! needs more cuts it into pieces.

use std::time::Duration;

/// The longest head: 1 MiB, the longest entry of the log with what is around it.
pub const MAX_HEAD_BYTES: usize = (1 << 20) + (64 << 10);
/// The longest body. The largest thing sent is the frame of an extent, 1 MiB and two blocks, or a chunk of a snapshot.
pub const MAX_BODY_BYTES: usize = 8 << 20;

/// Messages up to this size are copied into one buffer and leave in one write with their neighbours; longer ones are not copied.
/// The size of a TLS record.
pub(crate) const SMALL_BYTES: usize = 16 << 10;
/// Small messages that leave in one write: four records.
pub(crate) const CORK_BYTES: usize = 64 << 10;

/// Messages that wait for a connection or for room in it, for one peer and class. Two seconds of a busy gateway.
pub(crate) const WAITING_MESSAGES: usize = 4096;
/// Their bytes: 64 extents.
pub(crate) const WAITING_BYTES: usize = 64 << 20;
/// Calls of one peer and class that are not answered. At the other side as many may hold a small message (64 MiB); long ones are
/// bounded by the memory for bodies.
pub(crate) const CALLS_IN_FLIGHT: usize = 4096;
/// Answers that may wait behind those of the calls in flight: pongs.
pub(crate) const SPARE_ANSWERS: usize = 16;

/// Connections a listener holds: two classes from each of 64 nodes, eight times.
pub(crate) const CONNECTIONS: usize = 1024;
/// Connections of nodes that are not members yet.
pub(crate) const STRANGERS: usize = 16;
/// The longest message of one of them.
pub(crate) const STRANGER_BYTES: usize = 64 << 10;

/// How long a name is looked up, a connection made and a handshake done at most.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the accepting side waits for a handshake.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// After an error of accepting, which is mostly a lack of descriptors.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a long body waits for memory before its call is refused, or its answer lost. Others wait behind it.
pub(crate) const MEMORY_PATIENCE: Duration = Duration::from_millis(250);
/// How long a listener that stops waits for its connections to end.
pub(crate) const STOP_PATIENCE: Duration = Duration::from_secs(2);
