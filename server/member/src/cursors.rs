//! How far a state image has read the groups' logs: the point at which a member that starts from it continues each log.
//!
//! An image is the state after some epoch. The fold may again need entries that were received before the image was
//! taken: an entry may cover that epoch and later ones. The fold's own rule determines which entries count: each starts
//! where the previous one ended. So the entry before every counted one is remembered while the next image may need it.
//!
//! Must never: name an entry after one that the image's fold still needs.

use std::collections::{BTreeMap, VecDeque};

use tribunal_codec::EntryId;
use tribunal_core::epochs::FoldPosition;
use tribunal_core::planted::{Bug, planted};
use tribunal_types::{Batch, ControlIndex, Csn, Epoch, GroupId};

/// An entry of a group, and a bound of the stamps up to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Included {
    pub id: EntryId,
    pub stamp: Csn,
}

/// The fields of a batch that decide whether it counts.
#[derive(Clone, Copy, Debug)]
struct Sealed {
    first: Epoch,
    last: Epoch,
    closes: bool,
}

/// One group that proposes batches.
#[derive(Debug, Default)]
struct Counted {
    /// First epoch without a counted entry; `None` before the group joins.
    next: Option<Epoch>,
    closed: bool,
    /// Batches from before the group joined, each with the entry before it: whether they count is not known yet.
    early: Vec<(Sealed, Included)>,
    /// For each counted entry that the next image may need: its first epoch, and the entry before it.
    before: VecDeque<(Epoch, Included)>,
    last: Included,
}

/// The groups that propose batches, and the control group.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    groups: BTreeMap<GroupId, Counted>,
    /// Control entries since the last image, preceded by the last earlier one; each with the last entry of the group
    /// before the next control entry: the group also has other entries, for example when terms begin.
    control: VecDeque<(ControlIndex, EntryId)>,
}

impl Cursors {
    /// Begins a group whose entries up to this one are included in the state.
    pub(crate) fn begin(&mut self, group: GroupId, included: Included) {
        self.groups.insert(group, Counted { last: included, ..Counted::default() });
    }

    /// Notes that a group is a member: its next counted entry starts at `next`.
    pub(crate) fn join(&mut self, group: GroupId, next: Epoch) {
        let counted = self.groups.entry(group).or_default();
        if counted.next.is_none() {
            counted.next = Some(next);
            for (sealed, before) in std::mem::take(&mut counted.early) {
                counted.count(sealed, before);
            }
        }
    }

    /// Begins the control group, whose entries up to this one are included in the state.
    pub(crate) fn begin_control(&mut self, index: ControlIndex, id: EntryId) {
        self.control = VecDeque::from([(index, id)]);
    }

    /// Notes the next entry of a group, with its batch, if any; for the control group, only entries other than control
    /// entries.
    pub(crate) fn entry(&mut self, group: GroupId, id: EntryId, batch: Option<&Batch>) {
        if group == GroupId::CONTROL
            && let Some((_, last)) = self.control.back_mut()
        {
            *last = id;
        }
        let Some(counted) = self.groups.get_mut(&group) else { return };
        let mut stamp = counted.last.stamp;
        if let Some(&Batch { first, last, closes, .. }) = batch {
            counted.count(Sealed { first, last, closes }, counted.last);
        }
        if let Some(batch) = batch {
            stamp = stamp.max(batch.proposal());
        }
        counted.last = Included { id, stamp };
    }

    /// Notes the next control entry.
    pub(crate) fn control_entry(&mut self, index: ControlIndex, id: EntryId) {
        self.control.push_back((index, id));
    }

    /// Forgets entries that only images before this position of the fold need.
    pub(crate) fn forget_below(&mut self, fold: &FoldPosition) {
        for (group, cursor) in &fold.groups {
            if let Some(counted) = self.groups.get_mut(group) {
                counted.forget_below(*cursor);
            }
        }
    }

    /// Returns for each group that takes part at this position of the fold how far it has to be included, and forgets
    /// entries that only earlier images needed. For an unknown group this is nothing; for one that has ended at this
    /// position or never joins, all of it; for one that has not joined yet, everything before its first batch.
    pub(crate) fn take(
        &mut self,
        fold: &FoldPosition,
        control: ControlIndex,
        never_joins: impl Fn(GroupId) -> bool,
    ) -> BTreeMap<GroupId, Included> {
        let mut taken = BTreeMap::new();
        for (group, cursor) in &fold.groups {
            let included = self.groups.get_mut(group).map(|counted| counted.included_at(*cursor));
            taken.insert(*group, included.unwrap_or_default());
        }
        let has_ended = |group: GroupId| {
            fold.ended.iter().any(|ended| ended.node == group.node && ended.incarnation >= group.incarnation)
        };
        for (group, counted) in &mut self.groups {
            if taken.contains_key(group) {
                continue;
            }
            if has_ended(*group) || never_joins(*group) {
                counted.before.clear();
                counted.early.clear();
                taken.insert(*group, counted.last);
            } else {
                // An admitted node that does not come must not prevent the other nodes from truncating their logs. If
                // it joins after this position of the fold, its batches are in `before` already.
                let first = counted.early.first().map(|(_, before)| *before);
                let first = first.or_else(|| counted.before.front().map(|(_, before)| *before)).unwrap_or(counted.last);
                taken.extend((first.id.index > 0).then_some((*group, first)));
            }
        }
        while self.control.get(1).is_some_and(|(index, _)| *index <= control) {
            self.control.pop_front();
        }
        let id = self.control.front().filter(|(index, _)| *index <= control).map(|(_, id)| *id).unwrap_or_default();
        taken.insert(GroupId::CONTROL, Included { id, stamp: Csn::default() });
        taken
    }
}

impl Counted {
    /// Notes a batch that follows the entry `before`; the fold's own rule decides whether it counts.
    fn count(&mut self, sealed: Sealed, before: Included) {
        let Sealed { first, last, closes } = sealed;
        let Some(next) = self.next else { return self.early.push((sealed, before)) };
        if !self.closed && first == next && last >= first && last < Epoch::MAX {
            self.before.push_back((first, before));
            self.next = Some(last.next());
            self.closed = closes;
        }
    }

    fn forget_below(&mut self, cursor: Epoch) {
        while self.before.pop_front_if(|(first, _)| *first < cursor).is_some() {}
    }

    fn included_at(&mut self, cursor: Epoch) -> Included {
        self.forget_below(cursor);
        let needed = self.before.front().filter(|_| !planted(Bug::ImageTooFar));
        needed.map_or(self.last, |(_, before)| *before)
    }
}

#[cfg(test)]
mod tests {
    use tribunal_types::NodeId;

    use super::*;

    const CONTROL: GroupId = GroupId::CONTROL;

    fn group(node: u16) -> GroupId {
        GroupId { node: NodeId(node), ..GroupId::default() }
    }

    fn id(index: u64) -> EntryId {
        EntryId { term: 3, index }
    }

    fn batch(first: u64, last: u64, stamp_us: u64) -> Batch {
        Batch { group: group(1), first: Epoch(first), last: Epoch(last), stamp_us, ..Batch::default() }
    }

    fn fold(groups: &[(u16, u64)]) -> FoldPosition {
        let groups = groups.iter().map(|(node, cursor)| (group(*node), Epoch(*cursor))).collect();
        FoldPosition { groups, ..FoldPosition::default() }
    }

    #[test]
    fn a_group_continues_after_the_entry_before_the_first_one_that_is_needed() {
        let mut cursors = Cursors::default();
        cursors.begin(group(1), Included { id: id(10), stamp: Csn(0) });
        cursors.join(group(1), Epoch(5));
        // A term begins, epochs 5 to 7, a void batch, 8, 9 to 12, a term begins.
        cursors.entry(group(1), id(11), None);
        cursors.entry(group(1), id(12), Some(&batch(5, 7, 1)));
        cursors.entry(group(1), id(13), Some(&batch(6, 9, 2)));
        cursors.entry(group(1), id(14), Some(&batch(8, 8, 3)));
        cursors.entry(group(1), id(15), Some(&batch(9, 12, 4)));
        cursors.entry(group(1), id(16), None);
        let mut at = |cursor: u64| {
            let Included { id, stamp } = cursors.take(&fold(&[(1, cursor)]), ControlIndex(0), |_| false)[&group(1)];
            (id.index, stamp.micros())
        };
        assert_eq!((at(5), at(8), at(9), at(9), at(13)), ((11, 0), (13, 2), (14, 3), (14, 3), (16, 4)));
    }

    #[test]
    fn an_unknown_group_is_included_nowhere_and_one_that_ended_everywhere() {
        let mut cursors = Cursors::default();
        for node in [1, 3, 4] {
            cursors.begin(group(node), Included::default());
            cursors.entry(group(node), id(1), Some(&batch(1, 1, 1)));
        }
        cursors.join(group(1), Epoch(1));
        let fold = FoldPosition { ended: vec![group(1)], ..fold(&[(2, 7)]) };
        let taken = cursors.take(&fold, ControlIndex(0), |of| of == group(4));
        let of = |node| taken.get(&group(node)).map(|included| included.id.index);
        assert_eq!((of(1), of(2), of(3), of(4)), (Some(1), Some(0), None, Some(1)), "3 may join");
    }

    #[test]
    fn a_group_that_has_not_joined_is_included_up_to_its_first_batch() {
        let mut cursors = Cursors::default();
        cursors.begin(group(1), Included::default());
        let taken = |cursors: &mut Cursors| {
            let taken = cursors.take(&fold(&[]), ControlIndex(0), |_| false);
            taken.get(&group(1)).map(|included| included.id.index)
        };
        assert_eq!(taken(&mut cursors), None);
        // A term begins, the members change, and the node does not come.
        (1..=2).for_each(|index| cursors.entry(group(1), id(index), None));
        assert_eq!(taken(&mut cursors), Some(2));
        cursors.entry(group(1), id(3), Some(&batch(6, 8, 1)));
        cursors.entry(group(1), id(4), None);
        assert_eq!(taken(&mut cursors), Some(2));
        cursors.join(group(1), Epoch(6));
        assert_eq!(taken(&mut cursors), Some(2), "it joins later than this position of the fold");
        let joined = cursors.take(&fold(&[(1, 9)]), ControlIndex(0), |_| false);
        assert_eq!(joined[&group(1)].id.index, 4);
    }

    #[test]
    fn what_came_before_a_group_joined_counts_from_its_first_epoch_on() {
        let mut cursors = Cursors::default();
        cursors.begin(group(1), Included::default());
        for (index, first, last) in [(2, 4, 4), (3, 6, 8), (4, 9, 9)] {
            cursors.entry(group(1), id(index), Some(&batch(first, last, index)));
        }
        cursors.join(group(1), Epoch(6));
        cursors.join(group(1), Epoch(1));
        cursors.entry(group(1), id(5), Some(&batch(10, 10, 5)));
        let mut at = |cursor: u64| cursors.take(&fold(&[(1, cursor)]), ControlIndex(0), |_| false)[&group(1)].id.index;
        assert_eq!((at(6), at(9), at(10), at(11)), (2, 3, 4, 5), "the first one was for an epoch before");
    }

    #[test]
    fn control_entries_are_included_as_far_as_they_are_applied() {
        let mut cursors = Cursors::default();
        cursors.begin_control(ControlIndex(4), id(9));
        (5..=8).for_each(|index| cursors.control_entry(ControlIndex(index), id(10 + index)));
        let at = |cursors: &mut Cursors, control| {
            cursors.take(&fold(&[]), ControlIndex(control), |_| false)[&CONTROL].id.index
        };
        let taken = [4, 6, 6, 8].map(|control| at(&mut cursors, control));
        assert_eq!((taken, cursors.control.len()), ([9, 16, 16, 18], 1));
        // Terms begin before and after the next control entry: such entries must not stay in the log until the next
        // change.
        cursors.entry(CONTROL, id(19), None);
        assert_eq!(at(&mut cursors, 8), 19);
        cursors.control_entry(ControlIndex(9), id(20));
        cursors.entry(CONTROL, id(21), None);
        assert_eq!([8, 9].map(|control| at(&mut cursors, control)), [19, 21]);
    }
}
