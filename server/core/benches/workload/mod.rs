//! The workload of the resolver's benchmarks: transactions on rows of one large table, from clients that have read its
//! latest state.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tribunal_core::executor::Inline;
use tribunal_core::id_table::Known;
use tribunal_core::native::{NativeRule, NativeValidator};
use tribunal_core::policy::Policies;
use tribunal_core::resolver::{Resolver, ResolverConfig};
use tribunal_types::{
    Batch, BodyHash, Csn, Decision, Epoch, EpochInput, EpochOutcome, Generation, ImportedVersion, Isolation,
    NamespaceId, NodeId, Read, RowKey, Span, StoreId, StoreSnapshot, TxnId, TxnRequest, Version, Write, WriteKind,
};

const STORE: StoreId = StoreId(1);
const START_MS: u64 = 1_800_000_000_000;

/// The parameters of a workload.
#[derive(Clone, Copy)]
pub struct Workload {
    /// Rows in the table.
    pub rows: usize,
    /// Exponent of the Zipf distribution; 0 is uniform.
    pub skew: f64,
    /// Transactions per epoch.
    pub epoch: usize,
    /// Rows read by a transaction.
    pub reads: usize,
    /// Rows written by a transaction.
    pub writes: usize,
    /// Isolation level.
    pub level: Isolation,
    /// The generation whose rules decide.
    pub generation: Generation,
}

pub const BASE: Workload = Workload {
    rows: 1_000_000,
    skew: 0.9,
    epoch: 1_000,
    reads: 5,
    writes: 5,
    level: Isolation::Serializable,
    generation: Generation::NEWEST,
};

/// Returns the CPU time of this thread: on a shared machine, wall-clock time also measures other load.
pub fn cpu_time() -> Duration {
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

/// Draws rows by popularity, without a table: a table would push the resolver's memory out of the caches between
/// epochs, which no server does (Hörmann, Derflinger, "Rejection-inversion to generate variates from monotone discrete
/// distributions").
struct Popularity {
    rows: f64,
    skew: f64,
    /// Bounds of the uniform numbers drawn.
    from: f64,
    until: f64,
    /// A number closer to its rank than this is never rejected.
    accepted: f64,
}

impl Popularity {
    fn new(rows: usize, skew: f64) -> Popularity {
        assert!(skew != 1.0, "the integral below is of another form at exponent 1");
        let mut popularity = Popularity { rows: rows as f64, skew, from: 0.0, until: 0.0, accepted: 0.0 };
        popularity.from = popularity.integral(1.5) - 1.0;
        popularity.until = popularity.integral(popularity.rows + 0.5);
        popularity.accepted = 2.0 - popularity.inverse(popularity.integral(2.5) - popularity.weight(2.0));
        popularity
    }

    fn weight(&self, rank: f64) -> f64 {
        rank.powf(-self.skew)
    }

    fn integral(&self, rank: f64) -> f64 {
        rank.powf(1.0 - self.skew) / (1.0 - self.skew)
    }

    fn inverse(&self, area: f64) -> f64 {
        (area * (1.0 - self.skew)).powf(1.0 / (1.0 - self.skew))
    }

    fn draw(&self, rng: &mut Rng) -> usize {
        if self.skew == 0.0 {
            return rng.next() as usize % self.rows as usize;
        }
        loop {
            let uniform = (rng.next() >> 11) as f64 / (1_u64 << 53) as f64;
            let area = self.from + uniform * (self.until - self.from);
            let at = self.inverse(area);
            let rank = at.round().clamp(1.0, self.rows);
            if rank - at <= self.accepted || area >= self.integral(rank + 0.5) - self.weight(rank) {
                return rank as usize - 1;
            }
        }
    }
}

/// A resolver that knows all rows, and clients that have read its latest state.
pub struct Bench {
    workload: Workload,
    policies: Policies<'static>,
    /// The resolver under measurement.
    pub resolver: Resolver,
    versions: Vec<Version>,
    popularity: Popularity,
    rng: Rng,
    epoch: u64,
    txns: u64,
}

/// Returns the native fallbacks of the default policies.
pub fn native_policies() -> Policies<'static> {
    Policies {
        rule: &NativeRule::FirstWriterWins,
        validator: &NativeValidator,
        rule_fallback: NativeRule::FirstWriterWins,
    }
}

impl Bench {
    /// Fills the table; `policies` decide every epoch.
    pub fn new(workload: Workload, policies: Policies<'static>) -> Bench {
        let version = Version::new(Epoch(1), 0).expect("fits");
        let mut resolver = Resolver::new(ResolverConfig {
            // A full window and a full table of ids, as in the long run: memory is recycled instead of growing.
            window_bytes_max: 64 << 20,
            status_bytes_max: 24 << 20,
            ..ResolverConfig::default()
        });
        let imports = (0..workload.rows)
            .map(|row| ImportedVersion { row: row_key(row), store: STORE, version, integer: false })
            .collect();
        let batch = Batch { first: Epoch(1), last: Epoch(2), imports, ..Batch::default() };
        let input = EpochInput { epoch: Epoch(2), epoch_time_ms: START_MS, batches: vec![Arc::new(batch)] };
        resolver.resolve(&input, &policies, &Inline);
        resolver.switch_generation(workload.generation);
        let popularity = Popularity::new(workload.rows, workload.skew);
        let versions = vec![version; workload.rows];
        Bench { workload, policies, resolver, versions, popularity, rng: Rng(7), epoch: 2, txns: 0 }
    }

    fn epoch(&mut self) -> (EpochInput, Vec<usize>) {
        self.epoch += 1;
        let epoch = Epoch(self.epoch);
        // A hundred thousand transactions a second: ids of whole seconds come and go.
        let now_ms = START_MS + self.txns / 100;
        let mut batch = Batch { first: epoch, last: epoch, clock_ms: now_ms, ..Batch::default() };
        let mut rows = Vec::new();
        for _ in 0..self.workload.epoch {
            let (txn, written) = self.txn(now_ms);
            batch.push(&txn, Csn::new(now_ms * 1_000_000 + self.txns, NodeId(1)));
            rows.extend(written);
        }
        (EpochInput { epoch, epoch_time_ms: now_ms, batches: vec![Arc::new(batch)] }, rows)
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
            snapshots: vec![StoreSnapshot { store: STORE, at: Epoch(self.epoch - 1) }],
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
            txn.writes.push(Write { row: row_key(row), store: STORE, key, value, kind, integer: false, start_len: 0 });
        }
        (txn, written)
    }

    /// Looks an epoch's transactions up one after the other, as on arrival. Each one's rows are prefetched `ahead`
    /// transactions earlier, and the tags that locate them twice as many earlier; 0 disables both.
    #[allow(dead_code, reason = "the bench of the Wasm policies takes this module as well")]
    pub fn admit(&mut self, ahead: usize) -> Duration {
        self.epoch += 1;
        let now_ms = START_MS + self.txns / 100;
        let txns: Vec<TxnRequest> = (0..self.workload.epoch).map(|_| self.txn(now_ms).0).collect();
        let resolver = &self.resolver;
        let start = cpu_time();
        txns.iter().take(2 * ahead).for_each(|txn| resolver.prefetch_tags(txn));
        txns.iter().take(ahead).for_each(|txn| resolver.prefetch_rows(txn));
        for (i, txn) in txns.iter().enumerate() {
            if ahead > 0 {
                txns.get(i + 2 * ahead).into_iter().for_each(|txn| resolver.prefetch_tags(txn));
                txns.get(i + ahead).into_iter().for_each(|txn| resolver.prefetch_rows(txn));
            }
            assert_eq!(resolver.known(txn.namespace, txn.id), Known::Unknown);
            assert!(resolver.find_early_abort(txn).is_none(), "its client read the newest state");
        }
        cpu_time() - start
    }

    /// Resolves one epoch; returns the time taken and the number of commits.
    pub fn resolve(&mut self) -> (Duration, usize) {
        self.resolve_by(cpu_time)
    }

    /// Does the same with another clock: not every profiler can emulate the CPU clock.
    pub fn resolve_by(&mut self, clock: impl Fn() -> Duration) -> (Duration, usize) {
        let (input, written) = self.epoch();
        let start = clock();
        let outcome = decided(&mut self.resolver, &input, &self.policies);
        let took = clock() - start;
        (took, self.learn(&outcome, &written))
    }

    /// Gives the clients the outcome; returns the number of commits.
    fn learn(&mut self, outcome: &EpochOutcome, written: &[usize]) -> usize {
        for (decision, rows) in outcome.decisions.iter().zip(written.chunks(self.workload.writes.max(1))) {
            if let Decision::Committed { version } = decision {
                rows.iter().for_each(|&row| self.versions[row] = self.versions[row].max(*version));
            }
        }
        outcome.order.len()
    }

    /// Only probes the table for the rows of one epoch.
    pub fn probe(&mut self) -> Duration {
        let (input, _) = self.epoch();
        let batch = &input.batches[0];
        let rows: Vec<RowKey> = batch.reads.iter().map(|r| r.row).chain(batch.writes.iter().map(|w| w.row)).collect();
        let start = cpu_time();
        black_box(self.resolver.probe(black_box(&rows)));
        cpu_time() - start
    }
}

/// The measured part, under a name that a profiler can find.
#[inline(never)]
fn decided(resolver: &mut Resolver, input: &EpochInput, policies: &Policies<'_>) -> EpochOutcome {
    black_box(resolver.resolve(input, policies, &Inline))
}
