//! Converts an outcome's indices to a client's verdict, with its conflicts by key and version.
//!
//! Read-only. Indices that do not fit the input (they cannot come from a resolver) are ignored, never followed.

use alloc::vec::Vec;

use tribunal_types::{
    Batch, Conflict, Decision, EpochInput, EpochOutcome, FenceResult, Isolation, Lsn, OpKind, Read, Reason, Stage,
    StoreId, TxnIx, Verdict, VerdictAt, Version, Witness, Write, WriteKind,
};

use crate::state::window::KeyRange;

/// Returns the verdict of one transaction; `None` for `Replayed`, `BodyMismatch` and `Expired`, whose answer is
/// elsewhere. Scans the epoch's whole list of positions: use [`Verdicts`] for many transactions.
#[must_use]
pub fn verdict_of(input: &EpochInput, outcome: &EpochOutcome, ix: TxnIx) -> Option<Verdict> {
    let lsns = || outcome.lsns.iter().filter(|at| at.txn == ix).map(|at| (at.store, at.lsn)).collect();
    verdict_at(input, outcome, ix, lsns)
}

/// Returns the verdict that this epoch gave to an item, numbered as in [`VerdictAt`]: transactions first, then early
/// aborts, then fences. `None` if the item's verdict was given elsewhere, or if there is no such item.
#[must_use]
pub fn item_verdict(input: &EpochInput, outcome: &EpochOutcome, item: u32) -> Option<Verdict> {
    let txns = input.txn_count();
    let mut rest = item as usize;
    if rest < txns {
        return verdict_of(input, outcome, TxnIx(item));
    }
    rest -= txns;
    let aborted = |reason, conflicts| Some(Verdict::Aborted { epoch: input.epoch, reason, conflicts });
    if let Some(&at) = outcome.early_aborts.get(rest) {
        let abort = input.batches.iter().flat_map(|batch| &batch.early_aborts).nth(rest)?;
        let own = VerdictAt { epoch: input.epoch, item };
        return if at == own { aborted(abort.reason, abort.conflicts.clone()) } else { None };
    }
    match outcome.fences.get(rest - outcome.early_aborts.len())? {
        FenceResult::Fenced => aborted(Reason::Fenced, Vec::new()),
        FenceResult::Known(_) | FenceResult::Expired => None,
    }
}

/// All verdicts of one epoch, indexed once.
#[derive(Debug)]
pub struct Verdicts<'a> {
    input: &'a EpochInput,
    outcome: &'a EpochOutcome,
    /// By transaction: its first entry in the outcome's `lsns`, which are grouped by transaction.
    first_lsn: Vec<u32>,
}

impl<'a> Verdicts<'a> {
    /// Indexes an epoch.
    #[must_use]
    pub fn new(input: &'a EpochInput, outcome: &'a EpochOutcome) -> Self {
        let mut first_lsn = alloc::vec![u32::MAX; outcome.decisions.len()];
        for (i, at) in outcome.lsns.iter().enumerate().rev() {
            if let Some(first) = first_lsn.get_mut(at.txn.0 as usize) {
                *first = i as u32;
            }
        }
        Verdicts { input, outcome, first_lsn }
    }

    /// Returns the verdict of one transaction, like [`verdict_of`].
    #[must_use]
    pub fn of(&self, ix: TxnIx) -> Option<Verdict> {
        let lsns = || -> Vec<(StoreId, Lsn)> {
            let first = self.first_lsn.get(ix.0 as usize).map_or(usize::MAX, |&first| first as usize);
            let own = self.outcome.lsns.get(first..).unwrap_or(&[]).iter().take_while(|at| at.txn == ix);
            own.map(|at| (at.store, at.lsn)).collect()
        };
        verdict_at(self.input, self.outcome, ix, lsns)
    }
}

fn verdict_at(
    input: &EpochInput,
    outcome: &EpochOutcome,
    ix: TxnIx,
    lsns: impl FnOnce() -> Vec<(StoreId, Lsn)>,
) -> Option<Verdict> {
    match *outcome.decisions.get(ix.0 as usize)? {
        Decision::Committed { version } => {
            let (batch, t) = input.locate(ix);
            Some(Verdict::Committed { epoch: input.epoch, csn: batch.txns[t].csn, version, lsns: lsns() })
        }
        Decision::Aborted { reason, first, count } => {
            let witnesses = outcome.witnesses.iter().skip(first as usize).take(count as usize);
            let conflicts = witnesses.filter_map(|w| conflict_of(input, ix, &blamed(input, ix, reason, w))).collect();
            Some(Verdict::Aborted { epoch: input.epoch, reason, conflicts })
        }
        Decision::Replayed { .. } | Decision::BodyMismatch | Decision::Expired => None,
    }
}

/// Returns the witness to show. A validator of snapshots may reject a transaction of which no read is stale, and then
/// names none of them: the transaction names a snapshot of a multi-version store, and has read a row at a later version.
/// That read is to blame, and the row's last writer, rather than the first operation.
pub(crate) fn blamed(input: &EpochInput, ix: TxnIx, reason: Reason, witness: &Witness) -> Witness {
    let (batch, t) = input.locate(ix);
    let reads = &batch.reads[batch.reads_of(t)];
    let is_unchanged = |read: &Read| read.seen == witness.current;
    let snapshot = batch.snapshots[batch.snapshots_of(t)].iter().map(|snapshot| snapshot.at).max();
    let Some(snapshot) = snapshot.filter(|_| {
        (batch.txns[t].isolation, reason) == (Isolation::Snapshot, Reason::ReadConflict)
            && (witness.op, witness.index, witness.stage) == (OpKind::Read, 0, Stage::Validate)
            && reads.first().is_some_and(is_unchanged)
    }) else {
        return *witness;
    };
    let is_later = |read: &Read| read.seen.is_some_and(|seen| seen.epoch() > snapshot);
    match reads.iter().position(is_later) {
        Some(later) => Witness { index: later as u32, current: reads[later].seen, ..*witness },
        None => *witness,
    }
}

/// Returns a witness against transaction `ix` as a conflict, by key and version; `None` if it does not name an
/// operation of the transaction.
///
/// # Panics
/// If the epoch has no such transaction.
#[must_use]
pub fn conflict_of(input: &EpochInput, ix: TxnIx, witness: &Witness) -> Option<Conflict> {
    let (batch, t) = input.locate(ix);
    let index = witness.index as usize;
    let (store, key, end, read_version) = match witness.op {
        OpKind::Read => {
            let read = batch.reads[batch.reads_of(t)].get(index)?;
            (read.store, read.key, None, read.seen)
        }
        OpKind::Range => {
            let range = batch.ranges[batch.ranges_of(t)].get(index)?;
            (range.store, range.start, Some(range.end.of(&batch.keys).to_vec()), None)
        }
        OpKind::Write => {
            let write = batch.writes[batch.writes_of(t)].get(index)?;
            (write.store, write.key, None, None)
        }
    };
    let (version_now, changed_in) = match witness.op {
        OpKind::Range => (None, witness.current.map(Version::epoch)),
        OpKind::Read | OpKind::Write => (witness.current, None),
    };
    let mut conflict = Conflict {
        store,
        key: key.of(&batch.keys).to_vec(),
        end,
        op: witness.op,
        read_version,
        row: None,
        current_version: version_now,
        by_txn: None,
        changed_in,
        stage: witness.stage,
    };
    if let Some(winner) = witness.winner.filter(|winner| (winner.0 as usize) < input.txn_count()) {
        let (batch, t) = input.locate(winner);
        conflict.by_txn = Some(batch.txns[t].id);
        conflict.row = first_in_range(batch, t, &conflict).map(|write| write.key.of(&batch.keys).to_vec());
    }
    Some(conflict)
}

/// Returns a transaction's write with the smallest key in the conflict's range; `None` if the conflict has no range.
fn first_in_range<'a>(batch: &'a Batch, t: usize, conflict: &Conflict) -> Option<&'a Write> {
    let end = conflict.end.as_deref()?;
    let range = KeyRange { store: conflict.store, start: &conflict.key, end };
    let key = |write: &Write| write.key.of(&batch.keys);
    let writes = batch.writes[batch.writes_of(t)].iter();
    writes.filter(|write| range.place(write.store, key(write)).is_eq()).min_by(|a, b| key(a).cmp(key(b)))
}

/// The committed transactions of an epoch by version. Finding a winner takes logarithmic time plus one step for each
/// transaction with the same version: uncontended transactions share a version, so in an epoch without contention these
/// are all of them.
#[derive(Debug)]
pub struct CommittedByVersion(Vec<(Version, TxnIx)>);

impl CommittedByVersion {
    /// Builds the index.
    #[must_use]
    pub fn new(outcome: &EpochOutcome) -> CommittedByVersion {
        let committed = outcome.decisions.iter().zip(0..).filter_map(|(decision, ix)| match *decision {
            Decision::Committed { version } => Some((version, TxnIx(ix))),
            _ => None,
        });
        let mut committed: Vec<_> = committed.collect();
        committed.sort_unstable();
        CommittedByVersion(committed)
    }

    /// Returns the bytes of memory that the index of an outcome occupies.
    #[must_use]
    pub fn memory_bytes(outcome: &EpochOutcome) -> usize {
        outcome.order.len() * size_of::<(Version, TxnIx)>()
    }

    /// Returns the transactions with this version, which wrote no row in common.
    fn of(&self, version: Version) -> impl Iterator<Item = TxnIx> {
        let first = self.0.partition_point(|(other, _)| *other < version);
        self.0[first..].iter().take_while(move |(other, _)| *other == version).map(|(_, txn)| *txn)
    }
}

/// Completes a conflict that was found against the state before the loser's epoch, from the epoch that last wrote the
/// row: adds the winning transaction and, for a range, the row and its version. `committed` belongs to the same
/// outcome.
pub fn name_winner(input: &EpochInput, committed: &CommittedByVersion, conflict: &mut Conflict) {
    if conflict.op == OpKind::Range {
        let committed = committed.0.iter().map(|(version, txn)| (input.locate(*txn), *version));
        let own = committed.filter_map(|((batch, t), version)| {
            let write = first_in_range(batch, t, conflict)?;
            Some((write.key.of(&batch.keys), version, write.kind, batch.txns[t].id))
        });
        // The smallest key, and its last writer.
        let last = own.min_by(|a, b| a.0.cmp(b.0).then(b.1.cmp(&a.1)));
        let Some((row, version, kind, id)) = last else { return };
        conflict.current_version = (kind != WriteKind::Delete).then_some(version);
        (conflict.row, conflict.by_txn) = (Some(row.to_vec()), Some(id));
        return;
    }
    let wrote = |batch: &Batch, t: usize| {
        let mut writes = batch.writes[batch.writes_of(t)].iter();
        writes.any(|write| write.store == conflict.store && write.key.of(&batch.keys) == conflict.key)
    };
    let Some(version) = conflict.current_version else { return };
    let mut candidates = committed.of(version).map(|txn| input.locate(txn));
    conflict.by_txn = candidates.find(|(batch, t)| wrote(batch, *t)).map(|(batch, t)| batch.txns[t].id);
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;

    use tribunal_types::{
        Csn, EarlyAbort, Epoch, FenceItem, NamespaceId, Range, RowKey, Span, StoreLsn, StoreSnapshot, TxnId, TxnRequest,
    };

    use super::*;

    const S: StoreId = StoreId(1);

    fn version(n: u64) -> Option<Version> {
        Version::from_bits(n)
    }

    /// Transaction 0 (group 0) wins; 1 (group 1) loses a read, a range and a write; 2 is a replay.
    fn epoch() -> (EpochInput, EpochOutcome) {
        let mut txn = TxnRequest { id: TxnId([1; 16]), ..TxnRequest::default() };
        let key = Span::push(&mut txn.keys, b"won");
        let write = Write {
            row: RowKey::default(),
            store: S,
            key,
            value: Span::default(),
            kind: WriteKind::Put,
            integer: false,
            start_len: 0,
        };
        txn.writes.push(write);
        let mut one = Batch::default();
        one.push(&txn, Csn(5));

        let mut txn = TxnRequest { id: TxnId([2; 16]), ..TxnRequest::default() };
        let key = Span::push(&mut txn.keys, b"x");
        let end = Span::push(&mut txn.keys, b"z");
        txn.reads.push(Read { row: RowKey::default(), seen: version(3), store: S, key });
        txn.ranges.push(Range { store: S, start: key, end });
        txn.writes.push(Write { key: end, ..write });
        let abort = EarlyAbort {
            id: TxnId([4; 16]),
            body_hash: None,
            namespace: NamespaceId(0),
            reason: Reason::ClientAbort,
            conflicts: Vec::new(),
        };
        let fence = FenceItem { id: TxnId([5; 16]), namespace: NamespaceId(0) };
        let mut two = Batch {
            early_aborts: alloc::vec![abort.clone(), abort],
            fences: alloc::vec![fence; 2],
            ..Batch::default()
        };
        two.push(&txn, Csn(6));
        two.push(&TxnRequest::default(), Csn(7));
        let witness = |op, current, winner| Witness { op, index: 0, current, winner, stage: Stage::Merge };
        let elsewhere = VerdictAt { epoch: Epoch(2), item: 0 };
        let outcome = EpochOutcome {
            decisions: alloc::vec![
                Decision::Committed { version: version(9).unwrap() },
                Decision::Aborted { reason: Reason::ReadConflict, first: 1, count: 4 },
                Decision::Replayed { original: elsewhere },
            ],
            witnesses: alloc::vec![
                witness(OpKind::Read, None, None),
                witness(OpKind::Read, version(4), None),
                witness(OpKind::Range, None, Some(TxnIx(0))),
                witness(OpKind::Write, None, Some(TxnIx(99))),
                Witness { index: 7, ..witness(OpKind::Write, None, None) },
            ],
            lsns: alloc::vec![
                StoreLsn { txn: TxnIx(0), store: S, lsn: Lsn(1) },
                StoreLsn { txn: TxnIx(0), store: StoreId(2), lsn: Lsn(8) },
            ],
            early_aborts: alloc::vec![VerdictAt { epoch: Epoch(3), item: 3 }, elsewhere],
            fences: alloc::vec![FenceResult::Fenced, FenceResult::Known(elsewhere)],
            ..EpochOutcome::default()
        };
        (EpochInput { epoch: Epoch(3), epoch_time_ms: 0, batches: alloc::vec![Arc::new(one), Arc::new(two)] }, outcome)
    }

    #[test]
    fn a_read_later_than_the_snapshot_is_to_blame_if_no_read_is_stale() {
        let at = |epoch| Version::new(Epoch(epoch), 1);
        let mut txn = TxnRequest { isolation: Isolation::Snapshot, ..TxnRequest::default() };
        txn.snapshots.push(StoreSnapshot { store: S, at: Epoch(10) });
        for (key, epoch) in [(b"a", 8), (b"b", 11)] {
            let key = Span::push(&mut txn.keys, key);
            txn.reads.push(Read { row: RowKey::default(), seen: at(epoch), store: S, key });
        }
        let mut batch = Batch::default();
        batch.push(&txn, Csn(1));
        let input = EpochInput { epoch: Epoch(12), epoch_time_ms: 0, batches: alloc::vec![Arc::new(batch)] };
        let named = |current| {
            let outcome = EpochOutcome {
                decisions: alloc::vec![Decision::Aborted { reason: Reason::ReadConflict, first: 0, count: 1 }],
                witnesses: alloc::vec![Witness {
                    op: OpKind::Read,
                    index: 0,
                    current,
                    winner: None,
                    stage: Stage::Validate
                }],
                ..EpochOutcome::default()
            };
            let Some(Verdict::Aborted { conflicts, .. }) = verdict_of(&input, &outcome, TxnIx(0)) else { panic!() };
            (conflicts[0].key.clone(), conflicts[0].read_version, conflicts[0].current_version)
        };
        assert_eq!(named(at(8)), (b"b".to_vec(), at(11), at(11)));
        assert_eq!(named(at(9)), (b"a".to_vec(), at(8), at(9)), "its read is stale");
    }

    #[test]
    fn a_commit_names_its_positions() {
        let (input, outcome) = epoch();
        let expected = Verdict::Committed {
            epoch: Epoch(3),
            csn: Csn(5),
            version: version(9).unwrap(),
            lsns: alloc::vec![(S, Lsn(1)), (StoreId(2), Lsn(8))],
        };
        assert_eq!(verdict_of(&input, &outcome, TxnIx(0)), Some(expected));
    }

    #[test]
    fn the_winner_of_an_earlier_epoch_is_found_by_version_and_row() {
        let (input, outcome) = epoch();
        let lost = Conflict {
            store: S,
            key: b"won".to_vec(),
            end: None,
            op: OpKind::Read,
            read_version: version(3),
            row: None,
            current_version: version(9),
            by_txn: None,
            changed_in: None,
            stage: Stage::Admission,
        };
        let winner = |conflict: &Conflict| {
            let mut named = conflict.clone();
            name_winner(&input, &CommittedByVersion::new(&outcome), &mut named);
            named
        };
        assert_eq!(winner(&lost).by_txn, Some(TxnId([1; 16])));
        let other_version = Conflict { current_version: version(8), ..lost.clone() };
        let other_row = Conflict { key: b"x".to_vec(), ..lost.clone() };
        let absent = Conflict { current_version: None, ..lost.clone() };
        for conflict in [other_version, other_row, absent] {
            assert_eq!(winner(&conflict).by_txn, None, "{conflict:?}");
        }
        let range = Conflict {
            key: b"a".to_vec(),
            end: Some(Vec::new()),
            op: OpKind::Range,
            read_version: None,
            current_version: None,
            changed_in: Some(Epoch(3)),
            ..lost.clone()
        };
        let found = winner(&range);
        assert_eq!(found.by_txn, Some(TxnId([1; 16])));
        assert_eq!((found.row, found.current_version), (Some(b"won".to_vec()), version(9)));
        let elsewhere = winner(&Conflict { end: Some(b"w".to_vec()), ..range });
        assert_eq!((elsewhere.row, elsewhere.by_txn), (None, None));
    }

    #[test]
    fn an_abort_names_key_versions_and_winner() {
        let (input, outcome) = epoch();
        let Some(Verdict::Aborted { epoch, reason, conflicts }) = verdict_of(&input, &outcome, TxnIx(1)) else {
            panic!("transaction 1 aborts");
        };
        assert_eq!((epoch, reason), (Epoch(3), Reason::ReadConflict));
        let read = Conflict {
            store: S,
            key: b"x".to_vec(),
            end: None,
            op: OpKind::Read,
            read_version: version(3),
            row: None,
            current_version: version(4),
            by_txn: None,
            changed_in: None,
            stage: Stage::Merge,
        };
        let range = Conflict {
            end: Some(b"z".to_vec()),
            op: OpKind::Range,
            read_version: None,
            current_version: None,
            by_txn: Some(TxnId([1; 16])),
            ..read.clone()
        };
        let write = Conflict { key: b"z".to_vec(), end: None, op: OpKind::Write, by_txn: None, ..range.clone() };
        assert_eq!(conflicts, [read, range, write], "indices that fit nothing are left out");
    }

    #[test]
    fn items_are_numbered_through_transactions_given_verdicts_and_fences() {
        let (input, outcome) = epoch();
        let aborted = |reason| Some(Verdict::Aborted { epoch: Epoch(3), reason, conflicts: Vec::new() });
        let got: Vec<_> = (2..8).map(|item| item_verdict(&input, &outcome, item)).collect();
        let expected = [None, aborted(Reason::ClientAbort), None, aborted(Reason::Fenced), None, None];
        assert_eq!(got, expected);
        assert_eq!(item_verdict(&input, &outcome, 1), verdict_of(&input, &outcome, TxnIx(1)));
    }

    #[test]
    fn the_index_answers_the_same() {
        let (input, outcome) = epoch();
        let all = Verdicts::new(&input, &outcome);
        for ix in (0..4).map(TxnIx) {
            assert_eq!(all.of(ix), verdict_of(&input, &outcome, ix));
        }
    }
}
