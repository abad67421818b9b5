//! `tribunal plugin history`: the plugins of each slot over time, newest first.

use tribunal_api::{PluginActivation, PluginList};

use super::activation::{change, filler};
use super::remote::{get, print_json};
use crate::commands::output::out;
use crate::commands::target::Target;

/// Prints the history of a slot, or of all.
///
/// # Errors
/// If the service cannot be reached, or has no such slot.
pub fn show(target: &Target, slot: Option<&str>) -> Result<(), String> {
    let mut list: PluginList = get(target, "/v1/admin/plugins")?;
    if let Some(wanted) = slot {
        let names = list.slots.iter().map(|slot| slot.slot.clone()).collect::<Vec<_>>().join(", ");
        list.slots.retain(|slot| slot.slot == wanted);
        if list.slots.is_empty() {
            return Err(format!("there is no slot `{wanted}`; slots are {names}"));
        }
    }
    if target.json {
        let entries: Vec<&PluginActivation> = list.slots.iter().flat_map(|slot| &slot.history).collect();
        return print_json(&entries);
    }
    for slot in &list.slots {
        out!("{}", slot.slot);
        let pending = slot.pending.as_ref().map(|entry| &entry.control);
        for entry in &slot.history {
            let epochs = epochs(entry, pending == Some(&entry.control));
            out!("  {epochs:<20} {}, {}", filler(entry), change(entry));
        }
    }
    Ok(())
}

/// Describes the epochs that an entry decided.
fn epochs(entry: &PluginActivation, pending: bool) -> String {
    match (&entry.since_epoch, &entry.until_epoch) {
        (Some(since), Some(until)) => format!("{since}..={until}"),
        (Some(since), None) => format!("{since}.."),
        _ if pending => format!("from {} on", entry.from_epoch),
        _ => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_shows_its_epochs_and_its_author() {
        let entry = |since: Option<&str>, until: Option<&str>| PluginActivation {
            control: "7".into(),
            slot: "rule".into(),
            name: "priority".into(),
            digest: "9f86d081884c7d65".into(),
            config_digest: String::new(),
            config: None,
            by: "activate".into(),
            who: Some("ops".into()),
            at_ms: Some("1767225600000".into()),
            since_epoch: since.map(Into::into),
            until_epoch: until.map(Into::into),
            from_epoch: "9000".into(),
            replaces: None,
            declare_again: Vec::new(),
        };
        assert_eq!(epochs(&entry(Some("9000"), Some("9999")), false), "9000..=9999");
        assert_eq!(epochs(&entry(Some("9000"), None), false), "9000..");
        assert_eq!(epochs(&entry(None, None), true), "from 9000 on");
        assert_eq!(epochs(&entry(None, None), false), "none");
        let with = |config: &str| {
            let config = serde_json::value::RawValue::from_string(config.into()).ok();
            filler(&PluginActivation { config, ..entry(None, None) })
        };
        assert_eq!(filler(&entry(None, None)), "priority (9f86d081884c)");
        assert_eq!(with(r#"{"turns": 3}"#), r#"priority (9f86d081884c) {"turns": 3}"#);
        let long = with(&format!(r#"{{"text": "{}"}}"#, "\u{e4}".repeat(200)));
        assert!(long.len() < 240 && long.ends_with("..."), "{long}");
        let emptied = PluginActivation { slot: "adaptor:a".into(), digest: "0".repeat(64), ..entry(None, None) };
        assert_eq!(filler(&emptied), "nothing");
        assert_eq!(change(&entry(None, None)), "activate by ops on Thu, 01 Jan 2026 00:00:00 GMT");
    }
}
