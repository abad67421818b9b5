//! What runs the code in the slots that decide transactions.

use alloc::vec::Vec;

use tribunal_core::policy::Policies;
use tribunal_types::{EpochOutcome, Generation, Isolation, PluginActivation, PluginSlot};

/// Runs the rule and the validators in force. What it does must follow from the calls alone, so that every replica decides
/// the same.
pub trait PolicyRunner {
    /// Returns the policies for one epoch.
    fn policies(&self) -> Policies<'_>;

    /// Takes an activation that the slots have taken. `holds` tells whether it decides from the next epoch on.
    fn activated(&mut self, activation: &PluginActivation, holds: bool);

    /// Returns whether all code is here that epochs are decided with from now on. As long as it is not, no epoch is decided and
    /// no control entry applied; it is asked again at every event.
    fn is_complete(&mut self) -> bool;

    /// Everything is decided in this generation from the next epoch on. Code that cannot do so is not complete.
    fn set_generation(&mut self, generation: Generation);

    /// Puts the code that waits for a slot into it: the slot's activation holds from now on.
    fn install(&mut self, slot: &PluginSlot);

    /// Changes after how many faults in a row a slot goes back; 0 for never.
    fn set_faults_max(&mut self, faults_max: u32);

    /// Notes that a stand-in decided an epoch: of the rule, or of a level's validator.
    fn fell_back(&self, level: Option<Isolation>);

    /// An epoch is about to be decided. What is called from now until [`PolicyRunner::count_faults`] is part of it; other calls
    /// are this node's alone: for transactions that only read, and dry runs.
    fn epoch_begins(&mut self) {}

    /// Counts the faults of an epoch, and returns the slots whose plugin has now failed too often in a row.
    fn count_faults(&mut self, outcome: &EpochOutcome) -> Vec<PluginSlot>;
}
