//! The problem that a client gets for each error of the node.

use std::fmt::Write as _;

use axum::http::StatusCode;
use tribunal_api::ProblemError;
use tribunal_service::{Catalog, IdTime, ServiceError};
use tribunal_types::limits::{ID_WINDOW_MS, STATUS_AGE_MS};
use tribunal_types::{Lsn, NodeId, StoreId};

use crate::response::problem::{ProblemResponse, without_folders};

/// Retry delay for a transaction that is being decided, which takes a few epochs at most.
const IN_FLIGHT_RETRY_MS: u64 = 50;
/// Retry delay for a store whose push has stopped: an operator has to act first.
const STOPPED_RETRY_MS: u64 = 1_000;

/// Returns a function that maps the node's errors to problems.
pub fn refuse(catalog: &Catalog) -> impl FnOnce(ServiceError) -> ProblemResponse + '_ {
    move |error| ProblemResponse::of_service(error, catalog)
}

impl ProblemResponse {
    /// Builds the problem for an error of the node.
    #[must_use]
    pub fn of_service(error: ServiceError, catalog: &Catalog) -> Self {
        let name_of = |store: StoreId| catalog.by_id(store).map_or("a store", |spec| spec.name.as_str());
        match error {
            ServiceError::ClientMistake { code, pointer, detail } => client_mistake(code, pointer, detail),
            ServiceError::Overloaded { retry_after_ms } => {
                let detail = "the queues are full; nothing was taken in";
                ProblemResponse::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", detail)
                    .retryable(Some(retry_after_ms))
            }
            ServiceError::QuotaExceeded { retry_after_ms } => {
                let detail = "more is in flight than the quota allows";
                ProblemResponse::new(StatusCode::TOO_MANY_REQUESTS, "quota_exceeded", detail)
                    .retryable(Some(retry_after_ms))
            }
            ServiceError::TooManyRows { rows, new, max } => too_many_rows(rows, new, max),
            ServiceError::TooManyStoredBytes { stored, new, max } => too_many_stored_bytes(stored, new, max),
            ServiceError::Unavailable { detail } => internal_failure(&detail),
            ServiceError::OutcomeUnknown { detail } => {
                ProblemResponse::new(StatusCode::GATEWAY_TIMEOUT, "outcome_unknown", detail).retryable(None)
            }
            ServiceError::InFlight => {
                let detail = "this id is being decided; get its status with `wait_ms`";
                ProblemResponse::new(StatusCode::CONFLICT, "in_flight", detail).retryable(Some(IN_FLIGHT_RETRY_MS))
            }
            ServiceError::BodyMismatch => {
                let detail = "this id was used with another body: for a retry, get the transaction's status, since it may have \
                              committed; for a new transaction, use a new id";
                ProblemResponse::new(StatusCode::UNPROCESSABLE_ENTITY, "body_mismatch", detail)
            }
            ServiceError::TxnIdExpired(time) => txn_id_expired(time),
            ServiceError::LogTruncated { oldest, nodes } => log_truncated(oldest, &nodes),
            ServiceError::LogReplaced { log } => {
                let detail = format!(
                    "the position is of another log; this one is {log}: it was salvaged or replaced since, so the same \
                     number may be another record"
                );
                ProblemResponse::new(StatusCode::GONE, "log_replaced", detail)
            }
            ServiceError::StateGone { oldest } => state_gone(oldest),
            ServiceError::StoreLagging { store, retry_after_ms } => {
                let name = name_of(store);
                let detail = format!("store {name} has not applied everything that this request must see; retry");
                ProblemResponse::new(StatusCode::SERVICE_UNAVAILABLE, "store_lagging", detail)
                    .retryable(Some(retry_after_ms))
            }
            ServiceError::StoreStopped { store, reason } => store_stopped(name_of(store), &reason),
            ServiceError::StoreDetached { store } => {
                let name = name_of(store);
                let detail = format!("{name} is detached: its storage held too much of the log back, see its status");
                ProblemResponse::new(StatusCode::SERVICE_UNAVAILABLE, "store_detached", detail)
            }
            ServiceError::NotFound { what } => {
                ProblemResponse::new(StatusCode::NOT_FOUND, "not_found", format!("there is no {what}"))
            }
        }
    }
}

fn client_mistake(code: &'static str, pointer: String, detail: String) -> ProblemResponse {
    let mut problem = ProblemResponse::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail.clone());
    problem.body.errors = vec![ProblemError { pointer, code: code.to_owned(), detail }];
    problem
}

fn too_many_rows(rows: u64, new: u64, max: u64) -> ProblemResponse {
    let detail = format!(
        "the tracked stores of this namespace have {rows} rows, this request may add {new}, and {max} are \
         allowed: delete rows, or have an operator raise the bound. A put counts as a new row unless the \
         transaction has read the row, a delete makes room for one within its transaction, and deletes and \
         updates alone are accepted"
    );
    ProblemResponse::new(StatusCode::TOO_MANY_REQUESTS, "rows_exceeded", detail)
}

fn too_many_stored_bytes(stored: u64, new: u64, max: u64) -> ProblemResponse {
    let detail = format!(
        "the embedded stores of this namespace take {stored} bytes, this request may add {new}, and {max} are \
         allowed: delete rows, or have an operator raise the bound. Transactions that only delete are accepted; the \
         room returns once the stores are compacted: soon after an eighth of a store's rows were deleted, later after \
         fewer"
    );
    ProblemResponse::new(StatusCode::TOO_MANY_REQUESTS, "stored_bytes_exceeded", detail)
}

/// Keeps the paths of this machine out of the response.
fn internal_failure(detail: &str) -> ProblemResponse {
    let shown = without_folders(detail);
    if shown != detail {
        tracing::warn!(detail, "a request failed; the response does not contain the path");
    }
    ProblemResponse::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", shown).retryable(Some(1000))
}

fn txn_id_expired(time: IdTime) -> ProblemResponse {
    let minutes = ID_WINDOW_MS / 60_000;
    let (code, detail) = match time {
        IdTime::Ahead => (
            "txn_id_expired",
            format!(
                "the time in this id is more than {minutes} minutes after the service's, so the transaction is not executed; \
                 use a new id, and check the clock of the machine that generated this one"
            ),
        ),
        IdTime::Past => (
            "txn_id_expired",
            format!(
                "the time in this id is more than {minutes} minutes before the service's, and no verdict of it is known, so \
                 this request is not executed. If it is the first with this id, use a new one, and check the clock of the \
                 machine that generated it. Otherwise the transaction may have been executed, and its verdict was kept for \
                 {} hours or less: read its rows before you repeat it with a new id",
                STATUS_AGE_MS / 3_600_000
            ),
        ),
        IdTime::Forgotten => (
            "txn_id_forgotten",
            "the service remembers as many transaction ids as `resolver.status_bytes_max` permits, and no longer those of \
             the time in this one, so this request is not executed. If it is the first with this id, repeat it with a new \
             one. Otherwise the transaction may have been executed: read its rows first"
                .to_owned(),
        ),
    };
    ProblemResponse::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail)
}

/// `nodes` still have the records.
fn log_truncated(oldest: Lsn, nodes: &[NodeId]) -> ProblemResponse {
    let mut detail = format!("records before {oldest} have been truncated");
    if let [first, others @ ..] = nodes {
        let others: String = others.iter().map(|node| format!(", {node}")).collect();
        let _ = write!(detail, " on this node; pull them from node {first}{others}");
    }
    let mut problem = ProblemResponse::new(StatusCode::GONE, "log_truncated", detail);
    problem.body.oldest = Some(oldest.to_string());
    problem.body.nodes = nodes.iter().map(|node| node.0).collect();
    problem
}

fn state_gone(oldest: Lsn) -> ProblemResponse {
    let detail = format!(
        "this store is only its log, which now starts at {oldest}: the state before that is known only to readers of the \
         log; store a consumer's offset so that the log is not truncated too early"
    );
    let mut problem = ProblemResponse::new(StatusCode::GONE, "state_gone", detail);
    problem.body.oldest = Some(oldest.to_string());
    problem
}

fn store_stopped(name: &str, reason: &str) -> ProblemResponse {
    let detail = format!(
        "store {name} has not applied everything that this request must see, and its push has stopped: {}. See GET \
         /v1/stores/{name}",
        without_folders(reason)
    );
    ProblemResponse::new(StatusCode::SERVICE_UNAVAILABLE, "store_lagging", detail).retryable(Some(STOPPED_RETRY_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_internal_failure_does_not_reveal_paths() {
        let catalog = Catalog::new([], std::sync::Arc::new(|_, _, _| tribunal_types::RowKey { hi: 0, lo: 0 }));
        let error = ServiceError::Unavailable { detail: "open /var/lib/tribunal/rows/7: denied".into() };
        assert_eq!(ProblemResponse::of_service(error, &catalog).body.detail, "open 7: denied");
    }
}
