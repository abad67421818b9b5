//! From the content of the log to a node that continues where the last one stopped.
//!
//! The newest image, then every epoch after it: a recorded outcome is authoritative, an epoch without one is
//! resolved again under the configuration that it was sealed with. Nothing is answered and nothing is pushed before
//! this is done.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tribunal_core::batcher::Batcher;
use tribunal_core::control::slots::Slots;
use tribunal_core::epochs::Epochs;
use tribunal_core::resolver::{Resolver, ResolverConfig};
use tribunal_core::row_key::RowKeyer;
use tribunal_core::visibility::{Delivery, Visibility};
use tribunal_log::{DiskLog, DurableLog, LogError, LogOptions, LogReader};
use tribunal_types::{Bounds, ControlChange, ControlIndex, Epoch, EpochOutcome, GroupId, Lsn, PluginChoice, limits};

use crate::auth::keys::Keys;
use crate::commit::image_capture::{CONTROL_COLUMN, SLOTS_COLUMN};
use crate::commit::shards::{BySize, Workers};
use crate::commit::store_watch::delivery;
use crate::config::Config;
use crate::plugins::plugin_loader::PluginLoader;
use crate::plugins::policies::PolicySet;
use crate::plugins::settings::entry_of;
use crate::stores::store_registry::StoreRegistry;

/// A node before its threads start.
pub struct Recovered {
    /// Writes the log.
    pub log: DiskLog,
    /// Reads it.
    pub reader: LogReader,
    /// The group that the log belongs to.
    pub group: GroupId,
    /// Hashes row keys.
    pub keyer: RowKeyer,
    /// At the last complete epoch.
    pub resolver: Resolver,
    /// After the last epoch in the log.
    pub epochs: Epochs,
    /// Above every stamp in the log.
    pub batcher: Batcher,
    /// Everything pushed counts as unacknowledged until the watermarks of the storages are known.
    pub visibility: Visibility,
    /// Stores in force.
    pub declared: StoreRegistry,
    /// Keys in force.
    pub keys: Keys,
    /// Policies in force.
    pub policies: PolicySet,
    /// Last control entry.
    pub control: ControlIndex,
    /// Threads for the shards.
    pub workers: Workers,
    /// Plugins that the configuration names and the control log does not have yet.
    pub activations: Vec<(PluginChoice, Epoch)>,
    /// Bounds that the configuration names and the control log does not have yet.
    pub bounds: Option<Bounds>,
}

/// In force until the control log has others.
const DEFAULT_BOUNDS: Bounds = Bounds {
    window_bytes_max: limits::WINDOW_BYTES_MAX as u64,
    status_bytes_max: limits::STATUS_BYTES_MAX as u64,
    plugin_faults_max: limits::PLUGIN_FAULTS_MAX,
};

/// Opens the log in `config.data` and replays it.
///
/// # Errors
/// In words: what is wrong and what to do about it.
pub fn recover(config: &Config, loader: Arc<PluginLoader>) -> Result<Recovered, String> {
    let start = Instant::now();
    let options = LogOptions {
        retention_ms: config.log.retention_hours * 3_600_000,
        retention_bytes: config.log.retention_bytes,
        ..LogOptions::default()
    };
    let opened = tribunal_log::open(&log_dir(&config.data), &options).map_err(|error| match error {
        LogError::Damaged { .. } => format!("{error}: {}", salvage_command(&config.data)),
        other => other.to_string(),
    })?;
    let (mut log, reader, found) = (opened.writer, opened.reader, opened.recovered);
    for warning in &found.warnings {
        tracing::warn!(warning, "opening the log");
    }
    // The bounds are the control log's, like all that decides verdicts; the defaults are in force until it has others.
    let resolver_config = ResolverConfig { shards: config.shards, ..ResolverConfig::default() };
    let image_control = found.image.as_ref().and_then(|image| image.words(CONTROL_COLUMN)?.first().copied());
    let image_slots = found.image.as_ref().and_then(|image| image.words(SLOTS_COLUMN)).map(<[u64]>::to_vec);
    let resolver = match found.image {
        Some(image) => Resolver::restore(resolver_config, image)
            .map_err(|error| format!("the state image cannot be used: {error:?}"))?,
        None => Resolver::new(resolver_config),
    };
    let mut replay = Replay {
        resolver,
        policies: PolicySet::new(config, loader)?,
        controls: found.control.into(),
        control: ControlIndex(0),
        declared: StoreRegistry::default(),
        keys: Keys::default(),
    };
    replay.restore(ControlIndex(image_control.unwrap_or(0)), image_slots.as_deref());
    let workers = Workers::start(usize::from(config.shards))?;
    let mut replayed = 0_u64;
    let mut epoch_time_ms = replay.resolver.epoch_time_ms();
    let mut entries = reader.entries_from(replay.resolver.last().next());
    while let Some(entry) = entries.next() {
        let (input, mut recorded) = entry.map_err(|error| error.to_string())?;
        let upto = input.batches.iter().map(|batch| batch.control).max().unwrap_or_default();
        let first = input.batches.iter().map(|batch| batch.first).min().unwrap_or(input.epoch);
        replay.apply_controls(upto, first);
        epoch_time_ms = input.epoch_time_ms;
        if input.batches.iter().all(|batch| batch.is_empty()) {
            replay.policies.advance(input.epoch.next());
            continue;
        }
        replay.policies.advance(input.epoch);
        let operations = input.batches.iter().map(|b| b.reads.len() + b.writes.len()).sum();
        let executor = BySize { workers: &workers, operations };
        // A salvage keeps later outcomes apart if one before them is lost; each goes into the log in its turn.
        let kept_apart = !log.has_outcome(input.epoch);
        if kept_apart && recorded.as_ref().is_some_and(|outcome| !follows(&replay.resolver, outcome)) {
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
                replay.resolver.replay(&input, &outcome, &executor);
                if kept_apart {
                    log.append_outcome(&outcome).map_err(|error| error.to_string())?;
                }
            }
            None => {
                replay.policies.load_for_replay()?;
                let outcome = replay.resolver.resolve(&input, &replay.policies.policies(), &executor);
                log.append_outcome(&outcome).map_err(|error| error.to_string())?;
            }
        }
        replayed += 1;
    }
    // Entries that no epoch carried yet.
    replay.apply_controls(ControlIndex(u64::MAX), found.next);
    log.sync().map_err(|error| error.to_string())?;
    let Replay { resolver, mut policies, control, declared, keys, .. } = replay;
    let activations = policies.go_live()?;
    let mut visibility = Visibility::new(found.next.prev());
    for store in declared.stores() {
        visibility.track(store.spec.id, delivery(&store.spec), resolver.head_lsn(store.spec.id));
        if let Some(detachment) = &store.detached {
            visibility.acked(store.spec.id, detachment.acked);
            visibility.track(store.spec.id, Delivery::Detached, Lsn(0));
        }
    }
    let wanted = Bounds {
        window_bytes_max: config.resolver.window_bytes_max as u64,
        status_bytes_max: config.resolver.status_bytes_max as u64,
        plugin_faults_max: config.resolver.plugin_faults_max,
    };
    let in_force = declared.bounds().unwrap_or(DEFAULT_BOUNDS);
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
        keyer: RowKeyer::new(found.row_secret),
        epochs: Epochs::new(&[found.group], found.next, epoch_time_ms),
        batcher: Batcher::new(found.group, found.last_csn),
        resolver,
        visibility,
        declared,
        keys,
        bounds: (in_force != wanted).then_some(wanted),
        activations,
        policies,
        control,
        workers,
    })
}

/// Returns the log's directory within a data directory.
#[must_use]
pub fn log_dir(data: &Path) -> PathBuf {
    data.join("log")
}

/// Tells whether the records of an outcome continue every store's log.
fn follows(resolver: &Resolver, outcome: &EpochOutcome) -> bool {
    let mut heads = BTreeMap::new();
    outcome.lsns.iter().all(|at| {
        let head = heads.entry(at.store).or_insert_with(|| resolver.head_lsn(at.store));
        *head = head.next();
        *head == at.lsn
    })
}

/// Returns the command that salvages the log of this data directory, ready for a shell: this program, as it was called.
fn salvage_command(data: &Path) -> String {
    let program = std::env::args_os().next().unwrap_or_else(|| "tribunal".into());
    let [program, data] = [PathBuf::from(program), data.to_owned()].map(|path| quoted(&path.display().to_string()));
    format!("`{program} log salvage --data {data} --accept-loss`")
}

/// Quotes a word for a POSIX shell if it needs that.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

struct Replay {
    resolver: Resolver,
    policies: PolicySet,
    controls: VecDeque<(ControlIndex, ControlChange)>,
    control: ControlIndex,
    declared: StoreRegistry,
    keys: Keys,
}

impl Replay {
    /// Restores what a state image holds of the entries up to `upto`.
    fn restore(&mut self, upto: ControlIndex, slots: Option<&[u64]>) {
        let included = self.controls.iter().take_while(|(index, _)| *index <= upto);
        let activations = included.filter_map(|(index, change)| match change {
            ControlChange::ActivatePlugin { choice, from } => Some(entry_of(*index, choice, *from)),
            _ => None,
        });
        let next = self.resolver.last().next();
        let slots = Slots::restore(slots, &activations.collect::<Vec<_>>(), next);
        self.apply_controls(upto, next);
        self.policies.restore(slots);
    }

    /// Applies entries up to `upto`; `next` is the first epoch that they count for.
    fn apply_controls(&mut self, upto: ControlIndex, next: Epoch) {
        while self.controls.front().is_some_and(|(index, _)| *index <= upto) {
            let Some((index, change)) = self.controls.pop_front() else { break };
            self.declared.apply(index, &change);
            self.keys.apply(&change);
            match change {
                ControlChange::DeclareStore(spec) => self.resolver.declare_store(spec),
                ControlChange::ActivatePlugin { choice, from } => {
                    self.policies.activate(index, &choice, from, next);
                }
                ControlChange::ForgetPlugin { digest } => self.policies.forget(&digest),
                ControlChange::SetBounds(bounds) => {
                    self.resolver.set_bounds(bounds);
                    self.policies.set_faults_max(bounds.plugin_faults_max);
                }
                ControlChange::DetachPush(_) | ControlChange::AttachPush { .. } | ControlChange::SkipRecord(_) => {}
                ControlChange::CreateKey(_) | ControlChange::RevokeKey { .. } => {}
                ControlChange::Lost => {
                    tracing::error!(
                        entry = index.0,
                        "an entry of the control log was lost; check stores, keys and plugins"
                    );
                }
            }
            self.control = index;
        }
    }
}
