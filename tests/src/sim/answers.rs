//! The answers that clients get, and how they are checked against the witness.

use tribunal_core::planted::{Bug, planted};
use tribunal_member::Input;
use tribunal_replica::{Answer, Commit, DecidedEpoch, Event};
use tribunal_types::{Epoch, VerdictAt};

use crate::scenario::Keying;
use crate::sim::asides::{are_known, stores_of};
use crate::sim::clients::{Attempt, Known, Operation, another};
use crate::sim::happening::Happening;
use crate::sim::world::World;
use crate::stand_ins::Numbered;

/// Time that a client waits for an answer, microseconds.
const TIMEOUT_US: u64 = 1_500_000;

/// Transactions that are tried first, and those that their clients abort before sending them, per mille.
const TRIED_PER_MILLE: u64 = 100;
const ABORTED_PER_MILLE: u64 = 30;
/// Attempts with an unknown outcome after which the client fences or aborts the id, per mille.
const FENCES_PER_MILLE: u64 = 150;
const ABORTS_PER_MILLE: u64 = 80;

impl World {
    /// A client begins its next transaction, or retries its open one.
    pub(super) fn client_acts(&mut self, client: usize, asked: u16) -> Result<(), String> {
        // Operators take departed nodes off the list.
        let listed =
            self.machines.iter().filter(|machine| !machine.left).map(|machine| machine.node).collect::<Vec<_>>();
        let node = another(asked, &listed, &mut self.random);
        let open = self.clients[client].operation.filter(|at| self.operations[*at].is_open());
        if open.is_none() && !self.draining() {
            let number = self.operations.len() as u64 + 1;
            let txn = self.draw(node, number, true);
            self.operations.push(Operation::of(txn));
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
            // No reply comes.
            return Ok(());
        }
        if !are_known(&self.operations[at].txn, &stores_of(machine.process.as_ref())) {
            // The node replies that it does not know the store yet.
            self.asked.remove(&attempt);
            self.think(client, node, 150_000);
            return Ok(());
        }
        if self.operations[at].attempts == 1 && self.random.chance(TRIED_PER_MILLE) {
            self.try_out(node, at)?;
        }
        let start = self.machine(node).starts;
        self.waiters.insert(attempt, (node, start));
        let event = self.asks(client, node, at, attempt);
        self.step(node, Input::Replica(event))
    }

    /// Returns a client's request to a node: in most cases, to commit its transaction.
    fn asks(&mut self, client: usize, node: u16, at: usize, waiter: u64) -> Event<Numbered> {
        let Operation { txn, in_doubt, attempts, .. } = &self.operations[at];
        let (in_doubt, is_first, body) = (*in_doubt, *attempts == 1, txn.body);
        let (namespace, id) = (txn.namespace, txn.id);
        let fences = in_doubt && self.random.chance(FENCES_PER_MILLE);
        let aborts =
            in_doubt && self.random.chance(ABORTS_PER_MILLE) || is_first && self.random.chance(ABORTED_PER_MILLE);
        let (verb, event) = if fences {
            ("fences", Event::Fence(namespace, id, waiter))
        } else if aborts {
            ("aborts", Event::Abort(namespace, id, waiter))
        } else {
            let txn = Box::new(self.operations[at].txn.request(&Keying::default()));
            ("sends", Event::Commits(vec![Commit { txn, waiter }]))
        };
        self.trace.note(self.time_us, format_args!("client {client} {verb} transaction {body} at node {node}"));
        event
    }

    /// A client's attempt has timed out: it retries at another node.
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

    /// Handles an answer other than a verdict.
    fn told(&mut self, node: u16, waiter: u64, answer: Answer) -> Result<(), String> {
        let Some(Attempt { client, .. }) = self.asked.remove(&waiter) else { return Ok(()) };
        let Some(at) = self.clients[client].operation else { return Ok(()) };
        self.trace.note(self.time_us, format_args!("client {client} is told {answer:?} by node {node}"));
        match answer {
            Answer::NotTaken | Answer::Stopping => {
                self.report.not_taken += 1;
                if !self.operations[at].in_doubt && self.random.chance(300) {
                    // The client trusts the answer and moves on: the transaction must never commit.
                    self.operations[at].refuse();
                }
            }
            Answer::InFlight | Answer::Unknown => self.operations[at].in_doubt = true,
            Answer::Expired | Answer::Fenced(_) => {
                self.report.fenced += u64::from(matches!(answer, Answer::Fenced(_)));
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

    /// Begins a fresh read at a random node: it must see everything acknowledged at any node.
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
        self.read_only(node)?;
        self.ask_for_statuses(node)?;
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
        self.witness.invariant_fresh_reads_see_what_was_acknowledged(epoch, asked.acknowledged)?;
        self.read_only(node)
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
        self.invariant_a_node_decides_what_it_can(node)?;
        self.trace.note(self.time_us, format_args!("node {node} decides epoch {}", input.epoch));
        // The members must detect this planted bug by themselves.
        let is_first = !self.witness.has_decided(input.epoch);
        let decided_once = self.witness.invariant_epochs_are_decided_once(node, &input, &outcome, state);
        if !planted(Bug::OneNodeDiverges) {
            decided_once?;
        }
        if is_first {
            let follows = self.judge_epoch(node, &input, &outcome);
            if !planted(Bug::OneNodeDiverges) {
                follows?;
            }
        }
        self.report.fallbacks += u64::from(!outcome.fallbacks.is_empty());
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
}
