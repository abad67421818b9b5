//! Planted bugs: each one must be caught, by the model and by a script made for it, and neither may fail without
//! it. The switch is one for the whole process, so everything runs in one test, one bug after the other.
//!
//! `cargo test -p tribunal-tests --features planted-bugs --test negative`

use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use tribunal_core::planted::{Bug, plant};
use tribunal_tests::generate::{long_world, world};
use tribunal_tests::{model, script};

/// Worlds that the model may need to find a bug.
const WORLDS_MAX: u32 = 20_000;

/// Every so many worlds is one of many epochs: some bugs show only in rows that others wrote several times.
const LONG_WORLD_EVERY: u32 = 50;

/// A story that the bug spoils.
fn story(bug: Bug) -> &'static str {
    match bug {
        Bug::IgnoreReadSet => {
            "epoch
             T1 ser put x=1                 => ok
             epoch
             T2 ser put x=2                 => ok
             epoch
             T3 rr read x@T1 put y=1        => read_conflict validate: read x seen T1 now T2"
        }
        Bug::IgnoreWriteSet => {
            "epoch
             T1 rc put x=1                  => ok
             T2 rc put x=2                  => write_conflict merge: write x by T1"
        }
        Bug::SkipRanges => {
            "epoch
             T1 ser put x=1                 => ok
             epoch
             T2 ser @0 scan a..z put y=1    => range_conflict validate: scan a..z changed in 1"
        }
        Bug::SkipPutExistence => {
            "epoch
             T1 ser put x=1                 => ok kv#2
             T2 ser ins x=2                 => ok kv#1
             order => T2 T1"
        }
        Bug::StaleFloor => {
            "floor_age 1000
             epoch
             T1 ser put x=1                 => ok
             epoch at +2000
             T2 ser put x=2                 => ok
             epoch
             T3 rc @0 put y=1               => snapshot_too_old join: write y"
        }
        Bug::NonTotalRank => {
            "nodes 2
             rule constant
             epoch
             T1@1 rc put x=1 csn=20         => write_conflict merge: write x by T2
             T2@2 rc put x=2 csn=10         => ok"
        }
        Bug::ApplyLosers => {
            "epoch
             T1 rc put x=1                  => ok
             T2 rc put x=2 put y=2          => write_conflict merge: write x by T1
             epoch
             T3 rc upd y=3                  => row_missing join: write y"
        }
        Bug::FirstCommitterIgnored => {
            "epoch
             T1 ser put x=1                 => ok
             epoch
             T2 si @0 put x=2               => write_conflict validate: write x now T1"
        }
        Bug::AddsNeverConflict => {
            "epoch
             T1 ser put x=1                 => ok
             epoch
             T2 rc put x=2                  => ok
             T3 rc add x+1                  => write_conflict merge: write x by T2"
        }
        Bug::LsnGap => {
            "epoch
             T1 ser put x=1                 => ok kv#1
             T2 ser put y=1                 => ok kv#2
             epoch
             T3 ser put z=1                 => ok kv#3"
        }
        Bug::ReplayExecutes => {
            "epoch
             T1 ser put x=1 body=7          => ok
             epoch
             T2 ser put x=1 id=T1 body=7    => replayed 1.0"
        }
        Bug::AbsenceNeverDated => {
            "epoch
             T1 ser put p=1                 => ok
             epoch
             T2 ser put p=2 ins k=1         => ok
             epoch
             T3 ser del k                   => ok
             epoch
             T4 si @1 read p@T1 read k@- ins k=2 => write_conflict validate: write k"
        }
        Bug::AddsNeverOverflow => {
            "epoch
             T1 ser put x=9223372036854775807 => ok
             epoch
             T2 rc add x+1                  => add_overflow join: write x now T1"
        }
        Bug::AddsOverflowTogether => {
            "epoch
             T1 ser put x=9223372036854775806 => ok
             epoch
             T2 rc add x+1                  => ok
             T3 rc add x+1                  => add_overflow merge: write x by T2"
        }
        Bug::UnorderedRepeatableRead => {
            "epoch
             T1 ser put x=1 put y=1         => ok
             epoch
             T2 rr read x@T1 put y=2        => ok
             T3 rr read y@T1 put x=2        => order_conflict merge: read y seen T1 by T2; merge: write x by T2"
        }
        Bug::IdleEpochsForgotten => {
            "epoch
             T1 ser put x=1                 => ok
             epoch idle 3
             dry-run R1 ser @5 read x@T1    => read_only 5"
        }
        Bug::OnlySnapshotReadsDated => {
            "epoch
             T1 ser put x=1                 => ok
             epoch
             T2 ser put x=2                 => ok
             validator fresh:1
             epoch
             T3 rc read x@T1 put y=1        => plugin:9 validate: read x seen T1 now T2"
        }
        Bug::EveryAddCreates => {
            "epoch
             T1 rc add x+1|5                => ok kv#1
             T2 rc add x+2|7                => ok kv#2
             log kv => #1 insert x=6; #2 add x=2"
        }
        Bug::CreatingAddsIgnoreExistence => {
            "epoch
             T1 ser ins x=1                 => ok
             T2 ser add x+1|0               => order_conflict merge: write x by T1; merge: write x by T1"
        }
        Bug::SplitSnapshots => {
            "stores kv:mv sql:mv
             epoch
             T1 ser put x=1 put sql/y=1     => ok
             epoch
             T2 ser put x=2 put sql/y=2     => ok
             epoch
             T3 si @kv:1,sql:2 read x@T1 read sql/y@T2 put a=1 => snapshots_differ join: read x seen T1 now T2"
        }
    }
}

/// Tells whether a check fails; a panic of the core counts as failing.
fn is_caught(check: impl FnOnce() -> Result<(), String>) -> bool {
    !matches!(catch_unwind(AssertUnwindSafe(check)), Ok(Ok(())))
}

/// Returns after how many worlds the model catches whatever is planted.
fn worlds_until_caught() -> Option<u32> {
    let mut runner = TestRunner::deterministic();
    (1..=WORLDS_MAX).find(|number| {
        let world = if number.is_multiple_of(LONG_WORLD_EVERY) {
            long_world().new_tree(&mut runner).expect("a world").current()
        } else {
            world().new_tree(&mut runner).expect("a world").current()
        };
        is_caught(|| model::check(&world).map(drop))
    })
}

#[test]
fn every_planted_bug_is_caught() {
    let mut runner = TestRunner::deterministic();
    for _ in 0..WORLDS_MAX / 10 {
        let world = world().new_tree(&mut runner).expect("a world").current();
        model::check(&world).unwrap_or_else(|wrong| panic!("wrong without a bug: {wrong}"));
    }
    for bug in Bug::ALL {
        script::run(story(bug)).unwrap_or_else(|wrong| panic!("{bug:?}, not planted: {wrong}"));
    }
    std::panic::set_hook(Box::new(|_| {}));
    let mut missed = Vec::new();
    for bug in Bug::ALL {
        plant(Some(bug));
        let by_script = is_caught(|| script::run(story(bug)));
        let by_model = worlds_until_caught();
        println!("{bug:?}: script {by_script}, model after {by_model:?} worlds");
        if !by_script || by_model.is_none() {
            missed.push((bug, by_script, by_model));
        }
    }
    plant(None);
    drop(std::panic::take_hook());
    assert!(missed.is_empty(), "(bug, caught by its script, by the model): {missed:?}");
}
