//! Tracks the peers to which this node sends a group's handed-out entries on request, because they cannot reach its
//! leader.
//!
//! For a while after a request, a peer is sent the following entries as soon as they are handed out; then it has to
//! send a new request. Lost entries are requested again, too.

use std::collections::{BTreeMap, BTreeSet};

use tribunal_types::{GroupId, NodeId};

/// Ticks for which a request is valid; longer than the interval between two.
const HOLDS_TICKS: u64 = 10;

/// A peer's request for a group's entries.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Index of the last entry that the peer has, or was sent.
    sent: u64,
    until: u64,
}

/// The peers with a valid request.
#[derive(Debug, Default)]
pub(crate) struct Serving {
    now: u64,
    asked: BTreeMap<(GroupId, NodeId), Asked>,
    /// Peers that may have to be sent entries; true if an empty answer must be sent as well.
    due: BTreeMap<(GroupId, NodeId), bool>,
}

impl Serving {
    /// Notes a peer's request for the entries after an index.
    pub(crate) fn asked(&mut self, group: GroupId, peer: NodeId, after: u64) {
        self.asked.insert((group, peer), Asked { sent: after, until: self.now + HOLDS_TICKS });
        self.due.insert((group, peer), true);
    }

    /// Notes that entries of a group were handed out.
    pub(crate) fn handed_out(&mut self, group: GroupId) {
        if self.asked.is_empty() {
            return;
        }
        let peers = self.asked.range((group, NodeId(0))..=(group, NodeId(u16::MAX))).map(|(key, _)| *key);
        for key in peers.collect::<BTreeSet<_>>() {
            self.due.entry(key).or_insert(false);
        }
    }

    /// Notes that a tick has passed.
    pub(crate) fn tick(&mut self) {
        self.now += 1;
        let now = self.now;
        self.asked.retain(|_, asked| asked.until > now);
    }

    /// Returns a peer that is due entries of a group after an index, and whether an empty answer must be sent as well.
    pub(crate) fn next(&mut self) -> Option<(GroupId, NodeId, u64, bool)> {
        while let Some(((group, peer), always)) = self.due.pop_first() {
            if let Some(asked) = self.asked.get(&(group, peer)) {
                return Some((group, peer, asked.sent, always));
            }
        }
        None
    }

    /// Notes that a peer was sent a group's entries up to this index.
    pub(crate) fn sent(&mut self, group: GroupId, peer: NodeId, upto: u64) {
        if let Some(asked) = self.asked.get_mut(&(group, peer)) {
            asked.sent = upto;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_sent_what_follows_for_a_while() {
        let (group, other) = (GroupId::CONTROL, GroupId { node: NodeId(7), ..GroupId::default() });
        let peer = NodeId(2);
        let mut serving = Serving::default();
        serving.handed_out(group);
        assert_eq!(serving.next(), None, "nobody has asked");
        serving.asked(group, peer, 5);
        serving.handed_out(group);
        assert_eq!((serving.next(), serving.next()), (Some((group, peer, 5, true)), None));
        serving.sent(group, peer, 9);
        serving.handed_out(other);
        assert_eq!(serving.next(), None);
        serving.handed_out(group);
        assert_eq!(serving.next(), Some((group, peer, 9, false)));
        serving.asked(group, peer, 6);
        assert_eq!(serving.next(), Some((group, peer, 6, true)), "something was lost");
        (0..HOLDS_TICKS).for_each(|_| serving.tick());
        serving.handed_out(group);
        assert_eq!(serving.next(), None, "it has not asked again");
    }
}
