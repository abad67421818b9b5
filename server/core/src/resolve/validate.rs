//! Validate: the isolation validators judge the evidence; if one fails, the native validator judges instead.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use tribunal_types::{Batch, Isolation, OpKind, PolicyFallback, Reason};

use crate::policy::native::NativeValidator;
use crate::policy::{PolicyFault, Validation, Validator, ValidatorColumns, group, write_flag};
use crate::resolve::evidence::{Interval, LevelEvidence, settle};
use crate::resolve::executor::ShardExecutor;
use crate::resolve::scratch::ShardScratch;
use crate::resolve::shard::Shard;
use crate::resolve::shard_place::ShardPlace;
use crate::resolve::txns::{EpochView, Fate, TxnTable};

/// Combines over all shards when each transaction's reads were current, and writes the result into every shard's
/// columns, for the levels whose validators need snapshots.
pub(crate) fn settle_reads(shards: &mut [&mut ShardScratch], txns: &mut TxnTable, needs: [u8; 4]) {
    let dated = || Isolation::ALL.into_iter().filter(|&level| needs[level as usize] & group::SNAPSHOTS != 0);
    let undecided = shards.iter().any(|s| !s.absences.is_empty());
    let own_absences = shards.iter().any(|s| !s.own_absences.is_empty());
    if shards.len() == 1 && !undecided && !own_absences {
        return;
    }
    for level in shards.iter().flat_map(|shard| dated().map(move |level| &shard.levels[level as usize])) {
        for (i, &t) in level.txns.iter().enumerate() {
            let (from, until) = (&mut txns.current_from[t as usize], &mut txns.current_until[t as usize]);
            *from = (*from).max(level.columns.current_from[i]);
            *until = (*until).min(level.columns.current_until[i]);
        }
    }
    if undecided || own_absences {
        settle_absences(shards, txns);
    }
    for shard in shards {
        for level in dated() {
            let level = &mut shard.levels[level as usize];
            for (i, &t) in level.txns.iter().enumerate() {
                level.columns.current_from[i] = txns.current_from[t as usize];
                level.columns.current_until[i] = txns.current_until[t as usize];
            }
        }
    }
}

/// The undecided absent reads of one transaction.
#[derive(Default)]
struct OpenAbsences<'a> {
    intervals: Vec<&'a [Interval]>,
    /// The last deletion of a row that it read as absent and writes.
    deleted: u64,
}

/// Finds the moment at which the reads of each transaction hold, where a row has several absences or is written.
///
/// Rule (ii) for a row that was read as absent: no other transaction may have written it since that moment, deletions
/// included. So the moment must not precede the deletion. If the reads have no such moment, the write counts as one
/// whose read is no longer current.
fn settle_absences(shards: &mut [&mut ShardScratch], txns: &mut TxnTable) {
    let mut open: BTreeMap<u32, OpenAbsences<'_>> = BTreeMap::new();
    for absences in shards.iter().flat_map(|s| &s.absences) {
        open.entry(absences.txn).or_default().intervals.push(&absences.intervals);
    }
    for own in shards.iter().flat_map(|s| &s.own_absences) {
        let deleted = &mut open.entry(own.txn).or_default().deleted;
        *deleted = own.deleted.max(*deleted);
    }
    let mut foreign: BTreeMap<u32, Interval> = BTreeMap::new();
    for (&txn, OpenAbsences { intervals, deleted }) in &open {
        let t = txn as usize;
        let simple = Interval { from: txns.current_from[t], until: txns.current_until[t] };
        let mut settled = settle(txns.newest[t].max(*deleted), simple, intervals);
        if settled == Interval::NEVER {
            settled = settle(txns.newest[t], simple, intervals);
            foreign.insert(txn, settled);
        }
        (txns.current_from[t], txns.current_until[t]) = (settled.from, settled.until);
    }
    for shard in shards {
        let ShardScratch { own_absences, levels, .. } = &mut **shard;
        let flags = &mut levels[Isolation::Snapshot as usize].columns.writes.flags;
        for own in own_absences.iter().filter(|own| foreign.get(&own.txn).is_some_and(|at| own.deleted > at.until)) {
            flags[own.write as usize] &= !write_flag::READ_CURRENT;
        }
    }
}

/// Judges the transactions of every level that occurs, and adds the levels that fell back to `fallbacks`.
pub(crate) fn run(
    shards: &mut [Shard],
    levels: [bool; 4],
    validator: &dyn Validator,
    exec: &dyn ShardExecutor,
    fallbacks: &mut Vec<PolicyFallback>,
) {
    exec.for_each(shards, &|shard| {
        for level in Isolation::ALL {
            judge(&mut shard.scratch.levels[level as usize], level, validator);
        }
    });
    for level in Isolation::ALL.into_iter().filter(|&level| levels[level as usize]) {
        let fault = shards.iter().find_map(|s| match &s.scratch.levels[level as usize].answer {
            Some(Err(fault)) => Some(fault.0.clone()),
            _ => None,
        });
        let Some(fault) = fault else { continue };
        fallbacks.push(PolicyFallback { level: Some(level), fault });
        exec.for_each(shards, &|shard| judge(&mut shard.scratch.levels[level as usize], level, &NativeValidator));
    }
}

/// Calls a validator, and checks the shape of its answer.
pub(crate) fn judge(evidence: &mut LevelEvidence, level: Isolation, validator: &dyn Validator) {
    if evidence.txns.is_empty() {
        return;
    }
    let answer = validator.validate(level, &evidence.columns);
    evidence.answer = Some(answer.and_then(|answer| checked(answer, evidence.txns.len())));
}

fn checked(answer: Validation, txns: usize) -> Result<Validation, PolicyFault> {
    if answer.code.len() != txns || answer.witness.len() != txns {
        let (codes, witnesses) = (answer.code.len(), answer.witness.len());
        return Err(PolicyFault(format!("{txns} transactions, but {codes} codes and {witnesses} witnesses")));
    }
    match answer.code.iter().find(|&&code| code > 127 && Reason::from_code(code).is_none()) {
        Some(code) => Err(PolicyFault(format!("code {code} is not assigned"))),
        None => Ok(answer),
    }
}

/// Merges one shard's findings into `fates`: failed existence checks and rejections.
pub(crate) fn collect(place: ShardPlace, scratch: &ShardScratch, view: EpochView<'_>, fates: &mut [Fate]) {
    for &(t, fate) in &scratch.rejected {
        let all = &mut fates[t as usize];
        *all = (*all).min(fate);
    }
    for evidence in &scratch.levels {
        let Some(Ok(answer)) = &evidence.answer else { continue };
        for (i, (&t, &code)) in evidence.txns.iter().zip(&answer.code).enumerate() {
            let Some(reason) = Reason::from_code(code) else { continue };
            let (batch, txn) = locate(view, t as usize);
            let op = blamed(place, batch, txn, &evidence.columns, i, answer.witness[i]);
            let all = &mut fates[t as usize];
            *all = (*all).min(Fate::at_validate(op, reason));
        }
    }
}

/// Returns the batch of transaction `t` and its index there.
pub(crate) fn locate<'a>(view: EpochView<'a>, t: usize) -> (&'a Batch, usize) {
    let at = view.txns.bases.partition_point(|base| base.txn <= t) - 1;
    // Batches without transactions share their base with the next one: the last of them is the right one.
    (&view.input.batches[at], t - view.txns.bases[at].txn)
}

/// Maps a witness, counted over the operations in the columns, to an operation of the transaction.
fn blamed(
    place: ShardPlace,
    batch: &Batch,
    txn: usize,
    columns: &ValidatorColumns,
    i: usize,
    witness: u32,
) -> Option<(OpKind, u32)> {
    let len = |ends: &[u32]| (ends[i] - if i == 0 { 0 } else { ends[i - 1] }) as usize;
    let (reads, ranges) = (len(&columns.reads.ends), len(&columns.ranges.ends));
    let nth = witness as usize;
    if nth < reads {
        let mut own = batch.reads[batch.reads_of(txn)].iter().enumerate().filter(|(_, r)| place.owns(r.row));
        return own.nth(nth).map(|(at, _)| (OpKind::Read, at as u32));
    }
    if nth < reads + ranges {
        return Some((OpKind::Range, (nth - reads) as u32));
    }
    let mut own = batch.writes[batch.writes_of(txn)].iter().enumerate().filter(|(_, w)| place.owns(w.row));
    own.nth(nth - reads - ranges).map(|(at, _)| (OpKind::Write, at as u32))
}
