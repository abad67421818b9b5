//! `/v1/stores`: declare, show and list stores; `/v1/snapshot`: the progress of a store.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use tribunal_api::{
    Problem, Snapshot, StorageDurability, StoreDeclaration, StoreExistence, StoreInfo, StoreList, StorePush,
    StorePushState,
};
use tribunal_types::limits::NAME_BYTES_MAX;
use tribunal_types::{Existence, StoreSpec};

use crate::app::App;
use crate::request::body::{MediaType, utf8};
use crate::request::caller::tenant;
use crate::request::json::{Fields, ObjectSeed, depth_within_limit, document, scalar};
use crate::request::query::{Query, path_store_name};
use crate::request::txn_body::shown;
use crate::response::content::wire_response;
use crate::response::field_error::{Code, FieldError, FieldErrors, Path};
use crate::response::problem::{ProblemResponse, without_folders};
use crate::response::service_problem::refuse;
use tribunal_service::{Catalog, PushState, Service, ServiceError};

/// Bytes of an adaptor's configuration.
const ADAPTOR_CONFIG_BYTES_MAX: usize = 64 * 1024;

/// The alternative to deleting a store.
pub const PERMANENT: &str = "a store cannot be deleted: its name, its log positions and its row versions are part of the \
                             replicated state. Delete its rows; to end its push, declare it with \"log_only\": true";

/// Declares a store, or changes one of the same name.
///
/// The same declaration again changes nothing. Another one replaces the one before: what it leaves out has its default. Only what
/// would be lost that way is not taken away by leaving it out: a store that has an adaptor needs `adaptor` or `log_only`, one with
/// `multi_version` needs that field, `true` or `false`, and one whose `existence` is `declared` needs that field. Everything can be
/// changed, except `existence` once the store has records or rows.
///
/// A store cannot be deleted: its name, its log positions and its row versions are part of the replicated state. Delete the
/// rows of a store that is no longer needed. A declaration with `log_only` takes the adaptor away from a store that has one: it
/// ends the push to its storage and no longer retains the log for it, and the rows of an embedded store can no longer be read.
#[utoipa::path(
    put, path = "/v1/stores/{store}", operation_id = "putStore", tag = "stores",
    params(("store" = String, Path, description = "Name: letters, digits, `.`, `_`, `-`; begins with a letter or digit; at most 64 bytes")),
    request_body(content = StoreDeclaration, description = "The declaration"),
    responses(
        (status = 200, description = "The store, changed", body = StoreInfo),
        (status = 201, description = "The store, created", body = StoreInfo),
        (status = 400, description = "Malformed request", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "Unknown adaptor, or the change is not possible; `adaptor_omitted`: the store has an adaptor, and the declaration has neither `adaptor` nor `log_only`; `multi_version_omitted`: the store has `multi_version`, and the declaration leaves it out; `existence_omitted`: the same of `existence` of a `declared` store; `existence_fixed`: the store has records or rows, so its `existence` cannot be changed; `storage_in_use`: another store fills the storage", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed; nothing was changed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn put_store(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let name = new_name(&parts)?;
    let (_, bytes) = app.body(&parts, body, &[MediaType::Json]).await?;
    let (mut spec, explicit) = declaration(utf8(&bytes)?)?;
    if explicit != Explicit::ALL {
        loses_nothing(&app, &parts, explicit).await?;
    }
    spec.name = name;
    spec.namespace = tenant(&parts);
    let catalog = app.service.stores.catalog();
    let declared = app.service.stores.declare_store(spec).await.map_err(refuse(&catalog))?;
    let status = if declared.created { StatusCode::CREATED } else { StatusCode::OK };
    let info = info(&app.service, &declared.spec).map_err(refuse(&catalog))?;
    Ok(wire_response(status, &info))
}

/// Returns a store with its progress and its push.
#[utoipa::path(
    get, path = "/v1/stores/{store}", operation_id = "getStore", tag = "stores",
    params(("store" = String, Path, description = "Name of the store")),
    responses(
        (status = 200, description = "The store", body = StoreInfo),
        (status = 404, description = "No such store", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn get_store(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let (spec, catalog) = app.known_store(&parts).await?;
    Ok(wire_response(StatusCode::OK, &info(&app.service, &spec).map_err(refuse(&catalog))?))
}

/// Lists the stores.
#[utoipa::path(
    get, path = "/v1/stores", operation_id = "listStores", tag = "stores",
    responses(
        (status = 200, description = "All stores, by name", body = StoreList),
        (status = "default", description = "The request failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn list_stores(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let catalog = app.service.stores.catalog();
    let stores: Result<Vec<_>, _> = catalog.list(tenant(&parts)).iter().map(|spec| info(&app.service, spec)).collect();
    Ok(wire_response(StatusCode::OK, &StoreList { stores: stores.map_err(refuse(&catalog))? }))
}

/// Returns the watermarks of a store: committed, durable, applied.
#[utoipa::path(
    get, path = "/v1/snapshot", operation_id = "getSnapshot", tag = "stores",
    params(("store" = String, Query, description = "Name of the store")),
    responses(
        (status = 200, description = "Its watermarks", body = Snapshot),
        (status = 404, description = "No such store", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn get_snapshot(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let named = |catalog: &Catalog| {
        let mut query = Query::new(parts.uri.query(), &["store"]);
        let store = query.store(catalog, tenant(&parts));
        query.finish().map(|()| store)
    };
    let (store, catalog) = app.known(named).await?;
    let watermarks = app.service.stores.watermarks(store).map_err(refuse(&catalog))?;
    let wire = Snapshot {
        store: crate::response::response_json::store_name(&catalog, store).to_owned(),
        committed: watermarks.committed.to_string(),
        durable: watermarks.durable.to_string(),
        applied: watermarks.applied.to_string(),
        log: Some(app.service.log.log_id().to_string()),
        head_lsn: Some(watermarks.head.to_string()),
    };
    Ok(wire_response(StatusCode::OK, &wire))
}

pub(crate) fn info(service: &Service, spec: &StoreSpec) -> Result<StoreInfo, ServiceError> {
    let status = service.stores.store_status(spec.id)?;
    Ok(StoreInfo {
        namespace: None,
        store: spec.name.clone(),
        existence: match spec.existence {
            Existence::Tracked => StoreExistence::Tracked,
            Existence::Declared => StoreExistence::Declared,
        },
        multi_version: spec.multi_version,
        transactional: spec.transactional,
        adaptor: spec.adaptor.clone(),
        adaptor_config: RawValue::from_string(spec.adaptor_config.clone()).ok(),
        rows: (spec.existence == Existence::Tracked).then(|| status.rows.to_string()),
        stored_bytes: status.stored_bytes.map(|bytes| bytes.to_string()),
        log: Some(service.log.log_id().to_string()),
        head_lsn: status.watermarks.head.to_string(),
        acked_lsn: status.acked.to_string(),
        committed: status.watermarks.committed.to_string(),
        durable: status.watermarks.durable.to_string(),
        applied: status.watermarks.applied.to_string(),
        push: StorePush {
            state: match status.push {
                PushState::LogOnly => StorePushState::LogOnly,
                PushState::Running => StorePushState::Running,
                PushState::BackingOff => StorePushState::BackingOff,
                PushState::Stopped => StorePushState::Stopped,
                PushState::Detached => StorePushState::Detached,
                PushState::Damaged => StorePushState::Damaged,
            },
            node: status.pushed_by.map(|node| node.0),
            lag_ms: status.lag_ms.to_string(),
            last_error: status.last_error.map(|error| without_folders(&error)),
            stopped_at_lsn: status.stopped_at.map(|lsn| lsn.to_string()),
            durability: status.durability.map(|durability| match durability {
                "always" => StorageDurability::Always,
                "everysec" => StorageDurability::Everysec,
                "none" => StorageDurability::None,
                _ => StorageDurability::Unknown,
            }),
        },
    })
}

fn new_name(parts: &Parts) -> Result<String, FieldError> {
    let name = path_store_name(parts.uri.path())?;
    let fits = name.len() <= NAME_BYTES_MAX
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
    if fits {
        return Ok(name);
    }
    let detail = format!(
        "\"{}\" must be letters, digits, '.', '_' and '-', begin with a letter or digit, and have at most \
         {NAME_BYTES_MAX} bytes",
        shown(&name)
    );
    Err(FieldError::in_path(Code::BadName, "store", detail))
}

/// The settings present in a declaration, among those that a store keeps until they are removed explicitly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Explicit {
    /// `adaptor`, or `log_only`.
    adaptor: bool,
    multi_version: bool,
    existence: bool,
}

impl Explicit {
    const ALL: Explicit = Explicit { adaptor: true, multi_version: true, existence: true };
}

/// Refuses to remove a store's adaptor or `multi_version`, or to make it tracked, by omission from a declaration.
async fn loses_nothing(app: &App, parts: &Parts, explicit: Explicit) -> Result<(), ProblemResponse> {
    let (known, catalog) = match app.known_store(parts).await {
        Ok(known) => known,
        Err(problem) if problem.names_unknown_store() => return Ok(()),
        Err(problem) => return Err(problem),
    };
    let refuse = |code: &'static str, pointer: &str, detail: String| {
        let omitted = ServiceError::ClientMistake { code, pointer: pointer.into(), detail };
        Err(ProblemResponse::of_service(omitted, &catalog))
    };
    if let Some(adaptor) = known.adaptor.as_ref().filter(|_| !explicit.adaptor) {
        let detail = format!(
            "store '{}' has the adaptor `{adaptor}`: declare it with `\"adaptor\": \"{adaptor}\"` and its adaptor_config to keep it, \
             or with `\"log_only\": true` to take it away",
            known.name
        );
        return refuse("adaptor_omitted", "/adaptor", detail);
    }
    if known.multi_version && !explicit.multi_version {
        let detail = format!(
            "store '{}' has multi_version: declare it with `\"multi_version\": true` to keep that, or with `\"multi_version\": false` \
             to take it away",
            known.name
        );
        return refuse("multi_version_omitted", "/multi_version", detail);
    }
    if known.existence == Existence::Declared && !explicit.existence {
        let detail = format!(
            "the existence of store '{}' is declared: declare it with `\"existence\": \"declared\"` to keep that, or, while it has \
             neither records nor rows, with `\"existence\": \"tracked\"` to change it",
            known.name
        );
        return refuse("existence_omitted", "/existence", detail);
    }
    Ok(())
}

/// Parses a declaration, and records which settings are present.
fn declaration(text: &str) -> Result<(StoreSpec, Explicit), ProblemResponse> {
    let mut body = Body {
        spec: StoreSpec::default(),
        log_only: false,
        has_multi_version: false,
        has_existence: false,
        errors: FieldErrors::default(),
    };
    document(text, ObjectSeed { fields: &mut body, at: Path::Root })
        .map_err(|malformed| ProblemResponse::of_syntax(&malformed))?;
    if body.spec.adaptor.is_none() && !body.spec.adaptor_config.is_empty() && body.errors.is_empty() {
        body.errors.add(Code::MissingField, "/adaptor", "is required with adaptor_config");
    }
    if body.spec.adaptor.is_some() && body.log_only && body.errors.is_empty() {
        body.errors.add(
            Code::ExclusiveFields,
            "/log_only",
            "a log-only store has no adaptor: leave out one of the two",
        );
    }
    if !body.errors.is_empty() {
        return Err(ProblemResponse::of_errors(&body.errors));
    }
    let adaptor = body.spec.adaptor.is_some() || body.log_only;
    Ok((body.spec, Explicit { adaptor, multi_version: body.has_multi_version, existence: body.has_existence }))
}

struct Body {
    spec: StoreSpec,
    log_only: bool,
    has_multi_version: bool,
    has_existence: bool,
    errors: FieldErrors,
}

impl<'de> Fields<'de> for Body {
    fn names(&self) -> &'static [&'static str] {
        &["existence", "multi_version", "transactional", "adaptor", "adaptor_config", "log_only"]
    }

    fn field<A: MapAccess<'de>>(&mut self, index: usize, at: Path<'_>, map: &mut A) -> Result<(), A::Error> {
        if index == 4 {
            let config = map.next_value::<&'de RawValue>()?.get();
            if !config.starts_with('{') {
                self.errors.add(Code::WrongType, at, "must be an object");
            } else if config.len() > ADAPTOR_CONFIG_BYTES_MAX {
                self.errors.add(Code::ValueTooLarge, at, format!("{ADAPTOR_CONFIG_BYTES_MAX} bytes is the limit"));
            } else if !depth_within_limit(config, 1) {
                self.errors.add(Code::TooDeep, at, "nested deeper than 64 levels");
            }
            config.clone_into(&mut self.spec.adaptor_config);
            return Ok(());
        }
        let found = scalar(map)?;
        let errors = &mut self.errors;
        match index {
            0 => {
                let given = found.text(at, errors);
                self.has_existence = given.is_some();
                match given.as_deref() {
                    Some("tracked") | None => self.spec.existence = Existence::Tracked,
                    Some("declared") => self.spec.existence = Existence::Declared,
                    Some(other) => {
                        let detail = format!("\"{}\" must be tracked or declared", shown(other));
                        errors.add(Code::UnknownValue, at, detail);
                    }
                }
            }
            1 => {
                let given = found.boolean(at, errors);
                (self.spec.multi_version, self.has_multi_version) = (given.unwrap_or(false), given.is_some());
            }
            2 => self.spec.transactional = found.boolean(at, errors).unwrap_or(false),
            5 => self.log_only = found.boolean(at, errors).unwrap_or(false),
            _ => {
                self.spec.adaptor = found.text(at, errors).map(std::borrow::Cow::into_owned);
                if self.spec.adaptor.as_ref().is_some_and(|name| name.is_empty() || name.len() > NAME_BYTES_MAX) {
                    errors.add(Code::BadName, at, format!("must have 1 to {NAME_BYTES_MAX} bytes"));
                }
            }
        }
        Ok(())
    }

    fn errors(&mut self) -> &mut FieldErrors {
        &mut self.errors
    }
}
