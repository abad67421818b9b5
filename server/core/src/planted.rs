//! Planted bugs: faults of the core and its users that negative tests switch on, to prove that some test catches each.
//!
//! Without the feature `planted-bugs`, every check here is the constant `false`, and the faults do not exist.

use tribunal_types::{Epoch, NodeId};

/// A fault to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Bug {
    /// Reads count as current, whatever version was seen.
    IgnoreReadSet = 1,
    /// Two writers of one row in one epoch do not conflict.
    IgnoreWriteSet = 2,
    /// Ranges are never checked.
    SkipRanges = 3,
    /// A `put` of an absent row does not count as changing existence.
    SkipPutExistence = 4,
    /// Snapshots below the floor are judged anyway.
    StaleFloor = 5,
    /// Transactions of equal rank are ordered by their groups instead of their stamps.
    NonTotalRank = 6,
    /// Aborted transactions' rows enter the version map.
    ApplyLosers = 7,
    /// Rows written after the snapshot count as unchanged.
    FirstCommitterIgnored = 8,
    /// An `add` conflicts with no other write.
    AddsNeverConflict = 9,
    /// Every epoch with two records in a store skips a log position there.
    LsnGap = 10,
    /// A known id is executed again.
    ReplayExecutes = 11,
    /// A row read as absent and then written may have been written and deleted since.
    AbsenceNeverDated = 12,
    /// Snapshots of multi-version stores need not be one state.
    SplitSnapshots = 13,
    /// An add never leaves 64 bits.
    AddsNeverOverflow = 14,
    /// Adds of one epoch are each checked alone.
    AddsOverflowTogether = 15,
    /// Reads at repeatable read are not checked against writes of the same epoch.
    UnorderedRepeatableRead = 16,
    /// A dry run rejects snapshots of empty epochs after the last resolved one as from the future.
    IdleEpochsForgotten = 17,
    /// At levels other than snapshot, validators are not given the times at which reads were current.
    OnlySnapshotReadsDated = 18,
    /// Every add that may create its row does, whatever other transactions of its epoch have done.
    EveryAddCreates = 19,
    /// An add that may create its row is placed next to inserts of it.
    CreatingAddsIgnoreExistence = 20,
    /// Epochs are returned before the control entries up to their K are applied.
    BarrierSkipped = 21,
    /// K forgets the control indices of empty entries.
    EmptyEntrysControlLost = 22,
    /// Answers are matched to decisions from the first one of the epoch on, whatever other groups contribute.
    AnswersShifted = 23,
    /// Two consecutive control entries assign the same number to the objects they create.
    NumberGivenTwice = 24,
    /// An entry counts although its first epoch is sealed already.
    VoidCounted = 25,
    /// A member treats its own proposals as agreed on at once.
    AckBeforeMajority = 26,
    /// A leader proposes before its term has begun.
    TakeoverWithoutItsNoOp = 27,
    /// Epochs are resolved with the time of the local clock.
    TimeFromTheLocalClock = 28,
    /// A change of configuration that was sent again and agreed on twice is applied twice.
    ChangeAppliedAgain = 29,
    /// A member folds entries of a peer although earlier ones are missing.
    PeersGapsFolded = 30,
    /// A state image claims to include entries of a group that its fold still needs.
    ImageTooFar = 31,
    /// One node decides one epoch differently from all others.
    OneNodeDiverges = 32,
    /// A node that was removed answers fresh reads.
    RemovedNodeReads = 34,
    /// A group joins before it has a leader.
    JoinsWithoutLeader = 35,
    /// An id that two groups bring to one epoch is executed twice.
    DuplicateAcrossGroups = 36,
    /// The group of an admitted node begins without the voters that are being removed.
    NewGroupWithoutLeaving = 37,
    /// A node being removed ends as soon as some node sees that it votes in no group.
    EndsBeforeItIsForgotten = 38,
    /// A node that lacks code answers fresh reads from the state it decided without that code.
    FreshWithoutCode = 39,
    /// A group is held back although the next epoch needs its next entry.
    NextEpochHeldBack = 40,
    /// Keys and the ends of ranges are compared over the length of the shorter one.
    RangeKeysCutShort = 41,
    /// An image forgets the time below which ids may have been forgotten.
    IdFloorLost = 42,
    /// Keys of an image's range window are distributed to the partitions round-robin.
    WindowKeysDealt = 43,
    /// An import may bring back a row that was deleted, once the deletion is forgotten.
    DeletionsForgotten = 44,
    /// A read of a multi-version store may have any version.
    VersionsUnchecked = 45,
    /// A sum that could leave 64 bits is reported before a stale read.
    SumsBeforeReads = 46,
    /// A node that continues alone drops the entries that it does not know to be agreed on.
    DoubtDropped = 47,
    /// A node that continues alone drops entries that it received only from peers.
    PeersEntriesDropped = 48,
    /// A leader changes the members of its groups before it has applied all control entries.
    MembersFromOldControl = 49,
    /// The group of a node that continues alone closes because of a removal in its log that a later entry ends.
    RemovalOutlivesSoleNode = 50,
    /// A transaction is inserted in the order although it closes a cycle.
    PlacedInCycle = 51,
}

impl Bug {
    /// Faults of the fold.
    pub const OF_THE_FOLD: [Bug; 3] = [Bug::BarrierSkipped, Bug::EmptyEntrysControlLost, Bug::AnswersShifted];

    /// Faults of the fold of the control log.
    pub const OF_THE_CONTROL_LOG: [Bug; 2] = [Bug::NumberGivenTwice, Bug::ChangeAppliedAgain];

    /// Faults of a member of a cluster.
    pub const OF_THE_CLUSTER: [Bug; 14] = [
        Bug::VoidCounted,
        Bug::AckBeforeMajority,
        Bug::TakeoverWithoutItsNoOp,
        Bug::TimeFromTheLocalClock,
        Bug::PeersGapsFolded,
        Bug::ImageTooFar,
        Bug::RemovedNodeReads,
        Bug::JoinsWithoutLeader,
        Bug::NewGroupWithoutLeaving,
        Bug::EndsBeforeItIsForgotten,
        Bug::MembersFromOldControl,
        Bug::FreshWithoutCode,
        Bug::NextEpochHeldBack,
        Bug::WindowKeysDealt,
    ];

    /// Faults of a node that continues alone after a majority is lost.
    pub const OF_A_LOST_MAJORITY: [Bug; 3] =
        [Bug::DoubtDropped, Bug::PeersEntriesDropped, Bug::RemovalOutlivesSoleNode];

    /// The node affected by [`Bug::OneNodeDiverges`].
    pub const DIVERGING_NODE: NodeId = NodeId(2);
    /// The epoch from which that node decides differently.
    pub const DIVERGING_EPOCH: Epoch = Epoch(40);

    /// Faults of the resolver.
    pub const OF_THE_RESOLVER: [Bug; 27] = [
        Bug::IgnoreReadSet,
        Bug::IgnoreWriteSet,
        Bug::SkipRanges,
        Bug::SkipPutExistence,
        Bug::StaleFloor,
        Bug::NonTotalRank,
        Bug::ApplyLosers,
        Bug::FirstCommitterIgnored,
        Bug::AddsNeverConflict,
        Bug::LsnGap,
        Bug::ReplayExecutes,
        Bug::AbsenceNeverDated,
        Bug::SplitSnapshots,
        Bug::AddsNeverOverflow,
        Bug::AddsOverflowTogether,
        Bug::UnorderedRepeatableRead,
        Bug::IdleEpochsForgotten,
        Bug::OnlySnapshotReadsDated,
        Bug::EveryAddCreates,
        Bug::CreatingAddsIgnoreExistence,
        Bug::DuplicateAcrossGroups,
        Bug::RangeKeysCutShort,
        Bug::IdFloorLost,
        Bug::DeletionsForgotten,
        Bug::VersionsUnchecked,
        Bug::SumsBeforeReads,
        Bug::PlacedInCycle,
    ];
}

#[cfg(feature = "planted-bugs")]
static PLANTED: core::sync::atomic::AtomicU8 = core::sync::atomic::AtomicU8::new(0);

/// Plants one fault in the whole process, replacing the previous one; `None` removes it.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.store(bug.map_or(0, |b| b as u8), core::sync::atomic::Ordering::SeqCst);
}

/// Returns whether the fault is planted.
#[cfg(feature = "planted-bugs")]
#[inline]
pub fn planted(bug: Bug) -> bool {
    PLANTED.load(core::sync::atomic::Ordering::Relaxed) == bug as u8
}

/// Returns whether the fault is planted: always false in a build without the feature.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub const fn planted(_: Bug) -> bool {
    false
}
