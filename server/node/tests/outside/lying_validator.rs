//! A validator with the right types that breaks a promise which types cannot express: its configuration names the
//! promise. Without a configuration, it accepts everything.

use serde::Deserialize;
use tribunal_plugin_sdk::validator::{Evidence, Groups, NO_WITNESS, READ_CONFLICT, Validation, judge_each};
use tribunal_plugin_sdk::{Fault, Plugin, Validator, config};

/// The validator.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LyingValidator {
    /// The promise that it breaks, or `nothing`; by default its level's.
    #[serde(default = "level")]
    breaks: String,
}

fn level() -> String {
    "level".to_owned()
}

impl Plugin for LyingValidator {
    const NAME: &'static str = "lying-validator";
    const ABOUT: &'static str = "Breaks the promise that its configuration names.";

    fn init(text: &str) -> Result<Self, Fault> {
        let plugin: LyingValidator = config::parse(text)?;
        while plugin.breaks == "init" {
            core::hint::black_box(());
        }
        Ok(plugin)
    }
}

impl Validator for LyingValidator {
    const NEEDS: Groups = Groups::READS;

    fn validate(&self, evidence: Evidence) -> Result<Validation, Fault> {
        let reads = &evidence.reads;
        let count = if self.breaks == "length" { evidence.count.min(1) } else { evidence.count };
        let mut start = 0;
        Ok(judge_each(count, |t| {
            let own = start..reads.ends[t] as usize;
            start = own.end;
            let stale = || own.clone().position(|i| reads.seen[i] != reads.latest[i]);
            match self.breaks.as_str() {
                "shuffles" => (t == 1).then_some((READ_CONFLICT, NO_WITNESS)),
                "subsets" => (count > 5).then_some((READ_CONFLICT, NO_WITNESS)),
                // Three reads in one shard are one or two each in two shards.
                "splits" => (own.len() > 2).then_some((READ_CONFLICT, NO_WITNESS)),
                "level" => None,
                "everybody" => Some((READ_CONFLICT, NO_WITNESS)),
                "reasons" => stale().map(|_| (255, NO_WITNESS)),
                "witnesses" => stale().map(|_| (READ_CONFLICT, 1000)),
                _ => stale().map(|i| (READ_CONFLICT, i as u32)),
            }
        }))
    }
}

tribunal_plugin_sdk::export_validator!(LyingValidator);
