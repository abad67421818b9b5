//! Tracks the process that runs as a peer: the first one with live connections. Another process with the same
//! certificate is refused.
//!
//! Two of them would replace each other's connections again and again, and starve both. A restarted process is another
//! one, too; it must not wait longer than a silent connection may look alive.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use tribunal_types::NodeId;

use crate::settings::Lane;
use crate::socket::ArrivedAt;

/// Returns a unique name for this process.
pub(crate) fn own_process() -> String {
    let random = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", random(), random())
}

/// The process whose connections a node accepts from a peer.
pub(crate) struct Holder {
    pub process: String,
    /// Address that it was admitted from.
    pub from: IpAddr,
    /// Time of the last arrival, including pings, on its connection of each lane.
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

    /// Returns whether the process is alive: one of its connections is open, and has been silent for less than
    /// `silent_after`. The connections of a killed process are closed by its system, or fall silent.
    pub(crate) fn is_alive(&self, is_open: impl Fn(Lane) -> bool, silent_after: Duration) -> bool {
        let talks = |arrived_at: &ArrivedAt| arrived_at.lock().elapsed() < silent_after;
        self.arrived_at.iter().any(|(lane, arrived_at)| is_open(*lane) && talks(arrived_at))
    }
}

/// Returns why a second process is refused. The text is always the same, so that it is logged once.
pub(crate) fn elsewhere(here: NodeId, node: NodeId, holder: IpAddr, from: IpAddr) -> String {
    let places = if holder == from { holder.to_string() } else { format!("{holder} and {from}") };
    format!(
        "node {node} is connected to node {here} already: another process at {holder} runs as node {node}. Check for a second \
         process, or a copy of its data directory or certificate, at {places}, and stop the one that is not to be node {node}; to \
         get another node, use `tribunal cluster add`"
    )
}
