//! State that the sequencer keeps for a cluster member, and never touches on a single node.

use std::collections::BTreeMap;
use std::time::Instant;

use tokio::sync::oneshot;
use tribunal_types::{Epoch, NodeId};

use super::availability::Availability;
use crate::cluster::peer_clocks::PeerClocks;
use crate::cluster::state_copy::Lag;
use crate::commit::change_under_way::ChangeUnderWay;
use crate::commit::log_job::GroupWrites;

/// State of a member's sequencer.
pub(super) struct MemberSide {
    /// Records that the Raft groups have to write since the last input.
    pub(super) round: GroupWrites,
    /// When the member was last ticked.
    pub(super) ticked_at: Instant,
    /// Ticks since the node began to take part.
    pub(super) ticks: u64,
    /// Ticks spent in the first start.
    pub(super) waited_ticks: u32,
    pub(super) reads: FreshReads,
    /// The failure is not of the log: the node must not take part.
    pub(super) refused: bool,
    /// State that this node lacks and only another member's state provides, if any.
    pub(super) lag: Option<Lag>,
    /// The clocks of the other nodes.
    pub(super) clocks: PeerClocks,
    /// How far this node's clock is ahead of theirs, milliseconds, if that is too far.
    pub(super) apart_ms: Option<i64>,
    pub(super) availability: Availability,
    /// By claiming node, the binding of its number to its directory.
    pub(super) claims: BTreeMap<NodeId, ChangeUnderWay>,
}

impl MemberSide {
    /// Creates the state of a sequencer that began at `started`.
    pub(super) fn new(started: Instant) -> MemberSide {
        MemberSide {
            round: GroupWrites::default(),
            ticked_at: started,
            ticks: 0,
            waited_ticks: 0,
            reads: FreshReads::default(),
            refused: false,
            lag: None,
            clocks: PeerClocks::default(),
            apart_ms: None,
            availability: Availability::default(),
            claims: BTreeMap::new(),
        }
    }
}

/// Fresh reads waiting for the other nodes.
#[derive(Default)]
pub(super) struct FreshReads {
    pub(super) last: u64,
    pub(super) waiting: BTreeMap<u64, oneshot::Sender<Option<Epoch>>>,
}
