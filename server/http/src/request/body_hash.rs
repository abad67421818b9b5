//! The canonical hash of a commit body: tells a retry from a different body under the same id.
//!
//! XXH3-64 (unkeyed, stable across nodes and versions) over the parsed columns, not over the raw text: order of fields,
//! blanks and escapes in keys and names do not matter. Values count as posted, byte by byte. Fields that may differ
//! between two attempts (`ack`, `traceparent`, the client's name) do not count.
//!
//! Encoding, all numbers little-endian: isolation u8, priority u8, start u64 + 1 (0 if absent), first attempt u64 + 1
//! (0 if absent); number of snapshots u32, each store u32, epoch u64; number of reads u32, each store u32, version u64
//! (0 if absent), key; number of ranges u32, each store u32, start, end; number of writes u32, each kind u8, store u32,
//! key, value. A key or value is its length u32 and its bytes. An add with `or` has kind 255, and the row's start value
//! after its value.

use std::cell::RefCell;

use tribunal_types::{BodyHash, TxnRequest};
use xxhash_rust::xxh3::xxh3_64;

/// Returns the hash of a transaction whose snapshots are sorted by store.
#[must_use]
pub fn body_hash(txn: &TxnRequest) -> BodyHash {
    thread_local! {
        static CANONICAL: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    CANONICAL.with_borrow_mut(|into| {
        into.clear();
        canonical(txn, into);
        let hash = BodyHash(xxh3_64(into));
        into.shrink_to(64 * 1024);
        hash
    })
}

fn canonical(txn: &TxnRequest, into: &mut Vec<u8>) {
    into.reserve(64 + txn.keys.len() + txn.values.len() + 24 * (txn.reads.len() + txn.writes.len()));
    into.push(txn.isolation as u8);
    into.push(txn.priority);
    into.extend_from_slice(&txn.start.map_or(0, |epoch| epoch.0 + 1).to_le_bytes());
    into.extend_from_slice(&txn.first_attempt_ms.map_or(0, |ms| ms.saturating_add(1)).to_le_bytes());
    count(txn.snapshots.len(), into);
    for snapshot in &txn.snapshots {
        into.extend_from_slice(&snapshot.store.0.to_le_bytes());
        into.extend_from_slice(&snapshot.at.0.to_le_bytes());
    }
    count(txn.reads.len(), into);
    for read in &txn.reads {
        into.extend_from_slice(&read.store.0.to_le_bytes());
        into.extend_from_slice(&read.seen.map_or(0, tribunal_types::Version::bits).to_le_bytes());
        piece(read.key.of(&txn.keys), into);
    }
    count(txn.ranges.len(), into);
    for range in &txn.ranges {
        into.extend_from_slice(&range.store.0.to_le_bytes());
        piece(range.start.of(&txn.keys), into);
        piece(range.end.of(&txn.keys), into);
    }
    count(txn.writes.len(), into);
    for write in &txn.writes {
        into.push(if write.start_len > 0 { u8::MAX } else { write.kind as u8 });
        into.extend_from_slice(&write.store.0.to_le_bytes());
        piece(write.key.of(&txn.keys), into);
        piece(write.value.of(&txn.values), into);
        if let Some(start) = write.start() {
            piece(start.of(&txn.values), into);
        }
    }
}

fn count(items: usize, into: &mut Vec<u8>) {
    into.extend_from_slice(&u32::try_from(items).unwrap_or(u32::MAX).to_le_bytes());
}

fn piece(bytes: &[u8], into: &mut Vec<u8>) {
    count(bytes.len(), into);
    into.extend_from_slice(bytes);
}
