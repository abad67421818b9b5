//! Entries of a group's log: each is a batch with a head that recovery reads without decoding the rest.

use tribunal_codec::{Malformed, batch_head, decode_batch, encode_batch};
use tribunal_core::row_key::RowKeyer;
use tribunal_types::{Batch, Csn, Epoch, GroupId};

/// The fields of an entry before its columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryHead {
    pub first: Epoch,
    pub last: Epoch,
    /// Highest stamp in the batch, 0 without transactions.
    pub last_csn: Csn,
}

/// Encodes an entry's payload.
pub(crate) fn payload_of(batch: &Batch) -> Vec<u8> {
    let mut payload = Vec::with_capacity(256 + batch.keys.len() + batch.values.len());
    encode_batch(batch, &mut payload);
    payload
}

/// Reads the head of an entry.
pub(crate) fn head_of(payload: &[u8], group: GroupId) -> Result<EntryHead, Malformed> {
    let head = batch_head(payload)?;
    Ok(EntryHead { first: head.first, last: head.last, last_csn: Csn::new(head.last_micros, group.node) })
}

/// Decodes an entry's batch.
pub(crate) fn batch_of(payload: &[u8], group: GroupId, keyer: &RowKeyer) -> Result<Batch, Malformed> {
    decode_batch(payload, group, &|namespace, store, key| keyer.row(namespace, store, key))
}
