//! Parses the configuration of a plugin, JSON text, into a type of the author's choice.

use alloc::format;

use serde::de::DeserializeOwned;

use crate::Fault;

/// Parses the text given to `init`; empty text means `{}`.
///
/// # Errors
/// If the text is not JSON of this type; the fault contains the position.
pub fn parse<T: DeserializeOwned>(config: &str) -> Result<T, Fault> {
    let text = if config.trim().is_empty() { "{}" } else { config };
    serde_json::from_str(text).map_err(|e| format!("configuration: {e}"))
}

/// Checks that no configuration was given: empty text, or an empty object.
///
/// # Errors
/// If there is a configuration, since it would be silently ignored.
pub fn none(config: &str) -> Result<(), Fault> {
    let inner = config.trim().trim_start_matches('{').trim_end_matches('}').trim();
    if inner.is_empty() { Ok(()) } else { Err("configuration: this plugin has no configuration".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Deserialize)]
    struct Turns {
        #[serde(default)]
        turns: u32,
    }

    #[test]
    fn json_is_parsed_and_anything_else_rejected() {
        assert_eq!(parse::<Turns>(r#"{"turns": 3}"#).map(|c| c.turns), Ok(3));
        assert_eq!(parse::<Turns>(" ").map(|c| c.turns), Ok(0));
        assert!(parse::<Turns>("{").is_err());
        assert_eq!(none(" { } "), Ok(()));
        assert!(none(r#"{"turns": 3}"#).is_err());
    }
}
