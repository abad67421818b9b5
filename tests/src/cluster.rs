//! A cluster of the bare core: entries of 1..N groups, folded into epochs and resolved in memory. No log, no threads,
//! and only native plugins. It records each epoch, so that it can be replayed.

use std::sync::Arc;

use tribunal_core::epochs::{Epochs, Folded, Step};
use tribunal_core::executor::{Inline, ShardExecutor};
use tribunal_core::policy::Policies;
use tribunal_core::resolver::{Resolver, ResolverConfig};
use tribunal_core::row_key::RowKeyer;
use tribunal_core::shard::Shard;
use tribunal_types::{
    Batch, ControlIndex, EarlyAbort, Epoch, EpochInput, EpochOutcome, FenceItem, GroupId, ImportedVersion, Incarnation,
    Lsn, NamespaceId, NodeId, ReadLimit, RecordBatch, StoreId, StoreSpec, TxnIx, Version,
};

use crate::scenario::{Keying, ROW_SECRET, Row, TxnSpec};

/// The members' contributions to one epoch. Items other than transactions come from node 1.
#[derive(Clone, Debug, Default)]
pub struct EpochPlan {
    /// Clock of every member, Unix milliseconds.
    pub clock_ms: u64,
    /// Epochs sealed empty before this one, by the same entries.
    pub idle_before: u64,
    /// Transactions.
    pub txns: Vec<TxnSpec>,
    /// Aborts decided without resolution.
    pub early_aborts: Vec<EarlyAbort>,
    /// Fences.
    pub fences: Vec<FenceItem>,
    /// Imported versions, each with a flag whether its row is an integer.
    pub imports: Vec<(Row, Version, bool)>,
}

/// A resolved epoch.
#[derive(Clone, Debug)]
pub struct Played {
    /// Its input.
    pub input: EpochInput,
    /// Its outcome.
    pub outcome: EpochOutcome,
    /// Index in the epoch of each planned transaction.
    pub index: Vec<TxnIx>,
}

/// Runs the last shard first: the order of shards must not matter.
#[derive(Clone, Copy, Debug)]
pub struct Backwards;

impl ShardExecutor for Backwards {
    fn for_each(&self, shards: &mut [Shard], job: &(dyn Fn(&mut Shard) + Sync)) {
        shards.iter_mut().rev().for_each(job);
    }
}

/// Members, their folded logs and one replica's resolver.
pub struct Cluster {
    nodes: u16,
    keying: Keying,
    epochs: Epochs,
    /// The replica.
    pub resolver: Resolver,
    /// All epochs that carried an item.
    pub journal: Vec<Played>,
}

/// Returns the group of a node.
#[must_use]
pub fn group(node: u16) -> GroupId {
    GroupId { node: NodeId(node), incarnation: Incarnation(0) }
}

impl Cluster {
    /// Starts `nodes` members on an empty database with these stores.
    #[must_use]
    pub fn new(nodes: u16, keying: Keying, config: ResolverConfig, stores: &[StoreSpec]) -> Cluster {
        let members: Vec<GroupId> = (1..=nodes).map(group).collect();
        let mut resolver = Resolver::new(ResolverConfig { keyer: RowKeyer::new(ROW_SECRET), ..config });
        for spec in stores {
            resolver.declare_store(spec.clone());
        }
        Cluster { nodes, keying, epochs: Epochs::new(&members, Epoch(1), 0), resolver, journal: Vec::new() }
    }

    /// Returns the first epoch that the next plan will seal.
    #[must_use]
    pub fn next(&self) -> Epoch {
        self.epochs.next_of(group(1))
    }

    /// Returns the last epoch that every member has sealed.
    #[must_use]
    pub fn complete(&self) -> Epoch {
        self.epochs.last_complete()
    }

    /// Seals and resolves one epoch. Returns `None` if the plan has no items.
    ///
    /// # Panics
    /// If a member's entry does not count, or the epoch is not complete with them.
    pub fn play(&mut self, plan: &EpochPlan, policies: &Policies<'_>) -> Option<&Played> {
        self.play_on(plan, policies, &Inline)
    }

    /// Does the same as [`Cluster::play`], with the shards run in an order of the caller's choice.
    ///
    /// # Panics
    /// As [`Cluster::play`].
    pub fn play_on(&mut self, plan: &EpochPlan, policies: &Policies<'_>, exec: &dyn ShardExecutor) -> Option<&Played> {
        let input = self.fold(plan)?;
        let outcome = self.resolver.resolve(&input, policies, exec);
        let index = indices(&input, plan);
        self.journal.push(Played { input, outcome, index });
        self.journal.last()
    }

    /// Folds one entry of each member and returns the resulting epoch; `None` if it has no items.
    ///
    /// # Panics
    /// As [`Cluster::play`].
    pub fn fold(&mut self, plan: &EpochPlan) -> Option<EpochInput> {
        let first = self.next();
        let last = Epoch(first.0 + plan.idle_before);
        for node in 1..=self.nodes {
            let batch = self.batch(plan, node, first, last);
            assert_eq!(self.epochs.entry(Arc::new(batch)), Folded::Counted);
        }
        let input = self.epochs.poll().map(|step| match step {
            Step::Epoch { input, .. } => input,
            Step::Control { .. } => unreachable!("no plan has a control entry"),
        });
        assert_eq!(self.epochs.last_complete(), last);
        input
    }

    fn batch(&self, plan: &EpochPlan, node: u16, first: Epoch, last: Epoch) -> Batch {
        let mut batch = Batch {
            group: group(node),
            first,
            last,
            control: ControlIndex(0),
            clock_ms: plan.clock_ms,
            ..Batch::default()
        };
        let mut own: Vec<&TxnSpec> = plan.txns.iter().filter(|txn| (txn.node - 1) % self.nodes + 1 == node).collect();
        own.sort_by_key(|txn| txn.csn);
        for txn in own {
            batch.push(&txn.request(&self.keying), txn.csn);
        }
        if node == 1 {
            batch.early_aborts = plan.early_aborts.clone();
            batch.fences = plan.fences.clone();
            let imported = |(row, version, integer): &(Row, Version, bool)| ImportedVersion {
                row: self.keying.row(NamespaceId(0), row),
                store: row.store,
                version: *version,
                integer: *integer,
            };
            batch.imports = plan.imports.iter().map(imported).collect();
        }
        batch
    }

    /// Returns the whole log of a store, reconstructed from the journal.
    #[must_use]
    pub fn log_of(&self, store: StoreId) -> RecordBatch {
        let mut log = RecordBatch::default();
        for played in &self.journal {
            let (input, outcome) = (&played.input, &played.outcome);
            tribunal_core::records::records_of(input, outcome, store, Lsn(0), &mut log, ReadLimit::NONE);
        }
        log
    }
}

/// Returns the index in the epoch of each planned transaction, found by its stamp.
///
/// # Panics
/// If a transaction is missing.
#[must_use]
pub fn indices(input: &EpochInput, plan: &EpochPlan) -> Vec<TxnIx> {
    let stamps: Vec<_> = input.batches.iter().flat_map(|batch| batch.txns.iter().map(|txn| txn.csn)).collect();
    let find = |txn: &TxnSpec| stamps.iter().position(|&csn| csn == txn.csn).expect("every transaction is sealed");
    plan.txns.iter().map(|txn| TxnIx(find(txn) as u32)).collect()
}

/// Declares a tracked store with the name `name`.
#[must_use]
pub fn tracked(id: u32, name: &str) -> StoreSpec {
    StoreSpec { id: StoreId(id), name: name.to_owned(), transactional: true, ..StoreSpec::default() }
}
