//! Counters and histograms, and their exposition for `/metrics`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::commit::epoch_clock::ClockState;
use crate::plugins::compiled_files::Loads;
use crate::telemetry::SpanCounts;
use crate::telemetry::certificates::CertificateMetrics;
use crate::telemetry::cluster_metrics::ClusterMetrics;
use crate::telemetry::histogram::QuantileHistogram;
use crate::telemetry::own_txns::OwnTxns;
use crate::telemetry::process_metrics::ProcessMetrics;
use crate::telemetry::tenant_counts::TenantCounts;
use tribunal_push::PushActivity;
use tribunal_service::plugins::Health;
use tribunal_service::{PushState, WebhookStatus};
use tribunal_types::{DEFAULT_NAMESPACE, EpochOutcome, NamespaceId, PluginSlot, Reason};

/// Label of aborts. Inapplicable fields are empty: a transaction given up by its client has no level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct AbortLabel {
    /// The reason's name in the API.
    pub reason: String,
    /// The stage that found it.
    pub stage: String,
    /// The isolation level.
    pub level: String,
    /// The tenant's name.
    pub namespace: String,
    /// The store of the row that caused it.
    pub store: String,
}

/// Label of aborts with the reason only.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabel {
    /// The reason's name in the API; `plugin` for all codes of plugins.
    pub reason: &'static str,
}

/// Label of per-store metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StoreLabel {
    /// The tenant's name: other tenants may have a store of the same name.
    pub namespace: String,
    /// The store's name.
    pub store: String,
}

/// Label of a tenant's metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct NamespaceLabel {
    /// The tenant's name.
    pub namespace: String,
}

/// Label of the states of pushes and webhooks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PushStateLabel {
    /// The tenant's name.
    pub namespace: String,
    /// The store's name.
    pub store: String,
    /// Its name in the API.
    pub state: &'static str,
}

/// Label of the metrics of a slot's plugin.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SlotLabel {
    /// The slot: `rule`, `validator:<level>` or `adaptor:<name>`. In [`Metrics::plugin_faults`], `rule` or the level's
    /// name.
    pub slot: String,
}

/// Label of a plugin's faults in its slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FaultLabel {
    /// `rule`, `validator:<level>` or `adaptor:<name>`.
    pub slot: String,
    /// Kind of fault.
    pub kind: String,
}

/// Label of loaded components.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CodeLabel {
    /// `compiled`, or `kept` from an earlier compilation.
    pub code: String,
}

/// Label of a consumer's metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ConsumerLabel {
    /// The tenant's name.
    pub namespace: String,
    /// The consumer's name.
    pub consumer: String,
    /// The store's name.
    pub store: String,
}

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

type Level = Gauge<u64, AtomicU64>;

/// Label of the phases of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PhaseLabel {
    /// `queue`, `sync`, `resolve` or `apply`.
    pub phase: String,
}

/// Label of answers to commits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct AckLabel {
    /// `durable` or `applied`, as requested by the commit.
    pub ack: String,
}

/// A transaction's time by phase, microseconds.
pub struct Phases {
    /// Waiting in the batch, per transaction.
    pub queue: QuantileHistogram,
    /// Writing and syncing the log, per transaction of an epoch.
    pub sync: QuantileHistogram,
    /// Resolving its epoch, per transaction of an epoch.
    pub resolve: QuantileHistogram,
    /// Push and storage, of commits with `ack: applied`.
    pub apply: QuantileHistogram,
    /// From the request to the answer, of commits with `ack: durable`.
    pub durable: QuantileHistogram,
    /// From the request to the answer, of commits with `ack: applied`.
    pub applied: QuantileHistogram,
}

impl Phases {
    fn registered(registry: &mut Registry) -> Phases {
        let by_phase = Family::<PhaseLabel, QuantileHistogram, fn() -> QuantileHistogram>::new_with_constructor(
            QuantileHistogram::of_micros,
        );
        let by_ack = Family::<AckLabel, QuantileHistogram, fn() -> QuantileHistogram>::new_with_constructor(
            QuantileHistogram::of_micros,
        );
        let phase = |phase: &str| by_phase.get_or_create(&PhaseLabel { phase: phase.to_owned() }).clone();
        let ack = |ack: &str| by_ack.get_or_create(&AckLabel { ack: ack.to_owned() }).clone();
        let phases = Phases {
            queue: phase("queue"),
            sync: phase("sync"),
            resolve: phase("resolve"),
            apply: phase("apply"),
            durable: ack("durable"),
            applied: ack("applied"),
        };
        registry.register("commit_phase_seconds", "Where a transaction's time goes, by phase", by_phase);
        registry.register("commit_seconds", "Time from a commit to its answer, by what it asked for", by_ack);
        phases
    }
}

/// All metrics of a node.
pub struct Metrics {
    registry: Registry,
    /// Rendered only on a cluster member: on a single node, each of them would look like a fault.
    of_member: Registry,
    /// Metrics of any process, under their conventional names.
    of_process: Registry,
    /// Transactions committed.
    pub committed: Counter,
    /// Aborts returned to clients, including those at admission.
    pub aborted: Family<AbortLabel, Counter>,
    /// The same by reason only. All reasons exist from the start: a rate misses the increase with which a series
    /// appears, and the series of [`Metrics::aborted`] are unknown before their first abort.
    aborted_by_reason: Family<ReasonLabel, Counter>,
    /// Answers from the id table.
    pub replayed: Counter,
    /// The system clock minus the node's time, seconds.
    pub clock_offset_seconds: Gauge<f64, AtomicU64>,
    /// Jumps of the system clock.
    pub clock_jumps: Counter,
    /// Epochs resolved.
    pub epochs: Counter,
    /// Transactions in an epoch.
    pub epoch_txns: Histogram,
    /// Time to encode an epoch and hand it to the log.
    pub append_seconds: Histogram,
    /// Time of one sync.
    pub sync_seconds: Histogram,
    /// Syncs of the log, the commit path's.
    pub log_fdatasyncs: Counter,
    /// Syncs of the log's mark, off the commit path.
    pub log_mark_fdatasyncs: Counter,
    /// Bytes of entries and outcomes, including frames.
    pub log_appended_bytes: Counter,
    /// Bytes of the log's files.
    pub log_file_bytes: Level,
    /// Time to resolve an epoch.
    pub resolve_seconds: Histogram,
    /// Deterministic plugin faults that made an epoch fall back.
    pub plugin_faults: Family<SlotLabel, Counter>,
    /// Calls of the plugin in a slot.
    pub plugin_calls: Family<SlotLabel, Counter>,
    /// Transactions or records in them.
    pub plugin_items: Family<SlotLabel, Counter>,
    /// Fuel that they consumed.
    pub plugin_fuel: Family<SlotLabel, Counter>,
    /// Time that they took, seconds.
    pub plugin_seconds: Family<SlotLabel, Counter<f64, AtomicU64>>,
    /// Epochs that the native fallback of a slot decided.
    pub plugin_fallbacks: Family<SlotLabel, Counter>,
    /// Slots rolled back automatically because their plugin failed too often in a row.
    pub plugin_rollbacks: Family<SlotLabel, Counter>,
    /// Faults of a slot's plugin by kind.
    pub plugin_call_faults: Family<FaultLabel, Counter>,
    /// Uploaded components that were loaded, by the origin of their code.
    pub plugin_loads: Family<CodeLabel, Counter>,
    /// Last complete epoch.
    pub epoch: Level,
    /// Oldest snapshot that can be judged.
    pub floor: Level,
    /// Rows in the version map, including tombstones.
    pub rows: Level,
    /// Bytes of the version map.
    pub row_bytes: Level,
    /// Bytes of history and range window.
    pub history_bytes: Level,
    /// Ids in the status table.
    pub ids: Level,
    /// A transaction's time by phase.
    pub phases: Phases,
    /// Transactions in an epoch, for percentiles.
    pub txns_of_epochs: QuantileHistogram,
    /// Aborts by reason, for rates.
    pub aborts: Mutex<BTreeMap<String, u64>>,
    /// Commits and aborts by tenant.
    pub tenants: TenantCounts,
    /// Commits by tenant, as last read from [`Metrics::tenants`].
    pub tenant_committed: Family<NamespaceLabel, Counter>,
    /// Rows in a tenant's tracked stores.
    pub tenant_rows: Family<NamespaceLabel, Level>,
    /// Bound on them.
    pub tenant_rows_max: Family<NamespaceLabel, Level>,
    /// Bytes of a tenant's embedded stores.
    pub tenant_stored_bytes: Family<NamespaceLabel, Level>,
    /// Bound on them.
    pub tenant_stored_bytes_max: Family<NamespaceLabel, Level>,
    /// Rows of a tracked store.
    pub store_rows: Family<StoreLabel, Level>,
    /// Newest record, by store.
    pub store_head: Family<StoreLabel, Level>,
    /// Newest acknowledged record, by store.
    pub store_acked: Family<StoreLabel, Level>,
    /// Records that a consumer has not acknowledged.
    pub consumer_lag_records: Family<ConsumerLabel, Level>,
    /// Age of the oldest of them, seconds.
    pub consumer_lag_seconds: Family<ConsumerLabel, Gauge<f64, AtomicU64>>,
    /// Records that a webhook has not acknowledged, by store.
    pub webhook_lag_records: Family<StoreLabel, Level>,
    /// Time since a store's webhook had acknowledged every record, seconds.
    pub webhook_lag_seconds: Family<StoreLabel, Gauge<f64, AtomicU64>>,
    /// Whether a store's webhook has stopped.
    pub webhook_stopped: Family<StoreLabel, Level>,
    /// State of a store's webhook: 1 for its state, 0 for the others.
    pub webhook_state: Family<PushStateLabel, Level>,
    /// State of a store's push: 1 for its state, 0 for the others.
    pub store_push_state: Family<PushStateLabel, Level>,
    /// Age of the oldest record that a store's storage has not acknowledged, seconds.
    pub store_push_lag_seconds: Family<StoreLabel, Gauge<f64, AtomicU64>>,
    /// Free bytes of the data directory's disk.
    pub data_free_bytes: Level,
    /// Whether the node is ready.
    pub ready: Level,
    /// Remaining validity of certificates.
    pub certificates: CertificateMetrics,
    /// Whether the log is truncated without waiting for a store's storage.
    pub store_detached: Family<StoreLabel, Level>,
    /// Fate of spans.
    pub spans: Family<FateLabel, Counter>,
    /// Additional metrics of a cluster member.
    pub cluster: ClusterMetrics,
    /// Metrics of any process.
    pub process: ProcessMetrics,
}

impl Metrics {
    /// Creates and registers all metrics.
    #[must_use]
    pub fn new() -> Metrics {
        let mut registry = Registry::with_prefix("tribunal");
        let mut of_process = Registry::default();
        let seconds = || Histogram::new(exponential_buckets(0.000_02, 2.0, 18));
        let metrics = Metrics {
            committed: Counter::default(),
            aborted: Family::default(),
            aborted_by_reason: Family::default(),
            replayed: Counter::default(),
            clock_offset_seconds: Gauge::default(),
            clock_jumps: Counter::default(),
            epochs: Counter::default(),
            epoch_txns: Histogram::new(exponential_buckets(1.0, 2.0, 17)),
            append_seconds: seconds(),
            sync_seconds: seconds(),
            log_fdatasyncs: Counter::default(),
            log_mark_fdatasyncs: Counter::default(),
            log_appended_bytes: Counter::default(),
            log_file_bytes: Level::default(),
            resolve_seconds: seconds(),
            plugin_faults: Family::default(),
            plugin_calls: Family::default(),
            plugin_items: Family::default(),
            plugin_fuel: Family::default(),
            plugin_seconds: Family::default(),
            plugin_fallbacks: Family::default(),
            plugin_rollbacks: Family::default(),
            plugin_call_faults: Family::default(),
            plugin_loads: Family::default(),
            epoch: Level::default(),
            floor: Level::default(),
            rows: Level::default(),
            row_bytes: Level::default(),
            history_bytes: Level::default(),
            ids: Level::default(),
            phases: Phases::registered(&mut registry),
            txns_of_epochs: QuantileHistogram::of_numbers(),
            aborts: Mutex::default(),
            tenants: TenantCounts::default(),
            tenant_committed: Family::default(),
            tenant_rows: Family::default(),
            tenant_rows_max: Family::default(),
            tenant_stored_bytes: Family::default(),
            tenant_stored_bytes_max: Family::default(),
            store_rows: Family::default(),
            store_head: Family::default(),
            store_acked: Family::default(),
            consumer_lag_records: Family::default(),
            consumer_lag_seconds: Family::default(),
            webhook_lag_records: Family::default(),
            webhook_lag_seconds: Family::default(),
            webhook_stopped: Family::default(),
            webhook_state: Family::default(),
            store_push_state: Family::default(),
            store_push_lag_seconds: Family::default(),
            data_free_bytes: Level::default(),
            ready: Level::default(),
            certificates: CertificateMetrics::default(),
            store_detached: Family::default(),
            spans: Family::default(),
            cluster: ClusterMetrics::default(),
            registry: Registry::default(),
            of_member: Registry::default(),
            process: ProcessMetrics::registered(&mut of_process),
            of_process,
        };
        let build = Family::<BuildLabel, Level>::default();
        let commit = option_env!("TRIBUNAL_COMMIT").unwrap_or_default();
        build.get_or_create(&BuildLabel { version: env!("CARGO_PKG_VERSION"), commit }).set(1);
        registry.register(
            "build_info",
            "1; the labels are the version, and the commit if TRIBUNAL_COMMIT was set at build time",
            build,
        );
        // Create the series up front, so that a query for a reason finds one before its first abort.
        for reason in (0..=u8::MAX).filter_map(Reason::from_code) {
            drop(metrics.aborted_by_reason.get_or_create(&ReasonLabel { reason: reason.name() }));
            if matches!(reason, Reason::Plugin(_)) {
                continue;
            }
            let namespace = DEFAULT_NAMESPACE.to_owned();
            let label = AbortLabel { reason: reason.to_string(), namespace, ..AbortLabel::default() };
            drop(metrics.aborted.get_or_create(&label));
        }
        registry.register(
            "txns_committed",
            "Commits of this node's clients, those that only read included",
            metrics.committed.clone(),
        );
        let aborted = metrics.aborted.clone();
        registry.register("txns_aborted", "Aborts of this node's clients, those at admission included", aborted);
        let help = "The same aborts by reason only; each reason is there from the start, so a rate misses none";
        registry.register("txns_aborted_by_reason", help, metrics.aborted_by_reason.clone());
        let committed = metrics.tenant_committed.clone();
        registry.register("tenant_txns_committed", "Commits of this node's clients, by namespace", committed);
        let offset = metrics.clock_offset_seconds.clone();
        registry.register("clock_offset_seconds", "The system clock minus the node's time", offset);
        registry.register("clock_jumps", "Jumps of the system clock", metrics.clock_jumps.clone());
        registry.register(
            "txns_replayed",
            "Repeated requests that were answered with the stored verdict",
            metrics.replayed.clone(),
        );
        registry.register("epochs", "Epochs resolved", metrics.epochs.clone());
        registry.register("epoch_txns", "Transactions in an epoch", metrics.epoch_txns.clone());
        registry.register("append_seconds", "Time to encode and write an epoch", metrics.append_seconds.clone());
        registry.register("sync_seconds", "Time of the one sync of an epoch", metrics.sync_seconds.clone());
        registry.register("log_fdatasyncs", "Syncs of the log", metrics.log_fdatasyncs.clone());
        registry.register("log_mark_fdatasyncs", "Syncs of the log's mark", metrics.log_mark_fdatasyncs.clone());
        registry.register("log_appended_bytes", "Bytes of log records", metrics.log_appended_bytes.clone());
        registry.register("log_file_bytes", "Bytes of the log's files", metrics.log_file_bytes.clone());
        registry.register("resolve_seconds", "Time to resolve an epoch", metrics.resolve_seconds.clone());
        registry.register("plugin_faults", "Epochs that fell back to native code", metrics.plugin_faults.clone());
        registry.register("plugin_calls", "Calls of the plugins in a slot", metrics.plugin_calls.clone());
        registry.register("plugin_items", "Transactions or records passed in calls", metrics.plugin_items.clone());
        registry.register("plugin_fuel", "Fuel used by calls", metrics.plugin_fuel.clone());
        registry.register("plugin_seconds", "Time spent in calls", metrics.plugin_seconds.clone());
        registry.register(
            "plugin_fallbacks",
            "Epochs decided by the native fallback of the plugin in a slot",
            metrics.plugin_fallbacks.clone(),
        );
        registry.register(
            "plugin_rollbacks",
            "Slots rolled back because their plugin failed too often in a row",
            metrics.plugin_rollbacks.clone(),
        );
        registry.register("plugin_call_faults", "Faults of plugins, by kind", metrics.plugin_call_faults.clone());
        registry.register("plugin_loads", "Uploaded components loaded", metrics.plugin_loads.clone());
        registry.register("epoch", "Last complete epoch", metrics.epoch.clone());
        registry.register("floor", "Oldest snapshot that can be judged", metrics.floor.clone());
        registry.register("rows", "Rows in the version map", metrics.rows.clone());
        registry.register("row_bytes", "Bytes of the version map", metrics.row_bytes.clone());
        registry.register("history_bytes", "Bytes of history and range window", metrics.history_bytes.clone());
        registry.register("ids", "Transaction ids whose verdict is stored", metrics.ids.clone());
        registry.register("store_head_lsn", "Newest record of a store", metrics.store_head.clone());
        registry.register("store_rows", "Rows of a tracked store", metrics.store_rows.clone());
        registry.register("tenant_rows", "Rows in the tracked stores of a namespace", metrics.tenant_rows.clone());
        let help = "Limit on the rows in the tracked stores of a namespace; absent if it has none";
        registry.register("tenant_rows_max", help, metrics.tenant_rows_max.clone());
        let help = "Bytes that the embedded stores of a namespace take on the disk of this node";
        registry.register("tenant_stored_bytes", help, metrics.tenant_stored_bytes.clone());
        let help = "Limit on the bytes of the embedded stores of a namespace; absent if it has none";
        registry.register("tenant_stored_bytes_max", help, metrics.tenant_stored_bytes_max.clone());
        let (state, lag) = (metrics.store_push_state.clone(), metrics.store_push_lag_seconds.clone());
        registry.register("store_push_state", "1 for the state that a store's push is in, 0 for the others", state);
        let help = "Age of the oldest record that a store's storage has not acknowledged";
        registry.register("store_push_lag_seconds", help, lag);
        let free = metrics.data_free_bytes.clone();
        registry.register("data_free_bytes", "Free space of the data directory's disk", free);
        let ready = metrics.ready.clone();
        registry.register("ready", "1 if the node should receive transactions, as /readyz returns", ready);
        metrics.certificates.register(&mut registry);
        let detached = metrics.store_detached.clone();
        registry.register("store_detached", "1 if the log no longer waits for a store's storage", detached);
        registry.register("store_acked_lsn", "Newest acknowledged record of a store", metrics.store_acked.clone());
        let lag = metrics.consumer_lag_records.clone();
        registry.register("consumer_lag_records", "Records that a consumer has not acknowledged", lag);
        let age = metrics.consumer_lag_seconds.clone();
        registry.register("consumer_lag_seconds", "Age of the oldest record that a consumer has not acknowledged", age);
        let lag = metrics.webhook_lag_records.clone();
        registry.register("webhook_lag_records", "Records that a store's webhook has not acknowledged", lag);
        let help = "Time since a store's webhook had acknowledged every record";
        registry.register("webhook_lag_seconds", help, metrics.webhook_lag_seconds.clone());
        let help = "1 for the state that the deliveries to a store's webhook are in, 0 for the others";
        registry.register("webhook_state", help, metrics.webhook_state.clone());
        let stopped = metrics.webhook_stopped.clone();
        registry.register("webhook_stopped", "1 if the deliveries to a store's webhook have stopped", stopped);
        registry.register("telemetry_spans", "Spans, by what became of them", metrics.spans.clone());
        metrics.cluster.register_reads(&mut registry);
        let mut of_member = Registry::with_prefix("tribunal");
        metrics.cluster.register_member(&mut of_member);
        Metrics { registry, of_member, ..metrics }
    }

    /// Counts the decisions of an epoch, those for this node's clients, and the time that its log write and its
    /// resolving took.
    pub fn count_epoch(&self, outcome: &EpochOutcome, own: OwnTxns, sync: Duration, resolve: Duration) {
        self.epochs.inc();
        let txns = outcome.decisions.len() as u64;
        self.epoch_txns.observe(txns as f64);
        self.txns_of_epochs.add(txns, 1);
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.phases.sync.add(micros(sync), own.txns);
        self.phases.resolve.add(micros(resolve), own.txns);
        self.resolve_seconds.observe(resolve.as_secs_f64());
        self.committed.inc_by(own.committed);
        for fallback in &outcome.fallbacks {
            let slot = fallback.level.map_or("rule", |level| level.name());
            self.plugin_faults.get_or_create(&SlotLabel { slot: slot.to_owned() }).inc();
            tracing::error!(slot, epoch = outcome.epoch.0, fault = %fallback.fault, "a plugin failed; its native fallback decided this epoch");
        }
    }

    /// Counts a read-only commit: no epoch contains it.
    pub fn count_read_only(&self, namespace: NamespaceId) {
        self.committed.inc();
        self.tenants.count_commit(namespace);
    }

    /// Counts an abort returned to a client.
    pub fn count_abort(&self, namespace: NamespaceId, reason: Reason, abort: &AbortLabel) {
        self.aborted.get_or_create(abort).inc();
        self.aborted_by_reason.get_or_create(&ReasonLabel { reason: reason.name() }).inc();
        self.tenants.count_abort(namespace, &abort.reason);
        let mut by_reason = self.aborts.lock();
        match by_reason.get_mut(&abort.reason) {
            Some(count) => *count += 1,
            None => drop(by_reason.insert(abort.reason.clone(), 1)),
        }
    }

    /// Sets the difference between the system clock and the node's time.
    pub fn set_clock(&self, clock: ClockState) {
        self.clock_offset_seconds.set(clock.offset_ms as f64 / 1000.0);
        self.clock_jumps.inner().store(clock.jumps, Ordering::Relaxed);
    }

    /// Sets the log's own counters.
    pub fn set_log(&self, stats: tribunal_log::LogStats) {
        self.log_fdatasyncs.inner().store(stats.fdatasyncs, Ordering::Relaxed);
        self.log_mark_fdatasyncs.inner().store(stats.mark_fdatasyncs, Ordering::Relaxed);
        self.log_appended_bytes.inner().store(stats.appended_bytes, Ordering::Relaxed);
        self.log_file_bytes.set(stats.file_bytes);
    }

    /// Sets the number of compilations and loads of uploaded components.
    pub fn set_loads(&self, loads: Loads) {
        for (code, count) in [("compiled", loads.compiled), ("kept", loads.kept)] {
            let label = CodeLabel { code: code.to_owned() };
            self.plugin_loads.get_or_create(&label).inner().store(count, Ordering::Relaxed);
        }
    }

    /// Counts a slot that was rolled back automatically.
    pub fn count_rollback(&self, slot: &PluginSlot) {
        self.plugin_rollbacks.get_or_create(&SlotLabel { slot: slot.to_string() }).inc();
    }

    /// Sets the counters of the slots' plugins. They start at 0 for every new plugin.
    pub fn set_plugins(&self, slots: &[(PluginSlot, Health)]) {
        for (slot, health) in slots {
            let label = SlotLabel { slot: slot.to_string() };
            for (family, value) in [
                (&self.plugin_calls, health.calls),
                (&self.plugin_items, health.items),
                (&self.plugin_fuel, health.fuel),
                (&self.plugin_fallbacks, health.fallbacks),
            ] {
                family.get_or_create(&label).inner().store(value, Ordering::Relaxed);
            }
            let seconds = Duration::from_nanos(health.nanos).as_secs_f64();
            self.plugin_seconds.get_or_create(&label).inner().store(seconds.to_bits(), Ordering::Relaxed);
            for (kind, count) in &health.faults {
                let label = FaultLabel { slot: slot.to_string(), kind: (*kind).to_owned() };
                self.plugin_call_faults.get_or_create(&label).inner().store(*count, Ordering::Relaxed);
            }
        }
    }

    /// Removes the metrics of a store's push that another node now runs.
    pub fn forget_push(&self, store: &StoreLabel) {
        for state in PushState::ALL {
            let StoreLabel { namespace, store } = store.clone();
            self.store_push_state.remove(&PushStateLabel { namespace, store, state: state.name() });
        }
        self.store_push_lag_seconds.remove(store);
    }

    /// Sets the state of a store's push.
    pub fn set_push(&self, store: &StoreLabel, state: PushState, lag_ms: u64) {
        for known in PushState::ALL {
            let StoreLabel { namespace, store } = store.clone();
            let label = PushStateLabel { namespace, store, state: known.name() };
            self.store_push_state.get_or_create(&label).set(u64::from(known == state));
        }
        self.store_push_lag_seconds.get_or_create(store).set(lag_ms as f64 / 1000.0);
    }

    /// Sets the state and the lag of the deliveries to a store's webhook.
    pub fn set_webhook(&self, store: &StoreLabel, status: &WebhookStatus) {
        for known in PushActivity::ALL {
            let StoreLabel { namespace, store } = store.clone();
            let label = PushStateLabel { namespace, store, state: known.name() };
            self.webhook_state.get_or_create(&label).set(u64::from(known.name() == status.state));
        }
        let is_stopped = status.state == PushActivity::Stopped.name();
        self.webhook_stopped.get_or_create(store).set(u64::from(is_stopped));
        self.webhook_lag_records.get_or_create(store).set(status.head.0.saturating_sub(status.acked.0));
        self.webhook_lag_seconds.get_or_create(store).set(status.lag_ms as f64 / 1000.0);
    }

    /// Removes the metrics of all webhooks.
    pub fn forget_webhooks(&self) {
        self.webhook_state.clear();
        self.webhook_stopped.clear();
        self.webhook_lag_records.clear();
        self.webhook_lag_seconds.clear();
    }

    /// Sets the number of a tenant's committed transactions.
    pub fn set_committed_of(&self, tenant: &NamespaceLabel, committed: u64) {
        self.tenant_committed.get_or_create(tenant).inner().store(committed, Ordering::Relaxed);
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
