//! Throughput of applying epochs to the embedded store: transactions of 5 puts.
//!
//! Prints one line per epoch size and key distribution. Run: `cargo bench -p tribunal-push --bench embedded`;
//! `MEMORY_MIB` (default 1024) is the store's memory. The first million rows are new, and timed as well.

#[path = "../src/testing.rs"]
#[expect(dead_code, reason = "used by unit tests")]
mod testing;

use std::sync::Arc;
use std::time::Instant;

use testing::{MemoryLog, STORE, TempDir};
use tribunal_push::{EmbeddedStore, EpochSource};
use tribunal_types::WriteKind::{self, Put};

const ROWS: u64 = 1_000_000;
const ROWS_PER_TXN: usize = 5;
const TXNS: usize = 400_000;
const VALUE: &str = "{\"balance\":1000,\"owner\":\"someone with a name\",\"flags\":[1,2]}";

fn main() {
    let memory_mib = std::env::var("MEMORY_MIB").ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(1024);
    for skewed in [false, true] {
        for txns_per_epoch in [16, 256, 4096] {
            let (dir, log) = (TempDir::new("bench-embedded"), MemoryLog::new());
            let source = Arc::clone(&log) as Arc<dyn EpochSource>;
            let store = EmbeddedStore::open(dir.path(), memory_mib << 20, STORE, source).expect("opens");
            measure(&store, &log, skewed, txns_per_epoch);
        }
    }
}

fn measure(store: &EmbeddedStore, log: &MemoryLog, skewed: bool, txns_per_epoch: usize) {
    let new_rows: Vec<u64> = (0..ROWS).map(|row| row.wrapping_mul(0x9e37_79b9_7f4a_7c15) % ROWS).collect();
    let per_new = run(store, log, &new_rows, txns_per_epoch);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let rows: Vec<u64> = (0..TXNS * ROWS_PER_TXN).map(|_| key(&mut random, skewed)).collect();
    let per_known = run(store, log, &rows, txns_per_epoch);
    println!(
        "{} keys, {txns_per_epoch:>5} transactions an epoch: {per_new:>6.2} us a transaction of new rows, {per_known:>6.2} us of known ones",
        if skewed { "skewed " } else { "uniform" },
    );
}

/// Returns the time per transaction, microseconds.
fn run(store: &EmbeddedStore, log: &MemoryLog, rows: &[u64], txns_per_epoch: usize) -> f64 {
    let names: Vec<String> = rows.iter().map(|row| format!("user{row:010}")).collect();
    let rows: Vec<(WriteKind, &str, &str)> = names.iter().map(|name| (Put, name.as_str(), VALUE)).collect();
    let txns: Vec<&[(WriteKind, &str, &str)]> = rows.chunks(ROWS_PER_TXN).collect();
    let mut spent = std::time::Duration::ZERO;
    for epoch in txns.chunks(txns_per_epoch) {
        log.commit_all(epoch);
        let began = Instant::now();
        store.catch_up().expect("applies");
        spent += began.elapsed();
    }
    spent.as_secs_f64() * 1e6 / txns.len() as f64
}

/// Draws a row; if `skewed`, log-uniformly, so that few rows get most writes.
fn key(random: &mut u64, skewed: bool) -> u64 {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    if skewed {
        let unit = (*random >> 11) as f64 / (1u64 << 53) as f64;
        ((ROWS as f64).powf(unit) as u64).min(ROWS - 1)
    } else {
        *random % ROWS
    }
}
