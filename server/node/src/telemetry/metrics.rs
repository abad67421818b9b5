//! Counters and histograms, and their exposition for `/metrics`.

mod epochs;
mod kinds;
mod log;
mod phases;
mod plugins;
mod readers;
mod registered;
mod stores;
mod tenants;
mod txns;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tribunal_types::EpochOutcome;

pub use self::readers::ConsumerLabel;
pub use self::stores::StoreLabel;
pub use self::tenants::NamespaceLabel;
pub use self::txns::AbortLabel;

use self::epochs::EpochMetrics;
use self::kinds::Level;
use self::log::LogMetrics;
use self::phases::Phases;
use self::plugins::PluginMetrics;
use self::readers::ReaderMetrics;
use self::registered::registered;
use self::stores::StoreMetrics;
use self::tenants::TenantMetrics;
use self::txns::TxnMetrics;
use crate::commit::epoch_clock::ClockState;
use crate::telemetry::SpanCounts;
use crate::telemetry::certificates::CertificateMetrics;
use crate::telemetry::cluster_metrics::ClusterMetrics;
use crate::telemetry::own_txns::OwnTxns;
use crate::telemetry::process_metrics::ProcessMetrics;

/// Label of spans.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FateLabel {
    /// `sent`, `dropped` (no room) or `lost` (the collector did not take them).
    pub fate: String,
}

/// Label of the build.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BuildLabel {
    /// The version.
    pub version: &'static str,
    /// The commit, if `TRIBUNAL_COMMIT` was set at build time.
    pub commit: &'static str,
}

/// All metrics of a node.
pub struct Metrics {
    registry: Registry,
    /// Rendered only on a cluster member: on a single node, each of them would look like a fault.
    of_member: Registry,
    /// Metrics of any process, under their conventional names.
    of_process: Registry,
    /// A transaction's time by phase.
    pub phases: Phases,
    /// Transactions of this node's clients.
    pub txns: TxnMetrics,
    /// Epochs, and the state that they result in.
    pub epochs: EpochMetrics,
    /// The log.
    pub log: LogMetrics,
    /// Plugins.
    pub plugins: PluginMetrics,
    /// Tenants.
    pub tenants: TenantMetrics,
    /// Stores.
    pub stores: StoreMetrics,
    /// Readers of logs.
    pub readers: ReaderMetrics,
    /// The system clock minus the node's time, seconds.
    clock_offset_seconds: Gauge<f64, AtomicU64>,
    /// Jumps of the system clock.
    clock_jumps: Counter,
    /// Free bytes of the data directory's disk.
    pub data_free_bytes: Level,
    /// Size of the data directory's disk, bytes.
    pub data_total_bytes: Level,
    /// Whether the node is ready.
    pub ready: Level,
    /// Remaining validity of certificates.
    pub certificates: CertificateMetrics,
    /// Fate of spans.
    spans: Family<FateLabel, Counter>,
    /// Additional metrics of a cluster member.
    pub cluster: ClusterMetrics,
    /// Metrics of any process.
    pub process: ProcessMetrics,
}

impl Metrics {
    /// Creates and registers all metrics.
    #[must_use]
    pub fn new() -> Metrics {
        let mut all = Registry::with_prefix("tribunal");
        let (mut of_member, mut of_process) = (Registry::with_prefix("tribunal"), Registry::default());
        let registry = &mut all;
        register_build(registry);
        let (certificates, cluster) = (CertificateMetrics::default(), ClusterMetrics::default());
        certificates.register(registry);
        cluster.register_reads(registry);
        cluster.register_member(&mut of_member);
        Metrics {
            phases: Phases::registered(registry),
            txns: TxnMetrics::registered(registry),
            epochs: EpochMetrics::registered(registry),
            log: LogMetrics::registered(registry),
            plugins: PluginMetrics::registered(registry),
            tenants: TenantMetrics::registered(registry),
            stores: StoreMetrics::registered(registry),
            readers: ReaderMetrics::registered(registry),
            clock_offset_seconds: registered(
                registry,
                "clock_offset_seconds",
                "The system clock minus the node's time",
            ),
            clock_jumps: registered(registry, "clock_jumps", "Jumps of the system clock"),
            data_free_bytes: registered(registry, "data_free_bytes", "Free space of the data directory's disk"),
            data_total_bytes: registered(registry, "data_total_bytes", "Size of the data directory's disk"),
            ready: registered(registry, "ready", "1 if the node should receive transactions, as /readyz returns"),
            certificates,
            spans: registered(registry, "telemetry_spans", "Spans, by what became of them"),
            cluster,
            process: ProcessMetrics::registered(&mut of_process),
            registry: all,
            of_member,
            of_process,
        }
    }

    /// Counts the decisions of an epoch, those for this node's clients, and the time that its log write and its
    /// resolving took.
    pub fn count_epoch(&self, outcome: &EpochOutcome, own: OwnTxns, sync: Duration, resolve: Duration) {
        self.epochs.resolved.inc();
        let txns = outcome.decisions.len() as u64;
        self.epochs.txns.observe(txns as f64);
        self.epochs.txns_counts.add(txns, 1);
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.phases.sync.add(micros(sync), own.txns);
        self.phases.resolve.add(micros(resolve), own.txns);
        self.epochs.resolve_seconds.observe(resolve.as_secs_f64());
        self.txns.committed.inc_by(own.committed);
        self.plugins.count_fallbacks(outcome);
    }

    /// Sets the difference between the system clock and the node's time.
    pub fn set_clock(&self, clock: ClockState) {
        self.clock_offset_seconds.set(clock.offset_ms as f64 / 1000.0);
        self.clock_jumps.inner().store(clock.jumps, Ordering::Relaxed);
    }

    /// Sets the fates of spans.
    pub fn set_spans(&self, counts: SpanCounts) {
        for (fate, count) in [("sent", counts.sent), ("dropped", counts.dropped), ("lost", counts.lost)] {
            let label = FateLabel { fate: fate.to_owned() };
            self.spans.get_or_create(&label).inner().store(count, Ordering::Relaxed);
        }
    }

    /// Renders all metrics as OpenMetrics text.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        let mut encoded = text::encode_registry(&mut text, &self.registry)
            .and_then(|()| text::encode_registry(&mut text, &self.of_process));
        if self.cluster.is_member() {
            encoded = encoded.and_then(|()| text::encode_registry(&mut text, &self.of_member));
        }
        encoded.and_then(|()| text::encode_eof(&mut text)).expect("writing to a string does not fail");
        text
    }
}

/// Registers the metric that names the build.
fn register_build(registry: &mut Registry) {
    let build = Family::<BuildLabel, Level>::default();
    let commit = option_env!("TRIBUNAL_COMMIT").unwrap_or_default();
    build.get_or_create(&BuildLabel { version: env!("CARGO_PKG_VERSION"), commit }).set(1);
    registry.register(
        "build_info",
        "1; the labels are the version, and the commit if TRIBUNAL_COMMIT was set at build time",
        build,
    );
}
