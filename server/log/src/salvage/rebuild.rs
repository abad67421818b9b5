//! Writes a complete log from the findings in a damaged one.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tribunal_codec::{GroupMark, Mark, decode_control, encode_control};
use tribunal_types::{Batch, ControlChange, ControlIndex, Epoch, EpochOutcome, Lsn, StoreId};

use super::{Chain, Known, SalvageReport, real_files};
use crate::batches::{batch_of, payload_of};
use crate::control_compaction::Skipped;
use crate::control_log::ControlLog;
use crate::error::LogError;
use crate::files::{self, RealFiles};
use crate::former::{self, FormerLog};
use crate::frame::{Kind, chain};
use crate::kept_outcomes::KeptWriter;
use crate::lsn_index::spans_of;
use crate::mark_file;
use crate::open::write_empty;
use crate::outcomes;
use crate::record::{Stored, Tip};
use crate::segment_scan::End;
use crate::segment_writer::SegmentWriter;
use crate::truncation::{self, Truncated};

/// Records between two syncs of the new segments.
const RECORDS_PER_SYNC: u64 = 256;
/// Epochs skipped after the last one found: the lost end of the log may have used some of them.
const EPOCHS_SKIPPED: u64 = 1 << 16;

/// Maximum length of a run of lost control entries that are noted one by one.
const LOST_ONE_BY_ONE: u64 = 64;

/// The new segments while they are written.
struct Entries {
    writer: SegmentWriter,
    tip: Tip,
    /// Newest configuration with which an entry was sealed.
    control: ControlIndex,
    clock_ms: u64,
    /// Outcomes after the first missing one.
    apart: Option<KeptWriter>,
}

impl Known<'_> {
    /// Writes the new log into `dir`; its identity comes last.
    pub(super) fn rebuild(&self, dir: &Path) -> Result<SalvageReport, LogError> {
        files::create_directory(&RealFiles, dir)?;
        let identity = self.identity.renewed(&RealFiles)?;
        let mut report = SalvageReport {
            id: identity.id,
            entries: self.kept.map(|chain| (chain.first, chain.last)),
            image: self.image,
            ..SalvageReport::default()
        };
        let (segments, mut control) = write_empty(&real_files(), dir, &identity)?;
        let mut entries = Entries {
            writer: SegmentWriter::start(segments, End::default())?,
            tip: Tip::default(),
            control: ControlIndex(0),
            clock_ms: 0,
            apart: None,
        };
        self.write_entries(dir, &mut entries, &mut report)?;
        self.skip_epochs(&mut entries, &mut report)?;
        entries.writer.sync()?;
        entries.apart.take().map_or(Ok(()), KeptWriter::finish)?;
        self.write_control(&mut control, entries.control, &mut report)?;
        let truncated = self.write_truncation(dir, &mut report)?;
        self.write_former(dir, truncated)?;
        self.link_images(dir)?;
        let group = identity.group;
        let marked = GroupMark { group, index: entries.tip.index, chain: entries.tip.chain };
        let Tip { index: control_index, chain: control_chain } = control.tip();
        mark_file::create(
            &RealFiles,
            dir,
            &Mark { control_index, control_chain, groups: vec![marked], ..Mark::default() },
        )?;
        identity.store(&RealFiles, dir)?;
        Ok(report)
    }

    /// Drops the kept entries up to the last one below the image whose outcome is unreadable: its epoch is not resolved
    /// again, and a store's log has no holes.
    pub(super) fn drop_undecided_below_image(&mut self) -> Result<(), LogError> {
        let (Some(kept), Some(image)) = (self.kept, self.image) else { return Ok(()) };
        for index in kept.first..=kept.last {
            let stored = self.chunks.records(Kind::Entry, index)?.into_iter().next();
            let batch = stored.and_then(|s| batch_of(&s.payload, self.identity.group, self.keyer).ok());
            let Some(batch) = batch.filter(|batch| batch.last <= image) else { break };
            if !batch.is_empty() && self.outcome_of(index, &batch)?.is_none() {
                let (first, start) = (index + 1, batch.last.next());
                self.kept = (first <= kept.last).then_some(Chain { first, start, ..kept });
            }
        }
        Ok(())
    }

    fn write_entries(&self, dir: &Path, to: &mut Entries, report: &mut SalvageReport) -> Result<(), LogError> {
        let Some(kept) = self.kept else { return Ok(()) };
        for index in kept.first..=kept.last {
            let records = self.chunks.records(Kind::Entry, index)?;
            let stored =
                records.iter().find(|r| to.tip.index > 0 && r.link == to.tip.chain).or_else(|| records.first());
            let decoded = stored.map(|stored| (stored, batch_of(&stored.payload, self.identity.group, self.keyer)));
            let Some((stored, Ok(batch))) = decoded else {
                return Err(LogError::damaged(self.dir, format!("entry {index} changed while it was read")));
            };
            let appended = to.writer.append(Kind::Entry, index, stored.link, &stored.payload)?;
            to.tip = Tip { index, chain: appended.chain };
            to.control = to.control.max(batch.control);
            to.clock_ms = to.clock_ms.max(batch.clock_ms);
            self.write_outcome(dir, to, index, &batch, report)?;
            if index % RECORDS_PER_SYNC == 0 {
                to.writer.sync()?;
            }
        }
        Ok(())
    }

    /// Writes the outcome of a kept entry to its place, or to the separate file if an earlier one is missing.
    fn write_outcome(
        &self,
        dir: &Path,
        to: &mut Entries,
        entry: u64,
        batch: &Batch,
        report: &mut SalvageReport,
    ) -> Result<(), LogError> {
        let Some((stored, outcome)) = self.outcome_of(entry, batch)? else {
            if !batch.is_empty() {
                report.outcomes_lost += 1;
                // Any store may have a record in this epoch.
                report.heads.clear();
                if to.apart.is_none() {
                    to.apart = Some(KeptWriter::create(dir, self.identity.group)?);
                }
            }
            return Ok(());
        };
        match &mut to.apart {
            None => drop(to.writer.append(Kind::Outcome, stored.index, entry, &stored.payload)?),
            Some(apart) => apart.add(&stored)?,
        }
        for (store, span) in spans_of(&outcome) {
            report.heads.insert(store, Lsn(span.first.0 + span.count - 1));
        }
        report.outcomes += 1;
        Ok(())
    }

    /// Returns the outcome of an entry if it is readable and fits the entry.
    fn outcome_of(&self, entry: u64, batch: &Batch) -> Result<Option<(Stored, EpochOutcome)>, LogError> {
        let records = self.chunks.records(Kind::Outcome, batch.last.0)?;
        let Some(stored) = records.into_iter().find(|record| record.link == entry) else { return Ok(None) };
        let Ok(decoded) = outcomes::outcome_of(&stored, self.dir) else { return Ok(None) };
        let fits = decoded.outcome.decisions.len() == batch.txns.len();
        Ok(fits.then_some((stored, decoded.outcome)))
    }

    /// Seals empty all epochs that the lost part of the log may have used.
    fn skip_epochs(&self, to: &mut Entries, report: &mut SalvageReport) -> Result<(), LogError> {
        let next = self.kept.map_or(self.image.map_or(Epoch(1), Epoch::next), |chain| chain.next);
        let last = self.chunks.indices(Kind::Outcome).next_back().unwrap_or(0).max(self.last_epoch_of_entries()?.0);
        let last = Epoch(last.max(next.0).saturating_add(EPOCHS_SKIPPED).min(Epoch::MAX.0 - 1)).max(next);
        let (group, control, clock_ms) = (self.identity.group, to.control, to.clock_ms);
        let empty = Batch { group, first: next, last, control, clock_ms, ..Batch::default() };
        let (index, link, payload) = (to.tip.index + 1, to.tip.chain, payload_of(&empty));
        to.writer.append(Kind::Entry, index, link, &payload)?;
        to.tip = Tip { index, chain: chain(link, index, &payload) };
        report.next = last.next();
        Ok(())
    }

    fn last_epoch_of_entries(&self) -> Result<Epoch, LogError> {
        for index in self.chunks.indices(Kind::Entry).rev() {
            for stored in self.chunks.records(Kind::Entry, index)? {
                if let Ok(batch) = batch_of(&stored.payload, self.identity.group, self.keyer) {
                    return Ok(batch.last);
                }
            }
        }
        Ok(Epoch(0))
    }

    /// Writes the control log. Unreadable entries keep their place, so that the other entries and the entries of the
    /// log refer to the same ones as before.
    fn write_control(
        &self,
        control: &mut ControlLog,
        sealed_with: ControlIndex,
        report: &mut SalvageReport,
    ) -> Result<(), LogError> {
        let found = self.last_control()?;
        let last = found.max(self.mark.map_or(0, |mark| mark.control_index)).max(sealed_with.0);
        // Chain hash of the damaged log after the preceding entry, if that one was readable.
        let mut before = Some(0);
        let mut index = 1;
        while index <= last {
            let records = self.chunks.records(Kind::Control, index)?;
            let proved = |record: &&Stored| before == Some(record.link);
            let stored = records.iter().find(proved).or_else(|| records.iter().find(|_| before.is_none()));
            if let Some(stored) = stored.filter(|stored| decode_control(&stored.payload).is_ok()) {
                control.append(&stored.payload)?;
                before = Some(chain(stored.link, index, &stored.payload));
                report.control += 1;
                index += 1;
            } else if let Some(skipped) = self.skipped_at(index, before)? {
                // Entries that were left out earlier are not lost.
                control.append_skipped(skipped.last, skipped.chain)?;
                before = Some(skipped.chain);
                index = skipped.last + 1;
            } else {
                index = self.lose_control(control, index, last, report)?;
                before = None;
            }
        }
        control.sync().map(drop)
    }

    /// Returns the index of the last control entry that was found or is known to be left out.
    fn last_control(&self) -> Result<u64, LogError> {
        let mut last = self.chunks.indices(Kind::Control).next_back().unwrap_or(0);
        if let Some(first) = self.chunks.indices(Kind::Skipped).next_back() {
            last = last.max(self.skipped_at(first, None)?.map_or(first, |skipped| skipped.last));
        }
        Ok(last)
    }

    /// Returns the entries of the control log that were left out from `index` on, if they follow the chain hash
    /// `before`.
    fn skipped_at(&self, index: u64, before: Option<u64>) -> Result<Option<Skipped>, LogError> {
        let records = self.chunks.records(Kind::Skipped, index)?;
        let mut skipped = records.iter().filter_map(|stored| Skipped::read(index, stored.link, &stored.payload));
        Ok(skipped.find(|skipped| before.is_none_or(|before| before == skipped.link)))
    }

    /// Notes control entries from `index` up to the next one found as lost; returns the index after them.
    fn lose_control(
        &self,
        control: &mut ControlLog,
        index: u64,
        last: u64,
        report: &mut SalvageReport,
    ) -> Result<u64, LogError> {
        let found = |kind| self.chunks.indices(kind).find(|found| *found > index);
        let next = found(Kind::Control).into_iter().chain(found(Kind::Skipped)).min().unwrap_or(u64::MAX).min(last + 1);
        control.append(&encode_control(&ControlChange::Lost.into()))?;
        report.control_lost.push(index);
        if next - index <= LOST_ONE_BY_ONE {
            return Ok(index + 1);
        }
        // A lost record of a left-out run may stand for many entries: one `Lost` is as informative as thousands. The index
        // in place of a chain hash tells the run from one that was left out.
        control.append_skipped(next - 1, index)?;
        report.control_lost.push(next - 1);
        Ok(next)
    }

    /// Returns the last position of each store before the first kept entry, derived from the image: the records that it
    /// includes of a store are either in the outcomes from there on, or lost.
    fn before_kept(&self, heads: &[(StoreId, Lsn)], kept_from: Epoch) -> Result<BTreeMap<StoreId, Lsn>, LogError> {
        let mut before: BTreeMap<StoreId, Lsn> = heads.iter().copied().collect();
        let image = self.image.unwrap_or_default();
        let kept = self.chunks.indices(Kind::Outcome).filter(|epoch| (kept_from.0..=image.0).contains(epoch));
        // Newest first, so that the oldest one counts.
        for epoch in kept.rev() {
            for stored in self.chunks.records(Kind::Outcome, epoch)? {
                let Ok(decoded) = outcomes::outcome_of(&stored, self.dir) else { continue };
                for (store, span) in spans_of(&decoded.outcome) {
                    before.insert(store, Lsn(span.first.0.saturating_sub(1)));
                }
            }
        }
        before.retain(|_, last| *last > Lsn(0));
        Ok(before)
    }

    /// Notes each store's last position before the first kept entry.
    fn write_truncation(&self, dir: &Path, report: &mut SalvageReport) -> Result<BTreeMap<StoreId, Lsn>, LogError> {
        let noted = truncation::load(&RealFiles, self.dir).unwrap_or_default();
        let mut positions: BTreeMap<_, Lsn> = noted.positions.into_iter().collect();
        let kept_from = self.kept.map_or(self.image.map_or(Epoch(0), Epoch::next), |chain| chain.start);
        for epoch in self.chunks.indices(Kind::Outcome).take_while(|epoch| *epoch < kept_from.0) {
            for stored in self.chunks.records(Kind::Outcome, epoch)? {
                let Ok(decoded) = outcomes::outcome_of(&stored, self.dir) else { continue };
                for (store, span) in spans_of(&decoded.outcome) {
                    let position = positions.entry(store).or_default();
                    *position = (*position).max(Lsn(span.first.0 + span.count - 1));
                }
            }
        }
        if let Some(heads) = &self.heads {
            // The new log begins at the image, whatever was noted for a later one.
            positions = self.before_kept(heads, kept_from)?;
        }
        if self.kept.is_none() && self.image.is_none() {
            // No record of any store is left.
            positions.clear();
        }
        if report.outcomes_lost == 0 {
            for (store, position) in &positions {
                report.heads.entry(*store).or_insert(*position);
            }
        }
        let first_entry = self.kept.map_or(0, |chain| chain.first);
        let noted = positions.iter().map(|(store, last)| (*store, *last)).collect();
        truncation::store(&RealFiles, dir, &Truncated { first_entry, positions: noted, ..Truncated::default() })?;
        Ok(positions)
    }

    /// Notes the position up to which the new log shares the records of the damaged one without having its outcomes;
    /// records with outcomes are compared by digest.
    fn write_former(&self, dir: &Path, common: BTreeMap<StoreId, Lsn>) -> Result<(), LogError> {
        // Without the records before them, a storage that has followed an earlier log is filled again, or stays closed.
        let mut former = former::load(&RealFiles, self.dir).unwrap_or_default();
        for FormerLog { common: known, .. } in &mut former {
            known.retain(|store, _| common.contains_key(store));
            known.iter_mut().for_each(|(store, last)| *last = (*last).min(common[store]));
        }
        former.push(FormerLog { id: self.identity.id, common });
        former::store(&RealFiles, dir, &former)
    }

    /// Takes over the state images; they are never modified, so both logs may link the same files.
    fn link_images(&self, dir: &Path) -> Result<(), LogError> {
        let (from, to) = (self.dir.join("images"), dir.join("images"));
        files::create_directory(&RealFiles, &to)?;
        for entry in fs::read_dir(&from).map_err(|e| LogError::io("read", &from, &e))? {
            let entry = entry.map_err(|e| LogError::io("read", &from, &e))?;
            let target = to.join(entry.file_name());
            let linked = fs::hard_link(entry.path(), &target).or_else(|_| copy(&entry.path(), &target));
            linked.map_err(|e| LogError::io("copy", &entry.path(), &e))?;
        }
        files::sync_directory(&RealFiles, &to)
    }
}

/// Copies an image durably: the new log relies on it from its first start.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::copy(from, to)?;
    fs::File::open(to)?.sync_all()
}
