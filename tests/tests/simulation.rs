//! The simulated cluster: many seeds keep all promises, a seed always plays the same run, and planted bugs are noticed.
//!
//! A failing seed prints the command that replays it. More seeds:
//! `cargo run --release -p tribunal-tests --bin sim -- --seeds 100000`.

use std::collections::BTreeMap;

use tribunal_tests::sim::faults::Fault;
use tribunal_tests::sim::{Planted, Run, play};

/// Seeds of a run in CI.
const SEEDS: u64 = 2_000;

fn run(seed: u64) -> Run {
    Run { seed, trace: false, planted: None }
}

/// Plays seeds on all cores; returns the reports in the order of their seeds.
fn reports(seeds: std::ops::Range<u64>) -> Vec<tribunal_tests::sim::Report> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let played = std::thread::scope(|scope| {
        let of = |core| {
            let seeds = seeds.clone().filter(move |seed| seed % cores == core);
            scope.spawn(move || seeds.map(|seed| (seed, play(run(seed)).map(|(report, _)| report))).collect::<Vec<_>>())
        };
        let threads: Vec<_> = (0..cores).map(of).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a run does not panic")).collect::<BTreeMap<_, _>>()
    });
    let report = |(seed, played): (u64, Result<_, (String, _)>)| {
        played.unwrap_or_else(|(wrong, _)| {
            panic!("{wrong}; replay: cargo run --release -p tribunal-tests --bin sim -- --seed {seed} --trace")
        })
    };
    played.into_iter().map(report).collect()
}

#[test]
fn many_seeds_keep_all_promises() {
    let reports = reports(1..SEEDS + 1);
    let mut faults: BTreeMap<Fault, u64> = BTreeMap::new();
    for report in &reports {
        report.faults.iter().for_each(|(fault, times)| *faults.entry(*fault).or_default() += times);
    }
    let full =
        reports.iter().filter(|report| report.decided >= 200 && report.faults.values().sum::<u64>() >= 5).count();
    println!("{full} of {} seeds have 200 transactions and 5 faults; {faults:?}", reports.len());
    assert!(full * 10 >= reports.len() * 9, "only {full} runs have 200 transactions and 5 faults");
    assert!(Fault::ALL.iter().all(|fault| faults.get(fault) >= Some(&100)), "some faults do not happen: {faults:?}");
    assert!(reports.iter().map(|report| report.epochs.1).sum::<usize>() >= 10_000, "nodes hardly share epochs");
    assert!(reports.iter().map(|report| report.not_taken).sum::<u64>() >= 1_000, "no proposal is lost");
    let fresh_reads = reports.iter().map(|report| report.fresh_reads).sum::<u64>();
    assert!(fresh_reads >= 50 * reports.len() as u64, "{fresh_reads} fresh reads");
    assert!(reports.iter().map(|report| report.fenced).sum::<u64>() >= 100, "nothing is fenced");
    assert!(reports.iter().map(|report| report.outcomes_again).sum::<u64>() >= 10_000, "no outcome is found again");
    assert!(reports.iter().map(|report| report.changes).sum::<u64>() >= 1_000, "nothing is configured");
    let repeats = reports.iter().map(|report| report.repeats).sum::<u64>();
    assert!(repeats >= 100, "{repeats} changes of configuration were agreed on twice");
}

#[test]
fn a_seed_plays_the_same_run_twice() {
    for seed in 1..=20 {
        let (first, second) = (play(run(seed)), play(run(seed)));
        let digest = |played: Result<(tribunal_tests::sim::Report, _), (String, _)>| {
            played.map(|(report, _)| report).map_err(|(wrong, _)| wrong)
        };
        assert_eq!(digest(first), digest(second));
    }
}

/// Returns the first seed with which a bug is noticed.
fn noticed(planted: Planted) -> Option<u64> {
    (1..=200).find(|&seed| play(Run { planted: Some(planted), ..run(seed) }).is_err())
}

#[test]
fn acknowledging_before_the_sync_is_noticed() {
    assert!(noticed(Planted::AckBeforeSync).is_some());
}

#[test]
fn a_log_that_is_never_synced_is_noticed() {
    assert!(noticed(Planted::NoSync).is_some());
}
