//! Damage of any kind: the log either refuses to open and reports why, or contains exactly what was
//! acknowledged.
//!
//! `TRIBUNAL_FLIPS` sets the number of places tried; 60 by default.

mod fixture;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use fixture::{Dir, Random, batch, outcome};
use tribunal_core::row_key::RowKeyer;
use tribunal_log::{DurableLog, LogError, Opened};
use tribunal_types::{ControlChange, ControlIndex, Epoch, StoreId, StoreSpec};

fn flips() -> u64 {
    std::env::var("TRIBUNAL_FLIPS").ok().and_then(|n| n.parse().ok()).unwrap_or(60)
}

/// Writes epochs 1..=`last` and closes the log.
fn written(name: &str, last: u64) -> Dir {
    let dir = Dir::new(name);
    let mut opened = dir.open().unwrap();
    let keyer = RowKeyer::new(opened.recovered.row_secret);
    let change = ControlChange::DeclareStore(StoreSpec { id: StoreId(1), ..StoreSpec::default() }).into();
    opened.writer.append_control(ControlIndex(1), &change).unwrap();
    let mut heads = [0; 3];
    for epoch in 1..=last {
        let batch = batch(opened.recovered.group, &keyer, epoch);
        opened.writer.append(&batch).unwrap();
        opened.writer.sync().unwrap();
        opened.writer.append_outcome(&outcome(&batch, &mut heads)).unwrap();
    }
    opened.writer.sync().unwrap();
    opened.writer.idle_mark().unwrap();
    dir
}

/// Checks that epochs `1..=last` exist as written.
fn check_whole(opened: &Opened, last: u64) -> Result<(), LogError> {
    let keyer = RowKeyer::new(opened.recovered.row_secret);
    let mut expected = 1;
    for entry in opened.reader.entries_from(Epoch(1)) {
        let (input, _) = entry?;
        assert_eq!(*input.batches[0], batch(opened.recovered.group, &keyer, expected));
        expected += 1;
    }
    assert_eq!(expected, last + 1, "entries are lost without a word");
    assert_eq!(opened.recovered.next, Epoch(last + 1));
    assert_eq!(opened.recovered.control.len(), 1);
    Ok(())
}

/// Returns all files of the log that contain data.
fn data_files(dir: &Dir) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.0.clone()];
    while let Some(next) = dirs.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type().unwrap().is_dir() {
                dirs.push(entry.path());
            } else if name != "lock" {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    files
}

#[derive(Debug, Default)]
struct Tally {
    whole: u64,
    refused: u64,
}

impl Tally {
    fn try_open(&mut self, dir: &Dir, last: u64, what: &str) {
        let result = dir.open().and_then(|opened| check_whole(&opened, last));
        match result {
            Ok(()) => self.whole += 1,
            Err(LogError::Damaged { reason, .. }) => {
                assert!(!reason.is_empty(), "{what}");
                self.refused += 1;
            }
            Err(other) => panic!("{what}: {other}"),
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_is_harmless_or_refused() {
    let dir = written("flip", 60);
    let mut random = Random(1);
    let mut tally = Tally::default();
    for file in data_files(&dir) {
        let bytes = fs::read(&file).unwrap();
        // In the data, not in the zeros after it.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1) as u64;
        let relative = file.strip_prefix(&dir.0).unwrap();
        for _ in 0..if used > 10_000 { flips() } else { 4 } {
            let copy = dir.copy("flip-copy");
            let at = random.below(used) as usize;
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << random.below(8);
            fs::write(copy.0.join(relative), damaged).unwrap();
            tally.try_open(&copy, 60, &format!("bit flipped in {} at {at}", relative.display()));
        }
    }
    println!("flips: {tally:?}");
    assert!(tally.refused > 0);
}

#[test]
fn a_cut_anywhere_is_harmless_or_refused() {
    let dir = written("cut", 60);
    let mut random = Random(2);
    let mut tally = Tally::default();
    for file in data_files(&dir) {
        let bytes = fs::read(&file).unwrap();
        let relative = file.strip_prefix(&dir.0).unwrap();
        for _ in 0..if bytes.len() > 10_000 { flips() / 2 } else { 4 } {
            let copy = dir.copy("cut-copy");
            let at = random.below(bytes.len() as u64) as usize;
            fs::write(copy.0.join(relative), &bytes[..at]).unwrap();
            tally.try_open(&copy, 60, &format!("{} cut at {at}", relative.display()));
        }
        let copy = dir.copy("zeroed-copy");
        let mut zeroed = bytes.clone();
        let from = random.below(bytes.len() as u64) as usize;
        let until = bytes.len().min(from + 4096);
        zeroed[from..until].fill(0);
        fs::write(copy.0.join(relative), zeroed).unwrap();
        tally.try_open(&copy, 60, &format!("{} zeroed at {from}", relative.display()));
    }
    println!("cuts: {tally:?}");
    assert!(tally.refused > 0);
}

#[test]
fn an_old_log_under_a_new_mark_is_refused() {
    let dir = written("old", 20);
    let old = dir.copy("old-copy");
    {
        let mut opened = dir.open().unwrap();
        let keyer = RowKeyer::new(opened.recovered.row_secret);
        let batch = batch(opened.recovered.group, &keyer, 21);
        opened.writer.append(&batch).unwrap();
        opened.writer.sync().unwrap();
        opened.writer.idle_mark().unwrap();
    }
    fs::copy(dir.0.join("mark"), old.0.join("mark")).unwrap();
    let error = old.open().err().unwrap().to_string();
    assert!(error.contains("salvage") && error.contains("21"), "{error}");
}

#[test]
fn an_old_mark_under_a_new_log_is_no_loss() {
    let dir = written("old-mark", 20);
    let mark = fs::read(dir.0.join("mark")).unwrap();
    {
        let mut opened = dir.open().unwrap();
        let keyer = RowKeyer::new(opened.recovered.row_secret);
        let batch = batch(opened.recovered.group, &keyer, 21);
        opened.writer.append(&batch).unwrap();
        opened.writer.sync().unwrap();
    }
    fs::write(dir.0.join("mark"), mark).unwrap();
    check_whole(&dir.open().unwrap(), 21).unwrap();
}

/// Returns the segment being written, its content, and how many of its bytes are used.
fn last_segment(dir: &Dir) -> (PathBuf, Vec<u8>, usize) {
    let segments = data_files(dir).into_iter().filter(|file| file.parent().unwrap().ends_with("segments"));
    let read = segments.map(|file| (fs::read(&file).unwrap(), file));
    let (bytes, file) = read.rev().find(|(bytes, _)| bytes[0] != 0).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    (file, bytes, used)
}

#[test]
fn an_end_torn_by_power_loss_is_erased_and_the_log_continues() {
    let dir = written("torn", 20);
    let mark = fs::read(dir.0.join("mark")).unwrap();
    let (_, _, durable) = last_segment(&dir);
    {
        let mut opened = dir.open().unwrap();
        let keyer = RowKeyer::new(opened.recovered.row_secret);
        for epoch in 21..=25 {
            opened.writer.append(&batch(opened.recovered.group, &keyer, epoch)).unwrap();
        }
        opened.writer.sync().unwrap();
    }
    // As if the power had failed before that sync: any part of its writes may be missing.
    fs::write(dir.0.join("mark"), mark).unwrap();
    let (file, bytes, used) = last_segment(&dir);
    let relative = file.strip_prefix(&dir.0).unwrap();
    let mut random = Random(4);
    for _ in 0..20 {
        let copy = dir.copy("torn-copy");
        let from = durable + random.below((used - durable) as u64) as usize;
        let mut torn = bytes.clone();
        torn[from..used.min(from + 512)].fill(0);
        fs::write(copy.0.join(relative), torn).unwrap();
        let mut opened = copy.open().unwrap();
        let kept = opened.recovered.next.0 - 1;
        assert!((20..=25).contains(&kept));
        let keyer = RowKeyer::new(opened.recovered.row_secret);
        opened.writer.append(&batch(opened.recovered.group, &keyer, kept + 1)).unwrap();
        opened.writer.sync().unwrap();
        drop(opened);
        check_whole(&copy.open().unwrap(), kept + 1).unwrap();
    }
}

#[test]
fn damage_is_distinguished_from_a_torn_end_by_later_writes_even_with_an_old_mark() {
    let dir = Dir::new("proof");
    drop(dir.open().unwrap());
    let mark = fs::read(dir.0.join("mark")).unwrap();
    {
        let mut opened = dir.open().unwrap();
        let keyer = RowKeyer::new(opened.recovered.row_secret);
        for epoch in 1..=30 {
            opened.writer.append(&batch(opened.recovered.group, &keyer, epoch)).unwrap();
            opened.writer.sync().unwrap();
        }
    }
    fs::write(dir.0.join("mark"), mark).unwrap();
    assert_eq!(dir.open().unwrap().recovered.next, Epoch(31));
    let (file, bytes, used) = last_segment(&dir);
    let mut random = Random(5);
    for _ in 0..20 {
        let at = random.below(used as u64 * 9 / 10) as usize;
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << random.below(8);
        fs::write(&file, damaged).unwrap();
        assert!(matches!(dir.open().err(), Some(LogError::Damaged { .. })), "bit flipped at {at} of {used}");
    }
}

#[test]
fn missing_files_are_refused_and_the_way_out_is_named() {
    for gone in ["mark", "truncated", "segments"] {
        let dir = written("gone", 10);
        let path = dir.0.join(gone);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        let error = dir.open().err().unwrap().to_string();
        assert!(error.contains("salvage"), "{gone}: {error}");
    }
    let dir = written("no-control", 10);
    fs::remove_file(dir.0.join("control")).unwrap();
    fs::remove_file(dir.0.join("control.copy")).unwrap();
    assert!(matches!(dir.open().err(), Some(LogError::Damaged { .. })));
    let dir = written("no-identity", 10);
    fs::remove_file(dir.0.join("identity")).unwrap();
    assert!(matches!(dir.open().err(), Some(LogError::Damaged { .. })));
    let exists = tribunal_log::exists(&dir.0);
    assert!(matches!(exists, Err(LogError::Damaged { .. })), "it is full, and one file is missing: {exists:?}");
}

#[test]
fn a_damaged_copy_of_the_control_log_is_repaired_from_the_other() {
    for (damaged, whole) in [("control", "control.copy"), ("control.copy", "control")] {
        let dir = written("control", 10);
        let bytes = fs::read(dir.0.join(whole)).unwrap();
        assert_eq!(fs::read(dir.0.join(damaged)).unwrap(), bytes);
        let mut contents: Vec<Option<Vec<u8>>> = vec![None];
        for at in (0..200).chain((200..4096).step_by(512)).chain(4096..bytes.len()) {
            let mut flipped = bytes.clone();
            flipped[at] ^= 4;
            contents.extend([Some(bytes[..at].to_vec()), Some(flipped)]);
        }
        for content in contents {
            match content {
                Some(content) => fs::write(dir.0.join(damaged), content).unwrap(),
                None => fs::remove_file(dir.0.join(damaged)).unwrap(),
            }
            let opened = dir.open().unwrap();
            check_whole(&opened, 10).unwrap();
            drop(opened);
            assert_eq!(fs::read(dir.0.join(damaged)).unwrap(), bytes, "the damage was not repaired");
        }
    }
}

#[test]
fn a_control_log_of_another_log_is_refused() {
    let (one, two) = (written("one", 10), written("two", 10));
    for name in ["control", "control.copy"] {
        fs::copy(one.0.join(name), two.0.join(name)).unwrap();
    }
    assert!(matches!(two.open().err(), Some(LogError::Damaged { .. })));
}

#[test]
fn a_mark_of_another_log_is_refused() {
    let (one, two) = (written("one", 10), written("two", 10));
    fs::copy(one.0.join("mark"), two.0.join("mark")).unwrap();
    assert!(matches!(two.open().err(), Some(LogError::Damaged { .. })));
}

#[test]
fn a_log_of_an_older_format_is_refused_with_what_to_do() {
    let dir = written("older", 10);
    let identity = dir.0.join("identity");
    let text = fs::read_to_string(&identity).unwrap();
    for older in ["tribunal log 1", "tribunal log 2", "tribunal log 3"] {
        let (_, rest) = text.split_once('\n').unwrap();
        fs::write(&identity, format!("{older}\n{rest}")).unwrap();
        let error = dir.open().err().expect("it is not read").to_string();
        assert!(error.contains("older release") && error.contains("begin with another directory"), "{error}");
    }
    fs::write(&identity, text).unwrap();
    check_whole(&dir.open().unwrap(), 10).unwrap();
}

#[test]
fn a_byte_that_rots_under_an_open_log_hides_no_epoch() {
    let dir = written("rot", 300);
    let opened = dir.open().unwrap();
    let segment = data_files(&dir).into_iter().find(|path| path.parent().unwrap().ends_with("segments")).unwrap();
    let file = fs::OpenOptions::new().read(true).write(true).open(&segment).unwrap();
    let bytes = fs::read(&segment).unwrap();
    let tail = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    // The epochs of a pass up to its end, or to the first one that cannot be read.
    let passed = || {
        let mut pass = opened.reader.pass_over(StoreId(1), Epoch(1));
        let mut epochs = Vec::new();
        loop {
            match pass.read() {
                Ok(Some((input, _))) => epochs.push(input.epoch),
                Ok(None) => return (epochs, true),
                Err(error) => {
                    assert!(matches!(error, LogError::Damaged { .. }), "{error}");
                    return (epochs, false);
                }
            }
        }
    };
    let (all, _) = passed();
    let mut refused = 0;
    let mut random = Random(5);
    for _ in 0..flips() {
        // The last records are excluded: they might still be in writing.
        let at = random.below(tail as u64 * 9 / 10);
        let byte = bytes[at as usize];
        file.write_all_at(&[byte ^ 1 << random.below(8)], at).unwrap();
        let (epochs, is_whole) = passed();
        assert!(!is_whole || epochs == all, "byte {at}: a pass ends at {:?}", epochs.last());
        refused += u64::from(!is_whole);
        file.write_all_at(&[byte], at).unwrap();
    }
    assert!(refused > flips() / 2, "{refused} of {} were noticed", flips());
    assert_eq!(passed().0, all);
}
