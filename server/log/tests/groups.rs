//! Logs of Raft groups within the one log.

mod fixture;

use std::fs;

use fixture::{Dir, batch, outcome};
use tribunal_core::row_key::RowKeyer;
use tribunal_log::sim::{SimFiles, Survival};
use tribunal_log::{DurableLog, EntryId, GroupState, LogError, LogOptions, LogReader, Opened, open_on};
use tribunal_types::{Batch, Csn, Epoch, GroupId, Incarnation, NodeId, StateImage};

fn group(node: u16) -> GroupId {
    GroupId { node: NodeId(node), incarnation: Incarnation(1) }
}

fn append(opened: &mut Opened, node: u16, term: u64, index: u64) {
    let payload = format!("{node}/{term}/{index}");
    opened.writer.append_group_entry(group(node), EntryId { term, index }, payload.as_bytes()).unwrap();
}

fn entries(reader: &LogReader, node: u16) -> Vec<String> {
    let (before, last) = reader.group_bounds(group(node));
    let entry = |index| reader.group_entry(group(node), index).unwrap().expect("an entry within the bounds");
    (before.index + 1..=last.index).map(|index| String::from_utf8(entry(index)).unwrap()).collect()
}

fn state(term: u64, vote: u64, commit: u64) -> GroupState {
    GroupState { term, vote, commit, members: vec![1, 2, 3], ..GroupState::default() }
}

#[test]
fn one_sync_makes_entries_and_states_of_all_groups_durable() {
    let dir = Dir::new("groups");
    let mut opened = dir.open().unwrap();
    let keyer = RowKeyer::new(opened.recovered.row_secret);
    for round in 1..=40 {
        opened.writer.append(&batch(opened.recovered.group, &keyer, round)).unwrap();
        for node in 1..=5 {
            append(&mut opened, node, 1, round);
            opened.writer.set_group_state(group(node), &state(1, 2, round - 1)).unwrap();
        }
        let before = opened.writer.stats().fdatasyncs;
        opened.writer.sync().unwrap();
        assert_eq!(opened.writer.stats().fdatasyncs - before, 1, "round {round}");
    }
    // A new leader of group 3 has other entries from 40 on.
    append(&mut opened, 3, 2, 40);
    append(&mut opened, 3, 2, 41);
    opened.writer.set_group_state(group(3), &state(2, 0, 40)).unwrap();
    opened.writer.sync().unwrap();
    let expect = |reader: &LogReader| {
        assert_eq!(reader.groups(), (1..=5).map(group).collect::<Vec<_>>());
        assert_eq!(entries(reader, 1), (1..=40).map(|index| format!("1/1/{index}")).collect::<Vec<_>>());
        assert_eq!(entries(reader, 3)[38..], ["3/1/39", "3/2/40", "3/2/41"]);
        assert_eq!((reader.group_state(group(1)), reader.group_state(group(3))), (state(1, 2, 39), state(2, 0, 40)));
        assert_eq!([39, 40, 41, 42].map(|index| reader.group_term(group(3), index)), [Some(1), Some(2), Some(2), None]);
        assert_eq!(reader.batches_from(Epoch(1)).count(), 40, "the node's own entries are between them");
    };
    expect(&opened.reader);
    drop(opened);
    expect(&dir.open().unwrap().reader);
}

#[test]
fn promises_are_kept_by_the_log_itself() {
    let dir = Dir::new("groups-promises");
    let mut opened = dir.open().unwrap();
    append(&mut opened, 1, 1, 1);
    append(&mut opened, 1, 1, 2);
    opened.writer.set_group_state(group(1), &state(3, 2, 1)).unwrap();
    drop(opened);
    // After a restart as well.
    let mut opened = dir.open().unwrap();
    for broken in [state(3, 1, 1), state(3, 0, 1), state(2, 2, 1), state(3, 2, 0), state(3, 2, 3)] {
        let refused = opened.writer.set_group_state(group(1), &broken);
        assert!(matches!(refused, Err(LogError::OutOfOrder { .. })), "{broken:?}: {refused:?}");
    }
    for (term, index) in [(3, 1), (3, 4), (0, 3), (3, 0)] {
        let refused = opened.writer.append_group_entry(group(1), EntryId { term, index }, b"");
        assert!(matches!(refused, Err(LogError::OutOfOrder { .. })), "entry {index} of term {term}: {refused:?}");
    }
    append(&mut opened, 1, 3, 2);
    assert_eq!(entries(&opened.reader, 1), ["1/1/1", "1/3/2"]);
}

#[test]
fn records_that_the_mark_counts_are_missed() {
    let dir = Dir::new("groups-mark");
    let mut opened = dir.open().unwrap();
    append(&mut opened, 1, 1, 1);
    opened.writer.sync().unwrap();
    opened.writer.idle_mark().unwrap();
    let before = dir.copy("groups-mark-before");
    opened.writer.set_group_state(group(1), &state(1, 2, 0)).unwrap();
    opened.writer.sync().unwrap();
    opened.writer.idle_mark().unwrap();
    drop(opened);
    fs::copy(dir.0.join("mark"), before.0.join("mark")).unwrap();
    let refused = before.open().err().expect("a vote is missing");
    assert!(matches!(&refused, LogError::Damaged { reason, .. } if reason.contains("group records")), "{refused}");
}

#[test]
fn a_member_is_not_salvaged() {
    let dir = Dir::new("groups-salvage");
    let mut opened = dir.open().unwrap();
    append(&mut opened, 1, 1, 1);
    opened.writer.sync().unwrap();
    drop(opened);
    let refused = tribunal_log::salvage(&dir.0).expect_err("it has voted");
    assert!(refused.to_string().contains("Remove the member from the cluster"), "{refused}");
    assert_eq!(entries(&dir.open().unwrap().reader, 1), ["1/1/1"], "it is as it was");
}

/// Appends an own entry of some size, and its outcome.
fn fill(opened: &mut Opened, keyer: &RowKeyer, heads: &mut [u64; 3]) {
    let first = opened.writer.next();
    let (group, clock_ms) = (opened.recovered.group, 1_800_000_000_000 + first.0);
    let mut own = Batch { group, first, last: Epoch(first.0 + 99), clock_ms, ..Batch::default() };
    own.push(&fixture::request(keyer, first.0, 2, 10_000), Csn::new(clock_ms * 1000, NodeId(1)));
    opened.writer.append(&own).unwrap();
    opened.writer.append_outcome(&outcome(&own, heads)).unwrap();
}

#[test]
fn a_truncation_retains_states_and_what_is_not_compacted() {
    let disk = SimFiles::new(5);
    let path = std::path::Path::new("/log");
    let options = LogOptions { retention_ms: 0, ..LogOptions::default() };
    let mut opened = open_on(&disk.as_files(), path, &options).unwrap();
    let (keyer, mut heads) = (RowKeyer::new(opened.recovered.row_secret), [0; 3]);
    // Group 1 has a state only, group 2 entries that are compacted later, group 3 another one at the end.
    opened.writer.set_group_state(group(1), &state(8, 3, 0)).unwrap();
    append(&mut opened, 2, 1, 1);
    append(&mut opened, 2, 1, 2);
    opened.writer.set_group_state(group(2), &state(4, 1, 2)).unwrap();
    for _ in 0..60 {
        fill(&mut opened, &keyer, &mut heads);
    }
    append(&mut opened, 3, 1, 1);
    let truncate = |opened: &mut Opened| {
        let epoch = Epoch(opened.writer.next().0 - 1);
        for epoch in [Epoch(epoch.0 - 100), epoch] {
            opened.writer.write_image(&StateImage { epoch, ..StateImage::default() }).unwrap();
        }
        opened.writer.truncate(epoch).unwrap();
        opened.reader.batches_from(Epoch(1)).next().unwrap().unwrap().first
    };
    assert_eq!(truncate(&mut opened), Epoch(1), "group 2 needs its first entry");
    let compacted = GroupState { compacted: EntryId { term: 1, index: 2 }, ..state(4, 1, 2) };
    opened.writer.set_group_state(group(2), &compacted).unwrap();
    assert!(truncate(&mut opened) > Epoch(1000));
    opened.writer.sync().unwrap();
    drop(opened);
    disk.cut_power();
    disk.power_on(Survival::None);
    let opened = open_on(&disk.as_files(), path, &options).unwrap();
    assert_eq!(opened.reader.group_state(group(1)), state(8, 3, 0), "its record was in the first segment");
    assert_eq!(opened.reader.group_state(group(2)), compacted);
    assert_eq!(opened.reader.group_bounds(group(2)), (compacted.compacted, compacted.compacted));
    assert_eq!(entries(&opened.reader, 3), ["3/1/1"]);
}
