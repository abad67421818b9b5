//! The oracle next to the cluster: it decides each epoch a second time, by an independent implementation of the rules,
//! when the first member decides it. It also checks the verdicts of read-only transactions and of dry runs.

use tribunal_core::resolver::ResolverConfig;
use tribunal_types::{EarlyAbort, Epoch, EpochInput, EpochOutcome, Generation, Reason, StoreSpec, TxnIx, Verdict};

use crate::cluster::EpochPlan;
use crate::model::{compare, execute_in_order};
use crate::oracle::{Oracle, agrees};
use crate::scenario::TxnSpec;
use crate::sim::generations::rule_of;

/// Counts of the histories of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoriesReport {
    /// Committed, and aborted transactions with ranges.
    pub ranges: (u64, u64),
    /// Committed transactions with a snapshot older than the epoch before theirs.
    pub old_snapshots: u64,
    /// Transactions with snapshots below the floor.
    pub below_the_floor: u64,
    /// Transactions decided without resolution because they are certain to lose.
    pub certain_losers: u64,
    /// Ids that their clients aborted before any node knew them.
    pub aborted_ids: u64,
    /// Read-only transactions whose reads held, and those whose reads did not.
    pub read_only: (u64, u64),
    /// Read-only transactions that were checked exactly: no node had decided more than theirs.
    pub judged: u64,
    /// Dry runs whose verdicts were compared exactly.
    pub dry_runs: u64,
    /// Status queries that returned a verdict.
    pub statuses: u64,
}

/// The oracle, and its checks.
pub(super) struct Judge {
    pub oracle: Oracle,
    /// Generation of the last epoch.
    generation: Generation,
    /// The generation before that, and the first epoch that was no longer decided in it.
    before: (Generation, Epoch),
}

/// Epochs within which a transaction that a node considers certain to lose reaches its epoch.
const LOSERS_TRAVEL_EPOCHS: u64 = 16;

impl Judge {
    /// Creates the oracle of a cluster that has this store.
    pub fn new(first: &StoreSpec) -> Judge {
        // Histories are too short for any id to be forgotten.
        let oracle = Oracle::new(std::slice::from_ref(first), ResolverConfig::default().id_window_ms, u64::MAX);
        Judge { oracle, generation: Generation::FIRST, before: (Generation::FIRST, Epoch(0)) }
    }

    /// An epoch is decided by the rules. `txns` are its transactions, in its order; `losers` are those of its early
    /// aborts that clients did not request; `generation` is the one in which it is decided.
    ///
    /// # Errors
    /// The difference between the cluster's decision and the oracle's.
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
        if self.generation != generation {
            self.before = (std::mem::replace(&mut self.generation, generation), input.epoch);
        }
        self.oracle.generation = generation;
        for loser in losers {
            if self.oracle.filed(loser.id).is_some() {
                continue;
            }
            report.certain_losers += 1;
            let mut rejected = self.oracle.reject(loser, input.epoch).is_some();
            if !rejected && input.epoch.0 < self.before.1.0 + LOSERS_TRAVEL_EPOCHS {
                self.oracle.generation = self.before.0;
                rejected = self.oracle.reject(loser, input.epoch).is_some();
                self.oracle.generation = generation;
            }
            if !rejected {
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

    /// A node's own verdict on a transaction, by the rules of `generation`, is consistent with the decided epochs.
    /// `complete` is the last epoch that the node knows to be complete, `resolved` the last one that it has decided.
    /// Returns whether the verdict was compared exactly with the rules: no node has decided more than this one.
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
