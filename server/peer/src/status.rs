//! What is known about the connections to peers, for people and metrics.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use tribunal_types::NodeId;

/// What is known about all peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeersStatus {
    /// Every configured peer.
    pub peers: BTreeMap<NodeId, PeerStatus>,
    /// Connections from outside that were refused since the start.
    pub refused_count: u64,
    /// The last of them.
    pub refused: Option<Refused>,
}

/// What is known about one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// Where it is dialled, `host:port`.
    pub address: String,
    /// The lane for heartbeats.
    pub heartbeat: LaneStatus,
    /// The lane for everything else.
    pub bulk: LaneStatus,
}

impl PeerStatus {
    /// Returns whether frames can be sent to it on both lanes.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.heartbeat.connected && self.bulk.connected
    }

    /// Returns when anything arrived from it last.
    #[must_use]
    pub fn received_at(&self) -> Option<Instant> {
        self.heartbeat.received_at.max(self.bulk.received_at)
    }

    /// Returns why nothing can be sent to it at present, in words.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.heartbeat.problem().or(self.bulk.problem())
    }
}

/// What is known about one lane of one peer. Counts are since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneStatus {
    /// Whether our connection to the peer is accepted, so that frames can be sent.
    pub connected: bool,
    /// Whether a connection of the peer to us is accepted.
    pub accepted: bool,
    /// When bytes of frames arrived last.
    pub received_at: Option<Instant>,
    /// Bytes of frames that were given to a connection.
    pub sent_bytes: u64,
    /// Frames that were given to a connection.
    pub sent_frames: u64,
    /// Bytes of frames that were received.
    pub received_bytes: u64,
    /// Frames that were received.
    pub received_frames: u64,
    /// What waits to be sent, in bytes with 64 more for each frame.
    pub queued_bytes: usize,
    /// Frames that were dropped, because the queue was full or there was no connection.
    pub dropped_count: u64,
    /// Why there was no connection to the peer last, or is none now.
    pub last_problem: Option<Problem>,
}

impl LaneStatus {
    /// Returns why there is no connection to the peer at present, in words.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.last_problem.as_ref().filter(|_| !self.connected).map(|problem| problem.reason.as_str())
    }
}

/// Why a connection to a peer ended or could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// When it was noticed last.
    pub at: Instant,
    /// In words that name both sides.
    pub reason: String,
}

/// A connection from outside that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// When.
    pub at: Instant,
    /// Its address.
    pub from: IpAddr,
    /// Why, in words.
    pub reason: String,
}
