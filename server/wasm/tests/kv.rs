//! The adaptor of the embedded store speaks its raw format, byte for byte.

use tribunal_types::{
    Ack, Command, Csn, Epoch, Lsn, RecordBatch, RecordHead, RecordWrite, Span, StorageReply, TxnId, Version, WriteKind,
};
use tribunal_wasm::{Builtin, PluginEngine, PluginLimits, WasmAdaptor, World};

fn adaptor() -> WasmAdaptor {
    let engine = PluginEngine::new(PluginLimits { instances_max: 1, ..PluginLimits::default() }).expect("starts");
    let kv = Builtin::find(World::LogAdaptor, "kv").expect("is built in");
    WasmAdaptor::new(kv.load(&engine, "").expect("loads"), "docs").expect("has every function")
}

fn batch(rows: &[(WriteKind, &[u8], &[u8])]) -> RecordBatch {
    let mut batch = RecordBatch::default();
    for &(kind, key, value) in rows {
        let (key, value) = (Span::push(&mut batch.bytes, key), Span::push(&mut batch.bytes, value));
        batch.writes.push(RecordWrite { kind, key, value });
    }
    for (lsn, writes_end) in [(5, 1), (6, rows.len() as u32)] {
        batch.records.push(RecordHead {
            lsn: Lsn(lsn),
            epoch: Epoch(3),
            csn: Csn(9),
            version: Version::new(Epoch(3), lsn as u32).expect("fits"),
            txn_id: TxnId([7; 16]),
            writes_end,
            traceparent: Span::default(),
        });
    }
    batch
}

#[test]
fn records_become_the_raw_format() {
    let rows: [(WriteKind, &[u8], &[u8]); 3] =
        [(WriteKind::Insert, b"k", b"{}"), (WriteKind::Delete, b"\xff", b""), (WriteKind::Add, b"n", b"-3")];
    let requests = adaptor().encode(&batch(&rows)).expect("encodes");
    assert_eq!(requests.len(), 1);
    assert_eq!((requests[0].first, requests[0].last), (Lsn(5), Lsn(6)));
    let mut expected = [4u64.to_le_bytes(), 6u64.to_le_bytes()].concat();
    expected.extend_from_slice(&3u32.to_le_bytes());
    for (row, (kind, key, value)) in rows.iter().enumerate() {
        let version = Version::new(Epoch(3), if row == 0 { 5 } else { 6 }).expect("fits");
        expected.push(*kind as u8);
        expected.extend_from_slice(&version.bits().to_le_bytes());
        for bytes in [key, value] {
            expected.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            expected.extend_from_slice(bytes);
        }
    }
    assert_eq!(requests[0].command, Command::Raw(expected));
}

#[test]
fn nothing_to_say_is_said_without_a_call() {
    assert_eq!(adaptor().encode(&RecordBatch::default()), Ok(Vec::new()));
}

#[test]
fn answers_are_understood() {
    let adaptor = adaptor();
    let watermark = adaptor.watermark().expect("asks");
    assert_eq!(watermark.command, Command::Raw(vec![0; 20]));
    let answer =
        |status: u8, text: &str| StorageReply::Raw([&[status], &42u64.to_le_bytes()[..], text.as_bytes()].concat());
    assert_eq!(adaptor.read_watermark(&answer(0, "")), Ok(Lsn(42)));
    assert!(adaptor.read_watermark(&answer(2, "broken disk")).expect_err("is none").text.contains("broken disk"));
    assert_eq!(adaptor.classify(&answer(0, "")), Ack::Ok);
    assert!(matches!(adaptor.classify(&answer(1, "x")), Ack::Moved(text) if text.contains("42")));
    assert_eq!(adaptor.classify(&answer(2, "full")), Ack::Fatal("full".to_owned()));
    assert!(matches!(adaptor.classify(&StorageReply::Raw(vec![0, 1])), Ack::Fatal(_)));
    assert!(matches!(adaptor.classify(&StorageReply::Resp(Vec::new())), Ack::Fatal(_)));
}

#[test]
fn a_kept_instance_says_what_a_fresh_one_says_however_often() {
    let engine = PluginEngine::new(PluginLimits { instances_max: 2, ..PluginLimits::default() }).expect("starts");
    let module = Builtin::find(World::LogAdaptor, "kv").expect("is built in").load(&engine, "").expect("loads");
    let fresh = WasmAdaptor::new(module, "docs").expect("has every function");
    // Two with one place to rest between them.
    let kept = [fresh.clone().kept(), fresh.clone().kept()];
    for n in 0..300_u32 {
        let key = n.to_string();
        let rows: Vec<(WriteKind, &[u8], &[u8])> = vec![(WriteKind::Put, key.as_bytes(), b"1"); 1 + n as usize % 70];
        let records = batch(&rows);
        let expected = fresh.encode(&records).expect("encodes");
        for kept in &kept {
            assert_eq!(kept.encode(&records).as_ref(), Ok(&expected), "batch {n}");
        }
        if n % 50 == 0 {
            // A failure ends the instance, and nobody notices.
            let wrong = kept[0].read_watermark(&StorageReply::Raw(vec![2])).expect_err("holds no watermark");
            assert_eq!(Err(wrong), fresh.read_watermark(&StorageReply::Raw(vec![2])));
        }
    }
}

/// What the push reads at most: 8 MiB, and then the rest of a record that began below that.
#[test]
fn the_largest_batches_fit() {
    let large = vec![b'9'; 1 << 20];
    let few: Vec<(WriteKind, &[u8], &[u8])> = vec![(WriteKind::Put, b"key", &large); 18];
    let many: Vec<(WriteKind, &[u8], &[u8])> = vec![(WriteKind::Put, b"k", b"1"); 1 << 18];
    for name in ["kv", "redis"] {
        let engine = PluginEngine::new(PluginLimits { instances_max: 1, ..PluginLimits::default() }).expect("starts");
        let builtin = Builtin::find(World::LogAdaptor, name).expect("is built in");
        let adaptor = WasmAdaptor::new(builtin.load(&engine, "").expect("loads"), "docs").expect("has every function");
        for rows in [&few, &many] {
            let requests = adaptor.encode(&batch(rows)).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(requests.last().map(|request| request.last), Some(Lsn(6)), "{name}");
        }
    }
}
