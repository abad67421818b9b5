//! Priority: the highest priority wins, then the first to arrive.

use tribunal_plugin_sdk::rule::{Columns, Ranks, Txns};
use tribunal_plugin_sdk::{Fault, Plugin, Rule, config};

/// The rule.
#[derive(Debug)]
pub struct Priority;

impl Plugin for Priority {
    const NAME: &'static str = "priority";
    const ABOUT: &'static str = "The highest priority wins, then the transaction that arrived first.";

    fn init(config: &str) -> Result<Self, Fault> {
        config::none(config).map(|()| Priority)
    }
}

impl Rule for Priority {
    const NEEDS: Columns = Columns::CSN.union(Columns::PRIORITY);

    fn rank(&self, txns: Txns) -> Result<Ranks, Fault> {
        Ok(Ranks { hi: txns.priority.iter().map(|&priority| u64::from(!priority)).collect(), lo: txns.csn })
    }
}

tribunal_plugin_sdk::export_rule!(Priority);
