//! Limits of membership and failure detection, with their arithmetic.

use std::time::Duration;

/// Between two heartbeats to the same node. A round trip of them is known after two and a half at most, so a healthy link never looks
/// older than 0.6 s; at 50 nodes each sends 200 small messages a second.
pub const HEARTBEAT: Duration = Duration::from_millis(250);
/// A link without a round trip for so long is in doubt: six heartbeats were lost in a row.
pub const SUSPECT: Duration = Duration::from_secs(2);
/// A link without a round trip for so long is broken.
pub const DOWN: Duration = Duration::from_secs(5);
/// For so long a majority must have heard a node again before it is believed.
pub const RECOVER: Duration = Duration::from_secs(2);
/// A witness counts if it answered a heartbeat of at most this age: what it says is no older. A node that dies is declared after
/// `DOWN`, a heartbeat, and at most this: within 7 s.
pub const REPORT_FRESH: Duration = Duration::from_millis(1500);
/// Between two ticks no more than this passes in a process that runs: what passed more was a pause of our own, and is not held
/// against the others.
pub const PAUSE: Duration = Duration::from_secs(1);

/// A node is slow to a witness whose calls to it take this many times the median of those to the others...
pub const SLOW_FACTOR: u32 = 5;
/// ...and at least this long: below, nobody notices.
pub const SLOW_ROUND_TRIP: Duration = Duration::from_millis(50);
/// The same for the service it does (a synced append takes 1 to 10 ms on a healthy disk).
pub const SLOW_SERVICE: Duration = Duration::from_millis(100);
/// A majority must find it slow for so long.
pub const SLOW_AFTER: Duration = Duration::from_secs(5);
/// And not for so long before it counts as fast again.
pub const FAST_AFTER: Duration = Duration::from_secs(10);
/// A measured service time is believed for so long: a node that gets no new groups is not slow for ever.
pub const SERVICE_FRESH: Duration = Duration::from_secs(30);

/// Bytes of an encoded message of this service: a map of 1,024 nodes with 16 disks each takes 700 KiB.
pub const MESSAGE_BYTES: usize = 4 << 20;
/// Doors in a join token: the nodes that are likely to be there while it is valid.
pub const TOKEN_DOORS: usize = 5;
/// Bytes of a join token's text: five doors of 300 bytes in base64.
pub const TOKEN_TEXT_BYTES: usize = 4096;
/// For how long a join token is valid if nobody says otherwise.
pub const TOKEN_VALID: Duration = Duration::from_secs(3600);
/// How often a joining node goes round all doors before it gives up.
pub const JOIN_ROUNDS: u32 = 30;
/// How long a door is waited for: root may be electing its leader.
pub const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two rounds: an election takes no longer than three of them.
pub const JOIN_WAIT: Duration = Duration::from_secs(1);

/// How often a change of the map is proposed until its outcome is known: at one a second, through any election and a restart.
pub const ROOT_TRIES: u32 = 30;
/// Between two tries.
pub const ROOT_WAIT: Duration = Duration::from_secs(1);

/// A disk that is this full takes nothing from clients (rule R67).
pub const FULL_FOR_CLIENTS_PERCENT: u64 = 92;
/// Nor rebuilt copies.
pub const FULL_FOR_REBUILD_PERCENT: u64 = 90;
/// Nor data that is moved for balance.
pub const FULL_FOR_BALANCE_PERCENT: u64 = 80;
