//! Reading the recorded epochs one after the other: for a storage that has to catch up by many of them.
//!
//! To find one epoch takes a few hops from a sample for its outcome, and for each record of an entry that it names: a
//! member's epoch has a handful. One pass reads the segments through windows instead.

use tribunal_types::{Epoch, EpochInput, EpochOutcome};

use crate::error::LogError;
use crate::frame::Kind;
use crate::outcomes::outcome_of;
use crate::reader::LogReader;
use crate::segment_walk::Walk;

/// A pass over the epochs whose outcomes were recorded when it began.
pub struct EpochPass<'a> {
    reader: &'a LogReader,
    outcomes: Walk<'a>,
    /// What the outcomes name: entries of the log's own group, and records of Raft groups.
    entries: Walk<'a>,
    records: Walk<'a>,
    from: Epoch,
    /// Later outcomes may be missing in a window that was read before they were written.
    last: Epoch,
}

impl LogReader {
    /// Begins a pass over the recorded epochs from `from` on.
    #[must_use]
    pub fn pass_from(&self, from: Epoch) -> EpochPass<'_> {
        let segments = &*self.shared.segments;
        let walk = |kind| Walk::over(segments, kind);
        EpochPass {
            reader: self,
            last: Epoch(segments.last_index(Kind::Outcome).unwrap_or(0)),
            outcomes: Walk::from(segments, Kind::Outcome, from.0),
            entries: walk(Kind::Entry),
            records: walk(Kind::Group),
            from,
        }
    }
}

impl EpochPass<'_> {
    /// Returns the next epoch; `None` after the last one. Epochs that are truncated meanwhile are passed over.
    ///
    /// # Errors
    /// [`LogError::Damaged`].
    pub fn read(&mut self) -> Result<Option<(EpochInput, EpochOutcome)>, LogError> {
        while let Some(stored) = self.outcomes.next()?.filter(|stored| stored.index <= self.last.0) {
            if stored.index < self.from.0 {
                continue;
            }
            let (entries, records) = (&mut self.entries, &mut self.records);
            let mut read = |kind, index| if kind == Kind::Entry { entries.read(index) } else { records.read(index) };
            let outcome = outcome_of(&stored, &self.reader.shared.dir)?;
            if let Some(epoch) = self.reader.epoch_of(outcome, &mut read)? {
                return Ok(Some(epoch));
            }
        }
        Ok(None)
    }
}
