//! `tribunal store`: declares and lists stores, reads rows, and controls pushes.

use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout_at};
use tribunal_api::{Problem, StoreDeclaration, StoreExistence, StoreInfo, StorePushState};
use tribunal_client::{Client, Error, StoredValue};
use tribunal_types::{EMBEDDED_ADAPTOR, Lsn};

use crate::commands::cli::Declare;
use crate::commands::output::{out, printable};
use crate::commands::target::Target;

/// How long a declaration waits for the storage's first answer: less than a connection's timeout, so that a storage
/// that hangs is always shown as starting.
const FIRST_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Poll interval for that answer.
const POLL: Duration = Duration::from_millis(50);

/// Runs a request to completion.
///
/// # Errors
/// A description of the failure, for the operator.
pub fn block_on<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, String> {
    let runtime = tokio::runtime::Runtime::new().map_err(|error| format!("cannot start threads: {error}"))?;
    runtime.block_on(work).map_err(|error| match error {
        Error::ClientMistake(problem) => refusal(&problem),
        other => other.to_string(),
    })
}

/// Describes a problem, with its remedy on the command line.
pub fn refusal(problem: &Problem) -> String {
    let text = Error::ClientMistake(Box::new(problem.clone())).to_string();
    if problem.code == "unauthenticated" {
        return format!("{text}; pass the key with --api-key-file FILE or in TRIBUNAL_API_KEY");
    }
    text
}

/// Declares or changes a store: omitted flags take their defaults. Omitting the flags does not remove the adaptor,
/// `--multi-version` or `--declared-existence`.
///
/// # Errors
/// If `--config` is not JSON, or the service refuses it.
pub fn declare(flags: &Declare) -> Result<(), String> {
    let omits_adaptor = flags.adaptor.is_none() && !flags.log_only;
    if omits_adaptor || flags.multi_version.is_none() || flags.declared_existence.is_none() {
        check_omissions(flags)?;
    }
    let config = flags.config.as_ref().map(|text| RawValue::from_string(text.clone()));
    let declaration = StoreDeclaration {
        existence: flags.declared_existence.map(|declared| match declared {
            true => StoreExistence::Declared,
            false => StoreExistence::Tracked,
        }),
        multi_version: flags.multi_version,
        transactional: flags.transactional.then_some(true),
        adaptor: flags.adaptor.clone(),
        log_only: flags.log_only.then_some(true),
        adaptor_config: config.transpose().map_err(|error| {
            format!("--config is not JSON: {error}; it takes the JSON itself, not the name of a file")
        })?,
    };
    let target = &flags.target;
    let declared = block_on(async {
        let client = target.client()?;
        let declared = client.declare_store(&flags.store, &declaration).await?;
        Ok(first_answer(&client, declared).await)
    })?;
    show(target, &declared)
}

/// Returns whether a storage has not answered yet, so that the state of its push is unknown.
fn is_starting(store: &StoreInfo) -> bool {
    let push = &store.push;
    store.adaptor.is_some() && push.state == StorePushState::Running && push.durability.is_none()
}

/// Waits for the storage's first answer: whether a declaration works is usually known within milliseconds.
async fn first_answer(client: &Client, mut store: StoreInfo) -> StoreInfo {
    let deadline = Instant::now() + FIRST_ANSWER_TIMEOUT;
    while is_starting(&store) && Instant::now() < deadline {
        sleep(POLL).await;
        match timeout_at(deadline, client.store(&store.store)).await {
            Ok(Ok(now)) => store = now,
            // The store is declared even if its state cannot be read.
            _ => break,
        }
    }
    store
}

/// Returns the state of a store's push in one word.
fn state_name(store: &StoreInfo) -> &'static str {
    if is_starting(store) { "starting" } else { store.push.state.name() }
}

/// Refuses to remove a store's adaptor or `multi_version`, or to make it tracked, by omitting the flag.
fn check_omissions(flags: &Declare) -> Result<(), String> {
    let found = block_on(async {
        match flags.target.client()?.store(&flags.store).await {
            Err(Error::ClientMistake(problem)) if problem.status == 404 => Ok(None),
            found => found.map(Some),
        }
    })?;
    let Some(store) = found else { return Ok(()) };
    let name = &flags.store;
    if let Some(adaptor) = store.adaptor.filter(|_| flags.adaptor.is_none() && !flags.log_only) {
        return Err(format!(
            "store `{name}` has the adaptor `{adaptor}`: pass `--adaptor {adaptor}` (with its --config) to keep it, or --log-only to take \
             it away"
        ));
    }
    if store.multi_version && flags.multi_version.is_none() {
        return Err(format!(
            "store `{name}` has multi_version: pass --multi-version to keep that, or --multi-version=false to take it away"
        ));
    }
    if store.existence == StoreExistence::Declared && flags.declared_existence.is_none() {
        return Err(format!(
            "the existence of store `{name}` is declared: pass --declared-existence to keep that, or, while it has neither records nor \
             rows, --declared-existence=false to change it"
        ));
    }
    Ok(())
}

/// Prints the declaration and the state of one store, of the caller's namespace if none is given.
///
/// # Errors
/// If there is no such store, or the caller may not see another namespace.
pub fn info(target: &Target, namespace: Option<&str>, store: &str) -> Result<(), String> {
    let store = block_on(async {
        let client = target.client()?;
        match namespace {
            Some(namespace) => client.store_of_tenant(namespace, store).await,
            None => client.store(store).await,
        }
    })?;
    if target.json {
        return show(target, &store);
    }
    let or_none = |text: Option<&str>| text.unwrap_or("-").to_owned();
    let existence = match store.existence {
        StoreExistence::Tracked => "tracked",
        StoreExistence::Declared => "declared",
    };
    let durability = store.push.durability.map(tribunal_api::StorageDurability::name);
    if let Some(namespace) = &store.namespace {
        out!("{:<16} {namespace}", "namespace");
    }
    for (name, value) in [
        ("store", store.store.clone()),
        ("adaptor", or_none(store.adaptor.as_deref())),
        ("config", or_none(store.adaptor_config.as_deref().map(RawValue::get))),
        ("existence", existence.to_owned()),
        ("multi-version", store.multi_version.to_string()),
        ("transactional", store.transactional.to_string()),
        ("rows", or_none(store.rows.as_deref())),
        ("stored bytes", or_none(store.stored_bytes.as_deref())),
        ("durable", or_none(durability)),
        ("committed epoch", store.committed.clone()),
        ("applied epoch", store.applied.clone()),
        ("lag ms", store.push.lag_ms.clone()),
    ] {
        out!("{name:<16} {value}");
    }
    show(target, &store)
}

/// Lists stores with their head, applied epoch, and lag: those of the caller's namespace, of another one, or of all.
///
/// # Errors
/// If the service cannot be reached, or the caller may not see other namespaces.
pub fn ls(target: &Target, namespace: Option<&str>, all_namespaces: bool) -> Result<(), String> {
    let names_namespaces = namespace.is_some() || all_namespaces;
    let stores = block_on(async {
        let client = target.client()?;
        if names_namespaces { client.stores_of_tenants(namespace).await } else { client.stores().await }
    })?;
    if target.json {
        for store in stores {
            out!("{}", serde_json::to_string(&store).map_err(|error| error.to_string())?);
        }
        return Ok(());
    }
    let of_namespace = |name: &str| if names_namespaces { format!("{name:<16} ") } else { String::new() };
    out!(
        "{}{:<20} {:<8} {:<8} {:>10} {:>10} {:>10} {:>8}  push",
        of_namespace("namespace"),
        "store",
        "adaptor",
        "durable",
        "head",
        "acked",
        "applied",
        "lag ms"
    );
    for store in stores {
        out!(
            "{}{:<20} {:<8} {:<8} {:>10} {:>10} {:>10} {:>8}  {}{}{}",
            of_namespace(store.namespace.as_deref().unwrap_or_default()),
            store.store,
            store.adaptor.as_deref().unwrap_or("-"),
            store.push.durability.map_or("-", tribunal_api::StorageDurability::name),
            store.head_lsn,
            store.acked_lsn,
            store.applied,
            store.push.lag_ms,
            state_name(&store),
            store.push.node.map(|node| format!(" by node {node}")).unwrap_or_default(),
            store.push.last_error.map(|error| format!(": {error}")).unwrap_or_default()
        );
    }
    Ok(())
}

/// A row as a line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    store: &'a str,
    key: &'a str,
    /// As it was posted.
    value: StoredValue,
    version: String,
}

/// Prints one row of an embedded store, its value as it was posted.
///
/// # Errors
/// If there is no such row, or the store is not embedded.
pub fn get(target: &Target, store: &str, key: &str) -> Result<(), String> {
    let row = block_on(async { target.client()?.stored_row(store, key).await })?;
    let Some((value, version)) = row else { return Err(format!("store `{store}` has no row `{}`", printable(key))) };
    if target.json {
        let line = Line { store, key, value, version: version.to_string() };
        out!("{}", serde_json::to_string(&line).map_err(|error| error.to_string())?);
    } else {
        out!("{value}");
    }
    Ok(())
}

/// Prints the state of a store's push after a change.
fn show(target: &Target, store: &StoreInfo) -> Result<(), String> {
    if target.json {
        out!("{}", serde_json::to_string(store).map_err(|error| error.to_string())?);
        return Ok(());
    }
    let error = store.push.last_error.as_deref().map(|error| format!(": {error}")).unwrap_or_default();
    out!("{}: {}{error}, acknowledged {} of {}", store.store, state_name(store), store.acked_lsn, store.head_lsn);
    Ok(())
}

/// Retries a push, and the delivery to the store's webhook if there is one.
///
/// # Errors
/// If there is no such store, it is detached, or its push has already stopped again.
pub fn resume(target: &Target, store: &str) -> Result<(), String> {
    let resumed = block_on(async { target.client()?.resume_push(store).await })?;
    show(target, &resumed)?;
    if !target.json
        && let Some(webhook) = block_on(async { target.client()?.webhook(store).await })?
    {
        let node = webhook.node.map(|node| format!(" by node {node}")).unwrap_or_default();
        let error = webhook.last_error.map(|error| format!(": {error}")).unwrap_or_default();
        let (state, acked, head) = (webhook.state.name(), webhook.acked_lsn, webhook.head_lsn);
        out!(
            "webhook of {store}: {state}{node}{error}, acknowledged {acked} of {head}; see `tribunal webhook show {store}`"
        );
    }
    // The result on another node is not known yet, and a copy of an embedded store may be about to be replaced.
    let is_known = resumed.push.node.is_none() && resumed.adaptor.as_deref() != Some(EMBEDDED_ADAPTOR);
    if is_known && resumed.push.state == StorePushState::Stopped {
        return Err(format!("the push to store `{store}` has stopped again"));
    }
    Ok(())
}

/// Skips the record that a push stopped at.
///
/// # Errors
/// If the push did not stop there.
pub fn skip(target: &Target, store: &str, lsn: u64) -> Result<(), String> {
    show(target, &block_on(async { target.client()?.skip_record(store, Lsn(lsn)).await })?)
}

/// Lists the records that were skipped.
///
/// # Errors
/// If there is no such store.
pub fn skips(target: &Target, store: &str) -> Result<(), String> {
    for skip in block_on(async { target.client()?.skips(store).await })? {
        if target.json {
            out!("{}", serde_json::to_string(&skip).map_err(|error| error.to_string())?);
        } else {
            out!("LSN {} at {} ms by {}: {}", skip.lsn, skip.at_ms, skip.by, skip.reason);
        }
    }
    Ok(())
}

/// Resumes pushing to a store that is detached, or whose push has stopped.
///
/// # Errors
/// If it is neither, or the log does not continue where its storage ends.
pub fn attach(target: &Target, store: &str, loaded: Option<u64>) -> Result<(), String> {
    show(target, &block_on(async { target.client()?.attach_push(store, loaded.map(Lsn)).await })?)
}
