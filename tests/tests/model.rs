//! The core against the naive oracle, on random small worlds. `TRIBUNAL_MODEL_CASES` sets the number of worlds (10,000
//! if unset); a failure prints the smallest world that still fails.

use std::cell::RefCell;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use tribunal_tests::generate::{World, adding_world, long_world, wide_world, world};
use tribunal_tests::model::{Tally, check};

const CASES_DEFAULT: u32 = 10_000;

/// Events that must occur at least once over all worlds; otherwise the worlds are too tame to prove anything.
const MUST_HAPPEN: [&str; 24] = [
    "body mismatch",
    "early abort",
    "early abort outside the window",
    "committed",
    "expired",
    "fenced",
    "imported",
    "join add_overflow",
    "join not_a_number",
    "join row_exists",
    "join row_missing",
    "join snapshot_from_the_future",
    "join snapshot_too_old",
    "join snapshots_differ",
    "merge order_conflict",
    "merge write_conflict",
    "not imported",
    "placed at the front",
    "placed between",
    "replayed",
    "the floor rose",
    "validate range_conflict",
    "validate read_conflict",
    "validate write_conflict",
];

/// Returns this test's share of the requested number of cases.
fn cases(share: u32) -> u32 {
    let cases = std::env::var("TRIBUNAL_MODEL_CASES").ok();
    let cases = cases.map_or(CASES_DEFAULT, |n| n.parse().expect("TRIBUNAL_MODEL_CASES is a number"));
    (cases / share).max(1)
}

/// Plays worlds until one is wrong.
fn play(cases: u32, worlds: impl Strategy<Value = World>) -> Tally {
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    let total = RefCell::new(Tally::new());
    let result = TestRunner::new(config).run(&worlds, |world| {
        let tally = check(&world).map_err(TestCaseError::fail)?;
        tally.into_iter().for_each(|(what, times)| *total.borrow_mut().entry(what).or_default() += times);
        Ok(())
    });
    if let Err(failed) = result {
        panic!("{failed}");
    }
    let total = total.into_inner();
    println!("{cases} worlds: {total:#?}");
    total
}

#[test]
fn the_core_agrees_with_the_oracle_however_epochs_are_played() {
    let total = play(cases(1), world());
    let missing: Vec<_> = MUST_HAPPEN.iter().filter(|&&what| total.get(what).is_none_or(|&times| times == 0)).collect();
    assert!(missing.is_empty(), "never happened: {missing:?}");
}

#[test]
fn the_core_agrees_with_the_oracle_over_many_epochs() {
    let total = play(cases(50), long_world());
    assert!(total["the floor rose"] > 0 && total["validate range_conflict"] > 0, "nothing old was looked at");
}

#[test]
fn the_core_agrees_with_the_oracle_where_adds_overflow_together() {
    let total = play(cases(50), adding_world());
    assert!(total["merge add_overflow"] > 0 && total["join add_overflow"] > 0, "no sum left 64 bits");
    assert!(total["committed"] > total["merge add_overflow"], "most adds have room");
}

#[test]
fn the_core_agrees_with_the_oracle_in_crowded_epochs() {
    let total = play(cases(50), wide_world());
    assert!(total["merge order_conflict"] > 0 && total["placed at the front"] > 0, "no transactions contended");
}
