//! Bugs that are planted in a run, to prove that it detects them.

/// A deliberate bug in the use of the system, to prove that a run detects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A sync is reported as complete when it is requested.
    AckBeforeSync,
    /// Syncs of the log do nothing.
    NoSync,
    /// A process starts with the votes of the log's mark, which is written later than the log.
    VoteFromTheMark,
    /// A process that has copied another node's state starts without its votes.
    CopyForgetsVotes,
    /// Storages accept records from any position.
    TwoPushers,
    /// Each machine has as many partitions as cores.
    OwnPartitions,
    /// A machine decides in the newest generation of its release, without waiting for the others.
    SwitchesAlone,
    /// The reads of a read-only transaction are assumed to hold.
    ReadsUnjudged,
}
