//! Snapshot isolation with bounded staleness: beyond the level's rules, a snapshot must not be older than `epochs_max`
//! epochs.

use serde::Deserialize;
use tribunal_plugin_sdk::validator::{
    Evidence, Groups, NO_WITNESS, RANGE_CONFLICT, READ_CONFLICT, Validation, WRITE_CONFLICT, judge_each, write_flag,
};
use tribunal_plugin_sdk::{Fault, Plugin, Validator, config};

/// A reason specific to this plugin: clients see `plugin:1`.
const TOO_STALE: u8 = 1;
/// The value of `add` in a write's `kind`.
const ADD: u8 = 4;

/// The validator.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoundedStaleness {
    /// Maximum epochs between a snapshot and the epoch that resolves.
    #[serde(default = "some")]
    epochs_max: u64,
}

fn some() -> u64 {
    1000
}

impl Plugin for BoundedStaleness {
    const NAME: &'static str = "bounded-staleness";
    const ABOUT: &'static str = "Snapshot isolation on snapshots that are not too old.";

    fn init(config: &str) -> Result<Self, Fault> {
        config::parse(config)
    }
}

impl Validator for BoundedStaleness {
    const NEEDS: Groups = Groups::SNAPSHOTS.union(Groups::READS).union(Groups::RANGES).union(Groups::WRITES);

    fn validate(&self, evidence: Evidence) -> Result<Validation, Fault> {
        let Evidence { snapshots, reads, ranges, writes, epoch, .. } = &evidence;
        let (mut read, mut range, mut write) = (0, 0, 0);
        Ok(judge_each(evidence.count, |t| {
            let own_reads = read..reads.ends[t] as usize;
            let own_ranges = range..ranges.ends[t] as usize;
            let own_writes = write..writes.ends[t] as usize;
            (read, range, write) = (own_reads.end, own_ranges.end, own_writes.end);
            if epoch.saturating_sub(snapshots.named[t]) > self.epochs_max {
                return Some((TOO_STALE, NO_WITNESS));
            }
            let first = snapshots.named[t].max(snapshots.current_from[t]);
            let last = if snapshots.multi_version[t] == 0 { epoch - 1 } else { snapshots.named[t] };
            if first > snapshots.current_until[t].min(last) {
                let mut pairs = reads.seen[own_reads.clone()].iter().zip(&reads.latest[own_reads.clone()]);
                let witness = pairs.position(|(seen, latest)| seen != latest);
                return Some((READ_CONFLICT, witness.map_or(NO_WITNESS, |i| i as u32)));
            }
            if let Some(i) = ranges.changed[own_ranges.clone()].iter().position(|&changed| changed != 0) {
                return Some((RANGE_CONFLICT, (own_reads.len() + i) as u32));
            }
            let defeated = own_writes.clone().position(|i| {
                let flags = writes.flags[i];
                if flags & write_flag::WAS_READ != 0 {
                    flags & write_flag::READ_CURRENT == 0
                } else {
                    flags & write_flag::CHANGED_SINCE_SNAPSHOT != 0 && writes.kind[i] != ADD
                }
            });
            defeated.map(|i| (WRITE_CONFLICT, (own_reads.len() + own_ranges.len() + i) as u32))
        }))
    }
}

tribunal_plugin_sdk::export_validator!(BoundedStaleness);
