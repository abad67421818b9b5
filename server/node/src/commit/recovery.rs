//! Recovers a node from the log, so that it continues where the last one stopped.
//!
//! Loads the newest image, then replays every epoch after it: a recorded outcome is authoritative, an epoch without one
//! is resolved again under the configuration that it was sealed with. Nothing is answered and nothing is pushed before
//! recovery is done.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tribunal_core::batcher::Batcher;
use tribunal_core::control::{Effect, Moment, ReplicatedState};
use tribunal_core::epochs::{Epochs, FoldPosition, Folded, Step};
use tribunal_core::resolver::{Resolver, ResolverConfig};
use tribunal_core::row_key::RowKeyer;
use tribunal_core::visibility::{Delivery, Visibility};
use tribunal_log::{DiskLog, DurableLog, LogError, LogOptions, LogReader, Opened};
use tribunal_member::{control_in, groups_in, position_in};
use tribunal_replica::{BySize, PolicyRunner, delivery};
use tribunal_types::{
    Batch, Bounds, ControlChange, ControlEntry, ControlIndex, Epoch, EpochInput, EpochOutcome, GroupId, Lsn,
    PluginActivation, StateImage, limits,
};

use crate::cluster::first_start;
use crate::cluster::generations::check_generation;
use crate::commit::lost_log::check_log_is_present;
use crate::commit::shards::Workers;
use crate::config::Config;
use crate::data_dir::log_dir;
use crate::ignored_settings::ignored_shards;
use crate::plugins::plugin_loader::PluginLoader;
use crate::plugins::policies::PolicySet;

/// A recovered node before its threads start.
pub struct Recovered {
    /// Writes the log.
    pub log: DiskLog,
    /// Reads it.
    pub reader: LogReader,
    /// The group that the log belongs to.
    pub group: GroupId,
    /// Hashes row keys.
    pub keyer: RowKeyer,
    /// Key of the row key hashes.
    pub row_secret: [u8; 16],
    /// Resolver at the last complete epoch.
    pub resolver: Resolver,
    /// Fold after the last epoch in the log.
    pub epochs: Epochs,
    /// Batcher above every stamp in the log.
    pub batcher: Batcher,
    /// Visibility; all pushes count as unacknowledged until the storages' watermarks are known.
    pub visibility: Visibility,
    /// Folded state of the control log.
    pub replicated: ReplicatedState,
    /// Policies in force.
    pub policies: PolicySet,
    /// Last control entry in the log.
    pub control: ControlIndex,
    /// Threads for the shards.
    pub workers: Workers,
    /// Plugins that the configuration names and the control log does not contain yet.
    pub activations: Vec<PluginActivation>,
    /// Bounds that the configuration names and the control log does not contain yet.
    pub bounds: Option<Bounds>,
    /// Number of epochs resolved again since the state image.
    pub replayed: u64,
}

/// In force until the control log sets others.
pub(crate) const DEFAULT_BOUNDS: Bounds = Bounds {
    window_bytes_max: limits::WINDOW_BYTES_MAX as u64,
    status_bytes_max: limits::STATUS_BYTES_MAX as u64,
    plugin_faults_max: limits::PLUGIN_FAULTS_MAX,
    partitions: 1,
};

/// Returns the last number of partitions that the control log sets.
fn last_partitions(control: &[(ControlIndex, ControlEntry)]) -> Option<u16> {
    control.iter().rev().find_map(|(_, entry)| match entry.change {
        ControlChange::SetBounds(bounds) => Some(bounds.partitions),
        _ => None,
    })
}

/// Returns the bounds that the configuration requests. The number of partitions is fixed when the log is created.
pub(crate) fn wanted_bounds(config: &Config, in_force: Option<Bounds>) -> Bounds {
    let partitions = in_force.map_or(config.shards, |bounds| bounds.partitions);
    if let Some(ignored) = ignored_shards(config, in_force) {
        tracing::warn!("{ignored}");
    }
    Bounds {
        window_bytes_max: config.resolver.window_bytes_max as u64,
        status_bytes_max: config.resolver.status_bytes_max as u64,
        plugin_faults_max: config.resolver.plugin_faults_max,
        partitions,
    }
}

/// Returns the number of threads for this number of partitions on this machine.
pub(crate) fn threads_for(partitions: u16) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    usize::from(partitions).min(cores)
}

/// Opens the log in `config.data` and replays it.
///
/// # Errors
/// A description of the problem and its remedy.
pub fn recover(config: &Config, loader: Arc<PluginLoader>) -> Result<Recovered, String> {
    let start = Instant::now();
    let Opened { writer: mut log, reader, recovered: found } = open_log(config)?;
    // The bounds come from the control log, like everything that decides verdicts; the defaults apply until it sets
    // others.
    let unusable = |error: String| format!("the state image cannot be used: {error}");
    let replicated = found.image.as_ref().map(control_in).transpose().map_err(|error| unusable(error.to_string()))?;
    let mut replicated = replicated.unwrap_or_default();
    // The image may be older than the revocation of a key, and the log may have left both of the key's entries out since.
    let runs = &found.control_left_out;
    replicated.forget_keys_created(|index| {
        let run = runs.get(runs.partition_point(|run| *run.end() < index));
        run.is_some_and(|run| run.contains(&index))
    });
    check_generation(&replicated)?;
    let groups = found.image.as_ref().map(groups_in).transpose().map_err(|error| unusable(error.to_string()))?;
    reader.check_cursors(&groups.unwrap_or_default()).map_err(|error| error.to_string())?;
    let partitions = replicated.bounds().unwrap_or(DEFAULT_BOUNDS).partitions;
    let keyer = RowKeyer::new(found.row_secret);
    let resolver_config = ResolverConfig { shards: partitions, keyer, ..ResolverConfig::default() };
    let position = position_of(found.image.as_ref())?;
    let resolver = match found.image {
        Some(image) => Resolver::restore(resolver_config, image).map_err(|error| unusable(format!("{error:?}")))?,
        None => Resolver::new(resolver_config),
    };
    // A new log gets the configured number of partitions.
    let last = last_partitions(&found.control).or(replicated.bounds().map(|bounds| bounds.partitions));
    let workers = Workers::start(threads_for(last.unwrap_or(config.shards)))?;
    // The epoch after the image may require more control entries than the image includes.
    let included = replicated.index().max(position.control);
    let control = continue_control(&mut log, found.control_last, included)?;
    let mut replay = Replay::new(resolver, replicated, PolicySet::new(config, loader)?, found.control, control);
    let mut epochs = replay.start_fold(position, found.group, &reader)?;
    let replayed = replay.run(&mut epochs, &mut log, &reader, &workers)?;
    let mut batcher = Batcher::new(found.group, found.last_csn);
    replay.seal_for_controls(&mut epochs, &mut batcher, &mut log)?;
    log.sync().map_err(|error| error.to_string())?;
    let Replay { resolver, mut policies, replicated, .. } = replay;
    let activations = policies.go_live(replicated.slots())?;
    let visibility = visibility_of(&replicated, &resolver, epochs.last_complete());
    let wanted = wanted_bounds(config, replicated.bounds());
    let bounds = (replicated.bounds() != Some(wanted)).then_some(wanted);
    tracing::info!(
        epoch = resolver.last().0,
        replayed,
        rows = resolver.stats().rows,
        ms = start.elapsed().as_millis() as u64,
        "recovered"
    );
    Ok(Recovered {
        log,
        reader,
        group: found.group,
        keyer,
        row_secret: found.row_secret,
        epochs,
        batcher,
        resolver,
        visibility,
        replicated,
        bounds,
        activations,
        policies,
        control,
        workers,
        replayed,
    })
}

/// Opens the log in `config.data`, unless it is that of a cluster's member.
fn open_log(config: &Config) -> Result<Opened, String> {
    if let Some(fault) = contradiction(&config.data) {
        return Err(fault);
    }
    check_log_is_present(&config.data)?;
    let options = LogOptions {
        retention_ms: config.log.retention_hours * 3_600_000,
        retention_bytes: config.log.retention_bytes,
        ..LogOptions::default()
    };
    let opened = tribunal_log::open(&log_dir(&config.data), &options).map_err(|error| match error {
        LogError::Damaged { .. } => format!("{error}: run {} to see what can be kept", salvage_command(&config.data)),
        other => other.to_string(),
    })?;
    for warning in &opened.recovered.warnings {
        tracing::warn!(warning, "opening the log");
    }
    if !opened.reader.groups().is_empty() {
        return Err(of_member(&config.data));
    }
    Ok(opened)
}

/// Returns why a lone node cannot start with this data directory. Changes nothing.
pub(crate) fn contradiction(data: &Path) -> Option<String> {
    first_start::has_note(data).then(|| of_member(data))
}

fn of_member(data: &Path) -> String {
    format!(
        "{} belongs to a member of a cluster: start it with the `[cluster]` that it had, or use another data directory",
        data.display()
    )
}

/// Returns the visibility of the stores before any of them has reported.
pub(crate) fn visibility_of(replicated: &ReplicatedState, resolver: &Resolver, complete: Epoch) -> Visibility {
    let mut visibility = Visibility::new(complete);
    for store in replicated.stores().stores() {
        visibility.track(store.spec.id, delivery(&store.spec), resolver.head_lsn(store.spec.id));
        if let Some(detachment) = &store.detached {
            visibility.acked(store.spec.id, detachment.acked);
            visibility.track(store.spec.id, Delivery::Detached, Lsn(0));
        }
    }
    visibility
}

/// Returns where the fold continues after an image, or at the start of a log.
fn position_of(image: Option<&StateImage>) -> Result<FoldPosition, String> {
    let Some(image) = image else {
        return Ok(FoldPosition { next: Epoch(1), ..FoldPosition::default() });
    };
    position_in(image)
        .ok_or_else(|| "the state image cannot be used: it does not tell where the log continues".to_owned())
}

/// Returns whether the records of an outcome continue every store's log.
fn follows(resolver: &Resolver, outcome: &EpochOutcome) -> bool {
    let mut heads = BTreeMap::new();
    outcome.lsns.iter().all(|at| {
        let head = heads.entry(at.store).or_insert_with(|| resolver.head_lsn(at.store));
        *head = head.next();
        *head == at.lsn
    })
}

/// Returns the command that shows what a salvage of this data directory's log would lose, quoted for a shell: this
/// program, as it was called.
fn salvage_command(data: &Path) -> String {
    let program = std::env::args_os().next().unwrap_or_else(|| "tribunal".into());
    let [program, data] = [PathBuf::from(program), data.to_owned()].map(|path| quoted(&path.display().to_string()));
    format!("`{program} log salvage --data {data}`")
}

/// Quotes a word for a POSIX shell if necessary.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Folds a log entry, which was counted when it was written.
fn fold(epochs: &mut Epochs, batch: Arc<Batch>) -> Result<(), String> {
    let (first, last) = (batch.first, batch.last);
    match epochs.entry(batch) {
        Folded::Counted => Ok(()),
        folded => Err(format!("the entry of epochs {first} to {last} does not follow the one before: {folded:?}")),
    }
}

/// Returns the last entry of a control log. A control log that ends before the image is extended to its length: a
/// salvage may have recovered the image but not the end of the control log, and positions included in the image must
/// not be reused.
fn continue_control(log: &mut DiskLog, last: ControlIndex, included: ControlIndex) -> Result<ControlIndex, String> {
    for index in last.0 + 1..=included.0 {
        let appended = log.append_control(ControlIndex(index), &ControlChange::Lost.into());
        appended.map_err(|error| error.to_string())?;
    }
    Ok(last.max(included))
}

struct Replay {
    resolver: Resolver,
    replicated: ReplicatedState,
    policies: PolicySet,
    /// Entries after those included in the state.
    controls: VecDeque<(ControlIndex, ControlEntry)>,
    /// Last position of the control log.
    last: ControlIndex,
}

impl Replay {
    fn new(
        resolver: Resolver,
        replicated: ReplicatedState,
        policies: PolicySet,
        controls: Vec<(ControlIndex, ControlEntry)>,
        last: ControlIndex,
    ) -> Replay {
        let controls = controls.into_iter().filter(|(index, _)| *index > replicated.index()).collect();
        let mut replay = Replay { resolver, replicated, policies, controls, last };
        let declared: Vec<_> = replay.replicated.stores().stores().map(|store| store.spec.clone()).collect();
        declared.into_iter().for_each(|spec| replay.resolver.declare_store(spec));
        replay.replicated.bounds().into_iter().for_each(|bounds| replay.set_bounds(bounds));
        // No-op unless an older release wrote the image after the switch.
        replay.resolver.switch_generation(replay.replicated.releases().generation());
        replay
    }

    /// Starts the fold of this log, the only one so far, at a position.
    fn start_fold(&self, mut position: FoldPosition, group: GroupId, reader: &LogReader) -> Result<Epochs, String> {
        let next = position.next;
        let first = reader.batches_from(next).next().transpose().map_err(|error| error.to_string())?;
        // A salvage may have sealed epochs before and after `next` in one entry, under another incarnation.
        position.groups = vec![(group, first.map_or(next, |batch| batch.first.min(next)))];
        Ok(Epochs::resume(&position, self.replicated.index()))
    }

    /// Resolves the rest of the log; returns the number of epochs with items.
    fn run(
        &mut self,
        epochs: &mut Epochs,
        log: &mut DiskLog,
        reader: &LogReader,
        workers: &Workers,
    ) -> Result<u64, String> {
        let mut replayed = 0;
        let mut entries = reader.entries_from(epochs.last_complete().next());
        while let Some(entry) = entries.next() {
            let (input, mut recorded) = entry.map_err(|error| error.to_string())?;
            input.batches.into_iter().try_for_each(|batch| fold(epochs, batch))?;
            let Some(input) = self.next_epoch(epochs)? else { continue };
            let operations = input.batches.iter().map(|b| b.reads.len() + b.writes.len()).sum();
            let executor = BySize { workers, operations };
            // A salvage keeps later outcomes separate if an earlier one is lost; each is written to the log in its
            // turn.
            let kept_apart = !log.has_outcome(input.epoch);
            if kept_apart && recorded.as_ref().is_some_and(|outcome| !follows(&self.resolver, outcome)) {
                let epoch = input.epoch.0;
                tracing::warn!(
                    epoch,
                    "resolving epochs again: the outcomes that a salvage kept do not continue the resolved ones"
                );
                entries.forget_kept_outcomes();
                recorded = None;
            }
            match recorded {
                Some(outcome) => {
                    self.resolver.replay(&input, &outcome, &executor);
                    if kept_apart {
                        log.append_outcome(&outcome).map_err(|error| error.to_string())?;
                    }
                }
                None => {
                    self.policies.load_for_replay(self.replicated.slots())?;
                    let outcome = self.resolver.resolve(&input, &self.policies.policies(), &executor);
                    log.append_outcome(&outcome).map_err(|error| error.to_string())?;
                }
            }
            replayed += 1;
        }
        Ok(replayed)
    }

    /// Applies control entries that no epoch carries yet, at the end of an epoch sealed for them, as on an idle node.
    fn seal_for_controls(
        &mut self,
        epochs: &mut Epochs,
        batcher: &mut Batcher,
        log: &mut DiskLog,
    ) -> Result<(), String> {
        // The part of the next epoch's control that an image includes is below that epoch's K.
        self.next_epoch(epochs)?;
        if let Some(&(last, _)) = self.controls.back() {
            let next = epochs.last_complete().next();
            let batch = batcher.seal(next, next, last, epochs.epoch_time_ms());
            log.append(&batch).and_then(|()| log.sync()).map_err(|error| error.to_string())?;
            fold(epochs, Arc::new(batch))?;
            self.next_epoch(epochs)?;
        }
        self.replicated.advance(epochs.last_complete().next());
        Ok(())
    }

    /// Applies the control entries that are due, and returns the next epoch that has something to resolve.
    fn next_epoch(&mut self, epochs: &mut Epochs) -> Result<Option<EpochInput>, String> {
        while let Some(step) = epochs.poll() {
            match step {
                Step::Control { upto, next } => {
                    // Conditions that waited for an epoch before these entries count have held since then.
                    self.replicated.advance(next.prev());
                    self.apply_controls(upto, next);
                    check_generation(&self.replicated)?;
                    if self.last < upto {
                        let (upto, last) = (upto.0, self.last.0);
                        return Err(format!(
                            "epoch {next} was sealed with control entry {upto}, but the control log ends with {last}"
                        ));
                    }
                    epochs.applied(upto);
                }
                Step::Epoch { input, .. } => {
                    self.replicated.advance(input.epoch);
                    return Ok(Some(input));
                }
            }
        }
        Ok(None)
    }

    /// Applies entries up to `upto`; `next` is the first epoch that they apply to.
    fn apply_controls(&mut self, upto: ControlIndex, next: Epoch) {
        while let Some((index, entry)) = self.controls.pop_front_if(|(index, _)| *index <= upto) {
            let resolver = &self.resolver;
            let is_existence_fixed = |store| resolver.is_existence_fixed(store);
            let moment = Moment { next, is_existence_fixed: &is_existence_fixed, members: &[] };
            match self.replicated.apply(index, &entry, moment) {
                Ok(Effect::StoreDeclared { store, .. }) => {
                    let declared = self.replicated.stores().store(store);
                    declared.into_iter().for_each(|store| self.resolver.declare_store(store.spec.clone()));
                }
                Ok(Effect::BoundsSet(bounds)) => self.set_bounds(bounds),
                Ok(Effect::GenerationSwitched(generation)) => {
                    self.resolver.switch_generation(generation);
                }
                Ok(Effect::EntryLost) => tracing::error!(
                    entry = index.0,
                    "an entry of the control log was lost; check stores, keys and plugins"
                ),
                // Policies are loaded when an epoch needs them, the rest after the replay.
                Ok(_) | Err(_) => {}
            }
        }
    }

    fn set_bounds(&mut self, bounds: Bounds) {
        self.resolver.set_bounds(bounds);
        self.policies.set_faults_max(bounds.plugin_faults_max);
    }
}

#[cfg(test)]
mod tests {
    use tribunal_types::Generation;

    use super::*;
    use crate::config::PolicyHost;
    use crate::plugins::signatures::Signers;

    #[test]
    fn the_configuration_only_seeds_the_partitions_of_a_new_log() {
        let config = Config { shards: 7, ..Config::default() };
        assert_eq!(wanted_bounds(&config, None).partitions, 7);
        let in_force = Bounds { partitions: 2, plugin_faults_max: 99, ..DEFAULT_BOUNDS };
        let wanted = wanted_bounds(&config, Some(in_force));
        assert_eq!((wanted.partitions, wanted.plugin_faults_max), (2, config.resolver.plugin_faults_max));
    }

    #[test]
    fn the_last_partitions_that_the_control_log_sets_count() {
        let set = |index, partitions| {
            (ControlIndex(index), ControlChange::SetBounds(Bounds { partitions, ..DEFAULT_BOUNDS }).into())
        };
        let control = [set(1, 3), (ControlIndex(2), ControlChange::Lost.into()), set(3, 5), set(4, 4)];
        assert_eq!(
            [0, 1, 2, 3, 4].map(|len| last_partitions(&control[..len])),
            [None, Some(3), Some(3), Some(5), Some(4)]
        );
    }

    /// Writes a log whose only control entry is in no epoch; it was durable before the node was killed.
    fn log_with_a_pending_control_entry(data: &Path) {
        let mut log = tribunal_log::open(&log_dir(data), &LogOptions::default()).expect("a new log").writer;
        let change = ControlChange::SetBounds(Bounds { partitions: 3, ..DEFAULT_BOUNDS });
        log.append_control(ControlIndex(1), &change.into()).expect("it follows");
        log.sync().expect("a disk");
    }

    #[test]
    fn a_start_seals_one_epoch_for_a_control_entry_that_none_carries() {
        let dir = tempfile::tempdir().expect("a directory");
        log_with_a_pending_control_entry(dir.path());
        let config = Config { data: dir.path().to_owned(), plugins: PolicyHost::Native, ..Config::default() };
        for start in 1..=2 {
            let loader = Arc::new(PluginLoader::open(&config, Signers::default()).expect("a store of plugins"));
            let recovered = recover(&config, loader).expect("a whole log");
            assert_eq!(recovered.replicated.bounds().map(|bounds| bounds.partitions), Some(3), "start {start}");
            assert_eq!(recovered.control, ControlIndex(1));
            let position = recovered.epochs.position();
            assert_eq!((position.next, position.control), (Epoch(2), ControlIndex(1)), "start {start}");
            assert_eq!(recovered.log.next(), Epoch(2), "the epoch is in the log, and sealed once");
        }
    }

    #[test]
    fn a_node_that_runs_alone_follows_the_switch_in_its_log_as_far_as_its_release_can() {
        let switched = |generation: Generation| {
            let dir = tempfile::tempdir().expect("a directory");
            let mut log = tribunal_log::open(&log_dir(dir.path()), &LogOptions::default()).expect("a new log").writer;
            log.append_control(ControlIndex(1), &ControlChange::SwitchGeneration(generation).into())
                .expect("it follows");
            log.sync().expect("a disk");
            drop(log);
            let config = Config { data: dir.path().to_owned(), plugins: PolicyHost::Native, ..Config::default() };
            let loader = Arc::new(PluginLoader::open(&config, Signers::default()).expect("a store of plugins"));
            recover(&config, loader).map(|recovered| (recovered.resolver.generation(), recovered.replicated))
        };
        let (generation, replicated) = switched(Generation::NEWEST).expect("a whole log");
        assert_eq!((generation, replicated.releases().generation()), (Generation::NEWEST, Generation::NEWEST));
        let refused = switched(Generation(Generation::NEWEST.0 + 1)).expect_err("a release that is too old");
        assert!(refused.contains("start the newer release"), "{refused}");
    }

    #[test]
    fn recovery_applies_what_an_empty_entry_carries_before_the_epoch_after_it() {
        let dir = tempfile::tempdir().expect("a directory");
        log_with_a_pending_control_entry(dir.path());
        let opened = tribunal_log::open(&log_dir(dir.path()), &LogOptions::default()).expect("a whole log");
        let (group, mut log) = (opened.recovered.group, opened.writer);
        let batch = |epoch, control| {
            let (first, control) = (Epoch(epoch), ControlIndex(control));
            Batch { group, first, last: first, control, stamp_us: epoch, ..Batch::default() }
        };
        [batch(1, 0), batch(2, 1), batch(3, 0)].iter().for_each(|batch| log.append(batch).expect("they follow"));
        log.sync().expect("a disk");
        drop((log, opened.reader));
        let config = Config { data: dir.path().to_owned(), plugins: PolicyHost::Native, ..Config::default() };
        let loader = Arc::new(PluginLoader::open(&config, Signers::default()).expect("a store of plugins"));
        let recovered = recover(&config, loader).expect("a whole log");
        assert_eq!(recovered.epochs.position().control, ControlIndex(1), "epoch 2 carries it, though it is empty");
        assert_eq!(recovered.log.next(), Epoch(4), "no epoch had to be sealed for it");
    }

    #[test]
    fn a_control_log_that_ends_before_the_image_continues_after_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = || tribunal_log::open(dir.path(), &LogOptions::default()).expect("a log");
        let mut log = open().writer;
        let revoke = ControlEntry::from(ControlChange::RevokeKey { id: "a".into() });
        log.append_control(ControlIndex(1), &revoke).expect("written");
        assert_eq!(continue_control(&mut log, ControlIndex(1), ControlIndex(0)), Ok(ControlIndex(1)));
        assert_eq!(continue_control(&mut log, ControlIndex(1), ControlIndex(4)), Ok(ControlIndex(4)));
        log.append_control(ControlIndex(5), &revoke).expect("the next one");
        log.sync().expect("durable");
        drop(log);
        let found = open().recovered;
        let lost = |(index, entry): &(ControlIndex, ControlEntry)| (index.0, entry.change == ControlChange::Lost);
        let expected = [(1, false), (2, true), (3, true), (4, true), (5, false)];
        assert_eq!(found.control.iter().map(lost).collect::<Vec<_>>(), expected);
        assert_eq!(found.control_last, ControlIndex(5));
    }
}
