//! Tests of the embedded store as a whole.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::*;
use crate::testing::{ORIGIN, TempDir, raw_command};
use tribunal_types::WriteKind::{Add, Delete, Insert, Put, Update};

fn reply(store: &EmbeddedStore, command: &[u8]) -> (u8, u64, String) {
    let bytes = store.execute(command, ORIGIN);
    let watermark = u64::from_le_bytes(bytes[1..9].try_into().expect("8 bytes"));
    (bytes[0], watermark, String::from_utf8(bytes[9..].to_vec()).expect("utf-8"))
}

fn value(store: &EmbeddedStore, key: &str) -> Option<String> {
    let (row, _) = store.get(key.as_bytes()).expect("readable");
    row.map(|row| String::from_utf8(row.value).expect("utf-8"))
}

#[test]
fn applies_every_kind_and_survives_reopening() {
    let dir = TempDir::new("embedded-kinds");
    {
        let store = EmbeddedStore::open(dir.path(), 1 << 20).expect("opens");
        assert_eq!(reply(&store, &raw_command(0, 0, &[])), (0, 0, String::new()));
        let rows = [(Insert, "a", "1"), (Put, "b", "{\"x\":1}"), (Insert, "c", "7")];
        assert_eq!(reply(&store, &raw_command(0, 2, &rows)).0, 0);
        let rows = [(Add, "a", "41"), (Delete, "b", ""), (Update, "c", "8"), (Add, "c", "-10"), (Add, "c", "1")];
        assert_eq!(reply(&store, &raw_command(2, 5, &rows)), (0, 5, String::new()));
    }
    let store = EmbeddedStore::open(dir.path(), 1 << 20).expect("opens again");
    assert_eq!(store.applied(), Lsn(5));
    assert_eq!(value(&store, "a").as_deref(), Some("42"));
    assert_eq!(value(&store, "b"), None);
    assert_eq!(value(&store, "c").as_deref(), Some("-1"));
    let page = store.scan(b"", b"", 1).expect("scans");
    assert_eq!((page.rows.len(), page.next.as_deref(), page.applied), (1, Some(&b"c"[..]), Lsn(5)));
    assert_eq!(store.scan(b"b", b"c", 10).expect("scans").rows, []);
    assert_eq!(store.scan(b"c", b"a", 10).expect("an empty range scans").rows, []);
}

#[test]
fn a_replay_moves_nothing() {
    let dir = TempDir::new("embedded-replay");
    let store = EmbeddedStore::open(dir.path(), 1 << 20).expect("opens");
    let push = raw_command(0, 1, &[(Insert, "n", "1")]);
    assert_eq!(reply(&store, &push).0, 0);
    let add = raw_command(1, 2, &[(Add, "n", "1")]);
    assert_eq!(reply(&store, &add).0, 0);
    for replay in [&push, &add, &raw_command(3, 4, &[(Add, "n", "1")])] {
        let (status, watermark, text) = reply(&store, replay);
        assert_eq!((status, watermark), (1, 2), "{text}");
    }
    assert_eq!(value(&store, "n").as_deref(), Some("2"));
}

#[test]
fn refuses_what_can_never_be_applied_and_changes_nothing() {
    let dir = TempDir::new("embedded-fatal");
    let store = EmbeddedStore::open(dir.path(), 1 << 20).expect("opens");
    let rows = [(Insert, "n", "9223372036854775807"), (Insert, "s", "\"x\"")];
    assert_eq!(reply(&store, &raw_command(0, 1, &rows)).0, 0);
    for (rows, word) in [
        (vec![(Put, "z", "1"), (Add, "n", "1")], "overflows"),
        (vec![(Add, "s", "1")], "no 64-bit integer"),
        (vec![(Add, "n", "0.5")], "no 64-bit integer"),
        (vec![(Add, "gone", "1")], "missing row"),
        (vec![(Delete, "n", ""), (Add, "n", "1")], "missing row"),
    ] {
        let (status, watermark, text) = reply(&store, &raw_command(1, 2, &rows));
        assert_eq!((status, watermark), (2, 1), "{text}");
        assert!(text.contains(word) && text.contains("LSN 2..=2"), "{text}");
    }
    assert_eq!(value(&store, "z"), None);
    let good = raw_command(1, 2, &[(Put, "z", "1")]);
    for cut in 0..good.len() {
        assert_eq!(reply(&store, &good[..cut]).0, 2, "cut at {cut}");
    }
    assert_eq!(reply(&store, &[&good[..], b"x"].concat()).0, 2);
    let mut wrong = good.clone();
    wrong[16..20].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(reply(&store, &wrong).0, 2);
    assert_eq!(reply(&store, &good), (0, 2, String::new()));
}

fn checkpoint(store: &EmbeddedStore) {
    assert!(store.shared.begin_checkpoint(&mut store.journal.lock()).is_ok(), "the store is usable");
    while store.shared.checkpoint_busy() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    store.shared.usable().expect("the checkpoint succeeded");
}

#[test]
fn a_row_of_the_largest_size_lasts_through_checkpoints_and_is_removed() {
    let dir = TempDir::new("embedded-large");
    let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens");
    let large = format!("\"{}\"", "x".repeat(tribunal_types::limits::VALUE_BYTES_MAX - 2));
    for (lsn, value_of_k) in [&large, "1"].into_iter().enumerate() {
        let rows = [(Put, "k", value_of_k), (Put, "kk", "2")];
        assert_eq!(reply(&store, &raw_command(lsn as u64, lsn as u64 + 1, &rows)).0, 0);
        checkpoint(&store);
        assert_eq!(value(&store, "k").as_deref(), Some(value_of_k));
    }
    assert_eq!(store.scan(b"k", b"", 10).expect("scans").rows.len(), 2);
    assert_eq!(reply(&store, &raw_command(2, 3, &[(Delete, "k", "")])).0, 0);
    checkpoint(&store);
    drop(store);
    let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens again");
    assert_eq!((value(&store, "k"), value(&store, "kk").as_deref()), (None, Some("2")));
    assert_eq!(store.scan(b"", b"", 10).expect("scans").rows.len(), 1);
}

#[test]
fn layers_agree_with_a_map_through_checkpoints_and_restarts() {
    let dir = TempDir::new("embedded-model");
    let mut store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens");
    let mut model = BTreeMap::new();
    let mut random = 7u64;
    for lsn in 0..400u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (key, number) = (format!("k{:02}", (random >> 33) % 40), (random >> 50).to_string());
        let (kind, text) = match ((random >> 20) % 4, model.get(&key)) {
            (0, Some(_)) => (Delete, ""),
            (1, Some(_)) => (Add, number.as_str()),
            _ => (Put, number.as_str()),
        };
        match kind {
            Delete => drop(model.remove(&key)),
            Add => *model.get_mut(&key).expect("looked at") += number.parse::<i64>().expect("a number"),
            _ => drop(model.insert(key.clone(), number.parse::<i64>().expect("a number"))),
        }
        assert_eq!(reply(&store, &raw_command(lsn, lsn + 1, &[(kind, &key, text)])), (0, lsn + 1, String::new()));
        match lsn % 23 {
            5 => checkpoint(&store),
            17 => {
                drop(store);
                store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens again");
                assert_eq!(store.applied(), Lsn(lsn + 1));
            }
            _ => {}
        }
        let page = store.scan(b"k1", b"k3", 100).expect("scans");
        let rows: Vec<_> = page.rows.iter().map(|row| (row.key.clone(), row.value.clone())).collect();
        let expected: Vec<_> = model
            .range("k1".to_owned().."k3".to_owned())
            .map(|(key, number)| (key.clone().into_bytes(), number.to_string().into_bytes()))
            .collect();
        assert_eq!(rows, expected, "after LSN {}", lsn + 1);
        assert_eq!(value(&store, &key), model.get(&key).map(i64::to_string));
    }
}

#[test]
fn a_cut_or_flipped_journal_costs_its_tail_only() {
    for (name, damage) in [("cut", Damage::Cut), ("flip", Damage::Flip)] {
        let dir = TempDir::new(&format!("embedded-{name}"));
        {
            let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens");
            for lsn in 0..10 {
                assert_eq!(reply(&store, &raw_command(lsn, lsn + 1, &[(Put, "k", &lsn.to_string())])).0, 0);
            }
        }
        let file = dir.path().join("journal/journal-0");
        let mut bytes = fs::read(&file).expect("the journal is there");
        let middle = bytes.len() / 2;
        match damage {
            Damage::Cut => bytes.truncate(middle),
            Damage::Flip => bytes[middle] ^= 4,
        }
        fs::write(&file, bytes).expect("writes");
        let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens again");
        let at = store.applied().0;
        assert!((1..10).contains(&at), "{name}: {at}");
        assert_eq!(value(&store, "k"), Some((at - 1).to_string()));
        assert_eq!(reply(&store, &raw_command(9, 10, &[(Put, "k", "9")])).0, 1, "moved");
        for lsn in at..10 {
            assert_eq!(reply(&store, &raw_command(lsn, lsn + 1, &[(Put, "k", &lsn.to_string())])).0, 0);
        }
        drop(store);
        let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens past the damage");
        assert_eq!((store.applied(), value(&store, "k").as_deref()), (Lsn(10), Some("9")));
    }
}

enum Damage {
    Cut,
    Flip,
}

#[test]
fn what_follows_a_lost_tail_is_forgotten_and_what_is_pushed_again_lasts() {
    let dir = TempDir::new("embedded-gap");
    let push = |store: &EmbeddedStore, lsn: u64| {
        assert_eq!(reply(store, &raw_command(lsn, lsn + 1, &[(Put, "k", &lsn.to_string())])).0, 0);
    };
    let file = |number: u64| dir.path().join(format!("journal/journal-{number}"));
    let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens");
    (0..4).for_each(|lsn| push(&store, lsn));
    // A second file, while the rows of the first are still on their way to a run.
    drop(store.journal.lock().turn());
    (4..8).for_each(|lsn| push(&store, lsn));
    drop(store);
    // The tail of the first file is damaged, the second is whole.
    let len = fs::metadata(file(0)).expect("is there").len();
    fs::OpenOptions::new().write(true).open(file(0)).and_then(|f| f.set_len(len - 3)).expect("cuts");
    let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens past the cut");
    assert_eq!(store.applied(), Lsn(3));
    assert!(!file(1).exists(), "it does not follow");
    (3..9).for_each(|lsn| push(&store, lsn));
    drop(store);
    let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens again");
    assert_eq!((store.applied(), value(&store, "k").as_deref()), (Lsn(9), Some("8")));
}

#[test]
fn readers_never_see_half_a_push() {
    let dir = TempDir::new("embedded-whole");
    let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens");
    let names: Vec<String> = (0..50).map(|i| format!("k{i:02}")).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0u64;
            while !done.load(Ordering::Relaxed) || seen == 0 {
                let page = store.scan(b"", b"", 100).expect("scans");
                assert!(page.rows.windows(2).all(|w| w[0].value == w[1].value), "a torn push at {}", page.applied);
                if page.applied > Lsn(0) {
                    assert_eq!(page.rows.len(), names.len());
                    assert_eq!(page.rows[0].value, page.applied.to_string().into_bytes());
                    seen += 1;
                }
            }
        });
        for lsn in 1..=60u64 {
            let text = lsn.to_string();
            let rows: Vec<_> = names.iter().map(|name| (Put, name.as_str(), text.as_str())).collect();
            assert_eq!(reply(&store, &raw_command(lsn - 1, lsn, &rows)).0, 0);
        }
        done.store(true, Ordering::Relaxed);
        reader.join().expect("the reader saw whole pushes only");
    });
}

/// Opens a copy that was taken while the store was in use; `None` if it is refused as damaged.
fn open_copy(from: &Path, to: &Path) -> Option<Arc<EmbeddedStore>> {
    let _ = fs::remove_dir_all(to);
    let copied = std::process::Command::new("cp").arg("-a").args([from, to]).output().expect("cp runs");
    // A file that vanished between the listing and its turn is what this is about.
    drop(copied);
    match EmbeddedStore::open(to, 8 << 20) {
        Ok(store) => Some(store),
        Err(EmbeddedError::Damaged(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_copy_taken_while_rows_are_written_is_whole_or_refused() {
    const KEYS: u64 = 2_000;
    let (dir, copies) = (TempDir::new("embedded-copied"), TempDir::new("embedded-copy"));
    let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens");
    let done = AtomicBool::new(false);
    let (mut whole, mut rows) = (0, 0);
    std::thread::scope(|scope| {
        let pusher = scope.spawn(|| {
            // The row that record n writes is n modulo KEYS, and its value is n.
            for lsn in 0u64.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                let (key, value) = (format!("key-{:04}", (lsn + 1) % KEYS), (lsn + 1).to_string());
                assert_eq!(reply(&store, &raw_command(lsn, lsn + 1, &[(Put, &key, &value)])).0, 0);
                if lsn % 300 == 299 {
                    checkpoint(&store);
                }
            }
        });
        for n in 0..30 {
            let Some(copy) = open_copy(dir.path(), &copies.path().join(n.to_string())) else { continue };
            whole += 1;
            let at = copy.applied().0;
            let page = copy.scan(b"", b"", usize::MAX).expect("scans");
            assert_eq!(page.rows.len() as u64, at.min(KEYS), "rows of a copy at LSN {at}");
            for row in &page.rows {
                let key: u64 = String::from_utf8_lossy(&row.key[4..]).parse().expect("a number");
                let value: u64 = String::from_utf8_lossy(&row.value).parse().expect("a number");
                assert!(value <= at && value + KEYS > at && value % KEYS == key, "{key} is {value} at LSN {at}");
                rows += 1;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        done.store(true, Ordering::Relaxed);
        pusher.join().expect("the pusher got all its answers");
    });
    assert!(whole >= 5 && rows > 1_000, "{whole} copies with {rows} rows were good enough to be looked at");
}

#[test]
fn a_store_whose_directory_is_gone_stops_within_bounds() {
    let dir = TempDir::new("embedded-gone");
    let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens");
    assert_eq!(reply(&store, &raw_command(0, 1, &[(Put, "k", "1")])).0, 0);
    fs::remove_dir_all(dir.path()).expect("removes");
    assert!(store.shared.begin_checkpoint(&mut store.journal.lock()).is_ok());
    while store.shared.checkpoint_busy() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let (status, watermark, text) = reply(&store, &raw_command(1, 2, &[(Put, "k", "2")]));
    assert_eq!((status, watermark), (2, 1), "{text}");
    let begun = Instant::now();
    drop(store);
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_failed_checkpoint_stops_the_store_and_costs_no_row() {
    let dir = TempDir::new("embedded-failed");
    let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens");
    assert_eq!(reply(&store, &raw_command(0, 1, &[(Put, "a", "1")])).0, 0);
    checkpoint(&store);
    assert_eq!(reply(&store, &raw_command(1, 2, &[(Put, "b", "2")])).0, 0);
    // Nothing can be written under that name.
    let in_the_way = dir.path().join("manifest.new");
    fs::create_dir(&in_the_way).expect("creates");
    assert!(store.shared.begin_checkpoint(&mut store.journal.lock()).is_ok());
    while store.shared.checkpoint_busy() {
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..2 {
        let (status, watermark, text) = reply(&store, &raw_command(2, 3, &[(Put, "c", "3")]));
        assert_eq!((status, watermark), (2, 2), "{text}");
    }
    assert_eq!(value(&store, "b").as_deref(), Some("2"), "it can still be read");
    drop(store);
    fs::remove_dir(in_the_way).expect("removes");
    let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens again");
    assert_eq!(store.applied(), Lsn(2));
    assert_eq!(reply(&store, &raw_command(2, 3, &[(Put, "c", "3")])).0, 0);
    checkpoint(&store);
    assert_eq!(store.scan(b"", b"", 10).expect("scans").rows.len(), 3);
}

#[test]
fn what_a_failed_start_or_checkpoint_leaves_does_not_hinder_the_next() {
    let dir = TempDir::new("embedded-leftovers");
    for name in ["run-0", "run-7", "manifest.new"] {
        fs::write(dir.path().join(name), b"").expect("writes");
    }
    fs::create_dir(dir.path().join("journal")).expect("creates");
    fs::write(dir.path().join("journal/journal-0"), b"").expect("writes");
    let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens");
    assert_eq!(store.applied(), Lsn(0));
    assert!(!dir.path().join("run-7").exists(), "nothing names it");
    assert_eq!(reply(&store, &raw_command(0, 1, &[(Put, "k", "1")])).0, 0);
    checkpoint(&store);
    assert!(dir.path().join("run-8").exists(), "numbers are never used twice");
}

#[test]
fn damage_is_found_and_never_read_as_rows() {
    let dir = TempDir::new("embedded-damage");
    let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens");
    let rows: Vec<(String, String)> = (0..3_000).map(|n| (format!("key-{n:05}"), n.to_string())).collect();
    let puts: Vec<_> = rows.iter().map(|(key, value)| (Put, key.as_str(), value.as_str())).collect();
    assert_eq!(reply(&store, &raw_command(0, 1, &puts)).0, 0);
    checkpoint(&store);
    drop(store);
    for name in ["run-0", "manifest"] {
        let path = dir.path().join(name);
        let good = fs::read(&path).expect("is there");
        for at in (0..good.len()).step_by(good.len() / 60 + 1) {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, bad).expect("writes");
            let opened = EmbeddedStore::open(dir.path(), 8 << 20).and_then(|store| {
                rows.iter().try_for_each(|(key, value)| {
                    let found = store.get(key.as_bytes())?.0.map(|row| row.value);
                    assert_eq!(found.as_deref(), Some(value.as_bytes()), "{name} with a bit of byte {at} flipped");
                    Ok(())
                })
            });
            assert!(matches!(opened, Err(EmbeddedError::Damaged(_))), "{name}, byte {at}: {opened:?}");
        }
        for len in [0, 1, good.len() / 2, good.len() - 1] {
            fs::write(&path, &good[..len]).expect("writes");
            let opened = EmbeddedStore::open(dir.path(), 8 << 20).map(|store| store.applied());
            assert!(matches!(opened, Err(EmbeddedError::Damaged(_))), "{name} cut at {len}: {opened:?}");
        }
        fs::write(&path, good).expect("writes");
    }
    fs::remove_file(dir.path().join("run-0")).expect("removes");
    let opened = EmbeddedStore::open(dir.path(), 8 << 20).map(|store| store.applied());
    assert!(matches!(opened, Err(EmbeddedError::Damaged(_))), "{opened:?}");
    EmbeddedStore::erase(dir.path()).expect("erases");
    assert_eq!(EmbeddedStore::open(dir.path(), 8 << 20).expect("opens").applied(), Lsn(0));
}

#[test]
fn an_empty_store_has_no_thread_and_two_entries_on_disk() {
    let dir = TempDir::new("embedded-empty");
    let stores: Vec<_> =
        (0..64).map(|n| EmbeddedStore::open(&dir.path().join(n.to_string()), 1 << 30).expect("opens")).collect();
    for (n, store) in stores.iter().enumerate() {
        assert_eq!(store.applied(), Lsn(0));
        let mut names: Vec<_> = fs::read_dir(dir.path().join(n.to_string()))
            .expect("is there")
            .map(|entry| entry.expect("readable").file_name().into_string().expect("utf-8"))
            .collect();
        names.sort();
        assert_eq!(names, ["journal", "lock"]);
        assert!(!store.shared.checkpoint_busy());
    }
}

#[test]
fn many_checkpoints_leave_few_runs_and_what_was_deleted_leaves_nothing() {
    let dir = TempDir::new("embedded-merge");
    let store = EmbeddedStore::open(dir.path(), 8 << 20).expect("opens");
    for lsn in 0..60u64 {
        let names: Vec<_> = (0..50).map(|n| format!("key-{:04}", (lsn * 37 + n * 11) % 900)).collect();
        let text = lsn.to_string();
        let kind = if lsn % 3 == 2 { Delete } else { Put };
        let rows: Vec<_> =
            names.iter().map(|name| (kind, name.as_str(), if kind == Put { text.as_str() } else { "" })).collect();
        assert_eq!(reply(&store, &raw_command(lsn, lsn + 1, &rows)).0, 0);
        checkpoint(&store);
    }
    let settled = Instant::now() + Duration::from_secs(60);
    while store.shared.runs.merge_is_due() && Instant::now() < settled {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(store.shared.runs.count() <= 12, "{}", store.shared.runs.count());
    let files = fs::read_dir(dir.path()).expect("is there").count();
    assert!(files <= 15, "{files} files");
    let mut model = BTreeMap::new();
    for lsn in 0..60u64 {
        for key in (0..50).map(|n| format!("key-{:04}", (lsn * 37 + n * 11) % 900)) {
            if lsn % 3 == 2 { drop(model.remove(&key)) } else { drop(model.insert(key, lsn.to_string())) }
        }
    }
    let rows = store.scan(b"", b"", usize::MAX).expect("scans").rows;
    let rows: Vec<_> = rows.into_iter().map(|row| (row.key, row.value)).collect();
    let expected: Vec<_> = model.into_iter().map(|(key, value)| (key.into_bytes(), value.into_bytes())).collect();
    assert_eq!(rows, expected);
}
