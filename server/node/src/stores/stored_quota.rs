//! Limits the bytes of a tenant's embedded stores: they take room on the disk of every node for as long as they exist.
//!
//! Checked when a commit arrives, against what this node has applied, and never by the core: no verdict depends on it.
//! Requests in flight at that moment, and records that are not applied yet, may exceed the bound. Imports add no bytes:
//! embedded stores take none.
//!
//! Deletes take room at first. So once a tenant is near its bound, its stores are compacted (decision 128).
//!
//! Must never refuse a transaction that was accepted before, nor one that only deletes.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tribunal_push::ENTRY_OVERHEAD_BYTES;
use tribunal_service::{Catalog, ServiceError};
use tribunal_types::{NamespaceId, StoreId, TxnRequest, Write, WriteKind};

use crate::service::NodeService;
use crate::telemetry::metrics::NamespaceLabel;

/// Maximum length of a sum, which an add leaves in its row, bytes.
const SUM_BYTES_MAX: usize = 20;
/// How often to look for tenants near their bound.
const RECLAIM_EVERY: Duration = Duration::from_secs(1);
/// Bytes a second, on average, that compactions with little to free may rewrite for one tenant.
const REWRITTEN_BYTES_PER_S: u64 = 2 << 20;

impl NodeService {
    /// Refuses a transaction that may push its tenant over the bound.
    pub(crate) async fn check_stored(&self, txn: &TxnRequest) -> Result<(), ServiceError> {
        if self.has_disk_room(txn.namespace, added_at_most(txn)) {
            return Ok(());
        }
        self.check_new_bytes(txn, 0).await.map(drop)
    }

    /// Returns whether a tenant stays within its bound after `new` more bytes.
    pub(crate) fn has_disk_room(&self, namespace: NamespaceId, new: u64) -> bool {
        let max = self.bound_of(&self.stored_quota, namespace);
        max.is_none_or(|max| self.pushes.stored_bytes_of(namespace).saturating_add(new) <= max)
    }

    /// Refuses a transaction that may push its tenant over the bound, `more` bytes being admitted beside it. Returns the
    /// number of bytes it may add.
    pub(crate) async fn check_new_bytes(&self, txn: &TxnRequest, more: u64) -> Result<u64, ServiceError> {
        let Some(max) = self.bound_of(&self.stored_quota, txn.namespace) else { return Ok(0) };
        let new = bytes_added(txn, &self.stores.catalog());
        let stored = self.pushes.stored_bytes_of(txn.namespace);
        if new == 0 || stored.saturating_add(more).saturating_add(new) <= max || self.was_taken_in(txn).await? {
            return Ok(new);
        }
        Err(ServiceError::TooManyStoredBytes { stored, new, max })
    }

    /// Updates the metrics of all tenants that have embedded stores.
    pub(crate) fn count_stored_bytes_of_tenants(&self) {
        for (namespace, bytes) in self.pushes.stored_bytes() {
            let label = NamespaceLabel { namespace: self.tenant_name(namespace) };
            self.shared.metrics.tenants.stored_bytes.get_or_create(&label).set(bytes);
            if let Some(max) = self.bound_of(&self.stored_quota, namespace) {
                self.shared.metrics.tenants.stored_bytes_max.get_or_create(&label).set(max);
            }
        }
    }

    /// Compacts the stores of tenants near their bound. Waits for the disk.
    fn reclaim_stored_bytes(&self) {
        for (namespace, bytes) in self.pushes.stored_bytes() {
            if self.bound_of(&self.stored_quota, namespace).is_some_and(|max| is_near(bytes, max)) {
                let pause = Duration::from_secs(bytes / REWRITTEN_BYTES_PER_S);
                self.pushes.reclaim(namespace, pause);
            }
        }
    }
}

/// Compacts the stores of tenants near their bound as long as the node exists.
pub fn reclaim(service: &Arc<NodeService>) {
    let (runtime, service) = (service.rows.runtime.clone(), Arc::downgrade(service));
    runtime.spawn(async move {
        loop {
            tokio::time::sleep(RECLAIM_EVERY).await;
            let service = Weak::clone(&service);
            let looked = move || service.upgrade().map(|service| service.reclaim_stored_bytes());
            match tokio::task::spawn_blocking(looked).await {
                Ok(None) => return,
                Ok(Some(())) => {}
                Err(error) => {
                    tracing::error!(%error, "the embedded stores of tenants near their bound were not compacted")
                }
            }
        }
    });
}

/// Returns whether a tenant has at least seven eighths of what it may.
fn is_near(bytes: u64, max: u64) -> bool {
    bytes >= max - max / 8
}

/// Returns a bound on [`bytes_added`] that needs no look at the writes.
pub(crate) fn added_at_most(txn: &TxnRequest) -> u64 {
    (txn.keys.len() + txn.values.len() + txn.writes.len() * (ENTRY_OVERHEAD_BYTES + SUM_BYTES_MAX)) as u64
}

/// Returns how many bytes the writes to embedded stores may add, deletes aside.
fn bytes_added(txn: &TxnRequest, catalog: &Catalog) -> u64 {
    let mut last: Option<(StoreId, bool)> = None;
    let mut embedded = |store: StoreId| match last {
        Some((same, embedded)) if same == store => embedded,
        _ => {
            let embedded = catalog.by_id(store).is_some_and(|spec| spec.is_embedded());
            last = Some((store, embedded));
            embedded
        }
    };
    let value = |write: &Write| match write.kind {
        WriteKind::Add => SUM_BYTES_MAX,
        _ => write.value.len as usize,
    };
    let stored = txn.writes.iter().filter(|write| write.kind != WriteKind::Delete && embedded(write.store));
    stored.map(|write| (ENTRY_OVERHEAD_BYTES + write.key.len as usize + value(write)) as u64).sum()
}

#[cfg(test)]
mod tests {
    use tribunal_types::{RowKey, Span, StoreSpec};

    use super::*;

    const EMBEDDED: StoreId = StoreId(1);
    const LOG_ONLY: StoreId = StoreId(2);

    fn txn(writes: &[(StoreId, WriteKind, &str)]) -> TxnRequest {
        let mut txn = TxnRequest::default();
        for (n, (store, kind, value)) in (0..).zip(writes) {
            let key = Span::push(&mut txn.keys, b"key");
            let value = Span::push(&mut txn.values, value.as_bytes());
            let row = RowKey { hi: n, lo: 0 };
            txn.writes.push(Write { row, store: *store, key, value, kind: *kind, integer: true, start_len: 0 });
        }
        txn
    }

    #[test]
    fn what_is_written_to_embedded_stores_counts_except_deletes() {
        use WriteKind::{Add, Delete, Insert, Put, Update};
        let spec = |id, adaptor: Option<&str>| StoreSpec {
            id,
            name: format!("s{id}"),
            adaptor: adaptor.map(str::to_owned),
            ..StoreSpec::default()
        };
        let catalog =
            Catalog::new([spec(EMBEDDED, Some("kv")), spec(LOG_ONLY, None)], Arc::new(|_, _, _| RowKey::default()));
        let head = 14 + 3;
        for (kind, value, bytes) in [
            (Insert, "12345", head + 5),
            (Put, "1", head + 1),
            (Update, "", head),
            (Add, "1", head + 20),
            (Delete, "", 0),
        ] {
            let txn = txn(&[(EMBEDDED, kind, value), (LOG_ONLY, kind, value)]);
            assert_eq!(bytes_added(&txn, &catalog), bytes, "{kind:?}");
            assert!(added_at_most(&txn) >= bytes, "{kind:?}");
        }
        let both = txn(&[(EMBEDDED, Delete, ""), (EMBEDDED, Put, "1"), (LOG_ONLY, Put, "1"), (EMBEDDED, Put, "22")]);
        assert_eq!(bytes_added(&both, &catalog), 2 * head + 3, "a delete makes no room for the writes beside it");
    }

    #[test]
    fn a_tenant_is_near_its_bound_from_seven_eighths_on() {
        for (bytes, max, near) in
            [(874, 1000, false), (875, 1000, true), (2000, 1000, true), (0, 0, true), (0, 1, false)]
        {
            assert_eq!(is_near(bytes, max), near, "{bytes} {max}");
        }
    }
}
