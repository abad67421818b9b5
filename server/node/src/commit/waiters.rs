//! Waiters of a replica, and what each counts for in the bytes that wait.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::oneshot;
use tribunal_replica::{ControlReply, Imported, KnownNow, Waiters};
use tribunal_types::{ImportedVersion, TxnRequest};

use crate::commit::replies::ReplyHandle;

/// They wait on channels.
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

/// A transaction and who waits for its verdict.
pub type Commit = tribunal_replica::Commit<ItemWaiter>;

/// Waits for the answer of an item.
pub struct ItemWaiter {
    /// Where the answer goes.
    pub handle: ReplyHandle,
    /// What it counts for in the bytes that wait; 0 if it is no transaction.
    pub bytes: usize,
}

impl ItemWaiter {
    /// Waits for an abort or a fence.
    #[must_use]
    pub fn for_id(handle: ReplyHandle) -> ItemWaiter {
        ItemWaiter { handle, bytes: 0 }
    }
}

/// Makes a transaction wait, which was admitted to the bytes that wait.
#[must_use]
pub fn commit(txn: Box<TxnRequest>, handle: ReplyHandle) -> Commit {
    let bytes = txn.memory_bytes();
    Commit { txn, waiter: ItemWaiter { handle, bytes } }
}

/// Waits for an import.
pub struct ImportWaiter {
    reply: oneshot::Sender<Imported>,
    bytes: usize,
}

impl ImportWaiter {
    /// Waits for the import of `versions`, which were admitted to the bytes that wait.
    #[must_use]
    pub fn new(versions: &[ImportedVersion], reply: oneshot::Sender<Imported>) -> ImportWaiter {
        ImportWaiter { reply, bytes: size_of_val(versions) }
    }

    /// Answers.
    pub fn answer(self, imported: Imported, waiting_bytes: &AtomicUsize) {
        waiting_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        // The client may have disconnected.
        let _ = self.reply.send(imported);
    }
}
