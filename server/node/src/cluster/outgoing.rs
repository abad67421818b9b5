//! Frames to other nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tribunal_member::Frame;
use tribunal_peer::{Lane, Peers};
use tribunal_types::NodeId;

/// Handles another node's push frames.
pub type OnPushFrame = Box<dyn FnMut(NodeId, Frame) + Send>;
/// Returns this node's push states, in frames.
pub type PushStates = Box<dyn FnMut() -> Vec<Frame> + Send>;

/// Sends a frame to another node; returns false if there is no connection or no room. Lost frames are resent by the
/// components that need them.
pub fn send(peers: &Peers, to: NodeId, frame: &Frame) -> bool {
    peers.send(to, lane_of(frame), Bytes::from(frame.encode()))
}

fn lane_of(frame: &Frame) -> Lane {
    if frame.is_heartbeat() { Lane::Heartbeat } else { Lane::Bulk }
}

/// The sequencer's outgoing frames. They are batched until flushed, and leave in one piece per peer and lane: a thread
/// wakeup, a TLS record and a write are most of the cost of a small frame, on both sides.
#[derive(Default)]
pub struct Outgoing {
    /// `None` on a single node.
    peers: Option<Arc<Peers>>,
    waiting: BTreeMap<(NodeId, Lane), Vec<Bytes>>,
}

impl Outgoing {
    /// Creates a sender over these connections.
    #[must_use]
    pub fn over(peers: Arc<Peers>) -> Outgoing {
        Outgoing { peers: Some(peers), waiting: BTreeMap::new() }
    }

    /// Adds a frame, after earlier ones for the same node and lane.
    pub fn add(&mut self, to: NodeId, frame: &Frame) {
        if self.peers.is_some() {
            self.waiting.entry((to, lane_of(frame))).or_default().push(Bytes::from(frame.encode()));
        }
    }

    /// Sends the batched frames. Lost frames are resent by the components that need them.
    pub fn flush(&mut self) {
        let Some(peers) = &self.peers else { return };
        while let Some(((to, lane), frames)) = self.waiting.pop_first() {
            let _ = peers.send_all(to, lane, frames);
        }
    }
}
