//! Report of a salvage: the kept part, and the known and unknown losses.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use tribunal_types::{Decision, Epoch, LogId, Lsn, StoreId};

use super::Known;
use crate::batches::batch_of;
use crate::error::LogError;
use crate::files::{self, RealFiles};
use crate::frame::Kind;
use crate::outcomes;
use crate::truncation;

/// The kept and the lost parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// New id of the log: consumers that followed the old one must be compared with it.
    pub id: LogId,
    /// First and last entry kept; `None` if none was kept.
    pub entries: Option<(u64, u64)>,
    /// First epoch that the node will use: above every epoch in the damaged log.
    pub next: Epoch,
    /// Minimum number of lost entries known to have been durable, and so perhaps acknowledged. `None` if it is unknown
    /// how far the log reached.
    pub lost: Option<u64>,
    /// Unreadable bytes follow the last kept entry: the end of a write that was never acknowledged, or acknowledged
    /// entries from the last moments.
    pub end_is_unreadable: bool,
    /// Readable entries that could not be kept because an earlier one is lost.
    pub stranded: u64,
    /// Transactions in stranded entries, listed in [`SalvageReport::lost_transactions`].
    pub stranded_txns: u64,
    /// File that lists the transactions of stranded entries, if there are any.
    pub lost_transactions: Option<PathBuf>,
    /// First and last of the entries that are only in the state image: their effects are kept, their records are not.
    pub only_in_image: Option<(u64, u64)>,
    /// Entries of the control log kept.
    pub control: u64,
    /// Entries of the control log whose content is lost.
    pub control_lost: Vec<u64>,
    /// Outcomes kept.
    pub outcomes: u64,
    /// Outcomes of kept entries that are lost; the epochs are resolved again at the next start.
    pub outcomes_lost: u64,
    /// Last position of each store, if the kept outcomes contain it. A storage that has applied more followed records
    /// that are lost.
    pub heads: BTreeMap<StoreId, Lsn>,
    /// Epoch of the state image that the log starts from.
    pub image: Option<Epoch>,
    /// Path of the damaged log.
    pub set_aside: PathBuf,
}

impl SalvageReport {
    /// Compares the kept part with how far the log reached according to the damaged files.
    pub(super) fn judge_loss(&mut self, known: &Known<'_>, marked: Option<u64>) -> Result<(), LogError> {
        let last = known.kept.map(|chain| chain.last);
        let durable = marked.max(known.chunks.last_durable_entry());
        // An image replaces the entries below it; the last readable one of them gives their number.
        let reached = match last {
            Some(last) => Some(last),
            None if known.image.is_none() => Some(0),
            None => self.last_entry_in_image(known)?,
        };
        self.lost = durable.zip(reached).map(|(durable, reached)| durable.saturating_sub(reached));
        let first = truncation::load(&RealFiles, known.dir).map_or(1, |noted| noted.first_entry.max(1));
        let kept_from = known.kept.map_or(reached, |chain| chain.first.checked_sub(1));
        self.only_in_image = kept_from.filter(|last| known.image.is_some() && first <= *last).map(|last| (first, last));
        self.end_is_unreadable = known.chunks.has_stray_bytes_after(last);
        Ok(())
    }

    fn last_entry_in_image(&self, known: &Known<'_>) -> Result<Option<u64>, LogError> {
        for index in known.chunks.indices(Kind::Entry).rev() {
            for stored in known.chunks.records(Kind::Entry, index)? {
                let batch = batch_of(&stored.payload, known.identity.group, known.keyer);
                if batch.is_ok_and(|batch| Some(batch.last) <= known.image) {
                    return Ok(Some(index));
                }
            }
        }
        Ok(None)
    }

    /// Lists the ids of the transactions in stranded entries in a file among the damaged files, each with its decision
    /// if that is readable.
    pub(super) fn list_lost_transactions(&mut self, known: &Known<'_>) -> Result<(), LogError> {
        let after = known.kept.map_or(0, |chain| chain.last);
        let mut text = String::new();
        for index in known.chunks.indices(Kind::Entry).filter(|index| *index > after) {
            for stored in known.chunks.records(Kind::Entry, index)? {
                let Ok(batch) = batch_of(&stored.payload, known.identity.group, known.keyer) else { continue };
                if known.image.is_some_and(|image| batch.last <= image) {
                    continue;
                }
                self.stranded += 1;
                let records = known.chunks.records(Kind::Outcome, batch.last.0)?;
                let stored = records.iter().find(|record| record.link == index);
                let outcome = stored.and_then(|stored| outcomes::outcome_of(stored, known.dir).ok());
                for (ix, txn) in batch.txns.iter().enumerate() {
                    let decision = outcome.as_ref().and_then(|stored| stored.outcome.decisions.get(ix));
                    let decision = match decision {
                        Some(Decision::Committed { .. }) => "committed",
                        Some(_) => "not committed",
                        None => "in doubt",
                    };
                    self.stranded_txns += 1;
                    let _ = writeln!(text, "{} epoch {} {decision}", txn.id, batch.last);
                }
            }
        }
        if !text.is_empty() {
            let path = self.set_aside.join("lost-transactions");
            files::replace(&RealFiles, &path, text.as_bytes())?;
            self.lost_transactions = Some(path);
        }
        Ok(())
    }
}
