//! Activations of plugins in words.

use std::time::{Duration, UNIX_EPOCH};

use tribunal_api::PluginActivation;

/// Maximum length of a printed configuration in bytes; `--json` prints all of it.
const CONFIG_BYTES_MAX: usize = 200;

/// Describes the kind of change, its requester, and its time.
pub(super) fn change(entry: &PluginActivation) -> String {
    let who = entry.who.as_deref().map_or(String::new(), |who| format!(" by {who}"));
    let at_ms = entry.at_ms.as_deref().and_then(|text| text.parse().ok());
    let at = at_ms.and_then(|ms| UNIX_EPOCH.checked_add(Duration::from_millis(ms)));
    let at = at.map_or(String::new(), |at| format!(" on {}", httpdate::fmt_http_date(at)));
    format!("{}{who}{at}", entry.by)
}

/// Describes the plugin in a slot from an activation on, with its configuration.
pub(super) fn filler(entry: &PluginActivation) -> String {
    if is_empty(entry) {
        return "nothing".to_owned();
    }
    let config = entry.config.as_ref().map_or(String::new(), |config| format!(" {}", bounded(config.get())));
    format!("{} ({}){config}", entry.name, short(&entry.digest))
}

/// Returns a configuration's text on one line, truncated if it is long.
pub(super) fn bounded(config: &str) -> String {
    let line: String = config.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let end = line.floor_char_boundary(CONFIG_BYTES_MAX);
    if end == line.len() { line } else { format!("{}...", &line[..end]) }
}

/// Returns whether an activation leaves an adaptor's slot empty.
pub(super) fn is_empty(entry: &PluginActivation) -> bool {
    entry.slot.starts_with("adaptor:") && entry.digest.bytes().all(|digit| digit == b'0')
}

/// Returns the digits by which people name a version.
pub(super) fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}
