//! The crate's entry point: starts and stops the connections of a node, accepts frames and reports status.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tribunal_types::{Generation, NodeId};

use crate::events::PeerEvents;
use crate::holder::{self};
use crate::identity::Identity;
use crate::intake::Intake;
use crate::link::Link;
use crate::refusals::Refusals;
use crate::settings::{self, Lane, PeerSettings};
use crate::shared::{Peer, Shared};
use crate::status::{PeerStatus, PeersStatus};
use crate::{accept, dial};

/// The connections of a node to its peers. They end when it is dropped.
pub struct Peers {
    shared: Arc<Shared>,
    runtime: Handle,
    stop: watch::Sender<bool>,
    /// Also locked while peers are added.
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Peers {
    /// Starts to dial the peers, and to accept their connections on `listener`, on a runtime with I/O and time enabled.
    ///
    /// # Errors
    /// A message, if the settings are invalid, the identity is not that of the node, or the listener cannot be used.
    pub fn start(
        mut settings: PeerSettings,
        identity: Identity,
        listener: TcpListener,
        runtime: &Handle,
        events: Arc<dyn PeerEvents>,
    ) -> Result<Peers, String> {
        settings.check()?;
        identity.check(settings.node)?;
        let unusable = |error: std::io::Error| format!("the listener for peers cannot be used: {error}");
        listener.set_nonblocking(true).map_err(unusable)?;
        let _context = runtime.enter();
        let listener = tokio::net::TcpListener::from_std(listener).map_err(unusable)?;
        let peers = std::mem::take(&mut settings.peers);
        let (refusals, none) = (Refusals::default(), RwLock::default());
        let (former, generation) = (RwLock::default(), RwLock::default());
        let process = holder::own_process();
        let shared =
            Arc::new(Shared { settings, identity, events, refusals, process, peers: none, former, generation });
        let (stop, stopping) = watch::channel(false);
        let listening = runtime.spawn(accept::listen(Arc::clone(&shared), listener, stopping));
        let started = Peers { shared, runtime: runtime.clone(), stop, tasks: Mutex::new(vec![listening]) };
        started.set_peers(peers)?;
        Ok(started)
    }

    /// Replaces the peers. Connections of peers that stay at the same address continue; other connections end.
    ///
    /// # Errors
    /// A message, if this node is among them; nothing has changed then.
    pub fn set_peers(&self, peers: BTreeMap<NodeId, String>) -> Result<(), String> {
        settings::check_peers(self.shared.settings.node, &peers)?;
        let mut tasks = self.tasks.lock();
        if *self.stop.borrow() {
            return Ok(());
        }
        tasks.retain(|task| !task.is_finished());
        let mut present = self.shared.peers.write();
        let mut former = std::mem::take(&mut *present);
        for (node, address) in peers {
            let peer = match former.remove(&node) {
                Some(peer) if peer.link.address == address => peer,
                moved => self.dialled(node, address, moved, &mut tasks),
            };
            present.insert(node, peer);
        }
        for peer in former.values() {
            Lane::ALL.into_iter().for_each(|lane| peer.intake(lane).close());
        }
        Ok(())
    }

    /// Begins to dial a peer. A peer that moved keeps the connections that it dialled itself.
    fn dialled(&self, node: NodeId, address: String, moved: Option<Peer>, tasks: &mut Vec<JoinHandle<()>>) -> Peer {
        let link = Arc::new(Link::new(node, address));
        let (dialling, ended) = watch::channel(());
        for lane in Lane::ALL {
            let (shared, link, stop) = (Arc::clone(&self.shared), Arc::clone(&link), self.stop.subscribe());
            tasks.push(self.runtime.spawn(send_until_stopped(shared, link, lane, stop, ended.clone())));
        }
        let intake = |lane| Arc::new(Intake::new(node, lane, self.shared.settings.queue_bytes_max));
        let (heartbeats, bulk, holder) = match moved {
            Some(moved) => (moved.heartbeats, moved.bulk, moved.holder),
            None => (intake(Lane::Heartbeat), intake(Lane::Bulk), Arc::default()),
        };
        Peer { link, _dialling: dialling, heartbeats, bulk, holder }
    }

    /// Replaces the removed nodes. A removed node that connects is notified, through [`PeerEvents::removed`].
    pub fn set_former(&self, nodes: BTreeSet<NodeId>) {
        *self.shared.former.write() = nodes;
    }

    /// Sets the generation in which the cluster decides. Nodes whose release cannot decide in it are refused when they
    /// connect.
    pub fn set_generation(&self, generation: Generation) {
        *self.shared.generation.write() = generation;
    }

    /// Returns the peers and their addresses.
    #[must_use]
    pub fn addresses(&self) -> BTreeMap<NodeId, String> {
        self.shared.peers.read().iter().map(|(node, peer)| (*node, peer.link.address.clone())).collect()
    }

    /// Sends a frame to a peer, after the frames sent earlier on this lane. Never waits: if there is no connection or
    /// its queue is full, the frame is dropped and [`PeerEvents::unreachable`] is called. Returns whether the frame was
    /// queued.
    ///
    /// # Panics
    /// If the frame is longer than [`PeerSettings::frame_bytes_max`].
    pub fn send(&self, to: NodeId, lane: Lane, frame: Bytes) -> bool {
        self.send_all(to, lane, vec![frame])
    }

    /// Sends frames like [`Peers::send`], in order and in as few pieces as possible. Returns whether all were queued.
    ///
    /// # Panics
    /// If a frame is longer than [`PeerSettings::frame_bytes_max`].
    pub fn send_all(&self, to: NodeId, lane: Lane, frames: Vec<Bytes>) -> bool {
        let max = self.shared.settings.frame_bytes_max;
        let len = frames.iter().map(Bytes::len).max().unwrap_or_default();
        assert!(len <= max, "a frame of {len} bytes for node {to}: nodes take {max}");
        // Recursive: this may be called during the delivery of a frame, while a thread that changes the peers waits for
        // that delivery.
        let link = self.shared.peers.read_recursive().get(&to).map(|peer| Arc::clone(&peer.link));
        link.is_some_and(|link| link.send(lane, frames, &*self.shared.events))
    }

    /// Returns the status of all peers.
    #[must_use]
    pub fn status(&self) -> PeersStatus {
        let peers = self.shared.peers.read();
        let peers = peers.iter().map(|(&node, peer)| {
            let status = PeerStatus {
                address: peer.link.address.clone(),
                heartbeat: peer.lane_status(Lane::Heartbeat),
                bulk: peer.lane_status(Lane::Bulk),
            };
            (node, status)
        });
        let peers = peers.collect();
        let (refused_count, refused) = self.shared.refusals.read();
        PeersStatus { peers, refused_count, refused }
    }

    /// Ends all connections and frees the listener's address. Nothing is received or reported afterwards.
    pub async fn stop(&self) {
        let _ = self.stop.send(true);
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            // A panicked task has already been reported.
            let _ = task.await;
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
    }
}

async fn send_until_stopped(
    shared: Arc<Shared>,
    link: Arc<Link>,
    lane: Lane,
    mut stop: watch::Receiver<bool>,
    mut dialling: watch::Receiver<()>,
) {
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => {}
        // No value is ever sent on this channel; it only closes.
        _ = dialling.changed() => {}
        () = dial::keep_connected(&shared, &link, lane) => {}
    }
    link.stopped(lane);
}
