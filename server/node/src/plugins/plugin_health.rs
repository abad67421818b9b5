//! Health of the plugins in their slots: calls, items, fuel, time and faults. Counted where plugins are called, read by
//! the API.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Mutex, RwLock};
use tribunal_core::native::{NativeRule, NativeValidator};
use tribunal_core::policy::{ConflictRule, PolicyFault, Ranks, TxnColumns, Validation, Validator, ValidatorColumns};
use tribunal_service::plugins::Health;
use tribunal_types::{Isolation, PluginSlot};
use tribunal_wasm::{Fault, FaultKind, WasmRule, WasmValidator};

/// Counters of one plugin in one slot.
#[derive(Debug, Default)]
pub struct SlotHealth {
    /// Name of the plugin.
    plugin: String,
    calls: AtomicU64,
    items: AtomicU64,
    fuel: AtomicU64,
    nanos: AtomicU64,
    fallbacks: AtomicU64,
    faults: Mutex<Faults>,
    called: Mutex<Option<CallTimes>>,
}

/// Start of the first call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallTimes {
    /// The first call began.
    pub from: Instant,
    /// The last one ended.
    pub until: Instant,
}

#[derive(Debug, Default)]
struct Faults {
    by_kind: BTreeMap<FaultKind, u64>,
    last: Option<String>,
}

impl SlotHealth {
    /// Creates the counters of a plugin.
    #[must_use]
    pub fn of(plugin: &str) -> SlotHealth {
        SlotHealth { plugin: plugin.to_owned(), ..SlotHealth::default() }
    }

    /// Returns the fault of a call with the plugin's name, for logs.
    fn named(&self, fault: &Fault) -> PolicyFault {
        PolicyFault(format!("{}: {}", self.plugin, fault.text))
    }

    /// Returns the plugin and its last fault, if it had one.
    #[must_use]
    pub fn last_fault(&self) -> Option<(String, String)> {
        self.faults.lock().last.clone().map(|text| (self.plugin.clone(), text))
    }

    /// Runs a call and counts it. The call returns its fuel.
    ///
    /// # Errors
    /// The call's.
    pub fn count<T>(&self, items: usize, call: impl FnOnce() -> Result<(T, u64), Fault>) -> Result<T, Fault> {
        let start = Instant::now();
        let answer = call();
        let until = Instant::now();
        let nanos = u64::try_from((until - start).as_nanos()).unwrap_or(u64::MAX);
        self.note_call(CallTimes { from: start, until });
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.items.fetch_add(items as u64, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        match answer {
            Ok((answer, fuel)) => {
                self.fuel.fetch_add(fuel, Ordering::Relaxed);
                Ok(answer)
            }
            Err(fault) => {
                let mut faults = self.faults.lock();
                *faults.by_kind.entry(fault.kind).or_default() += 1;
                faults.last = Some(fault.text.clone());
                Err(fault)
            }
        }
    }

    fn note_call(&self, call: CallTimes) {
        let mut called = self.called.lock();
        *called = Some(match *called {
            Some(CallTimes { from, until }) => CallTimes { from: from.min(call.from), until: until.max(call.until) },
            None => call,
        });
    }

    /// Returns the call times since the last query.
    pub fn take_call_times(&self) -> Option<CallTimes> {
        self.called.lock().take()
    }

    /// Returns the number of calls.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Counts an epoch that the plugin's fallback decided.
    pub fn fell_back(&self) {
        self.fallbacks.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counters.
    #[must_use]
    pub fn read(&self) -> Health {
        let at = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let faults = self.faults.lock();
        Health {
            calls: at(&self.calls),
            items: at(&self.items),
            fuel: at(&self.fuel),
            nanos: at(&self.nanos),
            fallbacks: at(&self.fallbacks),
            faults: faults.by_kind.iter().map(|(kind, count)| (kind.name(), *count)).collect(),
            last_fault: faults.last.clone(),
        }
    }
}

/// The counters of the plugins in force, by slot.
#[derive(Debug, Default)]
pub struct HealthBoard {
    shown: RwLock<BTreeMap<PluginSlot, Arc<SlotHealth>>>,
    /// By slot, the last plugin no longer in force that had faults, and its last fault: why it was rolled back.
    earlier_faults: RwLock<BTreeMap<PluginSlot, (String, String)>>,
}

impl HealthBoard {
    /// Replaces the counters shown for a slot.
    pub fn show(&self, slot: PluginSlot, health: Arc<SlotHealth>) {
        let before = self.shown.write().insert(slot.clone(), health);
        if let Some(fault) = before.and_then(|before| before.last_fault()) {
            self.earlier_faults.write().insert(slot, fault);
        }
    }

    /// Hides the counters of a slot.
    pub fn hide(&self, slot: &PluginSlot) {
        self.shown.write().remove(slot);
    }

    /// Returns a slot's counters; new ones if the slot has not been called.
    pub fn of(&self, slot: &PluginSlot) -> Arc<SlotHealth> {
        if let Some(health) = self.shown.read().get(slot) {
            return Arc::clone(health);
        }
        Arc::clone(self.shown.write().entry(slot.clone()).or_default())
    }

    /// Returns the slot's previous plugin and its last fault, if this process has seen one.
    pub fn earlier_fault(&self, slot: &PluginSlot) -> Option<(String, String)> {
        self.earlier_faults.read().get(slot).cloned()
    }

    /// Returns all counters.
    pub fn all(&self) -> Vec<(PluginSlot, Health)> {
        self.shown.read().iter().map(|(slot, health)| (slot.clone(), health.read())).collect()
    }
}

/// A rule in Wasm whose calls are counted.
pub struct CountedRule {
    /// The rule.
    pub rule: WasmRule,
    /// For a built-in rule, its native counterpart, which answers after a fault. A built-in rule thus never fails: the
    /// results are equal on every engine and build.
    pub counterpart: Option<NativeRule>,
    /// Its counters.
    pub health: Arc<SlotHealth>,
}

impl ConflictRule for CountedRule {
    fn rank(&self, columns: &TxnColumns) -> Result<Ranks, PolicyFault> {
        let ranks = self.health.count(columns.csn.len(), || self.rule.rank_metered(columns));
        match (ranks, self.counterpart) {
            (Err(_), Some(native)) => {
                self.health.fell_back();
                native.rank(columns)
            }
            (ranks, _) => ranks.map_err(|fault| self.health.named(&fault)),
        }
    }
}

/// A validator in Wasm whose calls are counted.
pub struct CountedValidator {
    /// The validator.
    pub validator: WasmValidator,
    /// Whether it is the built-in validator of its level, whose native counterpart answers after a fault.
    pub is_builtin: bool,
    /// Its counters.
    pub health: Arc<SlotHealth>,
}

impl Validator for CountedValidator {
    fn needs(&self, _: Isolation) -> u8 {
        self.validator.needs()
    }

    fn validate(&self, level: Isolation, columns: &ValidatorColumns) -> Result<Validation, PolicyFault> {
        let validation = self.health.count(columns.len(), || self.validator.validate_metered(columns));
        if validation.is_err() && self.is_builtin {
            self.health.fell_back();
            return NativeValidator.validate(level, columns);
        }
        validation.map_err(|fault| self.health.named(&fault))
    }
}

/// A native policy whose calls are counted. It consumes no fuel.
pub struct CountedNative<T> {
    /// The policy.
    pub native: T,
    /// Its counters.
    pub health: Arc<SlotHealth>,
}

impl ConflictRule for CountedNative<NativeRule> {
    fn rank(&self, columns: &TxnColumns) -> Result<Ranks, PolicyFault> {
        self.health.count(columns.csn.len(), || Ok((self.native.rank(columns), 0))).map_err(PolicyFault::from)?
    }
}

impl Validator for CountedNative<NativeValidator> {
    fn needs(&self, level: Isolation) -> u8 {
        self.native.needs(level)
    }

    fn validate(&self, level: Isolation, columns: &ValidatorColumns) -> Result<Validation, PolicyFault> {
        let judge = || Ok((self.native.validate(level, columns), 0));
        self.health.count(columns.len(), judge).map_err(PolicyFault::from)?
    }
}

#[cfg(test)]
mod tests {
    use tribunal_wasm::{Builtin, PluginEngine, PluginLimits, World};

    use super::*;

    /// Two engines on which a built-in plugin faults at different sizes decide the same: no fault leaves the plugin.
    #[test]
    fn a_built_in_rule_that_faults_answers_as_its_counterpart_does() {
        let limits = PluginLimits {
            fuel_per_call: 100_000,
            fuel_per_txn: 0,
            fuel_per_op: 0,
            instances_max: 2,
            ..PluginLimits::default()
        };
        let engine = PluginEngine::new(limits).expect("starts");
        let builtin = Builtin::find(World::ConflictRule, "shorter-txn-wins").expect("is built in");
        let rule = WasmRule::new(builtin.load(&engine, "").expect("loads")).expect("is a rule");
        let native = NativeRule::by_name("shorter-txn-wins", 0).expect("there is one");
        let health = Arc::new(SlotHealth::default());
        let counted = CountedRule { rule: rule.clone(), counterpart: Some(native), health: Arc::clone(&health) };
        let uploaded = CountedRule { rule, counterpart: None, health: Arc::default() };
        let columns = |count: u32| TxnColumns {
            csn: (0..u64::from(count)).collect(),
            epoch: 7,
            start: (0..u64::from(count)).map(|n| n % 7).collect(),
            origin: vec![1; count as usize],
            priority: vec![100; count as usize],
            reads: vec![3; count as usize],
            writes: vec![1; count as usize],
            first_attempt: vec![1; count as usize],
        };
        let (few, many) = (columns(3), columns(20_000));
        assert_eq!(uploaded.rank(&few), native.rank(&few));
        assert!(uploaded.rank(&many).is_err(), "its fuel is not enough");
        for columns in [&few, &many] {
            assert_eq!(counted.rank(columns), native.rank(columns));
        }
        let told = health.read();
        assert_eq!((told.calls, told.fallbacks, told.faults.len()), (2, 1, 1), "it is counted");
    }
}
