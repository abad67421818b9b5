//! Read committed: reads are not checked.

use tribunal_plugin_sdk::validator::{Evidence, Groups, Validation, accept_all};
use tribunal_plugin_sdk::{Fault, Plugin, Validator, config};

/// The validator.
#[derive(Debug)]
pub struct ReadCommitted;

impl Plugin for ReadCommitted {
    const NAME: &'static str = "read-committed";
    const ABOUT: &'static str = "Accepts every transaction: reads saw committed rows, that is all the level asks.";

    fn init(config: &str) -> Result<Self, Fault> {
        config::none(config).map(|()| ReadCommitted)
    }
}

impl Validator for ReadCommitted {
    const NEEDS: Groups = Groups::empty();

    fn validate(&self, evidence: Evidence) -> Result<Validation, Fault> {
        Ok(accept_all(evidence.count))
    }
}

tribunal_plugin_sdk::export_validator!(ReadCommitted);
