//! The policies of a run: native ones, or the built-in components in a node's plugin engine.
//!
//! Some runs starve the components: a call has fuel for a few transactions only, so whether an epoch falls back depends
//! on the number of partitions. All machines must agree on it, however many cores each has.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::OnceLock;

use tribunal_core::native::NativeValidator;
use tribunal_core::policy::Policies;
use tribunal_replica::PolicyRunner;
use tribunal_types::{EpochOutcome, Generation, Generations, Isolation, PluginActivation, PluginSlot};
use tribunal_wasm::{PluginEngine, PluginLimits, WasmRule, WasmValidators, builtin};

use crate::sim::generations::rule_of;

/// Intervals of seeds that run with components, and with components that starve.
const WASM_EVERY: u64 = 10;
const STARVED_EVERY: u64 = 20;
/// Fuel of a call that starves.
const STARVED_FUEL: u64 = 2_400;

/// The policies that decide a run's epochs.
#[derive(Clone, Copy)]
pub enum SimPolicies {
    /// The native policies.
    Native,
    /// The built-in components.
    Wasm(&'static Components),
}

/// The built-in components, compiled.
pub struct Components {
    rule: WasmRule,
    validators: WasmValidators,
}

impl Components {
    fn load(limits: PluginLimits) -> Components {
        let engine = PluginEngine::new(limits).expect("this machine runs the engine");
        let rule = builtin::rule(&engine, "first-writer-wins", "").expect("it is built in").expect("it loads");
        Components { rule, validators: builtin::validators(&engine).expect("they load") }
    }

    /// Returns the components with the limits of a node, compiled once per process.
    fn fed() -> &'static Components {
        static FED: OnceLock<Components> = OnceLock::new();
        FED.get_or_init(|| Components::load(PluginLimits::default()))
    }

    /// Returns the components whose calls often run out of fuel, compiled once per process.
    fn starved() -> &'static Components {
        static STARVED: OnceLock<Components> = OnceLock::new();
        let fuel = |limits| PluginLimits { fuel_per_call: STARVED_FUEL, fuel_per_txn: 0, fuel_per_op: 0, ..limits };
        STARVED.get_or_init(|| Components::load(fuel(PluginLimits::default())))
    }
}

impl SimPolicies {
    /// Returns the policies of a seed.
    #[must_use]
    pub fn of(seed: u64) -> SimPolicies {
        match seed {
            seed if seed.is_multiple_of(STARVED_EVERY) => SimPolicies::Wasm(Components::starved()),
            seed if seed.is_multiple_of(WASM_EVERY) => SimPolicies::Wasm(Components::fed()),
            _ => SimPolicies::Native,
        }
    }

    /// Returns whether components decide.
    #[must_use]
    pub fn are_wasm(&self) -> bool {
        matches!(self, SimPolicies::Wasm(_))
    }
}

/// The policies of one machine, which may lack their code for a while.
pub struct MachinePolicies {
    /// The policies that decide once the code is present.
    pub policies: SimPolicies,
    /// Whether the code is missing.
    pub is_missing: Rc<Cell<bool>>,
    /// The generations that the machine's release supports.
    pub release: Generations,
    /// The one in which it decides: its rule is [`rule_of`].
    pub generation: Generation,
}

impl PolicyRunner for MachinePolicies {
    fn policies(&self) -> Policies<'_> {
        let native = rule_of(self.generation);
        let rule_fallback = *native;
        match &self.policies {
            SimPolicies::Native => Policies { rule: native, validator: &NativeValidator, rule_fallback },
            SimPolicies::Wasm(Components { rule, validators }) if self.generation == Generation::FIRST => {
                Policies { rule, validator: validators, rule_fallback }
            }
            SimPolicies::Wasm(Components { validators, .. }) => {
                Policies { rule: native, validator: validators, rule_fallback }
            }
        }
    }

    fn activated(&mut self, _: &PluginActivation, _: bool) {}

    fn is_complete(&mut self) -> bool {
        !self.is_missing.get() && self.release.contain(self.generation)
    }

    fn install(&mut self, _: &PluginSlot) {}

    fn set_faults_max(&mut self, _: u32) {}

    fn set_generation(&mut self, generation: Generation) {
        self.generation = generation;
    }

    fn fell_back(&self, _: Option<Isolation>) {}

    fn count_faults(&mut self, _: &EpochOutcome) -> Vec<PluginSlot> {
        Vec::new()
    }
}
