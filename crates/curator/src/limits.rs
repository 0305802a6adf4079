//! Every limit of this crate by name, with its arithmetic.

use std::time::Duration;

/// Between two rounds while there is work.
pub const BUSY_PAUSE: Duration = Duration::from_secs(1);
/// The deadline that every entry carries, and a margin for clocks that differ.
pub const ENTRIES_LATE: Duration = Duration::from_millis(types::limits::DEADLINE_MS + 30_000);
/// Between two rounds of an idle store.
pub const IDLE_PAUSE: Duration = Duration::from_secs(10);
/// A group whose work failed is left alone for so long.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Groups sealed, settled or dropped in one round: some seconds of reads, so that other work is not starved.
pub const GROUPS_PER_ROUND: usize = 64;
/// Files looked at for holes in one round.
pub const LOOKS_PER_ROUND: usize = 64;
/// Groups repaired in one round: each reads and writes up to a group's 64 MiB.
pub const REPAIRS_PER_ROUND: usize = 4;
/// Condemned contents in one entry: with keys of 1 KiB about 280 KiB of the 1 MiB an entry may have.
pub const CONTENTS_PER_ENTRY: usize = 256;
/// Entries of one round that reclaim: 16,384 contents.
pub const RECLAIMS_PER_ROUND: usize = 64;
/// Manifests expanded in one round, each in up to 40 entries.
pub const MANIFESTS_PER_ROUND: usize = 32;
/// Entries that expand one manifest: 10,000 parts at 256 an entry, and one to spare.
pub const EXPANSIONS: usize = 41;
/// Marks that wait for readers and the delay; each is a sixteenth of the delay apart.
pub const MARKS: usize = 16;
/// Outbox rows delivered together: of up to 1,024 runs each.
pub const OUTBOX_ROWS: usize = 256;
/// Such deliveries in one round and shard.
pub const OUTBOX_DELIVERIES: usize = 16;
/// Ranges in one entry that adds dead ones: at about 12 bytes, 100 KiB.
pub const RANGES_PER_ENTRY: usize = 8192;
/// References held at once, at about 48 bytes: 48 MiB. A larger store is walked several times.
pub const REFERENCES: usize = 1 << 20;
/// Bytes a background scrub verifies in one round: 4 MiB a second are 2.4 TB in the 7 days of rule R66.
pub const SCRUB_BYTES_PER_ROUND: u64 = 4 << 20;
/// Bytes that crashes may leave without an owner: a few interrupted uploads of 5 GiB.
pub const UNEXPLAINED_FLOOR_BYTES: u64 = 16 << 30;
/// Of 100 bytes stored, so many may be found without an owner.
pub const UNEXPLAINED_PERCENT: u64 = 1;
/// Files that no record names, of 100, that a start sets aside by itself; more is a sign of wrong metadata.
pub const STRANGERS_PERCENT: usize = 20;
/// So many are always set aside.
pub const STRANGERS_FLOOR: usize = 16;
/// Between two comparisons of a node's files with the records, in a cluster.
pub const COMPARE_EVERY: Duration = Duration::from_secs(3600);
/// A start that finds files in quarantine keeps them at least so long, whatever the wall clock says of their age.
pub const WATCHED_LEAST: Duration = Duration::from_secs(24 * 3600);
/// Differences and hurt objects that a report names.
pub const NAMED: usize = 100;
/// Bodies of one piece of the walk that compares rows with rows.
pub const WALK_BODIES: usize = 2000;
/// Remembered Completes are kept for 7 days (protocols.md 7).
pub const COMPLETED_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Between two walks that forget.
pub const FORGET_EVERY: Duration = Duration::from_secs(3600);
/// Entries of one such walk.
pub const FORGETS: usize = 64;
/// Between two looks at strips and at what may become one, when there was nothing to do about them.
pub const STRIPS_EVERY: Duration = Duration::from_secs(5);
/// Members of strips made anew, and copies of them made, in one round.
pub const STRIPS_PER_ROUND: usize = 4;
/// A disk that is fuller, in hundredths, takes no parity (rules R49, R67).
pub const ENCODE_PERCENT: u64 = 80;
/// The least age of what is encoded without being asked to.
pub const ENCODE_AFTER: Duration = Duration::from_secs(7 * 24 * 3600);
/// A strip with a lost member for which no node is left is turned back into replicas after so long (protocols.md 12).
pub const HOMELESS: Duration = Duration::from_secs(30 * 60);

/// Tasks that a plan names for one node, the most urgent ones: at 1 s each more than an hour's work, at 80 bytes each 160 KiB.
pub const PLANNED_TASKS: usize = 2048;
/// What copies leave free on a disk: a tenth (rule R67), but of a large one no more than this. It is above what bytes of clients leave
/// free, for those can go elsewhere; on a disk where they are still taken, copies that are missing are not refused.
pub const KEPT_FREE_BYTES: u64 = 2 << 30;
/// How often it is looked whether a node came or went: a rebuild begins within a second of the verdict.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Tasks that end within so long are one change.
pub const GATHER: Duration = Duration::from_millis(20);
/// Least time between two plans: each reads all records.
pub const PLAN_AGAIN: Duration = Duration::from_secs(1);
/// Between two plans while only the records change.
pub const PLAN_EVERY: Duration = Duration::from_secs(10);
/// The same while copies are missing.
pub const PLAN_SOON: Duration = Duration::from_secs(2);
/// What may mend itself, or a surplus that the next failure may need, is let alone for so long (rules R54, R64).
pub const RIPE: Duration = Duration::from_secs(60);
/// A group whose task waits is left alone for so long.
pub const TASK_PATIENCE: Duration = Duration::from_secs(5);
/// Tasks of a node at once, each with two frames in memory at most: 8 MiB.
pub const TASKS: usize = 4;
/// The same while the limits are lifted.
pub const TASKS_BOOSTED: usize = 8;
/// Bytes a second of a node while copies are missing. A node of 10 TB is made anew by 9 others in 75 minutes at this pace.
pub const URGENT_BYTES_PER_SECOND: u64 = 256 << 20;
/// For policies that changed, and drains.
pub const USUAL_BYTES_PER_SECOND: u64 = 128 << 20;
/// For what can wait.
pub const SLOW_BYTES_PER_SECOND: u64 = 32 << 20;
/// What may be taken ahead.
pub const PACE_BURST: Duration = Duration::from_millis(250);
/// Between two looks at whether clients wait.
pub const PACE_ADJUST: Duration = Duration::from_secs(1);
/// Seconds that a rate is measured over.
pub const PACE_MARKS: usize = 10;
/// Appends that wait for a disk beyond which clients wait for background work.
pub const PRESSED_QUEUE: usize = 32;
/// Disks tried for one copy.
pub const TARGETS_TRIED: usize = 2;
/// A copy that no record names is waited for so long: 64 MiB take a minute at the slowest pace.
pub const UNNAMED_KEPT: Duration = Duration::from_secs(3600);
/// How long the file of a surplus copy is kept, unless space is short before.
pub const SURPLUS_KEPT: Duration = Duration::from_secs(3600);
