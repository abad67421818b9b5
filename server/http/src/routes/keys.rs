//! `/v1/admin/keys`: issue, list and revoke keys. The secret is returned once, by the response that creates the key.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::de::{MapAccess, SeqAccess};
use tribunal_api::{KeyCreated, KeyInfo, KeyList, KeyRequest, Problem};
use tribunal_types::limits::{KEY_EXPIRES_IN_S_MAX, NAME_BYTES_MAX};
use tribunal_types::{ApiKey, DEFAULT_NAMESPACE, NamespaceId, Role, Roles};

use crate::app::App;
use crate::request::body::{MediaType, utf8};
use crate::request::caller::principal;
use crate::request::json::{ArraySeed, Fields, Items, ObjectSeed, ScalarSeed, document, scalar};
use crate::request::query::{Query, segment};
use crate::request::txn_body::shown;
use crate::response::content::wire_response;
use crate::response::field_error::{Code, FieldErrors, Path};
use crate::response::problem::ProblemResponse;
use crate::response::service_problem::refuse;
use tribunal_service::{KeyStatus, NewKey, Principal, ServiceError};

/// Creates a key. An operator of the namespace `default` may create keys for every namespace, which creates the namespace
/// if it does not exist; other operators only for their own namespace.
#[utoipa::path(
    post, path = "/v1/admin/keys", operation_id = "createKey", tag = "access",
    request_body(content = KeyRequest, description = "The key to create"),
    responses(
        (status = 201, description = "The key; its secret is not returned again", body = KeyCreated),
        (status = 400, description = "The request cannot be read", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "The caller may not create keys for this namespace", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "A role has no effect in this namespace: `plugin-admin` outside `default`", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "No key was created", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn create_key(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let by = principal(&parts);
    let (_, bytes) = app.body(&parts, body, &[MediaType::Json]).await?;
    let new = read(utf8(&bytes)?, &by)?;
    if new.namespace != by.namespace_name && !by.runs_the_service() {
        let detail = format!("this operator may only create keys for the namespace {}", by.namespace_name);
        return Err(ProblemResponse::new(StatusCode::FORBIDDEN, "forbidden", detail));
    }
    let catalog = app.service.stores.catalog();
    let (key, secret) = app.service.keys.create_key(new).await.map_err(refuse(&catalog))?;
    let fresh = KeyStatus { key, last_used_ms: None, expired: false, lasts: false };
    let KeyInfo { id, name, namespace, roles, created_ms, expires_ms, .. } = info(&fresh);
    let created = KeyCreated { key: secret, id, name, namespace, roles, created_ms, expires_ms };
    Ok(wire_response(StatusCode::CREATED, &created))
}

/// Lists keys with their expiry and last use: those of all namespaces for an operator of the namespace `default`, otherwise
/// those of the caller's namespace. Expired keys are listed until they are revoked.
#[utoipa::path(
    get, path = "/v1/admin/keys", operation_id = "listKeys", tag = "access",
    responses(
        (status = 200, description = "The keys, without their secrets", body = KeyList),
        (status = "default", description = "The keys cannot be listed now", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn list_keys(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let keys = visible(&app, &parts).iter().map(info).collect();
    Ok(wire_response(StatusCode::OK, &KeyList { keys }))
}

/// Revokes a key. The last operator key of the namespace `default` is revoked with `force=true` only, because nobody could
/// create another one until a node starts again; another one that expires within a day, and before this one, does not count.
/// New requests with a revoked key are rejected. Open streams and long polls end within a second; commits that a stream
/// accepted before are answered. A stream whose client does not read accepts and sends nothing, and is closed when it has
/// waited for as long as a connection may idle.
#[utoipa::path(
    delete, path = "/v1/admin/keys/{id}", operation_id = "revokeKey", tag = "access",
    params(
        ("id" = String, Path, description = "Public part of the key"),
        ("force" = Option<bool>, Query, description = "Revoke even the last operator key of the namespace `default`", nullable = false),
    ),
    responses(
        (status = 204, description = "The key is revoked"),
        (status = 400, description = "A parameter cannot be read", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such key", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "It is the last operator key of the namespace `default`", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Nothing was changed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn revoke_key(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let mut query = Query::new(parts.uri.query(), &["force"]);
    let force = query.flag("force");
    query.finish()?;
    let (id, by) = (segment(parts.uri.path(), 3), principal(&parts).name.clone());
    let catalog = app.service.stores.catalog();
    // Two concurrent revocations could each take the other's key for the remaining one. A concurrent revocation on
    // another node of a cluster is not seen; the recovery after the loss of all operator keys remains.
    let one_at_a_time = Arc::clone(&app.revoking).lock_owned().await;
    let Some(found) = visible(&app, &parts).into_iter().find(|status| status.key.id.as_bytes() == &*id) else {
        return Err(refuse(&catalog)(ServiceError::NotFound { what: "such key".into() }));
    };
    let keys_are_needed = app.options.access.is_some();
    if keys_are_needed && !force && !found.expired && is_last_operator(&app.service.keys.keys(), &found.key) {
        let detail = "this is the last operator key of the namespace `default` (others that expire within a day, and before it, do \
                      not count): without it, nobody can create keys until a node that is started again writes a new one to \
                      `operator.key` in its data directory. Create another operator key first, or repeat this with \
                      `?force=true` (`tribunal key revoke --force`)";
        return Err(ProblemResponse::new(StatusCode::CONFLICT, "last_operator_key", detail));
    }
    let keys = Arc::clone(&app.service.keys);
    // A client that disconnects does not end the revocation, so the next one waits for it all the same.
    let revoking = tokio::spawn(async move {
        let revoked = keys.revoke_key(found.key.id, by).await;
        drop(one_at_a_time);
        revoked
    });
    let interrupted = |_| ServiceError::Unavailable {
        detail: "the revocation was interrupted; list the keys to see whether the key still exists".into(),
    };
    revoking.await.map_err(interrupted).and_then(|revoked| revoked).map_err(refuse(&catalog))?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// Returns whether this is the last key that can administer the service. Another key counts if it is valid for another day,
/// or for at least as long as this one.
fn is_last_operator(keys: &[KeyStatus], key: &ApiKey) -> bool {
    let runs_the_service = |key: &ApiKey| key.namespace == NamespaceId(0) && key.roles.has(Role::Operator);
    let outlives = |other: &ApiKey| other.expires_ms.is_none_or(|at| key.expires_ms.is_some_and(|own| own <= at));
    let counts = |other: &KeyStatus| !other.expired && (other.lasts || outlives(&other.key));
    let other = |status: &KeyStatus| status.key.id != key.id && counts(status) && runs_the_service(&status.key);
    runs_the_service(key) && !keys.iter().any(other)
}

fn visible(app: &App, parts: &Parts) -> Vec<KeyStatus> {
    let by = principal(parts);
    let mut keys = app.service.keys.keys();
    keys.retain(|status| by.runs_the_service() || status.key.namespace == by.namespace);
    keys
}

fn info(KeyStatus { key, last_used_ms, expired, .. }: &KeyStatus) -> KeyInfo {
    KeyInfo {
        id: key.id.clone(),
        name: key.name.clone(),
        namespace: key.namespace_name.clone(),
        roles: key.roles.names().map(str::to_owned).collect(),
        created_ms: key.created_ms.to_string(),
        expires_ms: key.expires_ms.map(|at| at.to_string()),
        last_used_ms: last_used_ms.map(|at| at.to_string()),
        expired: *expired,
    }
}

fn read(text: &str, by: &Principal) -> Result<NewKey, ProblemResponse> {
    let mut body = KeyBody::default();
    document(text, ObjectSeed { fields: &mut body, at: Path::Root })
        .map_err(|error| ProblemResponse::of_syntax(&error))?;
    if body.name.is_none() && body.errors.is_empty() {
        body.errors.add(Code::MissingField, "/name", "is required: a name for the key");
    }
    if body.roles == Roles::default() && body.errors.is_empty() {
        body.errors.add(Code::MissingField, "/roles", "is required: at least one role");
    }
    if !body.errors.is_empty() {
        return Err(ProblemResponse::of_errors(&body.errors));
    }
    let namespace = body.namespace.unwrap_or_else(|| by.namespace_name.clone());
    if namespace != DEFAULT_NAMESPACE && body.roles.has(Role::PluginAdmin) {
        let detail = format!(
            "`plugin-admin` has no effect in the namespace `{namespace}`, because plugins serve all tenants; leave it out, \
             or create a key with it in the namespace `{DEFAULT_NAMESPACE}`"
        );
        return Err(ProblemResponse::of_error(Code::RoleWithoutEffect, "/roles", detail));
    }
    let (name, roles, expires_in_s) = (body.name.unwrap_or_default(), body.roles, body.expires_in_s);
    Ok(NewKey { name, namespace, roles, expires_in_s, by: by.name.clone() })
}

#[derive(Default)]
struct KeyBody {
    name: Option<String>,
    namespace: Option<String>,
    roles: Roles,
    expires_in_s: Option<u32>,
    errors: FieldErrors,
}

impl<'de> Fields<'de> for KeyBody {
    fn names(&self) -> &'static [&'static str] {
        &["name", "namespace", "roles", "expires_in_s"]
    }

    fn field<A: MapAccess<'de>>(&mut self, index: usize, at: Path<'_>, map: &mut A) -> Result<(), A::Error> {
        if index == 2 {
            map.next_value_seed(ArraySeed { items: &mut RoleItems { body: self }, at })?;
            return Ok(());
        }
        if index == 3 {
            let seconds = scalar(map)?.small(1..=KEY_EXPIRES_IN_S_MAX, at, &mut self.errors);
            self.expires_in_s = seconds;
            return Ok(());
        }
        let Some(text) = scalar(map)?.text(at, &mut self.errors) else { return Ok(()) };
        let fits = !text.is_empty()
            && text.len() <= NAME_BYTES_MAX
            && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
        if !fits {
            let detail = format!("must be 1 to {NAME_BYTES_MAX} letters, digits, '.', '_' and '-'");
            self.errors.add(Code::BadName, at, detail);
        } else if index == 0 {
            self.name = Some(text.into_owned());
        } else {
            self.namespace = Some(text.into_owned());
        }
        Ok(())
    }

    fn errors(&mut self) -> &mut FieldErrors {
        &mut self.errors
    }
}

struct RoleItems<'a> {
    body: &'a mut KeyBody,
}

impl<'de> Items<'de> for RoleItems<'_> {
    fn item<A: SeqAccess<'de>>(&mut self, at: Path<'_>, _: usize, seq: &mut A) -> Result<bool, A::Error> {
        let Some(found) = seq.next_element_seed(ScalarSeed)? else { return Ok(false) };
        let body = &mut *self.body;
        if let Some(name) = found.text(at, &mut body.errors) {
            match Role::by_name(&name) {
                Some(role) => body.roles = Role::ALL.into_iter().filter(|r| *r == role || body.roles.has(*r)).collect(),
                None => {
                    let names: Vec<_> = Roles::ALL.names().collect();
                    let detail = format!("\"{}\" is not one of {}", shown(&name), names.join(", "));
                    body.errors.add(Code::UnknownValue, at, detail);
                }
            }
        }
        Ok(true)
    }

    fn errors(&mut self) -> &mut FieldErrors {
        &mut self.body.errors
    }
}
