//! Reads the epochs of a store in sequence, for a storage or a reader that has to catch up by many epochs.
//!
//! A single lookup takes a few hops from a sample for the outcome, and as many for each record that the outcome names:
//! a member's epoch has a handful. A pass reads the segments through windows instead.

use tribunal_types::{Epoch, EpochInput, EpochOutcome, StoreId};

use crate::error::LogError;
use crate::frame::Kind;
use crate::lsn_index::SPARSE_EPOCHS;
use crate::outcomes::outcome_of;
use crate::reader::LogReader;
use crate::segment_walk::Walk;

/// A pass over the epochs that have records of a store; it covers the outcomes recorded when it began.
pub struct EpochPass<'a> {
    reader: &'a LogReader,
    store: StoreId,
    outcomes: Walk<'a>,
    /// The records named by the outcomes: entries of the log's own group, and records of Raft groups.
    entries: Walk<'a>,
    records: Walk<'a>,
    next: Epoch,
    /// Last epoch of the pass; later outcomes may be only partly written.
    last: Epoch,
    /// Number of consecutive epochs without a record of the store.
    without: u64,
}

impl LogReader {
    /// Begins a pass over the epochs from `from` on that have records of `store`.
    #[must_use]
    pub fn pass_over(&self, store: StoreId, from: Epoch) -> EpochPass<'_> {
        let segments = &*self.shared.segments;
        let walk = |kind| Walk::over(segments, kind);
        EpochPass {
            reader: self,
            store,
            last: Epoch(segments.last_index(Kind::Outcome).unwrap_or(0)),
            outcomes: Walk::from(segments, Kind::Outcome, from.0),
            entries: walk(Kind::Entry),
            records: walk(Kind::Group),
            next: from,
            without: 0,
        }
    }
}

impl EpochPass<'_> {
    /// Returns the next epoch of the store. Returns `None` at the end of the pass, which is not necessarily the end of
    /// the store's log: a pass also ends after a long run of other stores' epochs, because [`LogReader::locate`] finds
    /// the next position faster. Where the log is truncated, also meanwhile, it continues with the first epoch that is
    /// whole, so the caller must check that the store's positions follow on.
    ///
    /// # Errors
    /// [`LogError::Damaged`].
    pub fn read(&mut self) -> Result<Option<(EpochInput, EpochOutcome)>, LogError> {
        while self.next <= self.last && self.without < SPARSE_EPOCHS {
            let Some(stored) = self.outcomes.next(self.last.0)? else { break };
            if stored.index < self.next.0 {
                continue;
            }
            self.next = Epoch(stored.index).next();
            let outcome = outcome_of(&stored, &self.reader.shared.dir)?;
            if !outcome.outcome.lsns.iter().any(|at| at.store == self.store) {
                self.without += 1;
                continue;
            }
            self.without = 0;
            let (entries, records) = (&mut self.entries, &mut self.records);
            let mut read = |kind, index| if kind == Kind::Entry { entries.read(index) } else { records.read(index) };
            // The records of the first outcomes may be truncated.
            if let Some(epoch) = self.reader.epoch_of(outcome, &mut read)? {
                return Ok(Some(epoch));
            }
        }
        Ok(None)
    }
}
