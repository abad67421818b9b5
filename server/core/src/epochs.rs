//! Folds the committed logs of 1..N groups into complete epochs. This is where agreement happens: whatever a leader
//! once proposed, only what is counted here exists.
//!
//! * The log of a group is folded with a cursor: an entry counts iff it starts at the group's next epoch, else it is
//!   void. So a takeover, a restart and a late leader cannot give one epoch two contents.
//! * An epoch is complete when every member has a counted entry that covers it; its items are those of the entries
//!   that *end* with it. `poll` hands out only epochs that carry items, and silently passes over empty ones: an
//!   idle stretch of a million epochs costs one step. `last_complete` counts them all.
//! * `epoch_time` is the only time that verdicts know: max(previous, median of the clocks of the covering entries).
//!   Of two middle clocks the lower one counts. It also moves over empty epochs, which every replica passes in the
//!   same order, so it is a function of the logs alone.
//!
//! It never waits, never looks at a clock, and never looks into a transaction. Members are fixed for the lifetime of
//! the value; a change of membership builds a new one at an epoch boundary.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use tribunal_types::{Batch, Epoch, EpochInput, GroupId};

/// What became of a committed entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folded {
    /// It is the group's contribution to the epochs it seals.
    Counted,
    /// It has no effect: another entry sealed its first epoch, or would leave a gap, or its group is no member.
    /// Its transactions get no verdict; proposing them again is safe.
    Void,
}

/// The folded log of one group: the first epoch without a counted entry, and the counted entries still needed.
#[derive(Debug)]
struct GroupLog {
    next: Epoch,
    entries: VecDeque<Arc<Batch>>,
}

/// The folded logs of all members.
#[derive(Debug)]
pub struct Epochs {
    groups: BTreeMap<GroupId, GroupLog>,
    next: Epoch,
    epoch_time_ms: u64,
}

impl Epochs {
    /// Starts before epoch `next`, with the `epoch_time` of the epoch before that, Unix milliseconds.
    #[must_use]
    pub fn new(members: &[GroupId], next: Epoch, epoch_time_ms: u64) -> Self {
        let cursors: Vec<(GroupId, Epoch)> = members.iter().map(|&group| (group, next)).collect();
        Self::resume(&cursors, next, epoch_time_ms)
    }

    /// Starts again before epoch `next`, with the cursors of [`Epochs::cursors`] as they were then: a group's log is
    /// read again from its cursor on, which may be before `next` if one entry covers both.
    #[must_use]
    pub fn resume(cursors: &[(GroupId, Epoch)], next: Epoch, epoch_time_ms: u64) -> Self {
        let log = |&(group, cursor)| (group, GroupLog { next: cursor, entries: VecDeque::new() });
        Epochs { groups: cursors.iter().map(log).collect(), next, epoch_time_ms }
    }

    /// Returns for each member the first epoch of the oldest entry that is still needed, ascending group.
    #[must_use]
    pub fn cursors(&self) -> Vec<(GroupId, Epoch)> {
        let cursor = |log: &GroupLog| log.entries.front().map_or(log.next, |entry| entry.first);
        self.groups.iter().map(|(&group, log)| (group, cursor(log))).collect()
    }

    /// Folds the next committed entry of its group. Entries of different groups may come in any order.
    pub fn entry(&mut self, batch: Arc<Batch>) -> Folded {
        let Some(log) = self.groups.get_mut(&batch.group) else {
            return Folded::Void;
        };
        if batch.first != log.next || batch.last < batch.first || batch.last >= Epoch::MAX {
            return Folded::Void;
        }
        log.next = batch.last.next();
        log.entries.push_back(batch);
        Folded::Counted
    }

    /// Returns the next complete epoch that carries an item, or `None` until more entries are folded.
    pub fn poll(&mut self) -> Option<EpochInput> {
        while let Some((end, median_ms)) = self.complete_through() {
            self.next = end.next();
            self.epoch_time_ms = self.epoch_time_ms.max(median_ms);
            let batches: Vec<Arc<Batch>> = self
                .groups
                .values_mut()
                .filter_map(|log| log.entries.pop_front_if(|entry| entry.last == end))
                .filter(|entry| !entry.is_empty())
                .collect();
            if !batches.is_empty() {
                return Some(EpochInput { epoch: end, epoch_time_ms: self.epoch_time_ms, batches });
            }
        }
        None
    }

    /// Returns the first epoch for which `group` has no counted entry: where its next proposal must start.
    ///
    /// # Panics
    /// If the group is no member: then it has nothing to propose.
    #[must_use]
    pub fn next_of(&self, group: GroupId) -> Epoch {
        self.groups.get(&group).expect("only members propose").next
    }

    /// Returns the last epoch that `poll` has handed out or passed over.
    #[must_use]
    pub fn last_complete(&self) -> Epoch {
        self.next.prev()
    }

    /// Returns the replicated time of [`Epochs::last_complete`], Unix milliseconds.
    #[must_use]
    pub fn epoch_time_ms(&self) -> u64 {
        self.epoch_time_ms
    }

    /// Returns how far the oldest entries of all members cover together, and the median of their clocks.
    ///
    /// All epochs from `next` through that end are covered by the same entries, so they share one time, and only the
    /// last of them can carry items.
    fn complete_through(&self) -> Option<(Epoch, u64)> {
        let oldest: Vec<&Arc<Batch>> = self.groups.values().map(|log| log.entries.front()).collect::<Option<_>>()?;
        let end = oldest.iter().map(|entry| entry.last).min()?;
        let mut clocks: Vec<u64> = oldest.iter().map(|entry| entry.clock_ms).collect();
        clocks.sort_unstable();
        Some((end, clocks[(clocks.len() - 1) / 2]))
    }
}

#[cfg(test)]
mod tests {
    use tribunal_types::{FenceItem, Incarnation, NodeId};

    use super::*;

    fn group(node: u16) -> GroupId {
        GroupId { node: NodeId(node), incarnation: Incarnation(0) }
    }

    /// An entry of `node` for epochs `first..=last`; it carries an item unless `items` is 0.
    fn entry(node: u16, first: u64, last: u64, clock_ms: u64, items: usize) -> Arc<Batch> {
        Arc::new(Batch {
            group: group(node),
            first: Epoch(first),
            last: Epoch(last),
            clock_ms,
            fences: alloc::vec![FenceItem { id: Default::default(), namespace: Default::default() }; items],
            ..Batch::default()
        })
    }

    /// What `poll` gives: epoch, time and the nodes that contribute.
    fn polled(epochs: &mut Epochs) -> Vec<(u64, u64, Vec<u16>)> {
        core::iter::from_fn(|| epochs.poll())
            .map(|e| (e.epoch.0, e.epoch_time_ms, e.batches.iter().map(|b| b.group.node.0).collect()))
            .collect()
    }

    #[test]
    fn an_entry_counts_only_at_its_groups_cursor() {
        let mut epochs = Epochs::new(&[group(1)], Epoch(1), 0);
        assert_eq!(epochs.entry(entry(1, 2, 2, 0, 1)), Folded::Void, "leaves a gap");
        assert_eq!(epochs.entry(entry(1, 1, 3, 0, 1)), Folded::Counted);
        assert_eq!(epochs.entry(entry(1, 1, 1, 0, 9)), Folded::Void, "sealed already");
        assert_eq!(epochs.entry(entry(1, 3, 4, 0, 9)), Folded::Void, "overlaps");
        assert_eq!(epochs.entry(entry(2, 4, 4, 0, 1)), Folded::Void, "no member");
        assert_eq!(epochs.entry(entry(1, 4, 2, 0, 1)), Folded::Void, "ends before it starts");
        assert_eq!(epochs.entry(entry(1, 4, u64::MAX, 0, 1)), Folded::Void, "no such epoch");
        assert_eq!(epochs.next_of(group(1)), Epoch(4));
        assert_eq!(polled(&mut epochs), [(3, 0, alloc::vec![1])]);
        assert_eq!(epochs.poll().map(|e| e.epoch), None);
    }

    #[test]
    fn another_incarnation_is_another_group() {
        let reborn = GroupId { incarnation: Incarnation(1), ..group(1) };
        let mut epochs = Epochs::new(&[reborn], Epoch(1), 0);
        assert_eq!(epochs.entry(entry(1, 1, 1, 0, 1)), Folded::Void);
        let mut batch = (*entry(1, 1, 1, 0, 1)).clone();
        batch.group = reborn;
        assert_eq!(epochs.entry(Arc::new(batch)), Folded::Counted);
    }

    #[test]
    fn an_epoch_waits_for_every_member_and_lists_groups_in_order() {
        let mut epochs = Epochs::new(&[group(3), group(1), group(2)], Epoch(1), 0);
        epochs.entry(entry(3, 1, 1, 30, 1));
        epochs.entry(entry(3, 2, 2, 40, 1));
        epochs.entry(entry(1, 1, 1, 10, 1));
        assert_eq!(polled(&mut epochs), []);
        assert_eq!(epochs.last_complete(), Epoch(0));
        epochs.entry(entry(2, 1, 2, 20, 1));
        assert_eq!(polled(&mut epochs), [(1, 20, alloc::vec![1, 3])], "group 2 sealed epoch 1 empty");
        epochs.entry(entry(1, 2, 2, 15, 0));
        assert_eq!(polled(&mut epochs), [(2, 20, alloc::vec![2, 3])]);
    }

    #[test]
    fn empty_epochs_are_skipped_but_advance_the_time() {
        let mut epochs = Epochs::new(&[group(1)], Epoch(1), 100);
        epochs.entry(entry(1, 1, 1_000_000, 500, 0));
        epochs.entry(entry(1, 1_000_001, 1_000_001, 400, 1));
        assert_eq!(polled(&mut epochs), [(1_000_001, 500, alloc::vec![1])]);
        epochs.entry(entry(1, 1_000_002, 1_000_009, 700, 0));
        assert_eq!(polled(&mut epochs), []);
        assert_eq!((epochs.last_complete(), epochs.epoch_time_ms()), (Epoch(1_000_009), 700));
    }

    #[test]
    fn a_range_is_cut_where_another_member_has_items() {
        let mut epochs = Epochs::new(&[group(1), group(2)], Epoch(1), 0);
        epochs.entry(entry(1, 1, 10, 5, 1));
        epochs.entry(entry(2, 1, 4, 7, 1));
        epochs.entry(entry(2, 5, 5, 9, 0));
        assert_eq!(polled(&mut epochs), [(4, 5, alloc::vec![2])]);
        assert_eq!(epochs.last_complete(), Epoch(5));
        epochs.entry(entry(2, 6, 12, 9, 0));
        assert_eq!(polled(&mut epochs), [(10, 5, alloc::vec![1])]);
        assert_eq!(epochs.last_complete(), Epoch(10));
    }

    #[test]
    fn time_is_the_median_and_never_goes_back() {
        let members = [group(1), group(2), group(3)];
        let mut epochs = Epochs::new(&members, Epoch(1), 50);
        let clocks = [[1, 60, u64::MAX], [70, 2, 1], [3, 80, 90]];
        for (i, [a, b, c]) in clocks.into_iter().enumerate() {
            let e = i as u64 + 1;
            for (node, clock) in [(1, a), (2, b), (3, c)] {
                epochs.entry(entry(node, e, e, clock, 1));
            }
        }
        let times: Vec<u64> = polled(&mut epochs).iter().map(|e| e.1).collect();
        assert_eq!(times, [60, 60, 80], "one wrong clock in three moves nothing");
    }

    #[test]
    fn the_order_of_arrival_between_groups_is_invisible() {
        let entries = [
            entry(1, 1, 2, 11, 1),
            entry(1, 3, 3, 12, 0),
            entry(1, 4, 6, 13, 1),
            entry(2, 1, 1, 21, 1),
            entry(2, 2, 5, 9, 0),
            entry(2, 6, 6, 23, 1),
        ];
        let fold = |order: &[usize]| {
            let mut epochs = Epochs::new(&[group(1), group(2)], Epoch(1), 0);
            let mut seen = Vec::new();
            for &i in order {
                epochs.entry(entries[i].clone());
                seen.extend(polled(&mut epochs));
            }
            (seen, epochs.last_complete(), epochs.epoch_time_ms())
        };
        let expected = fold(&[0, 1, 2, 3, 4, 5]);
        assert_eq!(expected.0.iter().map(|e| e.0).collect::<Vec<_>>(), [1, 2, 6]);
        for order in [[3, 4, 5, 0, 1, 2], [0, 3, 1, 4, 2, 5], [3, 0, 1, 4, 5, 2]] {
            assert_eq!(fold(&order), expected);
        }
    }
}
