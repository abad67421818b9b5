//! Nodes of a cluster in one process, the events they receive, and ways to wait for them.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;
use tribunal_peer::{
    Authority, Identity, Lane, LaneStatus, NodeCertificate, PeerEvents, PeerSettings, PeerStatus, Peers, Received,
};
use tribunal_types::{Generations, NodeId};

/// Nothing that a test waits for takes this long.
pub const DEADLINE: Duration = Duration::from_secs(60);
pub const CLUSTER: &str = "test";
/// Name of the cluster's log, derived from its secret.
pub const LOG: &str = "4fec9d87";
pub const MIB: usize = 1 << 20;

/// A frame that arrived: from, lane, bytes.
pub type Arrived = (u16, Lane, Vec<u8>);

/// The events of a node.
#[derive(Default)]
pub struct Events {
    noted: Mutex<Noted>,
    changed: Condvar,
}

#[derive(Default)]
struct Noted {
    arrived: Vec<Arrived>,
    unreachable: Vec<u16>,
    removed: Vec<u16>,
    is_processing: bool,
    unprocessed: Vec<Received>,
}

impl PeerEvents for Events {
    fn received(&self, received: Received) {
        let mut noted = self.noted.lock();
        noted.arrived.push((received.from.0, received.lane, received.frame.to_vec()));
        if !noted.is_processing && received.lane == Lane::Bulk {
            noted.unprocessed.push(received);
        }
        self.changed.notify_all();
    }

    fn unreachable(&self, peer: NodeId) {
        self.noted.lock().unreachable.push(peer.0);
        self.changed.notify_all();
    }

    fn removed(&self, by: NodeId) {
        self.noted.lock().removed.push(by.0);
    }
}

impl Events {
    pub fn processing() -> Arc<Events> {
        let events = Arc::new(Events::default());
        events.process(true);
        events
    }

    /// Starts processing bulk frames, including the queued ones, or retains them.
    pub fn process(&self, is_processing: bool) {
        let mut noted = self.noted.lock();
        noted.is_processing = is_processing;
        let processed = if is_processing { std::mem::take(&mut noted.unprocessed) } else { Vec::new() };
        drop(noted);
        drop(processed);
    }

    /// Waits until `count` frames have arrived from a node on a lane, and returns them.
    #[track_caller]
    pub fn frames(&self, from: u16, lane: Lane, count: usize) -> Vec<Vec<u8>> {
        let mut noted = self.noted.lock();
        let until = Instant::now() + DEADLINE;
        loop {
            let arrived = noted.arrived.iter().filter(|(node, on, _)| (*node, *on) == (from, lane));
            let frames = arrived.map(|(_, _, frame)| frame.clone()).collect::<Vec<_>>();
            if frames.len() >= count {
                return frames;
            }
            let late = self.changed.wait_until(&mut noted, until).timed_out();
            assert!(!late, "{} of {count} frames from node {from} arrived", frames.len());
        }
    }

    pub fn unreachable(&self) -> Vec<u16> {
        self.noted.lock().unreachable.clone()
    }

    /// Returns the peers that report that the node was removed.
    pub fn removed(&self) -> Vec<u16> {
        self.noted.lock().removed.clone()
    }

    pub fn arrived_count(&self) -> usize {
        self.noted.lock().arrived.len()
    }
}

/// A running node.
pub struct Node {
    pub peers: Peers,
    pub events: Arc<Events>,
    pub address: SocketAddr,
}

impl Node {
    #[track_caller]
    pub fn send(&self, to: u16, lane: Lane, frame: impl Into<Vec<u8>>) {
        assert!(self.peers.send(NodeId(to), lane, frame.into().into()), "dropped: {:?}", self.peers.status());
    }

    pub fn status(&self, peer: u16) -> PeerStatus {
        self.peers.status().peers[&NodeId(peer)].clone()
    }

    pub fn lane(&self, peer: u16, lane: Lane) -> LaneStatus {
        let status = self.status(peer);
        if lane == Lane::Bulk { status.bulk } else { status.heartbeat }
    }

    /// Waits until it can send to a peer.
    pub async fn connected(&self, peer: u16) {
        wait(|| self.status(peer).is_connected(), || format!("{:?}", self.status(peer))).await;
    }

    /// Waits until it reports a problem with a peer that contains these words.
    pub async fn problem(&self, peer: u16, words: &[&str]) {
        let has = |problem: &str| words.iter().all(|word| problem.contains(word));
        let status = || format!("{words:?} expected: {:?}", self.status(peer));
        wait(|| self.status(peer).problem().is_some_and(has), status).await;
    }

    pub fn refused_count(&self) -> u64 {
        self.peers.status().refused_count
    }

    /// Waits until it has refused more than `before` callers, the last one with these words.
    pub async fn refused(&self, before: u64, words: &[&str]) {
        let refused = || self.peers.status().refused.map(|refused| refused.reason).unwrap_or_default();
        let has = || self.refused_count() > before && words.iter().all(|word| refused().contains(word));
        wait(has, || format!("{words:?} expected: {}", refused())).await;
    }
}

/// Waits until a condition holds.
pub async fn wait(holds: impl Fn() -> bool, state: impl Fn() -> String) {
    let until = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < until, "{}", state());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

/// Returns settings with peers at these addresses. A silent peer is noticed late: a separate test covers that.
pub fn settings(node: u16, peers: &[(u16, SocketAddr)]) -> PeerSettings {
    PeerSettings {
        node: NodeId(node),
        cluster: CLUSTER.into(),
        log: LOG.into(),
        peers: peers.iter().map(|(peer, address)| (NodeId(*peer), address.to_string())).collect::<BTreeMap<_, _>>(),
        frame_bytes_max: 12 * MIB,
        queue_bytes_max: 16 * MIB,
        silent_after: DEADLINE,
        generations: Generations::OWN,
    }
}

pub fn identity(made: &NodeCertificate, authority: &Authority) -> Identity {
    Identity::from_pem(made.identity(authority.certificate_pem())).expect("an identity")
}

pub fn node_identity(authority: &Authority, node: u16) -> Identity {
    identity(&authority.node_certificate(NodeId(node), &[]).expect("made"), authority)
}

/// Starts a node.
#[track_caller]
pub fn start(authority: &Authority, settings: PeerSettings, listener: TcpListener) -> Node {
    let events = Events::processing();
    let address = listener.local_addr().expect("it is bound");
    let identity = node_identity(authority, settings.node.0);
    let peers = Peers::start(settings, identity, listener, &Handle::current(), Arc::clone(&events) as _);
    Node { peers: peers.expect("it starts"), events, address }
}

/// Starts nodes 1 to `count` and waits until all are connected.
pub async fn cluster(authority: &Authority, count: u16, change: impl Fn(&mut PeerSettings)) -> Vec<Node> {
    let listeners = (1..=count).map(|node| (node, listener())).collect::<Vec<_>>();
    let addresses = listeners.iter().map(|(node, (_, address))| (*node, *address)).collect::<Vec<_>>();
    let nodes = listeners.into_iter().map(|(node, (listener, _))| {
        let others = addresses.iter().copied().filter(|(other, _)| *other != node).collect::<Vec<_>>();
        let mut settings = settings(node, &others);
        change(&mut settings);
        start(authority, settings, listener)
    });
    let nodes = nodes.collect::<Vec<_>>();
    for node in 1..=count {
        for other in (1..=count).filter(|other| *other != node) {
            nodes[usize::from(node) - 1].connected(other).await;
        }
    }
    nodes
}

pub fn authority() -> Authority {
    Authority::create(CLUSTER).expect("made")
}
