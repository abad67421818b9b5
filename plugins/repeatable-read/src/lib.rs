//! Repeatable read: every row read must be at the version seen.

use tribunal_plugin_sdk::validator::{Evidence, Groups, READ_CONFLICT, Validation, accept_all};
use tribunal_plugin_sdk::{Fault, Plugin, Validator, config};

/// The validator.
#[derive(Debug)]
pub struct RepeatableRead;

impl Plugin for RepeatableRead {
    const NAME: &'static str = "repeatable-read";
    const ABOUT: &'static str = "Rejects a transaction if a row that it read has changed, appeared or is gone.";

    fn init(config: &str) -> Result<Self, Fault> {
        config::none(config).map(|()| RepeatableRead)
    }
}

impl Validator for RepeatableRead {
    const NEEDS: Groups = Groups::READS;

    fn validate(&self, evidence: Evidence) -> Result<Validation, Fault> {
        let mut answer = accept_all(evidence.count);
        let reads = &evidence.reads;
        let mut pairs = reads.seen.iter().zip(&reads.latest);
        let mut start = 0;
        for ((&end, code), witness) in reads.ends.iter().zip(&mut answer.code).zip(&mut answer.witness) {
            let own = pairs.by_ref().take((end - start) as usize);
            // The whole row set is consumed even after a stale read, so that the next transaction starts at its own.
            for (i, (seen, latest)) in own.enumerate() {
                if seen != latest && *code == 0 {
                    (*code, *witness) = (READ_CONFLICT, i as u32);
                }
            }
            start = end;
        }
        Ok(answer)
    }
}

tribunal_plugin_sdk::export_validator!(RepeatableRead);
