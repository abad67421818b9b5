//! Tracks which other nodes can take a leadership: nodes that have sent something recently and have not announced a
//! stop.

use std::collections::BTreeMap;

use tribunal_types::NodeId;

/// Ticks after its last message from which a node counts as away; also the lifetime of its last `Leaving` frame.
pub(crate) const AWAY_TICKS: u64 = 10;

/// The last ticks at which other nodes sent something.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    now: u64,
    seen: BTreeMap<NodeId, u64>,
    leaving: BTreeMap<NodeId, u64>,
}

impl Presence {
    /// Notes that a tick has passed.
    pub(crate) fn tick(&mut self) {
        self.now += 1;
    }

    /// Notes that a node sent something.
    pub(crate) fn received(&mut self, node: NodeId) {
        self.seen.insert(node, self.now);
    }

    /// Notes that a node has announced that it is about to stop.
    pub(crate) fn leaving(&mut self, node: NodeId) {
        self.leaving.insert(node, self.now);
    }

    /// Returns whether a node has sent something recently.
    pub(crate) fn sends(&self, node: NodeId) -> bool {
        self.is_recent(self.seen.get(&node))
    }

    /// Returns whether a node can take a leadership.
    pub(crate) fn is_here(&self, node: NodeId) -> bool {
        self.sends(node) && !self.is_recent(self.leaving.get(&node))
    }

    /// Returns whether a node is about to stop, or has sent nothing for `ticks` ticks.
    pub(crate) fn is_gone(&self, node: NodeId, ticks: u64) -> bool {
        // Messages from before this node's start are not known.
        let seen = self.seen.get(&node).copied().unwrap_or(0);
        self.is_recent(self.leaving.get(&node)) || self.now - seen >= ticks
    }

    fn is_recent(&self, at: Option<&u64>) -> bool {
        at.is_some_and(|at| self.now - at < AWAY_TICKS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_here_while_it_sends_and_does_not_leave() {
        let (one, other) = (NodeId(1), NodeId(2));
        let mut presence = Presence::default();
        let ticks = |presence: &mut Presence, count| (0..count).for_each(|_| presence.tick());
        assert!(!presence.is_here(one), "it has sent nothing");
        presence.received(one);
        ticks(&mut presence, AWAY_TICKS - 1);
        assert!(presence.is_here(one) && !presence.is_here(other));
        presence.leaving(one);
        presence.received(one);
        assert!(presence.sends(one) && !presence.is_here(one));
        ticks(&mut presence, AWAY_TICKS - 1);
        presence.received(one);
        assert!(!presence.is_here(one));
        presence.tick();
        assert!(presence.is_here(one), "it has started again");
        ticks(&mut presence, AWAY_TICKS);
        assert!(!presence.is_here(one), "it is silent");
    }

    #[test]
    fn a_node_is_gone_after_a_longer_silence_or_when_it_says_so() {
        let (one, other) = (NodeId(1), NodeId(2));
        let mut presence = Presence::default();
        let ticks = |presence: &mut Presence, count| (0..count).for_each(|_| presence.tick());
        ticks(&mut presence, 59);
        presence.received(one);
        assert!(!presence.is_gone(other, 60), "this node has just started");
        presence.tick();
        assert!(presence.is_gone(other, 60) && !presence.is_gone(one, 60));
        presence.leaving(one);
        assert!(presence.is_gone(one, 60));
        ticks(&mut presence, AWAY_TICKS);
        assert!(!presence.is_gone(one, 60), "it has stopped, and may be back at once");
    }
}
