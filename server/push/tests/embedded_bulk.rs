//! The embedded store under bulk load: new rows only, far more than fit into its memory.
//!
//! `BULK_ROWS` (default 1,500,000) and `BULK_MEMORY_MIB` (default 32) change the size.

#[path = "../src/testing.rs"]
mod testing;

use std::sync::{Arc, mpsc};
use std::time::Duration;

use testing::{MemoryLog, STORE, TempDir};
use tribunal_push::{EmbeddedStore, EpochSource};
use tribunal_types::Lsn;
use tribunal_types::WriteKind::{self, Put};

const ROWS_PER_EPOCH: u64 = 10_000;
/// Generous limit for applying one epoch, to detect a store that hangs.
const EPOCH_WAIT_MAX: Duration = Duration::from_secs(120);

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Spreads keys over the whole range, like hashes.
fn key(row: u64) -> String {
    let spread = row.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{spread:016x}-{row:016x}-a-name-of-sixty-bytes-in-all")
}

#[test]
fn a_bulk_load_of_new_rows_completes() {
    let rows = setting("BULK_ROWS", 1_500_000);
    let memory_bytes = setting("BULK_MEMORY_MIB", 32) << 20;
    let (dir, log) = (TempDir::new("bulk"), MemoryLog::new());
    let open = || {
        let source = Arc::clone(&log) as Arc<dyn EpochSource>;
        Arc::new(EmbeddedStore::open(dir.path(), memory_bytes, STORE, source).expect("opens"))
    };
    let store = open();
    let (done, results) = mpsc::channel();
    let (writer, records) = (Arc::clone(&store), Arc::clone(&log));
    let thread = std::thread::spawn(move || {
        for first in (0..rows).step_by(ROWS_PER_EPOCH as usize) {
            let pairs = (first..rows.min(first + ROWS_PER_EPOCH)).map(|row| (key(row), row.to_string()));
            let pairs: Vec<(String, String)> = pairs.collect();
            let writes: Vec<(WriteKind, &str, &str)> =
                pairs.iter().map(|(key, value)| (Put, &**key, &**value)).collect();
            records.commit(&writes);
            if done.send(writer.catch_up()).is_err() {
                return;
            }
        }
    });
    let epochs = rows.div_ceil(ROWS_PER_EPOCH);
    for epoch in 1..=epochs {
        let Ok(result) = results.recv_timeout(EPOCH_WAIT_MAX) else {
            std::mem::forget(store);
            panic!("epoch {epoch} was not applied within {EPOCH_WAIT_MAX:?}");
        };
        result.expect("applies");
    }
    thread.join().expect("everything was applied");
    for row in [0, rows / 2, rows - 1] {
        let (found, _) = store.get(key(row).as_bytes()).expect("readable");
        assert_eq!(found.map(|row| row.value), Some(row.to_string().into_bytes()));
    }
    drop(store);
    let store = open();
    assert!(store.applied() > Lsn(0), "memory was too small for all rows, so some are on the disk");
    store.catch_up().expect("the log has the remaining records");
    assert_eq!(store.applied().0, epochs);
    let (mut next, mut seen) = (Vec::new(), 0);
    loop {
        let page = store.scan(&next, b"", 50_000).expect("scans");
        seen += page.rows.len() as u64;
        match page.next {
            Some(key) => next = key,
            None => break,
        }
    }
    assert_eq!(seen, rows);
}
