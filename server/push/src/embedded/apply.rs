//! Applies epochs of the log to the rows in memory: each epoch becomes visible as a whole, or not at all if it cannot
//! be applied.

use std::time::Instant;

use parking_lot::MutexGuard;
use tribunal_core::records::records_after;
use tribunal_types::{EpochInput, EpochOutcome, LogId, Lsn, Watermark, WriteKind};

use super::fold::{Change, fold};
use super::{EmbeddedError, EmbeddedStore};
use crate::SourceError;

/// Guards the operations that only one thread at a time may perform on a store: applying epochs, and setting rows aside
/// for a flush. They may take as long as disk I/O, so nothing else is guarded by the same lock.
#[derive(Default)]
pub(super) struct Applier;

impl EmbeddedStore {
    /// Applies every epoch that the log has at the time of the call. Subsequent reads see all of them. May read the
    /// disk; if there is nothing to apply, it only compares two positions.
    ///
    /// # Errors
    /// See [`EmbeddedError`]: the store is then at an earlier epoch.
    pub fn catch_up(&self) -> Result<(), EmbeddedError> {
        let head = self.source.head(self.id);
        if self.applied() >= head {
            return Ok(());
        }
        self.apply_until(&self.applier.lock(), head)
    }

    /// Applies epochs up to and including the one of record `head`.
    pub(super) fn apply_until(&self, _applier: &MutexGuard<'_, Applier>, head: Lsn) -> Result<(), EmbeddedError> {
        let log = self.source.id();
        while self.applied() < head {
            let before = self.applied();
            let mut applied = Ok(());
            let mut take = |input: &EpochInput, outcome: &EpochOutcome| {
                applied = self.apply_next(input, outcome, log);
                applied.is_ok() && self.applied() < head
            };
            self.source.epochs_after(self.id, before, &mut take)?;
            applied?;
            if self.applied() == before {
                let text = format!("it ends at LSN {head} and has no record after LSN {before}");
                return Err(EmbeddedError::Log(SourceError::Unavailable(text)));
            }
            // The threads that decide do not wait for the rest of this one's time slice, which may be milliseconds.
            if self.applied() < head {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    fn apply_next(&self, input: &EpochInput, outcome: &EpochOutcome, log: LogId) -> Result<(), EmbeddedError> {
        self.shared.usable()?;
        self.shared.make_room()?;
        self.apply(input, outcome, self.applied(), log)
    }

    fn apply(&self, input: &EpochInput, outcome: &EpochOutcome, after: Lsn, log: LogId) -> Result<(), EmbeddedError> {
        let began = Instant::now();
        let records = || records_after(input, outcome, self.id, after);
        let Some(last) = records().last() else { return Ok(()) };
        let skipped = self.skipped.lock().clone();
        let kept = || records().filter(|record| !skipped.contains(&record.lsn));
        let changes = || {
            kept().flat_map(|record| {
                let batch = record.batch;
                record.rows().map(move |write| Change {
                    lsn: record.lsn,
                    version: record.version,
                    kind: write.kind,
                    key: write.key.of(&batch.keys),
                    value: write.value.of(&batch.values),
                })
            })
        };
        let to = Watermark { lsn: last.lsn, log, digest: outcome.digest };
        self.shared.images.keep(changes().map(|change| change.key), |key| self.shared.stored(key))?;
        if changes().any(|change| change.kind == WriteKind::Add) {
            let folded = fold(changes(), |key| self.shared.stored(key))?;
            let mut recent = self.shared.recent.write();
            for (key, (version, value)) in &folded {
                recent.active.put(key, value.as_deref().map(|value| (*version, value)));
            }
            recent.applied = to;
            recent.epoch = input.epoch;
            self.shared.stored.set_recent(recent.entry_bytes());
        } else {
            self.shared.recent.read().active.warm(changes().map(|change| change.key));
            let mut recent = self.shared.recent.write();
            for change in changes() {
                let row = (change.kind != WriteKind::Delete).then_some((change.version, change.value));
                recent.active.put(change.key, row);
            }
            recent.applied = to;
            recent.epoch = input.epoch;
            self.shared.stored.set_recent(recent.entry_bytes());
        }
        if let Some(observer) = &self.observer {
            observer.applied(input, outcome, after, began);
        }
        Ok(())
    }
}
