//! Most writes win: of the transactions that contend for a row, the one that writes the most rows.

use tribunal_plugin_sdk::rule::{Columns, Ranks, Txns};
use tribunal_plugin_sdk::{Fault, Plugin, Rule, config};

/// The rule.
#[derive(Debug)]
pub struct MostWritesWins;

impl Plugin for MostWritesWins {
    const NAME: &'static str = "most-writes-wins";
    const ABOUT: &'static str = "The transaction that writes the most rows wins, then the one that arrived first.";

    fn init(config: &str) -> Result<Self, Fault> {
        config::none(config).map(|()| MostWritesWins)
    }
}

impl Rule for MostWritesWins {
    const NEEDS: Columns = Columns::CSN.union(Columns::WRITES);

    fn rank(&self, txns: Txns) -> Result<Ranks, Fault> {
        Ok(Ranks { hi: txns.writes.iter().map(|&writes| u64::from(u32::MAX - writes)).collect(), lo: txns.csn })
    }
}

tribunal_plugin_sdk::export_rule!(MostWritesWins);
