//! `tribunal plugin push`, `activate`, `rollback` and `ls`: over the API of a running service.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tribunal_api::{
    PluginActivate, PluginActivation, PluginDeactivate, PluginDeleted, PluginInfo, PluginList, PluginReplaced,
    PluginRollback, PluginStore, PluginUpload, PluginVersion, Problem, VersionInfo,
};
use tribunal_client::{Call, Client, Error};
use tribunal_types::DEFAULT_NAMESPACE;
use tribunal_wasm::World;

use super::activation::{bounded, change, filler, is_empty, short};
use super::{Component, progress};
use crate::commands::cli::program;
use crate::commands::output::out;
use crate::commands::plugin::check_config;
use crate::commands::plugin_flags::{Activate, DIGEST_DIGITS, Push};
use crate::commands::store::{block_on, refusal};
use crate::commands::target::Target;
use crate::plugins::digest::hex;
use crate::plugins::signatures;

/// Timeout of a call: a check may compile for minutes.
const CALL_TIMEOUT: Duration = Duration::from_secs(600);
/// How long a node may take to answer at all before another one is tried.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Sends a request and parses its answer, or returns why there is none.
fn call<T: DeserializeOwned>(
    target: &Target,
    method: &str,
    path: &str,
    query: &[(&str, &str)],
    body: Option<(&'static str, Vec<u8>)>,
) -> Result<T, String> {
    let call = Call { method, path, query, body, timeout: CALL_TIMEOUT };
    let url = &target.url;
    let (status, text) = block_on(async {
        let client = match answering(target).await? {
            Some(client) => client,
            None => target.client()?,
        };
        client.call(call).await
    })?;
    if (200..300).contains(&status) {
        return serde_json::from_slice(&text)
            .map_err(|error| format!("the response of {url} is not that of Tribunal: {error}"));
    }
    match serde_json::from_slice::<Problem>(&text) {
        Ok(problem) => Err(refusal(&problem)),
        Err(_) => Err(format!("{url} responded with status {status}")),
    }
}

/// Returns a client of the first of several nodes that answers. Its refusals are final: waiting for another node, which
/// may hang, would take as long as a check.
async fn answering(target: &Target) -> Result<Option<Client>, Error> {
    let clients = target.clients(CALL_TIMEOUT)?;
    if clients.len() < 2 {
        return Ok(None);
    }
    for (_, client) in clients {
        let version = Call { method: "GET", path: "/version", query: &[], body: None, timeout: ANSWERS_WITHIN };
        if client.call(version).await.is_ok() {
            return Ok(Some(client));
        }
    }
    Ok(None)
}

pub(super) fn get<T: DeserializeOwned>(target: &Target, path: &str) -> Result<T, String> {
    call(target, "GET", path, &[], None)
}

fn post<T: DeserializeOwned>(target: &Target, path: &str, body: &impl serde::Serialize) -> Result<T, String> {
    let body = serde_json::to_vec(body).map_err(|error| error.to_string())?;
    call(target, "POST", path, &[], Some(("application/json", body)))
}

/// Prints a wire type as one line of JSON.
pub(super) fn print_json(wire: &impl serde::Serialize) -> Result<(), String> {
    out!("{}", serde_json::to_string(wire).map_err(|error| error.to_string())?);
    Ok(())
}

/// Uploads a component.
///
/// # Errors
/// If it is missing, or refused.
pub fn push(flags: &Push) -> Result<(), String> {
    check_config(&flags.config)?;
    let component = Component::at(&flags.path)?;
    let bytes = std::fs::read(&component.path).map_err(|error| format!("{}: {error}", component.path.display()))?;
    let name = flags.name.as_ref().unwrap_or(&component.name);
    let mut query = Vec::new();
    if let Some(world) = component.world {
        query.push(("world", world.name()));
    }
    if !flags.config.is_empty() {
        query.push(("config", flags.config.as_str()));
    }
    let signature = match &flags.sign {
        Some(file) => {
            let pem = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
            let signature = signatures::sign(&pem, name, &Sha256::digest(&bytes).into());
            Some(hex(&signature.map_err(|why| format!("{}: {why}", file.display()))?))
        }
        None => None,
    };
    if let Some(signature) = &signature {
        query.push(("signature", signature.as_str()));
    }
    let path = format!("/v1/admin/plugins/{name}");
    let body = Some(("application/wasm", bytes));
    let done: PluginUpload = progress::during("checking", || call(&flags.target, "PUT", &path, &query, body))?;
    if flags.target.json {
        return print_json(&done);
    }
    out!("{} {} ({}) is kept as {}", done.name, done.version.version, done.world, done.version.digest);
    match &done.version.signer {
        Some(signer) => out!("signed by {signer}"),
        None if flags.sign.is_some() => out!("the service asks for no signature, so this one was not checked"),
        None => {}
    }
    if !done.version.levels.is_empty() {
        out!("it may fill validator:{}", done.version.levels.join(", validator:"));
    }
    // The strongest level that the validator upholds.
    let slot = done.version.levels.last().map_or(String::new(), |level| format!(" --slot validator:{level}"));
    // An adaptor gets its configuration from each store that is declared with it.
    let config = match flags.config.as_str() {
        "" => String::new(),
        _ if done.world == World::LogAdaptor.name() => String::new(),
        config => format!(" --config '{}'", config.replace('\'', "'\\''")),
    };
    out!("next: {} plugin activate{} {}{slot}{config}", program(), flags.target.as_flags(), done.name);
    Ok(())
}

/// Activates a version.
///
/// # Errors
/// If there is no such version, or it does not fit.
pub fn activate(flags: &Activate) -> Result<(), String> {
    let at_epoch = flags.at_epoch.as_deref().map(|text| epoch_named(&flags.target, text)).transpose()?.flatten();
    let config = match flags.config.as_str() {
        "" => None,
        text => Some(RawValue::from_string(text.to_owned()).map_err(|error| format!("--config is not JSON: {error}"))?),
    };
    let digest = flags.digest.as_deref().map(|digest| whole_digest(&flags.target, &flags.name, digest)).transpose()?;
    let body = PluginActivate { slot: flags.slot.clone(), digest, at_epoch, config };
    let path = format!("/v1/admin/plugins/{}/activate", flags.name);
    let done: PluginActivation = progress::during("activating", || post(&flags.target, &path, &body))?;
    said(&flags.target, &done)
}

/// Returns the digest of the only version of a plugin that begins with these digits.
fn whole_digest(target: &Target, name: &str, digits: &str) -> Result<String, String> {
    if digits.len() == DIGEST_DIGITS {
        return Ok(digits.to_owned());
    }
    let info: PluginInfo = get(target, &format!("/v1/admin/plugins/{name}"))?;
    only_version(&info.versions, name, digits)
}

fn only_version(versions: &[PluginVersion], name: &str, digits: &str) -> Result<String, String> {
    let digests = || versions.iter().map(|version| version.digest.as_str());
    let found: Vec<&str> = digests().filter(|digest| digest.starts_with(digits)).collect();
    match found[..] {
        [digest] => Ok(digest.to_owned()),
        [] => {
            let known = digests().map(short).collect::<Vec<_>>().join(", ");
            Err(format!("no version of `{name}` begins with {digits}; its versions are {known}"))
        }
        _ => Err(format!("several versions of `{name}` begin with {digits}: {}", found.join(", "))),
    }
}

/// Returns the epoch named by `--at-epoch`; `None`, meaning the next one, if that epoch has passed.
fn epoch_named(target: &Target, text: &str) -> Result<Option<String>, String> {
    let (more, number) = match text.strip_prefix('+') {
        Some(more) => (true, more.parse::<u64>()),
        None => (false, text.parse::<u64>()),
    };
    let number =
        number.map_err(|_| format!("--at-epoch: `{text}` is neither an epoch nor `+N` for N epochs from now"))?;
    let version: VersionInfo = get(target, "/version")?;
    let now: Option<u64> = version.epoch.and_then(|epoch| epoch.parse().ok());
    match now {
        Some(now) if more => Ok(Some(now.saturating_add(number).to_string())),
        None if more => Err("the service does not tell its epoch to this key".to_owned()),
        Some(now) if number <= now => Ok(None),
        Some(_) | None => Ok(Some(number.to_string())),
    }
}

/// Rolls a slot back.
///
/// # Errors
/// If there is nothing to roll back to.
pub fn roll_back(target: &Target, name: &str, slot: Option<String>) -> Result<(), String> {
    let done: PluginActivation = post(target, &format!("/v1/admin/plugins/{name}/rollback"), &PluginRollback { slot })?;
    said(target, &done)
}

/// Takes a plugin out of its slot.
///
/// # Errors
/// If it is in none, or a store uses it.
pub fn deactivate(target: &Target, name: &str, slot: Option<String>, at_epoch: Option<&str>) -> Result<(), String> {
    let at_epoch = at_epoch.map(|text| epoch_named(target, text)).transpose()?.flatten();
    let body = PluginDeactivate { slot, at_epoch };
    let done: PluginActivation = post(target, &format!("/v1/admin/plugins/{name}/deactivate"), &body)?;
    said(target, &done)
}

/// Deletes a plugin, or one version of it.
///
/// # Errors
/// If there is no such version, or a slot needs it.
pub fn remove(target: &Target, name: &str, digest: Option<&str>) -> Result<(), String> {
    let path = match digest.map(|digest| whole_digest(target, name, digest)).transpose()? {
        Some(digest) => format!("/v1/admin/plugins/{name}/versions/{digest}"),
        None => format!("/v1/admin/plugins/{name}"),
    };
    let done: PluginDeleted = call(target, "DELETE", &path, &[], None)?;
    if target.json {
        return print_json(&done);
    }
    for digest in &done.digests {
        out!("{} ({}) is deleted", done.name, short(digest));
    }
    Ok(())
}

fn said(target: &Target, done: &PluginActivation) -> Result<(), String> {
    if target.json {
        return print_json(done);
    }
    let from = if done.from_epoch == "0" { "the next epoch".to_owned() } else { format!("epoch {}", done.from_epoch) };
    out!("slot {}: {} from {from} on", done.slot, filler(done));
    if let Some(PluginReplaced { name, digest, from_epoch, .. }) = &done.replaces {
        out!("this replaces {name} ({}), which was to be activated from epoch {from_epoch} on", short(digest));
    }
    if !done.declare_again.is_empty() {
        let shown = |of: &PluginStore| match &*of.namespace {
            DEFAULT_NAMESPACE => of.store.clone(),
            namespace => format!("{} of namespace {namespace}", of.store),
        };
        let stores: Vec<_> = done.declare_again.iter().map(shown).collect();
        out!(
            "declare again: {}. This version accepts other kinds of writes than these stores were declared with, or refuses their \
             configuration",
            stores.join(", ")
        );
    }
    Ok(())
}

/// Lists plugins and slots.
///
/// # Errors
/// If the service cannot be reached.
pub fn ls(target: &Target) -> Result<(), String> {
    let list: PluginList = get(target, "/v1/admin/plugins")?;
    if target.json {
        return print_json(&list);
    }
    out!(
        "{:<28} {:<20} {:<13} {:>9} {:>9} {:>9} {:>9}  faults",
        "slot",
        "plugin",
        "version",
        "calls",
        "fuel/item",
        "ns/item",
        "fallbacks"
    );
    for slot in &list.slots {
        if is_empty(&slot.active) && slot.pending.is_none() {
            continue;
        }
        let health = &slot.health;
        let faults = health.faults.iter().map(|fault| format!("{} {}", fault.count, fault.kind)).collect::<Vec<_>>();
        out!(
            "{:<28} {:<20} {:<13} {:>9} {:>9} {:>9} {:>9}  {}{}",
            slot.slot,
            if is_empty(&slot.active) { "-" } else { &slot.active.name },
            short(&slot.active.digest),
            health.calls,
            health.fuel_per_item,
            health.ns_per_item,
            health.fallbacks,
            if faults.is_empty() { "none".to_owned() } else { faults.join(", ") },
            health.last_fault.as_ref().map(|text| format!(": {text}")).unwrap_or_default(),
        );
        let changed = slot.history.iter().find(|entry| entry.control == slot.active.control);
        if let Some(entry) = changed.filter(|entry| entry.by != "configuration") {
            let since = slot.since_epoch.as_deref().map_or(String::new(), |epoch| format!(", since epoch {epoch}"));
            out!("  {}{since}", change(entry));
        }
        if let Some(config) = slot.active.config.as_ref() {
            out!("  configuration {}", bounded(config.get()));
        }
        if let Some(pending) = &slot.pending {
            out!("  then {} from epoch {} on", filler(pending), pending.from_epoch);
        }
    }
    out!("");
    for plugin in list.plugins.iter().filter(|plugin| !plugin.builtin) {
        versions(plugin);
    }
    let built_in = list.plugins.iter().filter(|plugin| plugin.builtin).map(|plugin| plugin.name.as_str());
    out!("built in: {}", built_in.collect::<Vec<_>>().join(", "));
    Ok(())
}

fn versions(plugin: &PluginInfo) {
    out!("{} ({})", plugin.name, plugin.world);
    for version in &plugin.versions {
        let (fuel, budget) = (version.fuel_per_item.as_deref(), version.budget_per_item.as_deref());
        out!(
            "  {} {:<10} {:>9} bytes, {} of {} fuel an item{}",
            short(&version.digest),
            version.version,
            version.bytes,
            fuel.unwrap_or("?"),
            budget.unwrap_or("?"),
            version.signer.as_ref().map(|signer| format!(", signed by {signer}")).unwrap_or_default()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_digits_name_a_version_if_it_is_the_only_one() {
        let version = |digest: &str| -> PluginVersion {
            let json = serde_json::json!({ "digest": digest, "version": "1.0.0", "about": "", "bytes": "1" });
            serde_json::from_value(json).expect("is a version")
        };
        let versions = ["0123456789ab01", "0123456789ab02", "fedcba9876543210"].map(version);
        let found = |digits| only_version(&versions, "p", digits);
        assert_eq!(found("fedcba98").as_deref(), Ok("fedcba9876543210"));
        assert_eq!(found("0123456789ab02").as_deref(), Ok("0123456789ab02"));
        let several = found("01234567").expect_err("two begin so");
        assert!(several.contains("0123456789ab01, 0123456789ab02"), "{several}");
        let none = found("ffffffff").expect_err("none begins so");
        assert!(none.contains("fedcba987654"), "{none}");
    }
}
