//! What the sequencer keeps for a member of a cluster, and a node that runs alone never touches.

use std::collections::BTreeMap;
use std::time::Instant;

use tokio::sync::oneshot;
use tribunal_types::{Epoch, NodeId};

use super::availability::Availability;
use crate::cluster::peer_clocks::PeerClocks;
use crate::cluster::state_copy::Lag;
use crate::commit::change_under_way::ChangeUnderWay;
use crate::commit::log_thread::GroupWrites;

/// State of the sequencer of a member.
pub(super) struct MemberSide {
    /// What the Raft groups have to write since the last input.
    pub(super) round: GroupWrites,
    /// When the member was last told that time has passed.
    pub(super) ticked_at: Instant,
    /// Ticks since it takes part.
    pub(super) ticks: u64,
    /// Ticks that its first start has taken.
    pub(super) waited_ticks: u32,
    pub(super) reads: FreshReads,
    /// What failed is no log: the node must not take part.
    pub(super) refused: bool,
    /// Entries that the others no longer have, if the node lacks some.
    pub(super) lag: Option<Lag>,
    /// The clocks of the other nodes.
    pub(super) clocks: PeerClocks,
    /// By how much the own one is ahead of them, milliseconds, if that is too much.
    pub(super) apart_ms: Option<i64>,
    pub(super) availability: Availability,
    /// Of each node that asks for it, the binding of its number to its directory.
    pub(super) claims: BTreeMap<NodeId, ChangeUnderWay>,
}

impl MemberSide {
    /// Begins at `started`.
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

/// Fresh reads that wait for the other nodes.
#[derive(Default)]
pub(super) struct FreshReads {
    pub(super) last: u64,
    pub(super) waiting: BTreeMap<u64, oneshot::Sender<Option<Epoch>>>,
}
