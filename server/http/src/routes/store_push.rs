//! `/v1/stores/{store}/push/*`: an operator's actions on a push that does not progress by itself.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::de::MapAccess;
use tribunal_api::{AttachRequest, Problem, SkipList, SkipRequest as WireSkip, SkippedRecord, StoreInfo};
use tribunal_types::{Lsn, StoreSpec};

use crate::app::App;
use crate::request::body::{MediaType, utf8};
use crate::request::caller::client_name;
use crate::request::json::{CANONICAL, Fields, ObjectSeed, decimal, document, scalar};
use crate::request::no_fields::no_fields;
use crate::response::content::wire_response;
use crate::response::field_error::{Code, FieldErrors, Path};
use crate::response::problem::ProblemResponse;
use crate::response::service_problem::refuse;
use crate::routes::stores::info;
use tribunal_service::SkipRequest;

/// Retries a push that stopped or waits, and likewise the delivery to the store's webhook. Changes nothing else: either may
/// stop again for the same reason. The answer has the state of the push to the storage; `GET /v1/stores/{store}/push` has the
/// webhook's.
///
/// The request has no body, or an empty object.
#[utoipa::path(
    post, path = "/v1/stores/{store}/push/resume", operation_id = "resumePush", tag = "stores",
    params(("store" = String, Path, description = "Name of the store")),
    responses(
        (status = 200, description = "The store, whose push is retried", body = StoreInfo),
        (status = 400, description = "The body is not an empty object", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No such store", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "The body is too large", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "There is a body, and it is not JSON", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The store is detached", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed; nothing was retried", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn resume_push(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let (spec, catalog) = app.known_store(&parts).await?;
    no_fields(&app, &parts, body).await?;
    app.service.stores.resume_push(spec.id).await.map_err(refuse(&catalog))?;
    standing(&app, &spec)
}

/// Skips the one record that a push stopped at, because the storage can never apply it. The storage never gets it;
/// it stays in the log, and the decision is recorded.
#[utoipa::path(
    post, path = "/v1/stores/{store}/push/skip", operation_id = "skipRecord", tag = "stores",
    params(("store" = String, Path, description = "Name of the store")),
    request_body(content = WireSkip, description = "The record to skip"),
    responses(
        (status = 200, description = "The store, whose push skips the record", body = StoreInfo),
        (status = 400, description = "Malformed request", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No such store", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The push did not stop at this record", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed; nothing was skipped", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn skip_record(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let (spec, _) = app.known_store(&parts).await?;
    let (_, bytes) = app.body(&parts, body, &[MediaType::Json]).await?;
    let Some(lsn) = position(utf8(&bytes)?, "lsn")? else {
        return Err(ProblemResponse::of_error(
            Code::MissingField,
            "/lsn",
            "is required: the record at which the push stopped",
        ));
    };
    let skip = SkipRequest { store: spec.id, lsn, by: client_name(&parts) };
    let catalog = app.service.stores.catalog();
    app.service.stores.skip_record(skip).await.map_err(refuse(&catalog))?;
    standing(&app, &spec)
}

/// Lists the records of a store that were skipped.
#[utoipa::path(
    get, path = "/v1/stores/{store}/push/skips", operation_id = "listSkips", tag = "stores",
    params(("store" = String, Path, description = "Name of the store")),
    responses(
        (status = 200, description = "Oldest decision first", body = SkipList),
        (status = 404, description = "No such store", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn list_skips(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let (spec, _) = app.known_store(&parts).await?;
    let skips = app.service.stores.skips(spec.id).into_iter().map(|skip| SkippedRecord {
        lsn: skip.lsn.to_string(),
        at_ms: skip.at_ms.to_string(),
        by: skip.by,
        reason: skip.reason,
    });
    Ok(wire_response(StatusCode::OK, &SkipList { skips: skips.collect() }))
}

/// Resumes the push to a store that is detached, or whose push has stopped because the log no longer has the records that the
/// store needs. The storage must respond, and contain enough for the log to continue from there, by its own watermark or because
/// it was loaded from elsewhere. An embedded store that has stopped on one of several nodes is resumed instead.
#[utoipa::path(
    post, path = "/v1/stores/{store}/push/attach", operation_id = "attachPush", tag = "stores",
    params(("store" = String, Path, description = "Name of the store")),
    request_body(content = AttachRequest, description = "Position of the storage"),
    responses(
        (status = 200, description = "The store, attached", body = StoreInfo),
        (status = 400, description = "Malformed request", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No such store", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The store is neither detached nor has its push stopped, or the log does not continue from the position of its storage; `storage_in_use`: another store fills it", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "The storage does not answer", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn attach_push(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let (spec, _) = app.known_store(&parts).await?;
    let (_, bytes) = app.body(&parts, body, &[MediaType::Json]).await?;
    let loaded = position(utf8(&bytes)?, "loaded_lsn")?;
    let catalog = app.service.stores.catalog();
    app.service.stores.attach_push(spec.id, loaded).await.map_err(refuse(&catalog))?;
    standing(&app, &spec)
}

fn standing(app: &App, spec: &StoreSpec) -> Result<Response, ProblemResponse> {
    let catalog = app.service.stores.catalog();
    Ok(wire_response(StatusCode::OK, &info(&app.service, spec).map_err(refuse(&catalog))?))
}

/// Parses an object whose only optional field is a position.
fn position(text: &str, name: &'static str) -> Result<Option<Lsn>, ProblemResponse> {
    let names: &'static [&'static str] = if name == "lsn" { &["lsn"] } else { &["loaded_lsn"] };
    let mut body = Body { names, lsn: None, errors: FieldErrors::default() };
    document(text, ObjectSeed { fields: &mut body, at: Path::Root })
        .map_err(|error| ProblemResponse::of_syntax(&error))?;
    if body.errors.is_empty() { Ok(body.lsn) } else { Err(ProblemResponse::of_errors(&body.errors)) }
}

struct Body {
    names: &'static [&'static str],
    lsn: Option<Lsn>,
    errors: FieldErrors,
}

impl<'de> Fields<'de> for Body {
    fn names(&self) -> &'static [&'static str] {
        self.names
    }

    fn field<A: MapAccess<'de>>(&mut self, _: usize, at: Path<'_>, map: &mut A) -> Result<(), A::Error> {
        if let Some(text) = scalar(map)?.text(at, &mut self.errors) {
            self.lsn = decimal(&text).map(Lsn);
            if self.lsn.is_none() {
                self.errors.add(Code::BadNumber, at, format!("must be a decimal number {CANONICAL}"));
            }
        }
        Ok(())
    }

    fn errors(&mut self) -> &mut FieldErrors {
        &mut self.errors
    }
}
