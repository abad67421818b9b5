//! Connects this node with the others. A received frame goes to the transfers or to the sequencer; both send over the
//! same connections.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use crossbeam_channel::Sender;
use tokio::runtime::{Builder, Handle, Runtime};
use tribunal_member::{FRAME_BYTES_MAX, Frame};
use tribunal_peer::{Identity, PeerEvents, PeerSettings, Peers, Received, SILENT_AFTER};
use tribunal_types::NodeId;

use crate::cluster::generations::own_generations;
use crate::cluster::membership::Membership;
use crate::cluster::transfers::Transfers;
use crate::cluster::view::View;
use crate::commit::message::Message;
use crate::listening::cannot_listen;

/// Maximum number of bytes queued for one node: some seconds of a busy network.
const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Passes received frames of transfers to the transfers, and all others to the sequencer.
struct Incoming {
    messages: Sender<Message>,
    view: Arc<View>,
    transfers: Arc<Transfers>,
}

impl PeerEvents for Incoming {
    fn received(&self, received: Received) {
        match Frame::decode(&received.frame) {
            Ok(frame) => {
                if let Some(frame) = self.transfers.take(received.from, frame) {
                    let _ = self.messages.send(Message::Peer(received, Box::new(frame)));
                }
            }
            Err(malformed) => self.view.refused.note(received.from, &malformed),
        }
    }

    fn unreachable(&self, peer: NodeId) {
        self.transfers.unreachable(peer);
        let _ = self.messages.send(Message::Unreachable(peer));
    }

    fn removed(&self, by: NodeId) {
        let _ = self.messages.send(Message::Removed(by));
    }
}

/// Returns this node's connection settings.
#[must_use]
pub fn settings(membership: &Membership) -> PeerSettings {
    let others = membership.nodes.iter().filter(|(node, _)| **node != membership.node);
    let peers: BTreeMap<NodeId, String> = others.map(|(node, address)| (*node, address.clone())).collect();
    PeerSettings {
        node: membership.node,
        cluster: membership.name_with_founders(),
        log: membership.identity.id.to_string(),
        peers,
        frame_bytes_max: FRAME_BYTES_MAX,
        queue_bytes_max: QUEUE_BYTES_MAX,
        silent_after: SILENT_AFTER,
        generations: own_generations(),
    }
}

/// Listens for the other nodes.
///
/// # Errors
/// A description of the failure.
pub fn listen(address: SocketAddr) -> Result<TcpListener, String> {
    let setting = "`cluster.listen` in the configuration, for the other nodes";
    TcpListener::bind(address).map_err(|error| cannot_listen(address, setting, &error))
}

/// Starts the single thread of all connections to other nodes. They are few and always busy; on a runtime of several
/// threads each frame would wake more than one of them.
///
/// # Errors
/// A description of the failure.
pub fn runtime() -> Result<Runtime, String> {
    let mut builder = Builder::new_multi_thread();
    let built = builder.worker_threads(1).thread_name("peers").enable_all().build();
    built.map_err(|error| format!("cannot start a thread: {error}"))
}

/// Starts the connections of this node to the others.
///
/// # Errors
/// If the address or the certificates cannot be used.
pub fn start(
    listener: TcpListener,
    membership: &Membership,
    identity: Identity,
    runtime: &Handle,
    messages: &Sender<Message>,
    view: &Arc<View>,
    transfers: &Arc<Transfers>,
) -> Result<Arc<Peers>, String> {
    let (view, transfers) = (Arc::clone(view), Arc::clone(transfers));
    let events = Incoming { messages: messages.clone(), view, transfers: Arc::clone(&transfers) };
    let peers = Peers::start(settings(membership), identity, listener, runtime, Arc::new(events)).map(Arc::new)?;
    transfers.connect(&peers);
    Ok(peers)
}
