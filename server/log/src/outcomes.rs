//! Outcome records: by epoch, each naming the entry it belongs to.

use tribunal_codec::{Reader, decode_outcome, encode_outcome, put_varint};
use tribunal_types::{Cen, EpochOutcome};

use crate::error::LogError;
use crate::frame::Kind;
use crate::segments::Segments;
use crate::tree_records::Stored;

/// An outcome as it lies in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredOutcome {
    /// Index of the entry whose items it decides.
    pub entry: u64,
    /// Bytes that the entry took.
    pub entry_bytes: u64,
    pub outcome: EpochOutcome,
}

/// Encodes an outcome record's payload.
pub(crate) fn payload_of(outcome: &EpochOutcome, entry_bytes: u64) -> Vec<u8> {
    let mut payload = Vec::with_capacity(64 + 4 * outcome.decisions.len());
    put_varint(entry_bytes, &mut payload);
    encode_outcome(outcome, &mut payload);
    payload
}

/// Decodes an outcome record.
pub(crate) fn outcome_of(stored: &Stored, dir: &std::path::Path) -> Result<StoredOutcome, LogError> {
    let damaged = |reason: String| LogError::damaged(dir, format!("outcome of epoch {}: {reason}", stored.index));
    let mut reader = Reader::new(&stored.payload);
    let entry_bytes = reader.varint("bytes of entry").map_err(|e| damaged(e.to_string()))?;
    let outcome = decode_outcome(&stored.payload[reader.position()..]).map_err(|e| damaged(e.to_string()))?;
    if outcome.cen != Cen(stored.index) {
        return Err(damaged(format!("it is that of epoch {}", outcome.cen)));
    }
    Ok(StoredOutcome { entry: stored.link, entry_bytes, outcome })
}

/// Reads the outcome of an epoch.
pub(crate) fn read(segments: &Segments, cen: Cen) -> Result<Option<StoredOutcome>, LogError> {
    segments.read(Kind::Outcome, cen.0)?.map(|stored| outcome_of(&stored, &segments.log_dir)).transpose()
}
