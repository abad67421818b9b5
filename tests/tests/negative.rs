//! Planted bugs: the model and a script written for the bug must both catch it, and neither may fail without it. The
//! switch is process-wide, so one test runs all bugs in sequence.
//!
//! `cargo test -p tribunal-tests --features planted-bugs --test negative`

use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use tribunal_core::planted::{Bug, plant};
use tribunal_tests::folding::{self, Arrival, EntryChoice, History, arrival, history};
use tribunal_tests::generate::{long_world, world};
use tribunal_tests::sim::faults::{Fault, Faults};
use tribunal_tests::sim::{Run, play};
use tribunal_tests::{control, model, replicas, script};

/// Worlds that the model may need to find a bug.
const WORLDS_MAX: u32 = 20_000;

/// Seeds that a simulated cluster may need to find a bug.
const SEEDS_MAX: u64 = 300;

/// One in this many worlds has many epochs: some bugs show only in rows that several transactions have written.
const LONG_WORLD_EVERY: u32 = 50;

/// A script whose outcome the bug changes.
fn story(bug: Bug) -> &'static str {
    match bug {
        Bug::NumberGivenTwice | Bug::ChangeAppliedAgain => unreachable!("epochs tell nothing of the control log"),
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
             T3 si @0 put y=1               => snapshot_too_old join: write y"
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
        Bug::DuplicateAcrossGroups => {
            "nodes 2
             epoch
             T1 ser put x=1 body=7          => ok
             T2@2 ser put x=1 id=T1 body=7  => replayed 1.0"
        }
        Bug::RangeKeysCutShort => {
            "epoch
             T1 ser put b=1                 => ok
             epoch
             T2 ser @0 scan a..ba put y=1   => range_conflict validate: scan a..ba changed in 1"
        }
        Bug::IdFloorLost => {
            "status_bytes 0
             epoch
             T1 ser put x=1 body=7          => ok
             restart
             epoch
             R1 ser put x=1 id=T1 body=7    => expired"
        }
        Bug::DeletionsForgotten => {
            "generation 2
             floor_age 1000
             epoch
             T1 ser put x=1                 => ok
             epoch
             T2 ser del x                   => ok
             epoch at +2000
             T3 ser put y=1                 => ok
             epoch at +2000
             T4 ser put y=2                 => ok
             epoch
             import x 1.0
             imported => 0
             epoch
             T5 rr read x@T1 put z=1        => read_conflict validate: read x seen T1"
        }
        Bug::VersionsUnchecked => {
            "generation 2
             stores kv:mv
             epoch
             T1 ser put x=1                 => ok
             epoch
             T2 si @0 read x@T1 put y=1     => snapshots_differ join: read x seen T1 now T1"
        }
        Bug::SumsBeforeReads => {
            "generation 2
             epoch
             T1 ser put x=9223372036854775807 put y=1 => ok
             epoch
             T2 ser put y=2                 => ok
             epoch
             T3 ser read y@T1 add x+1       => read_conflict validate: read y seen T1 now T2"
        }
        Bug::PlacedInCycle => {
            "generation 3
             epoch
             T0 ser put x=0 put y=0         => ok
             epoch
             T1 ser @1 read x@T0 put y=1    => ok
             T2 ser @1 read y@T0 put x=2    => order_conflict merge: read y seen T0 by T1; merge: write x by T1"
        }
        Bug::BarrierSkipped | Bug::EmptyEntrysControlLost | Bug::AnswersShifted => unreachable!("of the fold"),
        Bug::VoidCounted
        | Bug::AckBeforeMajority
        | Bug::TakeoverWithoutItsNoOp
        | Bug::TimeFromTheLocalClock
        | Bug::PeersGapsFolded
        | Bug::ImageTooFar
        | Bug::OneNodeDiverges
        | Bug::RemovedNodeReads
        | Bug::JoinsWithoutLeader
        | Bug::NewGroupWithoutLeaving
        | Bug::EndsBeforeItIsForgotten
        | Bug::MembersFromOldControl
        | Bug::FreshWithoutCode
        | Bug::NextEpochHeldBack
        | Bug::WindowKeysDealt
        | Bug::DoubtDropped
        | Bug::PeersEntriesDropped
        | Bug::RemovalOutlivesSoleNode => unreachable!("of a cluster"),
    }
}

/// Folds a history whose result a bug of the fold changes.
fn folding_story(bug: Bug) -> Result<(), String> {
    let items = |items| EntryChoice { length: 1, items, ..EntryChoice::default() };
    let learned = |learned, entry| EntryChoice { learned, ..entry };
    let logs = match bug {
        // The second epoch must not be resolved before the control entry is known.
        Bug::BarrierSkipped => vec![vec![learned(1, items([1, 0, 0])), items([1, 0, 0])]],
        // Node 2 seals the first epoch empty, and knows a control entry.
        Bug::EmptyEntrysControlLost => {
            vec![vec![items([1, 0, 0]), items([1, 0, 0])], vec![learned(1, items([0; 3])), items([0; 3])]]
        }
        // Both contribute to one epoch.
        _ => vec![vec![items([2, 1, 1])], vec![items([1, 1, 2])]],
    };
    let mut history = History { members: logs.len(), logs, control: vec![None] };
    history.logs.resize(5, Vec::new());
    folding::check(&history, &Arrival { steps: Vec::new(), restart_at: 0 }).map(drop)
}

/// Plays histories of whole replicas until one shows the bug; returns how many that took.
fn replica_histories_until_caught() -> Option<u32> {
    let mut runner = TestRunner::deterministic();
    (1..=WORLDS_MAX / 10).find(|_| {
        let history = replicas::history().new_tree(&mut runner).expect("a history").current();
        is_caught(|| replicas::play(&history).map(drop))
    })
}

/// Returns the number of histories after which the model of the fold catches the planted bug.
fn histories_until_caught() -> Option<u32> {
    let mut runner = TestRunner::deterministic();
    (1..=WORLDS_MAX).find(|_| {
        let (history, arrival) = (history(), arrival()).new_tree(&mut runner).expect("a history").current();
        is_caught(|| folding::check(&history, &arrival).map(drop))
    })
}

/// Returns whether a check fails; a panic of the core counts as a failure.
fn is_caught(check: impl FnOnce() -> Result<(), String>) -> bool {
    !matches!(catch_unwind(AssertUnwindSafe(check)), Ok(Ok(())))
}

/// Returns the number of worlds after which the model catches the planted bug.
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

/// Returns the number of histories after which the model of the control log catches the planted bug.
fn control_histories_until_caught() -> Option<u32> {
    let mut runner = TestRunner::deterministic();
    (1..=WORLDS_MAX / 10).find(|_| {
        let history = control::histories().new_tree(&mut runner).expect("a history").current();
        is_caught(|| control::check(&history))
    })
}

/// Returns the faults to inject for a bug. Some bugs need events that are too rare when all faults are enabled.
fn faults_that_show(bug: Bug) -> Faults {
    match bug {
        // Peers are queried when a link is cut.
        Bug::PeersGapsFolded => Faults::Only(Fault::Bridge),
        // A removal, an admission and a lost disk, within a second.
        Bug::NewGroupWithoutLeaving | Bug::EndsBeforeItIsForgotten => Faults::OfMembers,
        Bug::FreshWithoutCode => Faults::Only(Fault::MissingCode),
        Bug::DoubtDropped => Faults::Only(Fault::MajorityLost),
        _ => Faults::All,
    }
}

/// Returns the seeds to play with a bug. A bug that needs a rare order of events uses seeds known to produce it.
fn seeds_that_show(bug: Bug) -> RangeInclusive<u64> {
    match bug {
        // Only starving components depend on it.
        Bug::WindowKeysDealt => 13_120..=13_120,
        Bug::EndsBeforeItIsForgotten => 1_001..=1_000 + SEEDS_MAX,
        // A node without a policy's code restarts after the others have left.
        Bug::MembersFromOldControl => 43_518..=43_518,
        // The survivor's own removal is the last change that it has received.
        Bug::RemovalOutlivesSoleNode => 65_691..=65_691,
        _ => 1..=SEEDS_MAX,
    }
}

/// Returns the first of these seeds with which a simulated cluster detects the planted bug.
fn seeds_until_caught(faults: Faults, mut seeds: RangeInclusive<u64>) -> Option<u64> {
    seeds.find(|&seed| {
        is_caught(|| play(Run { seed, trace: false, planted: None, faults }).map(drop).map_err(|wrong| wrong.0))
    })
}

#[test]
fn every_planted_bug_is_caught() {
    let mut runner = TestRunner::deterministic();
    for _ in 0..WORLDS_MAX / 10 {
        let world = world().new_tree(&mut runner).expect("a world").current();
        model::check(&world).unwrap_or_else(|wrong| panic!("wrong without a bug: {wrong}"));
    }
    for bug in Bug::OF_THE_RESOLVER {
        script::run(story(bug)).unwrap_or_else(|wrong| panic!("{bug:?}, not planted: {wrong}"));
    }
    for bug in Bug::OF_THE_FOLD {
        folding_story(bug).unwrap_or_else(|wrong| panic!("{bug:?}, not planted: {wrong}"));
    }
    std::panic::set_hook(Box::new(|_| {}));
    let (mut missed, mut missed_by_replicas, mut missed_by_clusters) = (Vec::new(), Vec::new(), Vec::new());
    let mut note = |bug: Bug, by_script: bool, by_model: Option<u32>| {
        println!("{bug:?}: script {by_script}, model after {by_model:?} worlds");
        if !by_script || by_model.is_none() {
            missed.push((bug, by_script, by_model));
        }
    };
    for bug in Bug::OF_THE_RESOLVER {
        plant(Some(bug));
        note(bug, is_caught(|| script::run(story(bug))), worlds_until_caught());
    }
    for bug in Bug::OF_THE_FOLD {
        plant(Some(bug));
        note(bug, is_caught(|| folding_story(bug)), histories_until_caught());
        let by_replicas = replica_histories_until_caught();
        println!("{bug:?}: replicas after {by_replicas:?} histories");
        if by_replicas.is_none() {
            missed_by_replicas.push(bug);
        }
    }
    for bug in Bug::OF_THE_CONTROL_LOG {
        plant(Some(bug));
        let by_model = control_histories_until_caught();
        println!("{bug:?}: model after {by_model:?} histories");
        if by_model.is_none() {
            missed.push((bug, true, by_model));
        }
    }
    // In a cluster of healthy members no entry is void: only histories of replicas contain void entries.
    plant(Some(Bug::VoidCounted));
    if replica_histories_until_caught().is_none() {
        missed_by_replicas.push(Bug::VoidCounted);
    }
    let others =
        [Bug::BarrierSkipped, Bug::AnswersShifted, Bug::ReplayExecutes, Bug::NumberGivenTwice, Bug::ChangeAppliedAgain];
    // A wrong decision that all nodes agree on is for the oracle to detect.
    let by_the_oracle = [
        Bug::IgnoreReadSet,
        Bug::IgnoreWriteSet,
        Bug::SkipRanges,
        Bug::StaleFloor,
        Bug::ApplyLosers,
        Bug::FirstCommitterIgnored,
        Bug::AddsNeverConflict,
        Bug::AbsenceNeverDated,
        Bug::SplitSnapshots,
        Bug::UnorderedRepeatableRead,
        Bug::IdleEpochsForgotten,
    ];
    let others = others.into_iter().chain(by_the_oracle);
    let of_the_cluster = Bug::OF_THE_CLUSTER.into_iter().chain(Bug::OF_A_LOST_MAJORITY).chain(others);
    for bug in of_the_cluster.filter(|bug| *bug != Bug::VoidCounted) {
        plant(Some(bug));
        let by_seeds = seeds_until_caught(faults_that_show(bug), seeds_that_show(bug));
        println!("{bug:?}: simulated cluster at seed {by_seeds:?}");
        if by_seeds.is_none() {
            missed_by_clusters.push(bug);
        }
    }
    plant(None);
    assert_eq!(control_histories_until_caught(), None, "not planted");
    drop(std::panic::take_hook());
    assert!(missed_by_replicas.is_empty(), "{missed_by_replicas:?}");
    assert!(missed_by_clusters.is_empty(), "{missed_by_clusters:?}");
    assert!(missed.is_empty(), "(bug, caught by its script, by the model): {missed:?}");
}
