//! `tribunal webhook`: registers, shows and deletes the receiver of a store's log.

use tribunal_api::{PushInfo, PushKind, PushRequest};

use crate::commands::cli::Receiver;
use crate::commands::output::out;
use crate::commands::store::block_on;
use crate::commands::target::Target;

/// Registers a receiver, or changes the registered one, which keeps the limits omitted from the flags.
///
/// # Errors
/// If the secret's file cannot be read, or the service refuses the receiver.
pub fn set(flags: &Receiver) -> Result<(), String> {
    let secret = std::fs::read_to_string(&flags.secret_file)
        .map_err(|error| format!("`{}`: {error}", flags.secret_file.display()))?;
    let target = &flags.target;
    // The request replaces the whole registration, in which omitted fields take their defaults.
    let takes_all = flags.records_max.is_some() && flags.bytes_max.is_some() && flags.timeout_ms.is_some();
    let present = if takes_all { None } else { block_on(async { target.client()?.webhook(&flags.store).await })? };
    let kept = |of: fn(&PushInfo) -> u32| present.as_ref().map(of);
    let request = PushRequest {
        kind: PushKind::Webhook,
        url: flags.receiver.clone(),
        // Editors and `echo` end a file with a newline, which the receiver's copy rarely has.
        secret: secret.trim_end_matches(['\r', '\n']).to_owned(),
        after: flags.after.map(|lsn| lsn.to_string()),
        records_max: flags.records_max.or_else(|| kept(|info| info.records_max)),
        bytes_max: flags.bytes_max.or_else(|| kept(|info| info.bytes_max)),
        timeout_ms: flags.timeout_ms.or_else(|| kept(|info| info.timeout_ms)),
    };
    print(target, &block_on(async { target.client()?.set_webhook(&flags.store, &request).await })?)
}

/// Prints the registered receiver and the state of its deliveries.
///
/// # Errors
/// If the store has no webhook, or the service cannot be reached.
pub fn show(target: &Target, store: &str) -> Result<(), String> {
    match block_on(async { target.client()?.webhook(store).await })? {
        Some(webhook) => print(target, &webhook),
        None => Err(format!("no webhook is registered for store `{store}`; `tribunal webhook set` registers one")),
    }
}

/// Deletes the receiver.
///
/// # Errors
/// If the store has no webhook, or the service cannot be reached.
pub fn rm(target: &Target, store: &str) -> Result<(), String> {
    block_on(async { target.client()?.remove_webhook(store).await })?;
    if !target.json {
        out!("the webhook of store `{store}` is deleted");
    }
    Ok(())
}

fn print(target: &Target, webhook: &PushInfo) -> Result<(), String> {
    if target.json {
        out!("{}", serde_json::to_string(webhook).map_err(|error| error.to_string())?);
        return Ok(());
    }
    let node = webhook.node.map(|node| format!(" by node {node}")).unwrap_or_default();
    for (name, value) in [
        ("store", webhook.store.clone()),
        ("receiver", webhook.url.clone()),
        ("state", format!("{}{node}", webhook.state.name())),
        ("last error", webhook.last_error.clone().unwrap_or_else(|| "-".to_owned())),
        ("failed attempts", webhook.attempts.to_string()),
        ("acknowledged", format!("{} of {}", webhook.acked_lsn, webhook.head_lsn)),
        ("lag ms", webhook.lag_ms.clone()),
        ("request", format!("at most {} records, {} bytes", webhook.records_max, webhook.bytes_max)),
        ("timeout ms", webhook.timeout_ms.to_string()),
    ] {
        out!("{name:<16} {value}");
    }
    Ok(())
}
