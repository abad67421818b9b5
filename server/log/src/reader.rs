//! Reads the log while it is written: epochs, replay, record positions.

use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tribunal_core::row_key::RowKeyer;
use tribunal_types::{Batch, Digest, Epoch, EpochInput, EpochOutcome, LogId, Lsn, StoreId};

use crate::batches::batch_of;
use crate::epoch_runs::EpochRuns;
use crate::epoch_starts::EpochStarts;
use crate::error::LogError;
use crate::former::FormerLog;
use crate::frame::Kind;
use crate::groups::Groups;
use crate::kept_outcomes::KeptOutcomes;
use crate::lsn_index::{Found, LsnIndex, spans_of};
use crate::outcomes::{self, StoredOutcome, outcome_of};
use crate::recent::Recent;
use crate::record::Stored;
use crate::retention::Retention;
use crate::segment_walk::Walk;
use crate::segments::Segments;

/// Reads a record of the segments, singly or in a pass; `None` if it is absent or no longer present.
pub(crate) type ReadRecord<'a> = dyn FnMut(Kind, u64) -> Result<Option<Stored>, LogError> + 'a;

/// The location of a position in a store's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Located {
    /// In the records of this epoch.
    Epoch(Epoch),
    /// At the head: there is no record yet.
    Head,
    /// It has been truncated.
    Truncated {
        /// The oldest position that is kept.
        oldest: Lsn,
    },
}

/// State shared by the writer and the readers.
pub(crate) struct Shared {
    pub dir: PathBuf,
    pub id: LogId,
    /// The logs that this one continues.
    pub former: Vec<FormerLog>,
    pub keyer: RowKeyer,
    pub segments: Arc<Segments>,
    pub index: RwLock<Index>,
    pub recent: Mutex<Recent>,
}

/// In-memory index of the log.
#[derive(Default)]
pub(crate) struct Index {
    pub runs: EpochRuns,
    /// Only of a log that has Raft groups.
    pub starts: EpochStarts,
    pub lsns: LsnIndex,
    pub retention: Retention,
    pub groups: Groups,
    /// Index of the oldest entry.
    pub first_entry: u64,
    /// Epochs below this one have been truncated.
    pub oldest: Epoch,
    /// As [`Truncated::first_epoch`](crate::truncation::Truncated).
    pub first_epoch: Epoch,
    /// Outcomes of epochs below this one name entries that have been truncated.
    pub own_below: Epoch,
}

impl Index {
    /// Drops epochs below `epoch`.
    pub(crate) fn remove_below(&mut self, epoch: Epoch) {
        if let Some((last, _)) = self.runs.last() {
            self.own_below = self.own_below.max(epoch.min(last.next()));
        }
        self.lsns.remove_below(epoch);
        self.runs.remove_below(epoch);
        self.starts.remove_below(epoch);
        self.retention.remove_below(epoch);
        self.oldest = epoch;
    }
}

/// Reads the log; there may be any number of readers, on any thread. May block on the disk, never on the writer's sync.
#[derive(Clone)]
pub struct LogReader {
    pub(crate) shared: Arc<Shared>,
}

/// The log's knowledge of a record that a storage or a consumer has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointInLog {
    /// The record is in this log.
    Known {
        /// Its epoch.
        epoch: Epoch,
        /// Digest of all outcomes up to that epoch: equal digests mean equal logs up to that point.
        digest: Digest,
    },
    /// The position is 0, or the record has been truncated: there is nothing to compare with.
    Unknown,
    /// The log ends before it. The storage or consumer followed another log, or a part of this one that is lost.
    PastHead {
        /// Last position of the store.
        head: Lsn,
    },
}

impl LogReader {
    /// Returns the log's id.
    #[must_use]
    pub fn id(&self) -> LogId {
        self.shared.id
    }

    /// Returns whether this log was salvaged from `log` and shares with it the records of `store` up to `lsn`.
    #[must_use]
    pub fn continues(&self, log: LogId, store: StoreId, lsn: Lsn) -> bool {
        let mut former = self.shared.former.iter();
        former.any(|former| former.id == log && former.common.get(&store).is_some_and(|common| lsn <= *common))
    }

    /// Looks up record `lsn` of `store`, for comparison with the digest that a storage kept with its watermark. Equal
    /// ids do not prove equal logs: a copy of the files has the same id and may have diverged.
    ///
    /// # Errors
    /// [`LogError::Damaged`].
    pub fn point(&self, store: StoreId, lsn: Lsn) -> Result<PointInLog, LogError> {
        if lsn == Lsn(0) {
            return Ok(PointInLog::Unknown);
        }
        match self.locate(store, Lsn(lsn.0 - 1))? {
            Located::Head => Ok(PointInLog::PastHead { head: self.head(store) }),
            Located::Truncated { .. } => Ok(PointInLog::Unknown),
            Located::Epoch(epoch) => {
                let stored = outcomes::read(&self.shared.segments, epoch)?;
                let known = |digest| PointInLog::Known { epoch, digest };
                Ok(stored.map_or(PointInLog::Unknown, |stored| known(stored.outcome.digest)))
            }
        }
    }

    /// Returns an epoch's input and outcome; `None` if it was sealed empty, is truncated, or has no recorded outcome
    /// yet.
    ///
    /// # Errors
    /// [`LogError::Damaged`].
    pub fn epoch(&self, epoch: Epoch) -> Result<Option<Arc<(EpochInput, EpochOutcome)>>, LogError> {
        if let Some(epoch) = self.shared.recent.lock().get(epoch) {
            return Ok(Some(epoch));
        }
        let segments = &self.shared.segments;
        let Some(outcome) = outcomes::read(segments, epoch)? else { return Ok(None) };
        let Some(epoch) = self.epoch_of(outcome, &mut |kind, index| segments.read(kind, index))? else {
            return Ok(None);
        };
        let epoch = Arc::new(epoch);
        self.shared.recent.lock().put(Arc::clone(&epoch));
        Ok(Some(epoch))
    }

    /// Returns the epoch that an outcome belongs to; `None` if it is truncated.
    pub(crate) fn epoch_of(
        &self,
        stored: StoredOutcome,
        read: &mut ReadRecord<'_>,
    ) -> Result<Option<(EpochInput, EpochOutcome)>, LogError> {
        let StoredOutcome { entry: names, outcome } = stored;
        let epoch = outcome.epoch;
        let (entry, has_groups) = {
            let index = self.shared.index.read();
            (index.runs.index_of(epoch), epoch >= index.own_below && index.groups.ids().next().is_some())
        };
        let batches = match entry {
            Some(entry) => self.own_batch(epoch, entry, read)?,
            None if has_groups => self.batches_named(epoch, names, read)?,
            None => None,
        };
        let Some(batches) = batches else { return Ok(None) };
        let input = EpochInput { epoch, epoch_time_ms: outcome.epoch_time_ms, batches };
        if input.txn_count() != outcome.decisions.len() {
            return Err(self.damaged(format!("the outcome of epoch {epoch} does not fit its transactions")));
        }
        Ok(Some((input, outcome)))
    }

    /// Returns the contribution of an entry of the log's own group to the epoch that it ends with; `None` if it is
    /// truncated.
    fn own_batch(
        &self,
        epoch: Epoch,
        entry: u64,
        read: &mut ReadRecord<'_>,
    ) -> Result<Option<Vec<Arc<Batch>>>, LogError> {
        let Some(stored) = read(Kind::Entry, entry)? else {
            if epoch < self.shared.index.read().oldest {
                return Ok(None);
            }
            return Err(self.damaged(format!("entry {entry} of epoch {epoch} is missing")));
        };
        let batch = self.decode(&stored)?;
        Ok(Some(if batch.is_empty() { Vec::new() } else { vec![Arc::new(batch)] }))
    }

    /// Returns an epoch's outcome; `None` if none is recorded, or if it is truncated.
    ///
    /// # Errors
    /// [`LogError::Damaged`].
    pub fn outcome(&self, epoch: Epoch) -> Result<Option<EpochOutcome>, LogError> {
        Ok(outcomes::read(&self.shared.segments, epoch)?.map(|stored| stored.outcome))
    }

    /// Returns the epochs from `epoch` on, ascending, each with its outcome if recorded. Epochs that one entry sealed
    /// empty are returned as one, under the number of the last.
    ///
    /// Inputs are those of a log with one group: each epoch has one entry. With several groups, fold
    /// [`LogReader::batches_from`] of all of them.
    #[must_use]
    pub fn entries_from(&self, epoch: Epoch) -> Entries {
        let segments = &self.shared.segments;
        // If the file is absent or cannot be opened, the epochs are resolved again.
        let kept = KeptOutcomes::open(&*segments.files, &self.shared.dir, segments.group).ok().flatten();
        let next = self.entry_from(epoch);
        Entries { reader: self.clone(), kept, next, from: epoch, epoch_time_ms: None, over: false }
    }

    /// Returns the entries whose last epoch is `epoch` or later, ascending, empty ones included.
    pub fn batches_from(&self, epoch: Epoch) -> impl Iterator<Item = Result<Arc<Batch>, LogError>> + use<> {
        let reader = self.clone();
        let mut next = Some(self.entry_from(epoch));
        std::iter::from_fn(move || {
            loop {
                let index = next?;
                let batch = reader.batch(index).transpose();
                next = matches!(batch, Some(Ok(_))).then_some(index + 1);
                match batch {
                    Some(Ok(batch)) if batch.last < epoch => {}
                    other => return other,
                }
            }
        })
    }

    /// Returns the location of the first record of `store` after `after`.
    ///
    /// # Errors
    /// [`LogError::Damaged`].
    pub fn locate(&self, store: StoreId, after: Lsn) -> Result<Located, LogError> {
        let (from, until) = {
            let index = self.shared.index.read();
            match index.lsns.find(store, after) {
                Found::At(epoch) => return Ok(Located::Epoch(epoch)),
                Found::Head => return Ok(Located::Head),
                Found::Truncated(oldest) => return Ok(Located::Truncated { oldest }),
                Found::Between(from, until) => (from, until),
            }
        };
        let wanted = after.next();
        let mut outcomes = Walk::from(&self.shared.segments, Kind::Outcome, from.0);
        while let Some(stored) = outcomes.next(until.0.saturating_sub(1))? {
            let StoredOutcome { outcome, .. } = outcome_of(&stored, &self.shared.dir)?;
            let span = spans_of(&outcome).get(&store).copied();
            if span.is_some_and(|span| (span.first..Lsn(span.first.0 + span.count)).contains(&wanted)) {
                return Ok(Located::Epoch(outcome.epoch));
            }
        }
        // Truncated during the search, or damaged.
        let oldest = self.oldest(store);
        if wanted < oldest {
            return Ok(Located::Truncated { oldest });
        }
        Err(self.damaged(format!("no epoch holds record {wanted} of store {store}")))
    }

    /// Returns the oldest retained position of a store; the next one to be written if none is retained.
    #[must_use]
    pub fn oldest(&self, store: StoreId) -> Lsn {
        self.shared.index.read().lsns.oldest(store)
    }

    /// Returns the last position of a store whose outcome was recorded.
    #[must_use]
    pub fn head(&self, store: StoreId) -> Lsn {
        self.shared.index.read().lsns.head(store)
    }

    /// Returns the length of the segment files, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.segments.bytes()
    }

    /// Returns the index of the first entry that can end with `epoch` or later.
    fn entry_from(&self, epoch: Epoch) -> u64 {
        let index = self.shared.index.read();
        index.runs.last_below(epoch).map_or(index.first_entry, |(_, entry)| entry + 1)
    }

    fn batch(&self, index: u64) -> Result<Option<Arc<Batch>>, LogError> {
        self.shared.segments.read(Kind::Entry, index)?.map(|stored| self.decode(&stored).map(Arc::new)).transpose()
    }

    fn decode(&self, stored: &Stored) -> Result<Batch, LogError> {
        batch_of(&stored.payload, self.shared.segments.group, &self.shared.keyer)
            .map_err(|e| self.damaged(format!("entry {}: {e}", stored.index)))
    }

    fn damaged(&self, reason: String) -> LogError {
        LogError::damaged(&self.shared.dir, reason)
    }

    /// Returns the replicated time of the last epoch below `epoch` whose outcome is recorded.
    fn time_before(&self, epoch: Epoch) -> Result<u64, LogError> {
        let mut below = epoch;
        while let Some((before, _)) = { self.shared.index.read().runs.last_below(below) } {
            if let Some(stored) = outcomes::read(&self.shared.segments, before)? {
                return Ok(stored.outcome.epoch_time_ms);
            }
            below = before;
        }
        Ok(0)
    }
}

/// Epochs in order, for replay. Ends after the first error.
pub struct Entries {
    reader: LogReader,
    /// Outcomes that a salvage kept in a separate file.
    kept: Option<KeptOutcomes>,
    /// Index of the next entry.
    next: u64,
    from: Epoch,
    /// Replicated time so far; read on first use.
    epoch_time_ms: Option<u64>,
    over: bool,
}

impl Iterator for Entries {
    type Item = Result<(EpochInput, Option<EpochOutcome>), LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.over {
            match self.step() {
                Ok(Some(Some(epoch))) => return Some(Ok(epoch)),
                Ok(Some(None)) => {}
                Ok(None) => self.over = true,
                Err(error) => {
                    self.over = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl Entries {
    /// Drops the outcomes that a salvage kept in a separate file: from here on, epochs without a recorded outcome are
    /// returned without one.
    pub fn forget_kept_outcomes(&mut self) {
        self.kept = None;
    }

    /// Reads one entry: `None` at the end, `Some(None)` for an entry that ends before the first requested epoch.
    #[expect(clippy::type_complexity, reason = "an item within an option within a step; a name would only hide it")]
    fn step(&mut self) -> Result<Option<Option<(EpochInput, Option<EpochOutcome>)>>, LogError> {
        let Some(batch) = self.reader.batch(self.next)? else { return Ok(None) };
        self.next += 1;
        let epoch = batch.last;
        if epoch < self.from {
            return Ok(Some(None));
        }
        let shared = &self.reader.shared;
        let outcome = outcomes::read(&shared.segments, epoch)?.or_else(|| self.kept.as_mut()?.take(epoch));
        let outcome = outcome.map(|stored| stored.outcome);
        let before = match self.epoch_time_ms {
            Some(time) => time,
            None => self.reader.time_before(epoch)?,
        };
        // With one group, the median clock is that group's clock.
        let epoch_time_ms = outcome.as_ref().map_or(before.max(batch.clock_ms), |o| o.epoch_time_ms);
        self.epoch_time_ms = Some(epoch_time_ms.max(before));
        if outcome.as_ref().is_some_and(|o| o.decisions.len() != batch.txns.len()) {
            return Err(self.reader.damaged(format!("the outcome of epoch {epoch} does not fit its transactions")));
        }
        Ok(Some(Some((EpochInput { epoch, epoch_time_ms, batches: vec![batch] }, outcome))))
    }
}
