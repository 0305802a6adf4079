//! The checker of histories, on histories that are known to be good or bad.
//!
//! Promises: it agrees with trying every order, and names each of the classic faults. Refuses to know: any cluster.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers outside `#[test]` functions fail the test the same way.

use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};
use sim::linear::{Specification, Timed, Verdict, check};
use sim::register::{Call, Register};
use std::time::Duration;

fn timed(begun: u64, ended: u64, call: Call) -> Timed<Call> {
    Timed { begun: Duration::from_millis(begun), ended: Some(Duration::from_millis(ended)), call }
}

/// Without an answer.
fn unknown(begun: u64, call: Call) -> Timed<Call> {
    Timed { begun: Duration::from_millis(begun), ended: None, call }
}

fn write(value: u64) -> Call {
    Call::Write(Some(value))
}

fn read(value: u64) -> Call {
    Call::Read(Some(value))
}

fn create(value: u64, happened: Option<bool>) -> Call {
    Call::WriteIf { expected: None, new: Some(value), happened }
}

fn is_good(history: &[Timed<Call>]) -> bool {
    match check(&Register, history) {
        Verdict::Linearizable => true,
        Verdict::Broken(_) => false,
        Verdict::Undecided => panic!("a small history is decided"),
    }
}

#[test]
fn a_read_sees_the_last_write_that_was_answered_before_it() {
    assert!(is_good(&[timed(0, 1, write(1)), timed(2, 3, read(1))]));
    assert!(!is_good(&[timed(0, 1, write(1)), timed(2, 3, write(2)), timed(4, 5, read(1))]), "a stale read");
    assert!(!is_good(&[timed(0, 1, write(1)), timed(2, 3, Call::Read(None))]), "a lost write");
    assert!(!is_good(&[timed(0, 1, write(1)), timed(2, 3, read(2))]), "a value from nowhere");
    assert!(!is_good(&[timed(0, 1, read(1)), timed(2, 3, write(1))]), "a value from the future");
}

#[test]
fn a_read_beside_a_write_sees_either_and_then_everybody_sees_the_same() {
    let beside = |seen: [Option<u64>; 2]| {
        [
            timed(0, 1, write(1)),
            timed(2, 9, write(2)),
            timed(3, 4, Call::Read(seen[0])),
            timed(5, 6, Call::Read(seen[1])),
        ]
    };
    assert!(is_good(&beside([Some(1), Some(1)])));
    assert!(is_good(&beside([Some(1), Some(2)])));
    assert!(is_good(&beside([Some(2), Some(2)])));
    assert!(!is_good(&beside([Some(2), Some(1)])), "it went back in time");
}

#[test]
fn of_racing_creations_exactly_one_wins() {
    let race = |a, b| [timed(0, 9, create(1, Some(a))), timed(0, 9, create(2, Some(b)))];
    assert!(is_good(&race(true, false)) && is_good(&race(false, true)));
    assert!(!is_good(&race(true, true)) && !is_good(&race(false, false)));
}

#[test]
fn a_write_without_an_answer_happens_at_any_later_time_once_or_never() {
    let after = |reads: &[Option<u64>]| {
        let reads = reads.iter().zip(0..).map(|(seen, n)| timed(10 + 2 * n, 11 + 2 * n, Call::Read(*seen)));
        [timed(0, 1, write(1)), unknown(2, write(2))].into_iter().chain(reads).collect::<Vec<_>>()
    };
    assert!(is_good(&after(&[Some(1), Some(1)])));
    assert!(is_good(&after(&[Some(1), Some(2)])));
    assert!(!is_good(&after(&[Some(2), Some(1)])), "it happened, then it had not");
    assert!(!is_good(&[unknown(5, write(2)), timed(0, 1, read(2))]), "before it began");
    assert!(is_good(&[unknown(0, create(2, None)), timed(1, 2, create(1, Some(true))), timed(3, 4, read(1))]));
    assert!(is_good(&[unknown(0, create(2, None)), timed(1, 2, create(1, Some(false))), timed(3, 4, read(2))]));
}

#[test]
fn what_cannot_be_explained_is_named() {
    let history = [timed(0, 1, write(1)), timed(2, 3, read(7)), timed(2, 3, read(1))];
    assert_eq!(check(&Register, &history), Verdict::Broken(vec![1]));
}

#[test]
fn a_long_history_of_many_clients_is_decided() {
    // Eight clients take turns that overlap; each write is read by the next round.
    let rounds = (0..60_u64).flat_map(|round| {
        let calls = (0..8).map(move |client| {
            let call = if client == 0 { write(round) } else { read(round) };
            timed(round * 10 + client, round * 10 + 9, call)
        });
        calls.collect::<Vec<_>>()
    });
    let mut history: Vec<_> = rounds.collect();
    assert!(is_good(&history));
    // The write of this round began before it; that of the round before had ended.
    history.last_mut().unwrap().call = read(58);
    assert!(is_good(&history));
    history.last_mut().unwrap().call = read(57);
    assert!(!is_good(&history));
}

/// Tries every order of every subset that has all answered calls.
fn by_force(history: &[Timed<Call>], done: &mut Vec<usize>, state: Option<u64>) -> bool {
    let left = |done: &Vec<usize>| (0..history.len()).filter(|at| !done.contains(at)).collect::<Vec<_>>();
    if left(done).iter().all(|at| history[*at].ended.is_none()) {
        return true;
    }
    for at in left(done) {
        let ended_before = |other: &usize| history[*other].ended.is_some_and(|end| end < history[at].begun);
        if left(done).iter().any(ended_before) {
            continue;
        }
        let Some(next) = Register.step(&state, &history[at].call) else { continue };
        done.push(at);
        let found = by_force(history, done, next);
        done.pop();
        if found {
            return true;
        }
    }
    false
}

fn call() -> impl Strategy<Value = Call> {
    let value = || prop::option::weighted(0.8, 0_u64..3);
    prop_oneof![
        value().prop_map(Call::Write),
        value().prop_map(Call::Read),
        (value(), value(), prop::option::of(any::<bool>())).prop_map(|(expected, new, happened)| Call::WriteIf {
            expected,
            new,
            happened
        }),
    ]
}

fn history() -> impl Strategy<Value = Vec<Timed<Call>>> {
    let one = (0_u64..10, prop_oneof![4 => (0_u64..6).prop_map(Some), 1 => Just(None)], call());
    let one = one.prop_map(|(begun, took, call)| match took {
        Some(took) => timed(begun, begun + took, call),
        None => unknown(begun, call),
    });
    prop::collection::vec(one, 0..7)
}

proptest! {
    #[test]
    fn it_agrees_with_trying_every_order(history in history()) {
        prop_assert_eq!(is_good(&history), by_force(&history, &mut Vec::new(), None));
    }
}
