//! What resolving costs: transactions per second on one core, against a loop that only probes the same table in the
//! same run, over epoch sizes, levels, skews, operations per transaction and stored rows.
//!
//! `cargo bench -p tribunal-core --bench resolve` prints a table, then lets criterion compare with its last run;
//! with `-- --report` it stops there, with `-- --test` everything runs once. Times are of the thread's processor, so
//! neighbours on the machine disturb them through its caches only: compare ratios.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use rustix::time::{ClockId, clock_gettime};
use tribunal_core::executor::Inline;
use tribunal_core::native::{NativeRule, NativeValidator};
use tribunal_core::policy::Policies;
use tribunal_core::resolver::{Resolver, ResolverConfig};
use tribunal_types::{
    Batch, BodyHash, Cen, Csn, Decision, EpochInput, ImportedVersion, Isolation, NamespaceId, NodeId, Read, RowKey,
    Span, StoreId, StoreSnapshot, TxnId, TxnRequest, Version, Write, WriteKind,
};

const STORE: StoreId = StoreId(1);
const START_MS: u64 = 1_800_000_000_000;

/// One row of the table.
#[derive(Clone, Copy)]
struct Workload {
    rows: usize,
    /// Exponent of the Zipf distribution; 0 is uniform.
    skew: f64,
    epoch: usize,
    reads: usize,
    writes: usize,
    level: Isolation,
}

const BASE: Workload =
    Workload { rows: 1_000_000, skew: 0.9, epoch: 1_000, reads: 5, writes: 5, level: Isolation::Serializable };

/// Processor time of this thread: on a shared machine the clock on the wall measures the neighbours.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// SplitMix64: seeded, so every run does the same work.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

fn mix(n: u64) -> u64 {
    let z = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn row_key(row: usize) -> RowKey {
    RowKey { hi: mix(2 * row as u64 + 1), lo: mix(2 * row as u64 + 2) }
}

/// Draws rows by popularity.
struct Popularity {
    rows: usize,
    /// Cumulated weights; empty if uniform.
    cumulated: Vec<f64>,
}

impl Popularity {
    fn new(rows: usize, skew: f64) -> Popularity {
        let mut sum = 0.0;
        let weight = |rank: usize| 1.0 / ((rank + 1) as f64).powf(skew);
        let cumulated = if skew == 0.0 {
            Vec::new()
        } else {
            (0..rows)
                .map(|rank| {
                    sum += weight(rank);
                    sum
                })
                .collect()
        };
        Popularity { rows, cumulated }
    }

    fn draw(&self, rng: &mut Rng) -> usize {
        let Some(total) = self.cumulated.last() else { return rng.next() as usize % self.rows };
        let at = (rng.next() >> 11) as f64 / (1_u64 << 53) as f64 * total;
        self.cumulated.partition_point(|&c| c < at).min(self.rows - 1)
    }
}

/// A resolver with all rows known, and clients that have read its last state.
struct Bench {
    workload: Workload,
    resolver: Resolver,
    versions: Vec<Version>,
    popularity: Popularity,
    rng: Rng,
    cen: u64,
    txns: u64,
}

fn policies() -> Policies<'static> {
    Policies {
        rule: &NativeRule::FirstWriterWins,
        validator: &NativeValidator,
        rule_fallback: NativeRule::FirstWriterWins,
    }
}

impl Bench {
    fn new(workload: Workload) -> Bench {
        let version = Version::new(Cen(1), 0).expect("fits");
        let mut resolver = Resolver::new(ResolverConfig {
            // A full window, as in the long run: memory goes round instead of growing.
            window_bytes_max: 64 << 20,
            ..ResolverConfig::default()
        });
        let imports = (0..workload.rows)
            .map(|row| ImportedVersion { row: row_key(row), store: STORE, version, integer: false })
            .collect();
        let batch = Batch { first: Cen(1), last: Cen(2), imports, ..Batch::default() };
        let input = EpochInput { cen: Cen(2), epoch_time_ms: START_MS, batches: vec![Arc::new(batch)] };
        resolver.resolve(&input, &policies(), &Inline);
        let popularity = Popularity::new(workload.rows, workload.skew);
        let versions = vec![version; workload.rows];
        Bench { workload, resolver, versions, popularity, rng: Rng(7), cen: 2, txns: 0 }
    }

    fn epoch(&mut self) -> (EpochInput, Vec<usize>) {
        self.cen += 1;
        let cen = Cen(self.cen);
        let now_ms = START_MS + self.cen;
        let mut batch = Batch { first: cen, last: cen, clock_ms: now_ms, ..Batch::default() };
        let mut rows = Vec::new();
        for _ in 0..self.workload.epoch {
            let (txn, written) = self.txn(now_ms);
            batch.push(&txn, Csn::new(now_ms * 1_000_000 + self.txns, NodeId(1)));
            rows.extend(written);
        }
        (EpochInput { cen, epoch_time_ms: now_ms, batches: vec![Arc::new(batch)] }, rows)
    }

    fn txn(&mut self, now_ms: u64) -> (TxnRequest, Vec<usize>) {
        self.txns += 1;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&(now_ms << 16 | 0x7000).to_be_bytes());
        id[8..].copy_from_slice(&(1 << 63 | self.rng.next() >> 2).to_be_bytes());
        let mut txn = TxnRequest {
            id: TxnId(id),
            body_hash: BodyHash(self.rng.next()),
            namespace: NamespaceId(1),
            isolation: self.workload.level,
            snapshots: vec![StoreSnapshot { store: STORE, at: Cen(self.cen - 1) }],
            ..TxnRequest::default()
        };
        let mut rows: Vec<usize> = Vec::new();
        while rows.len() < self.workload.reads + self.workload.writes {
            let row = self.popularity.draw(&mut self.rng);
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        let written = rows.split_off(self.workload.reads);
        for &row in &rows {
            let key = Span::push(&mut txn.keys, &row.to_be_bytes());
            txn.reads.push(Read { row: row_key(row), seen: Some(self.versions[row]), store: STORE, key });
        }
        for &row in &written {
            let key = Span::push(&mut txn.keys, &row.to_be_bytes());
            let value = Span::push(&mut txn.values, b"{\"value\":12345678}");
            let kind = WriteKind::Update;
            txn.writes.push(Write { row: row_key(row), store: STORE, key, value, kind, integer: false });
        }
        (txn, written)
    }

    /// Resolves one epoch and returns how long that took, and how many committed.
    fn resolve(&mut self) -> (Duration, usize) {
        let (input, written) = self.epoch();
        let start = cpu_time();
        let outcome = self.resolver.resolve(&input, &policies(), &Inline);
        let took = cpu_time() - start;
        for (decision, rows) in outcome.decisions.iter().zip(written.chunks(self.workload.writes.max(1))) {
            if let Decision::Committed { version } = decision {
                rows.iter().for_each(|&row| self.versions[row] = self.versions[row].max(*version));
            }
        }
        let committed = outcome.order.len();
        black_box(outcome);
        (took, committed)
    }

    /// Only probes the table for the rows of one epoch.
    fn probe(&mut self) -> Duration {
        let (input, _) = self.epoch();
        let batch = &input.batches[0];
        let rows: Vec<RowKey> = batch.reads.iter().map(|r| r.row).chain(batch.writes.iter().map(|w| w.row)).collect();
        let start = cpu_time();
        black_box(self.resolver.probe(black_box(&rows)));
        cpu_time() - start
    }
}

/// Measures for some time and prints one line: alternates epochs and probes, so that both see the same machine.
fn report(workload: Workload, seconds: f64) {
    let mut bench = Bench::new(workload);
    let (mut resolving, mut probing) = (Duration::ZERO, Duration::ZERO);
    let (mut epochs, mut committed) = (0_usize, 0_usize);
    for _ in 0..300_000 / workload.epoch {
        bench.resolve();
    }
    let begun = cpu_time();
    while epochs < 3 || (cpu_time() - begun).as_secs_f64() < seconds {
        let (took, commits) = bench.resolve();
        resolving += took;
        committed += commits;
        probing += bench.probe();
        epochs += 1;
    }
    let txns = (epochs * workload.epoch) as f64;
    let stats = bench.resolver.stats();
    println!(
        "{:>9} rows, zipf {:.1}, {:>5} a batch, {:>2}+{:<2} {:<15} {:>6.2} M txn/s  probes {:>6.2} M txn/s  ratio {:>3.0} %  \
         {:>5.1} ns/op  commits {:>3.0} %  {:.1} B/row",
        workload.rows,
        workload.skew,
        workload.epoch,
        workload.reads,
        workload.writes,
        workload.level.name(),
        txns / resolving.as_secs_f64() / 1e6,
        txns / probing.as_secs_f64() / 1e6,
        100.0 * probing.as_secs_f64() / resolving.as_secs_f64(),
        resolving.as_secs_f64() * 1e9 / txns / (workload.reads + workload.writes) as f64,
        100.0 * committed as f64 / txns,
        stats.row_bytes as f64 / stats.rows as f64,
    );
}

fn reports(seconds: f64) {
    for level in [Isolation::Serializable, Isolation::Snapshot] {
        for skew in [0.9, 0.0] {
            for epoch in [100, 1_000, 4_096] {
                report(Workload { level, skew, epoch, ..BASE }, seconds);
            }
        }
    }
    println!("operations per transaction:");
    for ops in [1, 2, 5, 10, 20, 40] {
        report(Workload { skew: 0.0, reads: ops, writes: ops, epoch: 5_000 / ops, ..BASE }, seconds);
    }
    println!("stored rows:");
    for rows in [10_000, 100_000, 1_000_000, 4_000_000] {
        report(Workload { rows, skew: 0.0, ..BASE }, seconds);
    }
}

fn criterion_groups(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("resolve");
    for (name, skew) in [("zipf-0.9", 0.9), ("uniform", 0.0)] {
        for level in [Isolation::Serializable, Isolation::Snapshot] {
            let workload = Workload { skew, level, ..BASE };
            group.throughput(Throughput::Elements(workload.epoch as u64));
            group.bench_function(BenchmarkId::new(level.name(), name), |b| {
                let mut bench = Bench::new(workload);
                b.iter_custom(|epochs| (0..epochs).map(|_| bench.resolve().0).sum());
            });
        }
    }
    group.finish();
}

fn main() {
    let once = std::env::args().any(|arg| arg == "--test");
    let only_report = std::env::args().any(|arg| arg == "--report");
    if let Some(seconds) = std::env::args().skip_while(|arg| arg != "--one").nth(1) {
        // One line of the table, for a profiler.
        report(Workload { skew: 0.0, ..BASE }, seconds.parse().expect("--one takes seconds"));
        return;
    }
    reports(if once { 0.0 } else { 1.0 });
    if !only_report {
        let mut criterion = Criterion::default().sample_size(20).configure_from_args();
        criterion_groups(&mut criterion);
        criterion.final_summary();
    }
}
