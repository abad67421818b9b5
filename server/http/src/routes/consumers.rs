//! `/v1/consumers`: durable offsets of consumers, with their lag.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::de::MapAccess;
use tribunal_api::{ConsumerInfo, ConsumerList, ConsumerOffset, OffsetRequest, Problem};
use tribunal_types::limits::NAME_BYTES_MAX;
use tribunal_types::{LogId, Lsn, StoreId};

use crate::app::App;
use crate::request::body::{MediaType, utf8};
use crate::request::caller::tenant;
use crate::request::json::{CANONICAL, Fields, ObjectSeed, decimal, document, scalar};
use crate::request::query::{Query, segment};
use crate::request::txn_body::{no_such_store, shown};
use crate::response::content::wire_response;
use crate::response::field_error::{Code, FieldError, FieldErrors, Path};
use crate::response::log_problem::refused;
use crate::response::problem::ProblemResponse;
use crate::response::response_json::store_name;
use crate::response::service_problem::refuse;
use tribunal_service::Catalog;
use tribunal_service::ConsumerStatus;

/// Stores a consumer's offset in one store's log, durably. The first one creates the consumer.
///
/// An offset may also be moved back. While a consumer lags, the log is truncated only for its size, not for its age.
///
/// An offset is a position in one log. If the node's log is salvaged or replaced, stored offsets keep the id of the old one
/// (`log` of the offset differs from `log` of the consumer): start over from the state of the store, and store a new offset.
#[utoipa::path(
    put, path = "/v1/consumers/{name}", operation_id = "putConsumer", tag = "log",
    params(("name" = String, Path, description = "Name: letters, digits, `.`, `_`, `-`; begins with a letter or digit; at most 64 bytes")),
    request_body(content = OffsetRequest, description = "The new offset"),
    responses(
        (status = 200, description = "The consumer with its new offset", body = ConsumerInfo),
        (status = 400, description = "Malformed request", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No such store", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "`log` is not the log of this node; start over from `state_url`", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The position is past the end of the log, or there are too many consumers", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed; nothing was changed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn put_consumer(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let name = consumer_name(&parts)?;
    let (_, bytes) = app.body(&parts, body, &[MediaType::Json]).await?;
    let text = utf8(&bytes)?;
    let read = |catalog: &Catalog| {
        let mut body = OffsetBody { store: None, lsn: None, log: None, errors: FieldErrors::default() };
        document(text, ObjectSeed { fields: &mut body, at: Path::Root })
            .map_err(|malformed| ProblemResponse::of_syntax(&malformed))?;
        body.checked(catalog, tenant(&parts))
    };
    let ((store, lsn, log), catalog) = app.known(read).await?;
    let set = app.service.log.set_offset(tenant(&parts), name, store, lsn, log).await;
    let status = set.map_err(|error| refused(error, &catalog, store))?;
    Ok(wire_response(StatusCode::OK, &wire(status, &catalog)))
}

/// Shows a consumer's offsets and lag.
#[utoipa::path(
    get, path = "/v1/consumers/{name}", operation_id = "getConsumer", tag = "log",
    params(("name" = String, Path, description = "Name of the consumer")),
    responses(
        (status = 200, description = "The consumer", body = ConsumerInfo),
        (status = 404, description = "No such consumer", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn get_consumer(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let name = consumer_name(&parts)?;
    let catalog = app.service.stores.catalog();
    let found = app.service.log.consumers(tenant(&parts), Some(name)).await.map_err(refuse(&catalog))?;
    match found.into_iter().next() {
        Some(status) => Ok(wire_response(StatusCode::OK, &wire(status, &catalog))),
        None => Err(unknown()),
    }
}

/// Lists the consumers with their lag.
#[utoipa::path(
    get, path = "/v1/consumers", operation_id = "listConsumers", tag = "log",
    responses(
        (status = 200, description = "All consumers, by name", body = ConsumerList),
        (status = "default", description = "The request failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn list_consumers(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let catalog = app.service.stores.catalog();
    let found = app.service.log.consumers(tenant(&parts), None).await.map_err(refuse(&catalog))?;
    let consumers = found.into_iter().map(|status| wire(status, &catalog)).collect();
    Ok(wire_response(StatusCode::OK, &ConsumerList { consumers }))
}

/// Deletes a consumer, or its offset in one store. The log is no longer retained for it.
#[utoipa::path(
    delete, path = "/v1/consumers/{name}", operation_id = "deleteConsumer", tag = "log",
    params(
        ("name" = String, Path, description = "Name of the consumer"),
        ("store" = Option<String>, Query, nullable = false, description = "Delete its offset in this store only"),
    ),
    responses(
        (status = 204, description = "Deleted"),
        (status = 404, description = "No such consumer or store", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed; nothing was changed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn delete_consumer(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let named = |catalog: &Catalog| {
        let mut query = Query::new(parts.uri.query(), &["store"]);
        let name = query.noted(consumer_name(&parts));
        let store = query.bytes("store").is_some().then(|| query.store(catalog, tenant(&parts)));
        query.finish().map(|()| (name, store))
    };
    let ((name, store), catalog) = app.known(named).await?;
    if app.service.log.forget_consumer(tenant(&parts), name, store).await.map_err(refuse(&catalog))? {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return Ok(response);
    }
    Err(unknown())
}

fn unknown() -> ProblemResponse {
    ProblemResponse::new(
        StatusCode::NOT_FOUND,
        "unknown_consumer",
        "there is no consumer of this name, or it has no offset in the store that the request names, if it names one",
    )
}

/// Returns the name in `/v1/consumers/{name}`.
fn consumer_name(parts: &Parts) -> Result<String, FieldError> {
    let bytes = segment(parts.uri.path(), 2);
    let name = String::from_utf8_lossy(&bytes);
    let fits = name.len() <= NAME_BYTES_MAX
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    if fits {
        return Ok(name.into_owned());
    }
    let detail = format!(
        "\"{}\" must be letters, digits, '.', '_' and '-', begin with a letter or digit, and have at most \
         {NAME_BYTES_MAX} bytes",
        shown(&name)
    );
    Err(FieldError::in_path(Code::BadName, "name", detail))
}

/// Makes the wire form of a consumer.
#[must_use]
pub fn wire(status: ConsumerStatus, catalog: &Catalog) -> ConsumerInfo {
    let offset = |at: &tribunal_service::ConsumerPosition| ConsumerOffset {
        store: store_name(catalog, at.store).to_owned(),
        log: at.log.to_string(),
        lsn: at.lsn.to_string(),
        head_lsn: at.head.to_string(),
        lag_records: at.head.0.saturating_sub(at.lsn.0).to_string(),
        lag_ms: at.lag_ms.to_string(),
        truncated_below: at.truncated_below.map(|oldest| oldest.to_string()),
        updated_at_ms: at.updated_at_ms.to_string(),
    };
    let mut offsets: Vec<_> = status.positions.iter().map(offset).collect();
    offsets.sort_by(|a, b| a.store.cmp(&b.store));
    ConsumerInfo { name: status.name, log: status.log.to_string(), offsets }
}

struct OffsetBody {
    store: Option<String>,
    lsn: Option<String>,
    log: Option<String>,
    errors: FieldErrors,
}

impl OffsetBody {
    fn checked(
        mut self,
        catalog: &Catalog,
        namespace: tribunal_types::NamespaceId,
    ) -> Result<(StoreId, Lsn, Option<LogId>), ProblemResponse> {
        for (name, given) in [("store", &self.store), ("lsn", &self.lsn)] {
            if given.is_none() && self.errors.is_empty() {
                self.errors.add(Code::MissingField, Path::Root.field(name), "is required");
            }
        }
        let name = self.store.unwrap_or_default();
        let lsn = self.lsn.as_deref().map(decimal);
        if lsn == Some(None) {
            self.errors.add(Code::BadNumber, "/lsn", format!("must be a decimal string {CANONICAL}"));
        }
        let log = self.log.as_deref().map(str::parse);
        if matches!(log, Some(Err(_))) {
            let detail = "must be the id of a log from a response: 32 hexadecimal digits";
            self.errors.add(Code::BadParameter, "/log", detail);
        }
        let spec = catalog.store(namespace, &name);
        if spec.is_none() && self.errors.is_empty() {
            self.errors.add(Code::UnknownStore, "/store", no_such_store(&name));
        }
        match (spec, lsn.flatten()) {
            (Some(spec), Some(lsn)) if self.errors.is_empty() => Ok((spec.id, Lsn(lsn), log.and_then(Result::ok))),
            _ => Err(ProblemResponse::of_errors(&self.errors)),
        }
    }
}

impl<'de> Fields<'de> for OffsetBody {
    fn names(&self) -> &'static [&'static str] {
        &["store", "lsn", "log"]
    }

    fn field<A: MapAccess<'de>>(&mut self, index: usize, at: Path<'_>, map: &mut A) -> Result<(), A::Error> {
        let text = scalar(map)?.text(at, &mut self.errors).map(std::borrow::Cow::into_owned);
        *[&mut self.store, &mut self.lsn, &mut self.log][index] = text;
        Ok(())
    }

    fn errors(&mut self) -> &mut FieldErrors {
        &mut self.errors
    }
}
