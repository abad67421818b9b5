//! Counts of a run's events: proof that the run was worth playing.

use std::collections::BTreeMap;

use crate::sim::faults::Fault;
use crate::sim::judge::HistoriesReport;
use crate::sim::majority_loss::MajorityLossReport;
use crate::sim::storages::StoragesReport;

/// Counts of a run's events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of machines.
    pub machines: u16,
    /// Transactions whose clients received a verdict.
    pub decided: u64,
    /// Replies that a transaction was not accepted.
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
    /// Assignments of a node to push to a store, counted on every node.
    pub assigned: u64,
    /// Changes that were committed again, after they had been sent twice.
    pub repeats: u64,
    /// Epochs with items, and those among them to which several nodes contributed.
    pub epochs: (usize, usize),
    /// Processes that were stopped as planned, and stops in which the process had to end its wait for work in flight.
    pub stops: (u64, u64),
    /// Written images, and starts from an image.
    pub images: (u64, u64),
    /// Images that a machine copied from another one because it lacked entries.
    pub copied_images: u64,
    /// Attempts to copy that found no image which would help, after which the other machines took new ones.
    pub wanted_images: u64,
    /// Compactions of a group's entries.
    pub compactions: u64,
    /// Bytes of truncated segments.
    pub truncated_bytes: u64,
    /// Entries that were sent to peers which could not reach a leader.
    pub peer_entries: u64,
    /// Entries from peers that were written before the own log had them.
    pub copies: u64,
    /// Terms that began while two machines could reach each other only through a third.
    pub bridged_terms: u64,
    /// Inputs after which a group's entries waited in the log because many were undecided.
    pub held_back: u64,
    /// Inputs after which transactions waited for a later batch because the open one was full.
    pub backlogs: u64,
    /// Attempts that were not answered in time, although the queried process was still running.
    pub unanswered: u64,
    /// Occurrences of each fault.
    pub faults: BTreeMap<Fault, u64>,
    /// Longest time from an attempt to its verdict, microseconds.
    pub latency_us_max: u64,
    /// Nodes that were added or removed.
    pub members: MembersReport,
    /// Clusters that lost their majority.
    pub majority_loss: MajorityLossReport,
    /// Counts of the storages.
    pub storages: StoragesReport,
    /// Machines that got a new release, and epochs with items that were decided in its generation.
    pub upgrades: (u64, u64),
    /// Counts of the clients' histories.
    pub histories: HistoriesReport,
    /// Epochs in which a component failed and the native policy decided, counted on every node.
    pub fallbacks: u64,
    /// Whether components decided.
    pub has_wasm: bool,
    /// Digest of everything that happened.
    pub digest: u64,
}

/// Counts of nodes that were added and removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MembersReport {
    /// Nodes that were admitted.
    pub admitted: u64,
    /// Groups that joined.
    pub joined: u64,
    /// Nodes that were removed.
    pub removed: u64,
    /// Removed nodes that broke when their removal began.
    pub broken: u64,
    /// Times that a node reported its removal.
    pub told: u64,
    /// Fresh reads that began at a node after its group had closed.
    pub late_reads: u64,
    /// Machines that lost their disks and were replaced.
    pub wiped: u64,
}
