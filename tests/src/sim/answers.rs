//! What clients are told, and what the witness makes of it.

use std::collections::BTreeMap;

use tribunal_core::planted::{Bug, planted};
use tribunal_member::Input;
use tribunal_replica::{Answer, Commit, DecidedEpoch, Event};
use tribunal_types::{Decision, Epoch, EpochInput, EpochOutcome, StoreId, VerdictAt};

use crate::scenario::{Action, Keying};
use crate::sim::clients::{Attempt, Known, Operation, another};
use crate::sim::machine::Process;
use crate::sim::world::{Happening, World};
use crate::stand_ins::Numbered;

/// How long a client waits for an answer, microseconds.
const TIMEOUT_US: u64 = 1_500_000;

/// The store that the cluster begins with.
const FIRST_STORE: StoreId = StoreId(1);

/// Returns the stores of whose rows clients of a process may write some.
fn stores_of(process: Option<&Process>) -> Vec<StoreId> {
    let declared = process.into_iter().flat_map(|process| process.member.replica().replicated().stores().stores());
    [FIRST_STORE].into_iter().chain(declared.map(|store| store.spec.id)).collect()
}

impl World {
    /// A client begins its next transaction, or asks again for the one that it has.
    pub(super) fn client_acts(&mut self, client: usize, asked: u16) -> Result<(), String> {
        // Operators take nodes that have left off the list.
        let listed =
            self.machines.iter().filter(|machine| !machine.left).map(|machine| machine.node).collect::<Vec<_>>();
        let node = another(asked, &listed, &mut self.random);
        let open = self.clients[client].operation.filter(|at| self.operations[*at].is_open());
        if open.is_none() && !self.draining() {
            let none = BTreeMap::new();
            let process = self.machines[usize::from(node) - 1].process.as_ref();
            let versions = process.map_or(&none, |process| &process.versions);
            let number = self.operations.len() as u64 + 1;
            let stores = stores_of(process);
            let operation = Operation::draw(number, self.time_us, &stores, versions, &mut self.random);
            self.operations.push(operation);
            self.clients[client].operation = Some(self.operations.len() - 1);
        }
        let Some(at) = self.clients[client].operation.filter(|at| self.operations[*at].is_open()) else {
            return Ok(());
        };
        self.operations[at].attempts += 1;
        self.attempts += 1;
        let attempt = self.attempts;
        self.clients[client].attempt = attempt;
        let acknowledged = self.witness.acknowledged();
        self.asked.insert(attempt, Attempt { client, node, since_us: self.time_us, acknowledged });
        self.later(TIMEOUT_US, Happening::ClientGivesUp { client, attempt });
        let machine = &self.machines[usize::from(node) - 1];
        if machine.process.is_none() || machine.paused_until > self.time_us {
            // Nobody answers.
            return Ok(());
        }
        let stores = stores_of(machine.process.as_ref());
        if self.operations[at].txn.writes.iter().any(|(row, _)| !stores.contains(&row.store)) {
            // The node answers that it does not know the store yet.
            self.asked.remove(&attempt);
            self.think(client, node, 150_000);
            return Ok(());
        }
        let fences = self.operations[at].in_doubt && self.random.chance(150);
        let txn = self.operations[at].txn.clone();
        let start = self.machine(node).starts;
        self.waiters.insert(attempt, (node, start));
        if fences {
            self.trace
                .note(self.time_us, format_args!("client {client} fences transaction {} at node {node}", txn.body));
            return self.step(node, Input::Replica(Event::Fence(txn.namespace, txn.id, attempt)));
        }
        self.trace.note(self.time_us, format_args!("client {client} sends transaction {} to node {node}", txn.body));
        let txn = Box::new(txn.request(&Keying::default()));
        self.step(node, Input::Replica(Event::Commits(vec![Commit { txn, waiter: attempt }])))
    }

    /// A client has waited for long enough: it asks another node.
    pub(super) fn client_gives_up(&mut self, client: usize, attempt: u64) -> Result<(), String> {
        if self.clients[client].attempt != attempt {
            return Ok(());
        }
        let Some(Attempt { node, .. }) = self.asked.remove(&attempt) else { return Ok(()) };
        let runs = |&(node, start): &(u16, u64)| self.machines[usize::from(node) - 1].starts == start;
        self.report.unanswered += u64::from(self.waiters.get(&attempt).is_some_and(runs));
        if let Some(at) = self.clients[client].operation {
            self.operations[at].in_doubt = true;
            self.late.insert(attempt, self.operations[at].id());
        }
        self.client_acts(client, node)
    }

    pub(super) fn answered(&mut self, node: u16, waiter: u64, answer: Answer) -> Result<(), String> {
        self.invariant_an_attempt_is_answered_once(node, waiter)?;
        match answer {
            Answer::Stored(at) => self.told_verdict(node, waiter, at, false),
            answer => self.told(node, waiter, answer),
        }
    }

    fn told_verdict(&mut self, node: u16, waiter: u64, at: VerdictAt, is_new: bool) -> Result<(), String> {
        let verdict = self.witness.verdict_at(at)?;
        if let Some(id) = self.late.remove(&waiter) {
            return self.witness.invariant_a_verdict_is_final(id, &verdict);
        }
        let Some(Attempt { client, since_us, acknowledged, .. }) = self.asked.remove(&waiter) else { return Ok(()) };
        if is_new {
            self.invariant_no_answer_from_a_minority(node, since_us)?;
            self.witness.invariant_epochs_follow_real_time(at.epoch, acknowledged)?;
        }
        let Some(at) = self.clients[client].operation else { return Ok(()) };
        let id = self.operations[at].id();
        self.witness.invariant_a_verdict_is_final(id, &verdict)?;
        self.trace.note(self.time_us, format_args!("client {client} is told {verdict:?} by node {node}"));
        self.report.decided += 1;
        self.report.latency_us_max = self.report.latency_us_max.max(self.time_us - since_us);
        self.operations[at].known = Known::Verdict(verdict);
        self.think(client, node, 30_000);
        Ok(())
    }

    /// An answer that is no verdict.
    fn told(&mut self, node: u16, waiter: u64, answer: Answer) -> Result<(), String> {
        let Some(Attempt { client, .. }) = self.asked.remove(&waiter) else { return Ok(()) };
        let Some(at) = self.clients[client].operation else { return Ok(()) };
        self.trace.note(self.time_us, format_args!("client {client} is told {answer:?} by node {node}"));
        match answer {
            Answer::NotTaken | Answer::Stopping => {
                self.report.not_taken += 1;
                if !self.operations[at].in_doubt && self.random.chance(300) {
                    // It believes it, and does something else: the transaction must never commit.
                    self.operations[at].refuse();
                }
            }
            Answer::InFlight | Answer::Unknown => self.operations[at].in_doubt = true,
            Answer::Expired | Answer::Fenced => {
                self.report.fenced += u64::from(answer == Answer::Fenced);
                self.operations[at].known = Known::Never;
            }
            Answer::BodyMismatch => {
                return Err(format!("node {node} knows {:?} with another body", self.operations[at].id()));
            }
            Answer::Decided { .. } | Answer::Stored(_) => return Err("a verdict without its epoch".into()),
        }
        self.think(client, node, 150_000);
        Ok(())
    }

    /// Somebody reads at a node what was acknowledged at any.
    pub(super) fn read_fresh(&mut self) -> Result<(), String> {
        if self.draining() {
            return Ok(());
        }
        let wait_us = self.random.between(10_000, 100_000);
        self.later(wait_us, Happening::ReadFresh);
        let node = self.random.between(1, self.machines.len() as u64) as u16;
        if self.machine(node).process.is_none() || self.machine(node).paused_until > self.time_us {
            return Ok(());
        }
        self.attempts += 1;
        let read = self.attempts;
        let acknowledged = self.witness.acknowledged();
        self.reads.insert(read, Attempt { client: 0, node, since_us: self.time_us, acknowledged });
        if self.has_closed(node) {
            self.nodes.late_reads.insert(read);
        }
        self.step(node, Input::Fresh(read))
    }

    pub(super) fn fresh_read(&mut self, node: u16, read: u64, epoch: Option<Epoch>) -> Result<(), String> {
        let asked = self.reads.remove(&read).ok_or_else(|| format!("node {node} answers read {read} again"))?;
        let Some(epoch) = epoch else { return Ok(()) };
        self.report.fresh_reads += 1;
        self.invariant_a_removed_node_answers_no_fresh_reads(node, read)?;
        self.invariant_no_answer_from_a_minority(node, asked.since_us)?;
        self.witness.invariant_fresh_reads_see_what_was_acknowledged(epoch, asked.acknowledged)
    }

    fn think(&mut self, client: usize, asked: u16, at_most_us: u64) {
        self.clients[client].attempt = 0;
        let wait_us = self.random.between(1_000, at_most_us);
        self.later(wait_us, Happening::ClientActs { client, asked });
    }

    pub(super) fn decided(&mut self, node: u16, decided: DecidedEpoch<Numbered>) -> Result<(), String> {
        let DecidedEpoch { input, outcome, own, .. } = decided;
        let replica = self.member(node).ok_or("it runs")?.replica();
        let state = (replica.resolver().digest(), replica.replicated().index());
        self.trace.note(self.time_us, format_args!("node {node} decides epoch {}", input.epoch));
        // The members must find this one out by themselves.
        let decided_once = self.witness.invariant_epochs_are_decided_once(node, &input, &outcome, state);
        if !planted(Bug::OneNodeDiverges) {
            decided_once?;
        }
        self.report.fallbacks += u64::from(!outcome.fallbacks.is_empty());
        self.learn(node, &input, &outcome);
        let Some(own) = own else { return Ok(()) };
        let mut told = Vec::new();
        own.items.answer(&outcome, own.places, |waiter, answer, _| told.push((waiter, answer)));
        for (waiter, answer) in told {
            match answer {
                Answer::Decided { item, .. } => {
                    self.invariant_an_attempt_is_answered_once(node, waiter)?;
                    self.told_verdict(node, waiter, VerdictAt { epoch: input.epoch, item }, true)?;
                }
                answer => self.answered(node, waiter, answer)?,
            }
        }
        Ok(())
    }

    /// Remembers what an epoch wrote, as an engine with a cache would.
    fn learn(&mut self, node: u16, input: &EpochInput, outcome: &EpochOutcome) {
        let ids: Vec<_> = input.batches.iter().flat_map(|batch| batch.txns.iter().map(|txn| txn.id)).collect();
        for &ix in &outcome.order {
            let Decision::Committed { version } = outcome.decisions[ix.0 as usize] else { continue };
            let Some(at) = self.operation_of(ids[ix.0 as usize]) else { continue };
            let writes = self.operations[at].txn.writes.clone();
            let Some(process) = &mut self.machine(node).process else { return };
            for (row, action) in writes {
                match action {
                    Action::Delete => process.versions.remove(&row),
                    _ => process.versions.insert(row, version),
                };
            }
        }
    }
}
