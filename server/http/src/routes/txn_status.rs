//! `GET /v1/txns/{txn_id}`: the outcome of a transaction whose response was lost.

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use tribunal_api::{Problem, TxnOutcome};

use crate::app::App;
use crate::listener::connection::LongPoll;
use crate::request::caller::tenant;
use crate::request::query::{Query, path_txn_id};
use crate::response::content::json_response;
use crate::response::problem::ProblemResponse;
use crate::response::response_json::{JsonWriter, status, status_word};
use crate::response::service_problem::refuse;
use crate::routes::commit::TXN_STATUS;
use tribunal_service::StatusQuery;

/// Returns the outcome of a transaction. With `fence`, an id that has not arrived can never commit later.
///
/// Neither applies to transactions without writes: their verdicts are not stored, so their ids are `unknown`, and a fence does not
/// stop them.
#[utoipa::path(
    get, path = "/v1/txns/{txn_id}", operation_id = "txnStatus", tag = "transactions",
    params(
        ("txn_id" = String, Path, pattern = "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-7[0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}$", description = "The transaction, a UUIDv7"),
        ("wait_ms" = Option<u32>, Query, nullable = false, minimum = 0, maximum = 60000, description = "How long to wait for an outcome"),
        ("fence" = Option<bool>, Query, nullable = false, description = "`true`: make sure that an id that has not arrived can never commit a write; it is aborted with reason `fenced`, permanently"),
    ),
    responses(
        (status = 200, description = "The outcome. `unknown`: the transaction has not arrived. `unknown_expired`: it is so old that its verdict is no longer stored; it can no longer commit, so a fence has nothing to do", body = TxnOutcome, headers(
            ("txn-status" = String, description = "Same as `status`"),
        )),
        (status = 400, description = "Malformed request", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "`txn_id_expired`, with `fence`: the time in the id is so far ahead of the service's that a fence would not last. `verdict_truncated`: the transaction was decided, and the log with its verdict has been truncated", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The node is stopping, or is a member of a cluster and cannot tell whether another node has decided the transaction: not `unknown`; ask again, or ask another node", body = Problem, content_type = "application/problem+json", headers(
            ("retry-after" = u32, description = "When to retry, seconds; absent if unknown"),
        )),
        (status = 504, description = "With `fence`: it is not known within 30 s whether the id is fenced; ask again", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn txn_status(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let mut query = Query::new(parts.uri.query(), &["wait_ms", "fence"]);
    let id = query.noted(path_txn_id(parts.uri.path()));
    let asked = StatusQuery { namespace: tenant(&parts), id, wait_ms: query.wait_ms(), fence: query.flag("fence") };
    query.finish()?;
    let catalog = app.service.stores.catalog();
    let answer = match LongPoll::answer(&parts, app.service.txns.status(asked)).await {
        Some(answer) => answer,
        None => app.service.txns.status(StatusQuery { wait_ms: 0, ..asked }).await,
    };
    let answer = answer.map_err(refuse(&catalog))?;
    let mut json = JsonWriter::with_capacity(256);
    status(&mut json, id, &answer, &catalog);
    let mut response = json_response(StatusCode::OK, json.finish());
    response.headers_mut().insert(TXN_STATUS, HeaderValue::from_static(status_word(&answer)));
    Ok(response)
}
