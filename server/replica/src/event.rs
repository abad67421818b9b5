//! The events of a replica.

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
    /// Time since an arbitrary origin, by a clock that is never set. No replicated state depends on it.
    pub monotonic: Duration,
    /// Unix time in microseconds: the time that batches carry.
    pub unix_us: u64,
}

impl Now {
    /// Returns Unix time in milliseconds.
    #[must_use]
    pub fn unix_ms(self) -> u64 {
        self.unix_us / 1000
    }
}

/// The kinds of waiters. A replica returns each waiter of an item or an import exactly once, with the answer. Waiters
/// of changes and verdicts are dropped if the replica ends first: the outcome of the change, or of the id, is then
/// unknown.
pub trait Waiters {
    /// Waits for the answer of an item: a transaction, an abort or a fence.
    type Item;
    /// Waits for an import.
    type Import;
    /// Waits for a change of configuration.
    type Control;
    /// Waits for an id to get its verdict.
    type Watch;

    /// Returns whether the client of a watch has disconnected, so that the watch may be dropped.
    fn has_left(watch: &Self::Watch) -> bool;
}

/// A transaction and its waiter.
#[derive(Debug)]
pub struct Commit<I> {
    /// The transaction.
    pub txn: Box<TxnRequest>,
    /// The waiter for the verdict.
    pub waiter: I,
}

/// Findings of a store's push since its last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushReport {
    /// An embedded store was opened. Precedes `rewound` if both are present.
    pub opened: bool,
    /// The storage is at this record, which may be before its last acknowledged one.
    pub rewound: Option<Lsn>,
    /// The storage has acknowledged everything up to this record. Follows `rewound` if both are present.
    pub acked: Option<Lsn>,
    /// An embedded store was found damaged: its acknowledged data is incomplete.
    pub damaged: bool,
    /// The push stopped.
    pub stopped: bool,
}

/// Position of a storage, as the node that pushes to it reports it to the other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageAt {
    /// The store.
    pub store: StoreId,
    /// The control entry that started the push.
    pub push: ControlIndex,
    /// The storage has acknowledged everything up to this record; nothing after it is known.
    pub acked: Lsn,
}

/// An event of a replica.
pub enum Event<W: Waiters> {
    /// Transactions to decide, in this order.
    Commits(Vec<Commit<W::Item>>),
    /// A client gives up.
    Abort(NamespaceId, TxnId, W::Item),
    /// Make sure that an id that never arrived never commits.
    Fence(NamespaceId, TxnId, W::Item),
    /// Report the status of an id as soon as it has a verdict.
    Watch(NamespaceId, TxnId, W::Watch),
    /// Versions of existing rows.
    Import(Vec<ImportedVersion>, W::Import),
    /// A change of configuration.
    Control(ControlChange, W::Control),
    /// The next entry of a group's log, agreed on. It must be durable before any effect that follows from it is carried
    /// out, except [`Effect::Append`](crate::Effect::Append).
    Entry(Arc<Batch>),
    /// Another node has proposed a batch with items that ends with this epoch; it is not agreed on yet.
    Appended(Epoch),
    /// A leader of a group has begun its term: all entries of earlier terms came before this event.
    TermBegun {
        /// The group.
        group: GroupId,
        /// Whether this node is the leader, and still is: its proposals from now on belong to this term.
        leads: bool,
    },
    /// This node no longer leads a group, or only in a later term that has not begun.
    LeaderLost(GroupId),
    /// A group's log did not take this proposal; it will never contain it.
    NotProposed(Arc<Batch>),
    /// The next entry of the control log, agreed on and durable.
    ControlEntry(ControlIndex, ControlEntry),
    /// A report of the push that a control entry started.
    Pushed {
        /// The store of the push.
        store: StoreId,
        /// The control entry that started it.
        push: ControlIndex,
        /// The report.
        report: PushReport,
    },
    /// Another member's report of the storages it pushes to. Reports of one node arrive in order.
    PushesReported {
        /// The member.
        from: NodeId,
        /// The storages.
        stores: Vec<StorageAt>,
    },
    /// Propose a change of configuration without a waiter.
    Propose(ControlChange),
    /// Without this store, the log could be truncated below this epoch to stay within its quota.
    OverQuota {
        /// The store.
        store: StoreId,
        /// The first epoch that the quota retains.
        bound: Epoch,
        /// The last complaint of its storage.
        complaint: Option<String>,
        /// While an embedded store is being opened, the last record that its rows reflect; otherwise `None`.
        opens_at: Option<Lsn>,
        /// Whether an embedded store is damaged and needs its whole log, whatever it has applied.
        needs_all: bool,
    },
    /// A truncation of the log was put off: emit another one in a while, with the positions of then.
    TruncationPutOff,
    /// No other event since the last one, or the time of [`Replica::wake_in`](crate::Replica::wake_in) has come.
    Tick,
    /// Another node needs a newer image than the last one: begin one after the epochs that are being decided, unless one
    /// is being taken.
    TakeImage,
    /// There is time to copy a slice of the image being taken.
    CopyImage,
    /// Take nothing new and finish the work in flight, proposals included. In a cluster, this takes a majority, which
    /// may be missing, so the caller limits the time and ends it with [`Event::StopNow`].
    Stop,
    /// Stop waiting for the work in flight: its outcome is unknown.
    StopNow,
    /// Nothing will become durable any more.
    LogFailed,
}
