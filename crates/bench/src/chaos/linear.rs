//! Whether the history of one key can be put in one order (promise P1): the search of Wing and Gong, with Lowe's memory.
//!
//! Promises: `Ok` only if there is an order of all operations, each between its call and its return, in which every answer is what the
//! key held then. An operation without an answer may take effect at any time after its call, or at the very end, where nobody sees
//! it: which is the same as never. Refuses to know: requests, clocks, other keys.

use std::collections::BTreeSet;

/// What a key holds: the number of the write whose bytes they are.
pub(super) type Value = Option<u64>;

/// What was asked of the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// GET, HEAD or LIST found this.
    Read(Value),
    /// PUT.
    Write(u64),
    /// DELETE.
    Delete,
    /// PUT with `If-None-Match: *`.
    WriteIfAbsent(u64),
    /// PUT with `If-Match` of that write's ETag.
    WriteIfIs(u64, u64),
}

/// What the answer said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Done.
    Done,
    /// A condition did not hold.
    Refused,
    /// No answer, or one that says nothing.
    Unknown,
}

/// One operation on the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Operation {
    /// When it was sent.
    pub(super) called: u64,
    /// When its answer had come; ignored if the verdict is unknown.
    pub(super) returned: u64,
    /// What.
    pub(super) action: Action,
    /// How it ended.
    pub(super) verdict: Verdict,
}

impl Operation {
    /// What the key holds after it, if it can be the next one when the key holds `before`.
    fn step(&self, before: Value) -> Option<Value> {
        let conditional = |holds: bool, value: u64| match (self.verdict, holds) {
            (Verdict::Done, true) | (Verdict::Unknown, true) => Some(Some(value)),
            (Verdict::Refused, false) | (Verdict::Unknown, false) => Some(before),
            (Verdict::Done, false) | (Verdict::Refused, true) => None,
        };
        match self.action {
            Action::Read(found) if self.verdict == Verdict::Done => (found == before).then_some(before),
            Action::Read(_) => Some(before),
            Action::Write(value) => Some(Some(value)),
            Action::Delete => Some(None),
            Action::WriteIfAbsent(value) => conditional(before.is_none(), value),
            Action::WriteIfIs(is, value) => conditional(before == Some(is), value),
        }
    }

    /// Nobody can tell whether it happened.
    fn is_open(&self) -> bool {
        self.verdict == Verdict::Unknown
    }
}

/// One end of an operation in time.
#[derive(Clone, Copy)]
struct Event {
    operation: usize,
    is_call: bool,
}

/// Events as a list from which operations are lifted and to which they are put back, in constant time.
struct Events {
    all: Vec<Event>,
    next: Vec<usize>,
    previous: Vec<usize>,
    /// Where each operation's call and return are.
    places: Vec<(usize, usize)>,
}

/// Before the first and behind the last event.
const HEAD: usize = 0;

impl Events {
    fn of(operations: &[Operation]) -> Events {
        let mut ends: Vec<(u64, bool, usize)> = Vec::new();
        for (index, operation) in operations.iter().enumerate() {
            ends.push((operation.called, true, index));
            ends.push((if operation.is_open() { u64::MAX } else { operation.returned }, false, index));
        }
        // At the same moment a call comes first: then the two overlap, which excuses more.
        ends.sort_by_key(|(at, is_call, index)| (*at, !is_call, *index));
        let mut all = vec![Event { operation: usize::MAX, is_call: false }];
        let mut places = vec![(0, 0); operations.len()];
        for (_, is_call, operation) in ends {
            let place = &mut places[operation];
            *(if is_call { &mut place.0 } else { &mut place.1 }) = all.len();
            all.push(Event { operation, is_call });
        }
        let count = all.len();
        let next = (0..count).map(|i| (i + 1) % count).collect();
        let previous = (0..count).map(|i| (i + count - 1) % count).collect();
        Events { all, next, previous, places }
    }

    fn unlink(&mut self, at: usize) {
        let (before, after) = (self.previous[at], self.next[at]);
        self.next[before] = after;
        self.previous[after] = before;
    }

    fn link(&mut self, at: usize) {
        let (before, after) = (self.previous[at], self.next[at]);
        self.next[before] = at;
        self.previous[after] = at;
    }

    fn lift(&mut self, operation: usize) {
        let (call, ret) = self.places[operation];
        self.unlink(call);
        self.unlink(ret);
    }

    fn put_back(&mut self, operation: usize) {
        let (call, ret) = self.places[operation];
        self.link(ret);
        self.link(call);
    }
}

/// Looks for an order. `Err` holds the operations that could be ordered at best before it got stuck, for people, or says that the
/// search was given up.
pub(super) fn check(operations: &[Operation], most_steps: u64) -> Result<(), String> {
    let mut events = Events::of(operations);
    let mut done = vec![0u64; operations.len().div_ceil(64)];
    let mut seen: BTreeSet<(Vec<u64>, Value)> = BTreeSet::new();
    let (mut state, mut order): (Value, Vec<(usize, Value)>) = (None, Vec::new());
    let (mut at, mut best, mut stuck_at) = (events.next[HEAD], 0, None);
    for _ in 0..most_steps {
        if events.next[HEAD] == HEAD {
            return Ok(());
        }
        let event = events.all[at];
        if at != HEAD && event.is_call {
            let operation = event.operation;
            if let Some(after) = operations[operation].step(state) {
                done[operation / 64] |= 1 << (operation % 64);
                if seen.insert((done.clone(), after)) {
                    order.push((operation, state));
                    state = after;
                    events.lift(operation);
                    at = events.next[HEAD];
                    continue;
                }
                done[operation / 64] &= !(1 << (operation % 64));
            }
            at = events.next[at];
            continue;
        }
        // A return is met whose operation has no place: the last choice was wrong.
        if order.len() >= best {
            (best, stuck_at) = (order.len(), (at != HEAD).then_some(event.operation));
        }
        let Some((operation, before)) = order.pop() else {
            return Err(explain(operations, best, stuck_at));
        };
        state = before;
        done[operation / 64] &= !(1 << (operation % 64));
        events.put_back(operation);
        at = events.next[events.places[operation].0];
    }
    Err(format!("the search was given up after {most_steps} steps"))
}

fn explain(operations: &[Operation], best: usize, stuck_at: Option<usize>) -> String {
    let Some(stuck) = stuck_at.map(|index| operations[index]) else {
        return format!("no order of the {} operations", operations.len());
    };
    let around =
        operations.iter().filter(|o| o.called <= stuck.returned && (o.is_open() || o.returned >= stuck.called));
    let around: Vec<String> = around.take(12).map(|o| format!("{o:?}")).collect();
    format!(
        "{best} of {} operations have an order, then {stuck:?} has no place beside {}",
        operations.len(),
        around.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::{Action, Operation, Verdict, check};
    use crate::content::Dice;

    const STEPS: u64 = 1 << 20;

    fn op(called: u64, returned: u64, action: Action) -> Operation {
        Operation { called, returned, action, verdict: Verdict::Done }
    }

    fn open(called: u64, action: Action) -> Operation {
        Operation { called, returned: 0, action, verdict: Verdict::Unknown }
    }

    fn refused(called: u64, returned: u64, action: Action) -> Operation {
        Operation { called, returned, action, verdict: Verdict::Refused }
    }

    #[test]
    fn a_read_that_goes_back_has_no_order() {
        let writes = [op(0, 1, Action::Write(1)), op(2, 9, Action::Write(2))];
        let good = [op(3, 4, Action::Read(Some(1))), op(5, 6, Action::Read(Some(2)))];
        let bad = [op(3, 4, Action::Read(Some(2))), op(5, 6, Action::Read(Some(1)))];
        assert_eq!(check(&[writes, good].concat(), STEPS), Ok(()));
        assert!(check(&[writes, bad].concat(), STEPS).is_err());
    }

    #[test]
    fn a_lost_acknowledged_write_has_no_order() {
        assert!(check(&[op(0, 1, Action::Write(1)), op(2, 3, Action::Read(None))], STEPS).is_err());
        let deleted = [op(0, 1, Action::Write(1)), op(0, 5, Action::Delete), op(2, 3, Action::Read(None))];
        assert_eq!(check(&deleted, STEPS), Ok(()));
    }

    #[test]
    fn a_write_without_an_answer_may_come_late_or_never_but_not_twice() {
        let unknown = open(0, Action::Write(1));
        assert_eq!(check(&[unknown, op(2, 3, Action::Read(None))], STEPS), Ok(()));
        assert_eq!(check(&[unknown, op(2, 3, Action::Read(None)), op(4, 5, Action::Read(Some(1)))], STEPS), Ok(()));
        let twice =
            [unknown, op(2, 3, Action::Read(Some(1))), op(4, 5, Action::Write(2)), op(6, 7, Action::Read(Some(1)))];
        assert!(check(&twice, STEPS).is_err());
    }

    #[test]
    fn of_racing_conditional_writes_one_wins() {
        let race = |second| [op(0, 9, Action::WriteIfAbsent(1)), second, op(10, 11, Action::Read(Some(1)))];
        assert_eq!(check(&race(refused(0, 9, Action::WriteIfAbsent(2))), STEPS), Ok(()));
        assert!(check(&race(op(0, 9, Action::WriteIfAbsent(2))), STEPS).is_err(), "both won");
        assert!(check(&[refused(0, 9, Action::WriteIfAbsent(2))], STEPS).is_err(), "refused over nothing");
        let chain =
            [op(0, 1, Action::Write(1)), op(2, 5, Action::WriteIfIs(1, 2)), refused(3, 6, Action::WriteIfIs(1, 3))];
        assert_eq!(check(&chain, STEPS), Ok(()));
    }

    /// An order is drawn, answers are made from it, and intervals are spread around its points: there is an order. Then one read is
    /// made to answer what no write could have left there at its time.
    #[test]
    fn drawn_histories_are_accepted_and_falsified_ones_are_not() {
        for seed in 0..200 {
            let mut dice = Dice::new(seed);
            let (mut state, mut operations) = (None, Vec::new());
            for number in 1..=120u64 {
                let point = number * 100;
                let (before, after) = (dice.below(350), dice.below(350));
                let (action, verdict) = match dice.below(10) {
                    0..4 => (Action::Read(state), Verdict::Done),
                    4..7 => (Action::Write(number), Verdict::Done),
                    7 => (Action::Delete, Verdict::Done),
                    8 if state.is_none() => (Action::WriteIfAbsent(number), Verdict::Done),
                    8 => (Action::WriteIfAbsent(number), Verdict::Refused),
                    _ => (Action::Write(number), Verdict::Unknown),
                };
                let happens = verdict != Verdict::Unknown || dice.below(2) == 0;
                let operation =
                    Operation { called: point.saturating_sub(before), returned: point + after, action, verdict };
                if happens {
                    state = operation.step(state).expect("made from the state");
                }
                operations.push(operation);
            }
            assert_eq!(check(&operations, STEPS), Ok(()), "seed {seed}");
            operations.push(op(20_000, 20_001, Action::Read(Some(1_000))));
            assert!(check(&operations, STEPS).is_err(), "seed {seed}: a value that nobody wrote");
        }
    }
}
