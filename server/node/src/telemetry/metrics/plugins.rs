//! Metrics of plugins.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tribunal_service::plugins::Health;
use tribunal_types::{EpochOutcome, PluginSlot};

use super::registered::registered;
use crate::plugins::compiled_files::Loads;

/// Label of the metrics of a slot's plugin.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SlotLabel {
    /// The slot: `rule`, `validator:<level>` or `adaptor:<name>`. In [`PluginMetrics::faults`], `rule` or the level's
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

/// The metrics.
pub struct PluginMetrics {
    /// Deterministic plugin faults that made an epoch fall back.
    faults: Family<SlotLabel, Counter>,
    /// Calls of the plugin in a slot.
    calls: Family<SlotLabel, Counter>,
    /// Transactions or records in them.
    items: Family<SlotLabel, Counter>,
    /// Fuel that they consumed.
    fuel: Family<SlotLabel, Counter>,
    /// Time that they took, seconds.
    seconds: Family<SlotLabel, Counter<f64, AtomicU64>>,
    /// Epochs that the native fallback of a slot decided.
    fallbacks: Family<SlotLabel, Counter>,
    /// Slots rolled back automatically because their plugin failed too often in a row.
    rollbacks: Family<SlotLabel, Counter>,
    /// Faults of a slot's plugin by kind.
    call_faults: Family<FaultLabel, Counter>,
    /// Uploaded components that were loaded, by the origin of their code.
    loads: Family<CodeLabel, Counter>,
}

impl PluginMetrics {
    /// Creates and registers the metrics.
    pub(super) fn registered(registry: &mut Registry) -> PluginMetrics {
        PluginMetrics {
            faults: registered(registry, "plugin_faults", "Epochs that fell back to native code"),
            calls: registered(registry, "plugin_calls", "Calls of the plugins in a slot"),
            items: registered(registry, "plugin_items", "Transactions or records passed in calls"),
            fuel: registered(registry, "plugin_fuel", "Fuel used by calls"),
            seconds: registered(registry, "plugin_seconds", "Time spent in calls"),
            fallbacks: registered(
                registry,
                "plugin_fallbacks",
                "Epochs decided by the native fallback of the plugin in a slot",
            ),
            rollbacks: registered(
                registry,
                "plugin_rollbacks",
                "Slots rolled back because their plugin failed too often in a row",
            ),
            call_faults: registered(registry, "plugin_call_faults", "Faults of plugins, by kind"),
            loads: registered(registry, "plugin_loads", "Uploaded components loaded"),
        }
    }

    /// Counts the slots whose native fallback decided an epoch.
    pub fn count_fallbacks(&self, outcome: &EpochOutcome) {
        for fallback in &outcome.fallbacks {
            let slot = fallback.level.map_or("rule", |level| level.name());
            self.faults.get_or_create(&SlotLabel { slot: slot.to_owned() }).inc();
            tracing::error!(slot, epoch = outcome.epoch.0, fault = %fallback.fault, "a plugin failed; its native fallback decided this epoch");
        }
    }

    /// Sets the number of compilations and loads of uploaded components.
    pub fn set_loads(&self, loads: Loads) {
        for (code, count) in [("compiled", loads.compiled), ("kept", loads.kept)] {
            let label = CodeLabel { code: code.to_owned() };
            self.loads.get_or_create(&label).inner().store(count, Ordering::Relaxed);
        }
    }

    /// Counts a slot that was rolled back automatically.
    pub fn count_rollback(&self, slot: &PluginSlot) {
        self.rollbacks.get_or_create(&SlotLabel { slot: slot.to_string() }).inc();
    }

    /// Sets the counters of the slots' plugins. They start at 0 for every new plugin.
    pub fn set_health(&self, slots: &[(PluginSlot, Health)]) {
        for (slot, health) in slots {
            let label = SlotLabel { slot: slot.to_string() };
            for (family, value) in [
                (&self.calls, health.calls),
                (&self.items, health.items),
                (&self.fuel, health.fuel),
                (&self.fallbacks, health.fallbacks),
            ] {
                family.get_or_create(&label).inner().store(value, Ordering::Relaxed);
            }
            let seconds = Duration::from_nanos(health.nanos).as_secs_f64();
            self.seconds.get_or_create(&label).inner().store(seconds.to_bits(), Ordering::Relaxed);
            for (kind, count) in &health.faults {
                let label = FaultLabel { slot: slot.to_string(), kind: (*kind).to_owned() };
                self.call_faults.get_or_create(&label).inner().store(*count, Ordering::Relaxed);
            }
        }
    }
}
