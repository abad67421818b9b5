//! Connections between the nodes of a cluster: frames of bytes from one node to another, on two lanes.
//!
//! A node dials each peer once for each [`Lane`] and sends frames only on its own connections; a peer's frames arrive
//! on the connections that the peer dialled. Each connection is one HTTP/2 request over mutual TLS 1.3, whose body is
//! the frames (decision 84). This crate does not interpret the content of frames.
//!
//! Invariants:
//! * [`Peers::send`] never waits. A frame is sent in order or dropped, and a drop is reported; the sender has to repair
//!   it.
//! * Frames of one connection arrive whole and in order. After a newer connection of the same node and lane was
//!   accepted, nothing of the older one is delivered.
//! * Memory is bounded. For each peer and lane: [`PeerSettings::queue_bytes_max`] of frames waiting to be sent, as much
//!   of received but unprocessed frames, one flow-control window, and three frames in transit.
//! * A peer proves its node number by its certificate, on every connection (no session is resumed).
//! * No data from a socket causes a panic or delays other connections.

mod accept;
mod admission;
mod certificates;
mod deframer;
mod dial;
mod events;
mod holder;
mod identity;
mod intake;
mod link;
mod peers;
mod reason_body;
mod refusals;
mod send_queue;
mod settings;
mod shared;
mod socket;
mod status;
mod task_scope;
mod tls_errors;
mod validity;

pub use certificates::{Authority, NodeCertificate, check_host};
pub use events::{PeerEvents, Received};
pub use identity::{Identity, IdentityFiles, IdentityPem, certificates_in, node_name};
pub use peers::Peers;
pub use settings::{Lane, PeerSettings, SILENT_AFTER};
pub use status::{LaneStatus, PeerStatus, PeersStatus, Problem, Refused};
pub use validity::{expires_at, outside_of_period};
