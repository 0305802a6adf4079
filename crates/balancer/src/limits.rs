//! Every limit of the balancer by name, with its arithmetic.
//!
//! Promises: no other file hides a number that bounds memory or time.

use std::time::Duration;

/// Nodes behind one balancer: the healthy ones are the bits of one word. Larger clusters give each balancer a part of their nodes.
pub const NODES_MAX: usize = 64;
/// A health check that takes longer has failed. With checks every 500 ms a node that hangs is out after 1.5 s at most.
pub const CHECK_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes read of the answer to a health check: the status line is in the first of them.
pub const CHECK_ANSWER_MAX_BYTES: usize = 1 << 10;
/// Time to connect to a node. The first retransmission of a lost SYN comes after 1 s.
pub const CONNECT_TIMEOUT: Duration = Duration::from_millis(1500);
/// A node that says nothing for so long, while nothing is sent to it, is given up: its own deadline for an operation is 60 s.
pub const NODE_SILENCE_MAX: Duration = Duration::from_secs(120);
/// Unused connections to a node are closed after this, well before the node closes them itself (15 s): a request that meets the
/// node's close is lost.
pub const NODE_IDLE_MAX: Duration = Duration::from_secs(5);
/// Unused connections to nodes that are kept. Each is a socket and a small task.
pub const NODE_IDLE_CONNECTIONS_MAX: usize = 1024;
/// Attempts for one request, the first included: no more than nodes, plus one for a kept connection that was just being closed.
pub const ATTEMPTS_MAX: usize = NODES_MAX + 1;
/// Time to send a whole request head, as the nodes have it.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// A connection without a request is closed after this.
pub const CLIENT_IDLE_MAX: Duration = Duration::from_secs(75);
/// A body from which nothing arrives for this long is given up. Nodes do that after 30 s and say why, so they should be first.
pub const BODY_IDLE_TIMEOUT: Duration = Duration::from_secs(40);
/// Time in which a client must take what is written at once (64 KiB at most): 1 KiB a second.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(64);
/// Time for a TLS handshake.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a connection that ends that are read and dropped so that the client sees the answer and not a reset.
pub const DRAIN_MAX_BYTES: u64 = 1 << 20;
/// Time for that.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// What is written in pieces of no more than this waits for the next piece or a flush, so that a head leaves with its first bytes.
pub const HOLD_MAX_BYTES: usize = 4 << 10;
/// Time for the requests in flight to end at shutdown.
pub const SHUTDOWN_DEADLINE: Duration = Duration::from_secs(30);
/// Out of file descriptors, most likely: taking a breath is better than spinning.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
