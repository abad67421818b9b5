//! One run of a program that uses the log, and the state that the log owes it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tribunal_core::row_key::RowKeyer;
use tribunal_log::sim::SimFiles;
use tribunal_log::{DurableLog, LogError, LogOptions, Opened, open_on};
use tribunal_types::{
    ApiKey, Batch, ControlChange, ControlEntry, ControlIndex, Csn, Epoch, EpochOutcome, LogId, NamespaceId, NodeId,
    Roles, StateImage, StoreId, StoreSpec,
};

use crate::fixture::{Random, outcome, request};
use crate::group_model::{self, Call, Groups};

pub const DIR: &str = "/data/tribunal/log";

/// Everything appended, and how much of it a returned sync has promised.
#[derive(Clone, Default)]
pub struct Model {
    id: Option<LogId>,
    /// From epoch 1 on.
    pub entries: Vec<Arc<Batch>>,
    pub entries_synced: usize,
    /// Outcomes of the entries that are not empty, in order.
    pub outcomes: Vec<EpochOutcome>,
    outcomes_synced: usize,
    pub control: Vec<ControlEntry>,
    control_synced: usize,
    /// Indices of control entries that may be left out.
    pub dead: BTreeSet<u64>,
    first_key: Option<u64>,
    /// Calls of replicas, in order. A promised vote is one that was sent to other nodes.
    calls: Vec<Call>,
    calls_synced: usize,
    /// Newest promised image.
    image: Option<Epoch>,
    /// Below this, entries may be missing.
    truncated: Epoch,
}

/// Why a run ended.
#[derive(Debug)]
pub enum End {
    /// The disk failed: it has no power or no room, or a sync failed.
    Disk(LogError),
    /// The log broke its promise.
    Broken(String),
}

pub struct Session {
    /// Shared with the disk's observer.
    pub model: Arc<Mutex<Model>>,
    pub opened: Opened,
    keyer: RowKeyer,
}

/// Returns options that retain no more than images need, and little of the groups' compacted entries.
pub fn options() -> LogOptions {
    LogOptions { retention_ms: 0, retention_bytes: 30_000, ..LogOptions::default() }
}

pub fn image(epoch: Epoch) -> StateImage {
    let mut image = StateImage { epoch, ..StateImage::default() };
    image.push_words(1, vec![epoch.0; 300]);
    image
}

impl Session {
    /// Opens the log and compares it with what it owes. Anything beyond that counts as appended from here on.
    pub fn open(disk: &SimFiles, model: &Arc<Mutex<Model>>) -> Result<Self, End> {
        let opened = open_on(&disk.as_files(), Path::new(DIR), &options());
        let opened = opened.map_err(|error| match error {
            LogError::Damaged { .. } if disk.has_power() => End::Broken(error.to_string()),
            error => End::Disk(error),
        })?;
        let keyer = RowKeyer::new(opened.recovered.row_secret);
        let session = Self { model: Arc::clone(model), opened, keyer };
        match session.compare() {
            Ok(()) => Ok(session),
            Err(reason) if disk.has_power() => Err(End::Broken(reason)),
            Err(reason) => Err(End::Disk(LogError::Io { reason })),
        }
    }

    fn compare(&self) -> Result<(), String> {
        let (found, mut model) = (&self.opened.recovered, self.model.lock());
        if model.id.is_some_and(|id| id != found.id) {
            return Err("it is another log".into());
        }
        model.id = Some(found.id);
        self.compare_control(&mut model)?;
        self.compare_entries(&mut model)?;
        self.compare_groups(&mut model)?;
        self.compare_image(&model)
    }

    fn compare_control(&self, model: &mut Model) -> Result<(), String> {
        let found = &self.opened.recovered;
        let last = found.control_last.0 as usize;
        if last < model.control_synced || last > model.control.len() {
            let (synced, appended) = (model.control_synced, model.control.len());
            return Err(format!("{last} control entries, of {synced} promised and {appended} appended"));
        }
        model.control.truncate(last);
        model.dead.retain(|index| *index <= last as u64);
        model.first_key = model.first_key.filter(|index| *index <= last as u64);
        let mut expected = 1;
        for (index, entry) in &found.control {
            if let Some(missing) = (expected..index.0).find(|missing| !model.dead.contains(missing)) {
                return Err(format!("control entry {missing} is missing"));
            }
            if model.control.get(index.0 as usize - 1) != Some(entry) {
                return Err(format!("control entry {} has changed", index.0));
            }
            expected = index.0 + 1;
        }
        if expected == last as u64 + 1 { Ok(()) } else { Err(format!("control entry {expected} is missing")) }
    }

    fn compare_entries(&self, model: &mut Model) -> Result<(), String> {
        let opened = &self.opened;
        let mut first = None;
        // The number of entries and of outcomes found.
        let (mut entries, mut outcomes) = (0, 0);
        let mut without_outcome = false;
        for entry in opened.reader.entries_from(Epoch(1)) {
            let (input, outcome) = entry.map_err(|error| error.to_string())?;
            let batch = &input.batches[0];
            if first.is_none() {
                first = Some(batch.first);
                entries = model.entries.iter().take_while(|known| known.first < batch.first).count();
                outcomes = model.entries[..entries].iter().filter(|known| !known.is_empty()).count();
            }
            if model.entries.get(entries).is_none_or(|known| known != batch) {
                return Err(format!(
                    "entry {} of epochs {}..={} is not what was appended",
                    entries + 1,
                    batch.first,
                    batch.last
                ));
            }
            entries += 1;
            match outcome {
                _ if batch.is_empty() => {}
                Some(_) if without_outcome => return Err(format!("an outcome is missing before epoch {}", batch.last)),
                Some(outcome) if model.outcomes.get(outcomes) != Some(&outcome) => {
                    return Err(format!("the outcome of epoch {} has changed", batch.last));
                }
                Some(_) => outcomes += 1,
                None => without_outcome = true,
            }
        }
        if first.is_some_and(|first| first > model.truncated.max(Epoch(1))) {
            return Err(format!("the first epoch is {first:?}, truncated was up to {}", model.truncated));
        }
        let covered = opened.recovered.image.as_ref().map_or(Epoch(0), |image| image.epoch);
        if first.is_some_and(|first| first > covered.next()) {
            return Err(format!("the first epoch is {first:?}, the image is of {covered}"));
        }
        if entries < model.entries_synced || outcomes < model.outcomes_synced {
            let (entries_synced, outcomes_synced) = (model.entries_synced, model.outcomes_synced);
            return Err(format!(
                "{entries} entries and {outcomes} outcomes are there, {entries_synced} and {outcomes_synced} were promised"
            ));
        }
        model.entries.truncate(entries);
        model.outcomes.truncate(outcomes);
        let next = model.entries.last().map_or(Epoch(1), |last| last.last.next());
        if opened.recovered.next != next {
            return Err(format!("the next epoch is {}, not {next}", opened.recovered.next));
        }
        let heads = model.heads();
        for store in [1, 2] {
            let head = opened.reader.head(StoreId(store)).0;
            if head != heads[store as usize] {
                return Err(format!("store {store} ends at {head}, not {}", heads[store as usize]));
            }
        }
        Ok(())
    }

    /// Checks that the groups are in the state after some call that is not before the last promised one.
    fn compare_groups(&self, model: &mut Model) -> Result<(), String> {
        let found = group_model::found(&self.opened.reader)?;
        let mut groups = Groups::default();
        for count in 0..=model.calls.len() {
            if count >= model.calls_synced && groups == found {
                model.calls.truncate(count);
                return Ok(());
            }
            model.calls.get(count).into_iter().for_each(|call| group_model::apply(&mut groups, call));
        }
        let (synced, all) = (model.calls_synced, model.calls.len());
        Err(format!(
            "the groups are not as they were after any call from {synced} to {all}, as was promised: {found:?}"
        ))
    }

    fn compare_image(&self, model: &Model) -> Result<(), String> {
        let found = self.opened.recovered.image.as_ref();
        if found.is_some_and(|found| *found != image(found.epoch)) {
            return Err("the image has changed".into());
        }
        if found.map(|found| found.epoch) < model.image {
            return Err(format!("the image of epoch {:?} is lost", model.image));
        }
        Ok(())
    }

    /// Appends a batch of `txns` transactions for the next `epochs` epochs.
    pub fn append(&mut self, epochs: u64, txns: u64, value_bytes: usize) -> Result<(), End> {
        let first = self.opened.writer.next();
        let group = self.opened.recovered.group;
        let clock_ms = 1_800_000_000_000 + first.0;
        let last = Epoch(first.0 + epochs - 1);
        let controls = self.model.lock().control.len() as u64;
        let mut batch = Batch { group, first, last, clock_ms, ..Batch::default() };
        for n in 0..txns {
            // Two logs that diverge differ in their content.
            let seed = first.0 << 16 | n << 8 | controls & 0xFF;
            batch.push(&request(&self.keyer, seed, 2, value_bytes), Csn::new(clock_ms * 1000 + n, NodeId(1)));
        }
        let batch = Arc::new(batch);
        self.model.lock().entries.push(Arc::clone(&batch));
        self.opened.writer.append(&batch).map_err(End::Disk)
    }

    /// Appends the outcome of the first entry without one, if that is durable.
    pub fn decide(&mut self) -> Result<(), End> {
        let outcome = {
            let mut model = self.model.lock();
            let synced = &model.entries[..model.entries_synced];
            let undecided = synced.iter().filter(|entry| !entry.is_empty()).nth(model.outcomes.len());
            let Some(entry) = undecided else { return Ok(()) };
            let outcome = outcome(entry, &mut model.heads());
            model.outcomes.push(outcome.clone());
            outcome
        };
        self.opened.writer.append_outcome(&outcome).map_err(End::Disk)
    }

    pub fn append_control(&mut self, entry: impl Into<ControlEntry>) -> Result<(), End> {
        let entry = entry.into();
        let index = {
            let mut model = self.model.lock();
            model.control.push(entry.clone());
            ControlIndex(model.control.len() as u64)
        };
        self.opened.writer.append_control(index, &entry).map_err(End::Disk)
    }

    /// Makes a call of a replica.
    pub fn call(&mut self, call: Call) -> Result<(), End> {
        self.model.lock().calls.push(call.clone());
        let called = match &call {
            Call::Append(group, id, payload) => self.opened.writer.append_group_entry(*group, *id, payload),
            Call::SetState(group, state) => self.opened.writer.set_group_state(*group, state),
            Call::Forget(group) => self.opened.writer.forget_group(*group),
        };
        called.map_err(End::Disk)
    }

    /// Creates a key whose id is taken: the entry is refused when it is applied, and has no effect.
    pub fn append_refused_key(&mut self, name_bytes: usize) -> Result<(), End> {
        let name = "k".repeat(name_bytes);
        let key = ApiKey {
            id: "0123456789abcdef".into(),
            name,
            namespace: NamespaceId(0),
            namespace_name: "tenant".into(),
            roles: Roles::ALL,
            secret_sha256: [7; 32],
            created_ms: 1,
            expires_ms: None,
        };
        {
            let mut model = self.model.lock();
            let index = model.control.len() as u64 + 1;
            match model.first_key {
                // The first one is accepted.
                None => model.first_key = Some(index),
                Some(first) if first < index => drop(model.dead.insert(index)),
                Some(_) => {}
            }
        }
        self.append_control(ControlChange::CreateKey(key))
    }

    pub fn sync(&mut self) -> Result<(), End> {
        self.opened.writer.sync().map_err(End::Disk)?;
        self.model.lock().promise();
        Ok(())
    }

    pub fn mark(&mut self) -> Result<(), End> {
        self.opened.writer.idle_mark().map_err(End::Disk)
    }

    /// Writes an image of the last decided epoch.
    pub fn write_image(&mut self) -> Result<(), End> {
        let last = self.model.lock().outcomes.last().map(|outcome| outcome.epoch);
        let Some(epoch) = last else { return Ok(()) };
        self.opened.writer.write_image(&image(epoch)).map_err(End::Disk)?;
        let mut model = self.model.lock();
        model.image = model.image.max(Some(epoch));
        model.promise();
        Ok(())
    }

    /// Writes an image of the state before the first epoch.
    pub fn write_first_image(&mut self) -> Result<(), End> {
        self.opened.writer.write_image(&image(Epoch(0))).map_err(End::Disk)?;
        let mut model = self.model.lock();
        model.image = model.image.max(Some(Epoch(0)));
        model.promise();
        Ok(())
    }

    /// Truncates the epochs that the images cover.
    pub fn truncate(&mut self) -> Result<(), End> {
        let below = {
            let mut model = self.model.lock();
            let below = model.image.unwrap_or_default();
            model.truncated = model.truncated.max(below);
            below
        };
        self.opened.writer.truncate(below).map_err(End::Disk)
    }

    pub fn compact_control(&mut self) -> Result<(), End> {
        self.opened.writer.compact_control().map(drop).map_err(End::Disk)
    }
}

impl Model {
    /// Returns how many groups have been forgotten.
    pub fn forgotten(&self) -> usize {
        self.calls.iter().filter(|call| matches!(call, Call::Forget(_))).count()
    }

    /// Marks everything as promised: a sync returned.
    fn promise(&mut self) {
        self.entries_synced = self.entries.len();
        self.outcomes_synced = self.outcomes.len();
        self.control_synced = self.control.len();
        self.calls_synced = self.calls.len();
    }

    /// Returns the stores' last positions.
    fn heads(&self) -> [u64; 3] {
        let mut heads = [0; 3];
        for at in self.outcomes.iter().flat_map(|outcome| &outcome.lsns) {
            heads[at.store.0 as usize] = at.lsn.0;
        }
        heads
    }
}

/// Performs the next step of a program that adds much to the control log.
pub fn next_control_step(session: &mut Session, random: &mut Random) -> Result<(), End> {
    match random.below(100) {
        // Two chunks.
        0..35 => session.append_refused_key(100_000 + random.below(40_000) as usize),
        35..50 => session.append_refused_key(random.below(500) as usize),
        50..60 => session.append(1, 1, 50),
        60..65 => session.decide(),
        65..85 => session.sync(),
        85..90 => session.mark(),
        _ => session.compact_control(),
    }
}

/// Performs the next step of a program.
pub fn next_step(session: &mut Session, random: &mut Random) -> Result<(), End> {
    match random.below(150) {
        0..30 => session.append(1 + random.below(24), 1 + random.below(3), random.below(300) as usize),
        30..38 => session.append(1, 2, 4_000 + random.below(12_000) as usize),
        // Several chunks.
        38..40 => session.append(3, 1, 60_000),
        40..44 => session.append(1 + random.below(40), 0, 0),
        44..68 => session.decide(),
        68..72 => {
            let name = format!("{}-{}", session.model.lock().control.len(), "n".repeat(random.below(900) as usize));
            session.append_control(ControlChange::DeclareStore(StoreSpec { name, ..StoreSpec::default() }))
        }
        72..94 => session.sync(),
        94..97 => session.mark(),
        97..99 => session.write_image(),
        99..104 => session.truncate(),
        104..107 => session.write_image(),
        _ => group_model::next_step(session, random),
    }
}
