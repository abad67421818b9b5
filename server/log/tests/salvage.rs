//! Salvage: whatever the damage, the log starts afterwards, contains a prefix of what was written, and the report is
//! true.
//!
//! `TRIBUNAL_FLIPS` is the number of bits flipped in each file; 8 by default.

mod fixture;

use std::fs;
use std::path::{Path, PathBuf};

use fixture::{Dir, Random, batch, outcome};
use tribunal_core::row_key::RowKeyer;
use tribunal_log::{DurableLog, LogError, Opened, SalvageReport, preview_salvage, salvage};
use tribunal_types::{
    ControlChange, ControlEntry, ControlIndex, Epoch, EpochInput, EpochOutcome, GroupId, LogId, Lsn, StateImage,
    StoreId, StoreSpec,
};

/// Epochs of the log before the damage.
const EPOCHS: u64 = 40;
/// Epoch of its state image.
const IMAGE: u64 = 12;
/// Entries of its control log.
const CONTROLS: u64 = 4;

fn flips() -> u64 {
    std::env::var("TRIBUNAL_FLIPS").ok().and_then(|n| n.parse().ok()).unwrap_or(8)
}

fn change(index: u64) -> ControlEntry {
    ControlChange::DeclareStore(StoreSpec { id: StoreId(index as u32), ..StoreSpec::default() }).into()
}

/// The original log in full.
struct Original {
    dir: Dir,
    group: GroupId,
    keyer: RowKeyer,
    outcomes: Vec<EpochOutcome>,
}

impl Original {
    /// Writes a log and closes it; without `image`, the log has none.
    fn write(name: &str, image: bool) -> Self {
        let dir = Dir::new(name);
        let mut opened = dir.open().unwrap();
        let keyer = RowKeyer::new(opened.recovered.row_secret);
        let group = opened.recovered.group;
        let (mut heads, mut outcomes) = ([0; 3], Vec::new());
        for epoch in 1..=EPOCHS {
            if epoch <= CONTROLS {
                opened.writer.append_control(ControlIndex(epoch), &change(epoch)).unwrap();
            }
            let batch = batch(group, &keyer, epoch);
            opened.writer.append(&batch).unwrap();
            opened.writer.sync().unwrap();
            let outcome = outcome(&batch, &mut heads);
            opened.writer.append_outcome(&outcome).unwrap();
            outcomes.push(outcome);
            if image && epoch == IMAGE {
                let mut image = StateImage { epoch: Epoch(epoch), ..StateImage::default() };
                image.push_words(1, vec![5; 10]);
                opened.writer.write_image(&image).unwrap();
            }
        }
        opened.writer.sync().unwrap();
        opened.writer.idle_mark().unwrap();
        Original { dir, group, keyer, outcomes }
    }

    /// Returns all files, by their names within the log.
    fn files(&self) -> Vec<PathBuf> {
        let (mut files, mut dirs) = (Vec::new(), vec![self.dir.0.clone()]);
        while let Some(next) = dirs.pop() {
            for entry in fs::read_dir(next).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                } else if !path.ends_with("lock") {
                    files.push(path.strip_prefix(&self.dir.0).unwrap().to_owned());
                }
            }
        }
        files.sort();
        files
    }

    /// Returns a copy in which `change` has changed a file.
    fn damaged(&self, file: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Damaged {
        let copy = self.dir.copy("salvaged");
        let mut bytes = fs::read(self.dir.0.join(file)).unwrap();
        change(&mut bytes);
        fs::write(copy.0.join(file), bytes).unwrap();
        Damaged(copy)
    }

    /// Salvages, starts, and compares; returns the report and the last retained epoch.
    fn check(&self, damaged: &Damaged, what: &str) -> (SalvageReport, u64) {
        let before = Identity::of(&damaged.0);
        let preview = preview_salvage(&damaged.0.0).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(Identity::of(&damaged.0).id, before.id, "{what}: a preview changes nothing");
        let report = salvage(&damaged.0.0).unwrap_or_else(|error| panic!("{what}: {error}"));
        let SalvageReport { id, set_aside, stranded, stranded_txns, lost_transactions, .. } = report.clone();
        let previewed = SalvageReport { id, set_aside, stranded, stranded_txns, lost_transactions, ..preview };
        assert_eq!(previewed, report, "{what}");
        assert_ne!(Some(report.id.to_string()), before.id, "{what}");
        let mut opened = damaged.0.open().unwrap_or_else(|error| panic!("{what}: after the salvage: {error}"));
        assert_eq!((opened.recovered.id, opened.recovered.group), (report.id, self.group), "{what}");
        let last = self.replay(&mut opened, &report, what);
        assert!(report.next.0 > EPOCHS, "{what}: epochs are used twice");
        assert_eq!(opened.recovered.next, report.next, "{what}");
        for (number, (index, found)) in (1..).zip(&opened.recovered.control) {
            let expected =
                if report.control_lost.contains(&number) { ControlChange::Lost.into() } else { change(number) };
            assert_eq!((index.0, found), (number, &expected), "{what}");
        }
        assert_eq!(opened.recovered.control.len() as u64, CONTROLS, "{what}");
        drop(opened);
        // All outcomes are in the log now, and remain in it.
        for start in 0..2 {
            let opened = damaged.0.open().unwrap_or_else(|error| panic!("{what}: start {start}: {error}"));
            assert_eq!(self.outcomes_in(&opened, what), last, "{what}");
            assert!(!damaged.0.0.join("outcomes").exists(), "{what}");
        }
        (report, last)
    }

    /// Replays the log as a node does at its start, and appends an epoch.
    fn replay(&self, opened: &mut Opened, report: &SalvageReport, what: &str) -> u64 {
        let from = opened.recovered.image.as_ref().map_or(1, |image| image.epoch.0 + 1);
        let (mut last, mut lost, mut heads) = (from - 1, 0, self.heads(from - 1));
        for entry in opened.reader.entries_from(Epoch(from)) {
            let (input, recorded) = entry.unwrap_or_else(|error| panic!("{what}: {error}"));
            if is_skipped(&input) {
                continue;
            }
            last += 1;
            assert_eq!(*input.batches[0], batch(self.group, &self.keyer, last), "{what}");
            let expected = outcome(&input.batches[0], &mut heads);
            assert_eq!(recorded.as_ref().unwrap_or(&expected), &expected, "{what}");
            lost += u64::from(recorded.is_none());
            if !opened.writer.has_outcome(input.epoch) {
                opened.writer.append_outcome(&expected).unwrap();
            }
        }
        assert_eq!(report.outcomes_lost, lost, "{what}");
        if let Some(report_lost) = report.lost {
            assert_eq!(report_lost, EPOCHS - last, "{what}");
        }
        let mut next = batch(self.group, &self.keyer, opened.recovered.next.0);
        next.first = opened.recovered.next;
        opened.writer.append(&next).unwrap();
        opened.writer.append_outcome(&outcome(&next, &mut heads)).unwrap();
        opened.writer.sync().unwrap();
        for (store, head) in &report.heads {
            assert_eq!(*head, Lsn(self.heads(last)[store.0 as usize]), "{what}: head of store {}", store.0);
        }
        last
    }

    /// Returns the stores' last positions after an epoch.
    fn heads(&self, epoch: u64) -> [u64; 3] {
        let mut heads = [0; 3];
        for outcome in &self.outcomes[..epoch as usize] {
            outcome.lsns.iter().for_each(|at| heads[at.store.0 as usize] = at.lsn.0);
        }
        heads
    }

    /// Compares the recorded outcomes with the original ones; returns the epoch of the last recorded one.
    fn outcomes_in(&self, opened: &Opened, what: &str) -> u64 {
        let from = opened.recovered.image.as_ref().map_or(1, |image| image.epoch.0 + 1);
        let mut last = from - 1;
        for entry in opened.reader.entries_from(Epoch(from)) {
            let (input, recorded) = entry.unwrap_or_else(|error| panic!("{what}: {error}"));
            if is_skipped(&input) {
                continue;
            }
            let recorded = recorded.unwrap_or_else(|| panic!("{what}: epoch {} has no outcome", input.epoch));
            if input.epoch.0 <= EPOCHS {
                assert_eq!(recorded, self.outcomes[input.epoch.0 as usize - 1], "{what}");
                last = input.epoch.0;
            }
        }
        last
    }
}

/// Returns whether the salvage sealed these epochs because the lost part may have used them.
fn is_skipped(input: &EpochInput) -> bool {
    input.batches.iter().all(|batch| batch.is_empty())
}

/// A damaged copy.
struct Damaged(Dir);

struct Identity {
    id: Option<String>,
}

impl Identity {
    fn of(dir: &Dir) -> Self {
        let text = fs::read(dir.0.join("identity")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        Identity { id: text.lines().find_map(|line| line.strip_prefix("id ").map(str::to_owned)) }
    }
}

/// Returns the offsets at which chunks of a kind begin in a segment.
fn chunks_of(bytes: &[u8], kind: u8) -> Vec<usize> {
    let pairs = bytes.windows(2).enumerate();
    pairs.filter(|(_, pair)| pair[0] == 0xE5 && pair[1] & 0x7F == kind).map(|(at, _)| at).collect()
}

fn used(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1)
}

#[test]
fn a_log_with_any_bit_flipped_is_salvaged_to_a_prefix() {
    for image in [false, true] {
        let original = Original::write("flips", image);
        let mut random = Random(7);
        let mut whole = 0;
        for file in original.files() {
            let bytes = fs::read(original.dir.0.join(&file)).unwrap();
            for _ in 0..flips() {
                let (at, bit) = (random.below(used(&bytes) as u64) as usize, random.below(8));
                let damaged = original.damaged(&file, |bytes| bytes[at] ^= 1 << bit);
                let what = format!("{} at {at}, image {image}", file.display());
                let (report, last) = original.check(&damaged, &what);
                assert!(report.control_lost.is_empty(), "{what}");
                if !file.starts_with("segments") {
                    assert_eq!((last, report.outcomes_lost), (EPOCHS, 0), "{what}");
                    whole += 1;
                }
            }
        }
        assert!(whole >= 5 * flips());
    }
}

#[test]
fn an_outcome_that_cannot_be_read_costs_nothing_but_its_own_resolution() {
    let original = Original::write("outcome", false);
    let file = Path::new("segments/log-0000000000000000");
    let outcomes = chunks_of(&fs::read(original.dir.0.join(file)).unwrap(), b'O');
    assert!(outcomes.len() as u64 >= EPOCHS);
    let mut lost = 0;
    for at in outcomes {
        let damaged = original.damaged(file, |bytes| bytes[at + 3] ^= 1);
        let (report, last) = original.check(&damaged, &format!("outcome at {at}"));
        // The two bytes that begin an outcome can also occur in a value.
        if last == EPOCHS {
            assert_eq!((report.lost, report.outcomes_lost), (Some(0), 1));
            lost += 1;
        }
    }
    assert_eq!(lost, EPOCHS);
}

#[test]
fn an_entry_lost_in_both_control_logs_keeps_its_place() {
    let original = Original::write("control", false);
    for hit in 0..CONTROLS {
        let at = chunks_of(&fs::read(original.dir.0.join("control")).unwrap(), b'C')[hit as usize] + 9;
        let damaged = original.damaged(Path::new("control"), |bytes| bytes[at] ^= 1);
        let copy = damaged.0.0.join("control.copy");
        let mut bytes = fs::read(&copy).unwrap();
        bytes[at] ^= 2;
        fs::write(&copy, bytes).unwrap();
        assert!(matches!(damaged.0.open().err(), Some(LogError::Damaged { .. })));
        let (report, last) = original.check(&damaged, &format!("control entry {}", hit + 1));
        assert_eq!((report.control, report.control_lost), (CONTROLS - 1, vec![hit + 1]));
        assert_eq!(last, EPOCHS);
    }
}

#[test]
fn a_lagging_mark_does_not_hide_what_is_lost() {
    let original = Original::write("lagging", false);
    let empty = Dir::new("lagging-empty");
    drop(empty.open().unwrap());
    let file = Path::new("segments/log-0000000000000000");
    let entries = chunks_of(&fs::read(original.dir.0.join(file)).unwrap(), b'T');
    // Entry 20 is unreadable, and no mark is left to count the entries after it.
    let at = entries.iter().find(|at| {
        let damaged = original.damaged(file, |bytes| bytes[**at + 3] ^= 1);
        salvage(&damaged.0.0).unwrap().entries == Some((1, 19))
    });
    let damaged = original.damaged(file, |bytes| bytes[at.unwrap() + 3] ^= 1);
    fs::remove_file(damaged.0.0.join("mark")).unwrap();
    let report = salvage(&damaged.0.0).unwrap();
    assert_eq!(report.entries, Some((1, 19)));
    // Everything that records syncs was written before the last entry was synced.
    let lost = report.lost.unwrap();
    assert!((EPOCHS - 20..=EPOCHS - 19).contains(&lost), "{lost}");
    assert_eq!(report.stranded, EPOCHS - 20);
    let list = fs::read_to_string(report.lost_transactions.unwrap()).unwrap();
    assert_eq!(list.lines().count() as u64, report.stranded_txns);
    for epoch in 21..=EPOCHS {
        for txn in &batch(original.group, &original.keyer, epoch).txns {
            assert!(list.contains(&format!("{} epoch {epoch} committed", txn.id)), "{} of epoch {epoch}", txn.id);
        }
    }
}

#[test]
fn an_intact_log_loses_nothing_and_the_old_files_are_kept() {
    let original = Original::write("whole", true);
    let damaged = Damaged(original.dir.copy("whole-copy"));
    let (report, last) = original.check(&damaged, "whole");
    assert_eq!((last, report.lost, report.end_is_unreadable), (EPOCHS, Some(0), false));
    assert_eq!((report.entries, report.outcomes, report.stranded), (Some((1, EPOCHS)), EPOCHS, 0));
    assert_eq!(report.only_in_image, None);
    for file in original.files() {
        let kept = fs::read(report.set_aside.join(&file)).unwrap();
        assert_eq!(kept, fs::read(original.dir.0.join(&file)).unwrap(), "{}", file.display());
    }
}

#[test]
fn a_damaged_log_that_an_interrupted_salvage_has_left_is_kept_by_the_next_one() {
    let original = Original::write("interrupted", true);
    let damaged = Damaged(original.dir.copy("interrupted-copy"));
    let dir = &damaged.0.0;
    let left = dir.with_extension("salvaged");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("mark"), b"all that is left").unwrap();
    let report = salvage(dir).unwrap();
    assert!(!left.exists());
    assert_eq!(fs::read(dir.with_extension("damaged-1").join("mark")).unwrap(), b"all that is left");
    assert_eq!(report.set_aside, dir.with_extension("damaged-2"));
    assert_eq!(report.entries, Some((1, EPOCHS)));
}

#[test]
fn what_an_interrupted_preview_has_left_is_no_damaged_log() {
    let original = Original::write("previewed", true);
    let damaged = Damaged(original.dir.copy("previewed-copy"));
    let dir = &damaged.0.0;
    let leave = || {
        // A preview copies what it would retain into a separate log.
        let left = dir.with_extension("preview");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("identity"), b"half a log").unwrap();
        left
    };
    let left = leave();
    assert_eq!(preview_salvage(dir).unwrap().entries, Some((1, EPOCHS)));
    assert!(!left.exists(), "the next preview begins again");
    let left = leave();
    let report = salvage(dir).unwrap();
    assert!(!left.exists());
    assert_eq!(report.set_aside, dir.with_extension("damaged-1"));
    assert!(!dir.with_extension("damaged-2").exists());
}

#[test]
fn entries_before_a_loss_that_an_image_covers_are_reported() {
    let original = Original::write("covered", true);
    let segment = Path::new("segments/log-0000000000000000");
    // The first bytes of the log: an entry that the image covers.
    let damaged = original.damaged(segment, |bytes| bytes[3] ^= 1);
    let (report, last) = original.check(&damaged, "the first entry");
    assert_eq!((last, report.lost), (EPOCHS, Some(0)));
    assert_eq!((report.entries, report.only_in_image), (Some((2, EPOCHS)), Some((1, 1))));
}

#[test]
fn a_salvaged_log_continues_those_before_it_as_far_as_their_records_are_gone() {
    let original = Original::write("former", true);
    let damaged = original.damaged(Path::new("segments/log-0000000000000000"), |bytes| bytes[3] ^= 1);
    let first: LogId = Identity::of(&damaged.0).id.expect("it can be read").parse().unwrap();
    let second = salvage(&damaged.0.0).unwrap().id;
    let third = salvage(&damaged.0.0).unwrap().id;
    let (opened, heads) = (damaged.0.open().unwrap(), original.heads(1));
    for store in [1, 2_u32] {
        // Of the first epoch, which only the image includes.
        let last = heads[store as usize];
        for log in [first, second] {
            assert_eq!(opened.reader.continues(log, StoreId(store), Lsn(last)), last > 0, "store {store}");
            assert!(!opened.reader.continues(log, StoreId(store), Lsn(last + 1)), "store {store}");
        }
        assert!(!opened.reader.continues(third, StoreId(store), Lsn(last)), "it is that log");
    }
    assert!(heads.iter().any(|last| *last > 0), "the first epoch has records");
}

#[test]
fn a_log_of_which_only_an_image_is_left_starts_from_it() {
    let original = Original::write("image", true);
    let segment = Path::new("segments/log-0000000000000000");
    let damaged = original.damaged(segment, |bytes| bytes.fill(0x5A));
    assert!(damaged.0.open().is_err());
    let report = salvage(&damaged.0.0).unwrap();
    assert_eq!((report.entries, report.image, report.lost), (None, Some(Epoch(IMAGE)), None));
    assert!(report.end_is_unreadable && report.only_in_image.is_none(), "nothing tells how many there were");
    let opened = damaged.0.open().unwrap();
    assert_eq!(opened.recovered.image.as_ref().unwrap().epoch, Epoch(IMAGE));
    assert!(opened.reader.entries_from(Epoch(1)).all(|entry| is_skipped(&entry.unwrap().0)));
}

#[test]
fn a_salvaged_log_that_begins_after_an_image_is_not_opened_without_it() {
    let original = Original::write("image-lost", true);
    let segment = Path::new("segments/log-0000000000000000");
    let damaged = original.damaged(segment, |bytes| bytes.fill(0x5A));
    let first = salvage(&damaged.0.0).unwrap();
    let images = damaged.0.0.join("images");
    for image in fs::read_dir(&images).unwrap() {
        // The log that was set aside has a link to the same file.
        fs::remove_file(image.unwrap().path()).unwrap();
    }
    let refused = damaged.0.open().err().unwrap();
    assert!(matches!(&refused, LogError::Damaged { reason, .. } if reason.contains("image")), "{refused}");
    // Epochs after a missing image are not mistaken for the first ones.
    let second = salvage(&damaged.0.0).unwrap();
    assert_eq!((second.entries, second.image), (None, None));
    assert!(second.next > first.next, "{second:?}");
    assert_eq!(damaged.0.open().unwrap().recovered.image, None);
}

#[test]
fn a_log_without_any_readable_identity_is_left_alone() {
    let original = Original::write("identity", false);
    let damaged = original.damaged(Path::new("identity"), |bytes| bytes[40] ^= 1);
    for name in ["control", "control.copy"] {
        let mut bytes = fs::read(damaged.0.0.join(name)).unwrap();
        bytes[40] ^= 1;
        fs::write(damaged.0.0.join(name), bytes).unwrap();
    }
    let refused = salvage(&damaged.0.0).err().unwrap();
    assert!(matches!(refused, LogError::Damaged { .. }), "{refused}");
    assert!(damaged.0.0.join("segments").exists());
}

#[test]
fn damage_is_found_where_a_start_is_refused() {
    let original = Original::write("find", true);
    let check = |file: &str, change: fn(&mut Vec<u8>)| {
        let copy = original.damaged(Path::new(file), change);
        let found = tribunal_log::find_damage(&copy.0.0).unwrap();
        assert_eq!(found.is_some(), matches!(copy.0.open(), Err(LogError::Damaged { .. })), "{file}: {found:?}");
        found
    };
    assert_eq!(check("mark", |_| ()), None, "a whole log");
    assert!(check("identity", |bytes| bytes[40] ^= 1).is_some());
}
