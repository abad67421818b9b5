//! Reads that include everything that was acknowledged anywhere before they began (rule 14 of the cluster).
//!
//! The leader of each group is queried for its last entry, which it returns only if a majority still follows it. Every
//! entry known to be committed anywhere is at or before that entry, so a node that has folded all groups up to there
//! has resolved every acknowledged epoch. If the leader changes, its last entries may be lost: the group is queried
//! again. Reads that arrive during a round wait for the next one, which they share.

use std::collections::{BTreeMap, BTreeSet};

use tribunal_types::GroupId;

/// Ticks after which groups that have not answered are queried again.
const AGAIN_TICKS: u32 = 5;
/// Ticks after which a round is given up: there may be no majority.
const GIVEN_UP_TICKS: u32 = 60;
/// Maximum number of waiting reads; further ones are refused.
const READS_MAX: usize = 10_000;

/// The pending reads.
#[derive(Debug, Default)]
pub(crate) struct FreshReads {
    /// Number of the last question to a group.
    asked: u64,
    waiting: Vec<u64>,
    round: Option<Round>,
}

/// The reads that share one set of answers from the groups.
#[derive(Debug)]
struct Round {
    reads: Vec<u64>,
    /// Number of its first question: answers to earlier questions may be stale.
    first: u64,
    missing: BTreeSet<GroupId>,
    indices: BTreeMap<GroupId, u64>,
    ticks: u32,
}

impl FreshReads {
    /// Adds a read; returns false if there are too many.
    pub(crate) fn add(&mut self, read: u64) -> bool {
        let fits = self.waiting.len() < READS_MAX;
        if fits {
            self.waiting.push(read);
        }
        fits
    }

    /// Begins a round if reads wait and no round is in progress; returns whether it did.
    pub(crate) fn begin(&mut self, groups: impl Iterator<Item = GroupId>) -> bool {
        if self.round.is_some() || self.waiting.is_empty() {
            return false;
        }
        let (reads, missing) = (std::mem::take(&mut self.waiting), groups.collect());
        self.round = Some(Round { reads, first: self.asked + 1, missing, indices: BTreeMap::new(), ticks: 0 });
        true
    }

    /// Notes the groups that take part now, if a round is in progress. Ended groups are no longer waited for. Returns
    /// whether there are groups that were not queried yet.
    pub(crate) fn note_groups<G: Iterator<Item = GroupId>>(&mut self, groups: impl FnOnce() -> G) -> bool {
        let Some(round) = &mut self.round else { return false };
        let groups: BTreeSet<GroupId> = groups().collect();
        round.missing.retain(|group| groups.contains(group));
        round.indices.retain(|group, _| groups.contains(group));
        let known = round.missing.len() + round.indices.len();
        let Round { missing, indices, .. } = round;
        missing.extend(groups.into_iter().filter(|group| !indices.contains_key(group)));
        missing.len() + indices.len() > known
    }

    /// Returns the questions to send: one for each group that has not answered, each with a unique number.
    pub(crate) fn questions(&mut self) -> Vec<(GroupId, u64)> {
        let missing = self.round.iter().flat_map(|round| &round.missing);
        let questions: Vec<_> = (self.asked + 1..).zip(missing).map(|(number, group)| (*group, number)).collect();
        self.asked += questions.len() as u64;
        questions
    }

    /// Notes the answer of a group.
    pub(crate) fn answered(&mut self, group: GroupId, number: u64, index: u64) {
        if let Some(round) = &mut self.round
            && number >= round.first
            && round.missing.remove(&group)
        {
            round.indices.insert(group, index);
        }
    }

    /// Notes a leader change: the entry that reads wait for may be lost. Returns whether the group has to be queried.
    pub(crate) fn leader_changed(&mut self, group: GroupId) -> bool {
        let Some(round) = &mut self.round else { return false };
        if round.indices.remove(&group).is_some() {
            round.missing.insert(group);
        }
        round.missing.contains(&group)
    }

    /// Returns the reads that can be answered, given the groups' folded positions in `reached`.
    pub(crate) fn take_done(&mut self, reached: impl Fn(GroupId) -> u64) -> Vec<u64> {
        let is_done = |round: &mut Round| {
            round.missing.is_empty() && round.indices.iter().all(|(group, index)| reached(*group) >= *index)
        };
        self.round.take_if(is_done).map(|round| round.reads).unwrap_or_default()
    }

    /// Notes that a tick has passed. Returns whether to query again, and the reads that are given up.
    pub(crate) fn tick(&mut self) -> (bool, Vec<u64>) {
        let Some(round) = &mut self.round else { return (false, Vec::new()) };
        round.ticks += 1;
        if round.ticks >= GIVEN_UP_TICKS {
            return (false, self.round.take().map(|round| round.reads).unwrap_or_default());
        }
        (round.ticks.is_multiple_of(AGAIN_TICKS), Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use tribunal_types::NodeId;

    use super::*;

    fn group(node: u16) -> GroupId {
        GroupId { node: NodeId(node), ..GroupId::default() }
    }

    #[test]
    fn a_group_that_joins_meanwhile_is_asked_and_one_that_ends_is_not_waited_for() {
        let mut reads = FreshReads::default();
        assert!(!reads.note_groups(|| [group(1)].into_iter()), "nobody reads");
        assert!(reads.add(7) && reads.begin([group(1), group(2)].into_iter()));
        assert_eq!(reads.questions(), [(group(1), 1), (group(2), 2)]);
        assert!(!reads.note_groups(|| [group(1), group(2)].into_iter()));
        reads.answered(group(1), 1, 50);
        assert!(reads.note_groups(|| [group(1), group(3)].into_iter()));
        assert_eq!(reads.take_done(|_| 99), [0; 0]);
        assert_eq!(reads.questions(), [(group(3), 3)]);
        reads.answered(group(3), 3, 5);
        assert!(!reads.note_groups(|| [group(3)].into_iter()));
        assert_eq!(reads.take_done(|of| if of == group(3) { 5 } else { 0 }), [7]);
    }

    #[test]
    fn a_group_is_asked_again_when_its_leader_changes() {
        let mut reads = FreshReads::default();
        assert!(!reads.leader_changed(group(1)), "nobody reads");
        assert!(reads.add(7) && reads.begin([group(1), group(2)].into_iter()));
        assert_eq!(reads.questions().len(), 2);
        reads.answered(group(1), 1, 50);
        reads.answered(group(2), 2, 50);
        assert!(reads.leader_changed(group(1)) && !reads.leader_changed(group(3)));
        assert_eq!(reads.take_done(|_| 99), [0; 0], "entry 50 may be lost, and another one committed in its place");
        assert_eq!(reads.questions(), [(group(1), 3)]);
        reads.answered(group(1), 3, 40);
        assert_eq!(reads.take_done(|of| if of == group(1) { 40 } else { 50 }), [7]);
    }

    #[test]
    fn reads_that_come_together_share_a_round_and_wait_for_all_groups() {
        let mut reads = FreshReads::default();
        assert!(reads.add(7) && reads.add(8) && reads.begin([group(1), group(2)].into_iter()));
        assert_eq!(reads.questions(), [(group(1), 1), (group(2), 2)]);
        assert!(reads.add(9) && !reads.begin([group(1)].into_iter()), "the next round");
        reads.answered(group(1), 1, 50);
        assert_eq!(reads.questions(), [(group(2), 3)], "again");
        reads.answered(group(2), 3, 5);
        reads.answered(group(2), 2, 99);
        let reached = |one, two| move |of: GroupId| if of == group(1) { one } else { two };
        assert_eq!(reads.take_done(reached(49, 9)), [0; 0]);
        assert_eq!(reads.take_done(reached(50, 5)), [7, 8]);
        assert!(reads.begin([group(1)].into_iter()));
        reads.answered(group(1), 3, 50);
        assert_eq!(reads.take_done(reached(50, 5)), [0; 0], "an answer to an earlier question may be too old");
        let mut given_up = Vec::new();
        (0..GIVEN_UP_TICKS).for_each(|_| given_up.extend(reads.tick().1));
        assert_eq!(given_up, [9]);
    }
}
