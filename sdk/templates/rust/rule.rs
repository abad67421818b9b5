//! {{name}}: a conflict rule. It decides which transaction wins a contended row: it computes a rank for each contended
//! transaction from the transaction's own columns; the lowest rank wins, and equal ranks are ordered by arrival.

use tribunal_plugin_sdk::rule::{Columns, Ranks, Txns};
use tribunal_plugin_sdk::{Fault, Plugin, Rule, config};

/// The rule.
#[derive(Debug)]
pub struct {{Name}};

impl Plugin for {{Name}} {
    const NAME: &'static str = "{{name}}";
    const ABOUT: &'static str = "The transaction that arrived first wins.";

    fn init(config: &str) -> Result<Self, Fault> {
        config::none(config).map(|()| {{Name}})
    }
}

impl Rule for {{Name}} {
    // Columns that are not named here arrive empty.
    const NEEDS: Columns = Columns::CSN;

    fn rank(&self, txns: Txns) -> Result<Ranks, Fault> {
        Ok(Ranks { hi: vec![0; txns.csn.len()], lo: txns.csn })
    }
}

tribunal_plugin_sdk::export_rule!({{Name}});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_arrival_wins() {
        // Every column of a sample has a value; the rule only gets those that it needs.
        let txns = Txns { csn: vec![7, 3], ..Txns::sample(2) }.only({{Name}}::NEEDS);
        let ranks = {{Name}}.rank(txns).unwrap();
        assert!((ranks.hi[1], ranks.lo[1]) < (ranks.hi[0], ranks.lo[0]));
    }
}
