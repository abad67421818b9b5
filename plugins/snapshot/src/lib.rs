//! Snapshot isolation: one snapshot exists at which every read is current, no range has changed since the snapshot, and
//! the first committer wins on writes.

use tribunal_plugin_sdk::adaptor::kind;
use tribunal_plugin_sdk::validator::{
    Evidence, Groups, NO_WITNESS, RANGE_CONFLICT, READ_CONFLICT, Validation, WRITE_CONFLICT, judge_each, write_flag,
};
use tribunal_plugin_sdk::{Fault, Plugin, Validator, config};

/// The validator.
#[derive(Debug)]
pub struct Snapshot;

impl Plugin for Snapshot {
    const NAME: &'static str = "snapshot";
    const ABOUT: &'static str =
        "Rejects a transaction unless its reads form one snapshot and it is the first committer.";

    fn init(config: &str) -> Result<Self, Fault> {
        config::none(config).map(|()| Snapshot)
    }
}

/// The offsets of one transaction's rows.
struct Rows {
    reads: core::ops::Range<usize>,
    ranges: core::ops::Range<usize>,
    writes: core::ops::Range<usize>,
}

/// Returns whether a write of another transaction since the snapshot defeats this one. A row that was read must still
/// be at the version read; any other must be unchanged since the snapshot, except that an addition commutes.
fn is_defeated(kind: u8, flags: u8) -> bool {
    if flags & write_flag::WAS_READ != 0 {
        return flags & write_flag::READ_CURRENT == 0;
    }
    flags & write_flag::CHANGED_SINCE_SNAPSHOT != 0 && kind != kind::ADD
}

fn judge(evidence: &Evidence, t: usize, rows: &Rows) -> Option<(u8, u32)> {
    let (snapshots, reads) = (&evidence.snapshots, &evidence.reads);
    let snapshot = snapshots.named[t];
    let first = snapshot.max(snapshots.current_from[t]);
    let last = if snapshots.multi_version[t] == 0 { evidence.epoch - 1 } else { snapshot };
    if first > last.min(snapshots.current_until[t]) {
        let mut pairs = reads.seen[rows.reads.clone()].iter().zip(&reads.latest[rows.reads.clone()]);
        let witness = pairs.position(|(seen, latest)| seen != latest).map_or(NO_WITNESS, |i| i as u32);
        return Some((READ_CONFLICT, witness));
    }
    // Reads, ranges, writes: the order in which the shards' verdicts combine.
    let changed = &evidence.ranges.changed[rows.ranges.clone()];
    if let Some(i) = changed.iter().position(|&changed| changed != 0) {
        return Some((RANGE_CONFLICT, (rows.reads.len() + i) as u32));
    }
    let (kinds, flags) = (&evidence.writes.kind[rows.writes.clone()], &evidence.writes.flags[rows.writes.clone()]);
    let i = kinds.iter().zip(flags).position(|(&kind, &flags)| is_defeated(kind, flags))?;
    Some((WRITE_CONFLICT, (rows.reads.len() + rows.ranges.len() + i) as u32))
}

impl Validator for Snapshot {
    const NEEDS: Groups = Groups::SNAPSHOTS.union(Groups::READS).union(Groups::RANGES).union(Groups::WRITES);

    fn validate(&self, evidence: Evidence) -> Result<Validation, Fault> {
        let mut rows = Rows { reads: 0..0, ranges: 0..0, writes: 0..0 };
        Ok(judge_each(evidence.count, |t| {
            rows.reads = rows.reads.end..evidence.reads.ends[t] as usize;
            rows.ranges = rows.ranges.end..evidence.ranges.ends[t] as usize;
            rows.writes = rows.writes.end..evidence.writes.ends[t] as usize;
            judge(&evidence, t, &rows)
        }))
    }
}

tribunal_plugin_sdk::export_validator!(Snapshot);
