//! Rolling upgrades: this node announces its release in the control log, and the leader of the control log proposes the
//! switch to the next generation once all members can decide in it.
//!
//! Nothing here decides anything: the fold of the control log refuses a switch that not all members can follow. A
//! member that was just downgraded may still be counted by its earlier announcement; so the proposer waits until all
//! members have been connected for a while, long enough for each to announce its current release.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tribunal_peer::Peers;
use tribunal_types::{ControlChange, Generation, GroupId, NodeId, Release};

use crate::cluster::view::{Roles, View};
use crate::commit::message::Message;

/// Time between two checks.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Time after which a change that was not applied is proposed again.
const PROPOSED_AGAIN: Duration = Duration::from_secs(5);
/// How long all members must be connected before the generation is switched.
const SETTLED_AFTER: Duration = Duration::from_secs(3);

/// The task's connections.
pub struct Announcing {
    /// This node.
    pub node: NodeId,
    /// The release that it runs.
    pub release: Release,
    /// The known state of the cluster.
    pub view: std::sync::Arc<View>,
    /// The connected nodes.
    pub peers: Weak<Peers>,
    /// The sequencer's queue.
    pub messages: Sender<Message>,
}

impl Announcing {
    /// Starts the task, which ends with the connections to the other nodes.
    pub fn start(self, runtime: &Handle) {
        runtime.spawn(async move {
            let (mut proposed_at, mut connected) = (None::<Instant>, Connected::default());
            while let Some(peers) = self.peers.upgrade() {
                let status = peers.status();
                let now = Instant::now();
                connected.note(status.peers.iter().map(|(node, peer)| (*node, peer.is_connected())), now);
                let waits = proposed_at.is_some_and(|at| now - at < PROPOSED_AGAIN);
                if let Some(change) = (!waits).then(|| self.due(&connected, now)).flatten() {
                    proposed_at = Some(now);
                    // The result shows when it is applied.
                    let (reply, _) = oneshot::channel();
                    let _ = self.messages.send(Message::Control(change, reply));
                }
                drop(peers);
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
    }

    /// Returns the next change to propose.
    fn due(&self, connected: &Connected, now: Instant) -> Option<ControlChange> {
        let roles = self.view.roles();
        if !roles.takes_changes {
            return None;
        }
        if roles.releases.of(self.node) != Some(&self.release) {
            return Some(ControlChange::AnnounceRelease { node: self.node, release: self.release.clone() });
        }
        let next = next_generation(&roles, self.node)?;
        let others = roles.covered.keys().map(|group| group.node).filter(|node| *node != self.node);
        connected.since(others, now.checked_sub(SETTLED_AFTER)?).then_some(ControlChange::SwitchGeneration(next))
    }
}

/// Returns the generation to switch to, if this node is the proposer.
fn next_generation(roles: &Roles, node: NodeId) -> Option<Generation> {
    if roles.leaders.get(&GroupId::CONTROL) != Some(&node) {
        return None;
    }
    let members: Vec<NodeId> = roles.covered.keys().map(|group| group.node).collect();
    roles.releases.next(&members)
}

/// Since when each node has been connected.
#[derive(Default)]
struct Connected(BTreeMap<NodeId, Instant>);

impl Connected {
    fn note(&mut self, peers: impl Iterator<Item = (NodeId, bool)>, now: Instant) {
        let before = std::mem::take(&mut self.0);
        let connected = peers.filter(|(_, connected)| *connected);
        self.0 = connected.map(|(node, _)| (node, before.get(&node).copied().unwrap_or(now))).collect();
    }

    fn since(&self, mut nodes: impl Iterator<Item = NodeId>, at: Instant) -> bool {
        nodes.all(|node| self.0.get(&node).is_some_and(|since| *since <= at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_was_away_counts_from_its_return() {
        let (mut connected, begun) = (Connected::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        let nodes = [NodeId(2), NodeId(3)];
        connected.note(nodes.iter().map(|node| (*node, true)), at(0));
        connected.note([(NodeId(2), true), (NodeId(3), false)].into_iter(), at(1));
        connected.note(nodes.iter().map(|node| (*node, true)), at(2));
        assert!(connected.since(nodes[..1].iter().copied(), at(0)));
        assert!(!connected.since(nodes.iter().copied(), at(1)) && connected.since(nodes.iter().copied(), at(2)));
        assert!(!connected.since([NodeId(4)].into_iter(), at(9)), "it was never connected");
    }
}
