//! Adaptors reuse their instances between batches: a used instance gives the same results as a fresh one.

use tribunal_types::{
    Csn, Epoch, Lsn, RecordBatch, RecordHead, RecordWrite, Span, StorageReply, TxnId, Version, WriteKind,
};
use tribunal_wasm::{Builtin, PluginEngine, PluginLimits, WasmAdaptor, World};

/// Configuration of the adaptor.
const SETTINGS: &str = "{\"prefix\": \"docs/\"}";

fn adaptor(instances_max: u32) -> WasmAdaptor {
    let engine = PluginEngine::new(PluginLimits { instances_max, ..PluginLimits::default() }).expect("starts");
    let redis = Builtin::find(World::LogAdaptor, "redis").expect("is built in");
    WasmAdaptor::new(redis.load(&engine, SETTINGS).expect("loads"), "docs").expect("has every function")
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
fn an_empty_batch_needs_no_call() {
    assert_eq!(adaptor(1).encode(&RecordBatch::default()), Ok(Vec::new()));
}

#[test]
fn a_reused_instance_gives_the_results_of_a_fresh_one() {
    let fresh = adaptor(2);
    // Two adaptors that share a single cache permit.
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
            // A failure discards the instance, which callers do not notice.
            let wrong = kept[0].read_watermark(&StorageReply::Raw(vec![2])).expect_err("holds no watermark");
            assert_eq!(Err(wrong), fresh.read_watermark(&StorageReply::Raw(vec![2])));
        }
    }
}

/// The largest batch that a push reads: 8 MiB, plus the rest of a record that begins below that.
#[test]
fn the_largest_batches_fit() {
    let large = vec![b'9'; 1 << 20];
    let few: Vec<(WriteKind, &[u8], &[u8])> = vec![(WriteKind::Put, b"key", &large); 18];
    let many: Vec<(WriteKind, &[u8], &[u8])> = vec![(WriteKind::Put, b"k", b"1"); 1 << 18];
    let adaptor = adaptor(1);
    for rows in [&few, &many] {
        let requests = adaptor.encode(&batch(rows)).expect("encodes");
        assert_eq!(requests.last().map(|request| request.last), Some(Lsn(6)));
    }
}
