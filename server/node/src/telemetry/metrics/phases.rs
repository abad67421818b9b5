//! Where a transaction's time goes, and how long Begins and reads take.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::telemetry::histogram::QuantileHistogram;

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
    /// From the request to the answer, of Begins that succeeded.
    pub begin: QuantileHistogram,
    /// From the request to the answer, of reads of rows that succeeded.
    pub read: QuantileHistogram,
}

impl Phases {
    /// Creates and registers the histograms.
    pub(super) fn registered(registry: &mut Registry) -> Phases {
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
            begin: QuantileHistogram::of_micros(),
            read: QuantileHistogram::of_micros(),
        };
        registry.register("commit_phase_seconds", "Where a transaction's time goes, by phase", by_phase);
        registry.register("commit_seconds", "Time from a commit to its answer, by what it asked for", by_ack);
        let help = "Time from a Begin to its answer, with its reads, and with any wait that it asked for";
        registry.register("begin_seconds", help, phases.begin.clone());
        let help = "Time from a read of an embedded store's rows to its answer, without those of Begins";
        registry.register("read_seconds", help, phases.read.clone());
        phases
    }
}
