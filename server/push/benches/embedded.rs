//! How fast the embedded store takes pushes: transactions of 5 puts, synced per batch.
//!
//! Prints one line per batch size and key distribution. Run: `cargo bench -p tribunal-push --bench embedded`;
//! `MEMORY_MIB` (default 1024) is the store's memory.

use std::time::Instant;

use tribunal_push::{EmbeddedStore, Origin};
use tribunal_types::{Digest, LogId};

const ROWS: u64 = 1_000_000;
const ORIGIN: Origin = Origin { log: LogId([7; 16]), digest: Digest(11) };
const ROWS_PER_TXN: usize = 5;
const TXNS: usize = 400_000;
const VALUE: &[u8] = b"{\"balance\":1000,\"owner\":\"someone with a name\",\"flags\":[1,2]}";

fn main() {
    let dir = std::env::temp_dir().join(format!("tribunal-bench-embedded-{}", std::process::id()));
    let memory_mib = std::env::var("MEMORY_MIB").ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(1024);
    let memory_bytes = memory_mib << 20;
    for skewed in [false, true] {
        for txns_per_batch in [256, 2048, 8192] {
            let _ = std::fs::remove_dir_all(&dir);
            let store = EmbeddedStore::open(&dir, memory_bytes).expect("opens");
            measure(&store, skewed, txns_per_batch);
        }
    }
    let _ = std::fs::remove_dir_all(&dir);
}

fn measure(store: &EmbeddedStore, skewed: bool, txns_per_batch: usize) {
    let mut lsn = fill(store);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut spent = Vec::new();
    let begun = Instant::now();
    for _ in 0..TXNS / txns_per_batch {
        let rows: Vec<u64> = (0..txns_per_batch * ROWS_PER_TXN).map(|_| key(&mut random, skewed)).collect();
        let command = command(lsn, lsn + txns_per_batch as u64, &rows);
        lsn += txns_per_batch as u64;
        let sent = Instant::now();
        let reply = store.execute(&command, ORIGIN);
        spent.push(sent.elapsed());
        assert_eq!(reply[0], 0, "{}", String::from_utf8_lossy(&reply[9..]));
    }
    spent.sort();
    let rate = spent.len() as f64 * txns_per_batch as f64 / begun.elapsed().as_secs_f64();
    println!(
        "{} keys, {txns_per_batch:>5} transactions a batch: {rate:>8.0} transactions/s, batch p50 {:?} p99 {:?}",
        if skewed { "skewed " } else { "uniform" },
        spent[spent.len() / 2],
        spent[spent.len() * 99 / 100],
    );
}

fn fill(store: &EmbeddedStore) -> u64 {
    let step = 10_000;
    for first in (0..ROWS).step_by(step) {
        let rows: Vec<u64> = (first..first + step as u64).collect();
        let reply = store.execute(&command(first, first + step as u64, &rows), ORIGIN);
        assert_eq!(reply[0], 0);
    }
    ROWS
}

/// Draws a row; skewed: log-uniform, so that few rows take most writes.
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

fn command(from: u64, to: u64, rows: &[u64]) -> Vec<u8> {
    let count = (rows.len() as u32).to_le_bytes();
    let mut bytes = [&from.to_le_bytes()[..], &to.to_le_bytes(), &count].concat();
    for row in rows {
        bytes.push(2);
        bytes.extend_from_slice(&to.to_le_bytes());
        let key = format!("user{row:010}");
        for piece in [key.as_bytes(), VALUE] {
            bytes.extend_from_slice(&(piece.len() as u32).to_le_bytes());
            bytes.extend_from_slice(piece);
        }
    }
    bytes
}
