//! One node of a test: its groups, its log, the syncs in flight, and a state machine that records its input.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use tribunal_codec::EntryId;
use tribunal_types::{GroupId, NodeId};

use super::memory_log::{MemoryLog, Record};
use crate::{DurableUpTo, GroupPoint, Input, Output, RaftGroups, RaftMessage, Refused, Settings, StoredGroup};

/// The part of a state machine that belongs to one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    pub point: GroupPoint,
    /// All proposals, with their entries.
    pub proposals: Vec<(EntryId, String)>,
}

/// One node.
pub struct Replica {
    pub node: NodeId,
    pub groups: RaftGroups<MemoryLog>,
    pub log: MemoryLog,
    /// Syncs in flight: their numbers, and how many of the records pending at that time they cover.
    pub syncs: VecDeque<(u64, usize)>,
    pub applied: BTreeMap<GroupId, Applied>,
    /// The saved copy of `applied`, which survives a crash.
    pub image: BTreeMap<GroupId, Applied>,
    /// All outputs since they were last taken.
    pub seen: Vec<Output>,
    /// Messages to be sent, encoded.
    pub sent: Vec<(NodeId, Bytes)>,
    /// Reports of log durability, to be sent.
    pub told: Vec<(NodeId, Vec<DurableUpTo>)>,
    pub roles: BTreeMap<GroupId, (Option<NodeId>, u64)>,
    /// Counts of outputs, over all time.
    pub syncs_seen: u64,
    pub states_seen: u64,
    /// Whether syncs complete at once.
    pub fast_disk: bool,
}

impl Replica {
    pub fn new(node: NodeId, settings: Settings, groups: &[(GroupId, crate::Members)]) -> Self {
        let image = groups.iter().map(|(group, members)| {
            let point = GroupPoint { members: members.clone(), ..GroupPoint::default() };
            (*group, Applied { point, proposals: Vec::new() })
        });
        Self::start(node, settings, MemoryLog::default(), image.collect())
    }

    fn start(node: NodeId, settings: Settings, log: MemoryLog, image: BTreeMap<GroupId, Applied>) -> Self {
        let mut groups = RaftGroups::new(node, settings, log.clone());
        for (group, applied) in &image {
            let state = log.stored(*group).state;
            groups.add_group(StoredGroup { group: *group, state, applied: applied.point.clone() }).unwrap();
        }
        Self {
            node,
            groups,
            log,
            syncs: VecDeque::new(),
            applied: image.clone(),
            image,
            seen: Vec::new(),
            sent: Vec::new(),
            told: Vec::new(),
            roles: BTreeMap::new(),
            syncs_seen: 0,
            states_seen: 0,
            fast_disk: true,
        }
    }

    /// The power fails, and the node restarts.
    pub fn restart(&mut self, settings: Settings, surviving: usize) {
        self.log.crash(surviving);
        let fast_disk = self.fast_disk;
        *self = Self::start(self.node, settings, self.log.clone(), self.image.clone());
        self.fast_disk = fast_disk;
        self.drain();
    }

    pub fn step(&mut self, input: Input) -> Result<(), Refused> {
        let done = self.groups.step(input);
        self.drain();
        done
    }

    pub fn propose(&mut self, group: GroupId, payload: &str) -> Result<EntryId, Refused> {
        let done = self.groups.propose(group, payload.as_bytes().to_vec());
        self.drain();
        done
    }

    pub fn receive(&mut self, from: NodeId, bytes: &Bytes) -> Result<(), Refused> {
        let message = RaftMessage::decode(bytes).expect("replicas send what can be decoded");
        self.step(Input::Message { from, message })
    }

    /// Completes the oldest sync in flight.
    pub fn complete_sync(&mut self) {
        let Some((number, count)) = self.syncs.pop_front() else { return };
        self.log.sync(count);
        self.syncs.iter_mut().for_each(|(_, later)| *later -= count);
        self.step(Input::Persisted(number)).unwrap();
    }

    /// Handles all outputs.
    pub fn drain(&mut self) {
        while let Some(output) = self.groups.poll() {
            self.seen.push(output.clone());
            self.carry_out(output);
        }
        if self.fast_disk && !self.syncs.is_empty() {
            self.complete_sync();
        }
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::Send { to, message } => {
                assert_ne!(to, self.node);
                self.sent.push((to, message.encode().into()));
            }
            Output::Durable { to, upto } => {
                assert_ne!(to, self.node);
                let is_durable = |told: &DurableUpTo| self.log.durable_term(told.group, told.index) == Some(told.term);
                assert!(upto.iter().all(is_durable), "node {}: {upto:?} are told, but not durable", self.node);
                self.told.push((to, upto));
            }
            Output::Append { group, id, content } => self.log.write(group, Record::Entry(id, content.to_vec())),
            Output::SetState { group, state } => {
                self.states_seen += 1;
                self.log.write(group, Record::State(state));
            }
            Output::Sync { number } => {
                self.syncs_seen += 1;
                self.syncs.push_back((number, self.log.pending()));
            }
            Output::Committed { group, id, payload } => {
                let applied = self.advance(group, id);
                applied.proposals.push((id, super::text(&payload).to_owned()));
            }
            Output::TermBegun { group, id, .. } => drop(self.advance(group, id)),
            Output::MembersChanged { group, id, members } => self.advance(group, id).point.members = members,
            Output::Role { group, leader, term } => drop(self.roles.insert(group, (leader, term))),
            Output::Failed { group, reason } => {
                assert!(self.groups.ids().any(|id| id == group), "{reason}");
            }
            Output::Appended { .. }
            | Output::ReadState { .. }
            | Output::ReadLost { .. }
            | Output::NeedsImage { .. } => {}
        }
    }

    /// Checks that every entry is applied once, in order.
    fn advance(&mut self, group: GroupId, id: EntryId) -> &mut Applied {
        let durable = self.log.durable_term(group, id.index);
        let applied = self.applied.get_mut(&group).expect("a group of this node");
        assert_eq!(id.index, applied.point.id.index + 1, "node {}: {id:?} after {:?}", self.node, applied.point.id);
        assert_eq!(durable, Some(id.term), "node {}: {id:?} is applied, but not durable", self.node);
        applied.point.id = id;
        applied
    }

    /// An image replaces the state machine, and is durable.
    pub fn install(&mut self, image: BTreeMap<GroupId, Applied>) {
        self.image.extend(image.clone());
        for (group, applied) in image {
            let point = applied.point.clone();
            self.applied.insert(group, applied);
            match self.step(Input::Install { group, point: point.clone() }) {
                Ok(()) => {}
                Err(Refused::NotAMember(_)) => self.replace_group(group, point),
                Err(other) => panic!("{other}"),
            }
        }
    }

    /// Restarts a group from an image in which this node is not a member of it.
    fn replace_group(&mut self, group: GroupId, applied: GroupPoint) {
        self.groups.remove_group(group);
        while !self.syncs.is_empty() {
            self.complete_sync();
        }
        let state = self.log.stored(group).state;
        self.groups.add_group(StoredGroup { group, state, applied }).unwrap();
        self.drain();
    }

    pub fn leads(&self, group: GroupId) -> bool {
        self.roles.get(&group).is_some_and(|(leader, _)| *leader == Some(self.node))
    }

    pub fn proposals(&self, group: GroupId) -> Vec<&str> {
        self.applied[&group].proposals.iter().map(|(_, text)| text.as_str()).collect()
    }

    pub fn point(&self, group: GroupId) -> &GroupPoint {
        &self.applied[&group].point
    }

    /// Makes the state machine durable as it is now.
    pub fn save_image(&mut self) {
        self.image = self.applied.clone();
    }

    pub fn take_seen(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.seen)
    }
}
