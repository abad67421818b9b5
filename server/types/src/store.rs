//! The properties of a store that the resolver needs.

use alloc::string::String;

use crate::ids::{ControlIndex, NamespaceId, NodeId, StoreId};
use crate::txn::WriteKinds;

/// The authority on whether a row exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Existence {
    /// The version map, which keeps the newest version of every live row.
    #[default]
    Tracked = 0,
    /// The engine's read set, for rows without history above the floor. `add` is not available in such a store.
    Declared = 1,
}

/// Name of the LogAdaptor of embedded stores, which the node itself applies.
pub const EMBEDDED_ADAPTOR: &str = "kv";

/// A store: one log, one visibility watermark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreSpec {
    /// Number: the index of the control entry that created it. 0 until that entry is applied.
    pub id: StoreId,
    /// Tenant.
    pub namespace: NamespaceId,
    /// Name, unique in its namespace.
    pub name: String,
    /// The authority on whether a row exists.
    pub existence: Existence,
    /// The engine keeps versions and reads exactly at its snapshot, so its reads at the snapshot level are not dated
    /// here.
    pub multi_version: bool,
    /// The adaptor moves its watermark in the storage's transaction, so an `add` is applied exactly once.
    pub transactional: bool,
    /// Kinds of writes that the adaptor can encode with this configuration.
    pub takes: WriteKinds,
    /// Name of the LogAdaptor plugin; `None` for a log-only store, which counts as applied immediately.
    pub adaptor: Option<String>,
    /// The adaptor's configuration, JSON text: endpoint, key prefix, batching. Contains no credentials.
    pub adaptor_config: String,
}

impl StoreSpec {
    /// Returns whether the node itself keeps the store's rows.
    #[must_use]
    pub fn is_embedded(&self) -> bool {
        self.adaptor.as_deref() == Some(EMBEDDED_ADAPTOR)
    }
}

/// The member that pushes to a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pusher {
    /// The member.
    pub node: NodeId,
    /// The control entry that named it.
    pub since: ControlIndex,
}
