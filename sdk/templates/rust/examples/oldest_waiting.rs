//! {{name}}: a conflict rule. The transaction whose first attempt is the oldest wins a contended row, however often it was
//! retried. So no transaction starves: every retry keeps its `first_attempt_ms`, so that eventually no other is older.

use tribunal_plugin_sdk::rule::{Columns, Ranks, Txns};
use tribunal_plugin_sdk::{Fault, Plugin, Rule, config};

/// The rule.
#[derive(Debug)]
pub struct {{Name}};

impl Plugin for {{Name}} {
    const NAME: &'static str = "{{name}}";
    const ABOUT: &'static str = "The transaction whose first attempt is the oldest wins.";

    fn init(config: &str) -> Result<Self, Fault> {
        config::none(config).map(|()| {{Name}})
    }
}

impl Rule for {{Name}} {
    // Columns that are not named here arrive empty.
    const NEEDS: Columns = Columns::FIRST_ATTEMPT.union(Columns::CSN);

    fn rank(&self, txns: Txns) -> Result<Ranks, Fault> {
        Ok(Ranks { hi: txns.first_attempt, lo: txns.csn })
    }
}

tribunal_plugin_sdk::export_rule!({{Name}});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_first_attempt_wins() {
        let txns = Txns { first_attempt: vec![1_000, 900], ..Txns::sample(2) }.only({{Name}}::NEEDS);
        let ranks = {{Name}}.rank(txns).unwrap();
        assert!((ranks.hi[1], ranks.lo[1]) < (ranks.hi[0], ranks.lo[0]));
    }
}
