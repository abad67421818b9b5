//! `/v1/stores/{store}/rows`: reading the embedded store. Every response names the snapshot that it reflects at least.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use tribunal_api::{Problem, Row, RowPage};
use tribunal_types::Epoch;
use tribunal_types::limits::KEY_BYTES_MAX;

use crate::app::{App, json_response, refuse};
use crate::request::caller::tenant;
use crate::request::query::{Query, path_store, segments_from};
use crate::response::field_error::Code;
use crate::response::problem::ProblemResponse;
use crate::response::response_json::JsonWriter;
use tribunal_service::{RowsQuery, StoredRow};

/// Rows of a page whose request names no limit.
const LIMIT_DEFAULT: usize = 100;
/// Rows of one page.
const LIMIT_MAX: usize = 10_000;

/// Reads one row of an embedded store.
///
/// The key is percent-encoded, any bytes. A `/` may be written as it is or as `%2F`: `acct/1` and `acct%2F1` are one key.
#[utoipa::path(
    get, path = "/v1/stores/{store}/rows/{*key}", operation_id = "getRow", tag = "stores",
    params(
        ("store" = String, Path, description = "Name of the store"),
        ("key" = String, Path, description = "The row's key, percent-encoded"),
    ),
    responses(
        (status = 200, description = "The row", body = Row),
        (status = 404, description = "No such row (then with `applied`), or no such store", body = Problem, content_type = "application/problem+json"),
        (status = 414, description = "The key is too long", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The store is not embedded", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Not known now", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn get_row(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let catalog = app.service.stores.catalog();
    let spec = path_store(parts.uri.path(), &catalog, tenant(&parts))?;
    let key = segments_from(parts.uri.path(), 4).into_owned();
    if key.len() > KEY_BYTES_MAX {
        let detail = format!("the key has {} bytes, {KEY_BYTES_MAX} is the limit", key.len());
        return Err(ProblemResponse::new(StatusCode::URI_TOO_LONG, Code::KeyTooLong.parts().0, detail));
    }
    let answer = app.service.stores.row(spec.id, key).await.map_err(refuse(&catalog))?;
    let Some(row) = answer.row else {
        let mut problem = ProblemResponse::new(StatusCode::NOT_FOUND, "row_missing", "there is no such row");
        problem.body.applied = Some(answer.applied.to_string());
        return Err(problem);
    };
    let mut json = JsonWriter::with_capacity(128 + row.key.len() + row.value.len());
    write_row(&mut json, &row, Some(answer.applied));
    Ok(json_response(StatusCode::OK, json.finish()))
}

/// Reads rows of an embedded store in key order (bytewise).
#[utoipa::path(
    get, path = "/v1/stores/{store}/rows", operation_id = "listRows", tag = "stores",
    params(
        ("store" = String, Path, description = "Name of the store"),
        ("start" = Option<String>, Query, nullable = false, description = "First key, percent-encoded; the beginning of the store if absent"),
        ("end" = Option<String>, Query, nullable = false, description = "End of the range, exclusive; the end of the store if absent"),
        ("limit" = Option<u32>, Query, nullable = false, minimum = 1, maximum = 10000, description = "Maximum number of rows; 100 if absent"),
    ),
    responses(
        (status = 200, description = "The rows", body = RowPage),
        (status = 400, description = "The request cannot be read", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No such store", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Not known now", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn list_rows(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let catalog = app.service.stores.catalog();
    let spec = path_store(parts.uri.path(), &catalog, tenant(&parts))?;
    let mut query = Query::new(parts.uri.query(), &["start", "end", "limit"]);
    let asked = RowsQuery {
        store: spec.id,
        start: query.key("start"),
        end: query.key("end"),
        limit: query.limit(LIMIT_DEFAULT, LIMIT_MAX),
    };
    if !asked.end.is_empty() && asked.start >= asked.end {
        query.error(Code::EmptyRange, "end", "must be after start");
    }
    query.finish()?;
    let answer = app.service.stores.rows(asked).await.map_err(refuse(&catalog))?;
    let bytes: usize = answer.rows.iter().map(|row| 64 + row.key.len() + row.value.len()).sum();
    let mut json = JsonWriter::with_capacity(64 + bytes);
    json.open(b'{');
    json.decimal_field("applied", answer.applied.0);
    json.name("rows");
    json.open(b'[');
    for row in &answer.rows {
        write_row(&mut json, row, None);
    }
    json.close(b']');
    json.bool_field("more", answer.more);
    json.close(b'}');
    Ok(json_response(StatusCode::OK, json.finish()))
}

fn write_row(json: &mut JsonWriter, row: &StoredRow, applied: Option<Epoch>) {
    json.open(b'{');
    json.key_field("key", "key_b64", &row.key);
    json.value_field(&row.value);
    json.decimal_field("version", row.version.bits());
    if let Some(applied) = applied {
        json.decimal_field("applied", applied.0);
    }
    json.close(b'}');
}
