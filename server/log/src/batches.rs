//! Entries of a group's log: a batch behind a few numbers that recovery needs without decoding it.

use tribunal_codec::{Malformed, Reader, decode_batch, encode_batch, put_varint};
use tribunal_core::row_key::RowKeyer;
use tribunal_types::{Batch, Cen, Csn};

/// What an entry says in front of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryHead {
    pub first: Cen,
    pub last: Cen,
    /// Highest stamp in the batch, 0 without transactions.
    pub last_csn: Csn,
}

/// Encodes an entry's payload.
pub(crate) fn payload_of(batch: &Batch) -> Vec<u8> {
    let mut payload = Vec::with_capacity(256 + batch.keys.len() + batch.values.len());
    put_varint(batch.first.0, &mut payload);
    put_varint(batch.last.0 - batch.first.0, &mut payload);
    put_varint(batch.txns.last().map_or(0, |txn| txn.csn.0), &mut payload);
    encode_batch(batch, &mut payload);
    payload
}

/// Reads the numbers in front, and returns where the batch starts.
pub(crate) fn head_of(payload: &[u8]) -> Result<(EntryHead, usize), Malformed> {
    let mut reader = Reader::new(payload);
    let first = reader.varint("first epoch")?;
    let last = first.checked_add(reader.varint("last epoch")?).filter(|last| *last <= Cen::MAX.0);
    let last = last.ok_or_else(|| reader.malformed("last epoch"))?;
    let last_csn = Csn(reader.varint("last stamp")?);
    Ok((EntryHead { first: Cen(first), last: Cen(last), last_csn }, reader.position()))
}

/// Decodes an entry's batch.
pub(crate) fn batch_of(payload: &[u8], keyer: &RowKeyer) -> Result<Batch, Malformed> {
    let (head, at) = head_of(payload)?;
    let batch = decode_batch(&payload[at..], &|namespace, store, key| keyer.row(namespace, store, key))?;
    if batch.first == head.first && batch.last == head.last {
        Ok(batch)
    } else {
        Err(Malformed { what: "batch of other epochs", at })
    }
}
