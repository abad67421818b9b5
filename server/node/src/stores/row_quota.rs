//! Limits the rows in a tenant's tracked stores: each takes memory for as long as it exists.
//!
//! Checked when a commit arrives, against the counts of the last epoch, and never by the core: no verdict depends on
//! it. Requests in flight at that moment may exceed the bound, by no more than they may write.
//!
//! Must never refuse a transaction that was accepted before. Its verdict is returned regardless of the number of rows.

use std::collections::{BTreeSet, HashSet};

use tribunal_replica::KnownNow;
use tribunal_service::{Catalog, ServiceError};
use tribunal_types::{Existence, Isolation, NamespaceId, RowKey, StoreId, TxnRequest, Write, WriteKind};

use crate::service::NodeService;
use crate::telemetry::metrics::NamespaceLabel;

impl NodeService {
    /// Refuses a transaction that may push its tenant over the bound.
    pub(crate) async fn check_rows(&self, txn: &TxnRequest) -> Result<(), ServiceError> {
        if self.has_room(txn.namespace, txn.writes.len()) {
            return Ok(());
        }
        self.check_new_rows(txn, 0).await.map(drop)
    }

    /// Returns whether a tenant stays within its bound after any `writes` writes. Cheaper than checking their rows.
    pub(crate) fn has_room(&self, namespace: NamespaceId, writes: usize) -> bool {
        let rows = self.shared.progress.rows_of(namespace);
        self.rows_max(namespace).is_none_or(|max| rows.saturating_add(writes as u64) <= max)
    }

    /// Refuses a transaction that may push its tenant over the bound, `more` rows being admitted beside it. Returns the
    /// number of rows it may add.
    pub(crate) async fn check_new_rows(&self, txn: &TxnRequest, more: u64) -> Result<u64, ServiceError> {
        let Some(max) = self.rows_max(txn.namespace) else { return Ok(0) };
        let rows = self.shared.progress.rows_of(txn.namespace);
        let new = rows_added_at_most(txn, &self.stores.catalog());
        if new == 0 || rows.saturating_add(more).saturating_add(new) <= max || self.was_taken_in(txn).await? {
            return Ok(new);
        }
        Err(ServiceError::TooManyRows { rows, new, max })
    }

    /// Refuses an import that may push a tenant over its bound.
    pub(crate) fn check_imported_rows(&self, namespace: NamespaceId, new: u64) -> Result<(), ServiceError> {
        let rows = self.shared.progress.rows_of(namespace);
        match self.rows_max(namespace) {
            Some(max) if rows.saturating_add(new) > max => Err(ServiceError::TooManyRows { rows, new, max }),
            _ => Ok(()),
        }
    }

    /// Updates the metrics of all tenants that have stores.
    pub(crate) fn count_rows_of_tenants(&self) {
        let namespaces: BTreeSet<NamespaceId> = self.stores.catalog().all().map(|spec| spec.namespace).collect();
        for namespace in namespaces {
            let label = NamespaceLabel { namespace: self.tenant_name(namespace) };
            let rows = self.shared.progress.rows_of(namespace);
            self.shared.metrics.tenants.rows.get_or_create(&label).set(rows);
            if let Some(max) = self.rows_max(namespace) {
                self.shared.metrics.tenants.rows_max.get_or_create(&label).set(max);
            }
        }
    }

    fn rows_max(&self, namespace: NamespaceId) -> Option<u64> {
        self.bound_of(&self.row_quota, namespace)
    }

    /// Returns whether the id is in flight, decided or expired: then the answer is not that of a new transaction.
    pub(crate) async fn was_taken_in(&self, txn: &TxnRequest) -> Result<bool, ServiceError> {
        Ok(self.known(txn.namespace, txn.id).await? != KnownNow::Unknown)
    }
}

/// Counts the writes that may create a row of a tracked store: inserts, and puts and adds with `or` of rows that the
/// transaction has not read. Declared reads count at levels that abort if they are wrong. Each delete makes room for
/// one such write, because the transaction aborts if it deletes no row; it makes none for other transactions, including
/// those of the same batch, which commit without it.
fn rows_added_at_most(txn: &TxnRequest, catalog: &Catalog) -> u64 {
    let is_validated = matches!(txn.isolation, Isolation::RepeatableRead | Isolation::Serializable);
    let existing = txn.reads.iter().filter(|read| is_validated && read.seen.is_some());
    let known: HashSet<RowKey> = existing.map(|read| read.row).collect();
    let mut last: Option<(StoreId, bool)> = None;
    let mut tracked = |store: StoreId| match last {
        Some((same, tracked)) if same == store => tracked,
        _ => {
            let tracked = catalog.by_id(store).is_none_or(|spec| spec.existence == Existence::Tracked);
            last = Some((store, tracked));
            tracked
        }
    };
    let creates = |w: &Write| matches!(w.kind, WriteKind::Insert | WriteKind::Put) || w.start_len > 0;
    let (mut new, mut deleted) = (0_u64, 0);
    for write in &txn.writes {
        match write.kind {
            WriteKind::Delete => deleted += u64::from(tracked(write.store)),
            _ => new += u64::from(creates(write) && !known.contains(&write.row) && tracked(write.store)),
        }
    }
    new.saturating_sub(deleted)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tribunal_types::{Read, Span, StoreSpec, Version};

    use super::*;

    const TRACKED: StoreId = StoreId(1);
    const DECLARED: StoreId = StoreId(2);

    fn row(n: u64) -> RowKey {
        RowKey { hi: n, lo: 0 }
    }

    /// Returns how many rows these writes may create, each to a different row; row 0 has been read and exists.
    fn added(writes: &[(StoreId, WriteKind, u8)]) -> u64 {
        added_at(Isolation::Serializable, writes)
    }

    fn added_at(isolation: Isolation, writes: &[(StoreId, WriteKind, u8)]) -> u64 {
        let spec = |id, existence| StoreSpec { id, name: format!("s{id}"), existence, ..StoreSpec::default() };
        let specs = [spec(TRACKED, Existence::Tracked), spec(DECLARED, Existence::Declared)];
        let catalog = Catalog::new(specs, Arc::new(|_, _, _| RowKey::default()));
        let write = |(n, &(store, kind, start_len)): (u64, &(StoreId, WriteKind, u8))| {
            let (key, value) = (Span::default(), Span::default());
            Write { row: row(n), store, key, value, kind, integer: true, start_len }
        };
        let read = Read { row: row(0), seen: Version::from_bits(1), store: TRACKED, key: Span::default() };
        let writes = (0..).zip(writes).map(write).collect();
        let txn = TxnRequest { isolation, reads: vec![read], writes, ..TxnRequest::default() };
        rows_added_at_most(&txn, &catalog)
    }

    #[test]
    fn writes_that_may_create_a_row_of_a_tracked_store_count() {
        use WriteKind::{Add, Delete, Insert, Put, Update};
        let read = (TRACKED, Put, 0);
        for (kind, start_len, rows) in
            [(Insert, 0, 1), (Put, 0, 1), (Update, 0, 0), (Delete, 0, 0), (Add, 0, 0), (Add, 2, 1)]
        {
            assert_eq!(added(&[read, (TRACKED, kind, start_len)]), rows, "{kind:?} {start_len}");
            assert_eq!(
                added(&[read, (DECLARED, kind, start_len)]),
                0,
                "the service does not know the rows of this store"
            );
            assert_eq!(added(&[(TRACKED, kind, start_len)]), 0, "the row exists");
        }
    }

    #[test]
    fn a_deleted_row_makes_room_for_one_in_its_transaction() {
        use WriteKind::{Delete, Insert, Put};
        let read = (TRACKED, Put, 0);
        let delete = (TRACKED, Delete, 0);
        let insert = (TRACKED, Insert, 0);
        assert_eq!(added(&[read, delete, insert]), 0);
        assert_eq!(added(&[read, insert, insert, delete]), 1, "in any order");
        assert_eq!(added(&[read, delete, delete, insert]), 0, "a transaction makes no room for others");
        assert_eq!(added(&[read, (DECLARED, Delete, 0), insert]), 1, "nobody knows whether that row exists");
    }

    #[test]
    fn a_row_that_was_only_said_to_be_read_counts_as_new() {
        for (level, rows) in Isolation::ALL.into_iter().zip([1, 0, 1, 0]) {
            assert_eq!(added_at(level, &[(TRACKED, WriteKind::Put, 0)]), rows, "{level:?}");
        }
    }
}
