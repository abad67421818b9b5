//! A cluster under a seeded schedule of messages, ticks, syncs, proposals and faults, with invariants checked after
//! each step.

use std::collections::{BTreeMap, BTreeSet};

use raft::eraftpb::MessageType;
use tribunal_codec::EntryId;
use tribunal_types::{GroupId, Incarnation, NodeId};

use super::cluster::{Cluster, InFlight, Sent};
use super::{GROUP, settings, voters};
use crate::election_timeout::mix;
use crate::{DurableUpTo, Input, Members, Output};

/// A group of node 2.
const OTHER: GroupId = GroupId { node: NodeId(2), incarnation: Incarnation(1) };
const GROUPS: [GroupId; 3] = [GroupId::CONTROL, GROUP, OTHER];

/// Random numbers from a seed.
#[derive(Clone)]
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0xD1CE))
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        (mix(self.0) % end.max(1) as u64) as usize
    }
}

/// The number of occurrences of each kind of event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub BTreeMap<&'static str, u64>);

/// A planted bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A sync is skipped, and reported as done, if it has no entries.
    ForgetsVotes,
    /// A node reports an entry as durable before it is.
    TellsBeforeTheSync,
    /// A read waits only for the commit index that its leader knows.
    ReadsAtTheCommitIndex,
}

pub struct Simulation {
    pub cluster: Cluster,
    draw: Draw,
    nodes: u16,
    starts: u64,
    proposed: u64,
    /// The leader of each term.
    leaders: BTreeMap<(GroupId, u64), NodeId>,
    /// Leaders of terms that are not durable there: voters that decide alone. A crash reverts such a term, and no other
    /// node has seen it.
    tentative: BTreeSet<(GroupId, u64, NodeId)>,
    /// All entries applied anywhere: each index once.
    history: BTreeMap<(GroupId, u64), (u64, String)>,
    /// Nodes that need an image, with the least indices that it must include.
    wanted: BTreeMap<NodeId, BTreeMap<GroupId, u64>>,
    /// The highest index that any node knew to be committed when a read began.
    reads: BTreeMap<u64, (GroupId, u64)>,
    /// A bug, to prove that the checks detect it.
    pub planted: Option<Planted>,
    pub counts: Counts,
    /// All outputs as text, if requested.
    pub trace: Option<String>,
}

impl Simulation {
    pub fn new(seed: u64, nodes: u16) -> Self {
        let groups = GROUPS.map(|group| (group, voters(&[1, 2, 3][..usize::from(nodes.min(3))])));
        let mut simulation = Self {
            cluster: Cluster::new(nodes, &groups),
            draw: Draw::new(seed),
            nodes,
            starts: 1000,
            proposed: 0,
            leaders: BTreeMap::new(),
            tentative: BTreeSet::new(),
            history: BTreeMap::new(),
            wanted: BTreeMap::new(),
            reads: BTreeMap::new(),
            planted: None,
            counts: Counts::default(),
            trace: None,
        };
        for replica in simulation.cluster.nodes.values_mut() {
            replica.fast_disk = false;
        }
        simulation
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.0.entry(what).or_default() += 1;
    }

    fn any_node(&mut self) -> u16 {
        1 + self.draw.below(usize::from(self.nodes)) as u16
    }

    fn any_group(&mut self) -> GroupId {
        GROUPS[self.draw.below(GROUPS.len())]
    }

    /// Performs a random action and checks the invariants.
    pub fn step(&mut self) {
        let kind = self.draw.below(1000);
        // With this bug, elections and crashes matter most.
        let kind = if self.planted == Some(Planted::ForgetsVotes) && (860..960).contains(&kind) {
            960 + kind % 18
        } else {
            kind
        };
        match kind {
            0..500 => self.pass_message(),
            500..680 => {
                let node = self.any_node();
                self.cluster.node(node).step(Input::Tick).unwrap();
            }
            680..860 => self.sync(),
            860..960 => self.propose(),
            960..967 => self.crash(),
            967..972 => self.cut(),
            972..978 => self.elect(),
            978..986 => self.compact(),
            986..992 => self.change_members(),
            992..997 => {
                let (node, group) = (self.any_node(), self.any_group());
                self.read(node, group);
            }
            _ => {
                let (node, to) = (self.any_node(), self.any_node());
                self.cluster.node(node).step(Input::Unreachable(NodeId(to))).unwrap();
            }
        }
        self.observe();
    }

    /// Begins a read. It must see everything that any node knows to be committed now.
    fn read(&mut self, node: u16, group: GroupId) {
        let known = self.history.range((group, 0)..=(group, u64::MAX)).next_back().map_or(0, |((_, index), _)| *index);
        let context = self.reads.len() as u64;
        self.reads.insert(context, (group, known));
        if self.cluster.node(node).step(Input::ReadIndex { group, context }).is_ok() {
            self.count("reads");
        }
    }

    /// Delivers, loses or repeats any message in flight.
    fn pass_message(&mut self) {
        self.cluster.collect_sent();
        if self.cluster.in_flight.is_empty() {
            return;
        }
        // Mostly one of the oldest.
        let among = if self.draw.below(10) == 0 { self.cluster.in_flight.len() } else { 4 };
        let at = self.draw.below(among.min(self.cluster.in_flight.len()));
        let mut message = self.cluster.in_flight.remove(at);
        if let Sent::Message(bytes) = &mut message.what
            && self.planted == Some(Planted::ReadsAtTheCommitIndex)
        {
            let mut decoded = super::decoded(bytes);
            if decoded.message.get_msg_type() == MessageType::MsgReadIndexResp {
                decoded.message.commit = 0;
                *bytes = decoded.encode().into();
            }
        }
        match self.draw.below(40) {
            0 => self.count("lost"),
            1 => {
                self.count("repeated");
                self.cluster.deliver(&message);
                self.cluster.in_flight.push(message);
            }
            _ => self.cluster.deliver(&message),
        }
    }

    fn sync(&mut self) {
        let node = self.any_node();
        let forgets = self.planted == Some(Planted::ForgetsVotes);
        let replica = self.cluster.node(node);
        let number = replica.syncs.back().map(|(number, _)| *number);
        if let Some(number) = number.filter(|_| forgets && !replica.log.pending_entries()) {
            replica.syncs.clear();
            replica.step(Input::Persisted(number)).unwrap();
            return;
        }
        replica.complete_sync();
    }

    fn propose(&mut self) {
        let (node, group) = (self.any_node(), self.any_group());
        let count = 1 + self.draw.below(3);
        for _ in 0..count {
            self.proposed += 1;
            // Some of them are long, so that messages and rounds reach their limits.
            let padding = if self.draw.below(40) == 0 { 700_000 } else { self.draw.below(20) };
            let payload = format!("{}{}", self.proposed, "-".repeat(padding));
            if self.cluster.node(node).groups.propose(group, payload.into_bytes()).is_ok() {
                self.count("proposed");
            }
        }
        self.cluster.node(node).drain();
    }

    fn crash(&mut self) {
        let node = self.any_node();
        self.starts += 1;
        let seed = self.starts;
        let pending = self.cluster.node(node).log.pending();
        let surviving = self.draw.below(pending + 1);
        let surviving = if self.planted.is_some() { 0 } else { surviving };
        self.cluster.node(node).restart(settings(seed), surviving);
        self.wanted.remove(&NodeId(node));
        // Its vote for itself may be among the surviving records.
        self.note_leaders();
        self.tentative.retain(|(_, _, leader)| *leader != NodeId(node));
        self.count("crashes");
    }

    fn cut(&mut self) {
        if self.cluster.cut_off.is_empty() {
            let node = self.any_node();
            self.cluster.cut_off.push(NodeId(node));
            self.count("cuts");
        } else {
            self.cluster.cut_off.clear();
        }
    }

    fn elect(&mut self) {
        let (node, to, group) = (self.any_node(), self.any_node(), self.any_group());
        let (input, what) = match self.draw.below(3) {
            0 => (Input::TakeOver(group), "takeovers"),
            1 => (Input::TransferLeader { group, to: NodeId(to) }, "transfers"),
            _ => (Input::Campaign(group), "campaigns"),
        };
        if self.cluster.node(node).step(input).is_ok() {
            self.count(what);
        }
    }

    fn compact(&mut self) {
        let node = self.any_node();
        let replica = self.cluster.node(node);
        replica.save_image();
        for group in GROUPS {
            let upto = replica.point(group).id.index;
            replica.step(Input::Compact { group, upto }).unwrap();
        }
        self.count("compactions");
    }

    fn change_members(&mut self) {
        let (group, nodes) = (self.any_group(), self.nodes);
        let Some(leader) = self.cluster.leader(group) else { return };
        let mut members = Members::first([leader]);
        for node in (1..=nodes).map(NodeId).filter(|node| *node != leader) {
            match self.draw.below(4) {
                0 => {}
                1 => drop(members.learners.insert(node)),
                _ => drop(members.voters.insert(node)),
            }
        }
        let replica = self.cluster.nodes.get_mut(&leader).unwrap();
        let done = replica.groups.propose_members(group, &members);
        replica.drain();
        if done.is_ok() {
            self.count("changes of members");
        }
    }

    /// Checks and records the nodes' outputs.
    fn observe(&mut self) {
        self.note_outputs();
        let waiting = self.wanted.keys().copied().collect::<Vec<_>>();
        if !waiting.is_empty() {
            waiting.into_iter().for_each(|node| self.install(node));
            self.note_outputs();
        }
    }

    fn note_outputs(&mut self) {
        for node in 1..=self.nodes {
            let seen = self.cluster.node(node).take_seen();
            for output in seen {
                if let Some(trace) = &mut self.trace {
                    trace.push_str(&format!("{node} {output:?}\n"));
                }
                self.plant(NodeId(node), &output);
                self.invariant(NodeId(node), output);
            }
        }
        self.note_leaders();
    }

    /// A term has one leader from the moment that the leader's vote for itself is durable.
    fn note_leaders(&mut self) {
        let nodes = &self.cluster.nodes;
        let durable =
            |(group, term, node): &(GroupId, u64, NodeId)| nodes[node].log.durable(*group).state.term >= *term;
        let elected = self.tentative.iter().copied().filter(durable).collect::<Vec<_>>();
        for (group, term, node) in elected {
            self.tentative.remove(&(group, term, node));
            let first = *self.leaders.entry((group, term)).or_insert(node);
            assert_eq!(first, node, "two leaders in term {term} of {group:?}");
            self.count("elections");
        }
    }

    fn plant(&mut self, from: NodeId, output: &Output) {
        if let Output::Append { group, id: EntryId { term, index }, .. } = *output
            && self.planted == Some(Planted::TellsBeforeTheSync)
        {
            let others = (1..=self.nodes).map(NodeId).filter(|node| *node != from);
            let told = |to| InFlight { from, to, what: Sent::Durable(vec![DurableUpTo { group, term, index }]) };
            self.cluster.in_flight.extend(others.map(told));
        }
    }

    fn invariant(&mut self, node: NodeId, output: Output) {
        let (group, id, what) = match output {
            Output::Role { group, leader, term } => {
                if leader == Some(node) {
                    self.tentative.insert((group, term, node));
                }
                return;
            }
            Output::NeedsImage { group, at_least, .. } => {
                let wanted = self.wanted.entry(node).or_default();
                wanted.insert(group, at_least.index);
                return;
            }
            Output::Failed { group, reason } => panic!("{group:?} failed: {reason}"),
            Output::ReadState { index, context, .. } => {
                let (group, known) = self.reads[&context];
                assert!(index >= known, "a read of {group:?} up to {index} misses what was committed, {known}");
                return self.count("reads answered");
            }
            Output::Committed { group, id, payload } => (group, id, super::text(&payload).to_owned()),
            Output::TermBegun { group, id, .. } => (group, id, "term".to_owned()),
            Output::MembersChanged { group, id, .. } => (group, id, "members".to_owned()),
            _ => return,
        };
        let EntryId { term, index } = id;
        let committed = self.history.entry((group, index)).or_insert((term, what.clone()));
        assert_eq!(*committed, (term, what), "entry {index} of {group:?} was committed with another content");
    }

    /// Installs a state image from a node that has enough of all groups. There may be none, because not every node
    /// belongs to every group here: then each group that needs one gets its own.
    fn install(&mut self, node: NodeId) {
        let wanted = self.wanted.get(&node).cloned().unwrap_or_default();
        let mut sets = vec![GROUPS.to_vec()];
        sets.extend(wanted.keys().map(|group| vec![*group]));
        for groups in sets {
            let has = |donor: &NodeId, group: &GroupId| self.cluster.nodes[donor].point(*group).id.index;
            let enough = |donor: &NodeId, group: &GroupId| {
                let compacted = self.cluster.nodes[&node].image[group].point.id.index;
                has(donor, group) >= compacted.max(wanted.get(group).copied().unwrap_or_default())
            };
            let donors = self.cluster.nodes.keys().filter(|donor| **donor != node);
            let donors = donors.filter(|donor| groups.iter().all(|group| enough(donor, group)));
            let donor = donors.max_by_key(|donor| groups.iter().map(|group| has(donor, group)).sum::<u64>());
            let Some(donor) = donor.copied() else { continue };
            let mut image = self.cluster.nodes[&donor].applied.clone();
            image.retain(|group, _| groups.contains(group));
            self.cluster.nodes.get_mut(&node).unwrap().install(image);
            self.count("images");
            if groups.len() > 1 {
                break;
            }
        }
        self.wanted.remove(&node);
    }

    /// All faults end. Everything that was ever committed must be on all voters, and the groups must make progress.
    pub fn heal(&mut self) {
        self.cluster.cut_off.clear();
        let mut committed = BTreeSet::new();
        for round in 0..600 {
            for node in 1..=self.nodes {
                let replica = self.cluster.node(node);
                replica.step(Input::Tick).unwrap();
                while !replica.syncs.is_empty() {
                    replica.complete_sync();
                }
            }
            self.observe();
            for _ in 0..1000 {
                self.cluster.collect_sent();
                if self.cluster.in_flight.is_empty() {
                    break;
                }
                for message in std::mem::take(&mut self.cluster.in_flight) {
                    self.cluster.deliver(&message);
                }
                for node in 1..=self.nodes {
                    while !self.cluster.node(node).syncs.is_empty() {
                        self.cluster.node(node).complete_sync();
                    }
                }
                self.observe();
            }
            if round == 400 {
                for group in GROUPS {
                    let leader = self.cluster.leader(group).unwrap_or_else(|| panic!("{group:?} has no leader"));
                    let replica = self.cluster.nodes.get_mut(&leader).unwrap();
                    replica.propose(group, "the end").unwrap();
                    committed.insert(group);
                }
            }
        }
        for group in GROUPS {
            self.converged(group);
        }
    }

    fn converged(&self, group: GroupId) {
        let leader = self.cluster.leader(group).expect("a leader");
        let leading = &self.cluster.nodes[&leader];
        let members = &leading.point(group).members;
        assert!(!members.is_joint(), "{members:?}");
        assert_eq!(leading.proposals(group).last(), Some(&"the end"), "{group:?} does not go on");
        let expected = self.history.range((group, 0)..=(group, u64::MAX)).map(|(_, (_, what))| what.as_str());
        let expected = expected.filter(|what| !["term", "members"].contains(what)).collect::<Vec<_>>();
        for node in &members.voters {
            let replica = &self.cluster.nodes[node];
            assert_eq!(replica.point(group), leading.point(group), "node {node} of {group:?}");
            assert!(replica.proposals(group) == expected, "node {node} of {group:?} has not what was committed");
        }
        self.logs_match(group, members);
    }

    /// Checks that two logs with an entry of the same term and index have the same content there.
    fn logs_match(&self, group: GroupId, members: &Members) {
        let mut known = BTreeMap::new();
        for node in &members.voters {
            let stored = self.cluster.nodes[node].log.stored(group);
            for (index, (term, content)) in (stored.before.index + 1..).zip(stored.entries) {
                let first = known.entry((index, term)).or_insert_with(|| content.clone());
                assert!(*first == content, "entry {index} of term {term} differs");
            }
        }
    }
}
