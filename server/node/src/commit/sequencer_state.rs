//! What the sequencer is tied to, and what it shares with the rest of the node.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use parking_lot::RwLock;
use tribunal_core::control::slots::Slots;
use tribunal_core::control::{Effect, ReplicatedState};
use tribunal_types::{ControlIndex, Lsn, PluginSlot, StoreId};

use crate::cluster::links::{OnPushFrame, Outgoing, PushStates};
use crate::cluster::view::View;
use crate::commit::commit_queue::CommitIntake;
use crate::commit::epoch_cache::EpochCache;
use crate::commit::epoch_clock::EpochClock;
use crate::commit::progress::Progress;
use crate::commit::replies::Dispatch;
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
    /// What is told of the cluster.
    pub view: Arc<View>,
    /// Bytes of transactions that wait in the queue or in a batch.
    pub waiting_bytes: Arc<AtomicUsize>,
}

/// What is known of a push that holds the log back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaggingPush {
    /// What the storage last complained about.
    pub complaint: Option<String>,
    /// The last record that the rows of an embedded store reflect while it is being opened; `None` if it is not.
    pub opens_at: Option<Lsn>,
}

/// What carries out the effect of a control entry outside the sequencer.
pub type OnControl = Box<dyn FnMut(&ReplicatedState, &Effect) + Send>;

/// What the sequencer is tied to.
pub struct SequencerState {
    /// What fills the slots, for readers.
    pub slots: Arc<RwLock<Slots>>,
    /// The time that batches carry.
    pub clock: Arc<EpochClock>,
    /// Where single commits gather.
    pub intake: CommitIntake,
    /// Delivers answers to the requests that wait.
    pub dispatch: Dispatch,
    /// Where effects of control entries outside the replica are carried out (catalog, pushes, keys). Must not wait for
    /// anything.
    pub on_control: OnControl,
    /// Tells what is known of a push that holds the log back. Must not wait for anything.
    pub lagging: Box<dyn Fn(StoreId) -> LaggingPush + Send>,
    /// Is called for every embedded store whose copy here the log does not wait for any more. Must not wait for anything.
    pub left_out: Box<dyn Fn(StoreId) + Send>,
    /// Is called for every slot that another plugin fills from now on. Must not wait for anything.
    pub on_slot: Box<dyn FnMut(&PluginSlot) + Send>,
    /// What is sent to other nodes.
    pub outgoing: Outgoing,
    /// Takes what another node sends about pushes. Must not wait for anything.
    pub on_push_frame: OnPushFrame,
    /// Says what the pushes of this node are doing, for the other nodes.
    pub push_states: PushStates,
    /// Called with every slot whose plugin has failed too often in a row, and the entry that activated it. Must not wait for
    /// anything.
    pub on_faults: Box<dyn FnMut(PluginSlot, ControlIndex) + Send>,
}
