//! What happens to a replica.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use tribunal_types::{
    Batch, ControlChange, ControlEntry, ControlIndex, Epoch, GroupId, ImportedVersion, Lsn, NamespaceId, NodeId,
    StoreId, TxnId, TxnRequest,
};

/// The time of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Time since some moment, by a clock that is never set. Nothing that is replicated depends on it.
    pub monotonic: Duration,
    /// Unix time, microseconds: the time that batches carry.
    pub unix_us: u64,
}

impl Now {
    /// Returns Unix time, milliseconds.
    #[must_use]
    pub fn unix_ms(self) -> u64 {
        self.unix_us / 1000
    }
}

/// Waiters of several kinds. A replica gives each waiter of an item or an import back exactly once, with the answer.
/// Those of changes and of verdicts are dropped if the replica ends first: what becomes of the change, or the id, is
/// then unknown.
pub trait Waiters {
    /// Waits for the answer of an item: a transaction, an abort or a fence.
    type Item;
    /// Waits for an import.
    type Import;
    /// Waits for a change of configuration.
    type Control;
    /// Waits for an id to get its verdict.
    type Watch;

    /// Tells whether somebody who watches an id has left, so that they may be forgotten.
    fn has_left(watch: &Self::Watch) -> bool;
}

/// A transaction and who waits for its verdict.
#[derive(Debug)]
pub struct Commit<I> {
    /// The transaction.
    pub txn: Box<TxnRequest>,
    /// Who waits.
    pub waiter: I,
}

/// What a store's push has found out since its last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushReport {
    /// An embedded store was opened. Before `rewound`, if both are there.
    pub opened: bool,
    /// The storage is at this record, which may be before what it had acknowledged.
    pub rewound: Option<Lsn>,
    /// The storage has acknowledged everything up to this record. After `rewound`, if both are there.
    pub acked: Option<Lsn>,
    /// An embedded store was found damaged, and what it acknowledges is not all that it should have.
    pub damaged: bool,
    /// The push stopped.
    pub stopped: bool,
}

/// How far a storage is, as the node that pushes to it tells the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageAt {
    /// The store.
    pub store: StoreId,
    /// The control entry that started the push.
    pub push: ControlIndex,
    /// The storage has acknowledged everything up to this record, and nothing after it is known.
    pub acked: Lsn,
}

/// What happens to a replica.
pub enum Event<W: Waiters> {
    /// Transactions to decide, in this order.
    Commits(Vec<Commit<W::Item>>),
    /// A client gives up.
    Abort(NamespaceId, TxnId, W::Item),
    /// Make sure that an id that never arrived never commits.
    Fence(NamespaceId, TxnId, W::Item),
    /// Tell what is known of an id as soon as that is a verdict.
    Watch(NamespaceId, TxnId, W::Watch),
    /// Versions of existing rows.
    Import(Vec<ImportedVersion>, W::Import),
    /// A change of configuration.
    Control(ControlChange, W::Control),
    /// The next entry of a group's log is agreed on and durable.
    Entry(Arc<Batch>),
    /// Another node has proposed a batch with items that ends with this epoch; it is not agreed on yet.
    Appended(Epoch),
    /// A leader of a group has begun its term: all entries of the terms before it came before this event.
    TermBegun {
        /// The group.
        group: GroupId,
        /// This node is the leader, and still is: what it proposes from now on belongs to this term.
        leads: bool,
    },
    /// This node leads a group no more, or only in a later term, which has not begun.
    LeaderLost(GroupId),
    /// A group's log did not take this proposal; it will never contain it.
    NotProposed(Arc<Batch>),
    /// The next entry of the control log is agreed on and durable.
    ControlEntry(ControlIndex, ControlEntry),
    /// The push that a control entry started reports.
    Pushed {
        /// Whose push.
        store: StoreId,
        /// The control entry that started it.
        generation: ControlIndex,
        /// What it reports.
        report: PushReport,
    },
    /// Another member tells how far the storages are to which it pushes. What comes from one node comes in its order.
    PushesReported {
        /// The member.
        from: NodeId,
        /// The storages.
        stores: Vec<StorageAt>,
    },
    /// Propose a change of configuration that nobody waits for.
    Propose(ControlChange),
    /// Without this store, the log could be truncated below this epoch and its quota be kept.
    OverQuota {
        /// The store.
        store: StoreId,
        /// The first epoch that the quota leaves.
        bound: Epoch,
        /// What its storage last complained about.
        complaint: Option<String>,
        /// The last record that the rows of an embedded store reflect while it is being opened; `None` if it is not.
        opens_at: Option<Lsn>,
    },
    /// Nothing else has happened since the last event, or the time of [`Replica::wake_in`](crate::Replica::wake_in) has
    /// come.
    Tick,
    /// There is time to copy a slice of the image that is being taken.
    CopyImage,
    /// Take nothing new, finish what is under way: what was proposed is waited for. In a cluster that takes a majority,
    /// which may be missing, so the caller limits the time, and ends it with [`Event::StopNow`].
    Stop,
    /// Do not wait for what is under way any longer: its outcome is unknown.
    StopNow,
    /// Nothing will become durable any more.
    LogFailed,
}
