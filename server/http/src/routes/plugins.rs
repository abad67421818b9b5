//! `/v1/admin/plugins`: upload, list, activate, roll back and delete plugins.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use serde::de::MapAccess;
use serde_json::value::RawValue;
use tribunal_api::{
    PluginActivate, PluginActivation, PluginCheck, PluginComponent, PluginDeactivate, PluginDeleted, PluginFaults,
    PluginHealth, PluginInfo, PluginList, PluginMiss, PluginReplaced, PluginRollback, PluginStore, PluginUpload,
    PluginVersion, Problem,
};
use tribunal_types::limits::{NAME_BYTES_MAX, PLUGIN_BYTES_MAX, PLUGIN_CONFIG_BYTES_MAX};
use tribunal_types::{Epoch, PluginSlot};

use crate::app::App;
use crate::request::body::{MediaType, utf8, wasm_type};
use crate::request::caller::client_name;
use crate::request::json::{CANONICAL, Fields, ObjectSeed, decimal, depth_within_limit, document, scalar};
use crate::request::query::{Query, segment};
use crate::request::txn_body::shown;
use crate::response::content::wire_response;
use crate::response::field_error::{Code, FieldError, FieldErrors, Path};
use crate::response::problem::ProblemResponse;
use crate::response::service_problem::refuse;
use tribunal_service::plugins::{
    self, Activate, Activation, Deactivate, Measured, Overview, Plugin, Slot, Upload, Version,
};

/// Uploads a version of a plugin. The component is checked and stored, but not activated.
///
/// It must implement one of the worlds of `tribunal:plugin@1.0.0`, have no imports, stay within the limits and pass the
/// conformance kit. Uploading the same bytes again changes nothing. A copy of a built-in rule or validator is refused: activate
/// that by its own name.
#[utoipa::path(
    put, path = "/v1/admin/plugins/{name}", operation_id = "putPlugin", tag = "plugins",
    params(
        ("name" = String, Path, description = "Name: lower-case letters, digits and `-`; at most 64 bytes"),
        ("world" = Option<String>, Query, nullable = false, description = "The expected world: a component of another world is rejected"),
        ("config" = Option<String>, Query, nullable = false, description = "Configuration to check the component with, a JSON object"),
        ("signature" = Option<String>, Query, nullable = false, min_length = 128, max_length = 128, pattern = "^[0-9a-f]{128}$", description = "Ed25519 signature, hexadecimal, of three lines, each terminated by a line feed: `tribunal plugin signature 1`, the name, and the component's SHA-256 in hexadecimal"),
    ),
    request_body(content(
        (inline(PluginComponent) = "application/wasm"),
        (inline(PluginComponent) = "application/octet-stream"),
    ), description = "The component"),
    responses(
        (status = 200, description = "This version was already stored", body = PluginUpload),
        (status = 201, description = "The version was checked and stored", body = PluginUpload),
        (status = 400, description = "The request cannot be read", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "Not application/wasm", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The component was rejected; `detail` has the reason", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Nothing was changed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn put_plugin(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let mut query = Query::new(parts.uri.query(), &["world", "config", "signature"]);
    let name = query.noted(path_name(&parts));
    let (world, config) = (query.text("world"), query.text("config").unwrap_or_default());
    if !config.is_empty() && !is_object(&config) {
        query.error(
            Code::WrongType,
            "config",
            format!("must be a JSON object of at most {PLUGIN_CONFIG_BYTES_MAX} bytes"),
        );
    }
    let signature = query.text("signature").and_then(|text| {
        let read = plugins::signature(&text);
        if read.is_none() {
            query.error(Code::BadParameter, "signature", "must be an Ed25519 signature of 128 hexadecimal digits");
        }
        read
    });
    query.finish()?;
    wasm_type(&parts.headers)?;
    let bytes = app.whole(&parts, body, PLUGIN_BYTES_MAX).await?;
    let upload = Upload { name: name.clone(), bytes: bytes.to_vec(), world, config, signature };
    let catalog = app.service.stores.catalog();
    let done = app.service.plugins.upload(upload).await.map_err(refuse(&catalog))?;
    let status = if done.created { StatusCode::CREATED } else { StatusCode::OK };
    let checks = done.checks.into_iter().map(|(name, cases)| PluginCheck { name, cases }).collect();
    Ok(wire_response(status, &PluginUpload { name, world: done.world, version: version(done.version), checks }))
}

/// Lists all plugins, including the built-in ones, and all slots.
#[utoipa::path(
    get, path = "/v1/admin/plugins", operation_id = "listPlugins", tag = "plugins",
    responses(
        (status = 200, description = "All plugins and slots", body = PluginList),
        (status = "default", description = "The plugins cannot be listed now", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn list_plugins(State(app): State<App>) -> Result<Response, ProblemResponse> {
    let catalog = app.service.stores.catalog();
    let Overview { plugins, slots } = app.service.plugins.overview().await.map_err(refuse(&catalog))?;
    let plugins = plugins.into_iter().map(|plugin| info(plugin, &slots)).collect();
    Ok(wire_response(StatusCode::OK, &PluginList { plugins, slots: slots.iter().map(slot).collect() }))
}

/// Returns a plugin: its versions, the slots in which it is active or pending, and its counters there.
#[utoipa::path(
    get, path = "/v1/admin/plugins/{name}", operation_id = "getPlugin", tag = "plugins",
    params(("name" = String, Path, description = "Name of the plugin")),
    responses(
        (status = 200, description = "The plugin", body = PluginInfo),
        (status = 404, description = "There is no such plugin", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The plugin cannot be returned now", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn get_plugin(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let name = path_name(&parts)?;
    let catalog = app.service.stores.catalog();
    let Overview { plugins, slots } = app.service.plugins.overview().await.map_err(refuse(&catalog))?;
    match plugins.into_iter().find(|plugin| plugin.name == name) {
        Some(plugin) => Ok(wire_response(StatusCode::OK, &info(plugin, &slots))),
        None => Err(ProblemResponse::new(StatusCode::NOT_FOUND, "not_found", format!("there is no plugin \"{name}\""))),
    }
}

/// Activates a version of a plugin in a slot, from an epoch on.
///
/// Earlier epochs are decided by the previous plugin of the slot. The activation is recorded in the control log. It replaces
/// an activation of the slot that is still pending, which the response names in `replaces`.
///
/// In a cluster, the request waits up to 5 s until every member has reported that it has fetched and compiled the version, and
/// then gets 503 with the nodes that have not. A node that is down cannot report; one that has reported before is not waited for.
#[utoipa::path(
    post, path = "/v1/admin/plugins/{name}/activate", operation_id = "activatePlugin", tag = "plugins",
    params(("name" = String, Path, description = "Name of the plugin")),
    request_body(content = PluginActivate, description = "The version, the slot and the epoch"),
    responses(
        (status = 200, description = "The activation is durable", body = PluginActivation),
        (status = 400, description = "The request cannot be read", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such plugin or version", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The plugin does not fit the slot, or rejects the configuration", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "A member of the cluster has not reported that it has the plugin ready; `detail` names it", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Nothing was changed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn activate_plugin(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let name = path_name(&parts)?;
    let (_, bytes) = app.body(&parts, body, &[MediaType::Json]).await?;
    let body = SlotBody::read(utf8(&bytes)?, &["slot", "digest", "at_epoch", "config"])?;
    let catalog = app.service.stores.catalog();
    let request = Activate { name, who: client_name(&parts), ..body };
    let activation = app.service.plugins.activate(request).await.map_err(refuse(&catalog))?;
    Ok(wire_response(StatusCode::OK, &requested(&app, &activation)))
}

/// Reverts the last activation of a slot.
///
/// A pending activation is cancelled; otherwise the slot returns to the previous plugin.
#[utoipa::path(
    post, path = "/v1/admin/plugins/{name}/rollback", operation_id = "rollBackPlugin", tag = "plugins",
    params(("name" = String, Path, description = "Name of the plugin that is active or pending in the slot")),
    request_body(content = PluginRollback, description = "The slot"),
    responses(
        (status = 200, description = "The rollback is durable; the response is the activation now in force", body = PluginActivation),
        (status = 400, description = "The request cannot be read", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such plugin", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The plugin is in no slot, or the slot has no earlier activation", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Nothing was changed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn roll_back_plugin(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let name = path_name(&parts)?;
    let (_, bytes) = app.body(&parts, body, &[MediaType::Json]).await?;
    let body = SlotBody::read(utf8(&bytes)?, &["slot"])?;
    let catalog = app.service.stores.catalog();
    let who = client_name(&parts);
    let activation = app.service.plugins.roll_back(name, body.slot, who).await.map_err(refuse(&catalog))?;
    Ok(wire_response(StatusCode::OK, &requested(&app, &activation)))
}

/// Deactivates a plugin: its slot has again what it has without any uploaded plugin.
///
/// A rule or validator is replaced by the built-in plugin that the slot had last, from an epoch on. An adaptor is removed at
/// once, unless a store is declared with it. A pending activation of the slot is cancelled. The versions remain stored.
#[utoipa::path(
    post, path = "/v1/admin/plugins/{name}/deactivate", operation_id = "deactivatePlugin", tag = "plugins",
    params(("name" = String, Path, description = "Name of the plugin that is active in the slot")),
    request_body(content = PluginDeactivate, description = "The slot and the epoch"),
    responses(
        (status = 200, description = "The deactivation is durable; the response is the slot's new entry", body = PluginActivation),
        (status = 400, description = "The request cannot be read", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The plugin is active in no slot, is built in, or is an adaptor that a store uses", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Nothing was changed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn deactivate_plugin(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let name = path_name(&parts)?;
    let (_, bytes) = app.body(&parts, body, &[MediaType::Json]).await?;
    let Activate { slot, from, .. } = SlotBody::read(utf8(&bytes)?, &["slot", "at_epoch"])?;
    let catalog = app.service.stores.catalog();
    let request = Deactivate { name, slot, from, who: client_name(&parts) };
    let activation = app.service.plugins.deactivate(request).await.map_err(refuse(&catalog))?;
    Ok(wire_response(StatusCode::OK, &requested(&app, &activation)))
}

/// Deletes a plugin with all of its versions.
///
/// Rejected if any version is active or pending in a slot. Rollbacks skip deleted versions.
#[utoipa::path(
    delete, path = "/v1/admin/plugins/{name}", operation_id = "deletePlugin", tag = "plugins",
    params(("name" = String, Path, description = "Name of the plugin")),
    responses(
        (status = 200, description = "The deleted versions", body = PluginDeleted),
        (status = 404, description = "There is no such plugin", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The plugin is built in, or in use by a slot, which `detail` names", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Nothing was deleted", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn delete_plugin(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    delete(&app, path_name(&parts)?, None).await
}

/// Deletes one version of a plugin.
///
/// Rejected if it is active or pending in a slot. Rollbacks skip deleted versions.
#[utoipa::path(
    delete, path = "/v1/admin/plugins/{name}/versions/{digest}", operation_id = "deletePluginVersion", tag = "plugins",
    params(
        ("name" = String, Path, description = "Name of the plugin"),
        ("digest" = String, Path, description = "SHA-256 of the version's component, hexadecimal"),
    ),
    responses(
        (status = 200, description = "The deleted version", body = PluginDeleted),
        (status = 404, description = "There is no such plugin or version", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The version is built in, or in use by a slot, which `detail` names", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Nothing was deleted", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn delete_plugin_version(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let name = path_name(&parts)?;
    let text = String::from_utf8_lossy(&segment(parts.uri.path(), 5)).into_owned();
    let digest = plugins::digest(&text).ok_or_else(|| {
        let detail = format!("\"{}\" must be a SHA-256 as 64 hexadecimal digits", shown(&text));
        FieldError::in_path(Code::UnknownValue, "digest", detail)
    })?;
    delete(&app, name, Some(digest)).await
}

async fn delete(app: &App, name: String, digest: Option<plugins::PluginDigest>) -> Result<Response, ProblemResponse> {
    let catalog = app.service.stores.catalog();
    let deleted = app.service.plugins.delete(name.clone(), digest).await.map_err(refuse(&catalog))?;
    Ok(wire_response(StatusCode::OK, &PluginDeleted { name, digests: deleted.iter().map(hex).collect() }))
}

/// Returns the name in `/v1/admin/plugins/{name}`.
fn path_name(parts: &Parts) -> Result<String, FieldError> {
    let bytes = segment(parts.uri.path(), 3);
    let name = String::from_utf8_lossy(&bytes);
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if fits {
        return Ok(name.into_owned());
    }
    let detail = format!(
        "\"{}\" must be lower-case letters, digits and '-', begin with a letter, and have at most {NAME_BYTES_MAX} bytes",
        shown(&name)
    );
    Err(FieldError::in_path(Code::BadName, "name", detail))
}

fn is_object(text: &str) -> bool {
    text.len() <= PLUGIN_CONFIG_BYTES_MAX
        && depth_within_limit(text, 1)
        && serde_json::from_str::<&RawValue>(text).is_ok_and(|raw| raw.get().starts_with('{'))
}

/// The body of an activation or a rollback.
struct SlotBody {
    activate: Activate,
    names: &'static [&'static str],
    errors: FieldErrors,
}

impl SlotBody {
    fn read(text: &str, names: &'static [&'static str]) -> Result<Activate, ProblemResponse> {
        let mut body = SlotBody { activate: Activate::default(), names, errors: FieldErrors::default() };
        document(text, ObjectSeed { fields: &mut body, at: Path::Root })
            .map_err(|malformed| ProblemResponse::of_syntax(&malformed))?;
        if body.errors.is_empty() { Ok(body.activate) } else { Err(ProblemResponse::of_errors(&body.errors)) }
    }
}

impl<'de> Fields<'de> for SlotBody {
    fn names(&self) -> &'static [&'static str] {
        self.names
    }

    fn field<A: MapAccess<'de>>(&mut self, index: usize, at: Path<'_>, map: &mut A) -> Result<(), A::Error> {
        if self.names[index] == "config" {
            let config = map.next_value::<&'de RawValue>()?.get();
            if is_object(config) {
                config.clone_into(&mut self.activate.config);
            } else {
                let detail = format!("must be an object of at most {PLUGIN_CONFIG_BYTES_MAX} bytes and 64 levels");
                self.errors.add(Code::WrongType, at, detail);
            }
            return Ok(());
        }
        let found = scalar(map)?;
        let Some(text) = found.text(at, &mut self.errors) else { return Ok(()) };
        match self.names[index] {
            "slot" => match PluginSlot::from_name(&text) {
                Some(slot) => self.activate.slot = Some(slot),
                None => {
                    let detail = format!(
                        "\"{}\" must be rule, validator:<level> or adaptor:<name>; levels are read-committed, \
                         repeatable-read, snapshot and serializable",
                        shown(&text)
                    );
                    self.errors.add(Code::UnknownValue, at, detail);
                }
            },
            "digest" => match plugins::digest(&text) {
                Some(digest) => self.activate.digest = Some(digest),
                None => self.errors.add(Code::UnknownValue, at, "must be a SHA-256 as 64 hexadecimal digits"),
            },
            _ => match decimal(&text).map(Epoch).filter(|epoch| *epoch <= Epoch::MAX) {
                Some(epoch) => self.activate.from = Some(epoch),
                None => self.errors.add(
                    Code::BadNumber,
                    at,
                    format!("must be a decimal number up to {}, {CANONICAL}", Epoch::MAX),
                ),
            },
        }
        Ok(())
    }

    fn errors(&mut self) -> &mut FieldErrors {
        &mut self.errors
    }
}

fn hex(digest: &[u8; 32]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn version(version: Version) -> PluginVersion {
    let Version { digest, version, about, bytes, uploaded_ms, signed, measured } = version;
    let (signer, signature) = signed.unzip();
    let mut wire = PluginVersion {
        digest: hex(&digest),
        version,
        about,
        bytes: bytes.to_string(),
        uploaded_ms: uploaded_ms.map(|ms| ms.to_string()),
        signer,
        signature,
        fuel_per_call: None,
        fuel_per_item: None,
        budget_per_item: None,
        behaviour: None,
        levels: Vec::new(),
        misses: Vec::new(),
    };
    if let Some(measured) = measured {
        let Measured { fuel_per_call, fuel_per_item, budget_per_item, behaviour, levels, misses } = measured;
        wire.fuel_per_call = Some(fuel_per_call.to_string());
        wire.fuel_per_item = Some(fuel_per_item.to_string());
        wire.budget_per_item = Some(budget_per_item.to_string());
        wire.behaviour = Some(hex(&behaviour));
        wire.levels = levels.into_iter().map(|level| level.name().to_owned()).collect();
        let miss = |(level, anomaly): (tribunal_types::Isolation, String)| PluginMiss {
            level: level.name().to_owned(),
            anomaly,
        };
        wire.misses = misses.into_iter().map(miss).collect();
    }
    wire
}

fn info(plugin: Plugin, slots: &[Slot]) -> PluginInfo {
    let fills = |found: &&Slot| {
        let is_this = |activation: &Activation| activation.name == plugin.name && !activation.empties;
        is_this(&found.active) || found.pending.as_ref().is_some_and(is_this)
    };
    let slots = slots.iter().filter(fills).filter(|found| world_of(&found.active.slot) == plugin.world).map(slot);
    PluginInfo {
        slots: slots.collect(),
        name: plugin.name,
        world: plugin.world,
        builtin: plugin.builtin,
        versions: plugin.versions.into_iter().map(version).collect(),
    }
}

fn world_of(slot: &PluginSlot) -> &'static str {
    match slot {
        PluginSlot::Rule => "conflict-rule",
        PluginSlot::Validator(_) => "isolation-validator",
        PluginSlot::Adaptor(_) => "log-adaptor",
    }
}

/// Returns the wire form of a slot.
#[must_use]
pub fn slot(slot: &Slot) -> tribunal_api::PluginSlot {
    let health = &slot.health;
    let per_item = |sum: u64| sum.checked_div(health.items).unwrap_or(0).to_string();
    tribunal_api::PluginSlot {
        slot: slot.active.slot.to_string(),
        active: activation_wire(&slot.active),
        since_epoch: slot.since.map(|epoch| epoch.to_string()),
        pending: slot.pending.as_ref().map(activation_wire),
        history: slot.history.iter().map(activation_wire).collect(),
        health: PluginHealth {
            calls: health.calls.to_string(),
            items: health.items.to_string(),
            fallbacks: health.fallbacks.to_string(),
            faults: health
                .faults
                .iter()
                .map(|(kind, count)| PluginFaults { kind: (*kind).to_owned(), count: count.to_string() })
                .collect(),
            last_fault: health.last_fault.clone(),
            fuel_per_item: per_item(health.fuel),
            ns_per_item: per_item(health.nanos),
        },
    }
}

fn activation_wire(activation: &Activation) -> PluginActivation {
    PluginActivation {
        control: activation.control.0.to_string(),
        slot: activation.slot.to_string(),
        name: activation.name.clone(),
        digest: hex(&activation.digest),
        config_digest: hex(&activation.config_digest),
        config: RawValue::from_string(activation.config.clone()).ok(),
        by: activation.by.to_owned(),
        who: activation.who.clone(),
        at_ms: activation.at_ms.map(|ms| ms.to_string()),
        since_epoch: activation.since.map(|epoch| epoch.to_string()),
        until_epoch: activation.until.map(|epoch| epoch.to_string()),
        from_epoch: activation.from.to_string(),
        replaces: activation.replaces.as_ref().map(|replaced| PluginReplaced {
            control: replaced.control.0.to_string(),
            name: replaced.name.clone(),
            digest: hex(&replaced.digest),
            from_epoch: replaced.from.to_string(),
        }),
        declare_again: Vec::new(),
    }
}

/// Returns the activation that a request has made, with the stores that it concerns.
fn requested(app: &App, activation: &Activation) -> PluginActivation {
    let (stores, catalog) = (&app.service.stores, app.service.stores.catalog());
    let specs = activation.declare_again.iter().filter_map(|store| catalog.by_id(*store));
    let mut declare_again: Vec<_> = specs
        .map(|spec| PluginStore { namespace: stores.namespace_name(spec.namespace), store: spec.name.clone() })
        .collect();
    declare_again.sort_by(|a, b| (&a.namespace, &a.store).cmp(&(&b.namespace, &b.store)));
    PluginActivation { declare_again, ..activation_wire(activation) }
}
