//! `GET /v1/log`: LogPull, a page at a time, with long poll.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use tribunal_api::{LogPage, Problem};
use tribunal_types::Lsn;
use tribunal_types::limits::LOG_PAGE_RECORDS_MAX;

use crate::answer::{JsonWriter, log_page, store_name};
use crate::app::{App, json_response, refuse};
use crate::poster::tenant;
use crate::query::Query;
use crate::refusal::Refusal;
use crate::service::LogQuery;

/// Records of a page that does not say how many.
const LIMIT_DEFAULT: u64 = 1_000;
/// Bytes of keys and values of a page.
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// LogPull: reads a store's committed log, dense in `lsn`.
#[utoipa::path(
    get, path = "/v1/log", operation_id = "logPull", tag = "log",
    params(
        ("store" = String, Query, description = "Whose log"),
        ("after" = Option<String>, Query, nullable = false, description = "Position behind which to start; 0 if absent"),
        ("limit" = Option<u32>, Query, nullable = false, minimum = 1, maximum = 10000, description = "Most records to return; 1000 if absent"),
        ("wait_ms" = Option<u32>, Query, nullable = false, minimum = 0, maximum = 60000, description = "How long to wait for the first record"),
    ),
    responses(
        (status = 200, description = "A page, empty if there is nothing new", body = LogPage),
        (status = 400, description = "The request cannot be read", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No such store", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The log no longer reaches back that far", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "No page", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn log_pull(State(app): State<App>, request: Request) -> Result<Response, Refusal> {
    let (parts, _) = request.into_parts();
    let catalog = app.service.catalog();
    let mut query = Query::new(parts.uri.query(), &["store", "after", "limit", "wait_ms"]);
    let asked = LogQuery {
        store: query.store(&catalog, tenant(&parts)),
        after: Lsn(query.number("after", 0, u64::MAX)),
        limit: usize::try_from(query.number("limit", LIMIT_DEFAULT, LOG_PAGE_RECORDS_MAX as u64)).unwrap_or(1).max(1),
        bytes_max: PAGE_BYTES_MAX,
        wait_ms: query.wait_ms(),
    };
    query.finish()?;
    let page = app.service.log_page(asked).await.map_err(refuse(&catalog))?;
    let mut json = JsonWriter::with_capacity(256 + 200 * page.records.records.len() + 2 * page.records.bytes.len());
    log_page(&mut json, &page, store_name(&catalog, asked.store));
    Ok(json_response(StatusCode::OK, json.finish()))
}
