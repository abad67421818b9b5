//! Status of the connections to peers, for operators and metrics.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use tribunal_types::NodeId;

/// Status of all peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeersStatus {
    /// Every configured peer.
    pub peers: BTreeMap<NodeId, PeerStatus>,
    /// Number of incoming connections that were refused since the start.
    pub refused_count: u64,
    /// The last refused one.
    pub refused: Option<Refused>,
}

/// Status of one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Its address, `host:port`.
    pub address: String,
    /// The lane for heartbeats.
    pub heartbeat: LaneStatus,
    /// The lane for everything else.
    pub bulk: LaneStatus,
}

impl PeerStatus {
    /// Returns whether frames can be sent to the peer on both lanes.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.heartbeat.connected && self.bulk.connected
    }

    /// Returns the time at which anything last arrived from the peer.
    #[must_use]
    pub fn received_at(&self) -> Option<Instant> {
        self.heartbeat.received_at.max(self.bulk.received_at)
    }

    /// Returns why nothing can be sent to the peer at present, as text.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.heartbeat.problem().or(self.bulk.problem())
    }
}

/// Status of one lane of one peer. Counts are since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneStatus {
    /// Whether the peer has accepted our connection, so that frames can be sent.
    pub connected: bool,
    /// Whether we have accepted a connection of the peer.
    pub accepted: bool,
    /// Time at which bytes of frames last arrived.
    pub received_at: Option<Instant>,
    /// Bytes of frames passed to a connection.
    pub sent_bytes: u64,
    /// Frames passed to a connection.
    pub sent_frames: u64,
    /// Bytes of received frames.
    pub received_bytes: u64,
    /// Received frames.
    pub received_frames: u64,
    /// Frames waiting to be sent, in bytes, plus 64 for each frame.
    pub queued_bytes: usize,
    /// Frames dropped because the queue was full or there was no connection.
    pub dropped_count: u64,
    /// Why the last connection to the peer ended or could not be made.
    pub last_problem: Option<Problem>,
}

impl LaneStatus {
    /// Returns why there is no connection to the peer at present, as text.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.last_problem.as_ref().filter(|_| !self.connected).map(|problem| problem.reason.as_str())
    }
}

/// Why a connection to a peer ended or could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Time at which it was last noticed.
    pub at: Instant,
    /// The reason, as a sentence that names both sides.
    pub reason: String,
}

/// A refused incoming connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Time of the refusal.
    pub at: Instant,
    /// Its address.
    pub from: IpAddr,
    /// The reason, as text.
    pub reason: String,
}
