//! Logs of Raft groups within the single log.

mod fixture;

use std::fs;

use fixture::{Dir, Random, batch, outcome};
use tribunal_core::row_key::RowKeyer;
use tribunal_log::sim::{SimFiles, Survival};
use tribunal_log::{
    DurableLog, EntryId, GroupCursor, GroupCursors, GroupState, LogError, LogOptions, LogReader, Opened, open_on,
};
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
    let refused = |dir: &Dir, why: &str| {
        let refused = tribunal_log::salvage(&dir.0).expect_err(why).to_string();
        for part in ["a member of a cluster, which has voted", "continues without it", "Keep the directory"] {
            assert!(refused.contains(part), "{why}: {refused}");
        }
    };
    refused(&dir, "it has voted");
    assert_eq!(entries(&dir.open().unwrap().reader, 1), ["1/1/1"], "it is as it was");
    // No record of a group is readable, but the mark shows that there were some.
    let wiped = dir.copy("groups-salvage-wiped");
    for segment in fs::read_dir(wiped.0.join("segments")).unwrap() {
        let path = segment.unwrap().path();
        let len = fs::metadata(&path).unwrap().len() as usize;
        fs::write(path, vec![0; len]).unwrap();
    }
    refused(&wiped, "it had voted");
    // The mark is not readable either.
    let mark = wiped.0.join("mark");
    fs::write(&mark, [0; 8192]).unwrap();
    assert!(tribunal_log::salvage(&wiped.0).is_ok(), "nothing tells that it was a member");
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
    // Group 1 has only a state, group 2 entries that are compacted later, group 3 another entry at the end.
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

#[test]
fn a_range_of_entries_is_what_single_reads_return() {
    let disk = SimFiles::new(6);
    let path = std::path::Path::new("/log");
    let mut opened = open_on(&disk.as_files(), path, &LogOptions::default()).unwrap();
    let mut random = Random(6);
    // Entries of some groups interleaved with those of the others, large entries, and replaced suffixes.
    for round in 0..700_u64 {
        let node = 1 + random.below(3) as u16;
        let (_, last) = opened.reader.group_bounds(group(node));
        let back = if random.below(9) == 0 { random.below(last.index.min(9) + 1) } else { 0 };
        let most = if round % 90 == 0 { 250_000 } else { 400 };
        let id = EntryId { term: 1 + round / 10, index: last.index + 1 - back };
        let bytes = random.below(most) as usize;
        let payload = random.bytes(bytes);
        opened.writer.append_group_entry(group(node), id, &payload).unwrap();
    }
    for again in [false, true] {
        if again {
            opened.writer.sync().unwrap();
            drop(opened);
            opened = open_on(&disk.as_files(), path, &LogOptions::default()).unwrap();
        }
        let reader = &opened.reader;
        for node in 1..=3 {
            let (_, last) = reader.group_bounds(group(node));
            assert!(last.index > 20, "group {node} has {last:?}");
            let single: Vec<_> = (1..=last.index)
                .map(|index| (reader.group_term(group(node), index), reader.group_entry(group(node), index).unwrap()))
                .collect();
            for (from, to, bytes_max) in
                [(1, last.index + 1, usize::MAX), (1, 3, usize::MAX), (7, last.index + 9, 3_000), (9, 12, 0)]
            {
                let found = reader.group_entries(group(node), from..to, bytes_max).unwrap();
                let mut bytes = 0;
                let expected = (from..to.min(last.index + 1)).map(|index| (index, &single[index as usize - 1]));
                let expected: Vec<_> = expected
                    .take_while(|(index, (_, payload))| {
                        bytes += payload.as_ref().unwrap().len();
                        bytes <= bytes_max || *index == from
                    })
                    .collect();
                let found: Vec<_> = found
                    .into_iter()
                    .map(|entry| (entry.id.index, (Some(entry.id.term), Some(entry.payload))))
                    .collect();
                assert_eq!(found.iter().map(|(index, entry)| (*index, entry)).collect::<Vec<_>>(), expected);
                assert!(!found.is_empty());
            }
            for (from, to) in [(0, 5), (last.index + 1, last.index + 5), (3, 3), (5, 2), (u64::MAX, u64::MAX)] {
                assert_eq!(reader.group_entries(group(node), from..to, 1000).unwrap(), [], "{from}..{to}");
            }
        }
        assert_eq!(reader.group_entries(group(9), 1..5, 1000).unwrap(), []);
    }
}

/// A log that contains records of groups and nothing else.
#[test]
fn a_log_full_of_entries_of_groups_is_bounded() {
    let disk = SimFiles::new(8);
    let path = std::path::Path::new("/log");
    let options = LogOptions { retention_bytes: 300_000, ..LogOptions::default() };
    let mut opened = open_on(&disk.as_files(), path, &options).unwrap();
    opened.writer.write_image(&StateImage { epoch: Epoch(1), ..StateImage::default() }).unwrap();
    // Groups 4 and 5 have nothing but a vote and an end.
    opened.writer.set_group_state(group(4), &state(8, 3, 0)).unwrap();
    opened.writer.forget_group(group(5)).unwrap();
    let (mut most, mut first_of_3) = (0, 0);
    for index in 1..=3_000 {
        for node in 1..=3 {
            let id = EntryId { term: 1, index };
            opened.writer.append_group_entry(group(node), id, &[node as u8; 1000]).unwrap();
            // Group 3 is compacted late.
            let compacted = if node == 3 { index / 1000 * 1000 } else { index.saturating_sub(20) };
            let compacted = EntryId { term: u64::from(compacted > 0), index: compacted };
            let state = GroupState { compacted, ..state(1, 2, index) };
            opened.writer.set_group_state(group(node), &state).unwrap();
        }
        opened.writer.sync().unwrap();
        if index % 10 == 0 {
            opened.writer.truncate(Epoch(u64::MAX)).unwrap();
            most = most.max(opened.reader.bytes());
            first_of_3 = opened.reader.group_bounds(group(3)).0.index + 1;
            let kept = opened.reader.group_entries(group(3), first_of_3..index + 1, usize::MAX).unwrap();
            assert_eq!(kept.len() as u64, index + 1 - first_of_3, "what is not compacted is kept");
        }
    }
    assert_eq!(first_of_3, 3_001);
    assert!(
        most < 8_000_000,
        "{most} bytes: three groups, each a thousand entries of 1 KB apart, and what is retained"
    );
    opened.writer.truncate(Epoch(u64::MAX)).unwrap();
    let left = opened.reader.bytes();
    assert!(left < 1_000_000, "{left} bytes are left, of 9 MB");
    disk.cut_power();
    drop(opened);
    disk.power_on(Survival::None);
    let opened = open_on(&disk.as_files(), path, &options).unwrap();
    assert_eq!(opened.reader.group_state(group(4)), state(8, 3, 0));
    assert_eq!((opened.reader.groups().len(), opened.reader.ended_groups()), (4, vec![group(5)]));
    assert_eq!(opened.reader.group_entries(group(1), 2_981..4_000, usize::MAX).unwrap().len(), 20);
}

/// Entries of groups fill the log, with few of the node's own between them.
#[test]
fn bytes_of_groups_count_towards_the_retention_of_the_nodes_own_entries() {
    let disk = SimFiles::new(9);
    let path = std::path::Path::new("/log");
    let options = LogOptions { retention_bytes: 3_000_000, ..LogOptions::default() };
    let mut opened = open_on(&disk.as_files(), path, &options).unwrap();
    let (keyer, mut heads) = (RowKeyer::new(opened.recovered.row_secret), [0; 3]);
    for index in 1..=200 {
        let own = batch(opened.recovered.group, &keyer, index);
        opened.writer.append(&own).unwrap();
        opened.writer.append_outcome(&outcome(&own, &mut heads)).unwrap();
        opened.writer.append_group_entry(group(2), EntryId { term: 1, index }, &[7; 40_000]).unwrap();
        let compacted = EntryId { term: 1, index };
        opened.writer.set_group_state(group(2), &GroupState { compacted, ..state(1, 0, index) }).unwrap();
    }
    for epoch in [Epoch(199), Epoch(200)] {
        opened.writer.write_image(&StateImage { epoch, ..StateImage::default() }).unwrap();
    }
    let expect = |opened: &Opened| {
        let first = opened.reader.batches_from(Epoch(1)).next().unwrap().unwrap().first.0;
        assert!((60..=130).contains(&first), "{first} is the first epoch that is kept");
    };
    let whole = disk.copy(1);
    opened.writer.truncate(Epoch(200)).unwrap();
    expect(&opened);
    // Recovered entries count like written ones.
    let mut again = open_on(&whole.as_files(), path, &options).unwrap();
    again.writer.truncate(Epoch(200)).unwrap();
    expect(&again);
}

#[test]
fn a_group_that_has_ended_is_forgotten_but_for_its_name() {
    let dir = Dir::new("groups-ended");
    let mut opened = dir.open().unwrap();
    append(&mut opened, 1, 1, 1);
    append(&mut opened, 1, 1, 2);
    opened.writer.set_group_state(group(1), &GroupState { term: 4, ..state(4, 2, 2) }).unwrap();
    let refused = opened.writer.forget_group(group(1)).expect_err("entries are needed");
    assert!(refused.to_string().contains("entries 1..=2 are not compacted"), "{refused}");
    let compacted = EntryId { term: 1, index: 2 };
    opened.writer.set_group_state(group(1), &GroupState { compacted, ..state(4, 2, 2) }).unwrap();
    opened.writer.forget_group(group(1)).unwrap();
    opened.writer.forget_group(group(1)).unwrap();
    // Of this group, only the end has become known.
    opened.writer.forget_group(group(2)).unwrap();
    for again in [false, true] {
        if again {
            drop(opened);
            opened = dir.open().unwrap();
        }
        assert_eq!((opened.reader.groups(), opened.reader.ended_groups()), (vec![], vec![group(1), group(2)]));
        assert!(opened.reader.has_group_ended(group(1)) && !opened.reader.has_group_ended(group(3)));
        for node in [1, 2] {
            let entry = opened.writer.append_group_entry(group(node), EntryId { term: 9, index: 1 }, b"late");
            let promise = opened.writer.set_group_state(group(node), &state(1, 3, 0));
            for refused in [entry, promise] {
                assert!(refused.is_err_and(|error| error.to_string().contains("the group has ended")), "{node}");
            }
        }
    }
    append(&mut opened, 3, 1, 1);
}

#[test]
fn a_state_image_must_include_what_is_compacted() {
    let dir = Dir::new("groups-cursors");
    let mut opened = dir.open().unwrap();
    for index in 1..=5 {
        append(&mut opened, 1, 1 + index / 4, index);
    }
    let compacted = EntryId { term: 1, index: 3 };
    opened.writer.set_group_state(group(1), &GroupState { compacted, ..state(2, 0, 4) }).unwrap();
    append(&mut opened, 2, 1, 1);
    let check = |term, index| {
        let cursor = GroupCursor { included: EntryId { term, index }, members: vec![1], ..GroupCursor::default() };
        opened.reader.check_cursors(&GroupCursors::from([(group(1), cursor)]))
    };
    check(1, 3).unwrap();
    check(2, 4).unwrap();
    check(2, 5).unwrap();
    // A peer has sent an entry other than this one, which is not committed.
    check(7, 5).unwrap();
    // The image was received, but the log does not know it yet.
    check(7, 90).unwrap();
    for (refused, expected) in [
        (check(1, 2), "up to 3 are compacted, but the state image includes 2 only"),
        (opened.reader.check_cursors(&GroupCursors::new()), "includes 0 only"),
        (check(2, 3), "entry 3 has term 1, in the state image term 2"),
        (check(1, 4), "entry 4 has term 2"),
    ] {
        assert!(refused.as_ref().is_err_and(|error| error.to_string().contains(expected)), "{expected}: {refused:?}");
    }
}
