//! Reports every verdict sent to a client: commits by tenant; aborts from every stage by tenant, store, level, stage
//! and reason, plus a debug line that names the row and the winner.
//!
//! A verdict answered again from the id table counts as replayed, and nowhere else.

use tribunal_service::Decided;
use tribunal_types::{Isolation, NamespaceId, Reason, Stage, TxnId, TxnRequest, Verdict};
use uuid::Uuid;

use crate::service::NodeService;
use crate::telemetry::metrics::AbortLabel;

/// The parts of a transaction that a report of its abort needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportedTxn {
    pub id: TxnId,
    pub namespace: NamespaceId,
    /// `None` if its client gave it up before it was committed.
    level: Option<Isolation>,
}

impl ReportedTxn {
    /// Returns the report data of `txn`.
    pub(crate) fn of(txn: &TxnRequest) -> ReportedTxn {
        ReportedTxn { id: txn.id, namespace: txn.namespace, level: Some(txn.isolation) }
    }

    /// Returns the report data of a transaction that its client gives up.
    pub(crate) fn given_up(namespace: NamespaceId, id: TxnId) -> ReportedTxn {
        ReportedTxn { id, namespace, level: None }
    }
}

impl NodeService {
    /// Reports a verdict.
    pub(crate) fn report(&self, txn: ReportedTxn, decided: &Decided) {
        if decided.replayed {
            self.shared.metrics.txns.replayed.inc();
            return;
        }
        if let Verdict::ReadOnly { .. } = decided.verdict {
            return self.shared.metrics.txns.count_read_only(txn.namespace);
        }
        if let Decided { verdict: Verdict::Committed { .. }, csn: Some(_), .. } = decided {
            return self.shared.metrics.txns.tenants.count_commit(txn.namespace);
        }
        let Decided { verdict: Verdict::Aborted { epoch, reason, conflicts }, .. } = decided else {
            return;
        };
        let conflict = conflicts.first();
        let stage = match reason {
            Reason::ClientAbort => Stage::Admission.name(),
            Reason::Fenced => Stage::Identity.name(),
            _ => conflict.map_or("", |conflict| conflict.stage.name()),
        };
        let store = conflict.and_then(|conflict| self.stores.catalog().by_id(conflict.store).cloned());
        let label = AbortLabel {
            reason: reason.to_string(),
            stage: stage.to_owned(),
            level: txn.level.map_or("", Isolation::name).to_owned(),
            namespace: self.tenant_name(txn.namespace),
            store: store.map_or(String::new(), |spec| spec.name.clone()),
        };
        self.shared.metrics.txns.count_abort(txn.namespace, *reason, &label);
        if tracing::enabled!(tracing::Level::DEBUG) {
            let AbortLabel { reason, stage, level, namespace, store } = &label;
            let row = conflict.map(|conflict| conflict.row.as_ref().unwrap_or(&conflict.key));
            let row = row.map(|key| key.escape_ascii().to_string());
            let by_txn = conflict.and_then(|conflict| conflict.by_txn).map(|winner| Uuid::from_bytes(winner.0));
            let current = conflict.and_then(|conflict| conflict.current_version).map(tribunal_types::Version::bits);
            let (txn, epoch) = (Uuid::from_bytes(txn.id.0), epoch.0);
            tracing::debug!(%txn, epoch, reason, stage, level, namespace, store, row, by_txn = ?by_txn, current_version = current, "aborted");
        }
    }
}
