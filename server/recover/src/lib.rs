//! Recovers a cluster that has permanently lost a majority of its nodes: one node continues as the only member.
//!
//! Each log gets entries that make this node its only member; the control log also gets the removal of all other nodes.
//! These entries count as committed, and so do all earlier entries that this node has but did not know to be committed:
//! they may have been acknowledged. The control log is written last: until it has its entries, a repeated run can tell
//! what is missing. Whatever the other nodes acknowledged without this node is lost. From the next start on, everything
//! proceeds as usual: the node is elected in all logs, closes the groups of the other nodes, and notifies returning
//! nodes of their removal.
//!
//! The command is part of the server (`server/node/src/commands/cluster_recover.rs`): it checks whether the node may do
//! this, and prevents a start after an unfinished run. The simulator runs the same code on simulated disks.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use tribunal_codec::{EntryId, GroupState, PROPOSED, decode_batch, decode_control, encode_control};
use tribunal_core::control::members::Members as ClusterNodes;
use tribunal_core::control::{Moment, ReplicatedState};
use tribunal_core::executor::ShardExecutor;
use tribunal_core::planted::{Bug, planted};
use tribunal_core::row_key::RowKeyer;
use tribunal_log::{DiskLog, DurableLog, GroupCursors, GroupEntry, LogReader};
use tribunal_member::{EntryKind, GroupLog, Member, Members, sole_member};
use tribunal_replica::{PolicyRunner, Waiters};
use tribunal_types::{
    ControlChange, ControlEntry, ControlIndex, GroupId, NamespaceId, NodeId, NodeStage, ProposalId, TxnId,
};

/// Maximum number of entry bytes per read.
const READ_BYTES: usize = 16 << 20;

/// Margin of the new entries' terms over every term known to this node: other nodes may have continued without it, and
/// the entries of their later terms must not be mistaken for these.
const TERMS_AHEAD: u64 = 1 << 20;

/// The consequences of a recovery that the operator accepts.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// The removed nodes.
    pub removed: Vec<NodeId>,
    /// Transactions in this node's log that it did not know to be committed, with the names of their namespaces: they get
    /// decided now.
    pub in_doubt: Vec<(String, TxnId)>,
}

/// A stopped node and its logs.
pub struct StoppedNode<'a, W: Waiters, P, E, L: GroupLog> {
    /// The node's id.
    pub node: NodeId,
    /// The node's log.
    pub log: &'a mut DiskLog,
    /// Reads `log`.
    pub reader: &'a LogReader,
    /// The cursor of each group up to which the node's state image includes its entries.
    pub image: &'a GroupCursors,
    /// Hashes row keys.
    pub keyer: &'a RowKeyer,
    /// The node's state, recovered from its disk.
    pub member: &'a Member<W, P, E, L>,
    /// Run number in the ids of the proposals written here.
    pub run: u64,
    /// Whether an earlier run began to change the logs and did not finish.
    pub again: bool,
}

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor, L: GroupLog> StoppedNode<'_, W, P, E, L> {
    /// Makes the node the only one of its cluster. `note` persists what is accepted, before anything changes.
    ///
    /// # Errors
    /// The reason, as text. Nothing has changed then, unless the disk failed; the call can be repeated.
    pub fn go_on_alone(mut self, note: impl FnOnce(&Accepted) -> Result<(), String>) -> Result<Accepted, String> {
        self.must_have_code()?;
        self.must_be_member()?;
        let others = self.others();
        let mut accepted = Accepted { removed: others, in_doubt: Vec::new() };
        if accepted.removed.is_empty() {
            if !self.again {
                return Err("this node is the only one of its cluster already".into());
            }
            // The control log is written last, and has its entries: the earlier run wrote everything.
            self.log.sync().map_err(|error| error.to_string())?;
            return Ok(accepted);
        }
        // Read and check everything before the first change.
        let plans = self.plans(&mut accepted)?;
        note(&accepted)?;
        plans.into_iter().try_for_each(|plan| self.carry_out(plan))?;
        self.log.sync().map_err(|error| error.to_string())?;
        Ok(accepted)
    }

    /// Checks that the node could decide everything that it knows to be committed: otherwise, its state is that of an earlier
    /// point, with other members.
    fn must_have_code(&self) -> Result<(), String> {
        if !self.member.replica().waits_for_code() {
            return Ok(());
        }
        Err(format!(
            "node {} lacks the code of a plugin that decides, so it has not decided everything that is in its log. Copy the file of the \
             plugin from the directory `plugins` of another node, or of a backup, into this node's; or use another node that is left",
            self.node
        ))
    }

    /// Checks that the node is a member: a non-member would be left alone with logs that no node can lead.
    fn must_be_member(&self) -> Result<(), String> {
        let known = self.member.replica().replicated().members().node(self.node);
        if known.is_some_and(|node| node.stage == NodeStage::Present && node.joined.is_some()) {
            return Ok(());
        }
        Err(format!(
            "node {} is no member of its cluster: it was about to join or to be removed. Use another node that is left, the one that \
             has decided most",
            self.node
        ))
    }

    /// Returns the other nodes that have not left yet.
    fn others(&self) -> Vec<NodeId> {
        let members = self.member.replica().replicated().members();
        let left = members.nodes().filter(|node| node.stage != NodeStage::Left && node.id != self.node);
        left.map(|node| node.id).collect()
    }

    /// Computes the change to each log, the control log's last.
    fn plans(&self, accepted: &mut Accepted) -> Result<Vec<Plan>, String> {
        let lacking = |group, id: EntryId| {
            id.index > self.known(group).index && self.reader.group_term(group, id.index) != Some(id.term)
        };
        let mut copied = self.reader.copied_entries(lacking).map_err(|error| error.to_string())?;
        if planted(Bug::PeersEntriesDropped) {
            copied.clear();
        }
        let contents = |group| self.contents(group, &copied).map_err(|reason| cannot_continue(group, &reason));
        let control = contents(GroupId::CONTROL)?;
        // Groups that this node has not begun may have joined, and then epochs wait for them.
        let admitted = self.admitted(&control).map_err(|reason| cannot_continue(GroupId::CONTROL, &reason))?;
        let groups: BTreeSet<GroupId> = self.member.groups().chain(admitted.keys().copied()).collect();
        let mut plans = Vec::with_capacity(groups.len());
        for group in groups.into_iter().filter(|group| *group != GroupId::CONTROL) {
            let members = self.member.members_of(group).or(admitted.get(&group));
            let contents = contents(group)?;
            self.note_in_doubt(group, &contents, accepted).map_err(|reason| cannot_continue(group, &reason))?;
            plans.push(self.plan(group, members, contents)?);
        }
        plans.push(self.plan(GroupId::CONTROL, self.member.members_of(GroupId::CONTROL), control)?);
        Ok(plans)
    }

    /// Returns the last entry of a group that is known to be committed.
    fn known(&self, group: GroupId) -> EntryId {
        let included = self.image.get(&group).map(|cursor| cursor.included).unwrap_or_default();
        let commit = self.reader.group_state(group).commit;
        let term = self.reader.group_term(group, commit).unwrap_or_default();
        if included.index > commit { included } else { EntryId { term, index: commit } }
    }

    /// Collects a group's entries after the last one known to be committed: those in its log, and those copied from
    /// peers.
    fn contents(&self, group: GroupId, copied: &BTreeMap<(GroupId, u64), GroupEntry>) -> Result<Contents, String> {
        let known = self.known(group);
        let (_, mut last) = self.reader.group_bounds(group);
        // The image supersedes everything in the log, which may have entries of other leaders at these indices.
        let image_ahead = known.index > self.reader.group_state(group).commit
            && self.reader.group_term(group, known.index) != Some(known.term);
        if image_ahead || planted(Bug::DoubtDropped) {
            last = known;
        }
        let copied: Vec<&GroupEntry> = copied.range((group, 0)..=(group, u64::MAX)).map(|(_, entry)| entry).collect();
        if let Some(first) = copied.first() {
            // Entries that a peer hands out are committed; the log's entries at the same indices are not.
            let index = (first.id.index - 1).min(last.index);
            let term = if index == last.index { Some(last.term) } else { self.reader.group_term(group, index) };
            last = EntryId { term: term.unwrap_or_default(), index };
        }
        let own = self.entries(group, known.index, last.index)?;
        let mut gained: Vec<GroupEntry> = Vec::with_capacity(copied.len());
        for entry in &copied {
            let before = gained.last().map_or(last, |before| before.id);
            // A term begins with an empty entry: if that is missing, the preceding entry is not the committed one.
            let begins_term = entry.payload.is_empty();
            if entry.id.index != before.index + 1 {
                return Err(self.incomplete(group, before.index + 1, &copied[gained.len()..]));
            } else if entry.id.term != before.term && !(entry.id.term > before.term && begins_term) {
                return Err(self.incomplete(group, before.index, &copied[gained.len()..]));
            }
            gained.push((*entry).clone());
        }
        Ok(Contents { image_ahead, last, own, gained })
    }

    /// Describes what would be lost of a group with missing entries.
    fn incomplete(&self, group: GroupId, missing: u64, lost: &[&GroupEntry]) -> String {
        let (mut txns, mut others) = (Vec::new(), 0);
        for entry in lost {
            match self.txns_in(group, &Bytes::copy_from_slice(&entry.payload)) {
                Ok(found) => txns.extend(found),
                Err(_) => others += 1,
            }
        }
        let listed: Vec<String> = txns.iter().map(|(namespace, id)| format!("{id} namespace {namespace}")).collect();
        let unreadable = if others > 0 { format!(" {others} entries cannot be read.") } else { String::new() };
        format!(
            "it received entries of that log from other nodes, and decided epochs with them, but entry {missing} is missing. \
             {} transactions would be lost, although clients may have been told their verdicts: {}.{unreadable} Nothing was changed. \
             If another node is left, use that one; if not, keep the directory of this one, and report this",
            txns.len(),
            if listed.is_empty() { "none".into() } else { listed.join(", ") },
        )
    }

    /// Returns the groups of all nodes that the control log has admitted, applied or not, each with its first members.
    fn admitted(&self, control: &Contents) -> Result<BTreeMap<GroupId, Members>, String> {
        let group = GroupId::CONTROL;
        let included = self.image.get(&group).map(|cursor| cursor.included).unwrap_or_default();
        let agreed = control_entries(&self.entries(group, included.index, self.known(group).index)?)?;
        let first = self.member.control().0 + 1 - agreed.len() as u64;
        let gained: Vec<Bytes> = control.gained.iter().map(|entry| Bytes::copy_from_slice(&entry.payload)).collect();
        let rest = [control_entries(&control.own)?, control_entries(&gained)?].concat();
        let mut state: ReplicatedState = self.member.replica().replicated().clone();
        // The ids of nodes depend only on the order of the entries.
        let moment =
            Moment { next: self.member.replica().last_complete().next(), is_existence_fixed: &|_| true, members: &[] };
        for (index, entry) in (first..).map(ControlIndex).zip(agreed.iter().chain(&rest)) {
            if index > state.index() {
                let _ = state.apply(index, entry, moment);
            }
        }
        let nodes = state.members().nodes().filter(|node| !node.first_voters.is_empty());
        Ok(nodes
            .map(|node| (ClusterNodes::group_of(node.id), Members::first(node.first_voters.iter().copied())))
            .collect())
    }

    /// Computes the change to the log of a group with these members.
    fn plan(&self, group: GroupId, agreed: Option<&Members>, contents: Contents) -> Result<Plan, String> {
        let Contents { image_ahead, last, own, gained } = contents;
        let agreed = agreed.ok_or_else(|| cannot_continue(group, "its members are not known"))?;
        let mut state = self.reader.group_state(group);
        if image_ahead {
            (state.compacted, state.commit) = (last, last.index);
        }
        let upto = last.index + gained.len() as u64;
        // Peers hand out no membership changes.
        let alone = sole_member(self.node, agreed, own, upto).map_err(|reason| cannot_continue(group, &reason))?;
        let mut contents = alone.contents;
        if group == GroupId::CONTROL {
            contents.push(self.removal());
        }
        let last_term = gained.last().map_or(last.term, |entry| entry.id.term);
        state.term = state.term.max(last_term) + TERMS_AHEAD;
        state.vote = 0;
        state.members = alone.members.encode();
        Ok(Plan { group, image_ahead, gained, upto, contents, state })
    }

    /// Reads the contents of the entries after `commit`, up to `last`.
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

    /// Notes the transactions not known to be committed. Entries that precede one copied from a peer are committed.
    fn note_in_doubt(&self, group: GroupId, contents: &Contents, accepted: &mut Accepted) -> Result<(), String> {
        let doubted = if contents.gained.is_empty() { &contents.own[..] } else { &[] };
        for content in doubted {
            accepted.in_doubt.extend(self.txns_in(group, content)?);
        }
        Ok(())
    }

    /// Returns the transactions of an entry, each with the name of its namespace, or the number if that is not known.
    fn txns_in(&self, group: GroupId, content: &Bytes) -> Result<Vec<(String, TxnId)>, String> {
        let kind = EntryKind::of(content).map_err(|malformed| malformed.to_string())?;
        let EntryKind::Proposal(payload) = kind else { return Ok(Vec::new()) };
        if group == GroupId::CONTROL {
            return Ok(Vec::new());
        }
        let name = |namespace, store, key: &[u8]| self.keyer.row(namespace, store, key);
        let batch = decode_batch(&payload, group, &name).map_err(|malformed| malformed.to_string())?;
        let keys = self.member.replica().replicated().keys();
        let of = |namespace: NamespaceId| {
            keys.namespace_name(namespace).map_or_else(|| namespace.0.to_string(), str::to_owned)
        };
        Ok(batch.txns.iter().map(|txn| (of(txn.namespace), txn.id)).collect())
    }

    /// Returns the control log's entry that removes all other nodes, including those that this node has not learned of
    /// yet.
    fn removal(&self) -> Bytes {
        let proposal = ProposalId { run: self.run, number: 1 };
        let change = ControlChange::SoleNode { node: self.node };
        let mut content = encode_control(&ControlEntry { proposal, change });
        content.push(PROPOSED);
        content.into()
    }

    fn carry_out(&mut self, plan: Plan) -> Result<(), String> {
        let Plan { group, image_ahead, gained, upto, contents, mut state } = plan;
        let term = state.term;
        if image_ahead {
            self.log.set_group_state(group, &state).map_err(|error| error.to_string())?;
        }
        for GroupEntry { id, payload } in &gained {
            self.log.append_group_entry(group, *id, payload).map_err(|error| error.to_string())?;
        }
        for (index, content) in (upto + 1..).zip(&contents) {
            let id = EntryId { term, index };
            self.log.append_group_entry(group, id, content).map_err(|error| error.to_string())?;
        }
        state.commit = upto + contents.len() as u64;
        self.log.set_group_state(group, &state).map_err(|error| error.to_string())
    }
}

fn cannot_continue(group: GroupId, reason: &str) -> String {
    if group == GroupId::CONTROL {
        return format!("the control log cannot be continued: {reason}");
    }
    format!("the log of node {} cannot be continued: {reason}", group.node)
}

/// Returns the control entries in these contents.
fn control_entries(contents: &[Bytes]) -> Result<Vec<ControlEntry>, String> {
    let mut entries = Vec::new();
    for content in contents {
        if let EntryKind::Proposal(payload) = EntryKind::of(content).map_err(|malformed| malformed.to_string())? {
            entries.push(decode_control(&payload).map_err(|malformed| malformed.to_string())?);
        }
    }
    Ok(entries)
}

/// A group's entries after the last one known to be committed.
struct Contents {
    /// The image supersedes the log's entries.
    image_ahead: bool,
    /// The last entry of the log, or of the image, that is kept.
    last: EntryId,
    /// The contents of the entries up to it that are not known to be committed.
    own: Vec<Bytes>,
    /// The entries from peers that follow it.
    gained: Vec<GroupEntry>,
}

/// The change to a group's log.
struct Plan {
    group: GroupId,
    image_ahead: bool,
    /// Entries from peers that are appended.
    gained: Vec<GroupEntry>,
    /// Index of the last entry after they are appended.
    upto: u64,
    /// The contents of the entries that follow.
    contents: Vec<Bytes>,
    /// The group's state after the change, except for the commit index.
    state: GroupState,
}
