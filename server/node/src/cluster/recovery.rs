//! Recovers a cluster member from its log, so that it continues where its process stopped.
//!
//! All entries known here to be committed pass through the member again, as they did the first time; an epoch whose
//! outcome is in the log must be decided as before. The rest comes from the other nodes once they are reachable.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tribunal_codec::GroupState;
use tribunal_core::batcher::Batcher;
use tribunal_core::control::slots::Slots;
use tribunal_core::resolver::ResolverConfig;
use tribunal_core::row_key::RowKeyer;
use tribunal_log::{DiskLog, DurableLog, GroupCursors, LogError, LogOptions, LogReader, Opened};
use tribunal_member::{Input, Member, MemberStart, Members, Output, RaftSettings, Restored, stamp_in};
use tribunal_replica::{Now, PolicyRunner, Replica, ReplicaStart, Settings};
use tribunal_types::{EpochInput, EpochOutcome, GroupId, PluginActivation};

use crate::cluster::first_start::{FirstStart, REMOVED, check_adopted, has_note, log_is_missing};
use crate::cluster::generations::check_generation;
use crate::cluster::group_logs::GroupLogs;
use crate::cluster::membership::Membership;
use crate::cluster::node_member::NodeMember;
use crate::cluster::state_copy::incoming;
use crate::commit::batch_size::MEMBER_BYTES_MAX;
use crate::commit::recovery::{DEFAULT_BOUNDS, threads_for, visibility_of};
use crate::commit::shards::Workers;
use crate::commit::waiters::Channels;
use crate::config::Config;
use crate::data_dir::log_dir;
use crate::plugins::plugin_loader::PluginLoader;
use crate::plugins::policies::PolicySet;

/// Time between two ticks: with the groups' defaults, elections begin after 0.3 to 0.45 s without a leader.
pub const TICK: Duration = Duration::from_millis(30);
/// How long other nodes wait for a group whose leader is alive and delivers nothing.
const TAKE_OVER_AFTER: Duration = Duration::from_millis(700);
/// Maximum number of this node's batches in flight to a majority.
const IN_FLIGHT_MAX: usize = 8;
/// Minimum time between two of them: an epoch costs each node about half a millisecond, whatever its content.
const PAUSE_MIN: Duration = Duration::from_millis(2);
/// Maximum number of bytes of decided epochs between two state images: as much is decided again after a crash.
const IMAGE_EVERY_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Approximate maximum size of committed but undecided entries in memory: more than all nodes have in flight at a time.
/// A node that comes back decides as much between two polls of its peers, in a tenth of a second.
const UNDECIDED_BYTES_MAX: usize = 32 << 20;

/// A recovered member before its threads start.
pub struct RecoveredMember {
    /// Writes the log.
    pub log: DiskLog,
    /// Reads it.
    pub reader: LogReader,
    /// Hashes row keys.
    pub keyer: RowKeyer,
    /// The member.
    pub member: Box<NodeMember>,
    /// How far the state image that it started from has read the groups.
    pub image: GroupCursors,
    /// Origin of its monotonic clock.
    pub started: Instant,
    /// Whether the node may take part already.
    pub first_start: FirstStart,
    /// Plugins that the configuration names, for a cluster that has none yet.
    pub activations: Vec<PluginActivation>,
}

/// Random values drawn at process start: no two starts have the same.
#[derive(Clone, Copy)]
pub struct Drawn {
    /// Identifies its configuration changes.
    pub run: u64,
    /// Seed of its elections.
    pub seed: u64,
}

/// Opens the log in `config.data` and brings a member up to date with its content.
///
/// # Errors
/// A description of the problem and its remedy.
pub fn recover_member(
    config: &Config,
    membership: &Membership,
    loader: Arc<PluginLoader>,
    settings: Settings,
    drawn: Drawn,
) -> Result<RecoveredMember, String> {
    let started = Instant::now();
    let Opened { writer: mut log, reader, recovered: found } = open_log(config, membership)?;
    let mut policies = PolicySet::new(config, Arc::clone(&loader))?;
    let groups: Vec<GroupId> = membership.founders.iter().map(|node| Membership::group_of(*node)).collect();
    let keyer = RowKeyer::new(found.row_secret);
    let first_config = ResolverConfig { shards: DEFAULT_BOUNDS.partitions, keyer, ..ResolverConfig::default() };
    let Restored { resolver, replicated, epochs, groups: image } = Restored::read(found.image, &groups, first_config)?;
    reader.check_cursors(&image).map_err(in_words)?;
    let heads: Vec<_> = resolver.heads().collect();
    if log.continue_after(resolver.last(), &heads).map_err(|error| error.to_string())? {
        tracing::warn!(
            epoch = resolver.last().0,
            "the log continues after the state of another node; readers find older records there"
        );
    }
    if let Some(bounds) = replicated.bounds() {
        policies.set_faults_max(bounds.plugin_faults_max);
    }
    // Nothing is decided again with plugins deleted before the image.
    for digest in loader.store.sweep(replicated.index().0)? {
        loader.compiled.remove(&digest);
    }
    check_generation(&replicated)?;
    let activations = policies.go_live_as_member(replicated.slots())?;
    let own = Membership::group_of(membership.node);
    let replica = ReplicaStart {
        group: own,
        leads: false,
        batcher: Batcher::new(own, stamp_in(&image, own)),
        visibility: visibility_of(&replicated, &resolver, epochs.last_complete()),
        control: replicated.index(),
        resolver,
        epochs,
        replicated,
        run: drawn.run,
        policies,
        executor: Workers::start(threads_for(config.shards))?,
        // The replica itself decides a member's epochs again, and counts them.
        replayed: 0,
        settings: of_member(settings),
    };
    let now = Now::default();
    let start = MemberStart {
        node: membership.node,
        group: own,
        control: replica.control,
        replica: Replica::new(replica, now),
        image: image.clone(),
        keyer,
        log: GroupLogs::new(reader.clone()),
        raft: RaftSettings { seed: drawn.seed, ..RaftSettings::default() },
        groups: stored_groups(&groups, &reader, &image),
        first_members: Members::first(membership.founders.iter().copied()),
        undecided_bytes_max: UNDECIDED_BYTES_MAX,
    };
    let member = Member::new(start, now).map_err(|error| error.to_string())?;
    let mut replay = Replay { member, log, reader, epochs: 0 };
    replay.run()?;
    let Replay { member, log, reader, epochs } = replay;
    tracing::info!(
        epoch = member.replica().last_complete().0,
        replayed = epochs,
        rows = member.replica().resolver().stats().rows,
        ms = started.elapsed().as_millis() as u64,
        "recovered"
    );
    check_generation(member.replica().replicated())?;
    let activations = for_free_slots(activations, member.replica().replicated().slots());
    let groups = reader.groups();
    let has_history = groups.into_iter().any(|group| reader.group_state(group).commit > 0);
    let first_start = FirstStart::read(&config.data, membership, has_history, drawn.run)?;
    Ok(RecoveredMember { log, reader, keyer, member: Box::new(member), image, started, first_start, activations })
}

/// Opens the log in `config.data`, after checking that it is that of this member.
fn open_log(config: &Config, membership: &Membership) -> Result<Opened, String> {
    let options = LogOptions {
        node: membership.node,
        cluster: Some(membership.identity),
        retention_ms: config.log.retention_hours * 3_600_000,
        retention_bytes: config.log.retention_bytes,
        ..LogOptions::default()
    };
    check_adopted(&config.data, membership)?;
    // Without a note this is the state of a single node whose adoption was interrupted.
    if has_note(&config.data) {
        // A log is always created before the note.
        if !tribunal_log::exists(&log_dir(&config.data)).map_err(in_words)? {
            return Err(log_is_missing(&log_dir(&config.data), membership.node));
        }
        incoming::put_in_place(&config.data)?;
    }
    let mut opened = tribunal_log::open(&log_dir(&config.data), &options).map_err(in_words)?;
    opened.recovered.warnings.iter().for_each(|warning| tracing::warn!(warning, "opening the log"));
    // Raft takes everything that it finds for durable and vouches for it at once. A killed process may have left it in the
    // system's cache.
    opened.writer.sync().map_err(in_words)?;
    Ok(opened)
}

/// Returns the settings of a member's replica.
fn of_member(settings: Settings) -> Settings {
    Settings {
        image_every_bytes: settings.image_every_bytes.min(IMAGE_EVERY_BYTES_MAX),
        in_flight_max: IN_FLIGHT_MAX,
        pause_min: PAUSE_MIN,
        batch_bytes_max: MEMBER_BYTES_MAX,
        take_over_after: Some(TAKE_OVER_AFTER),
        ..settings
    }
}

/// Returns the stored state of every group that is known: of the founders, in the log, or in the state image.
fn stored_groups(founders: &[GroupId], reader: &LogReader, image: &GroupCursors) -> Vec<(GroupId, GroupState)> {
    let known = [GroupId::CONTROL].into_iter().chain(founders.iter().copied());
    let known = known.chain(reader.groups()).chain(image.keys().copied()).collect::<BTreeSet<_>>();
    known.into_iter().map(|group| (group, reader.group_state(group))).collect()
}

/// Returns the activations of slots that the control log does not name, which are for the cluster's first start:
/// plugins named by the control log take precedence.
fn for_free_slots(activations: Vec<PluginActivation>, slots: &Slots) -> Vec<PluginActivation> {
    let is_named =
        |wanted: &PluginActivation| slots.slot(&wanted.choice.slot).is_some_and(|slot| slot.active().is_some());
    activations.into_iter().filter(|wanted| !is_named(wanted)).collect()
}

struct Replay {
    member: NodeMember,
    log: DiskLog,
    reader: LogReader,
    /// Decided epochs.
    epochs: u64,
}

impl Replay {
    /// Feeds the member the entries known here to be committed, until there are no more.
    fn run(&mut self) -> Result<(), String> {
        loop {
            let mut synced = None;
            while let Some(output) = self.member.poll() {
                synced = self.carry_out(output)?.or(synced);
            }
            let Some(number) = synced else {
                if self.member.go_on() {
                    continue;
                }
                return Ok(());
            };
            self.log.sync().map_err(in_words)?;
            // A member refuses nothing from its own log.
            self.member.step(Input::Persisted(number), Now::default()).map_err(|refused| refused.to_string())?;
        }
    }

    /// Returns the number of a requested sync.
    fn carry_out(&mut self, output: Output<Channels>) -> Result<Option<u64>, String> {
        let failed = in_words;
        match output {
            Output::Append { group, id, content } => {
                self.log.append_group_entry(group, id, &content).map_err(failed)?
            }
            Output::Copy { group, id, content } => self.log.append_group_copy(group, id, &content).map_err(failed)?,
            Output::SetState { group, state } => self.log.set_group_state(group, &state).map_err(failed)?,
            Output::Sync { number } => return Ok(Some(number)),
            Output::Decided { decided, entries } => {
                self.epochs += 1;
                append_or_compare(&mut self.log, &self.reader, &decided.input, &decided.outcome, &entries)
                    .map_err(failed)?;
            }
            Output::Diverged { reason } => return Err(reason),
            Output::Failed { group, reason } => return Err(cannot_go_on(group, &reason)),
            Output::Removed => return Err(REMOVED.into()),
            // There are no connections and no waiters yet.
            Output::Send { .. } | Output::Effect(_) | Output::Fresh { .. } => {}
            // An image that is due is taken by the running node.
            Output::Image { .. } => {}
            Output::NeedsImage { .. } => unreachable!("only a leader's message asks for it"),
        }
        Ok(None)
    }
}

/// Writes an outcome, unless the log already has it from before the process started: then the last such outcome must be
/// the same, and thus all earlier ones.
///
/// # Errors
/// If it differs, or if durability is in doubt.
pub fn append_or_compare(
    log: &mut DiskLog,
    reader: &LogReader,
    input: &EpochInput,
    outcome: &EpochOutcome,
    entries: &[(GroupId, u64)],
) -> Result<(), LogError> {
    if entries.len() != input.batches.len() {
        let reason =
            format!("{} entries are named for {} batches of epoch {}", entries.len(), input.batches.len(), input.epoch);
        return Err(LogError::OutOfOrder { what: "the outcome", reason });
    }
    if !log.has_outcome(outcome.epoch) {
        return log.append_epoch(outcome, entries);
    }
    // A digest covers all epochs before its own.
    if log.last_outcome() != Some(outcome.epoch) {
        return Ok(());
    }
    match reader.outcome(outcome.epoch)? {
        Some(stored) if stored.digest != outcome.digest => {
            let reason = format!(
                "epoch {} was decided otherwise before this start (digest {}, now {}): the node's state has diverged. The other \
                 nodes continue without it. Start it with the version that wrote the log, or keep its directory and report \
                 this",
                outcome.epoch, stored.digest, outcome.digest
            );
            Err(LogError::Io { reason })
        }
        _ => Ok(()),
    }
}

/// Describes an error of a member's log. The other nodes rely on state that a salvage or a backup would revert.
fn in_words(error: LogError) -> String {
    let LogError::Damaged { path, reason } = error else { return error.to_string() };
    format!(
        "the log in {} is damaged: {reason}. A member of a cluster is neither salvaged nor restored from a backup: either could \
         take back what it has voted and acknowledged. The cluster continues without it while a majority of its nodes runs: \
         remove this node (`tribunal cluster remove`) and add a new one (`tribunal cluster add`). Keep the directory until then",
        path.display()
    )
}

/// Describes a group's log that cannot be followed.
#[must_use]
pub fn cannot_go_on(group: GroupId, reason: &str) -> String {
    if group == GroupId::CONTROL {
        return format!("the control log cannot be followed: {reason}");
    }
    format!("the log of node {} cannot be followed: {reason}", group.node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_with_a_damaged_log_is_to_be_replaced() {
        let told = in_words(LogError::Damaged { path: "data/log".into(), reason: "entry 7 is gone".into() });
        assert!(told.contains("the log in data/log is damaged: entry 7 is gone"), "{told}");
        assert!(told.contains("`tribunal cluster remove`") && told.contains("`tribunal cluster add`"), "{told}");
        assert!(!told.contains("Restore it"), "{told}");
        assert_eq!(in_words(LogError::Io { reason: "no room".into() }), "no room");
    }
}
