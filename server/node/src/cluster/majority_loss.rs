//! What is left of a cluster that has lost a majority of its nodes for good: one node continues as the only member.
//!
//! Each log gets entries that make this node its only member, and the control log the removals of all others. They count as
//! agreed on, and so does everything that this node had before them and did not know to be: it may have been acknowledged.
//! The control log comes last: while it does not have them, a repeat knows what is missing.
//! What the others have acknowledged without this node is lost. From the next start on, all goes its usual way: the
//! node is elected in all logs, closes those of the others, and tells nodes that come back that they were removed.

use std::collections::BTreeSet;

use bytes::Bytes;
use tribunal_codec::{EntryId, GroupState, PROPOSED, decode_batch, encode_control};
use tribunal_core::row_key::RowKeyer;
use tribunal_log::{DiskLog, DurableLog, GroupCursors, LogReader};
use tribunal_member::{EntryKind, sole_member};
use tribunal_types::{ControlChange, ControlEntry, GroupId, NamespaceId, NodeId, NodeStage, ProposalId, TxnId};

use crate::cluster::membership::Membership;
use crate::cluster::recovery::NodeMember;

/// Bytes of entries that are read at a time.
const READ_BYTES: usize = 16 << 20;

/// Margin of the new entries' terms over every term that this node knows: others may have gone on without it, and what
/// they have written in terms of theirs must not be taken for the same.
const TERMS_AHEAD: u64 = 1 << 20;

/// What was given up, and what was not known.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// The nodes that are removed.
    pub removed: Vec<NodeId>,
    /// Transactions that this node has, and did not know to be agreed on: they are decided now.
    pub in_doubt: Vec<(NamespaceId, TxnId)>,
}

/// The logs of a node that has stopped.
pub struct StoppedNode<'a> {
    /// What it belongs to.
    pub membership: &'a Membership,
    /// Its log.
    pub log: &'a mut DiskLog,
    /// Reads that.
    pub reader: &'a LogReader,
    /// How far its state image has read the groups.
    pub image: &'a GroupCursors,
    /// Hashes row keys.
    pub keyer: &'a RowKeyer,
    /// What it knows.
    pub member: &'a NodeMember,
    /// Names the changes that are made.
    pub run: u64,
    /// Whether this was begun before, and has not ended.
    pub again: bool,
}

impl StoppedNode<'_> {
    /// Makes the node the only one of its cluster. `note` keeps what is accepted, before anything changes.
    ///
    /// # Errors
    /// In words. Nothing has changed then, unless the disk failed; the same can be done again.
    pub fn go_on_alone(mut self, note: impl FnOnce(&Accepted) -> Result<(), String>) -> Result<Accepted, String> {
        self.must_be_member()?;
        let others = self.others();
        let mut accepted = Accepted { removed: others, in_doubt: Vec::new() };
        if accepted.removed.is_empty() {
            if !self.again {
                return Err("this node is the only one of its cluster already".into());
            }
            // The control log came last.
            self.log.sync().map_err(|error| error.to_string())?;
            return Ok(accepted);
        }
        let founders = self.membership.founders.iter().map(|node| Membership::group_of(*node));
        let groups: BTreeSet<GroupId> =
            founders.chain(self.reader.groups()).chain(self.image.keys().copied()).collect();
        let control_last = groups.into_iter().filter(|group| *group != GroupId::CONTROL).chain([GroupId::CONTROL]);
        // All of it is read and checked before the first change.
        let plans: Vec<Plan> =
            control_last.filter_map(|group| self.plan(group, &mut accepted).transpose()).collect::<Result<_, _>>()?;
        note(&accepted)?;
        plans.into_iter().try_for_each(|plan| self.carry_out(plan))?;
        self.log.sync().map_err(|error| error.to_string())?;
        Ok(accepted)
    }

    /// Checks that the node is a member: another one would be left alone with a log that nobody can lead.
    fn must_be_member(&self) -> Result<(), String> {
        let known = self.member.replica().replicated().members().node(self.membership.node);
        if known.is_some_and(|node| node.stage == NodeStage::Present && node.joined.is_some()) {
            return Ok(());
        }
        Err(format!(
            "node {} is no member of its cluster: it was about to join or to be removed. Use another node that is left, the one that \
             has decided most",
            self.membership.node
        ))
    }

    /// Returns the other nodes that were not removed yet.
    fn others(&self) -> Vec<NodeId> {
        let members = self.member.replica().replicated().members();
        let left = members.nodes().filter(|node| node.stage != NodeStage::Left && node.id != self.membership.node);
        left.map(|node| node.id).collect()
    }

    /// Finds out what a group's log needs; `None` if this node does not have the group.
    fn plan(&self, group: GroupId, accepted: &mut Accepted) -> Result<Option<Plan>, String> {
        let Some(agreed) = self.member.members_of(group) else { return Ok(None) };
        let of_group = |reason: String| format!("the log of node {} cannot be continued: {reason}", group.node);
        let mut state = self.reader.group_state(group);
        let (_, mut last) = self.reader.group_bounds(group);
        let included = self.image.get(&group).map(|cursor| cursor.included).unwrap_or_default();
        let image_ahead = included.index > last.index;
        if image_ahead {
            // The image takes the place of all that the log has.
            (state.compacted, state.commit, last) = (included, included.index, included);
        }
        let rest = self.entries(group, state.commit, last.index).map_err(of_group)?;
        for content in &rest {
            self.note_in_doubt(group, content, accepted).map_err(of_group)?;
        }
        let alone = sole_member(self.membership.node, agreed, rest, last.index).map_err(of_group)?;
        let mut contents = alone.contents;
        if group == GroupId::CONTROL {
            contents.push(self.removal());
        }
        state.term = state.term.max(last.term) + TERMS_AHEAD;
        state.vote = 0;
        state.members = alone.members.encode();
        Ok(Some(Plan { group, image_ahead, last, contents, state }))
    }

    /// Reads the contents of the entries after `commit`.
    fn entries(&self, group: GroupId, commit: u64, last: u64) -> Result<Vec<Bytes>, String> {
        let (mut contents, mut next) = (Vec::new(), commit + 1);
        while next <= last {
            let read =
                self.reader.group_entries(group, next..last + 1, READ_BYTES).map_err(|error| error.to_string())?;
            if read.is_empty() {
                return Err(format!("its entry {next} is missing"));
            }
            next += read.len() as u64;
            contents.extend(read.into_iter().map(|entry| Bytes::from(entry.payload)));
        }
        Ok(contents)
    }

    fn note_in_doubt(&self, group: GroupId, content: &Bytes, accepted: &mut Accepted) -> Result<(), String> {
        let kind = EntryKind::of(content).map_err(|malformed| malformed.to_string())?;
        if let EntryKind::Proposal(payload) = kind
            && group != GroupId::CONTROL
        {
            let name = |namespace, store, key: &[u8]| self.keyer.row(namespace, store, key);
            let batch = decode_batch(&payload, group, &name).map_err(|malformed| malformed.to_string())?;
            accepted.in_doubt.extend(batch.txns.iter().map(|txn| (txn.namespace, txn.id)));
        }
        Ok(())
    }

    /// Returns the entry of the control log that removes all others, also those of which this node has not learned yet.
    fn removal(&self) -> Bytes {
        let proposal = ProposalId { run: self.run, number: 1 };
        let change = ControlChange::SoleNode { node: self.membership.node };
        let mut content = encode_control(&ControlEntry { proposal, change });
        content.push(PROPOSED);
        content.into()
    }

    fn carry_out(&mut self, plan: Plan) -> Result<(), String> {
        let Plan { group, image_ahead, last, contents, mut state } = plan;
        let term = state.term;
        if image_ahead {
            self.log.set_group_state(group, &state).map_err(|error| error.to_string())?;
        }
        for (index, content) in (last.index + 1..).zip(&contents) {
            let id = EntryId { term, index };
            self.log.append_group_entry(group, id, content).map_err(|error| error.to_string())?;
        }
        state.commit = last.index + contents.len() as u64;
        self.log.set_group_state(group, &state).map_err(|error| error.to_string())
    }
}

/// What a group's log needs.
struct Plan {
    group: GroupId,
    image_ahead: bool,
    /// The last entry that is there.
    last: EntryId,
    /// The entries that follow it.
    contents: Vec<Bytes>,
    /// The group's state after them, but for the commit index.
    state: GroupState,
}
