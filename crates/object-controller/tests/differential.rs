//! The controller against the specification: the same program, the same answers, also over restarts.

mod fixture;

use fixture::program::{Op, Player, op};
use fixture::{Node, Setup, root};
use model::ModelStore;
use proptest::collection::vec;
use proptest::test_runner::{Config, TestRunner};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Plays a program on both and compares every answer.
fn compare(seed: u64, setup: Setup, program: &[Op]) {
    let mut node = Node::born(seed, setup);
    let ticks = AtomicU64::new(1_000_000);
    let model = Arc::new(ModelStore::new(root(), move || ticks.fetch_add(1_000, Ordering::Relaxed)));
    let mut expected = node.run(|_| Player::begin(model, true));
    let mut real = node.run(|c| Player::begin(Arc::new(c), false));
    for (step, op) in program.iter().enumerate() {
        if let Op::Restart = op {
            drop(std::mem::replace(&mut real.store, Arc::new(node.controller.clone())));
            node = node.restart();
            real.store = Arc::new(node.controller.clone());
            continue;
        }
        node.clock.advance(std::time::Duration::from_secs(1));
        let (wanted, got);
        let done = op.clone();
        (expected, wanted) = node.run(move |_| async move {
            let answer = expected.play(&done).await;
            (expected, answer)
        });
        let done = op.clone();
        (real, got) = node.run(move |_| async move {
            let answer = real.play(&done).await;
            (real, answer)
        });
        assert_eq!(got, wanted, "step {step}: {op:?}");
    }
    node.settle();
    node.check_rows();
}

fn check(cases: u32, length: std::ops::Range<usize>, setup: impl Fn() -> Setup) {
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { Config::default().cases } else { cases };
    let config = Config { cases, max_shrink_iters: 200, failure_persistence: None, ..Config::default() };
    let programs = (proptest::num::u64::ANY, vec(op(), length));
    let result = TestRunner::new(config).run(&programs, |(seed, program)| {
        compare(seed % 1_000_000, setup(), &program);
        Ok(())
    });
    assert!(result.is_ok(), "{}", result.err().map(|e| e.to_string()).unwrap_or_default());
}

#[test]
fn random_programs_are_answered_as_the_model_answers() {
    check(24, 1..40, Setup::default);
}

#[test]
fn random_programs_on_mirrored_disks_are_answered_as_the_model_answers() {
    check(8, 1..30, Setup::mirrored);
}

#[test]
fn random_programs_over_three_shards_are_answered_as_the_model_answers() {
    check(16, 1..40, Setup::three_shards);
}
