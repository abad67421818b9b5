//! `/v1/stores/{store}/rows`: reads of embedded stores. Every response contains the epoch that it reflects.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use tribunal_api::{Consistency, Problem, ReadRequest, ReadResponse, Row, RowPage};
use tribunal_types::Epoch;
use tribunal_types::limits::KEY_BYTES_MAX;

use crate::app::App;
use crate::request::body::{MediaType, utf8};
use crate::request::caller::tenant;
use crate::request::freshness::freshness_of_query;
use crate::request::query::{Query, path_store, segments_from};
use crate::request::read_body::{LIMIT_DEFAULT, LIMIT_MAX, ReadDraft, read_query};
use crate::response::content::json_response;
use crate::response::field_error::Code;
use crate::response::problem::ProblemResponse;
use crate::response::response_json::{JsonWriter, session_token, store_name};
use crate::response::service_problem::refuse;
use tribunal_service::{
    Catalog, ReadAnswer, ReadQuery, RowQuery, RowState, RowsQuery, ServiceError, Session, StoredRow,
};

/// Query parameters of the freshness that the rows require.
const FRESHNESS: [&str; 3] = ["session", "consistency", "wait_ms"];

/// Reads one row of an embedded store.
///
/// A key may have any bytes, percent-encoded. A `/` may be written as it is or as `%2F`: `acct/1` and `acct%2F1` are the
/// same key.
#[utoipa::path(
    get, path = "/v1/stores/{store}/rows/{*key}", operation_id = "getRow", tag = "stores",
    params(
        ("store" = String, Path, description = "Name of the store"),
        ("key" = String, Path, description = "Key of the row, percent-encoded"),
        ("session" = Option<String>, Query, nullable = false, description = "Session token of an earlier response: wait until the store has applied what it covers"),
        ("consistency" = Option<Consistency>, Query, nullable = false, description = "What the row must include: `session` if absent"),
        ("wait_ms" = Option<u32>, Query, nullable = false, minimum = 0, maximum = 60000, description = "Timeout of the wait for `session`, `consistency` or a store that is being opened, milliseconds; 5000 if absent"),
    ),
    responses(
        (status = 200, description = "The row", body = Row),
        (status = 404, description = "No such row (then with `applied`), or no such store", body = Problem, content_type = "application/problem+json"),
        (status = 414, description = "The key is too long", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The store is not embedded", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn get_row(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let (spec, catalog) = app.known_store(&parts).await?;
    let key = segments_from(parts.uri.path(), 4).into_owned();
    if key.len() > KEY_BYTES_MAX {
        let detail = format!("the key has {} bytes, {KEY_BYTES_MAX} is the limit", key.len());
        return Err(ProblemResponse::new(StatusCode::URI_TOO_LONG, Code::KeyTooLong.parts().0, detail));
    }
    let mut query = Query::new(parts.uri.query(), &FRESHNESS);
    let freshness = freshness_of_query(&mut query);
    query.finish()?;
    let row = RowQuery { store: spec.id, key: key.clone(), known: None };
    let query = ReadQuery { path_store: Some(spec.id), rows: vec![row], ranges: Vec::new() };
    let answer = app.service.stores.read(query, freshness).await.map_err(refuse_query(&catalog))?;
    let Some(RowState::Found { value, version }) = answer.rows.into_iter().next() else {
        let mut problem = ProblemResponse::new(StatusCode::NOT_FOUND, "row_missing", "there is no such row");
        problem.body.applied = Some(answer.applied.to_string());
        problem.body.session = Some(session_token(Session(answer.applied)));
        return Err(problem);
    };
    let mut json = JsonWriter::with_capacity(128 + key.len() + value.len());
    write_row(&mut json, &StoredRow { key, value, version }, Some(answer.applied));
    Ok(json_response(StatusCode::OK, json.finish()))
}

/// Reads rows of an embedded store in key order (bytewise).
#[utoipa::path(
    get, path = "/v1/stores/{store}/rows", operation_id = "listRows", tag = "stores",
    params(
        ("store" = String, Path, description = "Name of the store"),
        ("start" = Option<String>, Query, nullable = false, description = "First key, percent-encoded; the beginning of the store if absent"),
        ("end" = Option<String>, Query, nullable = false, description = "End of the range, exclusive; the end of the store if absent or empty"),
        ("limit" = Option<u32>, Query, nullable = false, minimum = 1, maximum = 10000, description = "Maximum number of rows; 100 if absent"),
        ("session" = Option<String>, Query, nullable = false, description = "Session token of an earlier response: wait until the store has applied what it covers"),
        ("consistency" = Option<Consistency>, Query, nullable = false, description = "What the rows must include: `session` if absent"),
        ("wait_ms" = Option<u32>, Query, nullable = false, minimum = 0, maximum = 60000, description = "Timeout of the wait for `session`, `consistency` or a store that is being opened, milliseconds; 5000 if absent"),
    ),
    responses(
        (status = 200, description = "The rows", body = RowPage),
        (status = 400, description = "Malformed request", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No such store", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn list_rows(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let asked = |catalog: &Catalog| {
        let mut query =
            Query::new(parts.uri.query(), &["start", "end", "limit", FRESHNESS[0], FRESHNESS[1], FRESHNESS[2]]);
        let spec = query.noted(path_store(parts.uri.path(), catalog, tenant(&parts)));
        let asked = RowsQuery {
            store: spec.id,
            start: query.key("start"),
            end: query.key("end"),
            limit: query.limit(LIMIT_DEFAULT, LIMIT_MAX),
        };
        if !asked.end.is_empty() && asked.start >= asked.end {
            query.error(Code::EmptyRange, "end", "must be after start");
        }
        let freshness = freshness_of_query(&mut query);
        query.finish().map(|()| (asked, freshness))
    };
    let ((asked, freshness), catalog) = app.known(asked).await?;
    let query = ReadQuery { path_store: Some(asked.store), rows: Vec::new(), ranges: vec![asked] };
    let answer = app.service.stores.read(query, freshness).await.map_err(refuse_query(&catalog))?;
    let range = answer.ranges.into_iter().next().unwrap_or_default();
    let bytes: usize = range.rows.iter().map(|row| 64 + row.key.len() + row.value.len()).sum();
    let mut json = JsonWriter::with_capacity(64 + bytes);
    json.open(b'{');
    reflected(&mut json, answer.applied);
    json.name("rows");
    json.open(b'[');
    for row in &range.rows {
        write_row(&mut json, row, None);
    }
    json.close(b']');
    json.bool_field("more", range.more);
    json.close(b'}');
    Ok(json_response(StatusCode::OK, json.finish()))
}

/// Reads rows and ranges of an embedded store, all at the same epoch. They include every commit that this node has
/// acknowledged before the request, and with `session` or `consistency` what others have.
///
/// If a row names a `version` that is still current, the response has `unchanged` instead of the value, so a cache can be
/// revalidated with one request. The returned versions can be passed to a commit in its `reads`.
#[utoipa::path(
    post, path = "/v1/stores/{store}/rows/read", operation_id = "readRows", tag = "stores",
    params(("store" = String, Path, description = "Name of the store")),
    request_body(content = ReadRequest, description = "The rows and ranges"),
    responses(
        (status = 200, description = "The rows", body = ReadResponse),
        (status = 400, description = "The request cannot be read", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No such store", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The store is not embedded, or the rows and the first row of each range exceed 8 MiB", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The store lags", body = Problem, content_type = "application/problem+json", headers(
            ("retry-after" = u32, description = "When to retry, seconds; absent if unknown"),
        )),
        (status = "default", description = "The rows cannot be read now", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn read_rows(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let namespace = tenant(&parts);
    let (spec, _) = app.known_store(&parts).await?;
    let (_, bytes) = app.body(&parts, body, &[MediaType::Json]).await?;
    let text = utf8(&bytes)?;
    let read = |catalog: &Catalog| {
        let query = ReadQuery { path_store: Some(spec.id), ..ReadQuery::default() };
        read_query(text, ReadDraft { catalog, namespace, query })
    };
    let ((query, freshness), catalog) = app.known(read).await?;
    let answer = app.service.stores.read(query.clone(), freshness).await.map_err(refuse(&catalog))?;
    let mut json = JsonWriter::with_capacity(64 + 64 * query.rows.len());
    json.open(b'{');
    reflected(&mut json, answer.applied);
    write_read(&mut json, &query, &answer, &catalog);
    json.close(b'}');
    Ok(json_response(StatusCode::OK, json.finish()))
}

/// Writes the fields `rows` and `ranges` of a response, if the query has them.
pub fn write_read(json: &mut JsonWriter, query: &ReadQuery, answer: &ReadAnswer, catalog: &Catalog) {
    if !query.rows.is_empty() {
        json.name("rows");
        json.open(b'[');
        for (asked, state) in query.rows.iter().zip(&answer.rows) {
            json.open(b'{');
            json.text_field("store", store_name(catalog, asked.store));
            json.key_field("key", "key_b64", &asked.key);
            match state {
                RowState::Absent => {}
                RowState::Unchanged(version) => {
                    json.decimal_field("version", version.bits());
                    json.bool_field("unchanged", true);
                }
                RowState::Found { value, version } => {
                    json.value_field(value);
                    json.decimal_field("version", version.bits());
                }
            }
            json.close(b'}');
        }
        json.close(b']');
    }
    if !query.ranges.is_empty() {
        json.name("ranges");
        json.open(b'[');
        for (asked, range) in query.ranges.iter().zip(&answer.ranges) {
            json.open(b'{');
            json.text_field("store", store_name(catalog, asked.store));
            json.name("rows");
            json.open(b'[');
            range.rows.iter().for_each(|row| write_row(json, row, None));
            json.close(b']');
            json.bool_field("more", range.more);
            json.close(b'}');
        }
        json.close(b']');
    }
}

/// Writes the epoch that a response reflects, and the token with which later requests include it, too.
fn reflected(json: &mut JsonWriter, applied: Epoch) {
    json.decimal_field("applied", applied.0);
    json.text_field("session", &session_token(Session(applied)));
}

/// Returns the mapping of errors for a read whose freshness is in query parameters.
fn refuse_query(catalog: &Catalog) -> impl FnOnce(ServiceError) -> ProblemResponse {
    let refuse = refuse(catalog);
    move |mut error| {
        if let ServiceError::ClientMistake { pointer, .. } = &mut error
            && pointer == "/session"
        {
            *pointer = "?session".to_owned();
        }
        refuse(error)
    }
}

fn write_row(json: &mut JsonWriter, row: &StoredRow, applied: Option<Epoch>) {
    json.open(b'{');
    json.key_field("key", "key_b64", &row.key);
    json.value_field(&row.value);
    json.decimal_field("version", row.version.bits());
    if let Some(applied) = applied {
        reflected(json, applied);
    }
    json.close(b'}');
}
