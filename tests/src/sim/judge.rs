//! The oracle beside the cluster: what any member decides first is decided once more, by the rules as they are written down a
//! second time. So is what a node tells of transactions that only read, and of those that are only tried.

use tribunal_core::resolver::ResolverConfig;
use tribunal_types::{EarlyAbort, Epoch, EpochInput, EpochOutcome, Generation, Reason, StoreSpec, TxnIx, Verdict};

use crate::cluster::EpochPlan;
use crate::model::{compare, execute_in_order};
use crate::oracle::{Oracle, agrees};
use crate::scenario::TxnSpec;
use crate::sim::upgrades::rule_of;

/// What the histories of a run have contained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoriesReport {
    /// Transactions with ranges that committed, and that aborted.
    pub ranges: (u64, u64),
    /// Transactions that committed with a snapshot older than the epoch before theirs.
    pub old_snapshots: u64,
    /// Transactions whose snapshots were below the floor.
    pub below_the_floor: u64,
    /// Transactions that were decided without resolution, because they lose for certain.
    pub certain_losers: u64,
    /// Ids that their clients aborted before anybody knew them.
    pub aborted_ids: u64,
    /// Transactions that only read and held, and that did not.
    pub read_only: (u64, u64),
    /// Those of them that were judged exactly: their node had decided as much as any.
    pub judged: u64,
    /// Transactions that were tried, and what was said was compared.
    pub dry_runs: u64,
    /// Ids whose status was asked of some node, which had a verdict.
    pub statuses: u64,
}

/// The oracle.
pub(super) struct Judge {
    pub oracle: Oracle,
}

impl Judge {
    /// Starts with a cluster that has this store.
    pub fn new(first: &StoreSpec) -> Judge {
        // Histories are too short for any id to be forgotten.
        Judge { oracle: Oracle::new(std::slice::from_ref(first), ResolverConfig::default().id_window_ms, u64::MAX) }
    }

    /// Decides an epoch that nobody has decided before. `txns` are its transactions, in its order; `losers` are those of its
    /// early aborts that clients did not ask for; `generation` is the one in which it is decided.
    ///
    /// # Errors
    /// What the cluster decides otherwise.
    pub fn invariant_epochs_follow_the_rules(
        &mut self,
        input: &EpochInput,
        outcome: &EpochOutcome,
        txns: Vec<TxnSpec>,
        losers: &[TxnSpec],
        generation: Generation,
        report: &mut HistoriesReport,
    ) -> Result<(), String> {
        let wrong = |what: String| format!("epoch {}: {what}", input.epoch);
        let rule = *rule_of(generation);
        self.oracle.generation = generation;
        for loser in losers.iter().filter(|loser| self.oracle.filed(loser.id).is_none()) {
            report.certain_losers += 1;
            if self.oracle.reject(loser, input.epoch).is_none() {
                return Err(wrong(format!("{} was called a certain loser, and would commit", loser.id)));
            }
        }
        let early_aborts: Vec<EarlyAbort> = input.batches.iter().flat_map(|b| b.early_aborts.clone()).collect();
        let fences = input.batches.iter().flat_map(|batch| batch.fences.clone()).collect();
        let is_new = |abort: &&EarlyAbort| abort.reason == Reason::ClientAbort && self.oracle.filed(abort.id).is_none();
        report.aborted_ids += early_aborts.iter().filter(is_new).count() as u64;
        let plan = EpochPlan { txns, early_aborts, fences, ..EpochPlan::default() };
        let index: Vec<TxnIx> = (0..plan.txns.len() as u32).map(TxnIx).collect();
        let (fates, queue, aborts) = self.oracle.decide(input.epoch, outcome.epoch_time_ms, &plan, &index, rule);
        compare(outcome, &index, &fates).map_err(wrong)?;
        if outcome.early_aborts != aborts {
            return Err(wrong(format!("early aborts are at {:?}, not {aborts:?}", outcome.early_aborts)));
        }
        let order = execute_in_order(&mut self.oracle, &plan, outcome, &index, &fates, &queue).map_err(wrong)?;
        if outcome.floor < self.oracle.floor {
            return Err(wrong("the floor sinks".into()));
        }
        self.oracle.floor = outcome.floor;
        for (t, txn) in plan.txns.iter().enumerate() {
            let commits = order.contains(&t);
            report.ranges.0 += u64::from(commits && !txn.scans.is_empty());
            report.ranges.1 += u64::from(!commits && !txn.scans.is_empty());
            let is_old = txn.snapshots.iter().any(|(_, at)| *at < input.epoch.prev());
            report.old_snapshots += u64::from(commits && is_old);
            report.below_the_floor += u64::from(!commits && txn.snapshots.iter().any(|(_, at)| *at < outcome.floor));
        }
        Ok(())
    }

    /// What a node tells of a transaction by itself, by the rules of `generation`, is true of what was decided. `epoch` is the last one that the node knows to
    /// be complete, `resolved` the last one that it has decided. Returns whether the verdict is exactly the rules': nobody
    /// has decided more than the node.
    ///
    /// # Errors
    /// What is wrong with the verdict.
    pub fn invariant_a_verdict_alone_is_true(
        &mut self,
        generation: Generation,
        txn: &TxnSpec,
        verdict: &Verdict,
        (complete, resolved): (Epoch, Epoch),
    ) -> Result<bool, String> {
        if let Verdict::ReadOnly { epoch } = verdict
            && (*epoch != complete || txn.writes.is_empty() && !self.oracle.holds(txn, complete))
        {
            return Err(format!(
                "what {} has read does not hold in epoch {complete}, and {verdict:?}: {txn:?}",
                txn.id
            ));
        }
        if resolved != self.oracle.last {
            return Ok(false);
        }
        self.oracle.generation = generation;
        let expected = self.oracle.reject(txn, complete.next());
        if !agrees(verdict, expected.as_ref()) {
            return Err(format!("{txn:?} alone gives {verdict:?}, and by the rules {expected:?}"));
        }
        Ok(true)
    }
}
