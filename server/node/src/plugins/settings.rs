//! What the control log keeps as a plugin's configuration: text that only this crate reads. What the core decides with is
//! handed to it as an [`Intent`].

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use tribunal_core::control::slots::{Entry, Intent, Past};
use tribunal_service::plugins::Activation;
use tribunal_types::{ControlIndex, Epoch, FilledBy, PluginChoice};

/// The configuration of an entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Fingerprint of the engine that runs it, or `native`: another engine may spend other fuel, so it counts from an
    /// epoch on, too.
    pub host: String,
    /// What `init` gets.
    pub init: String,
    /// What kind of change wrote it.
    #[serde(default, skip_serializing_if = "is_configuration", serialize_with = "word", deserialize_with = "of_word")]
    pub by: FilledBy,
    /// Who requested it; empty for the node itself.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub who: String,
    /// What a node that goes back by itself saw fail: the entry is void if another one holds by then.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replaces: u64,
    /// When it was requested, Unix milliseconds by the clock of the node that took the request; 0 if unknown. Nothing is
    /// decided by it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub at_ms: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_configuration(by: &FilledBy) -> bool {
    *by == FilledBy::Configuration
}

fn word<S: Serializer>(by: &FilledBy, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(by.name())
}

fn of_word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<FilledBy, D::Error> {
    let word = String::deserialize(deserializer)?;
    let found = FilledBy::ALL.into_iter().find(|by| by.name() == word);
    found.ok_or_else(|| D::Error::custom(format!("no kind of change is called {word}")))
}

impl Settings {
    /// Reads a choice's settings. Text of another form counts as a configuration of no engine.
    #[must_use]
    pub fn of(choice: &PluginChoice) -> Settings {
        serde_json::from_str(&choice.config).unwrap_or_else(|_| Settings {
            host: String::new(),
            init: choice.config.clone(),
            ..Settings::default()
        })
    }

    /// Writes the settings.
    #[must_use]
    pub fn text(&self) -> String {
        // A structure of strings: it always serialises.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Returns what the core is to know of a choice.
#[must_use]
pub fn intent_of(choice: &PluginChoice) -> Intent {
    let Settings { by, init, replaces, .. } = Settings::of(choice);
    Intent { by, init, replaces: ControlIndex(replaces) }
}

/// Reads an entry of the control log.
#[must_use]
pub fn entry_of(index: ControlIndex, choice: &PluginChoice, from: Epoch) -> Entry {
    Entry::new(index, choice.clone(), intent_of(choice), from)
}

/// Shows an entry, without the epochs that it decided.
#[must_use]
pub fn shown(entry: &Entry) -> Activation {
    let Settings { init, by, who, at_ms, .. } = Settings::of(&entry.choice);
    Activation {
        control: entry.index,
        slot: entry.choice.slot.clone(),
        name: entry.choice.name.clone(),
        digest: entry.choice.digest,
        config_digest: Sha256::digest(init.as_bytes()).into(),
        config: init,
        who: (!who.is_empty()).then_some(who),
        at_ms: (at_ms > 0).then_some(at_ms),
        since: None,
        until: None,
        by,
        from: entry.from,
    }
}

/// Shows an entry of a slot's past.
#[must_use]
pub fn shown_past(past: &Past) -> Activation {
    Activation { since: past.entry.since, until: past.until, ..shown(&past.entry) }
}

#[cfg(test)]
mod tests {
    use tribunal_types::PluginSlot;

    use super::*;

    #[test]
    fn settings_are_written_as_before_unless_somebody_asked() {
        let mut settings = Settings { host: "h".into(), init: "{}".into(), ..Settings::default() };
        assert_eq!(settings.text(), r#"{"host":"h","init":"{}"}"#);
        settings.by = FilledBy::Rollback;
        assert_eq!(settings.text(), r#"{"host":"h","init":"{}","by":"rollback"}"#);
        let choice =
            PluginChoice { slot: PluginSlot::Rule, name: "a".into(), digest: [0; 32], config: settings.text() };
        assert_eq!(Settings::of(&choice), settings);
        assert_eq!(intent_of(&choice), Intent { by: FilledBy::Rollback, init: "{}".into(), ..Intent::default() });
    }
}
