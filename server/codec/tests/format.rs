//! Golden files of the current format, which releases after the first must read.
//!
//! A changed format gets a new version number and a separate golden file. Before the first release, an older version is
//! refused; after it, the decoder still reads the old version.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use tribunal_codec::{batch_head, decode_batch, decode_outcome, encode_batch, encode_outcome};
use tribunal_types::{
    Batch, BodyHash, Conflict, ControlIndex, CreatedRow, Csn, Decision, Digest, EarlyAbort, Epoch, EpochOutcome,
    FenceItem, FenceResult, GroupId, ImportedVersion, Incarnation, Isolation, Lsn, NamespaceId, NodeId, OpKind,
    PolicyFallback, Range, Read, Reason, RowKey, Span, Stage, StoreId, StoreLsn, StoreSnapshot, TxnId, TxnIx,
    TxnRequest, VerdictAt, Version, Witness, Write, WriteKind,
};

const GROUP: GroupId = GroupId { node: NodeId(3), incarnation: Incarnation(7) };

fn keyer(namespace: NamespaceId, store: StoreId, key: &[u8]) -> RowKey {
    let sum = key.iter().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    RowKey { hi: sum, lo: u64::from(namespace.0) << 32 | u64::from(store.0) }
}

fn id(n: u8) -> TxnId {
    TxnId([1, 0x93, 0xa5, 0xb0, 0x7a, n, 0x7c, n, 0x80, n, n, n, n, n, n, n])
}

fn version(epoch: u64, position: u32) -> Version {
    Version::new(Epoch(epoch), position).unwrap()
}

/// Ten writes of the same kind, like those of most transactions.
fn usual() -> TxnRequest {
    let mut txn = TxnRequest { id: id(1), body_hash: BodyHash(0x1234_5678), priority: 100, ..TxnRequest::default() };
    for n in 0..10_u8 {
        let key = Span::push(&mut txn.keys, format!("row/{n:04}").as_bytes());
        let value = Span::push(&mut txn.values, &[b'a' + n; 12]);
        let row = keyer(txn.namespace, StoreId(1), key.of(&txn.keys));
        txn.writes.push(Write {
            row,
            store: StoreId(1),
            key,
            value,
            kind: WriteKind::Put,
            integer: false,
            start_len: 0,
        });
    }
    txn
}

/// A transaction with every optional field.
fn unusual() -> TxnRequest {
    let mut txn = TxnRequest {
        id: id(2),
        body_hash: BodyHash(u64::MAX),
        namespace: NamespaceId(5),
        isolation: Isolation::Snapshot,
        priority: 7,
        origin: 0xfeed,
        start: Some(Epoch(90)),
        first_attempt_ms: Some(0x0193_a5b0_0000),
        snapshots: vec![StoreSnapshot { store: StoreId(2), at: Epoch(89) }],
        traceparent: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into()),
        ..TxnRequest::default()
    };
    let mut key = |text: &str| Span::push(&mut txn.keys, text.as_bytes());
    let (read, absent, start, end, inserted, deleted) = (key("r"), key("no"), key("a"), key("b"), key("i"), key("d"));
    let row = |span: Span, keys: &[u8]| keyer(NamespaceId(5), StoreId(2), span.of(keys));
    let store = StoreId(2);
    txn.reads.push(Read { row: row(read, &txn.keys), seen: Some(version(80, 3)), store, key: read });
    txn.reads.push(Read { row: row(absent, &txn.keys), seen: None, store, key: absent });
    txn.ranges.push(Range { store, start, end });
    for (key, kind, text, integer) in [
        (inserted, WriteKind::Insert, "1", true),
        (read, WriteKind::Add, "-5", true),
        (deleted, WriteKind::Delete, "", false),
    ] {
        let value = Span::push(&mut txn.values, text.as_bytes());
        txn.writes.push(Write { row: row(key, &txn.keys), store, key, value, kind, integer, start_len: 0 });
    }
    txn
}

fn batch() -> Batch {
    let clock_ms = 1_800_000_000_000;
    let mut batch = Batch {
        group: GROUP,
        first: Epoch(98),
        last: Epoch(100),
        control: ControlIndex(4),
        clock_ms,
        closes: true,
        ..Batch::default()
    };
    batch.push(&usual(), Csn::new(clock_ms * 1000 + 5, NodeId(3)));
    batch.push(&unusual(), Csn::new(clock_ms * 1000 + 9, NodeId(4)));
    let conflict = Conflict {
        store: StoreId(2),
        key: b"k".to_vec(),
        end: None,
        op: OpKind::Read,
        read_version: Some(version(3, 1)),
        current_version: Some(version(9, 2)),
        by_txn: Some(id(9)),
        row: None,
        changed_in: None,
        stage: Stage::ALL[0],
    };
    batch.early_aborts.push(EarlyAbort {
        id: id(3),
        body_hash: Some(BodyHash(8)),
        namespace: NamespaceId(0),
        reason: Reason::ClientAbort,
        conflicts: vec![conflict],
    });
    batch.fences.push(FenceItem { id: id(4), namespace: NamespaceId(1) });
    batch.imports.push(ImportedVersion {
        row: RowKey { hi: 1, lo: 2 },
        store: StoreId(2),
        version: version(50, 1),
        integer: true,
    });
    batch.keys = Arc::new(batch.keys.to_vec());
    batch
}

fn usual_outcome() -> EpochOutcome {
    EpochOutcome {
        epoch: Epoch(100),
        epoch_time_ms: 1_800_000_000_000,
        decisions: vec![Decision::Committed { version: version(100, 1) }; 2],
        order: vec![TxnIx(0), TxnIx(1)],
        lsns: (0..2).map(|n| StoreLsn { txn: TxnIx(n), store: StoreId(1), lsn: Lsn(900 + u64::from(n)) }).collect(),
        floor: Epoch(40),
        digest: Digest(0xabcd),
        ..EpochOutcome::default()
    }
}

fn unusual_outcome() -> EpochOutcome {
    EpochOutcome {
        decisions: vec![
            Decision::Committed { version: version(100, 2) },
            Decision::Aborted { reason: Reason::Plugin(9), first: 0, count: 1 },
            Decision::Replayed { original: VerdictAt { epoch: Epoch(70), item: 3 } },
            Decision::BodyMismatch,
            Decision::Expired,
        ],
        witnesses: vec![Witness {
            op: OpKind::Write,
            index: 2,
            current: Some(version(60, 4)),
            winner: Some(TxnIx(0)),
            stage: Stage::ALL[2],
        }],
        order: vec![TxnIx(0)],
        lsns: vec![
            StoreLsn { txn: TxnIx(0), store: StoreId(1), lsn: Lsn(12) },
            StoreLsn { txn: TxnIx(0), store: StoreId(4), lsn: Lsn(1) },
        ],
        early_aborts: vec![VerdictAt { epoch: Epoch(100), item: 5 }],
        fences: vec![
            FenceResult::Fenced,
            FenceResult::Known(VerdictAt { epoch: Epoch(99), item: 0 }),
            FenceResult::Expired,
        ],
        imported: vec![17, 0],
        fallbacks: vec![PolicyFallback { level: Some(Isolation::Snapshot), fault: "out of fuel".into() }],
        created: [(0, 3), (0, 7), (2, 0)].map(|(txn, write)| CreatedRow { txn: TxnIx(txn), write }).to_vec(),
        ..usual_outcome()
    }
}

/// Returns the bytes of a golden file; with `TRIBUNAL_WRITE_FORMAT=1` writes the file first.
fn checked_in(name: &str, written_now: &[u8]) -> Vec<u8> {
    let path = PathBuf::from("tests/format").join(name);
    if std::env::var_os("TRIBUNAL_WRITE_FORMAT").is_some() {
        let lines: Vec<String> =
            written_now.chunks(40).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
        fs::write(&path, lines.join("\n") + "\n").unwrap();
    }
    let text: String = fs::read_to_string(&path).unwrap().split_whitespace().collect();
    (0..text.len() / 2).map(|n| u8::from_str_radix(&text[2 * n..2 * n + 2], 16).unwrap()).collect()
}

/// Returns adds that may create their rows, between other adds.
fn adds() -> Batch {
    let mut txn = TxnRequest { id: id(5), priority: 100, ..TxnRequest::default() };
    for (n, start) in [(1, ""), (2, "7"), (3, "-9007199254740990"), (4, ""), (5, "")] {
        let key = Span::push(&mut txn.keys, format!("count/{n}").as_bytes());
        let value = Span::push(&mut txn.values, b"5");
        let start_len = Span::push(&mut txn.values, start.as_bytes()).len as u8;
        let row = keyer(txn.namespace, StoreId(1), key.of(&txn.keys));
        txn.writes.push(Write { row, store: StoreId(1), key, value, kind: WriteKind::Add, integer: true, start_len });
    }
    let mut batch = Batch { group: GROUP, first: Epoch(7), last: Epoch(7), clock_ms: 9_000, ..Batch::default() };
    batch.push(&txn, Csn::new(9_000_000, NodeId(3)));
    batch.keys = Arc::new(batch.keys.to_vec());
    batch
}

#[test]
fn batches_of_format_4_are_read_and_written() {
    for (name, batch) in [("batch-4.hex", batch()), ("batch-4-adds.hex", adds())] {
        let mut bytes = Vec::new();
        encode_batch(&batch, &mut bytes);
        let kept = checked_in(name, &bytes);
        assert_eq!(decode_batch(&kept, GROUP, &keyer), Ok(batch), "{name}");
        assert_eq!(bytes, kept, "{name}: what is written has changed: that takes another version number");
    }
}

#[test]
fn outcomes_of_format_4_are_read_and_written() {
    for (name, outcome) in [("outcome-4.hex", usual_outcome()), ("outcome-4-unusual.hex", unusual_outcome())] {
        let mut bytes = Vec::new();
        encode_outcome(&outcome, &mut bytes);
        let kept = checked_in(name, &bytes);
        assert_eq!(decode_outcome(&kept, Epoch(100)).as_ref(), Ok(&outcome), "{name}");
        assert_eq!(bytes, kept, "{name}: what is written has changed: that takes another version number");
    }
}

#[test]
fn a_record_of_another_version_is_refused_with_what_to_do() {
    let (mut written, mut decided) = (Vec::new(), Vec::new());
    encode_batch(&batch(), &mut written);
    encode_outcome(&usual_outcome(), &mut decided);
    for other in [written[1] - 1, written[1] + 1] {
        written[1] = other;
        let errors = [batch_head(&written).map(drop), decode_batch(&written, GROUP, &keyer).map(drop)];
        for error in errors.map(|read| read.expect_err("it is not read").to_string()) {
            assert!(error.contains("another release wrote it; use that release"), "{error}");
        }
    }
    decided[1] -= 1;
    let error = decode_outcome(&decided, Epoch(100)).expect_err("it is not read").to_string();
    assert!(error.contains("another release wrote it"), "{error}");
}
