//! {{name}}: an isolation validator. It replaces the validator of a level and must reject at least what that level
//! forbids. This one implements repeatable read: every row must still have the version that was read.

use tribunal_plugin_sdk::validator::{Evidence, Groups, READ_CONFLICT, Validation, judge_each};
use tribunal_plugin_sdk::{Fault, Plugin, Validator, config};

/// The validator.
#[derive(Debug)]
pub struct {{Name}};

impl Plugin for {{Name}} {
    const NAME: &'static str = "{{name}}";
    const ABOUT: &'static str = "Rejects a transaction if a row that it read has changed.";

    fn init(config: &str) -> Result<Self, Fault> {
        config::none(config).map(|()| {{Name}})
    }
}

impl Validator for {{Name}} {
    // Lists of groups that are not named here arrive empty.
    const NEEDS: Groups = Groups::READS;

    fn validate(&self, evidence: Evidence) -> Result<Validation, Fault> {
        let reads = &evidence.reads;
        let mut start = 0;
        // Judge each transaction by itself. Reasons of plugins have the codes 1 to 127, those from 64 on permanent: see
        // `sdk/src/validator.rs`, which also lists a validator's inputs and obligations.
        Ok(judge_each(evidence.count, |t| {
            let end = reads.ends[t] as usize;
            let mut own = reads.seen[start..end].iter().zip(&reads.latest[start..end]);
            start = end;
            own.position(|(seen, latest)| seen != latest).map(|i| (READ_CONFLICT, i as u32))
        }))
    }
}

tribunal_plugin_sdk::export_validator!({{Name}});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_of_an_old_version_is_rejected() {
        // Every group of a sample has values; the validator only gets those that it needs.
        let mut evidence = Evidence::sample(2);
        evidence.reads.latest[1] += 1;
        let judged = {{Name}}.validate(evidence.only({{Name}}::NEEDS)).unwrap();
        assert_eq!((judged.code[0], judged.code[1], judged.witness[1]), (0, READ_CONFLICT, 0));
    }
}
