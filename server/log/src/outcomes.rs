//! Outcome records by epoch. Each names the entry, or the record of the entries, that it belongs to.

use tribunal_codec::{decode_outcome, encode_outcome};
use tribunal_types::{Epoch, EpochOutcome};

use crate::error::LogError;
use crate::frame::Kind;
use crate::record::Stored;
use crate::segments::Segments;

/// A stored outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredOutcome {
    /// Index of the entry whose items it decides; in a log with groups, the sequence of the record that names their
    /// entries.
    pub entry: u64,
    pub outcome: EpochOutcome,
}

/// Encodes an outcome record's payload.
pub(crate) fn payload_of(outcome: &EpochOutcome) -> Vec<u8> {
    let mut payload = Vec::with_capacity(64 + 4 * outcome.decisions.len());
    encode_outcome(outcome, &mut payload);
    payload
}

/// Decodes an outcome record.
pub(crate) fn outcome_of(stored: &Stored, dir: &std::path::Path) -> Result<StoredOutcome, LogError> {
    let damaged = |e| LogError::damaged(dir, format!("outcome of epoch {}: {e}", stored.index));
    let outcome = decode_outcome(&stored.payload, Epoch(stored.index)).map_err(damaged)?;
    Ok(StoredOutcome { entry: stored.link, outcome })
}

/// Reads the outcome of an epoch.
pub(crate) fn read(segments: &Segments, epoch: Epoch) -> Result<Option<StoredOutcome>, LogError> {
    segments.read(Kind::Outcome, epoch.0)?.map(|stored| outcome_of(&stored, &segments.log_dir)).transpose()
}
