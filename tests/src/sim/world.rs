//! The simulated world: time, pending events, and the machines, clients and faults that they affect.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use tribunal_core::planted::{Bug, planted};
use tribunal_log::sim::{Omission, Survival};
use tribunal_member::{Frame, Input};
use tribunal_replica::{Event, KnownNow};
use tribunal_types::limits::FLOOR_AGE_MS;
use tribunal_types::{GroupId, NamespaceId, NodeId, TxnId, Verdict};

use crate::cluster::{group, tracked};
use crate::sim::changes::Changes;
use crate::sim::clients::{Attempt, Client, Known, Operation};
use crate::sim::drawing::FIRST_STORE;
use crate::sim::faults::{Fault, Faults, Planned, plan};
use crate::sim::happening::{HANDING_OVER_US, Happening, STOPPING_US};
use crate::sim::judge::Judge;
use crate::sim::machine::{Build, Machine, SimMember, TICK_US};
use crate::sim::majority_loss::MajorityLoss;
use crate::sim::members::Nodes;
use crate::sim::network::{Network, Quality};
use crate::sim::planted::Planted;
use crate::sim::policies::SimPolicies;
use crate::sim::queue::Queue;
use crate::sim::random::Random;
use crate::sim::report::Report;
use crate::sim::storage_messages::Reply;
use crate::sim::storages::Storages;
use crate::sim::trace::Trace;
use crate::sim::votes::Votes;
use crate::sim::witness::Witness;

/// Time until which faults begin, microseconds.
const FAULTS_UNTIL_US: u64 = 8_000_000;
/// Time after which clients begin nothing more, if enough transactions are decided, microseconds.
const CLIENTS_UNTIL_US: u64 = 9_000_000;
/// End of the run: everything has come to rest, microseconds.
const END_US: u64 = 30_000_000;
/// Bytes between two images in runs that compact logs without regard to machines that are away, and the factor by which
/// these stay away longer.
const FORGETS_EVERY_BYTES: u64 = 8_000;
const AWAY_FACTOR: u64 = 3;
/// Maximum bytes of a batch: those of a real member.
const BATCH_BYTES: usize = 1024 * 1024;
/// Of every `SMALL_BATCHES_EVERY` seeds, the one with this remainder has machines whose batches hold a few transactions: the
/// others wait in turns, and many proposals are in flight at once.
const SMALL_BATCHES_EVERY: u64 = 5;
const SMALL_BATCHES_REMAINDER: u64 = 2;
const SMALL_BATCH_BYTES: [usize; 3] = [200, 1_000, 4_000];
/// Time before the end in which nothing may be written any more, microseconds.
const IDLE_US: u64 = 3_000_000;
/// Delay from a failed start to the next try, microseconds.
const START_AGAIN_US: u64 = 300_000;
/// Minimum number of decided transactions before clients stop, unless that takes too long.
const DECIDED_MIN: u64 = 250;
/// Time after which clients stop in any case, microseconds.
const CLIENTS_STOP_US: u64 = 20_000_000;
/// Time between two faults in runs with a single kind, microseconds: enough for groups to return to their home nodes.
const APART_US: u64 = 3_000_000;
/// Slices of a state image copied per tick: an image takes several ticks.
const SLICES_PER_TICK: usize = 64;
/// Number of clients.
const CLIENTS: usize = 5;
/// Maximum number of epochs per epoch with items: nodes with little to do seal ahead by time, not by the other nodes'
/// seals.
const EPOCHS_PER_DECIDED_MAX: u64 = 100;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The seed that determines everything.
    pub seed: u64,
    /// Whether the lines of the trace are kept.
    pub trace: bool,
    /// The planted bug.
    pub planted: Option<Planted>,
    /// The faults.
    pub faults: Faults,
}

impl Run {
    /// Returns the command that replays the run with its trace.
    #[must_use]
    pub fn replay(&self) -> String {
        let Run { seed, faults, .. } = self;
        format!("cargo run --release -p tribunal-tests --bin sim -- --seed {seed} --faults {faults} --trace")
    }
}

/// The state of a run.
pub(super) struct World {
    pub(super) time_us: u64,
    queue: Queue<Happening>,
    pub(super) random: Random,
    pub(super) seed: u64,
    pub(super) planted: Option<Planted>,
    pub(super) faults: Faults,
    pub(super) machines: Vec<Machine>,
    pub(super) network: Network,
    pub(super) clients: Vec<Client>,
    pub(super) operations: Vec<Operation>,
    by_id: BTreeMap<TxnId, usize>,
    /// Attempts whose clients are waiting.
    pub(super) asked: BTreeMap<u64, Attempt>,
    /// The transactions of attempts whose clients have given up, by attempt.
    pub(super) late: BTreeMap<u64, TxnId>,
    /// Pending fresh reads.
    pub(super) reads: BTreeMap<u64, Attempt>,
    pub(super) attempts: u64,
    /// The machine that each pending attempt waits for, and which start of its process.
    pub(super) waiters: BTreeMap<u64, (u16, u64)>,
    pub(super) witness: Witness,
    pub(super) judge: Judge,
    pub(super) trace: Trace,
    pub(super) report: Report,
    /// The machines that are cut off from all others, with the time of the cut, microseconds.
    cut_off: BTreeMap<u16, u64>,
    /// The sum of the terms of all groups when the current bridge was cut.
    bridged: Option<u64>,
    /// Syncs take long at the moment.
    pub(super) slow_disks: bool,
    /// Logs are compacted without regard to machines that are away.
    pub(super) forgets: bool,
    /// The last entry of each group that a machine was told to compact.
    pub(super) compacted: BTreeMap<GroupId, u64>,
    /// When an entry was last written.
    pub(super) appended_us: u64,
    pub(super) changes: Changes,
    pub(super) nodes: Nodes,
    pub(super) majority_loss: MajorityLoss,
    pub(super) storages: Storages,
    pub(super) votes: Votes,
    /// The cluster's initial number of partitions, and how long it keeps history, milliseconds.
    partitions: u16,
    floor_age_ms: u64,
}

/// Plays a run.
///
/// # Errors
/// The broken invariant, with the trace if it was kept.
pub fn play(run: Run) -> Result<(Report, Trace), (String, Trace)> {
    let mut world = World::new(run);
    match world.run() {
        Ok(()) => {
            world.report.epochs = (world.witness.epochs(), world.witness.shared());
            world.report.digest = world.trace.digest();
            Ok((world.report, world.trace))
        }
        Err(wrong) => Err((format!("seed {}: at {} us: {wrong}", run.seed, world.time_us), world.trace)),
    }
}

impl World {
    fn new(run: Run) -> World {
        let mut random = Random::new(run.seed);
        let machines = if random.chance(700) { 3 } else { 5 };
        let latency_us = random.one_of(&[100, 500, 2_000, 10_000]);
        // The diverging node must neither copy the right state from another node, nor be removed, nor be one of the
        // last two.
        let is_one_to_diverge = planted(Bug::OneNodeDiverges);
        let mut world = World {
            time_us: 0,
            queue: Queue::default(),
            seed: run.seed,
            planted: run.planted,
            faults: run.faults,
            machines: Vec::new(),
            network: Network::new(latency_us),
            clients: vec![Client::default(); CLIENTS],
            operations: Vec::new(),
            by_id: BTreeMap::new(),
            asked: BTreeMap::new(),
            late: BTreeMap::new(),
            reads: BTreeMap::new(),
            attempts: 0,
            waiters: BTreeMap::new(),
            witness: Witness::default(),
            judge: Judge::new(&tracked(FIRST_STORE.0, "kv")),
            trace: Trace::new(run.trace),
            report: Report { machines, has_wasm: SimPolicies::of(run.seed).are_wasm(), ..Report::default() },
            cut_off: BTreeMap::new(),
            bridged: None,
            slow_disks: false,
            forgets: run.faults.only().is_none() && run.seed.is_multiple_of(3) && !is_one_to_diverge,
            compacted: BTreeMap::new(),
            appended_us: 0,
            changes: Changes::default(),
            nodes: Nodes::founded(machines),
            majority_loss: MajorityLoss::default(),
            storages: Storages::default(),
            votes: Votes::default(),
            partitions: random.one_of(&[1, 2, 4]),
            floor_age_ms: random.one_of(&[FLOOR_AGE_MS, FLOOR_AGE_MS, 1_500]),
            random,
        };
        for node in 1..=machines {
            let image_every_bytes = world.random.one_of(&[u64::MAX, 8_000, 40_000, 150_000]);
            let image_every_bytes = if world.forgets { FORGETS_EVERY_BYTES } else { image_every_bytes };
            let build = world.build(image_every_bytes);
            let machine = Machine::new(node, build);
            if run.planted == Some(Planted::NoSync) {
                machine.disk.omit(Omission::SyncData("/segments/"));
            }
            world.machines.push(machine);
            let begins_us = world.random.between(0, 50_000);
            world.later(begins_us, Happening::Start { node });
        }
        for client in 0..CLIENTS {
            world.later(800_000, Happening::ClientActs { client, asked: 1 });
        }
        world.plan_faults();
        world.plan_upgrades();
        world.plan_majority_loss();
        world.later(900_000, Happening::Change);
        world.later(900_000, Happening::ReadFresh);
        world
    }

    /// Draws the faults and their times.
    fn plan_faults(&mut self) {
        let mut free_us = 0;
        if self.faults == Faults::Only(Fault::MajorityLost) {
            return;
        }
        for mut planned in plan(self.faults, self.report.machines, FAULTS_UNTIL_US, &mut self.random) {
            if let Some(only) = self.faults.only() {
                planned.fault = only;
                if planned.at_us < free_us {
                    continue;
                }
                free_us = planned.at_us + planned.lasts_us + APART_US;
            }
            if planted(Bug::OneNodeDiverges) && planned.fault.changes_members() {
                planned.fault = Fault::Kill;
            }
            self.nodes.planned += usize::from(planned.fault == Fault::AddNode);
            self.later(1_000_000 + planned.at_us, Happening::Fault(planned));
        }
    }

    /// Draws the build of a machine.
    pub(super) fn build(&mut self, image_every_bytes: u64) -> Build {
        let has_small_batches = self.seed % SMALL_BATCHES_EVERY == SMALL_BATCHES_REMAINDER;
        let random = &mut self.random;
        let cores = random.one_of(&[1, 2, 8]);
        let disk_seed = random.number();
        // Drawn without the run's random numbers, which would change the runs of all seeds.
        let small = SMALL_BATCH_BYTES[(disk_seed % SMALL_BATCH_BYTES.len() as u64) as usize];
        Build {
            disk_seed,
            epoch_length: random.one_of(&[None, None, Some(Duration::from_millis(5))]),
            image_every_bytes,
            batch_bytes_max: if has_small_batches { small } else { BATCH_BYTES },
            skew_us: random.one_of(&[0, 0, -30_000, 200_000, -2_000_000, 10_000_000]),
            drift_ppm: random.one_of(&[0, 0, 100, -300, 20_000]),
            partitions: if self.planted == Some(Planted::OwnPartitions) { cores } else { self.partitions },
            floor_age_ms: self.floor_age_ms,
            switches_alone: self.planted == Some(Planted::SwitchesAlone),
            policies: SimPolicies::of(self.seed),
        }
    }

    fn run(&mut self) -> Result<(), String> {
        while let Some((time_us, happening)) = self.queue.pop() {
            if time_us > END_US {
                break;
            }
            self.time_us = time_us;
            self.happen(happening)?;
        }
        self.time_us = END_US;
        self.invariant_all_comes_to_rest()
    }

    pub(super) fn later(&mut self, wait_us: u64, happening: Happening) {
        self.queue.add(self.time_us + wait_us, happening);
    }

    pub(super) fn machine(&mut self, node: u16) -> &mut Machine {
        &mut self.machines[usize::from(node) - 1]
    }

    pub(super) fn member(&self, node: u16) -> Option<&SimMember> {
        self.machines[usize::from(node) - 1].process.as_ref().map(|process| &process.member)
    }

    /// Returns whether clients begin nothing more.
    pub(super) fn draining(&self) -> bool {
        self.time_us > CLIENTS_UNTIL_US && self.report.decided >= DECIDED_MIN || self.time_us > CLIENTS_STOP_US
    }

    pub(super) fn planted_early_ack(&self) -> bool {
        self.planted == Some(Planted::AckBeforeSync)
    }

    pub(super) fn operation_of(&mut self, id: TxnId) -> Option<usize> {
        for at in self.by_id.len()..self.operations.len() {
            self.by_id.insert(self.operations[at].id(), at);
        }
        self.by_id.get(&id).copied()
    }

    fn happen(&mut self, happening: Happening) -> Result<(), String> {
        let at = match happening {
            Happening::Tick { node, .. }
            | Happening::Synced { node, .. }
            | Happening::AckedEarly { node, .. }
            | Happening::Stop { node, .. }
            | Happening::ImageWritten { node, .. }
            | Happening::StorageReplies(Reply { node, .. }) => node,
            Happening::Frame { to, .. } => to,
            _ => 0,
        };
        if at > 0 && self.machine(at).paused_until > self.time_us {
            let wait_us = self.machine(at).paused_until - self.time_us;
            self.later(wait_us, happening);
            return Ok(());
        }
        match happening {
            Happening::Start { node } => self.start(node),
            Happening::Tick { node, start } => self.tick(node, start),
            Happening::Frame { sent_us, .. } if self.majority_loss.lost_frame(sent_us) => Ok(()),
            Happening::Frame { from, to, bytes, .. } => self.frame(from, to, &bytes),
            Happening::Synced { node, start, number } => self.synced(node, start, number),
            Happening::AckedEarly { node, start, number } if self.machine(node).starts == start => {
                self.step(node, Input::Persisted(number))
            }
            Happening::AckedEarly { .. } => Ok(()),
            Happening::ClientActs { client, asked } => self.client_acts(client, asked),
            Happening::ClientGivesUp { client, attempt } => self.client_gives_up(client, attempt),
            Happening::Change => self.change(),
            Happening::ReadFresh => self.read_fresh(),
            Happening::Fault(planned) => self.fault(planned),
            Happening::Repair(fault, node) => self.repair(fault, node),
            Happening::Stop { node, start, now } => self.stop(node, start, now),
            Happening::ImageWritten { node, start, epoch, older } => self.image_written(node, start, epoch, &older),
            Happening::Replace { node } => self.replace(node),
            Happening::Recover => self.recover(),
            Happening::Upgrade { node } => {
                self.upgrade(node);
                Ok(())
            }
            Happening::Storage(request) => self.storage_is_asked(request),
            Happening::StorageReplies(reply) => self.storage_replies(reply),
        }
    }

    fn start(&mut self, node: u16) -> Result<(), String> {
        let (founders, seed, time_us) = (self.nodes.founders, self.seed, self.time_us);
        let survival = self.random.one_of(&[Survival::None, Survival::All, Survival::Some, Survival::Some]);
        let is_kept = self.majority_loss.keeps_from_starting(node);
        let machine = self.machine(node);
        if machine.process.is_some() || machine.broken || is_kept {
            return Ok(());
        }
        if std::mem::take(&mut machine.lost_power) {
            machine.disk.power_on(survival);
        }
        (machine.paused_until, machine.stuck_until) = (0, 0);
        if let Err(error) = machine.start(founders, seed, time_us) {
            // An operator would inspect the disk and start the process again; a damaged log never starts.
            self.trace.note(time_us, format_args!("node {node} does not start: {error}"));
            self.machine(node).cut_power();
            self.later(START_AGAIN_US, Happening::Start { node });
            return Ok(());
        }
        let start = machine.starts;
        let from_image = machine.process.as_ref().is_some_and(|process| !process.image.is_empty());
        self.report.images.1 += u64::from(from_image);
        self.trace.note(time_us, format_args!("node {node} starts"));
        self.later(TICK_US, Happening::Tick { node, start });
        Ok(())
    }

    fn tick(&mut self, node: u16, start: u64) -> Result<(), String> {
        let machine = self.machine(node);
        if machine.starts != start || machine.process.is_none() {
            return Ok(());
        }
        let wait_us = TICK_US * 1000 / machine.pace;
        self.later(wait_us, Happening::Tick { node, start });
        for _ in 0..SLICES_PER_TICK {
            if self.member(node).is_some_and(|member| member.replica().takes_image()) {
                self.step(node, Input::Replica(Event::CopyImage))?;
            }
        }
        self.step(node, Input::Tick)?;
        self.connect_again(node)?;
        self.propose_releases(node)?;
        self.push(node)
    }

    fn frame(&mut self, from: u16, to: u16, bytes: &Bytes) -> Result<(), String> {
        let frame = Frame::decode(bytes).map_err(|malformed| format!("a frame of node {from}: {malformed}"))?;
        self.step(to, Input::Frame { from: NodeId(from), frame })
    }

    /// Changes the configuration at a random node.
    fn change(&mut self) -> Result<(), String> {
        if self.draining() {
            return Ok(());
        }
        let wait_us = self.random.between(300_000, 900_000);
        self.later(wait_us, Happening::Change);
        let node = self.some_node();
        if self.machine(node).process.is_none() || self.machine(node).paused_until > self.time_us {
            return Ok(());
        }
        // Often two at once.
        for _ in 0..self.random.between(1, 2) {
            let start = self.machine(node).starts;
            let (number, change) = self.changes.draw(node, start, &mut self.random);
            self.step(node, Input::Replica(Event::Control(change, number)))?;
        }
        Ok(())
    }

    fn fault(&mut self, planned: Planned) -> Result<(), String> {
        let Planned { lasts_us, fault, mut node, .. } = planned;
        if fault == Fault::MajorityLost {
            return self.lose_majority(planned);
        }
        node = self.in_place_of(node);
        if matches!(fault, Fault::RemoveNode | Fault::WipedDisk) && self.faults.only().is_none() {
            // Nodes that were added may leave, too.
            node = self.some_node();
        }
        self.trace.note(self.time_us, format_args!("{fault:?} at node {node}, for {lasts_us} us"));
        *self.report.faults.entry(fault).or_default() += 1;
        let machines = self.machines.len() as u16;
        let until_us = self.time_us + lasts_us;
        let (other, off_us, pace) =
            (node % machines + 1, self.random.between(0, 20_000_000), self.random.between(700, 1_400));
        match fault {
            Fault::Kill => self.machine(node).kill(),
            Fault::PowerCut => self.machine(node).cut_power(),
            Fault::Blackout => self.machines.iter_mut().for_each(Machine::cut_power),
            Fault::Pause => self.machine(node).paused_until = until_us,
            Fault::StuckDisk => self.machine(node).stuck_until = until_us,
            Fault::SlowDisks => self.slow_disks = true,
            Fault::FailingSync => self.machine(node).disk.fail_sync_of("/segments/"),
            Fault::Isolation => {
                // Entries of before a change of members may still be committed after it, without the new ones.
                if !self.is_majority(node) {
                    self.cut_off.insert(node, self.time_us);
                }
                for other in (1..=machines).filter(|other| *other != node) {
                    self.network.cut(node, other);
                    self.network.cut(other, node);
                }
            }
            Fault::Deafness => (1..=machines).for_each(|other| self.network.cut(other, node)),
            Fault::Bridge => {
                self.bridged = Some(self.terms());
                self.network.cut(node, other);
                self.network.cut(other, node);
            }
            Fault::BadLinks => self.network.quality = Quality { lost: 150, twice: 150, jitter_us: 40_000 },
            Fault::ClockJump => self.machine(node).clock_off_us = off_us as i64 - 10_000_000,
            Fault::WrongPace => self.machine(node).pace = pace,
            Fault::AddNode | Fault::RemoveNode => return self.ask_for_members(fault, node),
            Fault::WipedDisk => return self.wipe(node),
            Fault::MajorityLost => return self.lose_majority(planned),
            Fault::StoragesAway => self.storages.away = true,
            Fault::FullDisk => self.machine(node).disk.limit_room(Some(0)),
            Fault::MissingCode => self.machine(node).lacks_code.set(true),
            Fault::PlannedStop if self.machine(node).paused_until > self.time_us => {}
            Fault::PlannedStop => {
                let start = self.machine(node).starts;
                self.later(HANDING_OVER_US, Happening::Stop { node, start, now: false });
                self.later(HANDING_OVER_US + STOPPING_US, Happening::Stop { node, start, now: true });
                return self.step(node, Input::HandOver);
            }
        }
        let is_away = self.forgets && matches!(fault, Fault::Kill | Fault::PowerCut);
        self.later(if is_away { AWAY_FACTOR * lasts_us } else { lasts_us }, Happening::Repair(fault, node));
        Ok(())
    }

    /// Stops a process whose time to hand over its leaderships is up; with `now`, it must not wait for work in flight
    /// any longer.
    fn stop(&mut self, node: u16, start: u64, now: bool) -> Result<(), String> {
        let machine = self.machine(node);
        if machine.starts != start || machine.process.is_none() {
            return Ok(());
        }
        self.report.stops.1 += u64::from(now);
        let is_removed = self.machine(node).removed;
        if self.faults.only().is_some()
            && !is_removed
            && self.member(node).is_some_and(|member| !member.leads_nothing())
        {
            return Err(format!("node {node} is about to stop, and still leads a group"));
        }
        self.step(node, Input::Replica(if now { Event::StopNow } else { Event::Stop }))?;
        if now && self.machine(node).process.is_some() {
            return Err(format!("node {node} does not stop although it must not wait"));
        }
        Ok(())
    }

    /// Ends a stopped process, and schedules its next start unless its node was removed and stays down.
    ///
    /// # Errors
    /// If a client is still waiting for its answer.
    pub(super) fn stopped(&mut self, node: u16) -> Result<(), String> {
        let machine = self.machine(node);
        let process = (node, machine.starts);
        machine.kill();
        self.report.stops.0 += 1;
        self.trace.note(self.time_us, format_args!("node {node} has stopped"));
        let wait_us = self.random.between(100_000, 1_500_000);
        if self.starts_again(node) {
            self.later(wait_us, Happening::Start { node });
        }
        match self.waiters.iter().find(|(_, asked)| **asked == process) {
            Some((attempt, _)) => Err(format!("node {node} stops and never answers attempt {attempt}")),
            None => Ok(()),
        }
    }

    fn repair(&mut self, fault: Fault, node: u16) -> Result<(), String> {
        self.trace.note(self.time_us, format_args!("{fault:?} at node {node} ends"));
        match fault {
            Fault::Kill | Fault::PowerCut => return self.start(node),
            Fault::Blackout => return (1..=self.machines.len() as u16).try_for_each(|node| self.start(node)),
            Fault::SlowDisks => self.slow_disks = false,
            Fault::StoragesAway => self.storages.away = false,
            Fault::FullDisk => self.machine(node).disk.limit_room(None),
            Fault::MissingCode => self.machine(node).lacks_code.set(false),
            Fault::ClockJump => self.machine(node).clock_off_us = 0,
            Fault::WrongPace => self.machine(node).pace = 1000,
            fault if fault.is_of_the_network() => {
                let terms = self.terms();
                self.report.bridged_terms += self.bridged.take().map_or(0, |before| terms.saturating_sub(before));
                self.network.repair();
                self.network.quality = Quality::default();
                self.cut_off.clear();
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the sum of the highest terms of all groups.
    fn terms(&self) -> u64 {
        let groups = [GroupId::CONTROL].into_iter().chain(self.groups());
        let running = || self.machines.iter().filter_map(|machine| machine.process.as_ref());
        groups.filter_map(|group| running().map(|process| process.reader.group_state(group).term).max()).sum()
    }

    /// Returns whether the run has a single kind of fault.
    pub(super) fn has_one_fault(&self) -> bool {
        self.faults.only().is_some()
    }

    /// Returns the machines that are cut off from all others.
    pub(super) fn isolated(&self) -> impl Iterator<Item = u16> + '_ {
        self.cut_off.keys().copied()
    }

    /// Returns whether a node needs no other: all others have left, or vote in the control group only so far.
    fn is_majority(&self, node: u16) -> bool {
        let control = |member: &SimMember| member.members_of(GroupId::CONTROL).map(|members| members.voters.len());
        let own = |member: &SimMember| member.voters().map(BTreeSet::len);
        self.member(node).is_some_and(|member| control(member) == Some(1) || own(member) == Some(1))
    }

    /// A machine that is cut off from all others decides nothing that arrived after the cut.
    ///
    /// # Errors
    /// If it does.
    pub(super) fn invariant_no_answer_from_a_minority(&self, node: u16, asked_us: u64) -> Result<(), String> {
        match self.cut_off.get(&node) {
            _ if self.is_majority(node) => Ok(()),
            Some(since_us) if asked_us > *since_us => {
                Err(format!("node {node} is cut off, and decides what arrived meanwhile"))
            }
            _ => Ok(()),
        }
    }

    /// After the last fault, all machines have the same state, and it contains everything that was acknowledged.
    fn invariant_all_comes_to_rest(&mut self) -> Result<(), String> {
        let state_of = |member: &SimMember| {
            let replica = member.replica();
            (
                replica.last_complete(),
                replica.resolver().last(),
                replica.resolver().digest(),
                replica.replicated().clone(),
            )
        };
        let members = self.members_at_the_end()?;
        let mut first = None;
        for &node in &members {
            let member = self.member(node).ok_or_else(|| format!("node {node} does not run"))?;
            if member.replica().replicated().index() != member.control() {
                return Err(format!("node {node} has not applied all changes"));
            }
            if !member.takes_commits() {
                return Err(format!("node {node} takes no commits although all faults are over"));
            }
            let state = state_of(member);
            if first.get_or_insert_with(|| state.clone()) != &state {
                let complete = first.map(|first| (first.0, first.1));
                let one = members[0];
                return Err(format!(
                    "nodes {one} and {node} differ at the end: {complete:?} and {:?}",
                    (state.0, state.1)
                ));
            }
        }
        self.report.members.late_reads = self.nodes.late_reads.len() as u64;
        self.invariant_all_groups_have_the_members(&members)?;
        self.invariant_removed_nodes_know_it()?;
        self.invariant_all_stores_are_pushed_to(&members)?;
        self.invariant_storages_have_everything(&members)?;
        self.invariant_all_are_answered()?;
        self.invariant_an_upgrade_ends(&members)?;
        self.invariant_changes_are_applied_once(&members)?;
        let epochs = self.member(members[0]).ok_or("it runs")?.replica().last_complete().0;
        if epochs > self.witness.epochs() as u64 * EPOCHS_PER_DECIDED_MAX {
            return Err(format!("{epochs} epochs for {} with items", self.witness.epochs()));
        }
        if self.appended_us > END_US - IDLE_US {
            return Err("a cluster with nothing to do writes".into());
        }
        for at in 0..self.operations.len() {
            self.invariant_acknowledged_is_present(at, &members)?;
        }
        self.report.given_up =
            self.operations.iter().filter(|operation| operation.known == Known::Nothing).count() as u64;
        Ok(())
    }

    /// All machines run, so every store with a storage has a node that pushes to it.
    fn invariant_all_stores_are_pushed_to(&self, members: &[u16]) -> Result<(), String> {
        let stores = self.member(members[0]).ok_or("it runs")?.replica().replicated().stores();
        for store in stores.stores().filter(|store| store.is_external()) {
            let name = &store.spec.name;
            match store.pusher {
                None => return Err(format!("nobody pushes to store {name}")),
                Some(pusher) if !members.contains(&pusher.node.0) => {
                    return Err(format!("node {} is to push to store {name}", pusher.node));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// A live process has answered all requests.
    fn invariant_all_are_answered(&self) -> Result<(), String> {
        let alive = |&(node, start): &(u16, u64)| {
            let machine = &self.machines[usize::from(node) - 1];
            machine.starts == start && machine.process.is_some() && !machine.removed
        };
        if let Some((attempt, (node, _))) = self.waiters.iter().find(|(_, process)| alive(process)) {
            return Err(format!("node {node} never answers attempt {attempt}"));
        }
        match self.changes.unanswered(|node, start| alive(&(node, start))) {
            Some((change, node)) => Err(format!("node {node} never answers change {change}")),
            None => Ok(()),
        }
    }

    /// All machines have the same state by now, so checking one of them is enough.
    fn invariant_changes_are_applied_once(&mut self, members: &[u16]) -> Result<(), String> {
        members.iter().try_for_each(|node| self.note_durable(*node))?;
        let member = self.member(members[0]).ok_or("it runs")?;
        let founders = (1..=self.nodes.founders).map(group).collect::<Vec<_>>();
        let repeats = self.changes.invariant_changes_are_applied_once(&founders, member.replica().replicated())?;
        self.report.repeats = repeats;
        Ok(())
    }

    /// A process answers an attempt once.
    ///
    /// # Errors
    /// If it answers again.
    pub(super) fn invariant_an_attempt_is_answered_once(&mut self, node: u16, attempt: u64) -> Result<(), String> {
        let waiter = self.waiters.remove(&attempt);
        waiter.map(drop).ok_or_else(|| format!("node {node} answers attempt {attempt} again"))
    }

    /// Every machine has the verdict that a transaction's client received.
    fn invariant_acknowledged_is_present(&mut self, at: usize, members: &[u16]) -> Result<(), String> {
        let operation = self.operations[at].clone();
        let mut stored = None;
        for &node in members {
            let known = self.member(node).ok_or("it runs")?.replica().known(NamespaceId(0), operation.id());
            let verdict = match known {
                KnownNow::At(at) => Some(self.witness.verdict_at(at)?),
                _ => None,
            };
            if *stored.get_or_insert_with(|| verdict.clone()) != verdict {
                return Err(format!("nodes 1 and {node} differ in what they know of {:?}", operation.id()));
            }
            match (&operation.known, &verdict) {
                (Known::Verdict(told), Some(verdict)) if told == verdict => {}
                (Known::Verdict(told), _) => {
                    return Err(format!("node {node} knows {verdict:?} of what was acknowledged as {told:?}"));
                }
                (Known::Never, Some(Verdict::Committed { .. })) => {
                    return Err(format!("node {node} committed what was refused for good"));
                }
                (Known::Nothing, Some(_)) if !operation.in_doubt => {
                    return Err(format!("node {node} decided what it told nobody to have taken"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
