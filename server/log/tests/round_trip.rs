//! Everything appended is read back: from an open log, after a clean close, and after a crash.

mod fixture;

use fixture::{Dir, batch, outcome};
use tribunal_core::row_key::RowKeyer;
use tribunal_log::{DurableLog, Holder, Located, LogError, Opened, PointInLog};
use tribunal_types::{
    ControlChange, ControlIndex, Csn, Epoch, EpochInput, EpochOutcome, Lsn, StateImage, StoreId, StoreSpec,
};

/// Appends epochs `from..=to` as a node does: the outcome of an epoch with the sync of the next.
fn write(opened: &mut Opened, from: u64, to: u64, heads: &mut [u64; 3]) -> Vec<EpochOutcome> {
    let keyer = RowKeyer::new(opened.recovered.row_secret);
    let mut outcomes = Vec::new();
    for epoch in from..=to {
        let batch = batch(opened.recovered.group, &keyer, epoch);
        opened.writer.append(&batch).unwrap();
        opened.writer.sync().unwrap();
        let outcome = outcome(&batch, heads);
        opened.writer.append_outcome(&outcome).unwrap();
        outcomes.push(outcome);
    }
    outcomes
}

/// Checks that the log contains epochs `from..=to`, and which of them have outcomes.
fn check(opened: &Opened, from: u64, to: u64, outcomes: &[EpochOutcome]) {
    let keyer = RowKeyer::new(opened.recovered.row_secret);
    let entries: Vec<_> = opened.reader.entries_from(Epoch(from)).map(Result::unwrap).collect();
    assert_eq!(entries.len() as u64, to + 1 - from);
    for (epoch, (input, outcome)) in (from..=to).zip(&entries) {
        let batch = batch(opened.recovered.group, &keyer, epoch);
        assert_eq!(input.epoch, Epoch(epoch));
        assert_eq!(input.epoch_time_ms, batch.clock_ms);
        assert_eq!(*input.batches[0], batch);
        assert_eq!(outcome.as_ref(), outcomes.iter().find(|o| o.epoch == Epoch(epoch)), "outcome of {epoch}");
        let epoch = opened.reader.epoch(Epoch(epoch)).unwrap();
        assert_eq!(epoch.is_some(), outcome.is_some());
        if let Some(epoch) = epoch {
            assert_eq!((&*epoch.0.batches[0], &epoch.1), (&batch, outcome.as_ref().unwrap()));
        }
    }
    let parts =
        |(input, outcome): (EpochInput, EpochOutcome)| (input.epoch, input.epoch_time_ms, input.batches, outcome);
    let mut pass = opened.reader.pass_over(StoreId(1), Epoch(from));
    let passed = std::iter::from_fn(|| pass.read().unwrap()).take_while(|(input, _)| input.epoch <= Epoch(to));
    let decided = entries.into_iter().filter_map(|(input, outcome)| Some((input, outcome?)));
    let decided = decided.filter(|(_, outcome)| outcome.lsns.iter().any(|at| at.store == StoreId(1)));
    assert!(passed.map(parts).eq(decided.map(parts)), "a pass reads the same");
}

#[test]
fn entries_and_outcomes_are_read_back_after_a_clean_close() {
    let dir = Dir::new("clean");
    let mut heads = [0; 3];
    let mut opened = dir.open().unwrap();
    assert!(opened.recovered.created);
    let outcomes = write(&mut opened, 1, 60, &mut heads);
    check(&opened, 1, 60, &outcomes);
    let (group, secret) = (opened.recovered.group, opened.recovered.row_secret);
    drop(opened);
    let opened = dir.open().unwrap();
    assert!(!opened.recovered.created);
    assert_eq!((opened.recovered.group, opened.recovered.row_secret), (group, secret));
    assert_eq!(opened.recovered.next, Epoch(61));
    let newest = batch(group, &RowKeyer::new(secret), 60).txns.last().unwrap().csn;
    assert_eq!(opened.recovered.last_csn, newest);
    check(&opened, 1, 60, &outcomes);
    check(&opened, 37, 60, &outcomes);
    assert!(opened.reader.epoch(Epoch(61)).unwrap().is_none());
}

#[test]
fn a_crash_leaves_all_that_was_synced_and_whole_entries_only() {
    let dir = Dir::new("crash");
    let mut heads = [0; 3];
    let mut opened = dir.open().unwrap();
    let outcomes = write(&mut opened, 1, 40, &mut heads);
    let keyer = RowKeyer::new(opened.recovered.row_secret);
    let unsynced = batch(opened.recovered.group, &keyer, 41);
    opened.writer.append(&unsynced).unwrap();
    let left = dir.copy("crash-left");
    let again = left.open().unwrap();
    // The outcome of 40 and the entry of 41 were not synced: each exists as a whole or not at all.
    assert!([Epoch(41), Epoch(42)].contains(&again.recovered.next));
    let known = if again.reader.epoch(Epoch(40)).unwrap().is_some() { 40 } else { 39 };
    check(&again, 1, again.recovered.next.0 - 1, &outcomes[..known]);
}

#[test]
fn one_sync_is_one_fdatasync_and_idleness_costs_none() {
    let dir = Dir::new("count");
    let mut opened = dir.open().unwrap();
    let before = opened.writer.stats().fdatasyncs;
    write(&mut opened, 1, 30, &mut [0; 3]);
    assert_eq!(opened.writer.stats().fdatasyncs - before, 30);
    opened.writer.sync().unwrap();
    assert_eq!(opened.writer.stats().fdatasyncs - before, 31, "the last outcome");
    opened.writer.idle_mark().unwrap();
    let marked = opened.writer.stats().mark_fdatasyncs;
    assert!(marked >= 1);
    for _ in 0..10 {
        opened.writer.sync().unwrap();
        opened.writer.idle_mark().unwrap();
    }
    assert_eq!(opened.writer.stats().fdatasyncs - before, 31);
    assert_eq!(opened.writer.stats().mark_fdatasyncs, marked);
}

#[test]
fn entries_that_cannot_follow_are_rejected() {
    let dir = Dir::new("order");
    let mut opened = dir.open().unwrap();
    let keyer = RowKeyer::new(opened.recovered.row_secret);
    let second = batch(opened.recovered.group, &keyer, 2);
    assert!(matches!(opened.writer.append(&second), Err(LogError::OutOfOrder { .. })));
    let orphan = outcome(&second, &mut [0; 3]);
    assert!(matches!(opened.writer.append_outcome(&orphan), Err(LogError::OutOfOrder { .. })));
    let change = ControlChange::DeclareStore(StoreSpec::default()).into();
    assert!(matches!(opened.writer.append_control(ControlIndex(2), &change), Err(LogError::OutOfOrder { .. })));
    let refused = dir.open().err().expect("it is open already");
    assert!(
        matches!(refused, LogError::Locked { holder: Holder(Some(id)), .. } if id == std::process::id()),
        "{refused}"
    );
}

#[test]
fn ranges_of_empty_epochs_and_control_entries_are_read_back() {
    let dir = Dir::new("ranges");
    let mut opened = dir.open().unwrap();
    let keyer = RowKeyer::new(opened.recovered.row_secret);
    let change = |id| ControlChange::DeclareStore(StoreSpec { id: StoreId(id), ..StoreSpec::default() }).into();
    let mut wide = batch(opened.recovered.group, &keyer, 9);
    wide.first = Epoch(1);
    opened.writer.append_control(ControlIndex(1), &change(1)).unwrap();
    opened.writer.append(&wide).unwrap();
    let mut empty =
        tribunal_types::Batch { group: wide.group, first: Epoch(10), last: Epoch(20), ..Default::default() };
    empty.clock_ms = wide.clock_ms + 5000;
    opened.writer.append(&empty).unwrap();
    let late = batch(opened.recovered.group, &keyer, 21);
    opened.writer.append(&late).unwrap();
    opened.writer.append_control(ControlIndex(2), &change(2)).unwrap();
    opened.writer.sync().unwrap();
    drop(opened);
    let opened = dir.open().unwrap();
    let control: Vec<_> = (1..=2).map(|n| (ControlIndex(n), change(n as u32))).collect();
    assert_eq!(opened.recovered.control, control);
    assert_eq!(opened.recovered.next, Epoch(22));
    let entries: Vec<_> = opened.reader.entries_from(Epoch(1)).map(Result::unwrap).collect();
    let seen: Vec<_> = entries.iter().map(|(input, _)| (input.epoch.0, input.epoch_time_ms)).collect();
    // The clock of the empty entry counts towards the time of the next one.
    assert_eq!(seen, [(9, wide.clock_ms), (20, empty.clock_ms), (21, empty.clock_ms)]);
    assert!(entries[1].0.batches[0].is_empty() && entries[1].1.is_none());
    assert_eq!(opened.reader.batches_from(Epoch(10)).map(|b| b.unwrap().last.0).collect::<Vec<_>>(), [20, 21]);
}

#[test]
fn images_and_truncation_retain_what_is_needed() {
    let dir = Dir::new("images");
    let mut heads = [0; 3];
    let mut options = fixture::options();
    options.retention_ms = 0;
    let mut opened = tribunal_log::open(&dir.0, &options).unwrap();
    let mut outcomes = write(&mut opened, 1, 300, &mut heads);
    let image = |epoch| {
        let mut image = StateImage { epoch: Epoch(epoch), ..StateImage::default() };
        image.push_words(1, vec![epoch; 1000]);
        image
    };
    opened.writer.truncate(Epoch(200)).unwrap();
    assert_eq!(opened.reader.oldest(StoreId(1)), Lsn(1), "without an image nothing may go");
    opened.writer.write_image(&image(150)).unwrap();
    opened.writer.truncate(Epoch(140)).unwrap();
    assert_eq!(opened.reader.oldest(StoreId(1)), Lsn(1), "nothing may go for the only image: it may prove unreadable");
    for epoch in [250, 300] {
        opened.writer.write_image(&image(epoch)).unwrap();
    }
    opened.writer.truncate(Epoch(290)).unwrap();
    opened.writer.sync().unwrap();
    outcomes.extend(write(&mut opened, 301, 310, &mut heads));
    opened.writer.sync().unwrap();
    let check_log = |opened: &Opened| {
        // The older of two images is at 250; samples of age are 64 epochs apart, and segments are removed as a whole.
        let oldest = opened.reader.batches_from(Epoch(1)).next().unwrap().unwrap().last;
        assert!((2..=250).contains(&oldest.0), "{oldest}");
        check(opened, oldest.0, 310, &outcomes);
        for store in [StoreId(1), StoreId(2)] {
            let lsns = |epoch: u64| {
                let outcome = outcomes.iter().find(move |o| o.epoch == Epoch(epoch)).unwrap();
                outcome.lsns.iter().filter(move |l| l.store == store).map(move |l| (l.lsn, epoch))
            };
            let kept: Vec<_> = (oldest.0..=310).flat_map(lsns).collect();
            assert_eq!(opened.reader.oldest(store), kept[0].0);
            let gone = opened.reader.locate(store, Lsn(0)).unwrap();
            assert_eq!(gone, Located::Truncated { oldest: kept[0].0 });
            for (lsn, epoch) in &kept {
                assert_eq!(opened.reader.locate(store, Lsn(lsn.0 - 1)).unwrap(), Located::Epoch(Epoch(*epoch)));
            }
            let head = kept.last().unwrap().0;
            assert_eq!(opened.reader.locate(store, head).unwrap(), Located::Head);
            assert_eq!(opened.reader.head(store), head);
        }
    };
    check_log(&opened);
    drop(opened);
    let opened = dir.open().unwrap();
    assert_eq!(opened.recovered.image, Some(image(300)));
    assert_eq!(std::fs::read_dir(dir.0.join("images")).unwrap().count(), 2);
    check_log(&opened);
    assert_ne!(opened.recovered.last_csn, Csn(0));
    drop(opened);
    // The newest image is damaged: the older one and the entries after it still exist.
    let newest = dir.0.join("images").join(format!("image-{:016x}", 300));
    let mut bytes = std::fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&newest, bytes).unwrap();
    let mut opened = dir.open().unwrap();
    assert_eq!(opened.recovered.image, Some(image(250)));
    assert_eq!(opened.recovered.warnings.len(), 1);
    check(&opened, 251, 310, &outcomes);
    // The next image replaces the damaged one, not the readable one.
    opened.writer.write_image(&image(310)).unwrap();
    drop(opened);
    std::fs::remove_file(dir.0.join("images").join(format!("image-{:016x}", 310))).unwrap();
    assert_eq!(dir.open().unwrap().recovered.image, Some(image(250)));
}

#[test]
fn the_id_of_a_log_outlives_restarts_and_changes_with_a_salvage() {
    let dir = Dir::new("log-id");
    let id = dir.open().unwrap().recovered.id;
    let opened = dir.open().unwrap();
    assert_eq!((opened.recovered.id, opened.writer.id(), opened.reader.id()), (id, id, id));
    drop(opened);
    let other = Dir::new("log-id-other");
    assert_ne!(other.open().unwrap().recovered.id, id);
    let report = tribunal_log::salvage(&dir.0).unwrap();
    assert_ne!(report.id, id);
    assert_eq!(dir.open().unwrap().recovered.id, report.id);
}

#[test]
fn a_point_of_the_log_is_compared_by_the_digest_of_its_epoch() {
    let dir = Dir::new("point");
    let mut opened = dir.open().unwrap();
    let keyer = RowKeyer::new(opened.recovered.row_secret);
    let mut heads = [0; 3];
    for epoch in 1..=10 {
        let batch = batch(opened.recovered.group, &keyer, epoch);
        opened.writer.append(&batch).unwrap();
        let outcome = outcome(&batch, &mut heads);
        opened.writer.append_outcome(&outcome).unwrap();
        let known = PointInLog::Known { epoch: Epoch(epoch), digest: outcome.digest };
        for at in &outcome.lsns {
            assert_eq!(opened.reader.point(at.store, at.lsn).unwrap(), known);
        }
    }
    let head = opened.reader.head(StoreId(1));
    assert_eq!(opened.reader.point(StoreId(1), head.next()).unwrap(), PointInLog::PastHead { head });
    assert_eq!(opened.reader.point(StoreId(1), Lsn(0)).unwrap(), PointInLog::Unknown);
    assert_eq!(opened.reader.point(StoreId(9), Lsn(4)).unwrap(), PointInLog::PastHead { head: Lsn(0) });
}
