//! Folds the committed logs of 1..N groups into complete epochs. This is where agreement happens: of all the entries
//! leaders ever proposed, only the ones counted here exist.
//!
//! * The log of a group is folded with a cursor: an entry counts iff it starts at the group's next epoch, otherwise it
//!   is void. So no takeover, restart or late leader can give one epoch two contents.
//! * An epoch is complete when every member has a counted entry that covers it; its items are those of the entries that
//!   *end* with it. `poll` returns only epochs that carry items and silently skips empty ones: an idle stretch of a
//!   million epochs costs one step. `last_complete` counts them all.
//! * `epoch_time` is the only time that verdicts depend on: max(previous, median of the clocks of the covering
//!   entries). With an even number of clocks, the lower median counts. An entry that another node made for the group
//!   has no clock, and no vote. The time also advances over empty epochs, which every replica passes in the same order,
//!   so it is a function of the logs alone.
//! * K(e), the last control entry that epoch *e* is resolved with, is max(K(e-1), the control indices of *all* entries
//!   that cover e-1, including empty ones). `poll` requests the missing entries up to K(e), and returns nothing else
//!   before they are applied.
//! * A group joins by a control entry that names its first epoch: it is a member from that epoch on, or from the first
//!   epoch that carries the control entry if that is later. It leaves after the last epoch of its own entry that closes
//!   it.
//!
//! It never waits, never reads a clock, and never inspects a transaction.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use tribunal_types::{Batch, ControlIndex, Epoch, EpochInput, GroupId, Incarnation, NodeId};

use crate::planted::{Bug, planted};

/// The outcome of folding a committed entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folded {
    /// It is the group's contribution to the epochs it seals.
    Counted,
    /// It has no effect: another entry sealed its first epoch, or it would leave a gap, or its group has ended. Its
    /// transactions get no verdict; proposing them again is safe.
    Void,
    /// Its group has not joined. Whether it will count is unknown: fold it again once control entries were applied,
    /// before the entries that follow it in its log.
    Early,
}

/// The next step.
#[derive(Clone, Debug)]
pub enum Step {
    /// Apply the control entries up to this one, report that to [`Epochs::applied`], and poll again. If they are not
    /// available yet, nothing else can be done first.
    Control {
        /// The last control entry to apply.
        upto: ControlIndex,
        /// First epoch that is resolved with them.
        next: Epoch,
    },
    /// Resolve an epoch.
    Epoch {
        /// Its input.
        input: EpochInput,
        /// K of the epoch: all control entries up to this one are applied, and no later one.
        control: ControlIndex,
    },
}

/// Position of the fold: the state that a replica needs to continue it, besides the groups' logs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoldPosition {
    /// First epoch that was neither returned nor skipped.
    pub next: Epoch,
    /// Replicated time of the previous epoch, in Unix milliseconds.
    pub epoch_time_ms: u64,
    /// K of `next`.
    pub control: ControlIndex,
    /// Members, and groups that are to become members, ascending: each log is read again from the entry that starts at
    /// this epoch. That may be before `next`, if one entry covers both.
    pub groups: Vec<(GroupId, Epoch)>,
    /// For each node with a group that ended, ascending: the newest ended incarnation.
    pub ended: Vec<GroupId>,
}

impl FoldPosition {
    /// Returns the position as words for a state image.
    #[must_use]
    pub fn to_words(&self) -> Vec<u64> {
        let name = |group: &GroupId| u64::from(group.incarnation.0) << 16 | u64::from(group.node.0);
        let mut words = alloc::vec![self.next.0, self.epoch_time_ms, self.control.0, self.groups.len() as u64];
        words.extend(self.groups.iter().flat_map(|(group, cursor)| [name(group), cursor.0]));
        words.extend(self.ended.iter().map(name));
        words
    }

    /// Reads the output of [`FoldPosition::to_words`]; returns `None` for anything else.
    #[must_use]
    pub fn from_words(words: &[u64]) -> Option<FoldPosition> {
        let (&[next, epoch_time_ms, control, groups], names) = words.split_first_chunk()?;
        let group = |&name: &u64| {
            let incarnation = Incarnation(u32::try_from(name >> 16).ok()?);
            Some(GroupId { node: NodeId(name as u16), incarnation })
        };
        let (groups, ended) = names.split_at_checked(usize::try_from(groups).ok()?.checked_mul(2)?)?;
        let rises = |groups: &[GroupId]| groups.is_sorted_by(|a, b| a < b);
        let position = FoldPosition {
            next: Epoch(next),
            epoch_time_ms,
            control: ControlIndex(control),
            groups: groups.chunks_exact(2).map(|g| Some((group(&g[0])?, Epoch(g[1])))).collect::<Option<_>>()?,
            ended: ended.iter().map(group).collect::<Option<_>>()?,
        };
        let members: Vec<GroupId> = position.groups.iter().map(|(group, _)| *group).collect();
        (rises(&members) && rises(&position.ended) && next <= Epoch::MAX.0).then_some(position)
    }
}

/// The folded log of one group: the first epoch without a counted entry, and the counted entries that are still needed.
#[derive(Debug)]
struct GroupLog {
    next: Epoch,
    entries: VecDeque<Arc<Batch>>,
    /// Whether a counted entry ends the group.
    closed: bool,
}

impl GroupLog {
    fn start(next: Epoch) -> GroupLog {
        GroupLog { next, entries: VecDeque::new(), closed: false }
    }

    /// Returns the first epoch of the oldest entry that is still needed.
    fn cursor(&self) -> Epoch {
        self.entries.front().map_or(self.next, |entry| entry.first)
    }
}

/// Epochs that the oldest entries of all members cover together.
struct Run {
    last: Epoch,
    /// K of the epoch after `last`.
    control: ControlIndex,
    /// Median of the entries' clocks.
    median_ms: u64,
}

/// The folded logs of all members.
#[derive(Debug)]
pub struct Epochs {
    /// Members, and groups that become members at their cursor, which is after `next` until then.
    groups: BTreeMap<GroupId, GroupLog>,
    ended: BTreeMap<NodeId, Incarnation>,
    next: Epoch,
    epoch_time_ms: u64,
    /// K of `next`.
    control: ControlIndex,
    /// Last control entry that the caller has applied.
    applied: ControlIndex,
}

impl Epochs {
    /// Starts before epoch `next`, with the `epoch_time` of the previous epoch in Unix milliseconds, and without any
    /// control entry.
    #[must_use]
    pub fn new(members: &[GroupId], next: Epoch, epoch_time_ms: u64) -> Self {
        let groups = members.iter().map(|&group| (group, next)).collect();
        let position = FoldPosition { next, epoch_time_ms, groups, ..FoldPosition::default() };
        Self::resume(&position, ControlIndex(0))
    }

    /// Continues from a position, in a state that includes the control entries up to `applied`.
    #[must_use]
    pub fn resume(position: &FoldPosition, applied: ControlIndex) -> Self {
        let &FoldPosition { next, epoch_time_ms, control, ref groups, ref ended } = position;
        Epochs {
            groups: groups.iter().map(|&(group, cursor)| (group, GroupLog::start(cursor))).collect(),
            ended: ended.iter().map(|group| (group.node, group.incarnation)).collect(),
            next,
            epoch_time_ms,
            control,
            applied,
        }
    }

    /// Returns the position that [`Epochs::resume`] continues from.
    #[must_use]
    pub fn position(&self) -> FoldPosition {
        FoldPosition {
            next: self.next,
            epoch_time_ms: self.epoch_time_ms,
            control: self.control,
            groups: self.groups.iter().map(|(&group, log)| (group, log.cursor())).collect(),
            ended: self.ended.iter().map(|(&node, &incarnation)| GroupId { node, incarnation }).collect(),
        }
    }

    /// Folds the next committed entry of its group. Entries of different groups may come in any order.
    pub fn entry(&mut self, batch: Arc<Batch>) -> Folded {
        let GroupId { node, incarnation } = batch.group;
        let Some(log) = self.groups.get_mut(&batch.group) else {
            let ended = self.ended.get(&node).is_some_and(|ended| incarnation <= *ended);
            return if ended { Folded::Void } else { Folded::Early };
        };
        let sealed = batch.first < log.next && !planted(Bug::VoidCounted);
        if log.closed || sealed || batch.first > log.next || batch.last < batch.first || batch.last >= Epoch::MAX {
            return Folded::Void;
        }
        log.next = batch.last.next();
        log.closed = batch.closes;
        log.entries.push_back(batch);
        Folded::Counted
    }

    /// Notes that the caller has applied the control entries up to `upto`.
    pub fn applied(&mut self, upto: ControlIndex) {
        self.applied = self.applied.max(upto);
    }

    /// Lets a group join when the control entry that names `first` as its first epoch is applied. Returns its actual
    /// first epoch; `None` if the group is a member, or if the same or a newer incarnation of its node has ended.
    pub fn join(&mut self, group: GroupId, first: Epoch) -> Option<Epoch> {
        let ended = self.ended.get(&group.node).is_some_and(|ended| group.incarnation <= *ended);
        if ended || self.groups.contains_key(&group) {
            return None;
        }
        // Epochs that are complete without it are too late to join.
        let first = first.max(self.next);
        self.groups.insert(group, GroupLog::start(first));
        Some(first)
    }

    /// Returns the next step, or `None` until more entries are folded.
    pub fn poll(&mut self) -> Option<Step> {
        loop {
            if self.applied < self.control && !planted(Bug::BarrierSkipped) {
                return Some(Step::Control { upto: self.control, next: self.next });
            }
            let Run { last, control: next_control, median_ms } = self.run()?;
            let control = core::mem::replace(&mut self.control, next_control);
            self.next = last.next();
            self.epoch_time_ms = self.epoch_time_ms.max(median_ms);
            let batches = self.take_ending(last);
            if !batches.is_empty() {
                let input = EpochInput { epoch: last, epoch_time_ms: self.epoch_time_ms, batches };
                return Some(Step::Epoch { input, control });
            }
        }
    }

    /// Returns the first epoch for which `group` has no counted entry: its next proposal must start there.
    ///
    /// # Panics
    /// If the group is not a member: then it has nothing to propose.
    #[must_use]
    pub fn next_of(&self, group: GroupId) -> Epoch {
        self.groups.get(&group).expect("only members propose").next
    }

    /// Returns whether a group is a member or is to join: only then does it have anything to propose.
    #[must_use]
    pub fn has(&self, group: GroupId) -> bool {
        self.groups.contains_key(&group)
    }

    /// Returns whether entries of a group can still count: it is a member or is to join, and nothing has closed it.
    #[must_use]
    pub fn is_open(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|log| !log.closed)
    }

    /// Returns the members and the groups that are to join, ascending, each with its first unsealed epoch.
    pub fn groups(&self) -> impl Iterator<Item = (GroupId, Epoch)> + '_ {
        self.groups.iter().map(|(&group, log)| (group, log.next))
    }

    /// Returns the number of members, including groups that are to join.
    #[must_use]
    pub fn members(&self) -> usize {
        self.groups.len()
    }

    /// Returns the last epoch that `poll` has returned or skipped.
    #[must_use]
    pub fn last_complete(&self) -> Epoch {
        self.next.prev()
    }

    /// Returns K of the epoch after [`Epochs::last_complete`].
    #[must_use]
    pub fn control(&self) -> ControlIndex {
        self.control
    }

    /// Returns the replicated time of [`Epochs::last_complete`] in Unix milliseconds.
    #[must_use]
    pub fn epoch_time_ms(&self) -> u64 {
        self.epoch_time_ms
    }

    /// Returns how far the oldest entries of all members cover together; `None` if they do not cover `next`.
    ///
    /// All epochs from `next` through the end of the run are covered by the same entries, so they share one time, and
    /// only the last of them can carry items. They also share K and the members: a run ends before the next group
    /// joins, and a run that raises K is one epoch long.
    fn run(&self) -> Option<Run> {
        let mut clocks = Vec::with_capacity(self.groups.len());
        let (mut last, mut control) = (Epoch::MAX, self.control);
        let mut has_member = false;
        for log in self.groups.values() {
            let cursor = log.cursor();
            if cursor > self.next {
                last = last.min(cursor.prev());
                continue;
            }
            let entry = log.entries.front()?;
            has_member = true;
            last = last.min(entry.last);
            clocks.extend((entry.clock_ms > 0).then_some(entry.clock_ms));
            if !(entry.is_empty() && planted(Bug::EmptyEntrysControlLost)) {
                control = control.max(entry.control);
            }
        }
        clocks.sort_unstable();
        let median_ms = clocks.get(clocks.len().saturating_sub(1) / 2).copied().unwrap_or_default();
        if control > self.control {
            last = self.next;
        }
        // Without members, nothing is decided any more.
        has_member.then_some(Run { last, control, median_ms })
    }

    /// Takes the entries that end with epoch `last`, and returns those with items in ascending order of group. Groups
    /// that they close are no longer members.
    fn take_ending(&mut self, last: Epoch) -> Vec<Arc<Batch>> {
        let ended = &mut self.ended;
        let mut batches = Vec::new();
        self.groups.retain(|group, log| {
            let Some(entry) = log.entries.pop_front_if(|entry| entry.last == last) else { return true };
            let closes = entry.closes;
            if !entry.is_empty() {
                batches.push(entry);
            }
            if closes {
                let newest = ended.entry(group.node).or_insert(group.incarnation);
                *newest = group.incarnation.max(*newest);
            }
            !closes
        });
        batches
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;

    use tribunal_types::FenceItem;

    use super::*;

    fn group(node: u16) -> GroupId {
        GroupId { node: NodeId(node), incarnation: Incarnation(0) }
    }

    /// Returns an entry of `node` for epochs `first..=last`; it carries an item unless `items` is 0.
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

    /// Returns the output of `poll` until it needs more entries: epoch, time and the contributing nodes. Control
    /// entries are applied as requested.
    fn polled(epochs: &mut Epochs) -> Vec<(u64, u64, Vec<u16>)> {
        let mut polled = Vec::new();
        while let Some(step) = epochs.poll() {
            match step {
                Step::Control { upto, .. } => epochs.applied(upto),
                Step::Epoch { input: e, .. } => {
                    polled.push((e.epoch.0, e.epoch_time_ms, e.batches.iter().map(|b| b.group.node.0).collect()));
                }
            }
        }
        polled
    }

    /// Returns the output of `poll` until a control entry is missing: `e 3 k 1` is epoch 3 under K = 1, `k 2 e 4` the
    /// request for control entries up to 2 before epoch 4.
    fn told(epochs: &mut Epochs) -> Vec<String> {
        let mut told = Vec::new();
        loop {
            match epochs.poll() {
                None => return told,
                Some(Step::Control { upto, next }) => {
                    told.push(format!("k {upto} e {next}", upto = upto.0));
                    return told;
                }
                Some(Step::Epoch { input, control }) => told.push(format!("e {} k {}", input.epoch, control.0)),
            }
        }
    }

    /// Returns the same as [`entry`], but with a control index.
    fn knowing(control: u64, batch: &Arc<Batch>) -> Arc<Batch> {
        Arc::new(Batch { control: ControlIndex(control), ..(**batch).clone() })
    }

    fn closing(batch: &Arc<Batch>) -> Arc<Batch> {
        Arc::new(Batch { closes: true, ..(**batch).clone() })
    }

    #[test]
    fn an_entry_counts_only_at_its_groups_cursor() {
        let mut epochs = Epochs::new(&[group(1)], Epoch(1), 0);
        assert_eq!(epochs.entry(entry(1, 2, 2, 0, 1)), Folded::Void, "leaves a gap");
        assert_eq!(epochs.entry(entry(1, 1, 3, 0, 1)), Folded::Counted);
        assert_eq!(epochs.entry(entry(1, 1, 1, 0, 9)), Folded::Void, "sealed already");
        assert_eq!(epochs.entry(entry(1, 3, 4, 0, 9)), Folded::Void, "overlaps");
        assert_eq!(epochs.entry(entry(2, 4, 4, 0, 1)), Folded::Early, "no member so far");
        assert_eq!(epochs.entry(entry(1, 4, 2, 0, 1)), Folded::Void, "ends before it starts");
        assert_eq!(epochs.entry(entry(1, 4, u64::MAX, 0, 1)), Folded::Void, "no such epoch");
        assert_eq!(epochs.next_of(group(1)), Epoch(4));
        assert_eq!(polled(&mut epochs), [(3, 0, alloc::vec![1])]);
        assert!(epochs.poll().is_none());
    }

    #[test]
    fn another_incarnation_is_another_group() {
        let reborn = GroupId { incarnation: Incarnation(1), ..group(1) };
        let mut epochs = Epochs::new(&[reborn], Epoch(1), 0);
        assert_eq!(epochs.entry(entry(1, 1, 1, 0, 1)), Folded::Early);
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
    fn an_entry_that_another_node_made_has_no_clock() {
        let mut epochs = Epochs::new(&[group(1), group(2), group(3)], Epoch(1), 50);
        for (node, clock) in [(1, 90), (2, 0), (3, 70)] {
            epochs.entry(entry(node, 1, 1, clock, 1));
        }
        (1..=3).for_each(|node| _ = epochs.entry(entry(node, 2, 2, 0, 1)));
        let times: Vec<u64> = polled(&mut epochs).iter().map(|e| e.1).collect();
        assert_eq!(times, [70, 70], "the lower one of two, and none changes nothing");
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

    #[test]
    fn an_epoch_is_resolved_with_what_the_entries_of_the_one_before_knew() {
        let mut epochs = Epochs::new(&[group(1), group(2)], Epoch(1), 0);
        epochs.entry(knowing(3, &entry(1, 1, 1, 0, 1)));
        epochs.entry(knowing(0, &entry(2, 1, 1, 0, 1)));
        epochs.entry(knowing(3, &entry(1, 2, 2, 0, 1)));
        epochs.entry(knowing(2, &entry(2, 2, 2, 0, 1)));
        assert_eq!(told(&mut epochs), ["e 1 k 0", "k 3 e 2"]);
        assert_eq!(told(&mut epochs), ["k 3 e 2"], "nothing before it is applied");
        epochs.applied(ControlIndex(2));
        assert_eq!(told(&mut epochs), ["k 3 e 2"], "all of it");
        epochs.applied(ControlIndex(3));
        assert_eq!(told(&mut epochs), ["e 2 k 3"]);
        assert_eq!(epochs.control(), ControlIndex(3), "K never falls");
    }

    #[test]
    fn an_empty_entry_carries_control_and_takes_effect_within_its_own_range() {
        let mut epochs = Epochs::new(&[group(1), group(2)], Epoch(1), 0);
        epochs.entry(knowing(0, &entry(1, 1, 4, 0, 1)));
        epochs.entry(knowing(5, &entry(2, 1, 2, 0, 0)));
        assert_eq!(told(&mut epochs), ["k 5 e 2"], "epoch 1 was sealed empty, and is passed over");
        assert_eq!(epochs.last_complete(), Epoch(1));
        epochs.applied(ControlIndex(5));
        epochs.entry(knowing(6, &entry(2, 3, 3, 0, 0)));
        assert_eq!(told(&mut epochs), ["k 6 e 4"]);
        epochs.applied(ControlIndex(6));
        epochs.entry(knowing(9, &entry(2, 4, 4, 0, 0)));
        assert_eq!(told(&mut epochs), ["e 4 k 6", "k 9 e 5"]);
    }

    #[test]
    fn a_group_joins_at_the_epoch_that_its_control_entry_names() {
        let mut epochs = Epochs::new(&[group(1)], Epoch(1), 0);
        epochs.entry(knowing(1, &entry(1, 1, 1, 0, 1)));
        assert_eq!(told(&mut epochs), ["e 1 k 0", "k 1 e 2"]);
        assert_eq!(epochs.join(group(2), Epoch(4)), Some(Epoch(4)));
        assert_eq!(epochs.join(group(2), Epoch(9)), None, "once");
        epochs.applied(ControlIndex(1));
        assert_eq!((epochs.members(), epochs.next_of(group(2))), (2, Epoch(4)));
        epochs.entry(knowing(1, &entry(1, 2, 6, 10, 1)));
        assert_eq!(polled(&mut epochs), []);
        assert_eq!(epochs.last_complete(), Epoch(3), "epoch 4 waits for the second group");
        assert_eq!(epochs.entry(entry(2, 3, 4, 0, 1)), Folded::Void, "it is no member of epoch 3");
        assert_eq!(epochs.entry(entry(2, 4, 5, 30, 1)), Folded::Counted);
        assert_eq!(polled(&mut epochs), [(5, 10, alloc::vec![2])]);
    }

    #[test]
    fn a_join_that_comes_late_counts_from_the_epoch_that_carries_it() {
        let mut epochs = Epochs::new(&[group(1)], Epoch(1), 0);
        epochs.entry(knowing(1, &entry(1, 1, 7, 0, 1)));
        assert_eq!(told(&mut epochs), ["k 1 e 2"]);
        assert_eq!(epochs.join(group(2), Epoch(1)), Some(Epoch(2)));
        epochs.applied(ControlIndex(1));
        assert_eq!(polled(&mut epochs), []);
        assert_eq!(epochs.last_complete(), Epoch(1));
    }

    #[test]
    fn a_group_ends_with_the_entry_that_closes_it() {
        let mut epochs = Epochs::new(&[group(1), group(2)], Epoch(1), 0);
        assert!(epochs.is_open(group(2)) && !epochs.is_open(group(3)));
        assert_eq!(epochs.entry(closing(&entry(2, 1, 3, 0, 1))), Folded::Counted);
        assert!(!epochs.is_open(group(2)) && epochs.has(group(2)), "a member until the third epoch is complete");
        assert_eq!(epochs.entry(entry(2, 4, 4, 0, 1)), Folded::Void, "it has ended");
        epochs.entry(entry(1, 1, 9, 0, 1));
        assert_eq!(polled(&mut epochs), [(3, 0, alloc::vec![2]), (9, 0, alloc::vec![1])]);
        assert_eq!((epochs.members(), epochs.entry(entry(2, 10, 10, 0, 1))), (1, Folded::Void));
        assert_eq!(epochs.join(group(2), Epoch(20)), None, "it never comes back");
        let next = GroupId { incarnation: Incarnation(1), ..group(2) };
        assert_eq!(epochs.join(next, Epoch(20)), Some(Epoch(20)));
        assert_eq!(epochs.entry(closing(&entry(1, 10, 12, 0, 0))), Folded::Counted);
        assert_eq!(polled(&mut epochs), []);
        assert_eq!(epochs.last_complete(), Epoch(12), "nobody is left to decide anything until epoch 20");
    }

    #[test]
    fn a_position_continues_where_the_fold_was() {
        let mut epochs = Epochs::new(&[group(1), group(2), group(3)], Epoch(1), 0);
        let joined = entry(1, 2, 6, 15, 1);
        epochs.entry(knowing(2, &entry(1, 1, 1, 10, 1)));
        epochs.entry(joined.clone());
        epochs.entry(entry(2, 1, 2, 20, 1));
        epochs.entry(closing(&entry(3, 1, 1, 30, 1)));
        assert_eq!(told(&mut epochs), ["e 1 k 0", "k 2 e 2"]);
        epochs.join(group(4), Epoch(5));
        epochs.applied(ControlIndex(2));
        let position = FoldPosition {
            next: Epoch(2),
            epoch_time_ms: 20,
            control: ControlIndex(2),
            groups: alloc::vec![(group(1), Epoch(2)), (group(2), Epoch(1)), (group(4), Epoch(5))],
            ended: alloc::vec![group(3)],
        };
        assert_eq!(epochs.position(), position);
        let words = position.to_words();
        assert_eq!(FoldPosition::from_words(&words), Some(position.clone()));
        assert!((0..words.len() - 1).all(|cut| FoldPosition::from_words(&words[..cut]).is_none()));
        let mut resumed = Epochs::resume(&position, ControlIndex(1));
        assert_eq!(told(&mut resumed), ["k 2 e 2"], "the state lacks an entry that the position includes");
        let mut resumed = Epochs::resume(&position, ControlIndex(2));
        resumed.entry(entry(2, 1, 2, 20, 1));
        resumed.entry(joined);
        for epochs in [&mut epochs, &mut resumed] {
            assert_eq!(polled(epochs), [(2, 20, alloc::vec![2])]);
            assert_eq!(epochs.entry(entry(3, 2, 2, 0, 1)), Folded::Void);
        }
    }
}
