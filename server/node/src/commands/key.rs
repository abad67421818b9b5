//! `tribunal key`: issue, list and revoke API keys.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tribunal_api::{KeyInfo, KeyRequest};

use crate::commands::cli::KeyRole;
use crate::commands::output::out;
use crate::commands::store::block_on;
use crate::commands::target::Target;

/// Remaining validity up to which it is shown: that at which nodes begin to report the end of a key.
const SOON_DAYS: u128 = 30;
/// Timeout for the answer of each node about its uses of keys.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Creates a key and prints it: the only time its secret is shown.
///
/// # Errors
/// If the caller may not do so.
pub fn create(
    target: &Target,
    name: String,
    namespace: Option<String>,
    roles: &[KeyRole],
    expires_in_s: Option<u32>,
) -> Result<(), String> {
    let roles = roles.iter().map(|role| role.name().to_owned()).collect();
    let request = KeyRequest { name, namespace, roles, expires_in_s };
    let made = block_on(async { target.client()?.create_key(&request).await })?;
    if target.json {
        out!("{}", serde_json::to_string(&made).map_err(|error| error.to_string())?);
    } else {
        out!("{}", made.key);
        let roles = made.roles.join(", ");
        let validity = match &made.expires_ms {
            Some(at) => format!("valid until {}", moment(at)),
            None => "valid until it is revoked".to_owned(),
        };
        let (id, namespace) = (&made.id, &made.namespace);
        let mut err = std::io::stderr();
        // The key was printed, so a closed standard error is no failure.
        let _ = writeln!(err, "key {id} of namespace {namespace}, roles: {roles}, {validity}. It is not shown again.");
    }
    Ok(())
}

/// Lists keys with their last use and expiry.
///
/// # Errors
/// If the caller may not do so.
pub fn ls(target: &Target) -> Result<(), String> {
    let keys = listed(target)?;
    if !target.json {
        out!("{:<18} {:<16} {:<20} {:<20} {:<30} roles", "id", "namespace", "name", "last use", "expires");
    }
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    for key in keys {
        if target.json {
            out!("{}", serde_json::to_string(&key).map_err(|error| error.to_string())?);
        } else {
            let roles = key.roles.join(",");
            let at = |time: &Option<String>| time.as_deref().map_or_else(|| "never".to_owned(), moment);
            let (used, expires) = (at(&key.last_used_ms), at(&key.expires_ms));
            let expires = match remaining_days(key.expires_ms.as_deref(), now_ms) {
                _ if key.expired => format!("{expires} (expired)"),
                Some(days) if days <= SOON_DAYS => format!("{expires} (in {days} d)"),
                _ => expires,
            };
            out!("{:<18} {:<16} {:<20} {used:<20} {expires:<30} {roles}", key.id, key.namespace, key.name);
        }
    }
    Ok(())
}

/// Returns all keys, each with its last use on any of the nodes that `target` names: a node knows only its own uses.
fn listed(target: &Target) -> Result<Vec<KeyInfo>, String> {
    let nodes = target.clients(TIMEOUT).map_err(|error| error.to_string())?;
    let mut keys = block_on(async { target.client()?.keys().await })?;
    if nodes.len() < 2 {
        return Ok(keys);
    }
    for (url, node) in nodes {
        match block_on(async { node.keys().await }) {
            Ok(known) => keys.iter_mut().for_each(|key| note_uses(key, &known)),
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "uses on {url} are not shown: {error}");
            }
        }
    }
    Ok(keys)
}

/// Raises the last use of a key to what another node knows of it.
fn note_uses(key: &mut KeyInfo, known: &[KeyInfo]) {
    let at = |key: &KeyInfo| key.last_used_ms.as_ref().and_then(|ms| ms.parse::<u64>().ok());
    let other = known.iter().find(|other| other.id == key.id);
    if let Some(other) = other.filter(|other| at(other) > at(key)) {
        key.last_used_ms.clone_from(&other.last_used_ms);
    }
}

/// Revokes a key.
///
/// # Errors
/// If there is none with this id, the caller may not do so, or it is the last key of an operator of the service and
/// `force` is not set.
pub fn revoke(target: &Target, id: &str, force: bool) -> Result<(), String> {
    block_on(async { target.client()?.revoke_key(id, force).await })
}

/// Returns the whole days until a key expires, if it does.
fn remaining_days(expires_ms: Option<&str>, now_ms: u128) -> Option<u128> {
    let at: u128 = expires_ms?.parse().ok()?;
    Some(at.saturating_sub(now_ms) / 86_400_000)
}

/// Formats milliseconds since 1970 as a time in UTC, `2026-11-22T06:30:00Z`.
fn moment(ms: &str) -> String {
    let Ok(ms) = ms.parse::<u64>() else { return ms.to_owned() };
    let (days, second) = (ms / 86_400_000, ms / 1000 % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Returns the date of a day since 1970-01-01 (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_in_utc() {
        for (ms, expected) in [
            ("0", "1970-01-01T00:00:00Z"),
            ("951782400000", "2000-02-29T00:00:00Z"),
            ("1700000000000", "2023-11-14T22:13:20Z"),
            ("4107542399999", "2100-02-28T23:59:59Z"),
            ("no time", "no time"),
        ] {
            assert_eq!(moment(ms), expected);
        }
    }
}
