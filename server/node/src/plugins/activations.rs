//! Activations as shown by the API.

use sha2::{Digest, Sha256};
use tribunal_service::plugins::Activation;
use tribunal_types::{PastEntry, PluginActivation, SlotEntry};

/// Returns the API's view of an entry, without the epochs that it decided.
#[must_use]
pub fn shown(entry: &SlotEntry) -> Activation {
    let PluginActivation { choice, from, who, at_ms, .. } = &entry.activation;
    Activation {
        control: entry.index,
        slot: choice.slot.clone(),
        name: choice.name.clone(),
        digest: choice.digest,
        config_digest: Sha256::digest(choice.config.as_bytes()).into(),
        config: choice.config.clone(),
        who: (!who.is_empty()).then(|| who.clone()),
        at_ms: (*at_ms > 0).then_some(*at_ms),
        since: None,
        until: None,
        by: entry.activation.cause(),
        from: *from,
        empties: choice.is_none(),
        replaces: None,
        declare_again: Vec::new(),
    }
}

/// Returns the API's view of an entry in a slot's history.
#[must_use]
pub fn shown_past(past: &PastEntry) -> Activation {
    Activation { since: past.entry.since, until: past.until, ..shown(&past.entry) }
}
