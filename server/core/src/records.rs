//! A store's log, derived from the inputs and outcomes of epochs. It stores nothing: the log contains inputs and
//! outcomes, and records are read off them.
//!
//! Invariants: a record contains all rows of one committed transaction in one store; positions are dense, and a page
//! never contains a gap, whatever the caller requests.

use tribunal_types::{
    Batch, CreatedRow, Decision, EpochInput, EpochOutcome, Lsn, ReadLimit, RecordBatch, RecordHead, RecordWrite, Span,
    StoreId, Txn, Version, WriteKind,
};

/// One committed transaction's rows in one store.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Position in the store's log.
    pub lsn: Lsn,
    /// Version of the rows.
    pub version: Version,
    /// The batch that contains keys and values.
    pub batch: &'a Batch,
    /// The transaction's index in it.
    pub txn: usize,
    store: StoreId,
    /// Its adds that created their rows; ascending.
    created: &'a [CreatedRow],
}

impl<'a> Record<'a> {
    /// Returns the transaction.
    #[must_use]
    pub fn txn(&self) -> &'a Txn {
        &self.batch.txns[self.txn]
    }

    /// Returns the rows, in the order of the transaction's writes; spans point into the batch's arenas. An add that
    /// created its row is an insert here.
    pub fn rows(&self) -> impl Iterator<Item = RecordWrite> + Clone + use<'a> {
        let (store, created) = (self.store, self.created);
        let writes = (0..).zip(&self.batch.writes[self.batch.writes_of(self.txn)]);
        writes.filter(move |(_, write)| write.store == store).map(move |(n, write)| match write.start() {
            Some(start) if created.binary_search_by_key(&n, |row| row.write).is_ok() => {
                RecordWrite { kind: WriteKind::Insert, key: write.key, value: start }
            }
            _ => RecordWrite { kind: write.kind, key: write.key, value: write.value },
        })
    }
}

/// Returns the epoch's records of `store` after `after`, in log order. They end before the first gap.
pub fn records_after<'a>(
    input: &'a EpochInput,
    outcome: &'a EpochOutcome,
    store: StoreId,
    after: Lsn,
) -> impl Iterator<Item = Record<'a>> + Clone {
    let mut next = after.next();
    outcome.lsns.iter().filter(move |at| at.store == store && at.lsn > after).map_while(move |at| {
        let Some(&Decision::Committed { version }) = outcome.decisions.get(at.txn.0 as usize) else { return None };
        if at.lsn != next {
            return None;
        }
        next = next.next();
        let (batch, txn) = input.locate(at.txn);
        // Usually empty.
        let of_txn = |row: &CreatedRow| row.txn < at.txn;
        let created = &outcome.created[outcome.created.partition_point(of_txn)..];
        let created = &created[..created.partition_point(|row| row.txn == at.txn)];
        Some(Record { lsn: at.lsn, version, batch, txn, store, created })
    })
}

/// Appends to `into` the epoch's records of `store` that follow `after` and the contents of `into`, until `into`
/// reaches the limit.
///
/// Call it epoch by epoch with the same `into`: once a limit has cut an epoch short, later epochs add nothing, because
/// their records do not follow. An empty `into` gets the store's number.
pub fn records_of(
    input: &EpochInput,
    outcome: &EpochOutcome,
    store: StoreId,
    after: Lsn,
    into: &mut RecordBatch,
    limit: ReadLimit,
) {
    into.store = store;
    let after = into.bounds().map_or(after, |(_, last)| last.max(after));
    for record in records_after(input, outcome, store, after) {
        if into.records.len() >= limit.records_max {
            return;
        }
        let (txn, batch) = (record.txn(), record.batch);
        let bytes = record.rows().fold(txn.traceparent.len, |sum, write| sum + write.key.len + write.value.len);
        if !into.records.is_empty() && into.bytes.len() + bytes as usize > limit.bytes_max {
            return;
        }
        for write in record.rows() {
            let key = Span::push(&mut into.bytes, write.key.of(&batch.keys));
            let value = Span::push(&mut into.bytes, write.value.of(&batch.values));
            into.writes.push(RecordWrite { kind: write.kind, key, value });
        }
        into.records.push(RecordHead {
            lsn: record.lsn,
            epoch: input.epoch,
            csn: txn.csn,
            version: record.version,
            txn_id: txn.id,
            writes_end: into.writes.len() as u32,
            traceparent: Span::push(&mut into.bytes, txn.traceparent.of(&batch.values)),
        });
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;
    use alloc::sync::Arc;
    use alloc::vec::Vec;

    use tribunal_types::{
        Batch, Csn, Epoch, Reason, RowKey, StoreLsn, TxnId, TxnIx, TxnRequest, Version, Write, WriteKind,
    };

    use super::*;

    const S: StoreId = StoreId(1);
    const OTHER: StoreId = StoreId(2);

    /// Two groups, three transactions: the first writes both stores, the second aborts, the third writes `S` twice.
    fn epoch() -> (EpochInput, EpochOutcome) {
        let txn = |n: u8, rows: &[(StoreId, &str, &str)]| {
            let mut txn =
                TxnRequest { id: TxnId([n; 16]), traceparent: Some(String::from("00-ab")), ..Default::default() };
            for &(store, key, value) in rows {
                let key = Span::push(&mut txn.keys, key.as_bytes());
                let value = Span::push(&mut txn.values, value.as_bytes());
                txn.writes.push(Write {
                    row: RowKey::default(),
                    store,
                    key,
                    value,
                    kind: WriteKind::Put,
                    integer: false,
                    start_len: 0,
                });
            }
            txn
        };
        let (mut one, mut two) = (Batch::default(), Batch::default());
        one.push(&txn(1, &[(S, "a", "1"), (OTHER, "b", "2")]), Csn(11));
        one.push(&txn(2, &[(S, "c", "3")]), Csn(12));
        two.push(&txn(3, &[(S, "d", "4"), (S, "e", "5")]), Csn(13));
        let version = |position| Version::new(Epoch(7), position).unwrap();
        let lsn = |txn, store, lsn| StoreLsn { txn: TxnIx(txn), store, lsn: Lsn(lsn) };
        let outcome = EpochOutcome {
            epoch: Epoch(7),
            decisions: alloc::vec![
                Decision::Committed { version: version(2) },
                Decision::Aborted { reason: Reason::WriteConflict, first: 0, count: 0 },
                Decision::Committed { version: version(1) },
            ],
            order: alloc::vec![TxnIx(2), TxnIx(0)],
            lsns: alloc::vec![lsn(2, S, 5), lsn(0, S, 6), lsn(0, OTHER, 1)],
            ..EpochOutcome::default()
        };
        (EpochInput { epoch: Epoch(7), epoch_time_ms: 0, batches: alloc::vec![Arc::new(one), Arc::new(two)] }, outcome)
    }

    fn page(store: StoreId, after: u64, records_max: usize, bytes_max: usize) -> Vec<(u64, u64, Vec<String>)> {
        let (input, outcome) = epoch();
        let mut into = RecordBatch::default();
        records_of(&input, &outcome, store, Lsn(after), &mut into, ReadLimit { records_max, bytes_max });
        assert_eq!(into.store, store);
        let text = |span: Span| String::from_utf8(span.of(&into.bytes).to_vec()).unwrap();
        let rows = |i| into.writes[into.writes_of(i)].iter().map(|w| text(w.key) + "=" + &text(w.value)).collect();
        into.records.iter().for_each(|head| assert_eq!(text(head.traceparent), "00-ab"));
        into.records.iter().enumerate().map(|(i, head)| (head.lsn.0, head.csn.0, rows(i))).collect()
    }

    #[test]
    fn a_record_holds_a_transactions_rows_of_one_store() {
        let rows = |texts: &[&str]| texts.iter().map(|&t| String::from(t)).collect::<Vec<_>>();
        assert_eq!(page(S, 4, 9, 99), [(5, 13, rows(&["d=4", "e=5"])), (6, 11, rows(&["a=1"]))]);
        assert_eq!(page(OTHER, 0, 9, 99), [(1, 11, rows(&["b=2"]))]);
        assert_eq!(page(S, 5, 9, 99), [(6, 11, rows(&["a=1"]))]);
        assert_eq!(page(S, 6, 9, 99), []);
        assert_eq!(page(StoreId(3), 0, 9, 99), []);
    }

    #[test]
    fn limits_cut_between_transactions_and_always_give_one_record() {
        assert_eq!(page(S, 4, 1, 99).len(), 1);
        assert_eq!(page(S, 4, 9, 0).len(), 1);
        assert_eq!(page(S, 4, 0, 99).len(), 0);
    }

    #[test]
    fn a_page_never_holds_a_gap() {
        assert_eq!(page(S, 3, 9, 99), [], "position 4 is not of this epoch");
        let (input, outcome) = epoch();
        let mut into = RecordBatch::default();
        let limit = |records_max| ReadLimit { records_max, bytes_max: 99 };
        records_of(&input, &outcome, S, Lsn(4), &mut into, limit(1));
        let mut later = outcome.clone();
        for at in &mut later.lsns {
            at.lsn.0 += 2;
        }
        records_of(&input, &later, S, Lsn(4), &mut into, limit(9));
        assert_eq!(into.bounds(), Some((Lsn(5), Lsn(5))), "position 6 was cut off, so 7 cannot follow");
        records_of(&input, &outcome, S, Lsn(4), &mut into, limit(9));
        records_of(&input, &later, S, Lsn(4), &mut into, limit(9));
        assert_eq!(into.bounds(), Some((Lsn(5), Lsn(8))));
    }
    #[test]
    fn of_many_adds_that_may_create_exactly_those_that_did_are_inserts() {
        const WRITES: u32 = 1_000;
        let mut request = TxnRequest { id: TxnId([1; 16]), ..TxnRequest::default() };
        for n in 0..WRITES {
            let key = Span::push(&mut request.keys, &n.to_be_bytes());
            // The number to add, then the value of the row that it would create.
            let value = Span::push(&mut request.values, b"0");
            Span::push(&mut request.values, b"1");
            let write = Write {
                row: RowKey::default(),
                store: if n % 5 == 4 { OTHER } else { S },
                key,
                value,
                kind: WriteKind::Add,
                integer: true,
                start_len: 1,
            };
            request.writes.push(write);
        }
        let creates = |n: &u32| n % 3 != 1;
        let mut batch = Batch::default();
        batch.push(&TxnRequest::default(), Csn(10));
        batch.push(&request, Csn(11));
        batch.push(&request, Csn(12));
        let version = Version::new(Epoch(7), 1).unwrap();
        let lsn = |txn, store, lsn| StoreLsn { txn: TxnIx(txn), store, lsn: Lsn(lsn) };
        // The third transaction creates none: the rows exist by then.
        let created = (0..WRITES).filter(creates).map(|write| CreatedRow { txn: TxnIx(1), write });
        let outcome = EpochOutcome {
            epoch: Epoch(7),
            decisions: alloc::vec![Decision::Committed { version }; 3],
            order: alloc::vec![TxnIx(0), TxnIx(1), TxnIx(2)],
            lsns: alloc::vec![lsn(1, S, 1), lsn(1, OTHER, 1), lsn(2, S, 2), lsn(2, OTHER, 2)],
            created: created.collect(),
            ..EpochOutcome::default()
        };
        let input = EpochInput { epoch: Epoch(7), epoch_time_ms: 0, batches: alloc::vec![Arc::new(batch)] };
        for store in [S, OTHER] {
            let records: Vec<_> = records_after(&input, &outcome, store, Lsn(0)).collect();
            let own = || (0..WRITES).filter(|n| (n % 5 == 4) == (store == OTHER));
            let rows = |record: &Record<'_>| -> Vec<_> {
                let key = |row: &RecordWrite| u32::from_be_bytes(row.key.of(&record.batch.keys).try_into().unwrap());
                record.rows().map(|row| (key(&row), row.kind, row.value.of(&record.batch.values).to_vec())).collect()
            };
            let expected: Vec<_> = own()
                .map(|n| {
                    if creates(&n) { (n, WriteKind::Insert, b"1".to_vec()) } else { (n, WriteKind::Add, b"0".to_vec()) }
                })
                .collect();
            assert_eq!(rows(&records[0]), expected);
            assert!(rows(&records[1]).iter().all(|(_, kind, _)| *kind == WriteKind::Add));
            assert_eq!(rows(&records[1]).len(), expected.len());
        }
    }
}
