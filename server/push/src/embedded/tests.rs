//! Tests of the embedded store as a whole.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::testing::{MemoryLog, STORE, TempDir};
use crate::{AckSink, LogSource, OutOfUse, PushActivity};
use tribunal_types::WriteKind::{self, Add, Delete, Insert, Put, Update};

fn open(dir: &Path, log: &Arc<MemoryLog>) -> EmbeddedStore {
    EmbeddedStore::open(dir, 8 << 20, STORE, Arc::clone(log) as Arc<dyn EpochSource>).expect("opens")
}

/// Reopens the store and catches up, as a restart does.
fn reopen(store: EmbeddedStore, log: &Arc<MemoryLog>) -> EmbeddedStore {
    let dir = store.shared.dir.clone();
    drop(store);
    let store = open(&dir, log);
    store.catch_up().expect("the log has the missing records");
    store
}

fn commit(store: &EmbeddedStore, log: &MemoryLog, rows: &[(WriteKind, &str, &str)]) {
    let lsn = log.commit(rows);
    store.catch_up().expect("applies");
    assert_eq!(store.applied(), lsn);
}

fn value(store: &EmbeddedStore, key: &str) -> Option<String> {
    let (row, _) = store.get(key.as_bytes()).expect("readable");
    row.map(|row| String::from_utf8(row.value).expect("utf-8"))
}

fn flush(store: &EmbeddedStore) {
    store.flush().expect("the store is usable");
    assert!(store.wait_for_flush());
    store.shared.usable().expect("the flush succeeded");
}

#[test]
fn every_kind_of_write_is_applied_before_and_after_a_flush() {
    let (dir, log) = (TempDir::new("embedded-kinds"), MemoryLog::new());
    let mut store = open(dir.path(), &log);
    commit(&store, &log, &[(Insert, "a", "1"), (Put, "b", "{\"x\":1}"), (Insert, "c", "7")]);
    flush(&store);
    commit(
        &store,
        &log,
        &[(Add, "a", "41"), (Delete, "b", ""), (Update, "c", "8"), (Add, "c", "-10"), (Add, "c", "1")],
    );
    for _ in 0..2 {
        assert_eq!(value(&store, "a").as_deref(), Some("42"));
        assert_eq!(value(&store, "b"), None);
        assert_eq!(value(&store, "c").as_deref(), Some("-1"));
        let page = store.scan(b"", b"", 1).expect("scans");
        let at = ReadAt { lsn: Lsn(2), epoch: Epoch(2) };
        assert_eq!((page.rows.len(), page.next.as_deref(), page.at), (1, Some(&b"c"[..]), at));
        assert_eq!(store.scan(b"b", b"c", 10).expect("scans").rows, []);
        assert_eq!(store.scan(b"c", b"a", 10).expect("an empty range scans").rows, []);
        store = reopen(store, &log);
        assert_eq!((store.flushed(), store.applied()), (Lsn(1), Lsn(2)), "the rest came from the log");
    }
}

#[test]
fn a_read_sees_all_earlier_commits_whichever_reader_applied_them() {
    let (dir, log) = (TempDir::new("embedded-fresh"), MemoryLog::new());
    let store = open(dir.path(), &log);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Readers apply epochs for each other, concurrently with a writer.
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut reads = 0u64;
                    while !done.load(Ordering::Relaxed) || reads == 0 {
                        let head = log.head(STORE);
                        store.catch_up().expect("applies");
                        let (row, at) = store.get(b"k").expect("readable");
                        assert!(at.lsn >= head, "{} is before {head}", at.lsn);
                        assert_eq!(
                            row.map(|row| row.value),
                            (at.lsn > Lsn(0)).then(|| at.lsn.to_string().into_bytes())
                        );
                        reads += 1;
                    }
                    reads
                })
            })
            .collect();
        for lsn in 1..=2_000u64 {
            log.commit(&[(Put, "k", &lsn.to_string())]);
            if lsn % 500 == 0 {
                store.flush().expect("usable");
            }
        }
        done.store(true, Ordering::Relaxed);
        readers.into_iter().for_each(|reader| assert!(reader.join().expect("reads are never stale") > 0));
    });
}

#[test]
fn an_epoch_that_cannot_be_applied_leaves_the_store_unchanged() {
    for (rows, word) in [
        (vec![(Put, "z", "1"), (Add, "n", "1")], "overflows"),
        (vec![(Add, "s", "1")], "not a 64-bit integer"),
        (vec![(Add, "n", "0.5")], "not a 64-bit integer"),
        (vec![(Add, "gone", "1")], "missing row"),
        (vec![(Delete, "n", ""), (Add, "n", "1")], "missing row"),
    ] {
        let (dir, log) = (TempDir::new("embedded-fatal"), MemoryLog::new());
        let store = open(dir.path(), &log);
        commit(&store, &log, &[(Insert, "n", "9223372036854775807"), (Insert, "s", "\"x\"")]);
        log.commit_all(&[&[(Put, "y", "1")], &rows]);
        let refused = store.catch_up().expect_err("cannot be applied");
        assert!(matches!(&refused, EmbeddedError::Poison { lsn: Lsn(3), text } if text.contains(word)), "{refused}");
        assert_eq!((store.applied(), value(&store, "y"), value(&store, "z")), (Lsn(1), None, None));
        store.skip(Lsn(3));
        store.catch_up().expect("the record is skipped");
        assert_eq!((store.applied(), value(&store, "y").as_deref(), value(&store, "z")), (Lsn(3), Some("1"), None));
    }
}

#[test]
fn a_record_is_skipped_although_epochs_are_being_applied() {
    let (dir, log) = (TempDir::new("embedded-skip"), MemoryLog::new());
    let store = Arc::new(open(dir.path(), &log));
    log.commit(&[(Put, "k", "1")]);
    let applies = store.applier.lock();
    let (told, skipped) = std::sync::mpsc::channel();
    let skips = Arc::clone(&store);
    std::thread::spawn(move || {
        skips.skip(Lsn(1));
        let _ = told.send(());
    });
    // Commits wait for the thread that skips.
    assert_eq!(skipped.recv_timeout(Duration::from_secs(120)), Ok(()));
    drop(applies);
    store.catch_up().expect("applies");
    assert_eq!((store.applied(), value(&store, "k")), (Lsn(1), None));
}

#[test]
fn a_row_of_the_maximum_size_survives_flushes_and_can_be_deleted() {
    let (dir, log) = (TempDir::new("embedded-large"), MemoryLog::new());
    let store = open(dir.path(), &log);
    let large = format!("\"{}\"", "x".repeat(tribunal_types::limits::VALUE_BYTES_MAX - 2));
    for value_of_k in [&large, "1"] {
        commit(&store, &log, &[(Put, "k", value_of_k), (Put, "kk", "2")]);
        flush(&store);
        assert_eq!(value(&store, "k").as_deref(), Some(value_of_k));
    }
    assert_eq!(store.scan(b"k", b"", 10).expect("scans").rows.len(), 2);
    commit(&store, &log, &[(Delete, "k", "")]);
    flush(&store);
    let store = reopen(store, &log);
    assert_eq!((value(&store, "k"), value(&store, "kk").as_deref()), (None, Some("2")));
    assert_eq!(store.scan(b"", b"", 10).expect("scans").rows.len(), 1);
}

#[test]
fn layers_agree_with_a_map_across_flushes_and_restarts() {
    let (dir, log) = (TempDir::new("embedded-model"), MemoryLog::new());
    let mut store = open(dir.path(), &log);
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
        commit(&store, &log, &[(kind, &key, text)]);
        match lsn % 23 {
            5 => flush(&store),
            17 => {
                store = reopen(store, &log);
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
fn readers_never_see_a_partial_epoch() {
    let (dir, log) = (TempDir::new("embedded-whole"), MemoryLog::new());
    let store = open(dir.path(), &log);
    let names: Vec<String> = (0..50).map(|i| format!("k{i:02}")).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0u64;
            while !done.load(Ordering::Relaxed) || seen == 0 {
                let page = store.scan(b"", b"", 100).expect("scans");
                assert!(page.rows.windows(2).all(|w| w[0].value == w[1].value), "a torn epoch at {:?}", page.at);
                if page.at.lsn > Lsn(0) {
                    assert_eq!(page.rows.len(), names.len());
                    assert_eq!(page.rows[0].value, page.at.epoch.to_string().into_bytes());
                    seen += 1;
                }
            }
        });
        for lsn in 1..=60u64 {
            let text = lsn.to_string();
            let rows: Vec<_> = names.iter().map(|name| (Put, name.as_str(), text.as_str())).collect();
            let (one, other) = rows.split_at(25);
            log.commit_all(&[one, other]);
            store.catch_up().expect("applies");
        }
        done.store(true, Ordering::Relaxed);
        reader.join().expect("the reader saw complete epochs only");
    });
}

/// Opens a copy that was taken while the store was in use; `None` if it is rejected as damaged.
fn open_copy(from: &Path, to: &Path, log: &Arc<MemoryLog>) -> Option<EmbeddedStore> {
    let _ = fs::remove_dir_all(to);
    let copied = std::process::Command::new("cp").arg("-a").args([from, to]).output().expect("cp runs");
    // A file that vanishes between listing and copying is one of the cases under test.
    drop(copied);
    match EmbeddedStore::open(to, 8 << 20, STORE, Arc::clone(log) as Arc<dyn EpochSource>) {
        Ok(store) => Some(store),
        Err(EmbeddedError::Damaged(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_copy_taken_during_writes_is_complete_or_rejected() {
    const KEYS: u64 = 2_000;
    let (dir, copies) = (TempDir::new("embedded-copied"), TempDir::new("embedded-copy"));
    let log = MemoryLog::new();
    let store = open(dir.path(), &log);
    let done = AtomicBool::new(false);
    let (mut whole, mut rows) = (0, 0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            // Record n writes the value n to row n modulo KEYS.
            for lsn in 0u64.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                let (key, value) = (format!("key-{:04}", (lsn + 1) % KEYS), (lsn + 1).to_string());
                commit(&store, &log, &[(Put, &key, &value)]);
                if lsn % 300 == 299 {
                    flush(&store);
                }
            }
        });
        // Repeat until some copies were good enough to be inspected.
        for n in 0..1_000 {
            if n >= 30 && whole >= 5 && rows > 1_000 {
                break;
            }
            let Some(copy) = open_copy(dir.path(), &copies.path().join(n.to_string()), &log) else { continue };
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
        writer.join().expect("everything was applied");
    });
    assert!(whole >= 5 && rows > 1_000, "{whole} copies with {rows} rows were good enough to be looked at");
}

#[test]
fn a_store_whose_directory_is_gone_stops_within_bounds() {
    let (dir, log) = (TempDir::new("embedded-gone"), MemoryLog::new());
    let store = open(dir.path(), &log);
    commit(&store, &log, &[(Put, "k", "1")]);
    fs::remove_dir_all(dir.path()).expect("removes");
    store.flush().expect("begins");
    assert!(store.wait_for_flush());
    log.commit(&[(Put, "k", "2")]);
    assert!(matches!(store.catch_up(), Err(EmbeddedError::OutOfUse(_))));
    let begun = Instant::now();
    drop(store);
    assert!(begun.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_failed_flush_stops_the_store_and_loses_no_row() {
    let (dir, log) = (TempDir::new("embedded-failed"), MemoryLog::new());
    let store = open(dir.path(), &log);
    commit(&store, &log, &[(Put, "a", "1")]);
    flush(&store);
    commit(&store, &log, &[(Put, "b", "2")]);
    // A directory of this name makes writing the manifest fail.
    let in_the_way = dir.path().join("manifest.new");
    fs::create_dir(&in_the_way).expect("creates");
    store.flush().expect("begins");
    assert!(store.wait_for_flush());
    log.commit(&[(Put, "c", "3")]);
    for _ in 0..2 {
        assert!(matches!(store.catch_up(), Err(EmbeddedError::OutOfUse(_))));
    }
    assert_eq!((store.applied(), store.flushed()), (Lsn(2), Lsn(1)));
    fs::remove_dir(in_the_way).expect("removes");
    let store = reopen(store, &log);
    assert_eq!(store.applied(), Lsn(3));
    flush(&store);
    assert_eq!(store.scan(b"", b"", 10).expect("scans").rows.len(), 3);
}

/// Counts a follower's reports about its store.
#[derive(Default)]
struct Reports {
    failed: AtomicUsize,
    rewound: AtomicUsize,
    opened: AtomicUsize,
    damaged: AtomicUsize,
    out_of_use: AtomicUsize,
    restored: AtomicUsize,
}

impl AckSink for Reports {
    fn acked(&self, _: StoreId, _: Lsn) {}

    fn rewound(&self, _: StoreId, _: Lsn) {
        self.rewound.fetch_add(1, Ordering::Relaxed);
    }

    fn forked(&self, _: StoreId, _: Option<Lsn>) {}

    fn failed(&self, _: StoreId, _: &str) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    fn opened(&self, _: StoreId) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    fn damaged(&self, _: StoreId) {
        self.damaged.fetch_add(1, Ordering::Relaxed);
    }

    fn out_of_use(&self, _: StoreId) {
        self.out_of_use.fetch_add(1, Ordering::Relaxed);
    }

    fn restored(&self, _: StoreId) {
        self.restored.fetch_add(1, Ordering::Relaxed);
    }
}

async fn until(handle: &crate::PushHandle, activity: PushActivity) {
    while handle.status().activity != activity {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Nothing is flushed in between: the position on disk is the one reported before.
#[tokio::test]
async fn a_store_that_goes_on_after_a_skipped_record_reports_where_it_is() {
    let (dir, log) = (TempDir::new("embedded-skipped"), MemoryLog::new());
    let store = Arc::new(open(dir.path(), &log));
    let reports = Arc::new(Reports::default());
    let (follower, handle) = Follower::new(Arc::clone(&store), STORE, Arc::clone(&reports) as Arc<dyn AckSink>, None);
    let test = async {
        until(&handle, PushActivity::Idle).await;
        log.commit(&[(Add, "gone", "1")]);
        // This log wakes no follower.
        handle.resume();
        until(&handle, PushActivity::Stopped).await;
        assert_eq!((handle.status().poison, reports.rewound.load(Ordering::Relaxed)), (Some(Lsn(1)), 1));
        store.skip(Lsn(1));
        handle.resume();
        until(&handle, PushActivity::Idle).await;
        while reports.rewound.load(Ordering::Relaxed) < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), follower.run(test)).await.expect("it reports again");
    assert_eq!((store.applied(), reports.failed.load(Ordering::Relaxed)), (Lsn(1), 1));
}

/// The store continues: the rows of other blocks are intact.
#[tokio::test]
async fn damage_that_a_reader_finds_is_reported_at_once_and_again_after_the_next_opening() {
    let (dir, log) = (TempDir::new("embedded-found"), MemoryLog::new());
    let store = Arc::new(open(dir.path(), &log));
    commit(&store, &log, &[(Put, "a", "1")]);
    flush(&store);
    drop(store);
    let run = dir.path().join("run-0");
    let mut bytes = fs::read(&run).expect("is there");
    bytes[0] ^= 1;
    fs::write(&run, bytes).expect("writes");
    for known in [0, 1] {
        let store = Arc::new(open(dir.path(), &log));
        let reports = Arc::new(Reports::default());
        let (follower, handle) =
            Follower::new(Arc::clone(&store), STORE, Arc::clone(&reports) as Arc<dyn AckSink>, None);
        let test = async {
            until(&handle, PushActivity::Idle).await;
            while reports.rewound.load(Ordering::Relaxed) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert!(matches!(store.get(b"a"), Err(EmbeddedError::Damaged(_))));
            while reports.damaged.load(Ordering::Relaxed) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert_eq!(usize::from(store.damage().is_some()), known);
        tokio::time::timeout(Duration::from_secs(60), follower.run(test))
            .await
            .expect("the follower reports the damage");
        let counts = [&reports.opened, &reports.damaged, &reports.failed].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [1, 1, 0]);
    }
}

/// Returns the task of a store that was out of use before because of `failure`.
fn follower(store: &Arc<EmbeddedStore>, failure: Option<String>) -> (Follower, crate::PushHandle, Arc<Reports>) {
    let reports = Arc::new(Reports::default());
    let sink = Arc::clone(&reports) as Arc<dyn AckSink>;
    let (follower, handle) = Follower::new(Arc::clone(store), STORE, sink, failure);
    (follower, handle, reports)
}

#[tokio::test]
async fn a_failed_flush_of_an_idle_store_ends_its_task_and_the_reopened_one_works_once_it_has_flushed() {
    let (dir, log) = (TempDir::new("embedded-idle"), MemoryLog::new());
    let store = Arc::new(open(dir.path(), &log));
    commit(&store, &log, &[(Put, "a", "1")]);
    let obstacle = dir.path().join("manifest.new");
    fs::create_dir(&obstacle).expect("creates");
    let counts = |reports: &Reports| {
        [&reports.failed, &reports.out_of_use, &reports.restored].map(|count| count.load(Ordering::Relaxed))
    };
    let (task, handle, reports) = follower(&store, None);
    let flushes = async {
        until(&handle, PushActivity::Idle).await;
        store.flush().expect("begins");
        std::future::pending().await
    };
    let end = tokio::time::timeout(Duration::from_secs(60), task.run(flushes)).await.expect("it ends");
    let text = end.expect("its disk fails it").text;
    assert!(text.contains("Is a directory"), "{text}");
    assert_eq!((counts(&reports), handle.status().lag), ([0, 1, 0], 0));
    drop(store);
    // Still the same disk: what is in memory is flushed at once.
    let store = Arc::new(open(dir.path(), &log));
    let (task, _, reports) = follower(&store, Some(text.clone()));
    let run = task.run(std::future::pending());
    let end = tokio::time::timeout(Duration::from_secs(60), run).await.expect("it ends");
    assert_eq!(end, Some(OutOfUse { text, worked_for: Duration::ZERO }));
    assert_eq!((counts(&reports), store.flushed()), ([0, 1, 0], Lsn(0)));
    drop(store);
    fs::remove_dir(obstacle).expect("removes");
    let store = Arc::new(open(dir.path(), &log));
    let (task, handle, reports) = follower(&store, Some("a failure".into()));
    assert_eq!(handle.status().last_error.as_deref(), Some("a failure"));
    let works = async {
        until(&handle, PushActivity::Idle).await;
        assert_eq!((handle.status().last_error, handle.status().attempts), (None, 0));
        while reports.restored.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let end = tokio::time::timeout(Duration::from_secs(60), task.run(works)).await.expect("it ends");
    assert_eq!((end, counts(&reports), store.flushed()), (None, [0, 0, 1], Lsn(1)));
}

#[test]
fn leftovers_of_a_failed_start_or_flush_do_not_affect_the_next() {
    let dir = TempDir::new("embedded-leftovers");
    for name in ["run-0", "run-7", "manifest.new"] {
        fs::write(dir.path().join(name), b"").expect("writes");
    }
    let log = MemoryLog::new();
    let store = open(dir.path(), &log);
    assert_eq!(store.applied(), Lsn(0));
    assert!(!dir.path().join("run-7").exists(), "no manifest lists it");
    commit(&store, &log, &[(Put, "k", "1")]);
    flush(&store);
    assert!(dir.path().join("run-8").exists(), "numbers are never reused");
}

#[test]
fn damage_is_detected_and_never_read_as_rows() {
    let (dir, log) = (TempDir::new("embedded-damage"), MemoryLog::new());
    let store = open(dir.path(), &log);
    let rows: Vec<(String, String)> = (0..3_000).map(|n| (format!("key-{n:05}"), n.to_string())).collect();
    let puts: Vec<_> = rows.iter().map(|(key, value)| (Put, key.as_str(), value.as_str())).collect();
    commit(&store, &log, &puts);
    flush(&store);
    drop(store);
    let open = || EmbeddedStore::open(dir.path(), 8 << 20, STORE, Arc::clone(&log) as Arc<dyn EpochSource>);
    for name in ["run-0", "manifest"] {
        let path = dir.path().join(name);
        let good = fs::read(&path).expect("is there");
        for at in (0..good.len()).step_by(good.len() / 60 + 1) {
            let mut bad = good.clone();
            bad[at] ^= 1;
            fs::write(&path, bad).expect("writes");
            let opened = open().and_then(|store| {
                rows.iter().try_for_each(|(key, value)| {
                    let found = store.get(key.as_bytes())?.0.map(|row| row.value);
                    assert_eq!(found.as_deref(), Some(value.as_bytes()), "{name} with a bit of byte {at} flipped");
                    Ok(())
                })
            });
            assert!(matches!(opened, Err(EmbeddedError::Damaged(_))), "{name}, byte {at}: {opened:?}");
        }
        let noted = EmbeddedStore::damage_in(dir.path());
        assert!(noted.is_some_and(|noted| noted.contains("does not match its checksum")), "a damaged block was read");
        for len in [0, 1, good.len() / 2, good.len() - 1] {
            fs::write(&path, &good[..len]).expect("writes");
            let opened = open().map(|store| store.applied());
            assert!(matches!(opened, Err(EmbeddedError::Damaged(_))), "{name} cut at {len}: {opened:?}");
        }
        fs::write(&path, good).expect("writes");
    }
    fs::remove_file(dir.path().join("run-0")).expect("removes");
    let opened = open().map(|store| store.applied());
    assert!(matches!(opened, Err(EmbeddedError::Damaged(_))), "{opened:?}");
    let aside = EmbeddedStore::set_aside(dir.path()).expect("sets aside");
    assert_eq!(open().expect("opens").applied(), Lsn(0));
    assert!(aside.join("manifest").exists(), "nothing is deleted");
    fs::remove_dir_all(aside).expect("removes");
}

#[test]
fn an_empty_store_has_only_a_lock_on_disk() {
    let (dir, log) = (TempDir::new("embedded-empty"), MemoryLog::new());
    let stores: Vec<_> = (0..64).map(|n| open(&dir.path().join(n.to_string()), &log)).collect();
    for (n, store) in stores.iter().enumerate() {
        assert_eq!(store.applied(), Lsn(0));
        let mut names: Vec<_> = fs::read_dir(dir.path().join(n.to_string()))
            .expect("is there")
            .map(|entry| entry.expect("readable").file_name().into_string().expect("utf-8"))
            .collect();
        names.sort();
        assert_eq!(names, ["lock"]);
    }
}

#[test]
fn many_flushes_leave_few_runs_and_deleted_rows_leave_nothing() {
    let (dir, log) = (TempDir::new("embedded-merge"), MemoryLog::new());
    let store = open(dir.path(), &log);
    for lsn in 0..60u64 {
        let names: Vec<_> = (0..50).map(|n| format!("key-{:04}", (lsn * 37 + n * 11) % 900)).collect();
        let text = lsn.to_string();
        let kind = if lsn % 3 == 2 { Delete } else { Put };
        let rows: Vec<_> =
            names.iter().map(|name| (kind, name.as_str(), if kind == Put { text.as_str() } else { "" })).collect();
        commit(&store, &log, &rows);
        flush(&store);
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

/// Returns the bytes of all runs in a directory.
fn bytes_of_runs(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).expect("is there").map(|file| file.expect("listed"));
    let runs = files.filter(|file| file.file_name().to_string_lossy().starts_with("run-"));
    runs.map(|file| file.metadata().expect("has a size").len()).sum()
}

/// Waits until a compaction that may have begun has ended.
fn compacted(store: &EmbeddedStore) {
    store.shared.wait_until_idle();
    store.shared.usable().expect("the merge succeeded");
}

#[test]
fn the_bytes_of_a_store_are_known_without_reading_its_disk() {
    let (dir, log) = (TempDir::new("embedded-bytes"), MemoryLog::new());
    let store = open(dir.path(), &log);
    let total = |store: &EmbeddedStore| store.stored().total();
    assert_eq!(total(&store), 0);
    let head = ENTRY_OVERHEAD_BYTES as u64;
    commit(&store, &log, &[(Put, "key", "12345"), (Put, "b", "1")]);
    assert_eq!(total(&store), 2 * head + 8 + 2);
    commit(&store, &log, &[(Put, "key", "1234567"), (Add, "b", "99"), (Delete, "none", "")]);
    assert_eq!(total(&store), 3 * head + 10 + 4 + 4, "replaced values do not count, deleted rows do");
    flush(&store);
    assert_eq!((total(&store), store.stored().flushed()), (bytes_of_runs(dir.path()), bytes_of_runs(dir.path())));
    commit(&store, &log, &[(Put, "b", "2")]);
    assert_eq!(total(&store), bytes_of_runs(dir.path()) + head + 2, "each version counts");
    let before = total(&store);
    let store = reopen(store, &log);
    assert_eq!(total(&store), before, "the runs, and what the log has since");
    drop(store);
    assert_eq!(StoredBytes::read(dir.path()).total(), bytes_of_runs(dir.path()), "a closed one's are in its manifest");
}

#[test]
fn deleted_rows_free_their_room_once_it_is_reclaimed() {
    let (dir, log) = (TempDir::new("embedded-reclaim"), MemoryLog::new());
    let store = open(dir.path(), &log);
    let (large, long) = ("7".repeat(10_000), Duration::from_secs(3600));
    let keys: Vec<String> = (0..100).map(|n| format!("k{n:02}")).collect();
    let all = |kind| keys.iter().map(|key| (kind, key.as_str(), &*large)).collect::<Vec<_>>();
    commit(&store, &log, &all(Put));
    store.reclaim(Duration::ZERO).expect("usable");
    compacted(&store);
    assert_eq!(store.stored().flushed(), 0, "a flush would free nothing");
    flush(&store);
    let full = store.stored().total();
    assert!(full > 1_000_000, "{full}");
    // Nothing has changed.
    store.reclaim(Duration::ZERO).expect("usable");
    compacted(&store);
    assert_eq!((store.shared.runs.count(), store.stored().total()), (1, full));
    commit(&store, &log, &all(Delete)[..20]);
    assert!(store.stored().total() > full, "a deleted row takes room at first");
    store.reclaim(long).expect("usable");
    compacted(&store);
    let less = store.stored().total();
    assert!(less < full * 82 / 100, "{less} of {full}");
    assert_eq!((less, store.shared.runs.count()), (bytes_of_runs(dir.path()), 1));
    // Few rows wait until the last compaction is some time ago.
    commit(&store, &log, &all(Delete)[20..22]);
    store.reclaim(long).expect("usable");
    compacted(&store);
    assert!(store.stored().total() > less);
    store.reclaim(Duration::ZERO).expect("usable");
    compacted(&store);
    assert!(store.stored().total() < less * 99 / 100);
    assert_eq!((value(&store, "k21"), value(&store, "k22").as_deref()), (None, Some(&*large)));
    // Without rows there is no file.
    commit(&store, &log, &all(Delete)[22..]);
    store.reclaim(long).expect("usable");
    compacted(&store);
    assert_eq!(store.shared.runs.count(), 1, "even a worthwhile compaction rests");
    store.reclaim(Duration::ZERO).expect("usable");
    compacted(&store);
    assert_eq!((store.stored().total(), store.shared.runs.count(), bytes_of_runs(dir.path())), (0, 0, 0));
    commit(&store, &log, &[(Put, "a", "1"), (Delete, "k00", "")]);
    store.reclaim(Duration::ZERO).expect("usable");
    compacted(&store);
    assert!(
        store.stored().total() > 0 && store.stored().total() == bytes_of_runs(dir.path()),
        "flushed, without the deleted row"
    );
    let store = reopen(store, &log);
    assert_eq!((value(&store, "a").as_deref(), value(&store, "k00")), (Some("1"), None));
}
