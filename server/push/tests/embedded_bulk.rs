//! The embedded store under bulk load: rows that are all new, far more than its memory takes.
//!
//! `BULK_ROWS` (default 1,500,000) and `BULK_MEMORY_MIB` (default 32) change the size.

use std::sync::mpsc;
use std::time::Duration;

use tribunal_push::{EmbeddedStore, Origin};
use tribunal_types::{Digest, LogId};

const ORIGIN: Origin = Origin { log: LogId([7; 16]), digest: Digest(11) };
const ROWS_PER_PUSH: u64 = 10_000;
/// What one push may take at most, generously: a store that hangs never answers.
const PUSH_WAIT_MAX: Duration = Duration::from_secs(120);

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Spreads keys over the whole range, as hashed names do.
fn key(row: u64) -> String {
    let spread = row.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{spread:016x}-{row:016x}-a-name-of-sixty-bytes-in-all")
}

fn command(from: u64, rows: std::ops::Range<u64>) -> Vec<u8> {
    let to = from + 1;
    let count = (rows.end - rows.start) as u32;
    let mut bytes = [&from.to_le_bytes()[..], &to.to_le_bytes(), &count.to_le_bytes()].concat();
    for row in rows {
        bytes.push(2);
        bytes.extend_from_slice(&to.to_le_bytes());
        for piece in [key(row).as_bytes(), row.to_string().as_bytes()] {
            bytes.extend_from_slice(&(piece.len() as u32).to_le_bytes());
            bytes.extend_from_slice(piece);
        }
    }
    bytes
}

#[test]
fn new_rows_in_bulk_are_all_taken() {
    let rows = setting("BULK_ROWS", 1_500_000);
    let memory_bytes = setting("BULK_MEMORY_MIB", 32) << 20;
    let dir = std::env::temp_dir().join(format!("tribunal-bulk-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let store = EmbeddedStore::open(&dir, memory_bytes).expect("opens");
    let (done, replies) = mpsc::channel();
    let pusher = std::sync::Arc::clone(&store);
    let thread = std::thread::spawn(move || {
        for (lsn, first) in (0..rows).step_by(ROWS_PER_PUSH as usize).enumerate() {
            let reply = pusher.execute(&command(lsn as u64, first..rows.min(first + ROWS_PER_PUSH)), ORIGIN);
            if done.send(reply).is_err() {
                return;
            }
        }
    });
    for lsn in 0..rows.div_ceil(ROWS_PER_PUSH) {
        let reply = replies.recv_timeout(PUSH_WAIT_MAX);
        let Ok(reply) = reply else {
            std::mem::forget(store);
            panic!("the push of LSN {} was not answered within {PUSH_WAIT_MAX:?}", lsn + 1);
        };
        assert_eq!(reply[0], 0, "{}", String::from_utf8_lossy(&reply[9..]));
    }
    thread.join().expect("all pushes were answered");
    for row in [0, rows / 2, rows - 1] {
        let (found, _) = store.get(key(row).as_bytes()).expect("readable");
        assert_eq!(found.map(|row| row.value), Some(row.to_string().into_bytes()));
    }
    drop(store);
    let store = EmbeddedStore::open(&dir, memory_bytes).expect("opens again");
    assert_eq!(store.applied().0, rows.div_ceil(ROWS_PER_PUSH));
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
    drop(store);
    let _ = std::fs::remove_dir_all(&dir);
}
