//! How redundancy stands, counted over all records (rule R53: done is what the records say).
//!
//! Promises: every group is counted once. Refuses to know: how fast it gets better.

use super::Task;
use super::copies::{self, Copies};
use metadata::rows::{GroupRecord, GroupState};
use serde::{Deserialize, Serialize};

/// Priorities of tasks; 1 is the most urgent.
pub const PRIORITIES: usize = 5;

/// Groups, and bytes of one copy of each that are not dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Groups.
    pub groups: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Amount {
    fn add(&mut self, bytes: u64) {
        self.groups += 1;
        self.bytes += bytes;
    }
}

/// Groups with so many sound copies of so many that are required.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Copies required.
    pub required: usize,
    /// Domains with a sound copy.
    pub sound: usize,
    /// How many, how much.
    #[serde(flatten)]
    pub amount: Amount,
}

/// All groups.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Census {
    /// All that are sealed.
    pub sealed: Amount,
    /// Open still, or being sealed.
    pub unsealed_groups: u64,
    /// Those of them with a replica that cannot be asked.
    pub unsealed_hurt_groups: u64,
    /// By copies required and sound.
    pub standings: Vec<Standing>,
    /// With fewer copies than required.
    pub short: Amount,
    /// Readable in one place only, though more are required.
    pub at_risk: Amount,
    /// Not readable anywhere just now.
    pub unreadable: Amount,
    /// With copies on disks whose data moves away.
    pub leaving: Amount,
    /// With more sound copies than required.
    pub surplus: Amount,
    /// Bytes that have to be written until every group has what it requires.
    pub missing_bytes: u64,
    /// What is to be done, on all nodes together, by priority from 1 on.
    pub waiting: [Amount; PRIORITIES],
}

impl Census {
    /// Whether every group has the copies it requires.
    pub fn is_fully_redundant(&self) -> bool {
        self.short.groups == 0 && self.unsealed_hurt_groups == 0
    }

    pub(crate) fn add(&mut self, record: &GroupRecord, required: usize, copies: &Copies, task: Option<&Task>) {
        let bytes = copies::live_bytes(record);
        if let Some(task) = task {
            self.waiting[usize::from(task.priority).clamp(1, PRIORITIES) - 1].add(bytes);
        }
        if record.state != GroupState::Sealed {
            self.unsealed_groups += 1;
            self.unsealed_hurt_groups += u64::from(!copies.away.is_empty() || !copies.gone.is_empty());
            return;
        }
        let sound = copies.sound.len();
        self.sealed.add(bytes);
        let known = self.standings.iter_mut().find(|known| (known.required, known.sound) == (required, sound));
        match known {
            Some(known) => known.amount.add(bytes),
            None => self.standings.push(Standing { required, sound, amount: Amount { groups: 1, bytes } }),
        }
        let counted = copies.counted();
        if counted < required {
            self.short.add(bytes);
            self.missing_bytes += (required - counted) as u64 * bytes;
        }
        match copies.readable.len() {
            0 => self.unreadable.add(bytes),
            1 if required > 1 => self.at_risk.add(bytes),
            _ => {}
        }
        if !copies.leaving.is_empty() {
            self.leaving.add(bytes);
        }
        if sound > required {
            self.surplus.add(bytes);
        }
    }

    pub(crate) fn sort(&mut self) {
        self.standings.sort_by_key(|standing| (standing.required, standing.sound));
    }
}
