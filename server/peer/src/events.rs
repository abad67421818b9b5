//! What a node's connections report.

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use tribunal_types::NodeId;

use crate::settings::Lane;

/// A received frame. While it exists, it counts towards the unprocessed bytes of its peer and lane; once these reach
/// [`PeerSettings::queue_bytes_max`](crate::PeerSettings::queue_bytes_max), nothing more is read.
#[derive(Debug)]
pub struct Received {
    /// The peer, authenticated by its certificate.
    pub from: NodeId,
    /// The lane.
    pub lane: Lane,
    /// The frame.
    pub frame: Bytes,
    pub(crate) _room: OwnedSemaphorePermit,
}

/// Receives the events of a node's connections. Called on threads of the runtime, and with locks held: must neither
/// block nor call [`Peers::set_peers`](crate::peers::Peers::set_peers).
pub trait PeerEvents: Send + Sync + 'static {
    /// A frame arrived.
    fn received(&self, frame: Received);

    /// Frames to a peer were lost or dropped. Reported once; again only after further frames were accepted for it.
    fn unreachable(&self, peer: NodeId);

    /// A peer reports that this node was removed. May be repeated.
    fn removed(&self, by: NodeId);
}
