//! Decides when a group that was taken over is given back to its own node.
//!
//! A returning node catches up first; then it leads its own group again, because only it has transactions for that
//! group. While it lacks entries, it is offered nothing for a while: an attempt would fail, and stop the group's log
//! meanwhile. A node whose disk is stuck cannot take the leadership, although its messages arrive. So the wait doubles
//! with each attempt.

use std::collections::BTreeMap;

use tribunal_types::GroupId;

use crate::presence::Presence;

/// Ticks before the first attempt, and the maximum between two.
const WAIT_TICKS: (u64, u64) = (20, 640);

/// The offers of groups that this node leads for other nodes.
#[derive(Debug, Default)]
pub(crate) struct Homecoming {
    now: u64,
    /// By group: the tick of the next offer, and the wait before the one after that.
    offers: BTreeMap<GroupId, (u64, u64)>,
}

impl Homecoming {
    /// Notes that this node leads another node's group.
    pub(crate) fn led(&mut self, group: GroupId) {
        let (due, wait) = self.offers.entry(group).or_insert((0, WAIT_TICKS.0));
        *due = self.now + *wait;
    }

    /// Notes that a tick has passed, and returns the groups in `led` to offer to their nodes now. `has_all` returns
    /// whether the node of a group has its entries.
    pub(crate) fn tick(
        &mut self,
        led: impl Iterator<Item = GroupId>,
        presence: &Presence,
        has_all: impl Fn(GroupId) -> bool,
    ) -> Vec<GroupId> {
        self.now += 1;
        let now = self.now;
        let mut offered = Vec::new();
        for group in led {
            let Some((due, wait)) = self.offers.get_mut(&group) else { continue };
            if !presence.is_here(group.node) {
                // The wait starts over when the node is back.
                (*due, *wait) = (now + WAIT_TICKS.0, WAIT_TICKS.0);
            } else if now >= *due && (has_all(group) || now - *due >= WAIT_TICKS.1) {
                *wait = (*wait * 2).min(WAIT_TICKS.1);
                *due = now + *wait;
                offered.push(group);
            }
        }
        offered
    }
}

#[cfg(test)]
mod tests {
    use tribunal_types::NodeId;

    use super::*;

    #[test]
    fn a_group_is_offered_to_a_node_that_is_back_and_ever_more_rarely() {
        let (node, group) = (NodeId(2), GroupId { node: NodeId(2), ..GroupId::default() });
        let (mut homecoming, mut presence) = (Homecoming::default(), Presence::default());
        homecoming.led(group);
        let mut offered_at = |ticks: u64, homecoming: &mut Homecoming, here: bool, has_all: bool| {
            let mut at = Vec::new();
            for _ in 0..ticks {
                presence.tick();
                if here {
                    presence.received(node);
                }
                if !homecoming.tick([group].into_iter(), &presence, |_| has_all).is_empty() {
                    at.push(homecoming.now);
                }
            }
            at
        };
        assert_eq!(offered_at(100, &mut homecoming, false, true), [0; 0]);
        assert_eq!(offered_at(150, &mut homecoming, true, true), [120, 160, 240]);
        assert_eq!(offered_at(20, &mut homecoming, false, true), [0; 0]);
        assert_eq!(offered_at(60, &mut homecoming, true, true), [290, 330]);
        assert_eq!(offered_at(20, &mut homecoming, false, true), [0; 0]);
        assert_eq!(offered_at(300, &mut homecoming, true, false), [0; 0], "it lacks entries");
        assert_eq!(offered_at(50, &mut homecoming, true, true), [651, 691], "none of its attempts has failed");
    }
}
