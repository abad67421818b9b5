//! Records survive a round trip, and no input makes a decoder panic or allocate more than its size justifies.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use tribunal_codec::{
    ImageAssembler, batch_head, decode_batch, decode_control, decode_control_image, decode_group_cursors,
    decode_group_record, decode_mark, decode_outcome, decode_readers, encode_batch, encode_outcome, image_pieces,
};
use tribunal_types::{
    Batch, BodyHash, Conflict, ControlIndex, CreatedRow, Csn, Decision, Digest, EarlyAbort, Epoch, EpochOutcome,
    FenceItem, FenceResult, GroupId, ImportedVersion, Incarnation, Isolation, Lsn, NamespaceId, NodeId, OpKind,
    PolicyFallback, Range, Read, Reason, RowKey, Span, Stage, StateImage, StoreId, StoreLsn, StoreSnapshot, TxnId,
    TxnIx, TxnRequest, VerdictAt, Version, Witness, Write, WriteKind,
};

/// A keyer whose results differ from those of a real one.
fn keyer(namespace: NamespaceId, store: StoreId, key: &[u8]) -> RowKey {
    let sum = key.iter().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    RowKey { hi: sum, lo: u64::from(namespace.0) << 32 | u64::from(store.0) }
}

fn version() -> impl Strategy<Value = Version> {
    (0..=Epoch::MAX.0, 1..=Version::POSITION_MAX)
        .prop_map(|(epoch, position)| Version::new(Epoch(epoch), position).unwrap())
}

fn txn_id() -> impl Strategy<Value = TxnId> {
    any::<[u8; 16]>().prop_map(TxnId)
}

fn reason() -> impl Strategy<Value = Reason> {
    prop_oneof![any::<u8>().prop_map(Reason::Plugin), (128..=140_u8).prop_map(|code| Reason::from_code(code).unwrap()),]
}

fn stage() -> impl Strategy<Value = Stage> {
    (0..5_usize).prop_map(|n| Stage::ALL[n])
}

fn op() -> impl Strategy<Value = OpKind> {
    prop_oneof![Just(OpKind::Read), Just(OpKind::Range), Just(OpKind::Write)]
}

prop_compose! {
    fn conflict()(
        store in any::<u32>(), key in vec(any::<u8>(), 0..20), end in proptest::option::of(vec(any::<u8>(), 0..9)),
        op in op(), read_version in proptest::option::of(version()), current_version in proptest::option::of(version()),
        by_txn in proptest::option::of(txn_id()), stage in stage(),
    ) -> Conflict {
        Conflict { store: StoreId(store), key, end, op, read_version, row: None, current_version, by_txn, changed_in: None, stage }
    }
}

prop_compose! {
    fn early_abort()(
        id in txn_id(), hash in proptest::option::of(any::<u64>()), namespace in any::<u32>(), reason in reason(),
        conflicts in vec(conflict(), 0..3),
    ) -> EarlyAbort {
        EarlyAbort { id, body_hash: hash.map(BodyHash), namespace: NamespaceId(namespace), reason, conflicts }
    }
}

prop_compose! {
    fn request()(
        id in txn_id(), hash in any::<u64>(), namespace in prop_oneof![Just(0_u32), any::<u32>()],
        level in 0..4_u8, priority in prop_oneof![Just(100_u8), any::<u8>()],
        origin in prop_oneof![Just(0_u64), any::<u64>()], start in proptest::option::of(0..1_000_u64),
        (traceparent, first_attempt_ms) in
            (proptest::option::of("[0-9a-f-]{1,55}"), proptest::option::of(0..1_u64 << 48)),
        snapshots in vec((0..5_u32, 0..1_000_u64), 0..3),
        reads in vec((0..5_u32, vec(any::<u8>(), 0..30), proptest::option::of(version())), 0..6),
        ranges in vec((0..5_u32, vec(any::<u8>(), 0..9), vec(any::<u8>(), 0..9)), 0..3),
        writes in vec((0..5_u32, vec(any::<u8>(), 0..30), vec(any::<u8>(), 0..60), 0..5_u8, any::<bool>()), 0..6),
        shared_keys in any::<bool>(), alike in 0..3_u8,
    ) -> TxnRequest {
        let namespace = NamespaceId(namespace);
        let mut request = TxnRequest {
            id: TxnId(id.0), body_hash: BodyHash(hash), namespace, isolation: Isolation::from_u8(level).unwrap(),
            priority, origin, start: start.map(Epoch), traceparent, first_attempt_ms, ..TxnRequest::default()
        };
        request.snapshots = snapshots.iter().map(|(s, at)| StoreSnapshot { store: StoreId(*s), at: Epoch(*at) }).collect();
        for (store, key, seen) in &reads {
            let span = Span::push(&mut request.keys, key);
            let store = StoreId(*store);
            request.reads.push(Read { row: keyer(namespace, store, key), seen: *seen, store, key: span });
        }
        for (store, start, end) in &ranges {
            let (start, end) = (Span::push(&mut request.keys, start), Span::push(&mut request.keys, end));
            request.ranges.push(Range { store: StoreId(*store), start, end });
        }
        for (store, key, value, kind, integer) in &writes {
            // Writes that differ only in their keys and values, with values of equal or different lengths: runs.
            let (mut key, mut value) = (key.clone(), value.clone());
            let (store, kind, integer) = if alike > 0 { (&1, &2, &false) } else { (store, kind, integer) };
            if alike > 0 {
                key.resize(11, 7);
            }
            if alike > 1 {
                value.resize(20, 9);
            }
            let (key, value) = (&key, &value);
            let store = StoreId(*store);
            // A read-modify-write may name one key twice.
            let span = match request.reads.first() {
                Some(read) if shared_keys => read.key,
                _ => Span::push(&mut request.keys, key),
            };
            let row = keyer(namespace, store, span.of(&request.keys));
            let value = Span::push(&mut request.values, value);
            let kind = WriteKind::from_u8(*kind).unwrap();
            // An add may contain the initial value of its row.
            let start: &[u8] = if kind == WriteKind::Add { &key[..key.len().min(20)] } else { &[] };
            let start_len = Span::push(&mut request.values, start).len as u8;
            request.writes.push(Write { row, store, key: span, value, kind, integer: *integer, start_len });
        }
        request
    }
}

prop_compose! {
    fn batch()(
        node in 0..1024_u16, incarnation in any::<u32>(), first in 0..1_000_u64, more in 0..5_u64, control in 0..=u64::MAX >> 1,
        clock_ms in 0..2_000_000_000_000_u64, stamp_us in 0..1_u64 << 54, closes in any::<bool>(),
        requests in vec((request(), 0..5_000_u64, prop_oneof![Just(None), (0..1024_u16).prop_map(Some)]), 0..8),
        early_aborts in vec(early_abort(), 0..3), fences in vec((txn_id(), any::<u32>()), 0..3),
        imports in vec((any::<u64>(), any::<u64>(), any::<u32>(), version(), any::<bool>()), 0..3),
    ) -> Batch {
        let group = GroupId { node: NodeId(node), incarnation: Incarnation(incarnation) };
        let mut batch = Batch {
            group, first: Epoch(first), last: Epoch(first + more), control: ControlIndex(control), clock_ms, early_aborts,
            stamp_us: if requests.is_empty() { stamp_us } else { 0 }, closes, ..Batch::default()
        };
        let mut micros = clock_ms;
        for (request, later, other_node) in &requests {
            micros += later;
            batch.push(request, Csn::new(micros, NodeId(other_node.unwrap_or(node))));
        }
        batch.fences =
            fences.into_iter().map(|(id, namespace)| FenceItem { id, namespace: NamespaceId(namespace) }).collect();
        batch.imports = imports
            .into_iter()
            .map(|(hi, lo, store, version, integer)| ImportedVersion {
                row: RowKey { hi, lo }, store: StoreId(store), version, integer,
            })
            .collect();
        batch
    }
}

fn verdict_at() -> impl Strategy<Value = VerdictAt> {
    (any::<u64>(), any::<u32>()).prop_map(|(epoch, item)| VerdictAt { epoch: Epoch(epoch), item })
}

fn decision(witnesses: u32) -> impl Strategy<Value = Decision> {
    prop_oneof![
        (1..=Version::POSITION_MAX).prop_map(|p| Decision::Committed { version: Version::new(Epoch(77), p).unwrap() }),
        version().prop_map(|version| Decision::Committed { version }),
        (reason(), 0..=witnesses).prop_map(move |(reason, first)| Decision::Aborted {
            reason,
            first,
            count: witnesses - first
        }),
        verdict_at().prop_map(|original| Decision::Replayed { original }),
        Just(Decision::BodyMismatch),
        Just(Decision::Expired),
    ]
}

prop_compose! {
    fn witness()(
        op in op(), index in any::<u32>(), current in proptest::option::of(version()),
        winner in proptest::option::of(any::<u32>()), stage in stage(),
    ) -> Witness {
        Witness { op, index, current, winner: winner.map(TxnIx), stage }
    }
}

prop_compose! {
    fn outcome()(
        epoch_time_ms in any::<u64>(), decisions in vec(decision(4), 0..20), witnesses in vec(witness(), 4),
        order in vec(any::<u32>(), 0..20), lsns in vec((any::<u32>(), 0..4_u32, any::<u64>()), 0..20),
        early_aborts in vec(verdict_at(), 0..4),
        fences in vec(
            prop_oneof![
                Just(FenceResult::Fenced), verdict_at().prop_map(FenceResult::Known), Just(FenceResult::Expired)
            ],
            0..4
        ),
        imported in vec(any::<u64>(), 0..3), floor in any::<u64>(),
        fallbacks in vec((proptest::option::of(0..4_u8), "[ -~]{0,20}"), 0..3), digest in any::<u64>(),
        created in prop_oneof![Just(BTreeSet::new()), btree_set((any::<u32>(), any::<u32>()), 1..4)],
    ) -> EpochOutcome {
        EpochOutcome {
            epoch: Epoch(77), epoch_time_ms, decisions, witnesses, order: order.into_iter().map(TxnIx).collect(),
            lsns: lsns
                .into_iter()
                .map(|(txn, store, lsn)| StoreLsn { txn: TxnIx(txn), store: StoreId(store), lsn: Lsn(lsn) })
                .collect(),
            early_aborts, fences, imported, floor: Epoch(floor),
            fallbacks: fallbacks
                .into_iter()
                .map(|(level, fault)| PolicyFallback { level: level.and_then(Isolation::from_u8), fault })
                .collect(),
            digest: Digest(digest),
            created: created.into_iter().map(|(txn, write)| CreatedRow { txn: TxnIx(txn), write }).collect(),
        }
    }
}

/// Feeds bytes to every decoder. The results do not matter, only that each decoder returns.
fn decode_all(bytes: &[u8]) {
    let _ = decode_batch(bytes, GroupId::default(), &keyer);
    let _ = batch_head(bytes);
    let _ = decode_outcome(bytes, Epoch(77));
    let _ = decode_control(bytes);
    let _ = decode_control_image(bytes);
    let _ = decode_mark(bytes);
    let _ = decode_readers(bytes);
    let _ = decode_group_record(bytes);
    let _ = decode_group_cursors(bytes);
    let _ = ImageAssembler::new().add(bytes);
}

/// Damages a record in every way that is cheap to try.
fn damage(bytes: &[u8], at: usize, bit: u8, insert: &[u8]) {
    let at = at % bytes.len();
    let mut flipped = bytes.to_vec();
    flipped[at] ^= 1 << bit;
    decode_all(&flipped);
    decode_all(&bytes[..at]);
    let mut grown = bytes.to_vec();
    grown.splice(at..at, insert.iter().copied());
    decode_all(&grown);
    grown[at..].fill(0xFF);
    decode_all(&grown);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_batch_survives_a_round_trip(batch in batch()) {
        let mut bytes = Vec::new();
        encode_batch(&batch, &mut bytes);
        let mut again = Vec::new();
        encode_batch(&batch, &mut again);
        prop_assert_eq!(&bytes, &again, "the same value, the same bytes");
        let group = batch.group;
        let head = batch_head(&bytes).unwrap();
        prop_assert_eq!((head.first, head.last, head.control), (batch.first, batch.last, batch.control));
        prop_assert_eq!((head.closes, head.last_micros), (batch.closes, batch.proposal().micros()));
        let decoded = decode_batch(&bytes, group, &keyer);
        prop_assert_eq!(decoded.as_ref(), Ok(&batch));
        for cut in 0..bytes.len() {
            // The record ends with the values. A cut that leaves every span intact is only detected by the length of
            // the frame around the record.
            let decoded = decode_batch(&bytes[..cut], group, &keyer);
            prop_assert!(decoded.is_err() || decoded.is_ok_and(|d| d.values.len() < batch.values.len()));
        }
    }

    #[test]
    fn an_outcome_survives_a_round_trip(outcome in outcome()) {
        let mut bytes = Vec::new();
        encode_outcome(&outcome, &mut bytes);
        prop_assert_eq!(decode_outcome(&bytes, Epoch(77)), Ok(outcome));
        for cut in 0..bytes.len() {
            prop_assert!(decode_outcome(&bytes[..cut], Epoch(77)).is_err());
        }
    }

    #[test]
    fn damaged_records_never_panic(
        batch in batch(), outcome in outcome(), at in any::<usize>(), bit in 0..8_u8, insert in vec(any::<u8>(), 0..12),
    ) {
        let mut bytes = Vec::new();
        encode_batch(&batch, &mut bytes);
        damage(&bytes, at, bit, &insert);
        bytes.clear();
        encode_outcome(&outcome, &mut bytes);
        damage(&bytes, at, bit, &insert);
        let mut image = StateImage { epoch: Epoch(3), ..StateImage::default() };
        image.push_words(9, (0..100_u64).map(|n| n.wrapping_mul(at as u64)).collect());
        image.push_bytes(1, insert.clone());
        image_pieces(&image).for_each(|piece| damage(&piece, at, bit, &insert));
    }

    #[test]
    fn random_bytes_never_panic(mut bytes in vec(any::<u8>(), 0..400), kind in 0xB0..0xBB_u8) {
        decode_all(&bytes);
        if bytes.len() > 2 {
            // Get past the check of the first byte.
            for version in [1, 2, 3, 4] {
                (bytes[0], bytes[1]) = (kind, version);
                decode_all(&bytes);
            }
        }
    }
}

/// A batch of transactions with ten writes of random keys and values, which lz4 cannot compress.
fn ten_writes(txns: u64) -> (Batch, usize) {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    };
    let clock_ms = 1_800_000_000_000;
    let group = GroupId { node: NodeId(1), incarnation: Incarnation(0xDEAD_BEEF) };
    let mut batch = Batch { group, first: Epoch(90_000), last: Epoch(90_000), clock_ms, ..Batch::default() };
    let mut payload = 0;
    for n in 0..txns {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&(((clock_ms - random() % 40) << 16) | 0x7000 | random() & 0xFFF).to_be_bytes());
        id[8..].copy_from_slice(&(random() >> 2 | 1 << 63).to_be_bytes());
        let mut request = TxnRequest {
            id: TxnId(id),
            body_hash: BodyHash(random()),
            priority: 100,
            start: Some(Epoch(90_000 - 1 - random() % 3)),
            ..TxnRequest::default()
        };
        for _ in 0..10 {
            let key_bytes: Vec<u8> = (0..16).map(|_| random() as u8).collect();
            let value_bytes: Vec<u8> = (0..90 + random() % 20).map(|_| random() as u8).collect();
            payload += key_bytes.len() + value_bytes.len();
            let key = Span::push(&mut request.keys, &key_bytes);
            let value = Span::push(&mut request.values, &value_bytes);
            let row = keyer(NamespaceId(0), StoreId(1), &key_bytes);
            request.writes.push(Write {
                row,
                store: StoreId(1),
                key,
                value,
                kind: WriteKind::Put,
                integer: false,
                start_len: 0,
            });
        }
        batch.push(&request, Csn::new(clock_ms * 1000 - 3000 + n * 37, NodeId(1)));
    }
    batch.keys = Arc::new(batch.keys.to_vec());
    (batch, payload)
}

#[test]
fn a_transaction_of_ten_writes_costs_less_than_a_hundred_bytes_over_its_keys_and_values() {
    for txns in [1, 10, 100, 1000] {
        let (batch, payload) = ten_writes(txns);
        let mut bytes = Vec::new();
        encode_batch(&batch, &mut bytes);
        assert_eq!(decode_batch(&bytes, batch.group, &keyer), Ok(batch));
        let overhead = (bytes.len() - payload) as f64 / txns as f64;
        println!("{txns:>5} transactions of ten writes: {overhead:.1} bytes over keys and values each");
        assert!(overhead <= 100.0, "{overhead}");
    }
}
