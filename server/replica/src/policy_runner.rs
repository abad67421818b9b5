//! Interface to the code in the slots that decide transactions.

use alloc::vec::Vec;

use tribunal_core::policy::Policies;
use tribunal_types::{EpochOutcome, Generation, Isolation, PluginActivation, PluginSlot};

/// Runs the rule and the validators in force. Its behaviour must follow from the calls alone, so that every replica
/// decides the same.
pub trait PolicyRunner {
    /// Returns the policies for one epoch.
    fn policies(&self) -> Policies<'_>;

    /// Takes an activation that the slots have accepted. `holds`: it decides from the next epoch on.
    fn activated(&mut self, activation: &PluginActivation, holds: bool);

    /// Returns whether the node has all code that decides epochs from now on. Until it does, no epoch is decided and no
    /// control entry applied; the replica checks again at every event.
    fn is_complete(&mut self) -> bool;

    /// Switches to this generation from the next epoch on. Code that does not support it is not complete.
    fn set_generation(&mut self, generation: Generation);

    /// Installs the code that waits for a slot: the slot's activation is in force from now on.
    fn install(&mut self, slot: &PluginSlot);

    /// Sets the number of faults in a row after which a slot is rolled back; 0 for never.
    fn set_faults_max(&mut self, faults_max: u32);

    /// Notes that a fallback decided an epoch: for the rule, or for a level's validator.
    fn fell_back(&self, level: Option<Isolation>);

    /// Marks the start of deciding an epoch. Calls until [`PolicyRunner::count_faults`] are part of it; all other calls
    /// are local to this node: for read-only transactions and dry runs.
    fn epoch_begins(&mut self) {}

    /// Counts the faults of an epoch, and returns the slots whose plugin has now failed too often in a row.
    fn count_faults(&mut self, outcome: &EpochOutcome) -> Vec<PluginSlot>;
}
