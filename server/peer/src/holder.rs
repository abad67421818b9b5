//! Which process runs as a peer: the first one whose connections live. Another one with the same certificate is refused.
//!
//! Two of them would replace each other's connections again and again, and starve both. A process that restarts is another one,
//! too; it must not wait longer than a silent connection may look alive.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tribunal_types::NodeId;

use crate::settings::Lane;
use crate::socket::ArrivedAt;

/// Returns a name for this process that no other one has.
pub(crate) fn own_process() -> String {
    let random = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", random(), random())
}

/// The process whose connections a node accepts from a peer.
pub(crate) struct Holder {
    pub process: String,
    /// Where it was admitted from.
    pub from: IpAddr,
    /// When something, be it a ping, arrived last on its connection of each lane.
    pub arrived_at: BTreeMap<Lane, ArrivedAt>,
}

impl Default for Holder {
    fn default() -> Holder {
        Holder::of("", Ipv4Addr::UNSPECIFIED.into())
    }
}

impl Holder {
    pub(crate) fn of(process: &str, from: IpAddr) -> Holder {
        Holder { process: process.to_owned(), from, arrived_at: BTreeMap::new() }
    }

    /// Returns whether the process is alive: one of its connections is open, and has not been silent for as long as a peer may be.
    /// Those of a process that was killed are closed by its system, or fall silent.
    pub(crate) fn is_alive(&self, is_open: impl Fn(Lane) -> bool, silent_after: Duration) -> bool {
        let talks = |arrived_at: &ArrivedAt| arrived_at.lock().elapsed() < silent_after;
        self.arrived_at.iter().any(|(lane, arrived_at)| is_open(*lane) && talks(arrived_at))
    }
}

/// Says why a second process is refused. The same each time, so that it is logged once.
pub(crate) fn elsewhere(here: NodeId, node: NodeId, holder: IpAddr, from: IpAddr) -> String {
    let places = if holder == from { holder.to_string() } else { format!("{holder} and {from}") };
    format!(
        "node {node} is connected to node {here} already: another process at {holder} runs as node {node}. Check for a second \
         process, or a copy of its data directory or certificate, at {places}, and stop the one that is not to be node {node}; to \
         get another node, use `tribunal cluster add`"
    )
}
