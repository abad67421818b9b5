//! Settings of the configuration that are ignored, because the control log has others: with both values, and what to do.
//!
//! A configuration sets them for a new log, or a new cluster, only. A later change has no effect, and the log of the node says so.

use tribunal_core::control::slots::{SlotState, Slots};
use tribunal_types::{Bounds, PluginChoice, PluginSlot};

use crate::config::Config;

/// Returns a sentence for each setting that the configuration names and that is ignored. One with its default may not have been
/// named at all, and is not reported.
#[must_use]
pub fn ignored_by_member(config: &Config, in_force: Option<Bounds>, slots: &Slots) -> Vec<String> {
    let active = slots.slot(&PluginSlot::Rule).and_then(SlotState::active).map(|entry| &entry.activation.choice);
    let rule = active.and_then(|choice| ignored_rule(config, choice));
    ignored_shards(config, in_force).into_iter().chain(rule).collect()
}

/// Returns what to say of `shards` if the log has another number of partitions.
#[must_use]
pub fn ignored_shards(config: &Config, in_force: Option<Bounds>) -> Option<String> {
    let partitions = in_force?.partitions;
    let is_named = config.shards != Config::default().shards;
    (is_named && partitions != config.shards).then(|| {
        format!(
            "`shards` is {} in the configuration and is ignored: the log has {partitions} partitions since it was created, and keeps \
             them. Set `shards = {partitions}`, or remove it; another number needs a new data directory, on all nodes of a cluster",
            config.shards
        )
    })
}

fn ignored_rule(config: &Config, active: &PluginChoice) -> Option<String> {
    let (named, default) = (&config.rule.name, Config::default().rule.name);
    (*named != default && *named != active.name).then(|| {
        format!(
            "`rule.name` is \"{named}\" in the configuration and is ignored: the cluster's rule is \"{}\". To change it, run \
             `tribunal plugin activate {named} --slot rule`, once for the whole cluster; `[rule]` is for a new cluster only",
            active.name
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::recovery::DEFAULT_BOUNDS;
    use crate::config::Rule;

    fn named(rule: &str, shards: u16) -> Config {
        Config { shards, rule: Rule { name: rule.into(), turns: 1 }, ..Config::default() }
    }

    #[test]
    fn a_rule_that_is_not_the_clusters_is_reported_with_both_names() {
        let active = PluginChoice { name: "shorter-txn-wins".into(), ..PluginChoice::default() };
        let said = ignored_rule(&named("priority", 1), &active).expect("it is ignored");
        assert!(said.contains("is \"priority\"") && said.contains("rule is \"shorter-txn-wins\""), "{said}");
        assert!(said.contains("tribunal plugin activate priority --slot rule"), "{said}");
        assert_eq!(ignored_rule(&named("shorter-txn-wins", 1), &active), None);
        assert_eq!(ignored_rule(&Config::default(), &active), None, "nobody named it");
        assert!(ignored_by_member(&named("priority", 1), None, &Slots::default()).is_empty(), "a new cluster");
    }

    #[test]
    fn shards_that_the_log_does_not_have_are_reported_with_both_numbers() {
        let default = Config::default().shards;
        let (other, in_force) = (default + 1, Bounds { partitions: default + 2, ..DEFAULT_BOUNDS });
        let said = ignored_shards(&named("priority", other), Some(in_force)).expect("they are ignored");
        assert!(
            said.contains(&format!("`shards` is {other}")) && said.contains(&format!("has {} part", other + 1)),
            "{said}"
        );
        assert_eq!(ignored_shards(&named("priority", other + 1), Some(in_force)), None);
        assert_eq!(ignored_shards(&named("priority", default), Some(in_force)), None, "nobody named them");
        assert_eq!(ignored_shards(&named("priority", other), None), None, "a new log");
    }
}
