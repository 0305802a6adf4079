//! One key of a store, as P1 sees it: written, read, deleted, written on a condition.
//!
//! Promises: values are compared, so each write of a test has its own. Refuses to know: versions, listing.

use crate::linear::Specification;

/// A key that holds nothing at first, or a value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Register;

/// What a client did with the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// It now holds this; `None`: nothing.
    Write(Option<u64>),
    /// It held this.
    Read(Option<u64>),
    /// It now holds `new` if it held `expected`.
    WriteIf {
        /// What it must hold.
        expected: Option<u64>,
        /// What it holds then.
        new: Option<u64>,
        /// Whether it did; `None`: nobody knows.
        happened: Option<bool>,
    },
}

impl Specification for Register {
    type State = Option<u64>;
    type Call = Call;

    fn initial(&self) -> Option<u64> {
        None
    }

    fn step(&self, state: &Option<u64>, call: &Call) -> Option<Option<u64>> {
        match call {
            Call::Write(value) => Some(*value),
            Call::Read(seen) => (seen == state).then_some(*state),
            Call::WriteIf { expected, new, happened } => {
                let happens = expected == state;
                happened.is_none_or(|happened| happened == happens).then_some(if happens { *new } else { *state })
            }
        }
    }
}
