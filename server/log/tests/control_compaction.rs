//! Compaction rewrites the control log without entries that no longer have an effect, and the log starts whenever a
//! crash interrupts it.
//!
//! `TRIBUNAL_KILLS` sets the number of kills; 20 by default.

mod fixture;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use fixture::{Dir, Random, batch};
use tribunal_core::control::{Moment, ReplicatedState};
use tribunal_core::row_key::RowKeyer;
use tribunal_log::{DurableLog, Opened};
use tribunal_types::limits::KEYS_REVOKED_KEPT;
use tribunal_types::{
    ApiKey, ControlChange, ControlImage, ControlIndex, Epoch, NamespaceId, Roles, StoreId, StoreSpec,
};

const CHILD: &str = "TRIBUNAL_LOG_COMPACTION_CHILD";
/// Enough created and revoked keys for their entries to exceed a mebibyte.
const MANY: u64 = 8_000;
const COPIES: [&str; 2] = ["control", "control.copy"];

fn key(number: u64, namespace: u32) -> ApiKey {
    ApiKey {
        id: format!("{number:016x}"),
        name: format!("key-{number}-{}", "x".repeat(40)),
        namespace: NamespaceId(namespace),
        namespace_name: format!("tenant-{namespace}"),
        roles: Roles::ALL,
        secret_sha256: [number as u8; 32],
        created_ms: number,
        expires_ms: None,
    }
}

fn append(opened: &mut Opened, index: &mut u64, change: &ControlChange) {
    *index += 1;
    opened.writer.append_control(ControlIndex(*index), &change.clone().into()).unwrap();
}

/// Creates and revokes `count` keys.
fn churn(opened: &mut Opened, index: &mut u64, count: u64) {
    for _ in 0..count {
        let key = key(*index, 0);
        let id = key.id.clone();
        append(opened, index, &ControlChange::CreateKey(key));
        append(opened, index, &ControlChange::RevokeKey { id });
    }
    opened.writer.sync().unwrap();
}

/// Appends entries that are never dropped: a store, a tenant's first key although it was revoked, a key in force.
fn begun(opened: &mut Opened) -> u64 {
    let mut index = 0;
    let store = StoreSpec { id: StoreId(1), ..StoreSpec::default() };
    append(opened, &mut index, &ControlChange::DeclareStore(store));
    append(opened, &mut index, &ControlChange::CreateKey(key(1_000_000, 7)));
    append(opened, &mut index, &ControlChange::RevokeKey { id: key(1_000_000, 7).id });
    append(opened, &mut index, &ControlChange::CreateKey(key(1_000_001, 7)));
    opened.writer.sync().unwrap();
    index
}

/// Maximum entries of a control log right after its compaction.
const FEW: usize = 4 + 2 * KEYS_REVOKED_KEPT + 3;

fn check(opened: &Opened, last: u64, what: &str) {
    let control = &opened.recovered.control;
    assert!(control.is_sorted_by(|a, b| a.0 < b.0), "{what}");
    assert_eq!(control.last().map(|(index, _)| index.0), Some(last), "{what}");
    assert!(control.iter().take(4).map(|(index, _)| index.0).eq(1..=4), "{what}: the first four have an effect");
}

fn bytes(dir: &Dir) -> u64 {
    COPIES.map(|name| fs::metadata(dir.0.join(name)).unwrap().len()).iter().sum()
}

/// Copies the log, and replaces these files of the copy with those of another state of the log.
fn mixed(base: &Dir, other: &Dir, files: &[&str]) -> Dir {
    let mixed = base.copy("compaction-mixed");
    for name in files {
        fs::copy(other.0.join(name), mixed.0.join(name)).unwrap();
    }
    mixed
}

/// Returns a log before and after its control log was compacted, and the last index of both.
fn before_and_after() -> (Dir, Dir, u64) {
    let dir = Dir::new("compaction");
    let mut opened = dir.open().unwrap();
    let mut index = begun(&mut opened);
    churn(&mut opened, &mut index, MANY);
    opened.writer.idle_mark().unwrap();
    let before = dir.copy("compaction-before");
    assert!(opened.writer.compact_control().unwrap(), "there is much to leave out");
    assert!(!opened.writer.compact_control().unwrap(), "nothing is left to leave out");
    drop(opened);
    (before, dir, index)
}

#[test]
fn a_control_log_of_dead_keys_is_bounded_and_usable() {
    let dir = Dir::new("compaction-bounded");
    let mut opened = dir.open().unwrap();
    let mut index = begun(&mut opened);
    let mut largest = 0;
    for _ in 0..8 {
        churn(&mut opened, &mut index, MANY / 2);
        opened.writer.compact_control().unwrap();
        largest = largest.max(bytes(&dir));
    }
    assert!(largest < 8 << 20, "{largest} bytes for {index} entries");
    drop(opened);
    let mut opened = dir.open().unwrap();
    check(&opened, index, "after a restart");
    assert!(index > 64_000 && opened.recovered.control.len() < 20_000, "{} entries", opened.recovered.control.len());
    // Commits continue under indices that were never used before.
    let keyer = RowKeyer::new(opened.recovered.row_secret);
    let sealed = batch(opened.recovered.group, &keyer, 1);
    opened.writer.append(&sealed).unwrap();
    churn(&mut opened, &mut index, 3);
    drop(opened);
    assert_eq!(dir.open().unwrap().recovered.control.last().unwrap().0, ControlIndex(index));
}

#[test]
fn a_start_drops_dead_keys_as_well() {
    let (before, _, index) = before_and_after();
    let long = bytes(&before);
    check(&before.open().unwrap(), index, "the start that leaves out may still read all");
    assert!(bytes(&before) < long / 2, "{} of {long} bytes", bytes(&before));
    let opened = before.open().unwrap();
    check(&opened, index, "the next start");
    assert!(opened.recovered.control.len() <= FEW, "{} entries", opened.recovered.control.len());
}

/// Returns the state that a log folds to, continued from `state`.
fn folded_from(mut state: ReplicatedState, opened: &Opened, upto: u64) -> ControlImage {
    let after = state.index();
    for (index, entry) in opened.recovered.control.iter().filter(|(index, _)| *index > after && index.0 <= upto) {
        // The log contains refused entries, too.
        let _ = state.apply(*index, entry, Moment { next: Epoch(1), is_existence_fixed: &|_| false, members: &[] });
    }
    state.image()
}

fn folded(opened: &Opened) -> ControlImage {
    folded_from(ReplicatedState::default(), opened, u64::MAX)
}

#[test]
fn a_compacted_log_adds_up_to_the_same_stores_tenants_and_keys() {
    let dir = Dir::new("compaction-fold");
    let mut opened = dir.open().unwrap();
    let mut random = Random(7);
    let mut index = 0;
    // Half of the keys belong to one tenant, which soon reaches its maximum.
    let tenant = |number: u64| key(number, if number.is_multiple_of(2) { 0 } else { (number % 40) as u32 });
    for number in 0..MANY {
        // The first entries are large, so that enough of the log is dead before the last thousand keys are.
        let large = "x".repeat(if number < MANY / 2 { 900 } else { 1 });
        append(&mut opened, &mut index, &ControlChange::CreateKey(ApiKey { name: large, ..tenant(number) }));
        match random.below(40) {
            0 => {
                let (name, id) = (format!("store-{}", random.below(30)), StoreId(0));
                append(
                    &mut opened,
                    &mut index,
                    &ControlChange::DeclareStore(StoreSpec { id, name, ..StoreSpec::default() }),
                );
            }
            // The id is, or once was, taken: refused.
            1 => append(&mut opened, &mut index, &ControlChange::CreateKey(tenant(number - random.below(number + 1)))),
            // Stays in force.
            2..8 => {}
            // Some time after it was created.
            _ => append(&mut opened, &mut index, &ControlChange::RevokeKey { id: tenant(number - number.min(100)).id }),
        }
    }
    opened.writer.sync().unwrap();
    let before = dir.copy("compaction-fold-before");
    assert!(opened.writer.compact_control().unwrap(), "there is much to leave out");
    drop(opened);
    let whole = fs::metadata(before.0.join("control")).unwrap().len();
    assert!(fs::metadata(dir.0.join("control")).unwrap().len() < whole / 2);
    // A start may compact the log, too, after it has read it.
    let (before, after) = (before.open().unwrap(), dir.open().unwrap());
    let (whole, compacted) = (folded(&before), folded(&after));
    assert_eq!((whole.tenants.len(), whole.revoked.len() > KEYS_REVOKED_KEPT), (21, true));
    assert!(
        whole.keys.len() > 500 && whole.stores.len() == 30,
        "{} keys, {} stores",
        whole.keys.len(),
        whole.stores.len()
    );
    assert!(whole == compacted, "the compacted log adds up to something else");

    // A state image may be older than the revocations that the log has left out since.
    let mut forgotten = 0;
    for upto in (1..16).map(|part| index * part / 16) {
        let image = folded_from(ReplicatedState::default(), &before, upto);
        let mut state = ReplicatedState::restore(image.clone());
        state
            .forget_keys_created(|key| after.recovered.control_left_out.iter().any(|left_out| left_out.contains(&key)));
        forgotten += image.keys.len() - state.keys().held().count();
        assert!(folded_from(state, &after, u64::MAX) == whole, "from an image after entry {upto} of {index}");
    }
    assert!(forgotten > 100, "{forgotten} keys that are revoked were in an image");
}

#[test]
fn a_crash_at_each_step_leaves_a_log_that_starts() {
    let (before, after, index) = before_and_after();
    let [first, second] = COPIES;
    let halves: Vec<_> = COPIES.map(|name| fs::read(after.0.join(name)).unwrap()).into();
    let steps = [
        ("the first is half written aside", mixed(&before, &after, &[]), 1, halves[0].len() / 2),
        ("both are written aside", mixed(&before, &after, &[]), 2, halves[0].len()),
        ("the first is in place", mixed(&before, &after, &[first]), 1, halves[1].len()),
        ("both are in place", mixed(&before, &after, &[first, second]), 0, 0),
        ("the second is in place and the first is not durable", mixed(&before, &after, &[second]), 0, 0),
    ];
    for (what, dir, asides, len) in steps {
        for name in COPIES.iter().rev().take(asides) {
            fs::write(dir.0.join(format!("{name}.new")), &halves[0][..len]).unwrap();
        }
        let mut opened = dir.open().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(opened.recovered.control.last().map(|(index, _)| index.0), Some(index), "{what}");
        let mut next = index;
        churn(&mut opened, &mut next, 1);
        drop(opened);
        let opened = dir.open().unwrap();
        check(&opened, next, what);
        assert_eq!(fs::read(dir.0.join(first)).unwrap(), fs::read(dir.0.join(second)).unwrap(), "{what}");
        assert!(COPIES.iter().all(|name| !dir.0.join(format!("{name}.new")).exists()), "{what}");
    }
}

#[test]
fn one_intact_copy_is_enough_after_a_rewrite_too() {
    let (_, after, index) = before_and_after();
    let len = fs::metadata(after.0.join("control")).unwrap().len();
    for (name, at) in COPIES.iter().flat_map(|name| [4100, len / 2, len - 2].map(|at| (name, at))) {
        let dir = after.copy("compaction-damaged");
        let path = dir.0.join(name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[at as usize] ^= 4;
        fs::write(&path, bytes).unwrap();
        let opened = dir.open().unwrap_or_else(|error| panic!("{name} at {at}: {error}"));
        check(&opened, index, name);
    }
}

#[test]
fn a_salvage_distinguishes_dropped_entries_from_lost_ones() {
    let (before, after, index) = before_and_after();
    for (what, dir) in [("whole", after.copy("compaction-salvage")), ("half", mixed(&before, &after, &["control"]))] {
        let report = tribunal_log::salvage(&dir.0).unwrap();
        assert_eq!(report.control_lost, [], "{what}");
        let opened = dir.open().unwrap();
        assert_eq!(opened.recovered.control.last().map(|(index, _)| index.0), Some(index), "{what}");
        assert!(opened.recovered.control.iter().take(4).map(|(index, _)| index.0).eq(1..=4), "{what}");
    }
    // The record that replaced thousands of entries is missing from both copies.
    let dir = after.copy("compaction-salvage-lost");
    for name in COPIES {
        let path = dir.0.join(name);
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.windows(2).position(|pair| pair == [0xE5, b'S']).expect("a record of what was left out");
        bytes[at + 3] ^= 1;
        fs::write(&path, bytes).unwrap();
    }
    assert!(dir.open().is_err());
    let report = tribunal_log::salvage(&dir.0).unwrap();
    assert_eq!(report.control_lost.len(), 2, "the first and the last of the entries that cannot be told: {report:?}");
    let is_left_out = |opened: &Opened| {
        let lost = ControlIndex(report.control_lost[1]);
        opened.recovered.control_left_out.iter().any(|run| run.contains(&lost))
    };
    let mut opened = dir.open().unwrap();
    assert_eq!(opened.recovered.control.last().map(|(index, _)| index.0), Some(index));
    assert!(!is_left_out(&opened), "lost, not left out");
    // Nor does a later compaction count it among what it leaves out.
    let mut next = index;
    churn(&mut opened, &mut next, MANY);
    assert!(opened.writer.compact_control().unwrap(), "there is much to leave out");
    drop(opened);
    let opened = dir.open().unwrap();
    assert!(!opened.recovered.control_left_out.is_empty() && !is_left_out(&opened));
    assert_eq!(opened.recovered.control.last().unwrap().0, ControlIndex(next));
}

/// Churns until it is killed; prints the last durable index. It is a test only so that this binary can start it.
#[test]
fn child_that_churns_until_killed() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let mut opened = tribunal_log::open(dir.as_ref(), &fixture::options()).unwrap();
    let mut index = opened.recovered.control.last().map_or(0, |(index, _)| index.0);
    if index == 0 {
        index = begun(&mut opened);
    }
    let mut out = std::io::stdout();
    loop {
        churn(&mut opened, &mut index, MANY / 4);
        writeln!(out, "acked {index}").unwrap();
        out.flush().unwrap();
        if opened.writer.compact_control().unwrap() {
            writeln!(out, "rewritten").unwrap();
            out.flush().unwrap();
        }
    }
}

#[test]
fn kill_minus_nine_during_rewrites_loses_nothing() {
    let kills = std::env::var("TRIBUNAL_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(20_u64);
    let dir = Dir::new("compaction-kill");
    let mut random = Random(kills);
    let mut acked = 0;
    for round in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_churns_until_killed", "--nocapture"])
            .env(CHILD, &dir.0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut left = 1 + random.below(4);
        let mut note = |line: &str| match line.rsplit_once("acked ").and_then(|(_, index)| index.parse::<u64>().ok()) {
            Some(index) => {
                acked = index;
                true
            }
            None => false,
        };
        for line in lines.by_ref().map_while(Result::ok) {
            left -= u64::from(note(&line));
            if left == 0 {
                break;
            }
        }
        // The child compacts every few rounds; a compaction takes some milliseconds.
        std::thread::sleep(Duration::from_micros(random.below(12_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        for line in lines.map_while(Result::ok) {
            note(&line);
        }
        let opened = dir.open().unwrap_or_else(|error| panic!("round {round}: {error}"));
        let control = &opened.recovered.control;
        let last = control.last().map_or(0, |(index, _)| index.0);
        assert!(last >= acked, "round {round}: {acked} was durable, the control log ends with {last}");
        assert!(control.iter().take(4).map(|(index, _)| index.0).eq(1..=4), "round {round}");
        // Entries appended but not acknowledged may exist.
        acked = last;
    }
}
