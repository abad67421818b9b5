//! Shorter transaction wins: the last to begin, then the first to arrive (GeoGauss, section 4.2).

use tribunal_plugin_sdk::rule::{Columns, Ranks, Txns};
use tribunal_plugin_sdk::{Fault, Plugin, Rule, config};

/// The rule.
#[derive(Debug)]
pub struct ShorterTxnWins;

impl Plugin for ShorterTxnWins {
    const NAME: &'static str = "shorter-txn-wins";
    const ABOUT: &'static str = "The transaction that began last wins, then the one that arrived first.";

    fn init(config: &str) -> Result<Self, Fault> {
        config::none(config).map(|()| ShorterTxnWins)
    }
}

impl Rule for ShorterTxnWins {
    const NEEDS: Columns = Columns::CSN.union(Columns::START);

    fn rank(&self, txns: Txns) -> Result<Ranks, Fault> {
        // Later starts rank lower; the column is complemented in place.
        let mut hi = txns.start;
        for start in &mut hi {
            *start = !*start;
        }
        Ok(Ranks { hi, lo: txns.csn })
    }
}

tribunal_plugin_sdk::export_rule!(ShorterTxnWins);
