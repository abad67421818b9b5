//! Histories of group logs and a control log, and a plain account of their fold: a table with a line per group and
//! epoch. A replica that receives them in any order must arrive at the same result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use tribunal_core::epochs::{Epochs, Folded, Step};
use tribunal_core::proposals::Proposals;
use tribunal_types::{
    Batch, ControlIndex, Csn, EarlyAbort, Epoch, EpochInput, FenceItem, GroupId, NamespaceId, NodeId, Reason, TxnId,
    TxnRequest,
};

use crate::cluster::group;

/// Groups of a history, including non-members.
const GROUPS: usize = 5;

/// A committed entry of a group's log, before it is known whether it counts.
#[derive(Clone, Debug, Default)]
pub struct EntryChoice {
    /// 0 starts at the expected epoch; other values miss it by this many epochs.
    pub off: i64,
    /// Number of epochs that it covers.
    pub length: u64,
    /// The proposer's clock.
    pub clock_ms: u64,
    /// Numbers of transactions, early aborts and fences.
    pub items: [usize; 3],
    /// Control entries that the proposer learned of since its previous entry.
    pub learned: u64,
    /// Whether it ends the group.
    pub closes: bool,
}

/// The events in a cluster, in the order of each log.
#[derive(Clone, Debug)]
pub struct History {
    /// Nodes 1 to this one are initial members.
    pub members: usize,
    /// Each node's log.
    pub logs: Vec<Vec<EntryChoice>>,
    /// The control log: the node that joins and its first epoch; `None` for other entries.
    pub control: Vec<Option<(u16, u64)>>,
}

/// The order in which a replica receives a history.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// The log of the next entry (a group's, or the control log), and whether the replica then polls for complete
    /// epochs.
    pub steps: Vec<(usize, bool)>,
    /// The step after which it restarts.
    pub restart_at: usize,
}

/// Generates small histories of one to five groups.
pub fn history() -> impl Strategy<Value = History> {
    let off = prop_oneof![9 => Just(0_i64), 1 => -2..3_i64];
    let length = prop_oneof![3 => Just(1_u64), 1 => 1..5_u64];
    let items = prop_oneof![2 => Just([0; 3]), 3 => [0..3_usize, 0..2_usize, 0..2_usize]];
    let learned = prop_oneof![4 => Just(0_u64), 1 => 1..3_u64];
    let entry = (off, length, 0..50_u64, items, learned, prop::bool::weighted(0.04)).prop_map(
        |(off, length, clock_ms, items, learned, closes)| EntryChoice { off, length, clock_ms, items, learned, closes },
    );
    let join = prop_oneof![1 => Just(None), 1 => (1..=GROUPS as u16, 0..12_u64).prop_map(Some)];
    (1..=GROUPS, vec(vec(entry, 0..12), GROUPS), vec(join, 0..8)).prop_map(|(members, logs, control)| History {
        members,
        logs,
        control,
    })
}

/// Generates orders of arrival.
pub fn arrival() -> impl Strategy<Value = Arrival> {
    (vec((0..=GROUPS, any::<bool>()), 0..80), 0..40_usize).prop_map(|(steps, restart_at)| Arrival { steps, restart_at })
}

/// The state of one epoch in a group's log.
#[derive(Clone, Copy, Debug)]
struct Line {
    clock_ms: u64,
    control: u64,
    /// Whether the epoch carries the entry's items.
    has_items: bool,
}

/// A group's log: its entries in order, whether each counts, and its line for every epoch.
#[derive(Clone, Debug, Default)]
struct Log {
    entries: Vec<(Arc<Batch>, Folded)>,
    lines: BTreeMap<u64, Line>,
    first: Option<u64>,
    closed_by: Option<u64>,
}

impl Log {
    /// Builds a group's log that starts at epoch `first`; `None` if the group never joins.
    fn of(node: u16, choices: &[EntryChoice], first: Option<u64>) -> Log {
        let mut log = Log { first, ..Log::default() };
        let (mut next, mut control) = (first.unwrap_or(1), 0);
        for (number, choice) in (1..).zip(choices) {
            let start = u64::try_from(next as i64 + choice.off).unwrap_or(0);
            let end = start + choice.length.max(1) - 1;
            control += choice.learned;
            let batch = batch(node, number, (start, end), control, choice);
            let has_items = !batch.is_empty();
            let counts = start == next && log.closed_by.is_none();
            let folded = match first {
                None => Folded::Early,
                Some(_) if counts => Folded::Counted,
                Some(_) => Folded::Void,
            };
            log.entries.push((Arc::new(batch), folded));
            if folded == Folded::Counted {
                for epoch in start..=end {
                    let has_items = has_items && epoch == end;
                    log.lines.insert(epoch, Line { clock_ms: choice.clock_ms, control, has_items });
                }
                next = end + 1;
                log.closed_by = choice.closes.then_some(end);
            }
        }
        log
    }

    fn is_member(&self, epoch: u64) -> bool {
        self.first.is_some_and(|first| first <= epoch) && self.closed_by.is_none_or(|last| epoch <= last)
    }
}

fn batch(node: u16, number: u64, (first, last): (u64, u64), control: u64, choice: &EntryChoice) -> Batch {
    let namespace = NamespaceId(0);
    let abort = EarlyAbort {
        id: TxnId::default(),
        body_hash: None,
        namespace,
        reason: Reason::ClientAbort,
        conflicts: Vec::new(),
    };
    let [txns, early_aborts, fences] = choice.items;
    let mut batch = Batch {
        group: group(node),
        first: Epoch(first),
        last: Epoch(last),
        control: ControlIndex(control),
        clock_ms: choice.clock_ms,
        stamp_us: if txns == 0 { 10 * number } else { 0 },
        closes: choice.closes,
        early_aborts: vec![abort; early_aborts],
        fences: vec![FenceItem { id: TxnId::default(), namespace }; fences],
        ..Batch::default()
    };
    (0..txns).for_each(|n| batch.push(&TxnRequest::default(), Csn::new(10 * number + n as u64, NodeId(node))));
    batch
}

/// An epoch with items: number, time, K, and the nodes that contribute.
type Told = (u64, u64, u64, Vec<u16>);

/// The fold of a history.
struct Account {
    logs: Vec<Log>,
    told: Vec<Told>,
    last: u64,
    time_ms: u64,
    control: u64,
}

/// Computes the fold epoch by epoch.
fn account(history: &History) -> Account {
    let log = |node: usize, first| Log::of(node as u16 + 1, &history.logs[node], first);
    let mut logs: Vec<Log> = (0..GROUPS).map(|node| log(node, (node < history.members).then_some(1))).collect();
    let (mut told, mut time_ms, mut control, mut applied) = (Vec::new(), 0, 0, 0);
    let mut epoch = 1;
    loop {
        if control > history.control.len() as u64 {
            break; // the rest of the control log is missing
        }
        for &(node, first) in history.control[applied..control as usize].iter().flatten() {
            let node = usize::from(node) - 1;
            if logs[node].first.is_none() {
                logs[node] = log(node, Some(first.max(epoch)));
            }
        }
        applied = control as usize;
        let members: Vec<(u16, &Log)> = (1..).zip(&logs).filter(|(_, log)| log.is_member(epoch)).collect();
        let lines = members.iter().map(|(node, log)| Some((*node, *log.lines.get(&epoch)?)));
        let Some(lines) = lines.collect::<Option<Vec<(u16, Line)>>>().filter(|lines| !lines.is_empty()) else { break };
        // 0 means no clock.
        let mut clocks: Vec<u64> = lines.iter().map(|(_, line)| line.clock_ms).filter(|clock| *clock > 0).collect();
        clocks.sort_unstable();
        time_ms = time_ms.max(clocks.get(clocks.len().saturating_sub(1) / 2).copied().unwrap_or_default());
        let nodes: Vec<u16> = lines.iter().filter(|(_, line)| line.has_items).map(|(node, _)| *node).collect();
        if !nodes.is_empty() {
            told.push((epoch, time_ms, control, nodes));
        }
        control = lines.iter().map(|(_, line)| line.control).fold(control, u64::max);
        epoch += 1;
    }
    Account { logs, told, last: epoch - 1, time_ms, control }
}

/// Events that a check has covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Epochs with items.
    pub epochs: usize,
    /// Epochs among these to which several groups contributed.
    pub shared: usize,
    /// Groups that joined.
    pub joins: usize,
    /// Groups that ended.
    pub closes: usize,
    /// Requests for control entries.
    pub barriers: usize,
    /// Polls that had to wait for a control entry.
    pub waits: usize,
    /// Proposals that became void.
    pub void: usize,
}

/// A replica that folds a history, and the waiters of all nodes.
struct Replica<'a> {
    history: &'a History,
    account: &'a Account,
    epochs: Epochs,
    /// Number of folded entries, by group.
    read: Vec<usize>,
    /// Numbers of control entries received and applied.
    received: u64,
    applied: u64,
    waiting: Vec<Proposals<Arc<Batch>>>,
    /// Proposals whose waiters got the reply that they are void.
    void: BTreeSet<(GroupId, Csn)>,
    told: Vec<Told>,
    seen: Seen,
}

impl<'a> Replica<'a> {
    fn new(history: &'a History, account: &'a Account) -> Replica<'a> {
        let members: Vec<GroupId> = (1..=history.members as u16).map(group).collect();
        let proposals = |(node, log): (u16, &Log)| {
            let mut proposals = Proposals::new(group(node));
            log.entries.iter().for_each(|(batch, _)| proposals.add(batch, Arc::clone(batch)));
            proposals
        };
        Replica {
            history,
            account,
            epochs: Epochs::new(&members, Epoch(1), 0),
            read: vec![0; GROUPS],
            received: 0,
            applied: 0,
            waiting: (1..).zip(&account.logs).map(proposals).collect(),
            void: BTreeSet::new(),
            told: Vec::new(),
            seen: Seen::default(),
        }
    }

    /// Receives the next entry of a group or, for a higher index, of the control log. Returns whether anything changed.
    fn receive(&mut self, from: usize) -> Result<bool, String> {
        let Some(log) = self.account.logs.get(from) else {
            let more = self.received < self.history.control.len() as u64;
            self.received += u64::from(more);
            return Ok(more);
        };
        let Some((batch, expected)) = log.entries.get(self.read[from]) else { return Ok(false) };
        let folded = self.epochs.entry(Arc::clone(batch));
        if folded == Folded::Early {
            // It may be received again once its group has joined.
            return Ok(false);
        }
        if folded != *expected {
            return Err(format!("entry {} of group {from}: {folded:?}, not {expected:?}", self.read[from]));
        }
        self.read[from] += 1;
        if folded == Folded::Void && self.void.insert((batch.group, batch.proposal())) {
            let waiting = self.waiting[from].take(batch);
            if !waiting.is_some_and(|proposed| Arc::ptr_eq(&proposed, batch)) {
                return Err(format!("nobody waits for the void proposal {:?}", batch.proposal()));
            }
            self.seen.void += 1;
        }
        Ok(true)
    }

    /// Applies and resolves everything that is complete. Returns whether anything was.
    fn advance(&mut self) -> Result<bool, String> {
        let mut advanced = false;
        while let Some(step) = self.epochs.poll() {
            match step {
                Step::Control { upto, .. } if upto.0 > self.received => {
                    self.seen.waits += 1;
                    return Ok(advanced);
                }
                Step::Control { upto, .. } => {
                    for &(node, first) in self.history.control[self.applied as usize..upto.0 as usize].iter().flatten()
                    {
                        self.seen.joins += usize::from(self.epochs.join(group(node), Epoch(first)).is_some());
                    }
                    self.applied = upto.0;
                    self.epochs.applied(upto);
                    self.seen.barriers += 1;
                }
                Step::Epoch { input, control } => {
                    if self.applied != control.0 {
                        let applied = self.applied;
                        return Err(format!("epoch {} at K = {}, but {applied} is applied", input.epoch, control.0));
                    }
                    self.answer(&input)?;
                    let nodes: Vec<u16> = input.batches.iter().map(|batch| batch.group.node.0).collect();
                    self.seen.epochs += 1;
                    self.seen.shared += usize::from(nodes.len() > 1);
                    self.seen.closes += input.batches.iter().filter(|batch| batch.closes).count();
                    self.told.push((input.epoch.0, input.epoch_time_ms, control.0, nodes));
                }
            }
            advanced = true;
        }
        Ok(advanced)
    }

    /// Checks that every waiter gets the replies to its own items.
    fn answer(&mut self, input: &EpochInput) -> Result<(), String> {
        let items = |count: fn(&Batch) -> usize| -> Vec<(GroupId, usize)> {
            input.batches.iter().flat_map(|batch| (0..count(batch)).map(|ix| (batch.group, ix))).collect()
        };
        let kinds: [fn(&Batch) -> usize; 3] = [|b| b.txns.len(), |b| b.early_aborts.len(), |b| b.fences.len()];
        for batch in &input.batches {
            let waiting = &mut self.waiting[usize::from(batch.group.node.0) - 1];
            let Some((found, places, proposed)) = waiting.take_decided(input) else {
                return Err(format!("nobody waits for {:?} in epoch {}", batch.group, input.epoch));
            };
            if !Arc::ptr_eq(found, batch) || !Arc::ptr_eq(&proposed, batch) {
                return Err(format!("the waiters of another proposal are answered in epoch {}", input.epoch));
            }
            for (count, range) in kinds.into_iter().zip([places.txns, places.early_aborts, places.fences]) {
                let own: Vec<(GroupId, usize)> = (0..count(batch)).map(|ix| (batch.group, ix)).collect();
                if items(count).get(range.clone()) != Some(&own) {
                    return Err(format!("epoch {}: {own:?} are not at {range:?}", input.epoch));
                }
            }
        }
        Ok(())
    }

    /// Restarts the replica: a restart restores the position and the applied entries, and reads the logs again from
    /// there.
    fn restart(&mut self) {
        let position = self.epochs.position();
        self.epochs = Epochs::resume(&position, ControlIndex(self.applied));
        for (group, cursor) in position.groups {
            let log = usize::from(group.node.0) - 1;
            let entries = &self.account.logs[log].entries;
            let needed = entries.iter().position(|(b, folded)| *folded == Folded::Counted && b.first == cursor);
            self.read[log] = needed.unwrap_or(self.read[log]).min(self.read[log]);
        }
    }

    /// Compares the replica with the account once everything has arrived.
    fn compare(&self) -> Result<(), String> {
        let Account { told, last, time_ms, control, logs } = self.account;
        if self.told != *told {
            return Err(format!("told {:?}\nnot  {told:?}", self.told));
        }
        let end = (self.epochs.last_complete().0, self.epochs.epoch_time_ms(), self.epochs.control().0);
        if end != (*last, *time_ms, *control) {
            return Err(format!("ends at {end:?}, not {:?}", (last, time_ms, control)));
        }
        let void = logs.iter().flat_map(|log| &log.entries).filter(|(_, folded)| *folded == Folded::Void);
        let void: BTreeSet<_> = void.map(|(batch, _)| (batch.group, batch.proposal())).collect();
        if self.void != void {
            return Err(format!("void are {:?}, not {void:?}", self.void));
        }
        Ok(())
    }
}

/// Folds a history on a replica in a given order of arrival.
///
/// # Errors
/// The difference, as text.
pub fn check(history: &History, arrival: &Arrival) -> Result<Seen, String> {
    let account = account(history);
    let mut replica = Replica::new(history, &account);
    for (step, &(from, look)) in arrival.steps.iter().enumerate() {
        replica.receive(from)?;
        if look {
            replica.advance()?;
        }
        if step == arrival.restart_at {
            replica.restart();
        }
    }
    // Receive the remaining entries, and those to read again after the restart.
    loop {
        let mut moved = replica.advance()?;
        for from in 0..=GROUPS {
            moved |= replica.receive(from)?;
        }
        if !moved {
            break;
        }
    }
    replica.compare()?;
    Ok(replica.seen)
}
