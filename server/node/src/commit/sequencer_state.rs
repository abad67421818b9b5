//! The sequencer's connections, and its state shared with the rest of the node.

use std::sync::Arc;

use parking_lot::RwLock;
use tribunal_core::control::slots::Slots;
use tribunal_core::control::{Effect, ReplicatedState};
use tribunal_types::{ControlIndex, Lsn, PluginSlot, StoreId};

use crate::cluster::outgoing::{OnPushFrame, Outgoing, PushStates};
use crate::cluster::view::View;
use crate::commit::commit_queue::CommitIntake;
use crate::commit::epoch_cache::EpochCache;
use crate::commit::epoch_clock::EpochClock;
use crate::commit::progress::Progress;
use crate::commit::replies::Dispatch;
use crate::commit::waiting_bytes::WaitingBytes;
use crate::telemetry::metrics::Metrics;

/// State that the sequencer shares with the rest of the node.
#[derive(Clone)]
pub struct Shared {
    /// Recent epochs.
    pub cache: Arc<EpochCache>,
    /// Progress.
    pub progress: Arc<Progress>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Published view of the cluster.
    pub view: Arc<View>,
    /// Bytes of transactions waiting in the queue or in a batch.
    pub waiting: Arc<WaitingBytes>,
}

impl Shared {
    /// Returns the state of a node that has decided nothing yet. Its cache holds up to `cache_bytes` of recent epochs.
    #[must_use]
    pub fn new(cache_bytes: usize) -> Shared {
        Shared {
            cache: Arc::new(EpochCache::new(cache_bytes)),
            progress: Arc::new(Progress::new()),
            metrics: Arc::new(Metrics::new()),
            view: Arc::new(View::default()),
            waiting: Arc::new(WaitingBytes::new()),
        }
    }
}

/// Known state of a push that holds the log back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaggingPush {
    /// The storage's last complaint.
    pub complaint: Option<String>,
    /// The last record reflected in an embedded store's rows while it is being opened; `None` if it is not.
    pub opens_at: Option<Lsn>,
    /// Whether an embedded store is damaged, and holds back the whole log to be filled from it again.
    pub needs_all: bool,
}

/// Carries out the effect of a control entry outside the sequencer.
pub type OnControl = Box<dyn FnMut(&ReplicatedState, &Effect) + Send>;

/// The sequencer's connections.
pub struct SequencerState {
    /// The slots' current plugins, for readers.
    pub slots: Arc<RwLock<Slots>>,
    /// The time that batches carry.
    pub clock: Arc<EpochClock>,
    /// Queue of single commits.
    pub intake: CommitIntake,
    /// Delivers answers to waiting requests.
    pub dispatch: Dispatch,
    /// Carries out effects of control entries outside the replica (catalog, pushes, keys). Must not block.
    pub on_control: OnControl,
    /// Returns the known state of a push that holds the log back. Must not block.
    pub lagging: Box<dyn Fn(StoreId) -> LaggingPush + Send>,
    /// Called for every embedded store whose local copy the log no longer waits for. Must not block.
    pub left_out: Box<dyn Fn(StoreId) + Send>,
    /// Called for every slot that another plugin fills from now on. Must not block.
    pub on_slot: Box<dyn FnMut(&PluginSlot) + Send>,
    /// Frames to other nodes.
    pub outgoing: Outgoing,
    /// Handles another node's push frames. Must not block.
    pub on_push_frame: OnPushFrame,
    /// Returns this node's push states, for the other nodes.
    pub push_states: PushStates,
    /// Called with every slot whose plugin has failed too often in a row, and the entry that activated it. Must not
    /// block.
    pub on_faults: Box<dyn FnMut(PluginSlot, ControlIndex) + Send>,
}
