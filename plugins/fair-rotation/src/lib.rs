//! Fair rotation: origins are assigned to turns by their hash, and each epoch another turn goes
//! first.

use serde::Deserialize;
use tribunal_plugin_sdk::rule::{Columns, Ranks, Txns};
use tribunal_plugin_sdk::{Fault, Plugin, Rule, config};

/// The rule.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FairRotation {
    /// Number of turns; 0 counts as 1.
    #[serde(default)]
    turns: u32,
}

impl Plugin for FairRotation {
    const NAME: &'static str = "fair-rotation";
    const ABOUT: &'static str = "Origins take turns: in epoch e the one at position -e modulo `turns` wins.";

    fn init(config: &str) -> Result<Self, Fault> {
        config::parse(config)
    }
}

impl Rule for FairRotation {
    const NEEDS: Columns = Columns::CSN.union(Columns::ORIGIN);

    fn rank(&self, txns: Txns) -> Result<Ranks, Fault> {
        let turns = u64::from(self.turns.max(1));
        let shift = txns.epoch % turns;
        let mut hi = txns.origin;
        for origin in &mut hi {
            let place = *origin % turns + shift;
            *origin = if place >= turns { place - turns } else { place };
        }
        Ok(Ranks { hi, lo: txns.csn })
    }
}

tribunal_plugin_sdk::export_rule!(FairRotation);
