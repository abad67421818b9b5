//! What records of Raft groups should add up to, computed in the plainest way, and steps of a replica that writes them.

use std::collections::BTreeMap;

use tribunal_log::{EntryId, GroupState, LogReader};
use tribunal_types::{GroupId, Incarnation, NodeId};

use crate::fixture::Random;
use crate::session::{End, Session};

/// One call of a replica.
#[derive(Clone)]
pub enum Call {
    Append(GroupId, EntryId, Vec<u8>),
    SetState(GroupId, GroupState),
}

/// A group's state and its entries: terms and content.
type Group = (GroupState, BTreeMap<u64, (u64, Vec<u8>)>);

pub type Groups = BTreeMap<GroupId, Group>;

pub fn apply(groups: &mut Groups, call: &Call) {
    match call {
        Call::Append(group, id, payload) => {
            let entries = &mut groups.entry(*group).or_default().1;
            entries.retain(|index, _| *index < id.index);
            entries.insert(id.index, (id.term, payload.clone()));
        }
        Call::SetState(group, state) => {
            let (known, entries) = groups.entry(*group).or_default();
            entries.retain(|index, _| *index > state.compacted.index);
            *known = state.clone();
        }
    }
}

/// Reads what a log has.
pub fn found(reader: &LogReader) -> Result<Groups, String> {
    let mut groups = Groups::new();
    for group in reader.groups() {
        let (before, last) = reader.group_bounds(group);
        let state = reader.group_state(group);
        if before != state.compacted {
            return Err(format!("{before:?} is before the first entry, {:?} is compacted", state.compacted));
        }
        let mut entries = BTreeMap::new();
        for index in before.index + 1..=last.index {
            let payload = reader.group_entry(group, index).map_err(|error| error.to_string())?;
            let (Some(payload), Some(term)) = (payload, reader.group_term(group, index)) else {
                return Err(format!("entry {index} of node {} is missing", group.node));
            };
            entries.insert(index, (term, payload));
        }
        groups.insert(group, (state, entries));
    }
    Ok(groups)
}

/// Does what a replica does next in one of its groups.
pub fn next_step(session: &mut Session, random: &mut Random) -> Result<(), End> {
    let group = GroupId { node: NodeId(random.below(4) as u16 + 1), incarnation: Incarnation(7) };
    let reader = &session.opened.reader;
    let (state, (_, last)) = (reader.group_state(group), reader.group_bounds(group));
    let uncommitted = last.index.saturating_sub(state.commit);
    if group.node == NodeId(4) {
        // It votes once, and has no entries: its only record must outlive truncations.
        let voted = GroupState { term: 5, vote: 2, ..GroupState::default() };
        return if state == voted { Ok(()) } else { session.call(Call::SetState(group, voted)) };
    }
    match random.below(14) {
        0..5 => {
            let term = state.term.max(last.term);
            // Now and then a new leader's entry takes the place of what is not committed.
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
