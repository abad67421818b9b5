//! The expected state of the Raft groups' records, computed in the simplest way, and steps of a replica that writes
//! them.

use std::collections::{BTreeMap, BTreeSet};

use tribunal_log::{EntryId, GroupState, LogReader};
use tribunal_types::{GroupId, Incarnation, NodeId};

use crate::fixture::Random;
use crate::session::{End, Session};

/// One call of a replica.
#[derive(Clone)]
pub enum Call {
    Append(GroupId, EntryId, Vec<u8>),
    SetState(GroupId, GroupState),
    Forget(GroupId),
}

/// A group's state and its entries: terms and content.
type Group = (GroupState, BTreeMap<u64, (u64, Vec<u8>)>);

#[derive(Debug, Default, PartialEq)]
pub struct Groups {
    groups: BTreeMap<GroupId, Group>,
    ended: BTreeSet<GroupId>,
}

pub fn apply(groups: &mut Groups, call: &Call) {
    match call {
        Call::Append(group, id, payload) => {
            let entries = &mut groups.groups.entry(*group).or_default().1;
            entries.retain(|index, _| *index < id.index);
            entries.insert(id.index, (id.term, payload.clone()));
        }
        Call::SetState(group, state) => {
            let (known, entries) = groups.groups.entry(*group).or_default();
            entries.retain(|index, _| *index > state.compacted.index);
            *known = state.clone();
        }
        Call::Forget(group) => {
            groups.groups.remove(group);
            groups.ended.insert(*group);
        }
    }
}

/// Reads the groups that a log contains.
pub fn found(reader: &LogReader) -> Result<Groups, String> {
    let mut groups = Groups { ended: reader.ended_groups().into_iter().collect(), ..Groups::default() };
    for group in reader.groups() {
        let (before, last) = reader.group_bounds(group);
        let state = reader.group_state(group);
        if before != state.compacted {
            return Err(format!("{before:?} is before the first entry, {:?} is compacted", state.compacted));
        }
        let mut entries = BTreeMap::new();
        let mut next = before.index + 1;
        while next <= last.index {
            let read = reader.group_entries(group, next..last.index + 1, 1_000).map_err(|error| error.to_string())?;
            let single = reader.group_entry(group, next).map_err(|error| error.to_string())?;
            if read.is_empty() || read.first().map(|entry| &entry.payload) != single.as_ref() {
                return Err(format!("entry {next} of node {} is missing", group.node));
            }
            for entry in read {
                if entry.id.index != next || reader.group_term(group, next) != Some(entry.id.term) {
                    return Err(format!("{:?} is read as entry {next} of node {}", entry.id, group.node));
                }
                entries.insert(next, (entry.id.term, entry.payload));
                next += 1;
            }
        }
        groups.groups.insert(group, (state, entries));
    }
    Ok(groups)
}

/// Performs the next step of a program that follows groups and has no entries of its own.
pub fn next_step_of_groups(session: &mut Session, random: &mut Random) -> Result<(), End> {
    match random.below(100) {
        0..50 => next_step(session, random),
        50..58 => compact_all(session, random),
        58..70 => append_large(session, random),
        70..84 => session.sync(),
        84..88 => session.mark(),
        88..92 => session.write_first_image(),
        _ => session.truncate(),
    }
}

/// Appends a large entry to one of the groups.
fn append_large(session: &mut Session, random: &mut Random) -> Result<(), End> {
    let group = current(session, random);
    if group.node == NodeId(4) {
        return Ok(());
    }
    let reader = &session.opened.reader;
    let last = reader.group_bounds(group).1;
    let id = EntryId { term: reader.group_state(group).term.max(last.term), index: last.index + 1 };
    let bytes = 4_000 + random.below(12_000) as usize;
    session.call(Call::Append(group, id, random.bytes(bytes)))
}

/// Compacts all entries of one of the groups, so that the group may end.
fn compact_all(session: &mut Session, random: &mut Random) -> Result<(), End> {
    let group = current(session, random);
    let (_, compacted) = session.opened.reader.group_bounds(group);
    let state = GroupState { commit: compacted.index, compacted, ..session.opened.reader.group_state(group) };
    session.call(Call::SetState(group, state))
}

/// Chooses one of the groups that have not ended: for each node, one incarnation after the other.
fn current(session: &Session, random: &mut Random) -> GroupId {
    let node = NodeId(random.below(4) as u16 + 1);
    let ended = session.opened.reader.ended_groups().into_iter().filter(|group| group.node == node);
    GroupId { node, incarnation: Incarnation(7 + ended.count() as u32) }
}

/// Performs the next step of a replica in one of its groups.
pub fn next_step(session: &mut Session, random: &mut Random) -> Result<(), End> {
    let group = current(session, random);
    let reader = &session.opened.reader;
    let (state, (_, last)) = (reader.group_state(group), reader.group_bounds(group));
    let uncommitted = last.index.saturating_sub(state.commit);
    if group.node == NodeId(4) {
        // It votes once and has no entries: its only record must outlive truncations.
        let voted = GroupState { term: 5, vote: 2, ..GroupState::default() };
        return if state == voted { Ok(()) } else { session.call(Call::SetState(group, voted)) };
    }
    if last.index > 0 && last == state.compacted && random.below(3) == 0 {
        return session.call(Call::Forget(group));
    }
    match random.below(14) {
        0..5 => {
            let term = state.term.max(last.term);
            // Occasionally a new leader's entry replaces uncommitted entries.
            let back = if random.below(4) == 0 { uncommitted } else { 0 };
            let index = last.index + 1 - random.below(back + 1);
            let most = if random.below(20) == 0 { 9_000 } else { 300 };
            let payload = random.below(most) as usize;
            let term = if index <= last.index { term + 1 } else { term };
            session.call(Call::Append(group, EntryId { term, index }, random.bytes(payload)))
        }
        // A vote, in a later term.
        5 | 6 => {
            let term = state.term.max(last.term) + 1 + random.below(2);
            session.call(Call::SetState(group, GroupState { term, vote: random.below(4), ..state }))
        }
        7..10 => {
            let commit = last.index - random.below(2) * random.below(uncommitted + 1);
            let members = random.bytes(commit as usize % 5);
            session.call(Call::SetState(group, GroupState { commit, members, ..state }))
        }
        _ => {
            let past = random.below(6) == 0;
            let index = if past { last.index + 5 } else { state.commit };
            let term = if past { Some(last.term) } else { reader.group_term(group, index) };
            let Some(term) = term else { return Ok(()) };
            let (commit, compacted) = (state.commit.max(index), EntryId { term, index });
            session.call(Call::SetState(group, GroupState { commit, compacted, ..state }))
        }
    }
}
