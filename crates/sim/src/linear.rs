//! Whether a history of concurrent calls on one object could have come from one that does them one after the other.
//!
//! Promises: [`check`] finds an order if there is one, each call in it between its beginning and its end, and each answer as the
//! specification gives it; it says so when it looked at [`MOST_STATES`] states and does not know. The search is that of Wing and Gong,
//! remembering what it has seen as Lowe does ("Testing for linearizability", 2017). Histories of many objects are checked one by one:
//! they are linearizable together if and only if each is. Refuses to know: what the object is.

use std::collections::BTreeSet;
use std::time::Duration;

/// States of the search, each some 100 bytes: beyond them it gives up. A history of a few hundred calls needs some thousands.
pub const MOST_STATES: usize = 2_000_000;

/// An object that does one call after the other.
pub trait Specification {
    /// All there is to know of it.
    type State: Clone + Ord;
    /// A call with its answer, as far as the caller knows it.
    type Call;
    /// How it begins.
    fn initial(&self) -> Self::State;
    /// What it is after the call; `None`: in this state the call has another answer.
    fn step(&self, state: &Self::State, call: &Self::Call) -> Option<Self::State>;
}

/// A call of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timed<C> {
    /// When the caller began.
    pub begun: Duration,
    /// When it had its answer. `None`: it never had one, or one that does not say whether it happened. Such a call may take effect at
    /// any time from its beginning on, once or never.
    pub ended: Option<Duration>,
    /// What was asked and answered.
    pub call: C,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order.
    Linearizable,
    /// There is none. The longest beginning of an order that was found leaves these answered calls, by their place in the history.
    Broken(Vec<usize>),
    /// It was too much to look at.
    Undecided,
}

/// Which calls are in the order already, one bit each.
type Done = Vec<u64>;

/// Looks for an order.
pub fn check<S: Specification>(specification: &S, history: &[Timed<S::Call>]) -> Verdict {
    let mut seen: BTreeSet<(Done, S::State)> = BTreeSet::new();
    let mut ahead = vec![(vec![0; history.len().div_ceil(64)], specification.initial())];
    let mut fewest_left: Option<Vec<usize>> = None;
    while let Some((done, state)) = ahead.pop() {
        let left = answered_and_not_done(history, &done);
        if left.is_empty() {
            return Verdict::Linearizable;
        }
        let horizon = left.iter().filter_map(|at| history[*at].ended).min();
        if fewest_left.as_ref().is_none_or(|fewest| left.len() < fewest.len()) {
            fewest_left = Some(left);
        }
        // Last to first, so that the first is tried first.
        for (at, timed) in history.iter().enumerate().rev() {
            // Whatever ended before this call began is before it.
            if is_done(&done, at) || horizon.is_some_and(|horizon| timed.begun > horizon) {
                continue;
            }
            let Some(next) = specification.step(&state, &timed.call) else { continue };
            let mut with = done.clone();
            with[at / 64] |= 1 << (at % 64);
            if seen.insert((with.clone(), next.clone())) {
                ahead.push((with, next));
            }
        }
        if seen.len() > MOST_STATES {
            return Verdict::Undecided;
        }
    }
    Verdict::Broken(fewest_left.unwrap_or_default())
}

fn is_done(done: &Done, at: usize) -> bool {
    done[at / 64] >> (at % 64) & 1 == 1
}

fn answered_and_not_done<C>(history: &[Timed<C>], done: &Done) -> Vec<usize> {
    (0..history.len()).filter(|at| history[*at].ended.is_some() && !is_done(done, *at)).collect()
}
