//! Waiters of a replica, and the waiting bytes that each accounts for.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::oneshot;
use tribunal_replica::{ControlReply, Imported, KnownNow, Waiters};
use tribunal_types::{ImportedVersion, TxnRequest};

use crate::commit::replies::ReplyHandle;

/// Waiters that receive on channels.
pub struct Channels;

impl Waiters for Channels {
    type Item = ItemWaiter;
    type Import = ImportWaiter;
    type Control = oneshot::Sender<ControlReply>;
    type Watch = oneshot::Sender<KnownNow>;

    fn has_left(watch: &oneshot::Sender<KnownNow>) -> bool {
        watch.is_closed()
    }
}

/// A transaction and the waiter for its verdict.
pub type Commit = tribunal_replica::Commit<ItemWaiter>;

/// A waiter for an item's answer.
pub struct ItemWaiter {
    /// The destination of the answer.
    pub handle: ReplyHandle,
    /// The waiting bytes that it accounts for; 0 if it is no transaction.
    pub bytes: usize,
}

impl ItemWaiter {
    /// Creates a waiter for an abort or a fence.
    #[must_use]
    pub fn for_id(handle: ReplyHandle) -> ItemWaiter {
        ItemWaiter { handle, bytes: 0 }
    }
}

/// Creates a waiting commit from a transaction whose bytes were admitted.
#[must_use]
pub fn commit(txn: Box<TxnRequest>, handle: ReplyHandle) -> Commit {
    let bytes = txn.memory_bytes();
    Commit { txn, waiter: ItemWaiter { handle, bytes } }
}

/// A waiter for an import.
pub struct ImportWaiter {
    reply: oneshot::Sender<Imported>,
    bytes: usize,
}

impl ImportWaiter {
    /// Creates a waiter for the import of `versions`, whose bytes were admitted.
    #[must_use]
    pub fn new(versions: &[ImportedVersion], reply: oneshot::Sender<Imported>) -> ImportWaiter {
        ImportWaiter { reply, bytes: size_of_val(versions) }
    }

    /// Answers, and releases the bytes.
    pub fn answer(self, imported: Imported, waiting_bytes: &AtomicUsize) {
        waiting_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        // The client may have disconnected.
        let _ = self.reply.send(imported);
    }
}
