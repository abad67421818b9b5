//! What the tasks of all connections of a node share: its peers, and who may deliver.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tribunal_types::{Generation, NodeId};

use crate::admission::Admitted;
use crate::events::PeerEvents;
use crate::holder::{Holder, elsewhere};
use crate::identity::Identity;
use crate::intake::{Delivery, Intake};
use crate::link::Link;
use crate::refusals::Refusals;
use crate::settings::{Lane, PeerSettings};
use crate::socket::ArrivedAt;
use crate::status::LaneStatus;

/// Factor by which a peer may be silent longer on the bulk lane than on the heartbeat lane: the bulk frames queued
/// ahead of an answer are long.
const BULK_SILENCE_FACTOR: u32 = 5;

/// State shared by the tasks of all connections.
pub(crate) struct Shared {
    pub settings: PeerSettings,
    pub identity: Identity,
    pub events: Arc<dyn PeerEvents>,
    pub refusals: Refusals,
    /// Distinguishes this process from others that run as the same node.
    pub process: String,
    pub peers: RwLock<BTreeMap<NodeId, Peer>>,
    /// Removed nodes; they are notified when they connect.
    pub former: RwLock<BTreeSet<NodeId>>,
    /// The generation in which the cluster decides, as far as this node knows.
    pub generation: RwLock<Generation>,
}

/// A current peer.
pub(crate) struct Peer {
    pub link: Arc<Link>,
    /// The link is dialled until this is dropped.
    pub _dialling: watch::Sender<()>,
    pub heartbeats: Arc<Intake>,
    pub bulk: Arc<Intake>,
    /// The process whose connections are accepted.
    pub holder: Arc<Mutex<Holder>>,
}

impl Peer {
    pub fn intake(&self, lane: Lane) -> &Arc<Intake> {
        match lane {
            Lane::Heartbeat => &self.heartbeats,
            Lane::Bulk => &self.bulk,
        }
    }

    pub fn lane_status(&self, lane: Lane) -> LaneStatus {
        let (link, intake) = (self.link.status(lane), self.intake(lane));
        LaneStatus {
            connected: link.connected,
            accepted: intake.is_accepted(),
            received_at: intake.received_at(),
            sent_bytes: link.sent_bytes,
            sent_frames: link.sent_frames,
            received_bytes: intake.received_bytes(),
            received_frames: intake.received_frames(),
            queued_bytes: link.queued_bytes,
            dropped_count: link.dropped_count,
            last_problem: link.last_problem,
        }
    }
}

impl Shared {
    /// Allows a new connection of a node to deliver.
    ///
    /// # Errors
    /// A message, if the node is not a peer, or another process runs as the node.
    pub(crate) fn accept(&self, who: &Admitted, from: IpAddr, arrived_at: &ArrivedAt) -> Result<Delivery, String> {
        let Admitted { node, lane, process } = who;
        // Under the lock, so that no connection is accepted once its peer is removed.
        let peers = self.peers.read();
        let Some(peer) = peers.get(node) else {
            return Err(format!("node {} no longer has node {node} among its peers", self.settings.node));
        };
        let is_accepted = |lane: Lane| peer.intake(lane).is_accepted();
        let mut holder = peer.holder.lock();
        if holder.process != *process {
            // A release that does not name its process replaces the holder, and is replaced.
            let both_named = !holder.process.is_empty() && !process.is_empty();
            if both_named && holder.is_alive(is_accepted, self.settings.silent_after) {
                return Err(elsewhere(self.settings.node, *node, holder.from, from));
            }
            *holder = Holder::of(process, from);
        }
        holder.arrived_at.insert(*lane, Arc::clone(arrived_at));
        Ok(peer.intake(*lane).accept())
    }

    /// Returns how long a peer may be silent.
    pub(crate) fn silent_after(&self, lane: Lane) -> Duration {
        match lane {
            Lane::Heartbeat => self.settings.silent_after,
            Lane::Bulk => self.settings.silent_after * BULK_SILENCE_FACTOR,
        }
    }
}
