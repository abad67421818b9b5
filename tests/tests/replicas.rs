//! Replicas of one cluster, on random histories: they decide alike, answer every client exactly once, and the same
//! events have the same effects.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tribunal_tests::replicas::{Seen, history, play};

/// The histories must contain the cases they are meant to test.
#[test]
fn random_histories_share_epochs_join_and_void_batches() {
    let mut runner = TestRunner::deterministic();
    let mut sum = Seen::default();
    for _ in 0..300 {
        let history = history().new_tree(&mut runner).expect("a history").current();
        let (seen, _) = play(&history).unwrap_or_else(|wrong| panic!("{history:?}\n{wrong}"));
        sum.epochs += seen.epochs;
        sum.shared += seen.shared;
        sum.void += seen.void;
        sum.decided += seen.decided;
        sum.joins += seen.joins;
        sum.repeated += seen.repeated;
        sum.taken_over += seen.taken_over;
        sum.sealed_for_others += seen.sealed_for_others;
        sum.late += seen.late;
        sum.pipelined += seen.pipelined;
    }
    let Seen { epochs, shared, void, decided, joins, repeated, taken_over, sealed_for_others, late, pipelined } = sum;
    let around_leaders = [taken_over, sealed_for_others, late, pipelined];
    assert!(
        [epochs, shared, void, decided, joins, repeated].into_iter().chain(around_leaders).min() >= Some(30),
        "too little happens: {sum:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn replicas_decide_the_same_and_answer_everybody_once(history in history()) {
        let played = play(&history);
        prop_assert!(played.is_ok(), "{}", played.unwrap_err());
    }

    #[test]
    fn the_same_events_have_the_same_effects(history in history()) {
        prop_assert!(play(&history) == play(&history), "a replica depends on something that is no event");
    }
}
