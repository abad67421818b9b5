//! The leader of each group, and the groups in which this node may propose.

use std::collections::{BTreeMap, BTreeSet};

use tribunal_types::{GroupId, NodeId};

/// The leaders of the groups, as far as this node knows.
#[derive(Debug)]
pub(crate) struct Roles {
    me: NodeId,
    known: BTreeMap<GroupId, (Option<NodeId>, u64)>,
    /// Groups that this node leads in a term that has begun.
    led: BTreeSet<GroupId>,
    /// Number of later terms that groups have entered.
    elections: u64,
}

impl Roles {
    pub(crate) fn new(me: NodeId) -> Roles {
        Roles { me, known: BTreeMap::new(), led: BTreeSet::new(), elections: 0 }
    }

    /// Notes a leader and a term; returns whether this node can no longer propose in a term that had begun.
    pub(crate) fn changed(&mut self, group: GroupId, leader: Option<NodeId>, term: u64) -> bool {
        let before = self.known.insert(group, (leader, term));
        self.elections += u64::from(before.is_some_and(|(_, before)| before < term));
        before != Some((leader, term)) && self.led.remove(&group)
    }

    /// Notes that a term has begun. Returns whether this node leads it and still does: a candidate of a later term
    /// proposes nothing before that term begins.
    pub(crate) fn begun(&mut self, group: GroupId, term: u64, leading: bool) -> bool {
        let leads = leading && self.known.get(&group) == Some(&(Some(self.me), term));
        if leads {
            self.led.insert(group);
        }
        leads
    }

    /// Returns the number of elections that this node has noticed: transitions of a group to a later term.
    pub(crate) fn elections(&self) -> u64 {
        self.elections
    }

    /// Returns a group's leader, if one is known.
    pub(crate) fn leader(&self, group: GroupId) -> Option<NodeId> {
        self.known.get(&group).and_then(|known| known.0)
    }

    /// Returns whether this node leads a group in a term that has begun.
    pub(crate) fn leads(&self, group: GroupId) -> bool {
        self.led.contains(&group)
    }

    /// Returns the groups that this node leads in a term that has begun.
    pub(crate) fn led(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.led.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_proposes_from_the_begin_of_its_term_to_the_next_election() {
        let (me, group) = (NodeId(1), GroupId { node: NodeId(2), ..GroupId::default() });
        let mut roles = Roles::new(me);
        assert!(!roles.changed(group, Some(me), 3));
        assert!(!roles.begun(group, 2, true), "an earlier term of its own");
        assert!(!roles.begun(group, 3, false));
        assert!(roles.begun(group, 3, true));
        assert!(!roles.changed(group, Some(me), 3), "nothing new");
        assert_eq!(roles.led().collect::<Vec<_>>(), [group]);
        assert!(roles.changed(group, Some(me), 5), "elected again, and the new term has not begun");
        assert!(roles.begun(group, 5, true));
        assert!(roles.changed(group, None, 6));
        assert!(!roles.changed(group, Some(NodeId(3)), 6));
        assert_eq!((roles.led().count(), roles.leader(group)), (0, Some(NodeId(3))));
        assert_eq!(roles.elections(), 2, "terms 5 and 6");
    }
}
