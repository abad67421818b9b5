//! Several replicas of one cluster on one thread, with logs that accept proposals in a given order: no network, no
//! disk, no clock. Each replica receives every log at its own pace.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tribunal_codec::{encode_batch, encode_outcome};
use tribunal_core::batcher::Batcher;
use tribunal_core::control::ReplicatedState;
use tribunal_core::epochs::Epochs;
use tribunal_core::executor::Inline;
use tribunal_core::resolver::{Resolver, ResolverConfig};
use tribunal_core::verdicts::item_verdict;
use tribunal_core::visibility::Visibility;
use tribunal_replica::{Answer, Commit, DecidedEpoch, Effect, Event, Imported, Now, Replica, ReplicaStart, Settings};
use tribunal_types::{
    Batch, ControlChange, ControlEntry, ControlIndex, Csn, Decision, Epoch, EpochInput, EpochOutcome, GroupId,
    GroupJoin, ImportedVersion, Isolation, NamespaceId, NodeId, StoreId, TxnId, Version,
};

use crate::cluster::{group, tracked};
use crate::generate::START_MS;
use crate::scenario::{Action, Keying, Row, TxnSpec, Value, txn_id};
use crate::stand_ins::{Native, Numbered};

/// Nodes of a cluster, including non-members.
const NODES: u16 = 4;
/// Length of epochs, if fixed.
const EPOCH_LENGTH: Duration = Duration::from_millis(20);
/// How long other nodes wait for a group before they take it over.
const TAKE_OVER_AFTER: Duration = Duration::from_millis(100);
/// Rows that transactions write.
const ROWS: [&str; 4] = ["a", "b", "c", "d"];

/// One event in a cluster.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    what: u8,
    node: u16,
    which: u8,
}

/// A cluster's history.
#[derive(Clone, Debug)]
pub struct History {
    /// Nodes 1 to this one are initial members.
    pub members: u16,
    /// Whether epochs have a fixed length, instead of being sealed as soon as the log is free.
    pub fixed_length: bool,
    /// Maximum number of a node's batches in flight.
    pub in_flight_max: usize,
    /// The events.
    pub choices: Vec<Choice>,
}

/// Generates histories of one to four nodes.
pub fn history() -> impl Strategy<Value = History> {
    let choice = (any::<u8>(), 1..=NODES, any::<u8>()).prop_map(|(what, node, which)| Choice { what, node, which });
    (1..=NODES, any::<bool>(), 1..=4_usize, vec(choice, 0..300)).prop_map(
        |(members, fixed_length, in_flight_max, choices)| History { members, fixed_length, in_flight_max, choices },
    )
}

/// One node.
struct Member {
    node: u16,
    replica: Replica<Numbered, Native, Inline>,
    /// Number of received entries, by group.
    read: BTreeMap<GroupId, usize>,
    control_read: usize,
    /// The waiters, with their transactions.
    waiting: BTreeMap<u64, TxnId>,
    /// Waiters among these whose id may never arrive.
    watching: BTreeSet<u64>,
    /// Number of the last waiter.
    waiters: u64,
    /// Versions that the node's engine has read.
    versions: BTreeMap<String, Version>,
    outcomes: BTreeMap<Epoch, Vec<u8>>,
    stopped: bool,
    /// Last complete epoch that it has announced to all nodes.
    published: Epoch,
    /// All effects that it requested.
    trace: Vec<u8>,
}

/// A committed entry of a group's log.
#[derive(Clone)]
enum Agreed {
    Batch(Arc<Batch>),
    /// The beginning of a leader's term.
    Term(u16),
}

/// Events that a history has covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Epochs with items.
    pub epochs: usize,
    /// Epochs among these to which several nodes contributed.
    pub shared: usize,
    /// Transactions whose waiters got the reply that their batch is void or lost.
    pub void: usize,
    /// Groups that another node took over because they made no progress.
    pub taken_over: usize,
    /// Entries that nodes sealed for such groups.
    pub sealed_for_others: usize,
    /// Proposals that a leader made after another one had replaced it.
    pub late: usize,
    /// Times that a node had several batches in flight.
    pub pipelined: usize,
    /// Transactions that were decided.
    pub decided: usize,
    /// Nodes that joined.
    pub joins: usize,
    /// Ids that were answered as known, on any node.
    pub repeated: usize,
}

/// The cluster.
struct Cluster {
    members: Vec<Member>,
    /// Committed entries.
    logs: BTreeMap<GroupId, Vec<Agreed>>,
    /// Leaders of groups, if different from the group's own node.
    leaders: BTreeMap<GroupId, u16>,
    /// Proposals that no log accepted, and takeovers that nodes requested.
    refused: VecDeque<(u16, Arc<Batch>)>,
    takeovers: VecDeque<(u16, GroupId)>,
    proposed: BTreeMap<GroupId, VecDeque<Arc<Batch>>>,
    control: Vec<ControlEntry>,
    proposed_control: VecDeque<ControlEntry>,
    /// Time since the start, milliseconds.
    time_ms: u64,
    /// Number of the last transaction.
    number: u64,
    sent: Vec<TxnSpec>,
    /// The closed group, if there is one.
    closing: Option<GroupId>,
    seen: Seen,
}

impl Cluster {
    fn start(history: &History) -> Cluster {
        let members = history.members;
        let epoch_length = history.fixed_length.then_some(EPOCH_LENGTH);
        let groups: Vec<GroupId> = (1..=members).map(group).collect();
        let start = |node: u16| {
            let mut resolver = Resolver::new(ResolverConfig::default());
            resolver.declare_store(tracked(1, "kv"));
            let start = ReplicaStart {
                group: group(node),
                leads: true,
                resolver,
                epochs: Epochs::new(&groups, Epoch(1), 0),
                batcher: Batcher::new(group(node), Csn::new(0, NodeId(node))),
                visibility: Visibility::new(Epoch(0)),
                replicated: ReplicatedState::default(),
                control: ControlIndex(0),
                run: u64::from(node),
                policies: Native,
                executor: Inline,
                replayed: 0,
                settings: Settings {
                    epoch_length,
                    image_every_bytes: 2_000,
                    epoch_bytes: 0,
                    quota: "nothing".into(),
                    in_flight_max: history.in_flight_max,
                    pause_min: Duration::from_millis(if history.in_flight_max > 1 { 1 } else { 0 }),
                    // A few items fill the batches of one node: the others wait for the next one.
                    batch_bytes_max: if node == 2 { 600 } else { 100_000 },
                    take_over_after: Some(TAKE_OVER_AFTER),
                },
            };
            let (read, outcomes) = (BTreeMap::new(), BTreeMap::new());
            let replica = Replica::new(start, now(0));
            Member {
                node,
                replica,
                read,
                control_read: 0,
                waiting: BTreeMap::new(),
                watching: BTreeSet::new(),
                waiters: 0,
                versions: BTreeMap::new(),
                outcomes,
                stopped: false,
                published: Epoch(0),
                trace: Vec::new(),
            }
        };
        Cluster {
            members: (1..=NODES).map(start).collect(),
            logs: BTreeMap::new(),
            leaders: BTreeMap::new(),
            refused: VecDeque::new(),
            takeovers: VecDeque::new(),
            proposed: BTreeMap::new(),
            control: (1..=NODES)
                .map(|node| {
                    ControlChange::AdmitNode { name: format!("n{node}"), address: "h:1".into(), voters: Vec::new() }
                        .into()
                })
                .collect(),
            proposed_control: VecDeque::new(),
            time_ms: 0,
            number: 0,
            sent: Vec::new(),
            closing: None,
            seen: Seen::default(),
        }
    }

    fn member(&mut self, node: u16) -> &mut Member {
        &mut self.members[usize::from(node) - 1]
    }

    fn step(&mut self, node: u16, event: Event<Numbered>) -> Result<(), String> {
        let now = now(self.time_ms);
        self.member(node).replica.step(event, now);
        while let Some(effect) = self.member(node).replica.poll() {
            self.carry_out(node, effect)?;
        }
        while self.member(node).replica.takes_image() {
            self.member(node).replica.step(Event::CopyImage, now);
            while let Some(effect) = self.member(node).replica.poll() {
                self.carry_out(node, effect)?;
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, node: u16, effect: Effect<Numbered>) -> Result<(), String> {
        match effect {
            Effect::Append(batch) => {
                encode_batch(&batch, &mut self.member(node).trace);
                self.seen.sealed_for_others += usize::from(batch.group != group(node));
                if self.leader(batch.group) == node {
                    let proposed = self.proposed.entry(batch.group).or_default();
                    self.seen.pipelined += usize::from(!proposed.is_empty());
                    proposed.push_back(batch);
                } else {
                    self.seen.late += 1;
                    self.refused.push_back((node, batch));
                }
            }
            Effect::TakeOver(group) => self.takeovers.push_back((node, group)),
            // Its position in the control log is determined on commit, not by the proposal.
            Effect::AppendControl(_, entry) => self.proposed_control.push_back(entry),
            Effect::Decided(decided) => self.decided(node, *decided)?,
            Effect::Answer(waiter, answer, _) => self.answered(node, waiter, answer)?,
            Effect::Imported(waiter, imported) => {
                self.member(node).note(&(waiter, imported));
                self.seen.void += usize::from(imported == Imported::NotTaken);
                self.released(node, waiter)?;
            }
            Effect::Known(waiter, known) => {
                self.member(node).note(&(waiter, known));
                self.released(node, waiter)?;
            }
            Effect::ControlReply(waiter, reply) => {
                let member = self.member(node);
                if member.published != member.replica.last_complete() {
                    return Err(format!("node {node} answers a change before it tells of the epoch that it ended"));
                }
                self.member(node).note(&reply);
                self.released(node, waiter)?;
            }
            Effect::ControlApplied(effect) => self.member(node).note(&effect),
            Effect::Image { image, applied, .. } => {
                let (image, control, fold) = image.into_parts();
                if fold[0] != image.epoch.next().0 {
                    return Err(format!("an image of epoch {} continues at {}", image.epoch, fold[0]));
                }
                self.member(node).note(&(control, fold, applied));
            }
            Effect::Stopped => {
                self.member(node).stopped = true;
                self.member(node).all_answered()?;
            }
            Effect::Progress => self.member(node).publish(),
            Effect::Truncate { below, applied, at_start: _ } => self.member(node).note(&(below, applied)),
            Effect::Flush(store) => self.member(node).note(&store),
            Effect::LeftOut(store, _) | Effect::OnlyInLog(store, _) => self.member(node).note(&store),
            Effect::SlotFilled(slot) | Effect::SlotFailing(slot, _) => self.member(node).note(&slot),
            Effect::SlotsChanged => {}
        }
        Ok(())
    }

    fn released(&mut self, node: u16, waiter: u64) -> Result<TxnId, String> {
        let waiting = self.member(node).waiting.remove(&waiter);
        waiting.ok_or_else(|| format!("node {node} answers {waiter} again"))
    }

    fn answered(&mut self, node: u16, waiter: u64, answer: Answer) -> Result<(), String> {
        self.member(node).note(&(waiter, answer));
        self.seen.void += usize::from(answer == Answer::NotTaken);
        self.seen.repeated += usize::from(matches!(answer, Answer::Stored(_) | Answer::BodyMismatch));
        self.released(node, waiter).map(drop)
    }

    fn decided(&mut self, node: u16, decided: DecidedEpoch<Numbered>) -> Result<(), String> {
        self.member(node).publish();
        let DecidedEpoch { input, outcome, own, .. } = decided;
        let mut bytes = Vec::new();
        input.batches.iter().for_each(|batch| encode_batch(batch, &mut bytes));
        encode_outcome(&outcome, &mut bytes);
        self.member(node).trace.extend_from_slice(&bytes);
        if self.member(node).outcomes.insert(input.epoch, bytes).is_some() {
            return Err(format!("node {node} resolves epoch {} again", input.epoch));
        }
        if node == 1 {
            self.seen.epochs += 1;
            self.seen.shared += usize::from(input.batches.len() > 1);
        }
        self.learn(node, &input, &outcome);
        let Some(own) = own else { return Ok(()) };
        let mut told = Vec::new();
        let import = own.items.answer(&outcome, own.places, |waiter, answer, _| told.push((waiter, answer)));
        for (waiter, answer) in told {
            if let Answer::Decided { item, .. } = answer {
                let ids = input.batches.iter().flat_map(|batch| batch.txns.iter().map(|txn| txn.id));
                let aborts = input.batches.iter().flat_map(|batch| batch.early_aborts.iter().map(|abort| abort.id));
                let id = ids.chain(aborts).nth(item as usize);
                if id != self.member(node).waiting.get(&waiter).copied() {
                    return Err(format!("node {node} answers {waiter} with item {item} of epoch {}", input.epoch));
                }
                item_verdict(&input, &outcome, item).ok_or("a decided item has a verdict")?;
                self.seen.decided += 1;
            }
            self.answered(node, waiter, answer)?;
        }
        match import {
            Some((waiter, _)) => self.released(node, waiter).map(drop),
            None => Ok(()),
        }
    }

    /// Makes a transaction of one or two writes; every other one reads the first row at the version that its node
    /// knows.
    fn transaction(&mut self, node: u16, which: u8) -> TxnSpec {
        self.number += 1;
        let level = Isolation::ALL[usize::from(which) % 4];
        let mut txn = TxnSpec::new(self.number, START_MS + self.time_ms, level);
        let row = |at: u8| Row::new(1, ROWS[usize::from(at) % ROWS.len()]);
        let (first, second) = (row(which >> 2), row(which >> 4));
        let value = Value::Int(i64::from(which));
        let action = match which >> 6 {
            0 => Action::Insert(value),
            1 => Action::Delete,
            _ => Action::Put(value),
        };
        if which.is_multiple_of(2) {
            txn.reads.push((first.clone(), self.member(node).versions.get(&first.key).copied()));
        }
        txn.writes.push((first.clone(), action));
        if second != first {
            txn.writes.push((second, Action::Put(Value::Int(0))));
        }
        self.sent.push(txn.clone());
        txn
    }

    /// Records an epoch's writes, as an engine with a cache would.
    fn learn(&mut self, node: u16, input: &EpochInput, outcome: &EpochOutcome) {
        let ids = input.batches.iter().flat_map(|batch| batch.txns.iter().map(|txn| txn.id)).collect::<Vec<_>>();
        for &ix in &outcome.order {
            let Decision::Committed { version } = outcome.decisions[ix.0 as usize] else { continue };
            let txn = self.sent.iter().find(|txn| txn.id == ids[ix.0 as usize]).cloned();
            for (row, action) in txn.into_iter().flat_map(|txn| txn.writes) {
                match action {
                    Action::Delete => self.member(node).versions.remove(&row.key),
                    _ => self.member(node).versions.insert(row.key, version),
                };
            }
        }
    }

    fn wait(&mut self, node: u16, id: TxnId) -> u64 {
        let member = self.member(node);
        member.waiters += 1;
        let waiter = member.waiters;
        member.waiting.insert(waiter, id);
        waiter
    }

    fn commit(&mut self, node: u16, txn: &TxnSpec) -> Result<(), String> {
        let waiter = self.wait(node, txn.id);
        let txn = Box::new(txn.request(&Keying::default()));
        self.step(node, Event::Commits(vec![Commit { txn, waiter }]))
    }

    fn leader(&self, group: GroupId) -> u16 {
        self.leaders.get(&group).copied().unwrap_or(group.node.0)
    }

    /// Makes a node the leader of a group: its uncommitted proposals are lost.
    fn elect(&mut self, node: u16, group: GroupId) -> Result<(), String> {
        self.proposed.remove(&group);
        self.leaders.insert(group, node);
        self.logs.entry(group).or_default().push(Agreed::Term(node));
        // Other nodes learn of this later, but a candidate knows that it is no longer the leader.
        self.step(node, Event::LeaderLost(group))
    }

    /// Elects the node with the earliest takeover request, unless it is already the leader.
    fn grant_takeover(&mut self) -> Result<bool, String> {
        let Some((node, group)) = self.takeovers.pop_front() else { return Ok(false) };
        if group != GroupId::CONTROL && self.leader(group) != node {
            self.seen.taken_over += 1;
            self.elect(node, group)?;
        }
        Ok(true)
    }

    /// Informs a node of a proposal that no log accepted.
    fn deliver_refusal(&mut self) -> Result<bool, String> {
        let Some((node, batch)) = self.refused.pop_front() else { return Ok(false) };
        self.step(node, Event::NotProposed(batch)).map(|()| true)
    }

    /// Commits a group's oldest proposal.
    fn agree(&mut self, group: GroupId) -> bool {
        let Some(batch) = self.proposed.get_mut(&group).and_then(VecDeque::pop_front) else { return false };
        self.logs.entry(group).or_default().push(Agreed::Batch(batch));
        true
    }

    /// Commits an empty entry that another node made for a group: the group's proposal for the same epoch is void.
    fn take_over(&mut self, group: GroupId, seen_by: u16, length: u64, closes: bool) {
        let epochs = self.member(seen_by).replica.epochs();
        if epochs.has(group) {
            let (first, members) = (epochs.next_of(group), epochs.members());
            // One member must remain to decide.
            let closes = closes && self.closing.is_none_or(|closing| closing == group) && members > 1;
            if closes {
                self.closing = Some(group);
            }
            let batch = Batch { group, first, last: Epoch(first.0 + length), closes, ..Batch::default() };
            self.logs.entry(group).or_default().push(Agreed::Batch(Arc::new(batch)));
        }
    }

    fn agree_control(&mut self) -> bool {
        let entry = self.proposed_control.pop_front();
        let agreed = entry.is_some();
        self.control.extend(entry);
        agreed
    }

    fn deliver(&mut self, node: u16, group: GroupId) -> Result<bool, String> {
        let read = self.member(node).read.entry(group).or_default();
        let at = *read;
        let Some(agreed) = self.logs.get(&group).and_then(|log| log.get(at)).cloned() else { return Ok(false) };
        self.member(node).read.insert(group, at + 1);
        let event = match agreed {
            Agreed::Batch(batch) => Event::Entry(batch),
            Agreed::Term(leader) => {
                // A leader proposes only once it has received all entries committed before its own term.
                let later = self.logs[&group][at + 1..].iter().any(|agreed| matches!(agreed, Agreed::Term(_)));
                Event::TermBegun { group, leads: leader == node && !later }
            }
        };
        self.step(node, event).map(|()| true)
    }

    fn deliver_control(&mut self, node: u16) -> Result<bool, String> {
        let at = self.member(node).control_read;
        let Some(entry) = self.control.get(at).cloned() else { return Ok(false) };
        self.member(node).control_read += 1;
        self.step(node, Event::ControlEntry(ControlIndex(at as u64 + 1), entry)).map(|()| true)
    }

    fn control(&mut self, node: u16, which: u8) -> Result<(), String> {
        let change = match which % 4 {
            0 => ControlChange::DeclareStore(tracked(0, &format!("s{}", which / 4 % 3))),
            1 => ControlChange::AdmitNode {
                name: format!("n{}", which / 4 % 8),
                address: "h:1".into(),
                voters: Vec::new(),
            },
            2 => ControlChange::JoinGroup(GroupJoin {
                group: group(u16::from(which / 4) % NODES + 1),
                first: Epoch(u64::from(which / 16)),
            }),
            _ => ControlChange::RevokeKey { id: "nobody".into() },
        };
        let waiter = self.wait(node, TxnId::default());
        self.step(node, Event::Control(change, waiter))
    }

    /// Commits an entry a second time; it has no effect.
    fn agree_again(&mut self, group: GroupId) {
        let log = self.logs.entry(group).or_default();
        let again = log.iter().rev().find(|agreed| matches!(agreed, Agreed::Batch(_))).cloned();
        log.extend(again);
    }

    /// The node learns of another node's proposal.
    fn learn_of_proposal(&mut self, node: u16, group: GroupId) -> Result<(), String> {
        let seen = self.proposed.get(&group).and_then(VecDeque::back).filter(|batch| !batch.is_empty());
        let last = seen.map(|batch| batch.last);
        last.map_or(Ok(()), |last| self.step(node, Event::Appended(last)))
    }

    fn play(&mut self, Choice { what, node, which }: Choice) -> Result<(), String> {
        let other = group(u16::from(which) % NODES + 1);
        let proposes = self.member(node).replica.epochs().has(group(node));
        match what {
            0..60 if proposes => {
                let txn = self.transaction(node, which);
                self.commit(node, &txn)
            }
            60..68 if proposes => {
                // A client retries, on any node.
                let again = self.sent.iter().rev().nth(usize::from(which) % 8).cloned();
                again.map_or(Ok(()), |txn| self.commit(node, &txn))
            }
            68..74 if proposes => {
                let id = txn_id(START_MS + self.time_ms, self.number + u64::from(which % 2));
                let waiter = self.wait(node, id);
                self.step(node, Event::Abort(NamespaceId(0), id, waiter))
            }
            74..80 if proposes => {
                let id = txn_id(START_MS + self.time_ms, self.number + u64::from(which % 2));
                let waiter = self.wait(node, id);
                self.step(node, Event::Fence(NamespaceId(0), id, waiter))
            }
            80..86 if proposes => {
                let row = Keying::default().row(NamespaceId(0), &Row::new(1, &format!("i{which}")));
                let version = Version::new(Epoch(1), 0).ok_or("a version")?;
                let waiter = self.wait(node, TxnId::default());
                let import = vec![ImportedVersion { store: StoreId(1), row, version, integer: false }];
                self.step(node, Event::Import(import, waiter))
            }
            86..90 => {
                let id = self.sent.last().map_or(TxnId::default(), |txn| txn.id);
                let waiter = self.wait(node, id);
                self.member(node).watching.insert(waiter);
                self.step(node, Event::Watch(NamespaceId(0), id, waiter))
            }
            90..100 if proposes => self.control(node, which),
            0..140 => {
                self.agree(group(node));
                Ok(())
            }
            140..148 => {
                self.take_over(other, node, u64::from(which % 3), which >= 252);
                Ok(())
            }
            148..150 => {
                self.agree_again(other);
                Ok(())
            }
            150..160 => {
                self.agree_control();
                Ok(())
            }
            160..210 => self.deliver(node, other).map(drop),
            210..220 => self.deliver_control(node).map(drop),
            220..224 => self.elect(node, other),
            224..226 => {
                // The group's own node leads it again.
                self.elect(other.node.0, other)
            }
            226..228 => self.step(node, Event::LeaderLost(group(node))),
            228..231 => self.deliver_refusal().map(drop),
            231..233 => self.grant_takeover().map(drop),
            233..236 => self.learn_of_proposal(node, other),
            _ => {
                self.time_ms += u64::from(which);
                self.step(node, Event::Tick)
            }
        }
    }

    /// Delivers everything, and lets nodes seal for lagging ones, until nothing is in flight.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..200 {
            let mut moved = false;
            self.time_ms += 10;
            for node in 1..=NODES {
                moved |= self.agree(group(node)) | self.agree_control();
            }
            for node in 1..=NODES {
                while self.deliver_control(node)? {
                    moved = true;
                }
                for other in 1..=NODES {
                    while self.deliver(node, group(other))? {
                        moved = true;
                    }
                }
                self.step(node, Event::Tick)?;
                let now = now(self.time_ms);
                if self.member(node).replica.wake_in(now) == Some(Duration::ZERO) {
                    return Err(format!("node {node} wants to be woken at once, again and again"));
                }
            }
            while self.deliver_refusal()? {
                moved = true;
            }
            moved |= self.grant_takeover()?;
            let proposed = self.proposed.values().any(|proposed| !proposed.is_empty());
            let now = now(self.time_ms);
            let waits = self.members.iter().any(|member| member.replica.wake_in(now).is_some());
            if !moved && !proposed && !waits && self.proposed_control.is_empty() {
                return Ok(());
            }
        }
        Err("the cluster does not come to rest".into())
    }

    /// Stops every node in the middle of a commit: odd ones finish their commits in flight, the second loses its log,
    /// and the fourth is told to stop waiting.
    fn end(&mut self) -> Result<(), String> {
        for node in 1..=NODES {
            if !self.member(node).replica.epochs().has(group(node)) {
                continue;
            }
            let txn = self.transaction(node, 192);
            self.commit(node, &txn)?;
        }
        for node in 1..=NODES {
            self.step(node, if node == 2 { Event::LogFailed } else { Event::Stop })?;
            if node == 4 {
                self.step(node, Event::StopNow)?;
                self.step(node, Event::StopNow)?;
                if !self.member(node).stopped {
                    return Err("node 4 waits although it must not".into());
                }
            }
            let late = self.transaction(node, 192);
            self.commit(node, &late)?;
        }
        // A log that failed, or has no majority, commits nothing.
        (2..=NODES).step_by(2).for_each(|node| drop(self.proposed.remove(&group(node))));
        self.settle()?;
        for member in &self.members {
            if !member.stopped && member.node % 2 == 1 {
                return Err(format!("node {} does not stop", member.node));
            }
            member.all_answered()?;
        }
        Ok(())
    }

    fn compare(&self) -> Result<(), String> {
        let first = &self.members[0];
        for member in &self.members {
            if member.outcomes != first.outcomes {
                let epoch = first.outcomes.iter().find(|(epoch, bytes)| member.outcomes.get(epoch) != Some(bytes));
                return Err(format!("nodes 1 and {} differ at epoch {:?}", member.node, epoch.map(|(epoch, _)| epoch)));
            }
            if member.replica.replicated() != first.replica.replicated() {
                return Err(format!("nodes 1 and {} differ in what the control log adds up to", member.node));
            }
            if member.replica.resolver().digest() != first.replica.resolver().digest() {
                return Err(format!("nodes 1 and {} differ in their digest", member.node));
            }
            member.all_answered()?;
        }
        Ok(())
    }
}

impl Member {
    fn publish(&mut self) {
        self.published = self.replica.last_complete();
    }

    fn all_answered(&self) -> Result<(), String> {
        match self.waiting.keys().find(|waiter| !self.watching.contains(waiter)) {
            Some(waiter) => {
                let epochs = self.replica.epochs();
                let groups =
                    epochs.groups().map(|(group, next)| format!("{} at {next}", group.node)).collect::<Vec<_>>();
                let (last, control) = (epochs.last_complete(), epochs.control().0);
                let state = format!("complete to {last}, control {control}, groups {}", groups.join(", "));
                Err(format!("node {} never answers {waiter}; {state}", self.node))
            }
            None => Ok(()),
        }
    }

    fn note(&mut self, what: &impl std::fmt::Debug) {
        self.trace.extend_from_slice(format!("{what:?}").as_bytes());
    }
}

fn now(ms: u64) -> Now {
    Now { monotonic: Duration::from_millis(ms), unix_us: (START_MS + ms) * 1000 }
}

/// Plays a history; returns the covered events, and all effects that the nodes requested.
///
/// # Errors
/// The violation.
pub fn play(history: &History) -> Result<(Seen, Vec<Vec<u8>>), String> {
    let mut cluster = Cluster::start(history);
    for &choice in &history.choices {
        cluster.play(choice)?;
    }
    (1..=NODES).try_for_each(|node| cluster.elect(node, group(node)))?;
    cluster.settle()?;
    cluster.compare()?;
    cluster.end()?;
    let members = cluster.members[0].replica.epochs().members();
    cluster.seen.joins = members.saturating_sub(usize::from(history.members));
    Ok((cluster.seen, cluster.members.into_iter().map(|member| member.trace).collect()))
}
