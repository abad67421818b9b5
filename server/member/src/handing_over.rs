//! A node that is about to stop gives away the leaderships that it has, and those that it is elected to while leaving.
//! A drained node does the same while it is drained.
//!
//! Each group is offered to one node at a time. A node whose disk is stuck cannot take the leadership, although its
//! messages arrive; then the next node's turn begins. The others are notified repeatedly, because a frame may be lost.

use tribunal_types::{GroupId, NodeId};

/// Ticks that a node has to take a leadership; Raft gives up after the same time.
const TURN_TICKS: u64 = 10;
/// Ticks between two `Leaving` frames; fewer than the number for which peers remember one.
const TOLD_EVERY_TICKS: u64 = 3;

/// How long this node has been giving its leaderships away.
#[derive(Debug, Default)]
pub(crate) struct HandingOver {
    /// Ticks since it began; `None` if the node stays.
    ticks: Option<u64>,
}

impl HandingOver {
    /// Starts giving leaderships away.
    pub(crate) fn begin(&mut self) {
        self.ticks.get_or_insert(0);
    }

    /// Ends it: the node may lead again.
    pub(crate) fn end(&mut self) {
        self.ticks = None;
    }

    /// Notes that a tick has passed.
    pub(crate) fn tick(&mut self) {
        self.ticks = self.ticks.map(|ticks| ticks + 1);
    }

    /// Returns whether the node is giving its leaderships away.
    pub(crate) fn is_leaving(&self) -> bool {
        self.ticks.is_some()
    }

    /// Returns whether to notify the others now.
    pub(crate) fn tells(&self) -> bool {
        self.ticks.is_some_and(|ticks| ticks.is_multiple_of(TOLD_EVERY_TICKS))
    }

    /// Returns the node to which to give a group now: its home node first, then the others by ascending number from
    /// `me` on, so that not all nodes choose the same one. `candidates` are the nodes that can take it, ascending.
    pub(crate) fn successor(&self, me: NodeId, group: GroupId, candidates: &[NodeId]) -> Option<NodeId> {
        let turn = self.ticks? / TURN_TICKS;
        let after = candidates.iter().filter(|node| **node > me);
        let in_turn = after.chain(candidates.iter().filter(|node| **node < me)).copied();
        let home = candidates.iter().copied().find(|node| *node == group.node && *node != me);
        let all = home.into_iter().chain(in_turn.filter(|node| Some(*node) != home)).collect::<Vec<_>>();
        let at = usize::try_from(turn).unwrap_or_default().checked_rem(all.len())?;
        all.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_home_of_a_group_comes_first_and_then_everybody_else_in_turn() {
        let group = |node| GroupId { node: NodeId(node), ..GroupId::default() };
        let candidates = [NodeId(1), NodeId(3), NodeId(4)];
        let mut leaving = HandingOver::default();
        assert_eq!(leaving.successor(NodeId(2), group(1), &candidates), None, "it stays");
        leaving.begin();
        let mut in_turn = |me, of, candidates: &[NodeId]| {
            leaving.ticks = Some(0);
            let mut turns = Vec::new();
            for _ in 0..4 {
                turns.push(leaving.successor(NodeId(me), group(of), candidates).map_or(0, |node| node.0));
                (0..TURN_TICKS).for_each(|_| leaving.tick());
            }
            turns
        };
        assert_eq!(in_turn(2, 1, &candidates), [1, 3, 4, 1]);
        assert_eq!(in_turn(2, 2, &candidates), [3, 4, 1, 3], "its own");
        assert_eq!(in_turn(5, 0, &candidates), [1, 3, 4, 1], "the control group has no home");
        assert_eq!(in_turn(2, 9, &candidates), [3, 4, 1, 3], "its home is away");
        assert_eq!(in_turn(2, 1, &[]), [0; 4], "nobody is there");
    }

    #[test]
    fn the_others_are_told_at_once_and_again() {
        let mut leaving = HandingOver::default();
        assert!(!leaving.tells());
        leaving.begin();
        let told = (0..7).map(|_| (leaving.tells(), leaving.tick()).0);
        assert_eq!(told.collect::<Vec<_>>(), [true, false, false, true, false, false, true]);
        leaving.begin();
        assert_eq!(leaving.ticks, Some(7), "it goes on");
    }
}
