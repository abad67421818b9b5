//! Connects the sequencer with the other nodes: frames in, frames out.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;

use bytes::Bytes;
use crossbeam_channel::Sender;
use tokio::runtime::Handle;
use tribunal_member::{FRAME_BYTES_MAX, Frame};
use tribunal_peer::{Identity, Lane, PeerEvents, PeerSettings, Peers, Received, SILENT_AFTER};
use tribunal_types::NodeId;

use crate::cluster::membership::Membership;
use crate::cluster::view::View;
use crate::commit::message::Message;

/// Bytes that may wait for one node: some seconds of a busy network.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Hands what peers send to the sequencer.
struct ToSequencer {
    messages: Sender<Message>,
    view: Arc<View>,
}

impl PeerEvents for ToSequencer {
    fn received(&self, received: Received) {
        match Frame::decode(&received.frame) {
            Ok(frame) => drop(self.messages.send(Message::Peer(received, Box::new(frame)))),
            Err(malformed) => self.view.refused.note(received.from, &malformed),
        }
    }

    fn unreachable(&self, peer: NodeId) {
        let _ = self.messages.send(Message::Unreachable(peer));
    }
}

/// Starts to connect this node with the others.
///
/// # Errors
/// In words, if the address or the certificates cannot be used.
pub fn start(
    listener: TcpListener,
    membership: &Membership,
    identity: Identity,
    runtime: &Handle,
    messages: &Sender<Message>,
    view: &Arc<View>,
) -> Result<Arc<Peers>, String> {
    let others = membership.nodes.iter().filter(|(node, _)| **node != membership.node);
    let peers: BTreeMap<NodeId, String> = others.map(|(node, address)| (*node, address.clone())).collect();
    let settings = PeerSettings {
        node: membership.node,
        cluster: membership.name_with_members(),
        peers,
        frame_bytes_max: FRAME_BYTES_MAX,
        queue_bytes_max: QUEUE_BYTES_MAX,
        silent_after: SILENT_AFTER,
    };
    let events = ToSequencer { messages: messages.clone(), view: Arc::clone(view) };
    Peers::start(settings, identity, listener, runtime, Arc::new(events)).map(Arc::new)
}

/// Returns what sends a frame to another node.
pub fn sender(peers: Arc<Peers>) -> Box<dyn FnMut(NodeId, Frame) + Send> {
    Box::new(move |to, frame| {
        let lane = if frame.is_heartbeat() { Lane::Heartbeat } else { Lane::Bulk };
        // What is lost is reported, and sent again.
        peers.send(to, lane, Bytes::from(frame.encode()));
    })
}
