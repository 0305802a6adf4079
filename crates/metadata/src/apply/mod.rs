//! Apply decides: what an entry does to the rows, from nothing but the entry, the shard and the rows (rule R17).
//!
//! Promises: conditions, ranges, fences, deadlines and bucket states are judged here and nowhere else; a refused entry changes
//! nothing, except that an upload it would have committed is condemned in its stead; whether a content is ownerless is judged
//! after all changes of an entry. Refuses to know: clocks, the log, who waits for the outcome.
//!
//! There is no outcome table yet (protocols.md 15 leaves it out on one node): it would cost a row more to write and a row to
//! remove for each PUT. What must happen once is known from the rows: a version by the attempt that made it, a content by its
//! `body` row, an upload by its id.

mod conditions;
mod content;
mod draft;
mod invariants;
mod key;
mod multipart;
mod root;
mod shard;
mod version;

pub use invariants::check_invariants;

use crate::command::{Command, Entry, Outcome, Refusal};
use crate::directory::Directory;
use crate::format::{FormatError, family, key as row_key};
use crate::read::{self, ReadError};
use crate::shard::{ROOT, Shard, ShardId, Spans, StateMachine};
use crate::tree::{Read, TreeError, WriteBatch};
use draft::Work;
use std::sync::Arc;

/// The schema's state machine. All it decides from is in the rows; it keeps the directory up to date for the readers.
#[derive(Default)]
pub struct Schema {
    directory: Arc<Directory>,
    /// Why the directory could not be filled: then nothing is applied, as readers would not find what is there.
    failed: Option<TreeError>,
}

impl Schema {
    /// Keeps this directory, empty still, as of the last applied entry of root.
    pub fn new(directory: Arc<Directory>) -> Self {
        Schema { directory, failed: None }
    }
}

impl StateMachine for Schema {
    fn apply(
        &mut self,
        shard: &Shard,
        entry: &Entry,
        read: &dyn Read,
        batch: &mut WriteBatch,
    ) -> Result<Outcome, TreeError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mut work = Work::begin(shard, entry, read)?;
        let outcome = match decide(&mut work, entry) {
            Ok(outcome) => outcome,
            Err(Stop::Refused(refusal)) => {
                work.undo();
                instead(&mut work, entry, &refusal)?;
                Outcome::Refused(refusal)
            }
            Err(Stop::Failed(error)) => return Err(error),
        };
        work.finish(batch)?;
        Ok(outcome)
    }

    fn keeps(&self) -> fn(&[u8]) -> bool {
        |key| matches!(key.first(), Some(&(family::SHARD | family::FENCES | family::BUCKET_ROWS)))
    }

    fn spans(&self) -> Spans {
        spans
    }

    fn installed(&mut self, shard: &Shard, read: &dyn Read) {
        if shard.id == ROOT {
            self.failed = self.directory.refill(read).err().map(TreeError::from);
        }
    }

    fn last_stamp_ms(&self, shard: ShardId, read: &dyn Read) -> Result<u64, TreeError> {
        Ok(read::shard::state(read, shard)?.last_stamp_ms)
    }

    fn started(&mut self, read: &dyn Read) {
        self.failed = self.directory.fill(read).err().map(TreeError::from);
    }

    fn applied(&mut self, _shard: &Shard, entry: &Entry, outcome: &Outcome, read: &dyn Read) {
        self.directory.applied(entry, outcome, read);
    }
}

/// Key ranges of a shard's rows: those that carry its number, and root's families or the keys of its range.
fn spans(shard: &Shard) -> Vec<(Vec<u8>, Vec<u8>)> {
    let of_shard = [family::SHARD, family::FENCES, family::OUTBOX, family::BUCKET_ROWS].map(|family| {
        let from = row_key::of_shard(family, shard.id, &[]);
        (from.clone(), row_key::successor(from))
    });
    let mut spans: Vec<_> = of_shard.into();
    if shard.id == ROOT {
        spans.push((vec![family::COUNTERS], vec![family::ROOT_END]));
    } else {
        spans.extend((family::CURRENT..=family::CONDEMNED).map(|family| row_key::range_bounds(family, &shard.range)));
    }
    spans
}

/// Why an entry is not done.
enum Stop {
    /// Refused: the outcome.
    Refused(Refusal),
    /// The rows could not be read: nothing can be decided.
    Failed(TreeError),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Stop::Refused(refusal)
    }
}

impl From<TreeError> for Stop {
    fn from(error: TreeError) -> Self {
        Stop::Failed(error)
    }
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        Stop::Failed(error.into())
    }
}

impl From<FormatError> for Stop {
    fn from(error: FormatError) -> Self {
        Stop::Failed(error.into())
    }
}

type Decision<T = Outcome> = Result<T, Stop>;

fn decide(work: &mut Work<'_>, entry: &Entry) -> Decision {
    let in_root = work.shard.id == ROOT;
    match &entry.command {
        Command::Key(command) if !in_root => key::decide(work, entry, command),
        Command::Shard(command) if !in_root => shard::decide(work, entry, command),
        Command::Root(command) if in_root => {
            judge_time(work, entry)?;
            root::decide(work, command)
        }
        _ => Err(Refusal::Moved.into()),
    }
}

/// What a refused entry does instead: an upload's bytes are there and nobody will name them any more.
fn instead(work: &mut Work<'_>, entry: &Entry, refusal: &Refusal) -> Result<(), TreeError> {
    let decided = match refusal {
        // Decide nothing: the gateway comes again under the same attempt.
        Refusal::Moved | Refusal::Refetch => false,
        // The settling of its group has judged it, or will.
        Refusal::Fenced => false,
        // Committed or condemned already.
        Refusal::ContentTaken => false,
        _ => true,
    };
    match &entry.command {
        Command::Key(command) if decided => Ok(key::condemn_uploaded(work, command)?),
        _ => Ok(()),
    }
}

/// An entry whose effective time is later than its deadline is refused.
fn judge_time(work: &Work<'_>, entry: &Entry) -> Decision<()> {
    if work.now_ms > entry.deadline_ms {
        return Err(Refusal::Deadline.into());
    }
    Ok(())
}

/// A client's mutation is refused for ever once its session is fenced. Asked before the deadline, for what is fenced must not
/// even be condemned.
fn judge_fence(work: &Work<'_>, entry: &Entry) -> Decision<()> {
    let lowest = read::shard::fence(&work.draft, work.shard.id, entry.attempt.node)?;
    if entry.attempt.session < lowest {
        return Err(Refusal::Fenced.into());
    }
    Ok(())
}
