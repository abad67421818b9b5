//! Rates and percentiles of the last seconds: the current counters minus those of one window ago.
//!
//! A sample is taken once a second, so none of this delays a commit.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tribunal_service::{Stats, Summary, TenantStats, Timed};
use tribunal_types::{Epoch, NamespaceId};

use crate::telemetry::histogram::Counts;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::tenant_counts::TenantSample;

/// Time between two samples.
pub const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Number of samples kept: the window is about as many seconds.
const SAMPLES_MAX: usize = 10;

struct Sample {
    at: Instant,
    committed: u64,
    replayed: u64,
    epochs: u64,
    aborts: BTreeMap<String, u64>,
    epoch_txns: Counts,
    phases: Vec<(&'static str, Counts)>,
    commits: Vec<(&'static str, Counts)>,
    tenants: HashMap<NamespaceId, TenantSample>,
}

/// The samples.
pub struct Window {
    started: Instant,
    metrics: Arc<Metrics>,
    samples: Mutex<VecDeque<Sample>>,
}

impl Window {
    /// Starts with the current counters.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>) -> Window {
        let window = Window { started: Instant::now(), metrics, samples: Mutex::default() };
        window.sample();
        window
    }

    /// Takes a sample.
    pub fn sample(&self) {
        let sample = self.now();
        let mut samples = self.samples.lock();
        samples.push_back(sample);
        if samples.len() > SAMPLES_MAX {
            samples.pop_front();
        }
    }

    fn now(&self) -> Sample {
        let metrics = &self.metrics;
        let phases = &metrics.phases;
        Sample {
            at: Instant::now(),
            committed: metrics.txns.committed.get(),
            replayed: metrics.txns.replayed.get(),
            epochs: metrics.epochs.resolved.get(),
            aborts: metrics.txns.aborts.lock().clone(),
            epoch_txns: metrics.epochs.txns_counts.counts(),
            phases: vec![
                ("queue", phases.queue.counts()),
                ("sync", phases.sync.counts()),
                ("resolve", phases.resolve.counts()),
                ("apply", phases.apply.counts()),
            ],
            commits: vec![("durable", phases.durable.counts()), ("applied", phases.applied.counts())],
            tenants: metrics.txns.tenants.sample(),
        }
    }

    /// Returns the changes since the oldest sample.
    #[must_use]
    pub fn stats(&self, epoch: Epoch) -> Stats {
        let now = self.now();
        let samples = self.samples.lock();
        let Some(then) = samples.front() else { return Stats::default() };
        let aborts = now.aborts.iter().filter_map(|(reason, count)| {
            let since = count - then.aborts.get(reason).copied().unwrap_or(0);
            (since > 0).then(|| (reason.clone(), since))
        });
        let timed = |now: &[(&'static str, Counts)], then: &[(&'static str, Counts)]| {
            let pairs = now.iter().zip(then);
            pairs.map(|((name, now), (_, then))| Timed { name, us: summary(&now.since(then)) }).collect()
        };
        Stats {
            node: None,
            uptime_ms: millis(self.started.elapsed()),
            window_ms: millis(now.at - then.at),
            epoch,
            epochs: now.epochs - then.epochs,
            committed: now.committed - then.committed,
            replayed: now.replayed - then.replayed,
            aborts: aborts.collect(),
            epoch_txns: summary(&now.epoch_txns.since(&then.epoch_txns)),
            phases: timed(&now.phases, &then.phases),
            commits: timed(&now.commits, &then.commits),
        }
    }

    /// Returns the counts of a tenant's transactions since the oldest sample.
    #[must_use]
    pub fn tenant_stats(&self, namespace: NamespaceId) -> TenantStats {
        let (at, now) = (Instant::now(), self.metrics.txns.tenants.of(namespace));
        let samples = self.samples.lock();
        let Some(oldest) = samples.front() else { return TenantStats::default() };
        // A tenant missing in the sample had no counts then.
        let none = TenantSample::default();
        let then = oldest.tenants.get(&namespace).unwrap_or(&none);
        TenantStats {
            uptime_ms: millis(self.started.elapsed()),
            window_ms: millis(at - oldest.at),
            committed: now.committed.saturating_sub(then.committed),
            aborts: now.aborts_since(then),
        }
    }
}

fn summary(counts: &Counts) -> Summary {
    Summary {
        count: counts.count(),
        mean: counts.mean(),
        p50: counts.percentile(0.5),
        p90: counts.percentile(0.9),
        p99: counts.percentile(0.99),
        max: counts.percentile(1.0),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
