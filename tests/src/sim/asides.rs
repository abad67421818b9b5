//! What clients do besides commits: they draw transactions from their node's state, commit read-only transactions, try
//! transactions out, and query the status of ids. All of it is answered at once and checked by the oracle.

use tribunal_replica::{Answer, KnownNow};
use tribunal_types::{EpochInput, EpochOutcome, NamespaceId, Reason, Verdict};

use crate::scenario::{Keying, TxnSpec};
use crate::sim::drawing::{FIRST_STORE, Kind, View};
use crate::sim::generations::NEWER;
use crate::sim::machine::Process;
use crate::sim::planted::Planted;
use crate::sim::world::World;

/// Number of ids per status query.
const STATUSES: usize = 2;
/// Number of all read-only transactions: these are in no epoch.
const READ_ONLY: u64 = u64::MAX >> 8;

/// Returns the stores that clients of a process know.
pub(super) fn stores_of(process: Option<&Process>) -> Vec<Kind> {
    let declared = process.into_iter().flat_map(|process| process.member.replica().replicated().stores().stores());
    let first = Kind { id: FIRST_STORE, is_declared: false, multi_version: false };
    [first].into_iter().chain(declared.map(|store| Kind::of(&store.spec))).collect()
}

/// Returns whether all stores of a transaction are among these.
pub(super) fn are_known(txn: &TxnSpec, stores: &[Kind]) -> bool {
    let rows = txn.writes.iter().map(|(row, _)| row.store).chain(txn.reads.iter().map(|(row, _)| row.store));
    rows.chain(txn.scans.iter().map(|scan| scan.store)).all(|store| stores.iter().any(|kind| kind.id == store))
}

impl World {
    /// Draws a transaction for a client of a node; if that node is down, from the state last decided by any node.
    pub(super) fn draw(&mut self, node: u16, number: u64, writes: bool) -> TxnSpec {
        let process = self.machines[usize::from(node) - 1].process.as_ref();
        let complete = process.map_or(self.judge.oracle.last, |process| process.member.replica().last_complete());
        let view = View { oracle: &self.judge.oracle, stores: stores_of(process), complete };
        view.draw(number, self.time_us, writes, &mut self.random)
    }

    /// Declares the stores that a node knows to the oracle.
    fn declare_to_judge(&mut self, node: u16) {
        let process = self.machines[usize::from(node) - 1].process.as_ref();
        let stores = process.into_iter().flat_map(|process| process.member.replica().replicated().stores().stores());
        stores.for_each(|store| self.judge.oracle.declare(&store.spec));
    }

    /// Has the oracle decide an epoch that a node is the first to decide.
    pub(super) fn judge_epoch(&mut self, node: u16, input: &EpochInput, outcome: &EpochOutcome) -> Result<(), String> {
        self.declare_to_judge(node);
        let (mut txns, mut losers) = (Vec::new(), Vec::new());
        for txn in input.batches.iter().flat_map(|batch| &batch.txns) {
            let at = self.operation_of(txn.id).ok_or_else(|| format!("nobody has asked for {:?}", txn.id))?;
            txns.push(TxnSpec { csn: txn.csn, ..self.operations[at].txn.clone() });
        }
        for abort in input.batches.iter().flat_map(|batch| &batch.early_aborts) {
            if abort.reason != Reason::ClientAbort {
                let at = self.operation_of(abort.id).ok_or_else(|| format!("nobody has asked for {:?}", abort.id))?;
                losers.push(self.operations[at].txn.clone());
            }
        }
        let generation = self.invariant_a_node_decides_what_it_can(node)?;
        self.report.upgrades.1 += u64::from(generation == NEWER);
        let report = &mut self.report.histories;
        self.judge.invariant_epochs_follow_the_rules(input, outcome, txns, &losers, generation, report)
    }

    /// A client of a node commits a read-only transaction. A node that is cut off from the others does not answer.
    pub(super) fn read_only(&mut self, node: u16) -> Result<(), String> {
        let answers = |process: &Process| process.member.takes_commits() && !process.member.replica().waits_for_code();
        if !self.machine(node).process.as_ref().is_some_and(answers) {
            return Ok(());
        }
        let txn = self.draw(node, READ_ONLY, false);
        self.declare_to_judge(node);
        let replica = self.machine(node).process.as_mut().ok_or("it runs")?.member.replica_mut();
        let known = (replica.last_complete(), replica.resolver().last());
        let generation = replica.resolver().generation();
        let judged = replica.judge(&[txn.request(&Keying::default())]).pop().ok_or("a verdict for each")?;
        let is_unjudged = self.planted == Some(Planted::ReadsUnjudged);
        let verdict = if is_unjudged { Verdict::ReadOnly { epoch: known.0 } } else { judged };
        let is_exact = self.judge.invariant_a_verdict_alone_is_true(generation, &txn, &verdict, known)?;
        self.report.histories.judged += u64::from(is_exact);
        let told = &mut self.report.histories.read_only;
        let Verdict::ReadOnly { epoch } = verdict else {
            told.1 += 1;
            return Ok(());
        };
        told.0 += 1;
        // Later requests must be decided in later epochs.
        self.witness.told_of(epoch);
        Ok(())
    }

    /// A client tries its transaction before sending it.
    pub(super) fn try_out(&mut self, node: u16, at: usize) -> Result<(), String> {
        let machine = &mut self.machines[usize::from(node) - 1];
        let now = machine.now(self.time_us);
        let Some(process) = machine.process.as_mut() else { return Ok(()) };
        let replica = process.member.replica_mut();
        if replica.waits_for_code() {
            return Ok(());
        }
        let known = (replica.last_complete(), replica.resolver().last());
        let generation = replica.resolver().generation();
        let txn = self.operations[at].txn.clone();
        match replica.dry_run(&txn.request(&Keying::default()), now) {
            Ok(verdict) => {
                self.declare_to_judge(node);
                let is_exact = self.judge.invariant_a_verdict_alone_is_true(generation, &txn, &verdict, known)?;
                self.report.histories.dry_runs += u64::from(is_exact);
                Ok(())
            }
            Err(Answer::Expired | Answer::InFlight) => Ok(()),
            Err(answer) => Err(format!("node {node} knows {answer:?} of {:?}, which nobody has sent", txn.id)),
        }
    }

    /// Queries a node for the status of some ids: a verdict is final, no matter which node returns it.
    pub(super) fn ask_for_statuses(&mut self, node: u16) -> Result<(), String> {
        for _ in 0..STATUSES {
            let last = (self.operations.len() as u64).saturating_sub(1);
            let at = self.random.between(last.saturating_sub(30), last) as usize;
            let Some(id) = self.operations.get(at).map(|operation| operation.id()) else { return Ok(()) };
            let Some(member) = self.member(node) else { return Ok(()) };
            let KnownNow::At(place) = member.replica().known(NamespaceId(0), id) else { continue };
            let verdict = self.witness.verdict_at(place)?;
            self.witness.invariant_a_verdict_is_final(id, &verdict)?;
            self.report.histories.statuses += 1;
        }
        Ok(())
    }
}
