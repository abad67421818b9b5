//! What the resolver must know about a store.

use alloc::string::String;

use crate::ids::{NamespaceId, StoreId};
use crate::txn::WriteKinds;

/// What decides whether a row exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Existence {
    /// The version map keeps the newest version of every live row.
    #[default]
    Tracked = 0,
    /// The engine's read set decides for rows without history above the floor. Nothing is added to rows there.
    Declared = 1,
}

/// Name of the LogAdaptor of embedded stores, which the node applies itself.
pub const EMBEDDED_ADAPTOR: &str = "kv";

/// A store: one log, one visibility watermark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreSpec {
    /// Number: the index of the control entry that created it. 0 until that is applied.
    pub id: StoreId,
    /// Tenant.
    pub namespace: NamespaceId,
    /// Name, unique in its namespace.
    pub name: String,
    /// What decides whether a row exists.
    pub existence: Existence,
    /// The engine keeps versions and reads its snapshot exactly, so its reads at the snapshot level are not dated here.
    pub multi_version: bool,
    /// The adaptor moves its watermark in the storage's transaction, so `add` is exactly-once.
    pub transactional: bool,
    /// Kinds of writes that the adaptor can encode with this configuration.
    pub takes: WriteKinds,
    /// Name of the LogAdaptor plugin; `None` for a log-only store, which counts as applied at once.
    pub adaptor: Option<String>,
    /// The adaptor's configuration, JSON text: endpoint, key prefix, batching. Holds no credentials.
    pub adaptor_config: String,
}

impl StoreSpec {
    /// Tells whether the store's rows are kept in the node itself.
    #[must_use]
    pub fn is_embedded(&self) -> bool {
        self.adaptor.as_deref() == Some(EMBEDDED_ADAPTOR)
    }
}
