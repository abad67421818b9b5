//! The simplest possible environment of a replica: waiters that are numbers, and the native policies.

use tribunal_core::native::{NativeRule, NativeValidator};
use tribunal_core::policy::Policies;
use tribunal_replica::{PolicyRunner, Waiters};
use tribunal_types::{EpochOutcome, Generation, Isolation, PluginActivation, PluginSlot};

/// Waiters identified by a number.
pub struct Numbered;

impl Waiters for Numbered {
    type Item = u64;
    type Import = u64;
    type Control = u64;
    type Watch = u64;

    fn has_left(_: &u64) -> bool {
        false
    }
}

/// The native policies.
pub struct Native;

impl PolicyRunner for Native {
    fn policies(&self) -> Policies<'_> {
        Policies {
            rule: &NativeRule::FirstWriterWins,
            validator: &NativeValidator,
            rule_fallback: NativeRule::FirstWriterWins,
        }
    }

    fn activated(&mut self, _: &PluginActivation, _: bool) {}

    fn is_complete(&mut self) -> bool {
        true
    }

    fn set_generation(&mut self, _: Generation) {}

    fn install(&mut self, _: &PluginSlot) {}

    fn set_faults_max(&mut self, _: u32) {}

    fn fell_back(&self, _: Option<Isolation>) {}

    fn count_faults(&mut self, _: &EpochOutcome) -> Vec<PluginSlot> {
        Vec::new()
    }
}
