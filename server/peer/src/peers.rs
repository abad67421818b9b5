//! The way in and out: starts and stops the connections of a node, takes frames and tells what is known.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tribunal_types::NodeId;

use crate::accept;
use crate::dial;
use crate::identity::Identity;
use crate::intake::{Intake, Received};
use crate::link::Link;
use crate::refusals::Refusals;
use crate::settings::{Lane, PeerSettings};
use crate::status::{LaneStatus, PeerStatus, PeersStatus};

/// How many times longer than on the heartbeat lane a peer may be silent on the bulk lane: what is in its way there is long.
const BULK_SILENCE_FACTOR: u32 = 5;

/// What happens to a node's connections. Called on threads of the runtime, which must not block: pass it on.
pub trait PeerEvents: Send + Sync + 'static {
    /// A frame arrived.
    fn received(&self, frame: Received);

    /// Frames to a peer were lost or dropped. Reported once; again only after further frames were taken for it.
    fn unreachable(&self, peer: NodeId);
}

/// The connections of a node to its peers. They end when it is dropped.
pub struct Peers {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// What the tasks of all connections use.
pub(crate) struct Shared {
    pub settings: PeerSettings,
    pub identity: Identity,
    pub events: Arc<dyn PeerEvents>,
    pub refusals: Refusals,
    peers: BTreeMap<NodeId, Peer>,
}

struct Peer {
    link: Arc<Link>,
    heartbeats: Arc<Intake>,
    bulk: Arc<Intake>,
}

impl Peer {
    fn intake(&self, lane: Lane) -> &Arc<Intake> {
        match lane {
            Lane::Heartbeat => &self.heartbeats,
            Lane::Bulk => &self.bulk,
        }
    }

    fn lane_status(&self, lane: Lane) -> LaneStatus {
        let (link, intake) = (self.link.status(lane), self.intake(lane));
        LaneStatus {
            connected: link.connected,
            accepted: intake.is_accepted(),
            received_at: intake.received_at(),
            sent_bytes: link.sent_bytes,
            received_bytes: intake.received_bytes(),
            queued_bytes: link.queued_bytes,
            dropped_count: link.dropped_count,
            last_problem: link.last_problem,
        }
    }
}

impl Shared {
    pub(crate) fn intake(&self, peer: NodeId, lane: Lane) -> Option<&Arc<Intake>> {
        self.peers.get(&peer).map(|peer| peer.intake(lane))
    }

    /// Returns how long a peer may be silent.
    pub(crate) fn silent_after(&self, lane: Lane) -> Duration {
        match lane {
            Lane::Heartbeat => self.settings.silent_after,
            Lane::Bulk => self.settings.silent_after * BULK_SILENCE_FACTOR,
        }
    }
}

impl Peers {
    /// Starts to dial the peers, and to accept their connections on `listener`, on a runtime with I/O and time.
    ///
    /// # Errors
    /// In words, if the settings cannot work, the identity is not that of the node, or the listener cannot be used.
    pub fn start(
        settings: PeerSettings,
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
        let peers = settings.peers.iter().map(|(&node, address)| {
            let intake = |lane| Arc::new(Intake::new(node, lane, settings.queue_bytes_max));
            let link = Arc::new(Link::new(node, address.clone()));
            (node, Peer { link, heartbeats: intake(Lane::Heartbeat), bulk: intake(Lane::Bulk) })
        });
        let peers = peers.collect();
        let shared = Arc::new(Shared { settings, identity, events, refusals: Refusals::default(), peers });
        let (stop, stopping) = watch::channel(false);
        let mut tasks = vec![runtime.spawn(accept::listen(Arc::clone(&shared), listener, stopping.clone()))];
        for peer in shared.peers.values() {
            for lane in Lane::ALL {
                let (shared, link, stopping) = (Arc::clone(&shared), Arc::clone(&peer.link), stopping.clone());
                tasks.push(runtime.spawn(send_until_stopped(shared, link, lane, stopping)));
            }
        }
        Ok(Peers { shared, stop, tasks: Mutex::new(tasks) })
    }

    /// Sends a frame to a peer, after those that were sent to it on this lane before. Never waits: if there is no connection or
    /// its queue is full, the frame is dropped and [`PeerEvents::unreachable`] called. Returns whether the frame was queued.
    ///
    /// # Panics
    /// If the frame is longer than [`PeerSettings::frame_bytes_max`].
    pub fn send(&self, to: NodeId, lane: Lane, frame: Bytes) -> bool {
        let (len, max) = (frame.len(), self.shared.settings.frame_bytes_max);
        assert!(len <= max, "a frame of {len} bytes for node {to}: nodes take {max}");
        self.shared.peers.get(&to).is_some_and(|peer| peer.link.send(lane, frame, &*self.shared.events))
    }

    /// Returns what is known about all peers.
    #[must_use]
    pub fn status(&self) -> PeersStatus {
        let peers = self.shared.peers.iter().map(|(&node, peer)| {
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

    /// Ends all connections and frees the listener's address. Nothing is received and nothing reported afterwards.
    pub async fn stop(&self) {
        let _ = self.stop.send(true);
        let tasks = std::mem::take(&mut *self.tasks.lock());
        for task in tasks {
            // A task that panicked has told so.
            let _ = task.await;
        }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
    }
}

async fn send_until_stopped(shared: Arc<Shared>, link: Arc<Link>, lane: Lane, mut stop: watch::Receiver<bool>) {
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => {}
        () = dial::keep_connected(&shared, &link, lane) => {}
    }
    link.stopped(lane);
}
