//! What the sequencer starts with, and what it shares with the rest of the node.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use parking_lot::RwLock;
use tribunal_core::batcher::Batcher;
use tribunal_core::control::slots::Slots;
use tribunal_core::control::{Effect, ReplicatedState};
use tribunal_core::epochs::Epochs;
use tribunal_core::resolver::Resolver;
use tribunal_core::visibility::Visibility;
use tribunal_log::HoldBack;
use tribunal_types::{ControlIndex, GroupId, PluginSlot, StoreId};

use crate::commit::commit_queue::CommitIntake;
use crate::commit::epoch_cache::EpochCache;
use crate::commit::epoch_clock::EpochClock;
use crate::commit::progress::Progress;
use crate::commit::replies::Dispatch;
use crate::commit::shards::Workers;
use crate::config::EpochLength;
use crate::plugins::policies::PolicySet;
use crate::telemetry::metrics::Metrics;

/// What the sequencer shares with the rest of the node.
#[derive(Clone)]
pub struct Shared {
    /// Recent epochs.
    pub cache: Arc<EpochCache>,
    /// Progress.
    pub progress: Arc<Progress>,
    /// Figures.
    pub metrics: Arc<Metrics>,
    /// Bytes of transactions that wait in the queue or in a batch.
    pub waiting_bytes: Arc<AtomicUsize>,
}

/// What carries out the effect of a control entry outside the sequencer.
pub type OnControl = Box<dyn FnMut(&ReplicatedState, &Effect) + Send>;

/// What the sequencer starts with, after recovery.
pub struct SequencerState {
    /// The group whose log this node leads.
    pub group: GroupId,
    /// The resolver, at its last complete epoch.
    pub resolver: Resolver,
    /// The fold of the groups' logs.
    pub epochs: Epochs,
    /// The open batch.
    pub batcher: Batcher,
    /// Progress of the stores.
    pub visibility: Visibility,
    /// What the control log adds up to.
    pub replicated: ReplicatedState,
    /// What fills the slots, for readers.
    pub slots: Arc<RwLock<Slots>>,
    /// Last control entry that is durable.
    pub control: ControlIndex,
    /// A random number: proposals of this process are told from those of others by it.
    pub run: u64,
    /// Policies in force.
    pub policies: PolicySet,
    /// The time that batches carry.
    pub clock: Arc<EpochClock>,
    /// When epochs are sealed.
    pub epoch_length: EpochLength,
    /// Threads for the shards.
    pub workers: Workers,
    /// Bytes of log after which a new image is taken.
    pub image_every_bytes: u64,
    /// Where single commits gather.
    pub intake: CommitIntake,
    /// The way of answers.
    pub dispatch: Dispatch,
    /// Where effects of control entries outside the sequencer are carried out (catalog, pushes, keys). Must not wait for
    /// anything.
    pub on_control: OnControl,
    /// Says what a store's storage last complained about.
    pub complaint: Box<dyn Fn(StoreId) -> Option<String> + Send>,
    /// How much of the log a store may hold back.
    pub quota: HoldBack,
    /// Is called for every slot that another plugin fills from now on. Must not wait for anything.
    pub on_slot: Box<dyn FnMut(&PluginSlot) + Send>,
    /// Called with every slot whose plugin has failed too often in a row. Must not wait for anything.
    pub on_faults: Box<dyn FnMut(PluginSlot) + Send>,
}
