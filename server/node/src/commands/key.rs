//! `tribunal key`: issue, list and revoke API keys.

use tribunal_api::KeyRequest;

use crate::commands::cli::{KeyRole, Target};
use crate::commands::output::out;
use crate::commands::store::block_on;

/// Creates a key and prints it: the only time that its secret is shown.
///
/// # Errors
/// If the caller may not do that.
pub fn create(target: &Target, name: String, namespace: Option<String>, roles: &[KeyRole]) -> Result<(), String> {
    let roles = roles.iter().map(|role| role.name().to_owned()).collect();
    let request = KeyRequest { name, namespace, roles };
    let made = block_on(async { target.client()?.create_key(&request).await })?;
    if target.json {
        out!("{}", serde_json::to_string(&made).map_err(|error| error.to_string())?);
    } else {
        out!("{}", made.key);
        let roles = made.roles.join(", ");
        eprintln!("key {} of namespace {}, roles: {roles}. It is not shown again.", made.id, made.namespace);
    }
    Ok(())
}

/// Lists keys without their secrets.
///
/// # Errors
/// If the caller may not do that.
pub fn ls(target: &Target) -> Result<(), String> {
    let keys = block_on(async { target.client()?.keys().await })?;
    if !target.json {
        out!("{:<18} {:<16} {:<20} roles", "id", "namespace", "name");
    }
    for key in keys {
        if target.json {
            out!("{}", serde_json::to_string(&key).map_err(|error| error.to_string())?);
        } else {
            let roles = key.roles.join(",");
            out!("{:<18} {:<16} {:<20} {roles}", key.id, key.namespace, key.name);
        }
    }
    Ok(())
}

/// Revokes a key.
///
/// # Errors
/// If there is none of that id, or the caller may not do that.
pub fn revoke(target: &Target, id: &str) -> Result<(), String> {
    block_on(async { target.client()?.revoke_key(id).await })
}
