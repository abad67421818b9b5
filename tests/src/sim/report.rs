//! What a run has seen: proof that it was worth playing.

use std::collections::BTreeMap;

use crate::sim::faults::Fault;
use crate::sim::judge::HistoriesReport;
use crate::sim::majority_loss::MajorityLossReport;
use crate::sim::storages::StoragesReport;

/// What a run has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Machines.
    pub machines: u16,
    /// Transactions whose clients were told a verdict.
    pub decided: u64,
    /// Answers that a transaction was not taken.
    pub not_taken: u64,
    /// Fresh reads that were answered.
    pub fresh_reads: u64,
    /// Transactions that were fenced.
    pub fenced: u64,
    /// Transactions whose clients gave up.
    pub given_up: u64,
    /// Changes of configuration that were applied and answered.
    pub changes: u64,
    /// Epochs that a process decided again after a start, and found in its log with the same outcome.
    pub outcomes_again: u64,
    /// Nodes that were named to push to a store, counted on every node.
    pub assigned: u64,
    /// Changes that were agreed on again, after they had been sent twice.
    pub repeats: u64,
    /// Epochs with items, and of these, epochs to which several nodes contributed.
    pub epochs: (usize, usize),
    /// Processes that were stopped as planned, and of these, those that had to be told not to wait.
    pub stops: (u64, u64),
    /// Images that were written, and starts from one.
    pub images: (u64, u64),
    /// Images that a machine copied from another one, because it lacked entries.
    pub copied_images: u64,
    /// Times that a group's entries were compacted.
    pub compactions: u64,
    /// Segments that were truncated, bytes.
    pub truncated_bytes: u64,
    /// Entries that were sent to peers which could not reach a leader.
    pub peer_entries: u64,
    /// Entries of those that were written before the own log had them.
    pub copies: u64,
    /// Terms that began while two machines could not reach each other, but a third.
    pub bridged_terms: u64,
    /// Inputs after which a group's entries waited in the log, because many were not decided.
    pub held_back: u64,
    /// Attempts that had no answer in time, although the process that was asked still runs.
    pub unanswered: u64,
    /// Times that each fault happened.
    pub faults: BTreeMap<Fault, u64>,
    /// Longest time from an attempt to its verdict, microseconds.
    pub latency_us_max: u64,
    /// What became of nodes that were added or removed.
    pub members: MembersReport,
    /// What became of clusters that lost their majority.
    pub majority_loss: MajorityLossReport,
    /// What storages have seen.
    pub storages: StoragesReport,
    /// Machines that got a new release, and epochs with items that were decided in its generation.
    pub upgrades: (u64, u64),
    /// What clients have done.
    pub histories: HistoriesReport,
    /// Epochs in which a component failed and the native policy decided, counted on every node.
    pub fallbacks: u64,
    /// Components decided.
    pub has_wasm: bool,
    /// Digest of everything that happened.
    pub digest: u64,
}

/// How many nodes were added and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MembersReport {
    /// Nodes that were admitted.
    pub admitted: u64,
    /// Groups that joined.
    pub joined: u64,
    /// Nodes that were removed.
    pub removed: u64,
    /// Those of them that were broken when their removal began.
    pub broken: u64,
    /// Times that a node has said that it was removed.
    pub told: u64,
    /// Fresh reads that began at a node after its group had closed.
    pub late_reads: u64,
    /// Machines whose disks were lost, and whose place another one took.
    pub wiped: u64,
}
