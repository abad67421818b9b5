//! A machine: a disk, a clock that may be wrong, and a process that is a member of the cluster while it runs.
//!
//! The process uses the real log on a simulated disk. A sync begins when the member requests one, and takes a while;
//! later writes wait for the next sync. Machines differ in their clocks, cores, epoch lengths and image intervals.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use tribunal_codec::{EntryId, GroupCursors, GroupState};
use tribunal_core::batcher::Batcher;
use tribunal_core::control::members::Members as ClusterNodes;
use tribunal_core::executor::Inline;
use tribunal_core::resolver::ResolverConfig;
use tribunal_core::row_key::RowKeyer;
use tribunal_log::sim::SimFiles;
use tribunal_log::{DiskLog, DurableLog, LogError, LogOptions, LogReader, Opened, open_on};
use tribunal_member::{GroupLog, Member, MemberStart, Members, RaftSettings, Restored, stamp_in};
use tribunal_replica::{Now, Replica, ReplicaStart, Settings};
use tribunal_types::{Generations, GroupId, NodeId, StoreId};

use crate::cluster::{group, tracked};
use crate::generate::START_MS;
use crate::scenario::ROW_SECRET;
use crate::sim::drawing::FIRST_STORE;
use crate::sim::generations::AFTER;
use crate::sim::policies::{MachinePolicies, SimPolicies};
use crate::sim::storages::{Push, visibility_of};
use crate::stand_ins::Numbered;

/// Time between two ticks of a machine whose clock runs right, microseconds.
pub const TICK_US: u64 = 30_000;
/// Maximum bytes of committed entries in memory that wait to be decided: small, so that further entries wait in the
/// log.
const UNDECIDED_BYTES_MAX: usize = 2_000;
/// The log's directory on a machine's disk.
pub const LOG_DIR: &str = "/data/tribunal/log";
/// Time that the other nodes wait for a group whose leader is alive.
const TAKE_OVER_AFTER: Duration = Duration::from_millis(700);

/// The member on a machine.
pub type SimMember = Member<Numbered, MachinePolicies, Inline, SimLog>;

/// The groups' logs on a simulated disk, as read by the Raft groups.
#[derive(Clone)]
pub struct SimLog(LogReader);

impl SimLog {
    /// Returns the log of this reader.
    #[must_use]
    pub fn of(reader: &LogReader) -> SimLog {
        SimLog(reader.clone())
    }

    /// Returns the id of an entry in the log.
    #[must_use]
    pub fn id(&self, group: GroupId, index: u64) -> Option<EntryId> {
        self.0.group_term(group, index).map(|term| EntryId { term, index })
    }
}

impl GroupLog for SimLog {
    type Error = LogError;

    fn bounds(&self, group: GroupId) -> (EntryId, EntryId) {
        self.0.group_bounds(group)
    }

    fn term(&self, group: GroupId, index: u64) -> Option<u64> {
        self.0.group_term(group, index)
    }

    fn entry(&self, group: GroupId, index: u64) -> Result<Option<Vec<u8>>, LogError> {
        self.0.group_entry(group, index)
    }
}

/// A running process.
pub struct Process {
    /// The member.
    pub member: SimMember,
    /// Writes the log.
    pub log: DiskLog,
    /// Reads the log.
    pub reader: LogReader,
    /// The cursor of each group up to which the newest image includes its entries.
    pub image: GroupCursors,
    /// Number of the last requested sync, if it has not begun.
    pub wanted: Option<u64>,
    /// Number of the sync in flight.
    pub syncing: Option<u64>,
    /// The pushes to storages.
    pub pushes: BTreeMap<StoreId, Push>,
}

/// The build and configuration of a machine.
#[derive(Clone, Copy)]
pub struct Build {
    /// Seed of the disk.
    pub disk_seed: u64,
    /// The configured epoch length: machines need not agree on it.
    pub epoch_length: Option<Duration>,
    /// Bytes between two images.
    pub image_every_bytes: u64,
    /// Maximum bytes of a batch, or one longer transaction: machines need not agree on it.
    pub batch_bytes_max: usize,
    /// Constant offset of the clock from true time, microseconds.
    pub skew_us: i64,
    /// Drift of the clock, parts per million.
    pub drift_ppm: i64,
    /// Partitions of the version map: the cluster's, however many cores the machine has.
    pub partitions: u16,
    /// Time that history is kept, milliseconds: the cluster's.
    pub floor_age_ms: u64,
    /// A bug: the machine does not wait for the others before it decides in a new generation.
    pub switches_alone: bool,
    /// The policies that decide.
    pub policies: SimPolicies,
}

/// A machine.
pub struct Machine {
    /// The machine's number.
    pub node: u16,
    /// The disk.
    pub disk: SimFiles,
    /// The process, if one is running.
    pub process: Option<Process>,
    /// Number of starts of the process: events of earlier starts are dropped.
    pub starts: u64,
    /// How far the clock has jumped, microseconds.
    pub clock_off_us: i64,
    /// Rate of the ticks, per mille: 1000 is right.
    pub pace: u64,
    /// Time before which nothing happens on the machine, microseconds.
    pub paused_until: u64,
    /// Time before which no sync ends, microseconds.
    pub stuck_until: u64,
    /// The generations supported by the release that the process is started from.
    pub release: Generations,
    /// When the process last proposed a change about releases, microseconds.
    pub proposed_us: u64,
    /// The code that decides is missing.
    pub lacks_code: Rc<Cell<bool>>,
    /// The power was cut or the disk has failed: unsynced writes may be lost.
    pub lost_power: bool,
    /// The durable state of each group.
    pub durable: BTreeMap<GroupId, GroupState>,
    /// The votes that a planted bug makes the process start with, in place of those in the log.
    pub votes: Option<BTreeMap<GroupId, GroupState>>,
    /// The machine never runs again.
    pub broken: bool,
    /// The node reported its removal.
    pub removed: bool,
    /// The node is no longer in any group.
    pub left: bool,
    /// When the process was last started, microseconds.
    pub started_us: u64,
    /// When the process of a departed node last connected to the others, microseconds.
    pub connected_us: u64,
    /// The build.
    build: Build,
}

impl Machine {
    /// Creates a machine that is switched off, with an empty disk.
    #[must_use]
    pub fn new(node: u16, build: Build) -> Machine {
        Machine {
            node,
            disk: SimFiles::new(build.disk_seed),
            process: None,
            starts: 0,
            clock_off_us: 0,
            pace: 1000,
            paused_until: 0,
            stuck_until: 0,
            release: AFTER,
            proposed_us: 0,
            lacks_code: Rc::default(),
            lost_power: false,
            durable: BTreeMap::new(),
            votes: None,
            broken: false,
            removed: false,
            left: false,
            started_us: 0,
            connected_us: 0,
            build,
        }
    }

    /// Returns the time on this machine.
    #[must_use]
    pub fn now(&self, time_us: u64) -> Now {
        let off_us = self.clock_off_us + self.build.skew_us + time_us as i64 * self.build.drift_ppm / 1_000_000;
        let unix_us = (START_MS * 1000 + time_us).saturating_add_signed(off_us);
        Now { monotonic: Duration::from_micros(time_us), unix_us }
    }

    /// Starts the process from the disk.
    ///
    /// # Errors
    /// If the log cannot be opened, or its contents are inconsistent.
    pub fn start(&mut self, founders: u16, seed: u64, time_us: u64) -> Result<(), String> {
        self.starts += 1;
        (self.started_us, self.connected_us) = (time_us, time_us);
        let mut opened = self.open(&self.disk)?;
        let now = self.now(time_us);
        let own = if self.node <= founders { group(self.node) } else { ClusterNodes::group_of(NodeId(self.node)) };
        let members: Vec<GroupId> = (1..=founders).map(group).collect();
        let config = ResolverConfig {
            shards: self.build.partitions,
            floor_age_ms: self.build.floor_age_ms,
            keyer: RowKeyer::new(ROW_SECRET),
            ..ResolverConfig::default()
        };
        let restored = Restored::read(opened.recovered.image, &members, config)?;
        let generation = restored.replicated.releases().generation();
        if !self.release.contain(generation) {
            return Err(format!("it can decide in {}, and the cluster is in generation {generation}", self.release));
        }
        opened.reader.check_cursors(&restored.groups).map_err(|error| error.to_string())?;
        let heads: Vec<_> = restored.resolver.heads().collect();
        opened.writer.continue_after(restored.resolver.last(), &heads).map_err(|error| error.to_string())?;
        let image = restored.groups.clone();
        let mut known: BTreeSet<_> = [GroupId::CONTROL].into_iter().chain(members).collect();
        known.extend(opened.reader.groups().into_iter().chain(image.keys().copied()));
        let stored = |group: GroupId| (group, self.with_vote(group, opened.reader.group_state(group)));
        let start = MemberStart {
            node: NodeId(self.node),
            group: own,
            control: restored.replicated.index(),
            replica: Replica::new(self.replica(own, restored), now),
            groups: known.into_iter().map(stored).collect(),
            first_members: Members::first((1..=founders).map(NodeId)),
            image: image.clone(),
            keyer: RowKeyer::new(ROW_SECRET),
            log: SimLog(opened.reader.clone()),
            raft: RaftSettings { election_ticks: 10, heartbeat_ticks: 2, seed: seed ^ self.starts << 32 },
            undecided_bytes_max: UNDECIDED_BYTES_MAX,
        };
        let member = Member::new(start, now).map_err(|error| error.to_string())?;
        self.process = Some(Process {
            member,
            log: opened.writer,
            reader: opened.reader,
            image,
            wanted: None,
            syncing: None,
            pushes: BTreeMap::new(),
        });
        Ok(())
    }

    /// Opens the log on a disk: this machine's, or a copy of it.
    ///
    /// # Errors
    /// If the log cannot be opened.
    pub fn open(&self, disk: &SimFiles) -> Result<Opened, String> {
        let options =
            LogOptions { node: NodeId(self.node), retention_ms: 0, kept_for_members_bytes: 0, ..LogOptions::default() };
        open_on(&disk.as_files(), Path::new(LOG_DIR), &options).map_err(|error| error.to_string())
    }

    /// Returns the state that a group starts with: the log's, unless a planted bug forgets the vote.
    fn with_vote(&self, group: GroupId, state: GroupState) -> GroupState {
        let Some(votes) = &self.votes else { return state };
        let vote = votes.get(&group).filter(|known| known.term == state.term).map_or(0, |known| known.vote);
        GroupState { vote, ..state }
    }

    fn replica(&self, own: GroupId, restored: Restored) -> ReplicaStart<MachinePolicies, Inline> {
        let Restored { mut resolver, replicated, epochs, groups } = restored;
        let is_missing = Rc::clone(&self.lacks_code);
        let Build { policies, switches_alone, .. } = self.build;
        let generation = if switches_alone { self.release.newest } else { replicated.releases().generation() };
        resolver.declare_store(tracked(FIRST_STORE.0, "kv"));
        ReplicaStart {
            group: own,
            leads: false,
            batcher: Batcher::new(own, stamp_in(&groups, own)),
            visibility: visibility_of(&replicated, &resolver, epochs.last_complete()),
            control: replicated.index(),
            resolver,
            epochs,
            replicated,
            run: u64::from(self.node) << 32 | self.starts,
            policies: MachinePolicies { policies, is_missing, release: self.release, generation },
            executor: Inline,
            replayed: 0,
            settings: Settings {
                epoch_length: self.build.epoch_length,
                image_every_bytes: self.build.image_every_bytes,
                epoch_bytes: 80,
                quota: "nothing".into(),
                in_flight_max: 4,
                pause_min: Duration::from_millis(1),
                batch_bytes_max: self.build.batch_bytes_max,
                take_over_after: Some(TAKE_OVER_AFTER),
            },
        }
    }

    /// Kills the process: its writes stay in the system's cache.
    pub fn kill(&mut self) {
        self.disk.kill_process();
        self.process = None;
    }

    /// Cuts the power.
    pub fn cut_power(&mut self) {
        self.disk.cut_power();
        self.process = None;
        self.lost_power = true;
    }
}

impl Process {
    /// Syncs the log.
    ///
    /// # Errors
    /// If the disk fails: then nothing that is not durable may ever be acknowledged.
    pub fn sync(&mut self) -> Result<(), String> {
        self.log.sync().and_then(|()| self.log.idle_mark()).map_err(|error| error.to_string())
    }
}
