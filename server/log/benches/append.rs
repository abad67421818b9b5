//! The cost of a sync, and the bytes that a transaction takes: the log against the minimum that a durable log can do,
//! one `pwrite` of the same bytes into a preallocated file and one `fdatasync`.
//!
//! `cargo bench -p tribunal-log --bench append [-- DIRECTORY]` prints lines per batch size.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tribunal_core::row_key::RowKeyer;
use tribunal_log::{DurableLog, LogOptions};
use tribunal_types::{
    Batch, BodyHash, Csn, Decision, Epoch, EpochOutcome, GroupId, Lsn, NamespaceId, NodeId, Span, StoreId, StoreLsn,
    TxnId, TxnIx, TxnRequest, Version, Write, WriteKind,
};

const WRITES_PER_TXN: usize = 10;
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 100;
/// How long one line is measured.
const MEASURED: Duration = Duration::from_millis(1500);
/// Each line is measured this often, in turn with the other lines, so that other load on the machine affects all of
/// them.
const ROUNDS: usize = 3;

struct Random(u64);

impl Random {
    fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| (self.number() >> 32) as u8).collect()
    }
}

fn batch(group: GroupId, keyer: &RowKeyer, random: &mut Random, epoch: u64, txns: usize) -> Batch {
    let clock_ms = 1_800_000_000_000 + epoch;
    let mut batch = Batch { group, first: Epoch(epoch), last: Epoch(epoch), clock_ms, ..Batch::default() };
    for n in 0..txns {
        let mut request = TxnRequest { priority: 100, ..TxnRequest::default() };
        let mut id = [0; 16];
        id[..6].copy_from_slice(&clock_ms.to_be_bytes()[2..]);
        id[6..].copy_from_slice(&random.bytes(10));
        (request.id, request.body_hash) = (TxnId(id), BodyHash(random.number()));
        for _ in 0..WRITES_PER_TXN {
            let (key_bytes, value_bytes) = (random.bytes(KEY_BYTES), random.bytes(VALUE_BYTES));
            let key = Span::push(&mut request.keys, &key_bytes);
            let value = Span::push(&mut request.values, &value_bytes);
            let row = keyer.row(NamespaceId(0), StoreId(1), &key_bytes);
            request.writes.push(Write {
                row,
                store: StoreId(1),
                key,
                value,
                kind: WriteKind::Put,
                integer: false,
                start_len: 0,
            });
        }
        batch.push(&request, Csn::new(clock_ms * 1000 + n as u64, NodeId(1)));
    }
    batch
}

fn outcome(batch: &Batch, head: &mut u64) -> EpochOutcome {
    let mut outcome = EpochOutcome { epoch: batch.last, epoch_time_ms: batch.clock_ms, ..EpochOutcome::default() };
    for ix in 0..batch.txns.len() {
        let txn = TxnIx(ix as u32);
        *head += 1;
        outcome.decisions.push(Decision::Committed { version: Version::new(batch.last, 1).expect("fits") });
        outcome.order.push(txn);
        outcome.lsns.push(StoreLsn { txn, store: StoreId(1), lsn: Lsn(*head) });
    }
    outcome
}

/// Sorted durations.
struct Times(Vec<Duration>);

impl Times {
    fn at(&self, percent: usize) -> f64 {
        self.0[(self.0.len() - 1) * percent / 100].as_secs_f64() * 1e6
    }
}

fn repeat(mut job: impl FnMut()) -> Times {
    let start = Instant::now();
    let mut times = Vec::new();
    while start.elapsed() < MEASURED {
        let before = Instant::now();
        job();
        times.push(before.elapsed());
    }
    times.sort_unstable();
    Times(times)
}

fn measure_log(dir: &Path, txns: usize) {
    let _ = std::fs::remove_dir_all(dir);
    let mut opened = tribunal_log::open(dir, &LogOptions::default()).expect("a new log");
    let keyer = RowKeyer::new(opened.recovered.row_secret);
    let mut random = Random(88_172_645_463_325_252);
    let (mut epoch, mut head) = (0, 0);
    let mut batches: Vec<Batch> = Vec::new();
    // Built in advance, so that only the log is measured.
    for n in 1..=64 {
        batches.push(batch(opened.recovered.group, &keyer, &mut random, n, txns));
    }
    let file_bytes = opened.reader.bytes();
    let mut append = Duration::ZERO;
    let start = Instant::now();
    let times = repeat(|| {
        epoch += 1;
        let batch = &mut batches[epoch as usize % 64];
        (batch.first, batch.last) = (Epoch(epoch), Epoch(epoch));
        let before = Instant::now();
        opened.writer.append(batch).expect("appended");
        append += before.elapsed();
        opened.writer.sync().expect("synced");
        opened.writer.append_outcome(&outcome(batch, &mut head)).expect("appended");
    });
    let seconds = start.elapsed().as_secs_f64();
    let stats = opened.writer.stats();
    let per_txn = |bytes: u64| bytes as f64 / (epoch as f64 * txns as f64);
    println!(
        "log      txns/batch {txns:>5}: p50 {:>7.0} us, p99 {:>7.0} us, append {:>6.0} us of it, {:>8.0} txn/s, {:>6.1} MB/s of keys and values, bytes/txn: encoded {:.0}, file {:.0}; fdatasyncs/batch {:.3}, marks {}",
        times.at(50),
        times.at(99),
        append.as_secs_f64() * 1e6 / epoch as f64,
        epoch as f64 * txns as f64 / seconds,
        epoch as f64 * (txns * WRITES_PER_TXN * (KEY_BYTES + VALUE_BYTES)) as f64 / seconds / 1e6,
        per_txn(stats.appended_bytes),
        per_txn(opened.reader.bytes().saturating_sub(file_bytes)),
        stats.fdatasyncs as f64 / epoch as f64,
        stats.mark_fdatasyncs,
    );
    drop(opened);
    let _ = std::fs::remove_dir_all(dir);
}

fn measure_bare(dir: &Path, txns: usize, preallocated: bool) {
    std::fs::create_dir_all(dir).expect("a directory");
    let path = dir.join("bare");
    let len = txns * (WRITES_PER_TXN * (KEY_BYTES + VALUE_BYTES) + 50) + 40;
    let mut random = Random(7);
    let bytes = random.bytes(len);
    let file = File::options().create(true).truncate(true).write(true).open(&path).expect("a file");
    let room = if preallocated { 256 << 20 } else { u64::MAX };
    if preallocated {
        for n in 0..256 {
            file.write_all_at(&vec![0; 1 << 20], n << 20).expect("room");
        }
        file.sync_all().expect("synced");
    }
    let (mut at, mut count) = (0, 0);
    let start = Instant::now();
    let times = repeat(|| {
        if at + len as u64 > room {
            at = 0;
        }
        file.write_all_at(&bytes, at).expect("written");
        file.sync_data().expect("synced");
        at += len as u64;
        count += 1;
    });
    println!(
        "{} txns/batch {txns:>5}: p50 {:>7.0} us, p99 {:>7.0} us, {:>8.0} txn/s",
        if preallocated { "prealloc" } else { "growing " },
        times.at(50),
        times.at(99),
        f64::from(count) * txns as f64 / start.elapsed().as_secs_f64(),
    );
    let _ = std::fs::remove_dir_all(dir);
}

fn main() {
    let given = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let dir = given.map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("tribunal-append-{}", std::process::id()));
    for txns in [1, 10, 100, 1000] {
        for _ in 0..ROUNDS {
            measure_bare(&dir, txns, false);
            measure_bare(&dir, txns, true);
            measure_log(&dir, txns);
        }
    }
}
