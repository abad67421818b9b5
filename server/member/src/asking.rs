//! Decides when this node queries a peer for the entries of a group whose leader it cannot reach (rule 18 of the
//! cluster).
//!
//! The leader may be healthy and only the link to it cut: then a third node has the entries that it commits. One peer
//! at a time is queried, repeatedly; a peer that does not answer is replaced by the next one.

use std::collections::BTreeMap;

use tribunal_types::{GroupId, NodeId};

/// Ticks without a reachable leader before a peer is queried.
const AFTER_TICKS: u64 = 3;
/// Ticks between two requests.
const EVERY_TICKS: u64 = 3;

/// A group without a reachable leader.
#[derive(Debug, Default)]
struct CutOff {
    ticks: u64,
    /// Number of peers that did not answer.
    turn: usize,
    asked: Option<NodeId>,
}

/// The groups without a reachable leader.
#[derive(Debug, Default)]
pub(crate) struct Asking(BTreeMap<GroupId, CutOff>);

impl Asking {
    /// Notes that a tick has passed. Returns the one of `peers` to query now for a group's entries.
    pub(crate) fn tick(&mut self, group: GroupId, reaches_leader: bool, peers: &[NodeId]) -> Option<NodeId> {
        if reaches_leader {
            self.0.remove(&group);
            return None;
        }
        let cut_off = self.0.entry(group).or_default();
        cut_off.ticks += 1;
        if cut_off.ticks.checked_sub(AFTER_TICKS).is_none_or(|ticks| !ticks.is_multiple_of(EVERY_TICKS)) {
            return None;
        }
        // The previously queried peer has not answered.
        cut_off.turn += usize::from(cut_off.asked.is_some());
        cut_off.asked = cut_off.turn.checked_rem(peers.len()).and_then(|at| peers.get(at)).copied();
        cut_off.asked
    }

    /// Notes that a peer has answered.
    pub(crate) fn answered(&mut self, group: GroupId, peer: NodeId) {
        if let Some(cut_off) = self.0.get_mut(&group) {
            cut_off.asked = cut_off.asked.filter(|asked| *asked != peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_peer_is_asked_as_long_as_it_answers() {
        let (group, peers) = (GroupId::CONTROL, [NodeId(2), NodeId(3)]);
        let mut asking = Asking::default();
        let asked = |asking: &mut Asking, reaches, answers: &[u16]| {
            let mut asked = Vec::new();
            for _ in 0..EVERY_TICKS * 3 {
                if let Some(peer) = asking.tick(group, reaches, &peers) {
                    asked.push(peer.0);
                    if answers.contains(&peer.0) {
                        asking.answered(group, peer);
                    }
                }
            }
            asked
        };
        assert_eq!(asked(&mut asking, true, &[]), [0; 0]);
        assert_eq!(asked(&mut asking, false, &[2, 3]), [2, 2, 2]);
        assert_eq!(asked(&mut asking, false, &[3]), [2, 3, 3]);
        assert_eq!(asked(&mut asking, false, &[]), [3, 2, 3]);
        assert_eq!(asked(&mut asking, true, &[]), [0; 0]);
        assert_eq!(asking.tick(group, false, &peers), None, "it begins again");
        (0..AFTER_TICKS).for_each(|_| assert_eq!(asking.tick(group, false, &[]), None, "nobody is there"));
    }
}
