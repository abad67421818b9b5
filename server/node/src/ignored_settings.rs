//! Settings that are ignored, with the remedy: those overridden by the control log, and environment variables with
//! almost the name of a setting.
//!
//! The former apply only to a new log, or a new cluster. A later change has no effect, and the node's log reports it.

use std::collections::BTreeMap;

use tribunal_core::control::slots::{SlotState, Slots};
use tribunal_types::{Bounds, PluginChoice, PluginSlot};

use crate::commands::config_help::settings_of_variables;
use crate::config::Config;

/// Returns a sentence for each configured setting that is ignored. A setting with its default value may not have been
/// configured at all, and is not reported.
#[must_use]
pub fn ignored_by_member(config: &Config, in_force: Option<Bounds>, slots: &Slots) -> Vec<String> {
    let active = slots.slot(&PluginSlot::Rule).and_then(SlotState::active).map(|entry| &entry.activation.choice);
    let rule = active.and_then(|choice| ignored_rule(config, choice));
    let bounds = in_force.into_iter().flat_map(|bounds| ignored_bounds(config, bounds));
    ignored_shards(config, in_force).into_iter().chain(rule).chain(bounds).collect()
}

fn ignored_bounds(config: &Config, in_force: Bounds) -> Vec<String> {
    let (named, default) = (&config.resolver, Config::default().resolver);
    let keys = [
        ("window_bytes_max", named.window_bytes_max as u64, default.window_bytes_max as u64, in_force.window_bytes_max),
        ("status_bytes_max", named.status_bytes_max as u64, default.status_bytes_max as u64, in_force.status_bytes_max),
        (
            "plugin_faults_max",
            named.plugin_faults_max.into(),
            default.plugin_faults_max.into(),
            in_force.plugin_faults_max.into(),
        ),
    ];
    let ignored = keys.into_iter().filter(|(_, named, default, used)| named != default && named != used);
    let told = ignored.map(|(key, named, _, used)| {
        format!(
            "`resolver.{key}` is {named} in the configuration and is ignored: the cluster's is {used} since it began. Set \
             `{key} = {used}`, or remove it; `[resolver]` is for a new cluster only"
        )
    });
    told.collect()
}

/// Returns a sentence for each environment variable that is ignored although it looks like a setting.
#[must_use]
pub fn ignored_in_environment() -> Vec<String> {
    ignored_variables(std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()))
}

/// Returns a sentence for each of these variables that resembles a setting, but not in the form read from the
/// environment.
fn ignored_variables(names: impl Iterator<Item = String>) -> Vec<String> {
    let bare = |name: &str| name.replace(['.', '_'], "").to_ascii_uppercase();
    let settings: BTreeMap<String, &str> = settings_of_variables().map(|path| (bare(path), path)).collect();
    let told = names.filter_map(|name| {
        let rest = name.strip_prefix("TRIBUNAL_").filter(|rest| !rest.starts_with('_'))?;
        let path = settings.get(&bare(rest))?;
        let works = path.to_ascii_uppercase().replace('.', "__");
        Some(format!("the variable {name} is not read; to set `{path}`, name it TRIBUNAL__{works}"))
    });
    told.collect()
}

/// Returns the warning about `shards` if the log has another number of partitions.
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
    fn bounds_that_are_not_the_clusters_are_reported_with_both_values() {
        let mut config = Config::default();
        assert_eq!(ignored_bounds(&config, DEFAULT_BOUNDS), Vec::<String>::new());
        config.resolver.plugin_faults_max = DEFAULT_BOUNDS.plugin_faults_max + 1;
        let told = ignored_bounds(&config, DEFAULT_BOUNDS).join("\n");
        let (named, used) = (config.resolver.plugin_faults_max, DEFAULT_BOUNDS.plugin_faults_max);
        assert!(told.contains(&format!("`resolver.plugin_faults_max` is {named}")), "{told}");
        assert!(told.contains(&format!("the cluster's is {used}")) && told.lines().count() == 1, "{told}");
        let in_force = Bounds { plugin_faults_max: named, ..DEFAULT_BOUNDS };
        assert_eq!(ignored_bounds(&config, in_force), Vec::<String>::new());
    }

    #[test]
    fn variables_that_are_named_almost_like_a_setting_are_reported_with_its_name() {
        let check = |name: &str| ignored_variables(std::iter::once(name.to_owned())).concat();
        for (name, works) in [
            ("TRIBUNAL_LISTEN", "TRIBUNAL__LISTEN"),
            ("TRIBUNAL_LOG__RETENTION_HOURS", "TRIBUNAL__LOG__RETENTION_HOURS"),
            ("TRIBUNAL_LOG_RETENTION_HOURS", "TRIBUNAL__LOG__RETENTION_HOURS"),
            ("TRIBUNAL_TLS_CERT_FILE", "TRIBUNAL__TLS__CERT_FILE"),
        ] {
            let told = check(name);
            assert!(told.contains(name) && told.ends_with(&format!(" {works}")), "{told}");
        }
        for read in
            ["TRIBUNAL__LISTEN", "TRIBUNAL_LOG", "TRIBUNAL_URL", "TRIBUNAL_API_KEY", "TRIBUNAL_CA_FILE", "LISTEN"]
        {
            assert_eq!(check(read), "", "{read}");
        }
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
