//! Connects this node with the others. A received frame goes to the transfers or to the sequencer; both send over the
//! same connections.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use bytes::Bytes;
use crossbeam_channel::Sender;
use tokio::runtime::{Builder, Handle, Runtime};
use tribunal_member::{FRAME_BYTES_MAX, Frame};
use tribunal_peer::{Identity, Lane, PeerEvents, PeerSettings, Peers, Received, SILENT_AFTER};
use tribunal_types::NodeId;

use crate::cluster::membership::Membership;
use crate::cluster::releases::own_generations;
use crate::cluster::transfers::Transfers;
use crate::cluster::view::View;
use crate::commit::message::Message;
use crate::listening::cannot_listen;
use crate::readers::webhook_states;
use crate::readers::webhooks::Webhooks;
use crate::stores::push_states;
use crate::stores::pushes::Pushes;

/// Handles another node's push frames.
pub type OnPushFrame = Box<dyn FnMut(NodeId, Frame) + Send>;
/// Returns this node's push states, in frames.
pub type PushStates = Box<dyn FnMut() -> Vec<Frame> + Send>;

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

/// Returns the handler of other nodes' push frames, and the source of this node's push states.
pub fn of_pushes(pushes: &Arc<Pushes>, webhooks: &Arc<Webhooks>) -> (OnPushFrame, PushStates) {
    let (taking, telling) = (Arc::clone(pushes), Arc::clone(pushes));
    let (of_webhooks, to_webhooks) = (Arc::clone(webhooks), Arc::clone(webhooks));
    let on_frame = Box::new(move |from, frame| match frame {
        Frame::PushStates(states) => match push_states::decode(&states) {
            Ok(told) => taking.told(from, told),
            Err(malformed) => tracing::warn!(%from, %malformed, "what a node tells of its pushes was dropped"),
        },
        Frame::Deliveries(states) => match webhook_states::decode(&states) {
            Ok(told) => of_webhooks.told(from, told),
            Err(malformed) => tracing::warn!(%from, %malformed, "what a node tells of its webhooks was dropped"),
        },
        Frame::ResumePush(store) => {
            of_webhooks.resume(store);
            taking.resume_aside(store);
        }
        _ => {}
    });
    let states = Box::new(move || {
        let (own, deliveries) = (telling.own_pushes(), to_webhooks.own_deliveries());
        let pushes = (!own.is_empty()).then(|| Frame::PushStates(push_states::encode(&own)));
        let deliveries = (!deliveries.is_empty()).then(|| Frame::Deliveries(webhook_states::encode(&deliveries)));
        pushes.into_iter().chain(deliveries).collect()
    });
    (on_frame, states)
}
