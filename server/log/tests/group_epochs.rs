//! Epochs of a log with Raft groups: readers find each epoch's input and outcome, before and after a restart.

mod fixture;

use fixture::{Dir, options};
use tribunal_codec::{EntryId, GroupState, PROPOSED, encode_batch};
use tribunal_log::sim::{SimFiles, Survival};
use tribunal_log::{
    ClusterIdentity, DiskLog, DurableLog, Located, LogError, LogOptions, Opened, PointInLog, add_image, open_on,
};
use tribunal_types::{
    Batch, Digest, Epoch, EpochInput, EpochOutcome, FenceItem, GroupId, Incarnation, LogId, Lsn, NamespaceId, NodeId,
    StateImage, StoreId, StoreLsn, TxnId, TxnIx,
};

const GROUPS: [GroupId; 2] = [group(1), group(2)];

const fn group(node: u16) -> GroupId {
    GroupId { node: NodeId(node), incarnation: Incarnation(1) }
}

/// Returns a batch with an item, so that it is part of its epoch's input.
fn batch(group: GroupId, epoch: u64) -> Batch {
    let fences = vec![FenceItem { namespace: NamespaceId(1), id: TxnId([epoch as u8; 16]) }];
    let (first, last) = (Epoch(epoch), Epoch(epoch));
    Batch { group, first, last, stamp_us: epoch, fences, ..Batch::default() }
}

fn append(log: &mut DiskLog, group: GroupId, index: u64, batch: Option<&Batch>) {
    try_append(log, group, index, batch).unwrap();
}

fn try_append(log: &mut DiskLog, group: GroupId, index: u64, batch: Option<&Batch>) -> Result<(), LogError> {
    let mut content = Vec::new();
    if let Some(batch) = batch {
        encode_batch(batch, &mut content);
        content.push(PROPOSED);
    }
    log.append_group_entry(group, EntryId { term: 1, index }, &content)
}

fn outcome(epoch: u64) -> EpochOutcome {
    let digest = Digest(epoch);
    EpochOutcome { epoch: Epoch(epoch), epoch_time_ms: epoch * 10, digest, ..EpochOutcome::default() }
}

/// Writes an empty entry for each group, then epochs 1 to 3: of both groups, of the second, of the first.
fn fill(opened: &mut Opened) {
    let log = &mut opened.writer;
    GROUPS.iter().for_each(|group| append(log, *group, 1, None));
    append(log, GROUPS[0], 2, Some(&batch(GROUPS[0], 1)));
    append(log, GROUPS[1], 2, Some(&batch(GROUPS[1], 1)));
    append(log, GROUPS[1], 3, Some(&batch(GROUPS[1], 2)));
    log.append_epoch(&outcome(1), &[(GROUPS[0], 2), (GROUPS[1], 2)]).unwrap();
    append(log, GROUPS[0], 3, Some(&batch(GROUPS[0], 3)));
    log.append_epoch(&outcome(2), &[(GROUPS[1], 3)]).unwrap();
    log.append_epoch(&outcome(3), &[(GROUPS[0], 3)]).unwrap();
    log.sync().unwrap();
}

/// The input of an epoch (the groups and their fences), its time, and its outcome.
type Read = (Vec<(GroupId, Vec<FenceItem>)>, u64, EpochOutcome);

fn read(opened: &Opened, epoch: u64) -> Option<Read> {
    let epoch = opened.reader.epoch(Epoch(epoch)).unwrap()?;
    Some(seen(&epoch.0, &epoch.1))
}

fn seen(input: &EpochInput, outcome: &EpochOutcome) -> Read {
    let batches = input.batches.iter().map(|batch| (batch.group, batch.fences.clone())).collect();
    (batches, input.epoch_time_ms, outcome.clone())
}

/// Returns everything that one pass reads from an epoch on.
fn passed(opened: &Opened, from: u64) -> Vec<Read> {
    let mut pass = opened.reader.pass_over(StoreId(1), Epoch(from));
    std::iter::from_fn(|| pass.read().unwrap()).map(|(input, outcome)| seen(&input, &outcome)).collect()
}

fn expected(epoch: u64, groups: &[GroupId]) -> Option<Read> {
    let batches = groups.iter().map(|group| (*group, batch(*group, epoch).fences)).collect();
    Some((batches, epoch * 10, outcome(epoch)))
}

#[test]
fn an_epoch_is_read_with_the_entries_that_it_was_decided_from() {
    let dir = Dir::new("group-epochs");
    let mut opened = dir.open().unwrap();
    fill(&mut opened);
    for again in [false, true] {
        let read = |epoch| read(&opened, epoch);
        assert_eq!(read(1), expected(1, &GROUPS), "again: {again}");
        assert_eq!(read(2), expected(2, &GROUPS[1..]));
        assert_eq!(read(3), expected(3, &GROUPS[..1]));
        assert_eq!(read(4), None);
        assert!(opened.writer.has_outcome(Epoch(3)) && !opened.writer.has_outcome(Epoch(4)));
        drop(opened);
        opened = dir.open().unwrap();
    }
}

#[test]
fn an_epoch_stays_readable_when_its_entries_are_compacted() {
    let dir = Dir::new("group-epochs-compacted");
    let mut opened = dir.open().unwrap();
    fill(&mut opened);
    for group in GROUPS {
        let compacted = EntryId { term: 1, index: 3 };
        let state = GroupState { term: 1, commit: 3, compacted, ..GroupState::default() };
        opened.writer.set_group_state(group, &state).unwrap();
    }
    opened.writer.sync().unwrap();
    drop(opened);
    let opened = dir.open().unwrap();
    assert_eq!(read(&opened, 1), expected(1, &GROUPS));
}

#[test]
fn an_outcome_comes_once_and_after_its_entries() {
    let dir = Dir::new("group-epochs-order");
    let mut opened = dir.open().unwrap();
    fill(&mut opened);
    let refused = |opened: &mut Opened, epoch, entries: &[(GroupId, u64)]| match opened
        .writer
        .append_epoch(&outcome(epoch), entries)
    {
        Err(LogError::OutOfOrder { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&mut opened, 3, &[(GROUPS[0], 3)]), "epoch 3 or a later one has one");
    assert_eq!(refused(&mut opened, 4, &[(GROUPS[0], 4)]), "an entry of epoch 4 is not there");
    assert_eq!(refused(&mut opened, 4, &[(group(9), 1)]), "an entry of epoch 4 is not there");
}

#[test]
fn an_epoch_is_decided_from_an_entry_of_a_peer_before_the_own_log_has_it() {
    let dir = Dir::new("group-epochs-copied");
    let mut opened = dir.open().unwrap();
    fill(&mut opened);
    let log = &mut opened.writer;
    let content = |epoch, stamp_us| {
        let mut content = Vec::new();
        encode_batch(&Batch { stamp_us, ..batch(GROUPS[0], epoch) }, &mut content);
        content.push(PROPOSED);
        content
    };
    let id = |term, index| EntryId { term, index };
    // Here a leader of term 1 wrote another entry at this index, which no other node has.
    log.append_group_entry(GROUPS[0], id(1, 4), &content(9, 1)).unwrap();
    log.append_group_copy(GROUPS[0], id(2, 4), &content(4, 2)).unwrap();
    log.append_group_copy(GROUPS[0], id(2, 5), &content(5, 3)).unwrap();
    append(log, GROUPS[1], 4, Some(&batch(GROUPS[1], 4)));
    let bounds = opened.reader.group_bounds(GROUPS[0]);
    assert_eq!(bounds.1, id(1, 4), "the group's log is what it was");
    log.append_epoch(&outcome(4), &[(GROUPS[0], 4), (GROUPS[1], 4)]).unwrap();
    log.append_epoch(&outcome(5), &[(GROUPS[0], 5)]).unwrap();
    log.sync().unwrap();
    let (four, five) = (expected(4, &GROUPS), expected(5, &GROUPS[..1]));
    for _ in 0..2 {
        assert_eq!((read(&opened, 4), read(&opened, 5)), (four.clone(), five.clone()));
        drop(opened);
        opened = dir.open().unwrap();
        assert_eq!(opened.reader.group_bounds(GROUPS[0]), bounds, "what was copied is no entry of the group");
    }
    // The leader is reachable again: its entries arrive, and the next copy is of an entry that exists here.
    let log = &mut opened.writer;
    log.append_group_entry(GROUPS[0], id(2, 4), &content(4, 2)).unwrap();
    log.append_group_entry(GROUPS[0], id(2, 5), &content(5, 3)).unwrap();
    log.append_group_copy(GROUPS[0], id(2, 6), &content(6, 4)).unwrap();
    log.append_group_entry(GROUPS[0], id(2, 6), &content(6, 4)).unwrap();
    let bytes = log.stats().appended_bytes;
    log.append_group_copy(GROUPS[0], id(2, 6), &content(6, 4)).unwrap();
    assert_eq!(log.stats().appended_bytes, bytes, "it is there");
    log.append_epoch(&outcome(6), &[(GROUPS[0], 6)]).unwrap();
    log.sync().unwrap();
    for _ in 0..2 {
        assert_eq!((read(&opened, 4), read(&opened, 5)), (four.clone(), five.clone()));
        assert_eq!(read(&opened, 6), expected(6, &GROUPS[..1]));
        drop(opened);
        opened = dir.open().unwrap();
    }
    assert_eq!(opened.reader.group_bounds(GROUPS[0]).1, id(2, 6));
}

#[test]
fn a_copy_that_no_epoch_was_decided_from_is_forgotten_at_a_start() {
    let dir = Dir::new("group-epochs-copy-forgotten");
    let mut opened = dir.open().unwrap();
    fill(&mut opened);
    let copy = |log: &mut DiskLog| {
        let mut content = Vec::new();
        encode_batch(&batch(GROUPS[0], 4), &mut content);
        content.push(PROPOSED);
        log.append_group_copy(GROUPS[0], EntryId { term: 1, index: 4 }, &content)
    };
    copy(&mut opened.writer).unwrap();
    opened.writer.sync().unwrap();
    drop(opened);
    let mut opened = dir.open().unwrap();
    let refused = opened.writer.append_epoch(&outcome(4), &[(GROUPS[0], 4)]);
    assert!(matches!(refused, Err(LogError::OutOfOrder { .. })), "{refused:?}");
    copy(&mut opened.writer).unwrap();
    opened.writer.append_epoch(&outcome(4), &[(GROUPS[0], 4)]).unwrap();
    assert_eq!(read(&opened, 4), expected(4, &GROUPS[..1]));
}

#[test]
fn a_members_log_is_that_of_its_cluster_and_its_node() {
    let dir = Dir::new("group-epochs-cluster");
    let cluster = ClusterIdentity { id: LogId([7; 16]), incarnation: Incarnation(1), row_secret: [3; 16] };
    let open = |node, cluster| {
        let options = LogOptions { node: NodeId(node), cluster: Some(cluster), ..options() };
        tribunal_log::open(&dir.0, &options)
    };
    let opened = open(2, cluster).unwrap();
    assert_eq!((opened.recovered.group, opened.recovered.id), (group(2), cluster.id));
    assert_eq!(opened.recovered.row_secret, cluster.row_secret);
    drop(opened);
    let refused = |node, cluster| match open(node, cluster) {
        Err(LogError::Io { reason }) => reason,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was opened"),
    };
    assert!(refused(3, cluster).contains("the log of node 2, and this is node 3"));
    assert!(refused(2, ClusterIdentity { id: LogId([8; 16]), ..cluster }).contains("another cluster"));
    assert!(refused(2, ClusterIdentity { row_secret: [4; 16], ..cluster }).contains("another cluster"));
    open(2, cluster).map(drop).unwrap();
}

/// Entries arrive before the epochs that they are decided in: group 2 is always ten entries ahead.
#[test]
fn a_truncated_log_has_the_epochs_that_are_kept_whole() {
    const AHEAD: u64 = 10;
    const LAST: u64 = 10_000;
    let disk = SimFiles::new(3);
    let path = std::path::Path::new("/log");
    let options = LogOptions { retention_ms: 0, kept_for_members_bytes: 0, ..LogOptions::default() };
    let mut opened = open_on(&disk.as_files(), path, &options).unwrap();
    (1..=AHEAD).for_each(|epoch| append(&mut opened.writer, GROUPS[1], epoch, Some(&batch(GROUPS[1], epoch))));
    let mut most = 0;
    for epoch in 1..=LAST {
        let (log, reader) = (&mut opened.writer, &opened.reader);
        append(log, GROUPS[1], epoch + AHEAD, Some(&batch(GROUPS[1], epoch + AHEAD)));
        append(log, GROUPS[0], epoch, Some(&batch(GROUPS[0], epoch)));
        for group in GROUPS {
            log.set_group_state(group, &GroupState { term: 1, commit: epoch, ..reader.group_state(group) }).unwrap();
        }
        log.append_epoch(&with_record(epoch, epoch), &[(GROUPS[0], epoch), (GROUPS[1], epoch)]).unwrap();
        if epoch % 250 == 0 {
            log.write_image(&StateImage { epoch: Epoch(epoch), ..StateImage::default() }).unwrap();
            let below = Epoch(epoch.saturating_sub(250));
            for (group, index) in log.spare_group_entries(below) {
                assert!(index < below.0, "entry {index} of node {} is needed by epoch {below}", group.node);
                let compacted = EntryId { term: 1, index };
                log.set_group_state(group, &GroupState { compacted, ..reader.group_state(group) }).unwrap();
            }
            log.truncate(below).unwrap();
            most = most.max(opened.reader.bytes());
        }
    }
    let written = opened.writer.stats().appended_bytes;
    assert!(most < written / 2, "{most} bytes, of {written} that were written in all");
    let expected =
        |epoch| expected(epoch, &GROUPS).map(|(batches, time, _)| (batches, time, with_record(epoch, epoch)));
    let whole = |opened: &Opened| {
        let first = (1..=LAST).find(|epoch| read(opened, *epoch).is_some()).unwrap();
        (first..=LAST).for_each(|epoch| assert_eq!(read(opened, epoch), expected(epoch), "epoch {epoch}"));
        assert_eq!(passed(opened, 1).len() as u64, LAST + 1 - first);
        for from in [first, first + 1, LAST - 100, LAST] {
            let expected = (from..=LAST).map(|epoch| expected(epoch).unwrap());
            assert!(passed(opened, from).into_iter().eq(expected), "from epoch {from}");
        }
        assert_eq!(passed(opened, LAST + 1), []);
        first
    };
    let first = whole(&opened);
    assert!((LAST / 2..=LAST - 250).contains(&first), "{first} is the first epoch that is kept");
    disk.cut_power();
    drop(opened);
    disk.power_on(Survival::None);
    let mut opened = open_on(&disk.as_files(), path, &options).unwrap();
    assert_eq!(whole(&opened), first);
    // Recovered entries are truncated like written ones.
    opened.writer.truncate(Epoch(LAST - 250)).unwrap();
    assert!(whole(&opened) >= first);
}

fn with_record(epoch: u64, lsn: u64) -> EpochOutcome {
    let lsns = vec![StoreLsn { txn: TxnIx(0), store: StoreId(1), lsn: Lsn(lsn) }];
    EpochOutcome { lsns, ..outcome(epoch) }
}

/// Positions are thinned out in memory and then looked up in the outcomes. Some entries take several chunks.
#[test]
fn a_pass_goes_on_from_any_position_up_to_what_was_there_when_it_began() {
    const LAST: u64 = 20_000;
    let disk = SimFiles::new(4);
    let path = std::path::Path::new("/log");
    let mut opened = open_on(&disk.as_files(), path, &LogOptions::default()).unwrap();
    let fences = |n: u64| if n.is_multiple_of(1_000) { 10_000 } else { 1 };
    let add = |log: &mut DiskLog, n: u64| {
        let one = batch(GROUPS[0], 3 * n);
        let fences = vec![one.fences[0]; fences(n)];
        append(log, GROUPS[0], n, Some(&Batch { fences, ..one }));
        log.append_epoch(&with_record(3 * n, n), &[(GROUPS[0], n)]).unwrap();
    };
    (1..=LAST).for_each(|n| add(&mut opened.writer, n));
    let mut late = opened.reader.pass_over(StoreId(1), Epoch(3 * LAST));
    add(&mut opened.writer, LAST + 1);
    assert_eq!(late.read().unwrap().map(|(input, _)| input.epoch), Some(Epoch(3 * LAST)));
    assert!(late.read().unwrap().is_none(), "what came later is for the next pass");
    for after in (0..LAST).step_by(997).chain([1, 63, 64, LAST]) {
        let Located::Epoch(epoch) = opened.reader.locate(StoreId(1), Lsn(after)).unwrap() else {
            panic!("LSN {after}")
        };
        assert_eq!(epoch, Epoch(3 * (after + 1)));
        let mut pass = opened.reader.pass_over(StoreId(1), epoch);
        let mut next = after + 1;
        while let Some((input, outcome)) = pass.read().unwrap() {
            assert_eq!((input.epoch, outcome), (Epoch(3 * next), with_record(3 * next, next)));
            assert_eq!(input.batches[0].fences.len(), fences(next));
            next += 1;
        }
        assert_eq!(next, LAST + 2);
    }
}

/// The epochs of a busy store between two of a quiet one are found by its positions, not read.
#[test]
fn a_pass_ends_at_a_long_stretch_of_other_stores() {
    let disk = SimFiles::new(5);
    let mut opened = open_on(&disk.as_files(), std::path::Path::new("/log"), &LogOptions::default()).unwrap();
    let quiet = [1, 40, 104, 170, 1_000];
    for epoch in 1..=1_000 {
        append(&mut opened.writer, GROUPS[0], epoch, Some(&batch(GROUPS[0], epoch)));
        let busy = StoreLsn { txn: TxnIx(0), store: StoreId(2), lsn: Lsn(epoch) };
        let own = quiet.iter().position(|at| *at == epoch);
        let own = own.map(|before| StoreLsn { store: StoreId(1), lsn: Lsn(before as u64 + 1), ..busy });
        let outcome = EpochOutcome { lsns: own.into_iter().chain([busy]).collect(), ..outcome(epoch) };
        opened.writer.append_epoch(&outcome, &[(GROUPS[0], epoch)]).unwrap();
    }
    let epochs = |from| passed(&opened, from).iter().map(|(_, _, outcome)| outcome.epoch.0).collect::<Vec<_>>();
    assert_eq!(epochs(1), [1, 40, 104], "65 epochs of others follow");
    assert_eq!(opened.reader.locate(StoreId(1), Lsn(3)).unwrap(), Located::Epoch(Epoch(170)));
    assert_eq!((epochs(170), epochs(936), epochs(937)), (vec![170], vec![], vec![1_000]));
}

/// A member that lacks entries starts from another member's image. The power is cut after each operation.
#[test]
fn a_log_that_continues_after_an_image_of_another_member_has_what_follows() {
    let path = std::path::Path::new("/log");
    let options = LogOptions { retention_ms: 0, ..LogOptions::default() };
    let open = |disk: &SimFiles| open_on(&disk.as_files(), path, &options);
    let image = StateImage { epoch: Epoch(50), ..StateImage::default() };
    let heads = [(StoreId(1), Lsn(90)), (StoreId(7), Lsn(4))];
    let mut is_done = false;
    for operations in 0.. {
        let disk = SimFiles::new(operations);
        let mut opened = open(&disk).unwrap();
        fill(&mut opened);
        opened.writer.append_epoch(&with_record(4, 1), &[]).unwrap();
        opened.writer.sync().unwrap();
        drop(opened);
        disk.cut_power_after(operations);
        let attempt = || -> Result<(), LogError> {
            add_image(&disk.as_files(), path, &image)?;
            let mut opened = open(&disk)?;
            assert!(opened.writer.continue_after(Epoch(50), &heads)?);
            try_append(&mut opened.writer, GROUPS[0], 4, Some(&batch(GROUPS[0], 51)))?;
            opened.writer.append_epoch(&with_record(51, 91), &[(GROUPS[0], 4)])?;
            opened.writer.sync()
        };
        is_done = attempt().is_ok();
        disk.cut_power();
        disk.power_on(Survival::None);
        let mut opened = open(&disk).unwrap();
        // Promises made to the groups survive in any case.
        assert!(GROUPS.iter().all(|group| opened.reader.group_bounds(*group).1.index >= 3));
        if opened.recovered.image.is_none() {
            assert_eq!(opened.reader.head(StoreId(1)), Lsn(1));
            continue;
        }
        let again = opened.writer.continue_after(Epoch(50), &heads).unwrap();
        assert!(!(is_done && again), "it is noted durably");
        assert!(!opened.writer.continue_after(Epoch(50), &heads).unwrap(), "there is no gap any more");
        let (reader, head) = (&opened.reader, Lsn(if is_done { 91 } else { 90 }));
        assert_eq!((reader.head(StoreId(1)), reader.oldest(StoreId(1))), (head, Lsn(91)));
        assert_eq!((reader.head(StoreId(7)), reader.oldest(StoreId(7))), (Lsn(4), Lsn(5)));
        assert_eq!(reader.locate(StoreId(1), Lsn(0)).unwrap(), Located::Truncated { oldest: Lsn(91) });
        assert_eq!(reader.point(StoreId(1), Lsn(90)).unwrap(), PointInLog::Unknown);
        if is_done {
            assert_eq!(reader.locate(StoreId(1), Lsn(90)).unwrap(), Located::Epoch(Epoch(51)));
            assert!(reader.epoch(Epoch(51)).unwrap().is_some());
            break;
        }
    }
    assert!(is_done);
}

#[test]
fn an_image_that_does_not_follow_the_log_is_refused() {
    let disk = SimFiles::new(1);
    let path = std::path::Path::new("/log");
    let open = || open_on(&disk.as_files(), path, &LogOptions::default());
    let mut opened = open().unwrap();
    fill(&mut opened);
    opened.writer.append_epoch(&with_record(9, 3), &[]).unwrap();
    let refused = opened.writer.continue_after(Epoch(8), &[(StoreId(2), Lsn(1))]).unwrap_err().to_string();
    assert!(refused.contains("epoch 8") && refused.contains("up to epoch 9"), "{refused}");
    opened.writer.sync().unwrap();
    opened.writer.write_image(&StateImage { epoch: Epoch(9), ..StateImage::default() }).unwrap();
    opened.writer.write_image(&StateImage { epoch: Epoch(20), ..StateImage::default() }).unwrap();
    assert!(opened.writer.continue_after(Epoch(20), &[(StoreId(1), Lsn(8))]).unwrap());
    let newest = opened.writer.image_writer().newest().unwrap().1;
    drop(opened);
    // Without its image, the log lacks epochs 10 to 20, and the older image does not include them.
    disk.as_files().remove(&newest).unwrap();
    assert!(matches!(open(), Err(LogError::Damaged { .. })));
}
