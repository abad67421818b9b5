//! The problem of a request that reads a log.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tribunal_service::{Catalog, ServiceError};
use tribunal_types::StoreId;

use crate::response::problem::ProblemResponse;
use crate::response::response_json::store_name;

/// Builds the problem of a request that reads a log. If the log is truncated or replaced, it names where a reader can
/// start over.
#[must_use]
pub fn refused(error: ServiceError, catalog: &Catalog, store: StoreId) -> ProblemResponse {
    let mut problem = ProblemResponse::of_service(error, catalog);
    let is_truncated = problem.body.code == "log_truncated";
    if !is_truncated && problem.body.code != "log_replaced" {
        return problem;
    }
    // The service has no other state of such a store.
    if is_truncated && catalog.by_id(store).is_some_and(|spec| spec.adaptor.is_none()) {
        problem.body.detail.push_str(if problem.body.nodes.is_empty() {
            "; this store is only its log, so the service no longer has what they contain: restart from the rows of another reader, at \
             the LSN that they reflect"
        } else {
            "; this store is only its log, so it has no other state"
        });
        return problem;
    }
    let url = format!("/v1/stores/{}/state", utf8_percent_encode(store_name(catalog, store), NON_ALPHANUMERIC));
    problem.body.detail.push_str(&format!("; restart from the state, {url}"));
    problem.body.state_url = Some(url);
    problem
}
