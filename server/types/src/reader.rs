//! Persistent readers of logs: consumers' offsets, and webhooks.

use alloc::string::String;
use core::fmt;

use crate::ids::{ControlIndex, LogId, Lsn, NamespaceId, StoreId};
use crate::store::Pusher;

/// A consumer's position in one store's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerOffset {
    /// Namespace of the consumer.
    pub namespace: NamespaceId,
    /// Name of the consumer.
    pub name: String,
    /// The store.
    pub store: StoreId,
    /// The log that `lsn` belongs to.
    pub log: LogId,
    /// Last record that the consumer has processed.
    pub lsn: Lsn,
    /// When the offset was set, Unix milliseconds of the node's clock. Informational.
    pub at_ms: u64,
}

/// A registered receiver of one store's log.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Webhook {
    /// The store.
    pub store: StoreId,
    /// URL that records are posted to.
    pub url: String,
    /// Key that signs the bodies.
    pub secret: String,
    /// Maximum number of records in one request.
    pub records_max: u32,
    /// Maximum size of keys and values in one request.
    pub bytes_max: u32,
    /// Timeout of one request.
    pub timeout_ms: u32,
    /// The log that `watermark` belongs to.
    pub log: LogId,
    /// Last record that the receiver has acknowledged, or [`Webhook::AHEAD`].
    pub watermark: Lsn,
}

impl Webhook {
    /// Watermark of a receiver that was found ahead of the log: its records are of another history, even if the log has
    /// passed its position since. No log reaches this value.
    pub const AHEAD: Lsn = Lsn(u64::MAX - 1);
}

impl fmt::Debug for Webhook {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook")
            .field("store", &self.store)
            .field("url", &self.url)
            .field("watermark", &self.watermark)
            .finish_non_exhaustive()
    }
}

/// A webhook of a cluster, and the node that delivers it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldWebhook {
    /// The webhook.
    pub webhook: Webhook,
    /// The control entry that last registered it.
    pub registered: ControlIndex,
    /// The member that delivers it; `None` until one is named.
    pub deliverer: Option<Pusher>,
}

impl HeldWebhook {
    /// Returns the name of the present delivery: the latest control entry that registered the webhook or named the node
    /// that delivers it. Reports of an earlier delivery are void.
    #[must_use]
    pub fn delivery(&self) -> ControlIndex {
        self.deliverer.map_or(self.registered, |deliverer| deliverer.since.max(self.registered))
    }
}

/// A change of a reader's state, so frequent that many changes share an entry of the control log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReaderMove {
    /// Sets a consumer's offset.
    Offset(ConsumerOffset),
    /// Removes a consumer, or its offset in one store.
    Forget {
        /// Namespace of the consumer.
        namespace: NamespaceId,
        /// Its name.
        name: String,
        /// The store; all if absent.
        store: Option<StoreId>,
    },
    /// Records that a receiver has acknowledged a record, or was found ahead of the log ([`Webhook::AHEAD`]), unless
    /// another delivery has begun since.
    Delivered {
        /// The store.
        store: StoreId,
        /// The delivery (see [`HeldWebhook::delivery`]).
        delivery: ControlIndex,
        /// The record.
        lsn: Lsn,
    },
}
