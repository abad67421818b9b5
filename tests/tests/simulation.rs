//! The simulated cluster: many seeds keep all promises, a seed always plays the same run, and planted bugs are
//! detected.
//!
//! A failing seed prints the command that replays it. More seeds:
//! `cargo run --release -p tribunal-tests --bin sim -- --seeds 100000`.

use std::collections::BTreeMap;
use std::panic::resume_unwind;

use tribunal_tests::sim::faults::{Fault, Faults};
use tribunal_tests::sim::machine::TICK_US;
use tribunal_tests::sim::storages::StoragesReport;
use tribunal_tests::sim::{HistoriesReport, MajorityLossReport, MembersReport, Planted, Report, Run, play};

/// Seeds of a run in CI.
const SEEDS: u64 = 2_000;

fn run(seed: u64) -> Run {
    Run { seed, trace: false, planted: None, faults: Faults::All }
}

/// Plays a run that must keep all promises.
fn played(run: Run) -> Report {
    play(run).unwrap_or_else(|(wrong, _)| panic!("{wrong}; replay: {}", run.replay())).0
}

/// Plays seeds on all cores; returns the reports in seed order.
fn reports(seeds: std::ops::Range<u64>) -> Vec<Report> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let reports = std::thread::scope(|scope| {
        let of = |core| {
            let seeds = seeds.clone().filter(move |seed| seed % cores == core);
            scope.spawn(move || seeds.map(|seed| (seed, played(run(seed)))).collect::<Vec<_>>())
        };
        let threads: Vec<_> = (0..cores).map(of).collect();
        let joined = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|broken| resume_unwind(broken)));
        joined.flatten().collect::<BTreeMap<_, _>>()
    });
    reports.into_values().collect()
}

#[test]
fn a_machine_that_loses_its_disk_is_replaced() {
    let wiped = (1..=100).map(|seed| played(Run { faults: Faults::Only(Fault::WipedDisk), ..run(seed) }).members.wiped);
    let wiped = wiped.sum::<u64>();
    assert!(wiped >= 50, "{wiped} machines lose their disk");
}

#[test]
fn one_node_continues_alone_after_a_majority_is_lost() {
    let only = Faults::Only(Fault::MajorityLost);
    let reports = (1..=100).map(|seed| played(Run { faults: only, ..run(seed) }).majority_loss).collect::<Vec<_>>();
    let recovered = reports.iter().filter(|report| report.recovered == 1 && report.joined >= 2).count();
    assert!(recovered >= 90, "in {recovered} runs, one node continues alone and others join it");
}

#[test]
fn nodes_come_go_and_are_lost_in_quick_succession() {
    let runs = (1..=200).map(|seed| played(Run { faults: Faults::OfMembers, ..run(seed) }).members);
    let all = runs.fold((0, 0, 0), |all, m| (all.0 + m.joined, all.1 + m.removed, all.2 + m.wiped));
    assert!(all.0 >= 200 && all.1 >= 200 && all.2 >= 200, "(joined, removed, lost their disks): {all:?}");
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
    let assigned = reports.iter().map(|report| report.assigned).sum::<u64>();
    assert!(assigned >= 5 * reports.len() as u64, "{assigned} times a node was named to push to a store");
    let peer_entries = reports.iter().map(|report| report.peer_entries).sum::<u64>();
    assert!(reports.iter().any(|report| report.copies > 0), "no epoch can be decided from a peer's entry");
    assert!(peer_entries >= 1_000, "{peer_entries} entries were sent to peers that could not reach a leader");
    let (stops, forced) = reports.iter().fold((0, 0), |all, report| (all.0 + report.stops.0, all.1 + report.stops.1));
    assert!(stops >= 500 && forced >= 10, "{stops} processes stop, {forced} of them without a majority");
    let images = reports.iter().fold((0, 0), |all, report| (all.0 + report.images.0, all.1 + report.images.1));
    assert!(images.0 >= 10_000 && images.1 >= 1_000, "{} images, {} starts from one", images.0, images.1);
    let truncated = reports.iter().filter(|report| report.truncated_bytes > 0).count();
    assert!(truncated * 2 >= reports.len(), "in {truncated} runs some log is truncated");
    let copied = reports.iter().map(|report| report.copied_images).sum::<u64>();
    assert!(copied >= 100, "{copied} images were copied from another machine");
    assert!(reports.iter().any(|report| report.wanted_images > 0), "every copy finds an image that helps");
    let members = |of: fn(&MembersReport) -> u64| reports.iter().map(|report| of(&report.members)).sum::<u64>();
    let (admitted, joined, removed) = (members(|m| m.admitted), members(|m| m.joined), members(|m| m.removed));
    // All other admitted nodes are removed before they join; otherwise the run does not come to rest.
    assert!(joined >= 500 && joined * 10 >= admitted * 9, "{admitted} nodes are admitted, {joined} join");
    let wiped = members(|m| m.wiped);
    assert!(wiped >= 200, "{wiped} machines lose their disk");
    let (broken, told) = (members(|m| m.broken), members(|m| m.told));
    assert!(removed >= 500 && broken >= 100 && told >= 200, "{removed} removed, {broken} broken, {told} know it");
    let late = members(|m| m.late_reads);
    assert!(late >= 200, "{late} fresh reads begin at a node that was removed");
    let storages = |of: fn(&StoragesReport) -> u64| reports.iter().map(|report| of(&report.storages)).sum::<u64>();
    let (records, too_late, believed) = (storages(|s| s.records), storages(|s| s.too_late), storages(|s| s.believed));
    assert!(records >= 20 * reports.len() as u64, "storages take {records} records");
    assert!(too_late >= 50, "{too_late} requests meet a storage that another node has moved");
    assert!(believed >= 1_000, "{believed} times a node believes what another one has told of a storage");
    let wasm = reports.iter().filter(|report| report.has_wasm).count();
    let fallbacks = reports.iter().map(|report| report.fallbacks).sum::<u64>();
    assert!(
        wasm * 10 == reports.len() && fallbacks >= 100,
        "{wasm} runs have components, which fail {fallbacks} times"
    );
    histories_are_varied(&reports);
    majorities_are_lost(&reports);
    let upgrades = reports.iter().map(|report| report.upgrades).filter(|upgrades| upgrades.0 > 0).collect::<Vec<_>>();
    let in_second = upgrades.iter().map(|upgrades| upgrades.1).sum::<u64>();
    assert!(upgrades.len() * 4 == reports.len(), "{} clusters are upgraded", upgrades.len());
    assert!(in_second >= 10 * upgrades.len() as u64, "{in_second} epochs are decided in the second generation");
    let repeats = reports.iter().map(|report| report.repeats).sum::<u64>();
    assert!(repeats >= 100, "{repeats} changes of configuration were agreed on twice");
}

/// One node continues alone in every seventh cluster, and its command is interrupted often enough to prove something.
fn majorities_are_lost(reports: &[Report]) {
    let of = |of: fn(&MajorityLossReport) -> u64| reports.iter().map(|report| of(&report.majority_loss)).sum::<u64>();
    let (lost, recovered) = (of(|m| m.lost), of(|m| m.recovered));
    assert!(lost * 8 >= reports.len() as u64 && recovered == lost, "{lost} lose their majority, {recovered} continue");
    let (interrupted, repeated, cut) = (of(|m| m.interrupted), of(|m| m.repeated), of(|m| m.power_cuts));
    assert!(interrupted >= 100 && repeated >= 100, "{interrupted} calls are interrupted, {repeated} find the mark");
    assert!(cut >= 50, "{cut} survivors lose power");
    let (in_doubt, joined) = (of(|m| m.in_doubt), of(|m| m.joined));
    assert!(in_doubt >= 200 && joined >= 2 * lost, "{in_doubt} transactions in doubt, {joined} nodes join");
}

/// Every rule of decision 109 about histories is exercised often enough to prove something.
fn histories_are_varied(reports: &[Report]) {
    let of = |of: fn(&HistoriesReport) -> u64| reports.iter().map(|report| of(&report.histories)).sum::<u64>();
    let seeds = reports.len() as u64;
    let ranges = (of(|h| h.ranges.0), of(|h| h.ranges.1));
    assert!(ranges.0 >= 10 * seeds && ranges.1 >= 10 * seeds, "transactions with ranges: {ranges:?}");
    let (old, below) = (of(|h| h.old_snapshots), of(|h| h.below_the_floor));
    assert!(old >= 30 * seeds && below >= 500, "{old} old snapshots, {below} below the floor");
    let (losers, aborted) = (of(|h| h.certain_losers), of(|h| h.aborted_ids));
    assert!(losers >= 10 * seeds && aborted >= 5 * seeds, "{losers} certain losers, {aborted} aborted ids");
    let in_turns = reports.iter().filter(|report| report.backlogs >= 50).count() as u64;
    assert!(in_turns * 6 >= seeds, "in {in_turns} runs, transactions wait for a later batch");
    let (read, judged) = ((of(|h| h.read_only.0), of(|h| h.read_only.1)), of(|h| h.judged));
    assert!(read.0 >= 50 * seeds && read.1 >= 15 * seeds, "transactions that only read and hold, or do not: {read:?}");
    assert!(
        judged >= 50 * seeds && judged < read.0 + read.1,
        "{judged} of them by nodes that have decided as much as any"
    );
    let (tried, statuses) = (of(|h| h.dry_runs), of(|h| h.statuses));
    assert!(
        tried >= 10 * seeds && statuses >= 50 * seeds,
        "{tried} transactions are tried, {statuses} verdicts asked for"
    );
}

#[test]
fn a_seed_plays_the_same_run_twice() {
    for seed in 1..=20 {
        let (first, second) = (play(run(seed)), play(run(seed)));
        let digest =
            |played: Result<(Report, _), (String, _)>| played.map(|(report, _)| report).map_err(|(wrong, _)| wrong);
        assert_eq!(digest(first), digest(second));
    }
}

/// Time without a leader after which the other nodes start an election, in microseconds.
const ELECTION_US: u64 = 10 * TICK_US;

/// Plays seeds with one kind of fault. Returns the number of processes stopped as planned, the number of runs in which
/// an attempt waited for the duration of an election, and the number in which an attempt got no reply at all from a
/// running process.
fn with_only(fault: Fault) -> (u64, usize, usize) {
    let played =
        (1..=60).map(|seed| play(Run { faults: Faults::Only(fault), ..run(seed) }).map_err(|(wrong, _)| wrong));
    let reports: Vec<_> = played.map(|report| report.expect("a run with one kind of fault").0).collect();
    let slow = reports.iter().filter(|report| report.latency_us_max >= ELECTION_US).count();
    let unanswered = reports.iter().filter(|report| report.unanswered > 0).count();
    println!(
        "{fault:?}: {:?}",
        reports.iter().map(|report| (report.latency_us_max, report.unanswered)).collect::<Vec<_>>()
    );
    (reports.iter().map(|report| report.stops.0).sum(), slow, unanswered)
}

#[test]
fn nobody_waits_for_an_election_when_a_node_stops_as_planned() {
    let (stops, slow, unanswered) = with_only(Fault::PlannedStop);
    assert!(stops >= 60, "{stops} stops");
    assert_eq!((slow, unanswered), (0, 0));
    let (_, slow, _) = with_only(Fault::Kill);
    assert!(slow >= 30, "a process that is killed is missed for no longer than one that stops");
}

#[test]
fn nobody_waits_for_an_election_when_nodes_come_and_go() {
    for fault in [Fault::AddNode, Fault::RemoveNode] {
        let (_, slow, unanswered) = with_only(fault);
        assert_eq!((slow, unanswered), (0, 0), "{fault:?}");
    }
}

#[test]
fn a_node_that_cannot_reach_a_leader_decides_and_takes_nothing_over() {
    let play_bridge = |seed| play(Run { faults: Faults::Only(Fault::Bridge), ..run(seed) }).map_err(|(wrong, _)| wrong);
    let reports: Vec<_> = (1..=60).map(|seed| play_bridge(seed).expect("a run with bridges").0).collect();
    let bridges = reports.iter().flat_map(|report| report.faults.values()).sum::<u64>();
    let entries = reports.iter().map(|report| report.peer_entries).sum::<u64>();
    assert!(bridges >= 60 && entries >= 20 * bridges, "{entries} entries of peers in {bridges} bridges");
    assert_eq!(reports.iter().map(|report| report.bridged_terms).sum::<u64>(), 0, "terms began");
    assert_eq!(reports.iter().map(|report| report.unanswered).sum::<u64>(), 0, "attempts without an answer");
    // The nodes take a third of a second to notice that they cannot reach each other.
    let slowest = reports.iter().map(|report| report.latency_us_max).max();
    assert!(slowest < Some(2 * ELECTION_US), "{slowest:?} us");
}

/// Returns the first seed with which a bug is detected.
fn noticed(planted: Planted) -> Option<u64> {
    (1..=200).find(|&seed| play(Run { planted: Some(planted), ..run(seed) }).is_err())
}

#[test]
fn votes_from_the_mark_are_noticed() {
    assert!(noticed(Planted::VoteFromTheMark).is_some());
}

#[test]
fn a_copy_of_the_state_that_forgets_votes_is_noticed() {
    assert!(noticed(Planted::CopyForgetsVotes).is_some());
}

#[test]
fn two_pushers_that_move_one_watermark_are_noticed() {
    assert!(noticed(Planted::TwoPushers).is_some());
}

#[test]
fn partitions_that_follow_a_machines_cores_are_noticed() {
    assert!(noticed(Planted::OwnPartitions).is_some());
}

#[test]
fn a_node_that_switches_generations_by_itself_is_noticed() {
    assert!(noticed(Planted::SwitchesAlone).is_some());
}

#[test]
fn reads_that_nobody_judges_are_noticed() {
    assert!(noticed(Planted::ReadsUnjudged).is_some());
}

#[test]
fn acknowledging_before_the_sync_is_noticed() {
    assert!(noticed(Planted::AckBeforeSync).is_some());
}

#[test]
fn a_log_that_is_never_synced_is_noticed() {
    assert!(noticed(Planted::NoSync).is_some());
}
