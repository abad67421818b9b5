//! First writer wins: the transaction with the lowest arrival stamp (CCaaS, algorithm 1 and definition 1).

use tribunal_plugin_sdk::rule::{Columns, Ranks, Txns};
use tribunal_plugin_sdk::{Fault, Plugin, Rule, config};

/// The rule.
#[derive(Debug)]
pub struct FirstWriterWins;

impl Plugin for FirstWriterWins {
    const NAME: &'static str = "first-writer-wins";
    const ABOUT: &'static str = "The transaction that arrived first wins.";

    fn init(config: &str) -> Result<Self, Fault> {
        config::none(config).map(|()| FirstWriterWins)
    }
}

impl Rule for FirstWriterWins {
    const NEEDS: Columns = Columns::CSN;

    fn rank(&self, txns: Txns) -> Result<Ranks, Fault> {
        Ok(Ranks { hi: vec![0; txns.csn.len()], lo: txns.csn })
    }
}

tribunal_plugin_sdk::export_rule!(FirstWriterWins);
