//! The accumulated records of the Raft groups: each group's state, and which record contains which of its entries.
//!
//! A later record of an index replaces the earlier one and all entries after it; nothing is undone in the files. The
//! name of an ended group remains, so that the group never begins a second time with a smaller term. The records of all
//! groups share one sequence, in write order, which reveals a lost record. An entry carries the term of its
//! predecessor, which is checked as in Raft.
//!
//! Must never: do I/O; accept a second vote in a term, a decreasing term or commit index, another entry in place of a
//! committed one, or any record of an ended group.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use tribunal_codec::{EntryId, GroupRecord, GroupState};
use tribunal_types::GroupId;

/// All groups of a log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    groups: BTreeMap<GroupId, Group>,
    /// Groups that have ended, and the sequence of the record of their end.
    ended: BTreeMap<GroupId, u64>,
}

/// One group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    pub state: GroupState,
    /// Sequence of the record with the state; 0 without one.
    state_at: u64,
    /// The entry before the first existing one.
    before: EntryId,
    entries: VecDeque<EntryAt>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EntryAt {
    /// Sequence of its record.
    sequence: u64,
    term: u64,
}

impl Groups {
    pub(crate) fn get(&self, group: GroupId) -> Option<&Group> {
        self.groups.get(&group)
    }

    /// Returns the term of an existing entry, or of the last compacted one; 0 before the first entry ever.
    pub(crate) fn term(&self, group: GroupId, index: u64) -> Option<u64> {
        match self.groups.get(&group) {
            Some(group) => group.term(index),
            None => (index == 0).then_some(0),
        }
    }

    /// Returns the last compacted entry of a group; `None` if there is no such group.
    pub(crate) fn compacted(&self, group: GroupId) -> Option<u64> {
        self.groups.get(&group).map(|group| group.state.compacted.index)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.groups.keys().copied()
    }

    /// Returns the groups that have ended, ascending.
    pub(crate) fn ended(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.ended.keys().copied()
    }

    /// Returns whether a group has ended.
    pub(crate) fn has_ended(&self, group: GroupId) -> bool {
        self.ended.contains_key(&group)
    }

    /// Returns why a record must not be written: it would break a promise to the group.
    pub(crate) fn check(&self, record: &GroupRecord<'_>) -> Result<(), String> {
        if self.has_ended(record.group()) && !matches!(record, GroupRecord::Ended { .. }) {
            return Err("the group has ended".into());
        }
        let unknown = Group::default();
        let group = self.groups.get(&record.group()).unwrap_or(&unknown);
        match record {
            GroupRecord::Entry { id, term_before, .. } => group.check_entry(*id, *term_before),
            GroupRecord::State { state, .. } => group.check_state(state),
            GroupRecord::Ended { .. } => group.check_end(),
            GroupRecord::Epoch { .. } | GroupRecord::Copied { .. } => Ok(()),
        }
    }

    /// Applies a record that was written with this sequence.
    pub(crate) fn apply(&mut self, record: &GroupRecord<'_>, sequence: u64) {
        let group = record.group();
        match record {
            GroupRecord::Entry { id, term_before, .. } => {
                self.groups.entry(group).or_default().apply_entry(*id, *term_before, sequence);
            }
            GroupRecord::State { state, .. } => {
                self.groups.entry(group).or_default().apply_state(state.clone(), sequence);
            }
            GroupRecord::Ended { .. } => {
                self.groups.remove(&group);
                self.ended.insert(group, sequence);
            }
            GroupRecord::Epoch { .. } | GroupRecord::Copied { .. } => {}
        }
    }

    /// Checks the accumulated records of a whole log: the truncated records must not be needed.
    pub(crate) fn check_whole(&self) -> Result<(), String> {
        for (id, group) in &self.groups {
            let (first, last) = (group.before.index + 1, group.last().index);
            if group.before.index > group.state.compacted.index || group.state.commit > last {
                let GroupState { commit, compacted, .. } = group.state;
                return Err(format!(
                    "of the group of node {} there are entries {first}..={last}, but {}..={commit} must be",
                    id.node,
                    compacted.index + 1
                ));
            }
        }
        Ok(())
    }

    /// Returns the sequence of the first record that contains an entry still needed.
    pub(crate) fn first_needed(&self) -> Option<u64> {
        self.groups.values().filter_map(|group| group.entries.front()).map(|entry| entry.sequence).min()
    }

    /// Returns the last committed entry of each group whose record is before `sequence`, for groups that have one.
    pub(crate) fn spare_before(&self, sequence: u64) -> BTreeMap<GroupId, u64> {
        let spare = |group: &Group| {
            // An earlier record of a later index is never needed.
            let before = group.entries.partition_point(|entry| entry.sequence < sequence) as u64;
            let last = (group.before.index + before).min(group.state.commit);
            (last > group.before.index).then_some(last)
        };
        self.groups.iter().filter_map(|(id, group)| Some((*id, spare(group)?))).collect()
    }

    /// Returns the states and ends in records before `sequence`; they are rewritten before those are truncated.
    pub(crate) fn carried_before(&self, sequence: u64) -> Vec<GroupRecord<'static>> {
        let states = self.groups.iter().filter(|(_, group)| (1..sequence).contains(&group.state_at));
        let states = states.map(|(id, group)| GroupRecord::State { group: *id, state: group.state.clone() });
        let ended = self.ended.iter().filter(|(_, at)| **at < sequence);
        states.chain(ended.map(|(id, _)| GroupRecord::Ended { group: *id })).collect()
    }
}

impl Group {
    /// Returns the entry before the first existing one.
    pub(crate) fn before(&self) -> EntryId {
        self.before
    }

    /// Returns the last entry, or the last compacted one.
    pub(crate) fn last(&self) -> EntryId {
        let last = |entry: &EntryAt| EntryId { term: entry.term, index: self.before.index + self.entries.len() as u64 };
        self.entries.back().map_or(self.before, last)
    }

    /// Returns the term of an existing entry, or of the last compacted one.
    pub(crate) fn term(&self, index: u64) -> Option<u64> {
        if index == self.before.index { Some(self.before.term) } else { self.entry(index).map(|entry| entry.term) }
    }

    /// Returns the sequence of the record that contains an entry.
    pub(crate) fn sequence(&self, index: u64) -> Option<u64> {
        self.entry(index).map(|entry| entry.sequence)
    }

    /// Returns up to `count` entries from the start of `range`, ascending, each with the sequence of its record; none
    /// if the first one does not exist.
    pub(crate) fn run(&self, range: Range<u64>, count: usize) -> Vec<(EntryId, u64)> {
        let at = range.start.checked_sub(self.before.index + 1).and_then(|at| usize::try_from(at).ok());
        let Some(at) = at.filter(|at| *at < self.entries.len()) else { return Vec::new() };
        let entries = range.zip(self.entries.range(at..)).take(count);
        entries.map(|(index, entry)| (EntryId { term: entry.term, index }, entry.sequence)).collect()
    }

    fn entry(&self, index: u64) -> Option<&EntryAt> {
        let at = index.checked_sub(self.before.index + 1)?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    fn check_entry(&self, id: EntryId, term_before: u64) -> Result<(), String> {
        let EntryId { term, index } = id;
        let last = self.last().index;
        if index <= self.state.commit.max(self.before.index) {
            return Err(format!("entry {index} is committed"));
        }
        match self.term(index - 1) {
            None => Err(format!("it is entry {index}, the last is {last}")),
            Some(before) if before != term_before || term < before => {
                Err(format!("entry {index} of term {term} follows term {term_before}, here it would be {before}"))
            }
            Some(_) => Ok(()),
        }
    }

    fn check_state(&self, state: &GroupState) -> Result<(), String> {
        let known = &self.state;
        if state.term < known.term {
            return Err(format!("term {} after {}", state.term, known.term));
        }
        if state.term == known.term && known.vote != 0 && state.vote != known.vote {
            return Err(format!("a vote for {} in term {} after one for {}", state.vote, state.term, known.vote));
        }
        if state.commit < known.commit || state.commit > self.last().index.max(state.compacted.index) {
            let last = self.last().index;
            return Err(format!("commit index {} after {}, the last entry is {last}", state.commit, known.commit));
        }
        let EntryId { term, index } = state.compacted;
        // An image may replace uncommitted entries.
        let is_another = index <= known.commit && self.term(index).is_some_and(|known| known != term);
        if index < known.compacted.index || index > state.commit || is_another {
            return Err(format!("compacted up to entry {index} of term {term}, which is not a committed one"));
        }
        Ok(())
    }

    fn check_end(&self) -> Result<(), String> {
        let (first, last) = (self.before.index + 1, self.last().index);
        if first > last { Ok(()) } else { Err(format!("its entries {first}..={last} are not compacted")) }
    }

    fn apply_entry(&mut self, id: EntryId, term_before: u64, sequence: u64) {
        let before = EntryId { term: term_before, index: id.index.saturating_sub(1) };
        if self.term(before.index) == Some(term_before) {
            self.entries.truncate(usize::try_from(before.index - self.before.index).unwrap_or(usize::MAX));
        } else {
            // The preceding entries were truncated; otherwise this one would not have been written.
            self.entries.clear();
            self.before = before;
        }
        self.entries.push_back(EntryAt { sequence, term: id.term });
    }

    fn apply_state(&mut self, state: GroupState, sequence: u64) {
        let EntryId { term, index } = state.compacted;
        if index > self.before.index {
            if self.term(index) == Some(term) {
                self.entries.drain(..usize::try_from(index - self.before.index).unwrap_or(usize::MAX));
            } else {
                // A state image replaced all of them.
                self.entries.clear();
            }
            self.before = state.compacted;
        }
        (self.state, self.state_at) = (state, sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64, term: u64, term_before: u64) -> GroupRecord<'static> {
        GroupRecord::Entry { group: GroupId::default(), id: EntryId { term, index }, term_before, payload: &[] }
    }

    fn state(term: u64, vote: u64, commit: u64, compacted: (u64, u64)) -> GroupRecord<'static> {
        let compacted = EntryId { index: compacted.0, term: compacted.1 };
        let state = GroupState { term, vote, commit, compacted, ..GroupState::default() };
        GroupRecord::State { group: GroupId::default(), state }
    }

    fn ended() -> GroupRecord<'static> {
        GroupRecord::Ended { group: GroupId::default() }
    }

    /// Writes legal records; returns the error of the first illegal one.
    fn written(records: &[GroupRecord<'_>]) -> Result<Groups, String> {
        let mut groups = Groups::default();
        for (sequence, record) in (1..).zip(records) {
            groups.check(record)?;
            groups.apply(record, sequence);
        }
        groups.check_whole().map(|()| groups)
    }

    #[test]
    fn a_later_record_replaces_the_suffix() {
        let groups = written(&[entry(1, 1, 0), entry(2, 1, 1), entry(3, 1, 1), entry(2, 2, 1)]).unwrap();
        let group = groups.get(GroupId::default()).unwrap();
        assert_eq!(
            (group.last(), group.sequence(2), group.sequence(3)),
            (EntryId { term: 2, index: 2 }, Some(4), None)
        );
        assert_eq!((group.sequence(1), group.term(1), group.term(0)), (Some(1), Some(1), Some(0)));
    }

    #[test]
    fn what_breaks_a_promise_is_rejected() {
        let begun = [entry(1, 1, 0), entry(2, 1, 1), state(3, 5, 1, (0, 0))];
        let after = |record: GroupRecord| written(&[begun.as_slice(), &[record]].concat()).map(drop);
        after(entry(2, 3, 1)).unwrap();
        after(state(3, 5, 2, (1, 1))).unwrap();
        after(state(4, 6, 1, (0, 0))).unwrap();
        after(state(4, 0, 9, (9, 4))).unwrap();
        for (record, expected) in [
            (entry(1, 3, 0), "committed"),
            (entry(4, 3, 1), "the last is 2"),
            (entry(3, 3, 2), "follows term 2"),
            (entry(3, 0, 1), "follows term 1"),
            (state(2, 5, 1, (0, 0)), "term 2 after 3"),
            (state(3, 6, 1, (0, 0)), "a vote for 6 in term 3 after one for 5"),
            (state(3, 0, 1, (0, 0)), "a vote for 0"),
            (state(3, 5, 0, (0, 0)), "commit index 0 after 1"),
            (state(3, 5, 3, (0, 0)), "the last entry is 2"),
            (state(3, 5, 1, (2, 1)), "not a committed one"),
            (state(3, 5, 1, (1, 2)), "not a committed one"),
        ] {
            let refused = after(record).unwrap_err();
            assert!(refused.contains(expected), "{refused}, not {expected}");
        }
    }

    #[test]
    fn an_image_takes_the_place_of_entries_that_are_not_agreed_on() {
        let begun = [entry(1, 1, 0), entry(2, 1, 1), entry(3, 1, 1), state(1, 7, 1, (0, 0))];
        let groups = written(&[begun.as_slice(), &[state(2, 0, 2, (2, 2)), entry(3, 2, 2)]].concat()).unwrap();
        let group = groups.get(GroupId::default()).unwrap();
        assert_eq!((group.before(), group.last()), (EntryId { term: 2, index: 2 }, EntryId { term: 2, index: 3 }));
        assert_eq!(group.entries.len(), 1);
    }

    #[test]
    fn a_group_ends_once_all_of_it_is_compacted_and_never_begins_again() {
        let begun = [entry(1, 1, 0), entry(2, 1, 1), state(1, 7, 2, (1, 1))];
        let ends = |records: &[GroupRecord<'_>]| written(&[begun.as_slice(), records].concat());
        assert_eq!(ends(&[ended()]).unwrap_err(), "its entries 2..=2 are not compacted");
        assert!(ends(&[state(1, 7, 2, (2, 1)), entry(3, 1, 1), ended()]).is_err(), "one is not even committed");
        let groups = ends(&[state(1, 7, 2, (2, 1)), ended(), ended()]).unwrap();
        assert_eq!((groups.ids().count(), groups.ended().count(), groups.first_needed()), (0, 1, None));
        assert!(groups.has_ended(GroupId::default()));
        for late in [entry(1, 1, 0), entry(3, 1, 1), state(1, 7, 2, (2, 1)), state(9, 0, 0, (0, 0))] {
            assert_eq!(groups.check(&late).unwrap_err(), "the group has ended");
        }
        // A node that never had a group records its end, too.
        assert!(written(&[ended(), entry(1, 1, 0)]).is_err());
    }

    /// A truncation leaves a suffix of the records, with the earlier states rewritten.
    #[test]
    fn any_suffix_that_has_what_is_needed_adds_up_to_the_same() {
        let records = [
            entry(1, 1, 0),
            entry(2, 1, 1),
            state(1, 7, 1, (0, 0)),
            entry(3, 1, 1),
            entry(3, 2, 1),
            entry(4, 2, 2),
            state(2, 8, 4, (2, 1)),
            entry(5, 2, 2),
            entry(6, 2, 2),
            entry(6, 3, 2),
        ];
        let whole = written(&records).unwrap();
        let group = whole.get(GroupId::default()).unwrap();
        assert_eq!(whole.first_needed(), Some(5));
        for from in 0..records.len() {
            let mut kept = Groups::default();
            let again = whole.carried_before(from as u64 + 1);
            for (sequence, record) in (from as u64 + 1..).zip(records[from..].iter().chain(&again)) {
                kept.apply(record, sequence);
            }
            assert_eq!(kept.check_whole().is_ok(), from < 5, "from {from}");
            if from < 5 {
                let found = kept.get(GroupId::default()).unwrap();
                assert_eq!((&found.state, found.before, &found.entries), (&group.state, group.before, &group.entries));
            }
        }
        let end = [entry(1, 1, 0), state(1, 7, 1, (1, 1)), ended()];
        let whole = written(&end).unwrap();
        for from in 0..=end.len() {
            let mut kept = Groups::default();
            let again = whole.carried_before(from as u64 + 1);
            for (sequence, record) in (from as u64 + 1..).zip(end[from..].iter().chain(&again)) {
                kept.apply(record, sequence);
            }
            assert!(kept.has_ended(GroupId::default()) && kept.ids().next().is_none(), "from {from}");
        }
    }
}
