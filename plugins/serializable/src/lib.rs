//! Serializable: every row read must be at the version seen, every range unchanged. The merge handles the order within
//! the epoch.

use tribunal_plugin_sdk::validator::{Evidence, Groups, RANGE_CONFLICT, READ_CONFLICT, Validation, accept_all};
use tribunal_plugin_sdk::{Fault, Plugin, Validator, config};

/// The validator.
#[derive(Debug)]
pub struct Serializable;

impl Plugin for Serializable {
    const NAME: &'static str = "serializable";
    const ABOUT: &'static str = "Rejects a transaction if a row or a range that it read has changed.";

    fn init(config: &str) -> Result<Self, Fault> {
        config::none(config).map(|()| Serializable)
    }
}

impl Validator for Serializable {
    const NEEDS: Groups = Groups::READS.union(Groups::RANGES);

    fn validate(&self, evidence: Evidence) -> Result<Validation, Fault> {
        let mut answer = accept_all(evidence.count);
        let (reads, ranges) = (&evidence.reads, &evidence.ranges);
        let (mut read_start, mut range_start) = (0, 0);
        for t in 0..answer.code.len() {
            let (read_end, range_end) = (reads.ends[t] as usize, ranges.ends[t] as usize);
            let seen = &reads.seen[read_start..read_end];
            let latest = &reads.latest[read_start..read_end];
            let changed = &ranges.changed[range_start..range_end];
            if let Some(i) = seen.iter().zip(latest).position(|(seen, latest)| seen != latest) {
                (answer.code[t], answer.witness[t]) = (READ_CONFLICT, i as u32);
            } else if let Some(i) = changed.iter().position(|&changed| changed != 0) {
                (answer.code[t], answer.witness[t]) = (RANGE_CONFLICT, (seen.len() + i) as u32);
            }
            (read_start, range_start) = (read_end, range_end);
        }
        Ok(answer)
    }
}

tribunal_plugin_sdk::export_validator!(Serializable);
