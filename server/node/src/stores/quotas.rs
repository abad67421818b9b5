//! Checks transactions against all bounds of what their tenant may keep.

use tribunal_service::ServiceError;
use tribunal_types::{NamespaceId, TxnRequest};

use crate::service::NodeService;
use crate::stores::stored_quota::added_at_most;
use crate::stores::tenant_bound::TenantBound;

/// Transactions of a batch, each with its place there.
type Placed<T> = Vec<(usize, T)>;

impl NodeService {
    /// Returns a tenant's bound; `None` if there is none.
    pub(crate) fn bound_of(&self, bound: &TenantBound, namespace: NamespaceId) -> Option<u64> {
        let default = (namespace != NamespaceId(0)).then_some(bound.default_max);
        if bound.by_namespace.is_empty() {
            return default;
        }
        bound.by_namespace.get(&self.tenant_name(namespace)).copied().or(default)
    }
    /// Refuses a transaction that may push its tenant over a bound.
    pub(crate) async fn check_quotas(&self, txn: &TxnRequest) -> Result<(), ServiceError> {
        self.check_rows(txn).await?;
        self.check_stored(txn).await
    }

    /// Checks the transactions of a batch in their order. Those that would push their tenant over a bound, together with
    /// the ones admitted before them, are returned separately, with the reason.
    pub(crate) async fn check_quotas_of_all(
        &self,
        txns: Placed<TxnRequest>,
    ) -> (Placed<TxnRequest>, Placed<ServiceError>) {
        // All transactions of one batch belong to one tenant.
        let Some(namespace) = txns.first().map(|(_, txn)| txn.namespace) else { return Default::default() };
        let rows_fit = self.has_room(namespace, txns.iter().map(|(_, txn)| txn.writes.len()).sum());
        let bytes_fit = self.has_disk_room(namespace, txns.iter().map(|(_, txn)| added_at_most(txn)).sum());
        if rows_fit && bytes_fit {
            return (txns, Vec::new());
        }
        let (mut admitted, mut refused) = (Vec::with_capacity(txns.len()), Vec::new());
        let (mut rows, mut bytes) = (0, 0);
        for (place, txn) in txns {
            let new_rows = if rows_fit { Ok(0) } else { self.check_new_rows(&txn, rows).await };
            let new_bytes = match &new_rows {
                Ok(_) if !bytes_fit => self.check_new_bytes(&txn, bytes).await,
                _ => Ok(0),
            };
            match new_rows.and_then(|rows| Ok((rows, new_bytes?))) {
                Ok((new_rows, new_bytes)) => {
                    rows += new_rows;
                    bytes += new_bytes;
                    admitted.push((place, txn));
                }
                Err(error) => refused.push((place, error)),
            }
        }
        (admitted, refused)
    }
}
