//! What a salvage kept, and what is known and unknown about the rest.

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

/// What was kept and what was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// New id of the log: what followed the old one must be compared with it.
    pub id: LogId,
    /// First and last entry kept; `None` if none was.
    pub entries: Option<(u64, u64)>,
    /// First epoch that the node will use: above all that the damaged log names.
    pub next: Epoch,
    /// Entries known to have been durable, and so perhaps acknowledged, that are lost: at least so many. `None` if
    /// nothing tells how far the log reached.
    pub lost: Option<u64>,
    /// After the last entry kept there are bytes that cannot be read: the end of a write that was never acknowledged, or
    /// acknowledged entries of the last moments.
    pub end_is_unreadable: bool,
    /// Entries that could be read and not kept, because one before them is lost.
    pub stranded: u64,
    /// Transactions in those, which [`SalvageReport::lost_transactions`] lists.
    pub stranded_txns: u64,
    /// File that lists the transactions of stranded entries, if there are any.
    pub lost_transactions: Option<PathBuf>,
    /// First and last of the entries that are kept in the state image only: what they did is there, their records are not.
    pub only_in_image: Option<(u64, u64)>,
    /// Entries of the control log kept.
    pub control: u64,
    /// Entries of the control log whose content is lost.
    pub control_lost: Vec<u64>,
    /// Outcomes kept.
    pub outcomes: u64,
    /// Outcomes of kept entries that are lost; the epochs are resolved again at the next start.
    pub outcomes_lost: u64,
    /// Last position of the stores, where the kept outcomes contain it. A storage that has applied more followed records that are
    /// lost.
    pub heads: BTreeMap<StoreId, Lsn>,
    /// Epoch of the state image that the log starts from.
    pub image: Option<Epoch>,
    /// Where the damaged log is now.
    pub set_aside: PathBuf,
}

impl SalvageReport {
    /// Compares what was kept with how far the log reached according to the damaged files.
    pub(super) fn judge_loss(&mut self, known: &Known<'_>, marked: Option<u64>) -> Result<(), LogError> {
        let last = known.kept.map(|chain| chain.last);
        let durable = marked.max(known.chunks.last_durable_entry());
        // An image stands for the entries below it, of which the last readable one tells the number.
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

    /// Writes the ids of transactions in entries that could not be kept beside the damaged files, each with its decision
    /// if that can be read.
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
