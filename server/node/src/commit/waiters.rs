//! Waiters of a replica, and the waiting bytes that each accounts for.

use tokio::sync::oneshot;
use tribunal_replica::{ControlReply, Imported, KnownNow, Waiters};
use tribunal_types::{ImportedVersion, NamespaceId, TxnRequest};

use crate::commit::replies::ReplyHandle;
use crate::commit::waiting_bytes::WaitingBytes;

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
    /// The tenant.
    pub namespace: NamespaceId,
    /// The waiting bytes that it accounts for; 0 if it is no transaction.
    pub bytes: usize,
}

impl ItemWaiter {
    /// Creates a waiter for an abort or a fence.
    #[must_use]
    pub fn for_id(handle: ReplyHandle) -> ItemWaiter {
        ItemWaiter { handle, namespace: NamespaceId(0), bytes: 0 }
    }
}

/// Creates a waiting commit from a transaction whose bytes were admitted.
#[must_use]
pub fn commit(txn: Box<TxnRequest>, handle: ReplyHandle) -> Commit {
    let waiter = ItemWaiter { handle, namespace: txn.namespace, bytes: txn.memory_bytes() };
    Commit { txn, waiter }
}

/// A waiter for an import.
pub struct ImportWaiter {
    reply: oneshot::Sender<Imported>,
    namespace: NamespaceId,
    bytes: usize,
}

impl ImportWaiter {
    /// Creates a waiter for a tenant's import of `versions`, whose bytes were admitted.
    #[must_use]
    pub fn new(namespace: NamespaceId, versions: &[ImportedVersion], reply: oneshot::Sender<Imported>) -> ImportWaiter {
        ImportWaiter { reply, namespace, bytes: size_of_val(versions) }
    }

    /// Answers, and releases the bytes.
    pub fn answer(self, imported: Imported, waiting: &WaitingBytes) {
        waiting.release(self.namespace, self.bytes);
        // The client may have disconnected.
        let _ = self.reply.send(imported);
    }
}
