//! The built-in rules and validators in native code: the fallback after a plugin's fault, and the baseline for its
//! cost.

use alloc::format;
use alloc::vec::Vec;

use tribunal_types::{Isolation, Reason, WriteKind};

use crate::policy::{
    ConflictRule, NO_WITNESS, PolicyFault, Ranks, TxnColumns, Validation, Validator, ValidatorColumns, group,
    write_flag,
};

/// The built-in conflict rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NativeRule {
    /// The lowest CSN wins (CCaaS, algorithm 1 and definition 1).
    #[default]
    FirstWriterWins,
    /// The transaction that began last wins, then the lowest CSN (GeoGauss, section 4.2: "shorter transaction first").
    ShorterTxnWins,
    /// Origins take turns by epoch: the one at `epoch mod n` is first, where `n` is the configured number of turns.
    FairRotation {
        /// Number of turns; at least 1.
        turns: u32,
    },
    /// The highest priority wins, then the lowest CSN.
    Priority,
}

impl ConflictRule for NativeRule {
    fn rank(&self, txns: &TxnColumns) -> Result<Ranks, PolicyFault> {
        let hi: Vec<u64> = match *self {
            NativeRule::FirstWriterWins => alloc::vec![0; txns.csn.len()],
            NativeRule::ShorterTxnWins => txns.start.iter().map(|start| u64::MAX - start).collect(),
            NativeRule::FairRotation { turns } => {
                let turns = u64::from(turns.max(1));
                let shift = txns.epoch % turns;
                txns.origin.iter().map(|origin| (origin % turns + shift) % turns).collect()
            }
            NativeRule::Priority => txns.priority.iter().map(|p| u64::from(u8::MAX - p)).collect(),
        };
        Ok(Ranks { lo: txns.csn.clone(), hi })
    }
}

impl NativeRule {
    /// Returns the native form of a built-in rule by its module's name and, for `fair-rotation`, its number of turns.
    ///
    /// # Errors
    /// If there is no built-in rule of that name.
    pub fn by_name(name: &str, turns: u32) -> Result<NativeRule, PolicyFault> {
        match name {
            "first-writer-wins" => Ok(NativeRule::FirstWriterWins),
            "shorter-txn-wins" => Ok(NativeRule::ShorterTxnWins),
            "fair-rotation" => Ok(NativeRule::FairRotation { turns }),
            "priority" => Ok(NativeRule::Priority),
            other => Err(PolicyFault(format!("there is no built-in rule named {other}"))),
        }
    }
}

/// The four built-in levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NativeValidator;

/// A rejection: the reason, and the operation to blame.
type Rejection = Option<(Reason, u32)>;

impl Validator for NativeValidator {
    fn needs(&self, level: Isolation) -> u8 {
        match level {
            Isolation::ReadCommitted => 0,
            Isolation::RepeatableRead => group::READS,
            Isolation::Snapshot => group::SNAPSHOTS | group::READS | group::RANGES | group::WRITES,
            Isolation::Serializable => group::READS | group::RANGES,
        }
    }

    fn validate(&self, level: Isolation, columns: &ValidatorColumns) -> Result<Validation, PolicyFault> {
        let n = columns.len();
        let mut answer = Validation { code: Vec::with_capacity(n), witness: Vec::with_capacity(n) };
        for t in 0..n {
            let rejection = match level {
                Isolation::ReadCommitted => None,
                Isolation::RepeatableRead => first_stale_read(columns, t),
                Isolation::Snapshot => judge_snapshot(columns, t),
                Isolation::Serializable => first_stale_read(columns, t).or_else(|| first_changed_range(columns, t)),
            };
            answer.code.push(rejection.map_or(0, |(reason, _)| reason.code()));
            answer.witness.push(rejection.map_or(NO_WITNESS, |(_, witness)| witness));
        }
        Ok(answer)
    }
}

/// Returns the rows of transaction `t` in a column split by `ends`.
fn rows(ends: &[u32], t: usize) -> core::ops::Range<usize> {
    let start = if t == 0 { 0 } else { ends[t - 1] as usize };
    start..ends[t] as usize
}

fn first_stale_read(columns: &ValidatorColumns, t: usize) -> Rejection {
    let at = rows(&columns.reads.ends, t);
    let (seen, latest) = (&columns.reads.seen[at.clone()], &columns.reads.latest[at]);
    let stale = seen.iter().zip(latest).position(|(seen, latest)| seen != latest)?;
    Some((Reason::ReadConflict, stale as u32))
}

fn first_changed_range(columns: &ValidatorColumns, t: usize) -> Rejection {
    let ranges = &columns.ranges;
    if ranges.changed.is_empty() {
        return None;
    }
    let mut at = rows(&ranges.ends, t);
    let start = at.start;
    let reads = rows(&columns.reads.ends, t).len();
    at.find(|&i| ranges.changed[i] != 0).map(|i| (Reason::RangeConflict, (reads + i - start) as u32))
}

/// Judges a transaction by rules (i) to (iii) of the snapshot level.
fn judge_snapshot(columns: &ValidatorColumns, t: usize) -> Rejection {
    let snapshot = columns.snapshot[t];
    let first = snapshot.max(columns.current_from[t]);
    let last = if columns.multi_version[t] == 0 { columns.txns.epoch - 1 } else { snapshot };
    if first > last.min(columns.current_until[t]) {
        let blamed = first_stale_read(columns, t).map_or(NO_WITNESS, |(_, witness)| witness);
        return Some((Reason::ReadConflict, blamed));
    }
    // Reads, ranges, writes: the order in which shard answers combine, so that the shards agree on one reason.
    first_changed_range(columns, t).or_else(|| first_foreign_write(columns, t))
}

/// Applies rule (ii), first committer wins: a written row that was read must still have the version read, any other
/// must be unchanged since the snapshot. An `add` to a row that was not read commutes and is exempt.
fn first_foreign_write(columns: &ValidatorColumns, t: usize) -> Rejection {
    let writes = &columns.writes;
    let mut at = rows(&writes.ends, t);
    let start = at.start;
    let before = rows(&columns.reads.ends, t).len() + rows(&columns.ranges.ends, t).len();
    at.find(|&i| {
        let flags = writes.flags[i];
        if flags & write_flag::WAS_READ != 0 {
            flags & write_flag::READ_CURRENT == 0
        } else {
            writes.kind[i] != WriteKind::Add as u8 && flags & write_flag::CHANGED_SINCE_SNAPSHOT != 0
        }
    })
    .map(|i| (Reason::WriteConflict, (before + i - start) as u32))
}
