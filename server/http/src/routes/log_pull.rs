//! `GET /v1/log`: LogPull, page by page with long poll, or as a stream.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tribunal_api::{LogPage, Problem};
use tribunal_types::limits::LOG_PAGE_RECORDS_MAX;
use tribunal_types::{Lsn, StoreId};

use crate::app::{App, json_response};
use crate::listener::connection::LongPoll;
use crate::request::caller::tenant;
use crate::request::content_negotiation::{Form, accepted};
use crate::request::json::decimal;
use crate::request::query::Query;
use crate::request::txn_body::shown;
use crate::response::field_error::Code;
use crate::response::problem::ProblemResponse;
use crate::response::response_json::{JsonWriter, log_page, store_name};
use crate::routes::log_stream::{StreamQuery, open};
use tribunal_service::{Catalog, LogQuery, ServiceError};

/// Default number of records of a page.
const LIMIT_DEFAULT: usize = 1_000;
/// Bytes of keys and values of a page.
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Shortest time between two heartbeats, milliseconds.
const HEARTBEAT_MS_MIN: u64 = 100;
/// Header with which a reconnecting browser reports the last event it received.
const LAST_EVENT_ID: &str = "last-event-id";
/// This header in errors.
const LAST_EVENT_PLACE: &str = "last-event-id:";

/// LogPull: reads a store's committed log, dense in `lsn`.
///
/// `Accept` chooses the form. `application/json` is one page, with long poll. `application/x-ndjson` is a stream of one
/// `LogRecord` per line, and `text/event-stream` one of server-sent events whose id is the LSN, so that `Last-Event-ID`
/// resumes it. In a stream, lines and events with a field `event` are `LogEvent`s: heartbeats, one of which comes first, and
/// the end with its reason. A page of a stream that its client has not read counts towards the tenant's quota; if there is no
/// room for the next one, the stream ends with the problem `quota_exceeded`.
#[utoipa::path(
    get, path = "/v1/log", operation_id = "logPull", tag = "log",
    params(
        ("store" = String, Query, description = "Whose log"),
        ("after" = Option<String>, Query, nullable = false, description = "Position after which to start; 0 if absent"),
        ("log" = Option<String>, Query, nullable = false, description = "Log that `after` is a position of, as in an earlier page. If it is not this one, the answer is 410 rather than records that do not follow"),
        ("limit" = Option<u32>, Query, nullable = false, minimum = 1, maximum = 10000, description = "Most records to return: of a page, 1000 if absent; of a stream, no limit if absent"),
        ("wait_ms" = Option<u32>, Query, nullable = false, minimum = 0, maximum = 60000, description = "How long to wait for the first record of a page. A stream ends when no record has arrived for that long, and stays open if it is absent"),
        ("heartbeat_ms" = Option<u32>, Query, nullable = false, minimum = 100, maximum = 60000, description = "Streams only: longest time between two heartbeats; if absent, as long as the server's idle timeout allows"),
        ("last-event-id" = Option<String>, Header, nullable = false, description = "Server-sent events only: overrides `after`"),
    ),
    responses(
        (status = 200, description = "A page, empty if there is nothing new; or a stream", content(
            (LogPage = "application/json"),
            (String = "application/x-ndjson"),
            (String = "text/event-stream"),
        )),
        (status = 400, description = "Malformed request", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No such store", body = Problem, content_type = "application/problem+json"),
        (status = 406, description = "None of the forms is accepted", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The position has been truncated, or `log` is not the log of this node; restart from the state at `state_url`, which a truncated store without an adaptor does not have", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The position is past the end of the log", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn log_pull(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let form = accepted(&parts.headers, &[Form::Json, Form::NdJson, Form::Events])?;
    let read = |catalog: &Catalog| {
        let mut query = Query::new(parts.uri.query(), &["store", "after", "log", "limit", "wait_ms", "heartbeat_ms"]);
        let limit = query.bytes("limit").is_some().then(|| query.limit(LIMIT_DEFAULT, LOG_PAGE_RECORDS_MAX));
        let idle = query.bytes("wait_ms").is_some().then(|| query.wait_ms());
        let heartbeat = heartbeat(&mut query, app.options.heartbeat);
        let asked = LogQuery {
            store: query.store(catalog, tenant(&parts)),
            after: Lsn(query.number("after", 0, u64::MAX)),
            after_place: "?after",
            log: query.log(),
            limit: limit.unwrap_or(LIMIT_DEFAULT),
            bytes_max: PAGE_BYTES_MAX,
            wait_ms: idle.unwrap_or(0),
        };
        let last_event = if form == Form::Events { last_event_id(&parts, &mut query) } else { None };
        let asked = match last_event {
            Some(after) => LogQuery { after, after_place: LAST_EVENT_PLACE, ..asked },
            None => asked,
        };
        query.finish().map(|()| (asked, limit, idle, heartbeat))
    };
    let ((asked, limit, idle, heartbeat), catalog) = app.known(read).await?;
    let (store, name) = (asked.store, store_name(&catalog, asked.store).to_owned());
    if form != Form::Json {
        let records_max = limit.map(|limit| limit as u64);
        let stream =
            StreamQuery { from: asked, name, form, records_max, idle: idle.map(Duration::from_millis), heartbeat };
        let opened = open(app.clone(), &parts, stream).await;
        return opened.map_err(|error| refused(error, &catalog, store));
    }
    let page = match LongPoll::answer(&parts, app.service.log.log_page(asked)).await {
        Some(page) => page,
        None => app.service.log.log_page(LogQuery { wait_ms: 0, ..asked }).await,
    };
    let page = page.map_err(|error| refused(error, &catalog, store))?;
    let mut json = JsonWriter::with_capacity(256 + 200 * page.records.records.len() + 2 * page.records.bytes.len());
    log_page(&mut json, &page, &name);
    Ok(json_response(StatusCode::OK, json.finish()))
}

fn heartbeat(query: &mut Query<'_>, max: Duration) -> Duration {
    let max_ms = u64::try_from(max.as_millis()).unwrap_or(u64::MAX).max(HEARTBEAT_MS_MIN);
    // A value above the server's maximum counts as the maximum.
    let asked = query.number("heartbeat_ms", max_ms, tribunal_types::limits::WAIT_MS_MAX);
    if asked < HEARTBEAT_MS_MIN {
        query.error(Code::BadNumber, "heartbeat_ms", format!("must be {HEARTBEAT_MS_MIN} or more"));
    }
    Duration::from_millis(asked.min(max_ms))
}

fn last_event_id(parts: &Parts, query: &mut Query<'_>) -> Option<Lsn> {
    let value = parts.headers.get(LAST_EVENT_ID)?;
    let text = value.to_str().unwrap_or("?");
    let lsn = decimal(text).map(Lsn);
    // A browser that has received no event sends an empty one.
    if lsn.is_none() && !text.is_empty() {
        query.header_error(
            Code::BadParameter,
            LAST_EVENT_ID,
            format!("\"{}\" is not an LSN of this service", shown(text)),
        );
    }
    lsn
}

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
