//! Assembles a node from the recovered state, and starts its threads: one step per module, in order of their
//! dependencies.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};
use parking_lot::RwLock;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{mpsc, watch};
use tribunal_core::control::ReplicatedState;
use tribunal_core::control::slots::Slots;
use tribunal_http::Lanes;
use tribunal_log::{DiskLog, GroupCursors, HoldBack, ImageWriter};
use tribunal_peer::Identity;
use tribunal_types::{Bounds, ControlIndex, DeclaredStore, Generation, GroupId, PluginActivation, PluginSlot};

use crate::auth::access::Access;
use crate::auth::jwt::JwtGate;
use crate::cluster::catch_up::CatchUp;
use crate::cluster::components::{AnnouncedPlugins, Fetching};
use crate::cluster::generations::own_release;
use crate::cluster::holders::OldestRecords;
use crate::cluster::links::{self};
use crate::cluster::membership::Membership;
use crate::cluster::outgoing::Outgoing;
use crate::cluster::push_frames::of_pushes;
use crate::cluster::releases::Announcing;
use crate::cluster::roster;
use crate::cluster::state_copy::offers::Offers;
use crate::cluster::transfers::Transfers;
use crate::cluster::view::Joined;
use crate::commit::commit_queue::{CommitIntake, CommitQueue};
use crate::commit::epoch_clock::EpochClock;
use crate::commit::log_queue::{LogJobs, LogQueue, LogWriter};
use crate::commit::log_thread::{self, LogThreadContext};
use crate::commit::message::{Ended, Message};
use crate::commit::replies::Dispatch;
use crate::commit::sequencer::Sequencer;
use crate::commit::sequencer_state::{OnControl, SequencerState, Shared};
use crate::config::Config;
use crate::data_disk::DataDisk;
use crate::plugins::cluster_plugins::ClusterPlugins;
use crate::plugins::plugin_admin::PluginAdmin;
use crate::plugins::plugin_loader::PluginLoader;
use crate::readers::consumer_state::Saver;
use crate::readers::consumers::{self};
use crate::readers::image_permits::ImagePermits;
use crate::readers::reader_state::ReaderState;
use crate::readers::record_times::RecordTimes;
use crate::readers::webhooks::Webhooks;
use crate::ready::{Deciding, Ready, quota_of};
use crate::service::NodeService;
use crate::stores::catalog::{Records, Stores};
use crate::stores::long_reads::LongReads;
use crate::stores::push_effects::follow_with_push;
use crate::stores::pushes::Pushes;
use crate::stores::reads::RowReader;
use crate::stores::stored_quota;
use crate::stores::tenant_bound::TenantBound;
use crate::stores::tenant_egress::{ConfiguredEgress, EgressByTenant};
use crate::telemetry::stats::{SAMPLE_EVERY, Window};
use crate::telemetry::{Telemetry, Tracing};

/// Maximum size of recent epochs in memory, bytes.
const EPOCH_CACHE_BYTES: usize = 96 << 20;
/// Maximum number of failing slots waiting for their rollback; one without room is reported again.
const FAILING_SLOTS_MAX: usize = 8;

/// A slot whose plugin has failed too often in a row, and the entry that activated it.
type FailingSlot = (PluginSlot, ControlIndex);

/// The sequencer's thread, and how it has ended.
type SequencerThread = (JoinHandle<()>, watch::Receiver<Option<Ended>>);

/// The parts that a node is assembled from.
pub struct Parts<'a> {
    /// Its configuration.
    pub config: &'a Config,
    /// For long-running work.
    pub runtime: &'a Runtime,
    /// For connections and commits.
    pub lanes: &'a Lanes,
    /// The recovered state.
    pub ready: Ready,
    /// Loads plugins.
    pub loader: Arc<PluginLoader>,
    /// Checks tokens, if configured.
    pub jwt: Option<JwtGate>,
    /// The storages that may be reached.
    pub egress: ConfiguredEgress,
    /// The node's cluster, and the identity with which it authenticates there.
    pub cluster: Option<(Membership, Identity)>,
}

/// A node with running threads.
pub struct Assembled {
    /// The node's API implementation.
    pub service: Arc<NodeService>,
    /// How the sequencer has ended.
    pub ended: watch::Receiver<Option<Ended>>,
    /// The sequencer's and the log's threads.
    pub threads: Vec<JoinHandle<()>>,
    /// Writes the readers' state; ends on drop.
    pub saver: Option<Saver>,
    /// Sends spans; metrics are not sent yet.
    pub telemetry: Telemetry,
    /// Runs the connections to the other nodes.
    pub peer_runtime: Option<Runtime>,
    /// The remaining work of the start.
    pub unsettled: Unsettled,
}

/// The part of the recovered state that a start still has to process.
pub struct Unsettled {
    /// Whether another node sets the cluster's configuration.
    pub waits: bool,
    /// Plugins to activate.
    pub activations: Vec<PluginActivation>,
    /// Bounds to set.
    pub bounds: Option<Bounds>,
    /// The generation to switch to.
    pub generation: Option<Generation>,
    /// Stores whose pushes must be ready.
    pub declared: Vec<DeclaredStore>,
}

/// The parts that all modules share.
struct Base<'a> {
    config: &'a Config,
    runtime: Handle,
    messages: Sender<Message>,
    shared: Shared,
    records: Records,
    stores: Arc<Stores>,
    slots: Arc<RwLock<Slots>>,
    loader: Arc<PluginLoader>,
    clock: Arc<EpochClock>,
    access: Arc<Access>,
    tracing: Option<Arc<Tracing>>,
}

/// Destinations of committed writes: pushes into storages, and readers of the log.
struct Outlets {
    pushes: Arc<Pushes>,
    webhooks: Arc<Webhooks>,
    readers: ReaderState,
    saver: Option<Saver>,
}

/// The other nodes, and the services for them.
struct Cluster {
    joined: Option<Joined>,
    runtime: Option<Runtime>,
    /// States that other nodes copy.
    offers: Arc<Offers>,
    announced: Arc<AnnouncedPlugins>,
}

impl Parts<'_> {
    /// Assembles all parts, and starts the threads.
    ///
    /// # Errors
    /// A description of the failure. Some threads may run then, so the process must end.
    pub fn assemble(self) -> Result<Assembled, String> {
        let Parts { config, runtime, lanes, ready, loader, jwt, egress, cluster } = self;
        let runtime = runtime.handle().clone();
        let Ready {
            log,
            reader,
            image,
            keyer,
            group,
            replicated,
            epoch_time_ms,
            started,
            activations,
            bounds,
            generation,
            mut deciding,
        } = ready;
        // The sequencer and the log thread send to each other, so a bounded queue could deadlock both. Bounds of the
        // first queue: commits and dry runs by `WAITING_BYTES_MAX`, other queries by requests in flight, control
        // changes by their turns, pushes by one report each, the log thread by one batch and one entry per control
        // change.
        let (messages, inbox) = unbounded();
        let (queue, intake) = CommitQueue::new(messages.clone());
        let shared = Shared::new(EPOCH_CACHE_BYTES);
        let instance = cluster.as_ref().map(|(membership, _)| format!("{}/{}", membership.name, membership.node));
        let telemetry = Telemetry::start(&runtime, &shared.cache, instance)?;
        if let Deciding::Alone(start) = &mut deciding {
            start.policies.time_calls(telemetry.tracing().is_some());
        }
        let clock = Arc::new(EpochClock::start(epoch_time_ms));
        let base = Base {
            config,
            messages: messages.clone(),
            records: Records {
                cache: Arc::clone(&shared.cache),
                log: reader,
                progress: Arc::clone(&shared.progress),
                member: cluster.as_ref().map(|(membership, _)| (membership.node, messages)),
            },
            stores: Arc::new(Stores::new(keyer, replicated.stores().clone())),
            slots: Arc::new(RwLock::new(replicated.slots().clone())),
            access: Arc::new(Access::new(replicated.keys(), jwt, Arc::clone(&clock), &config.data)),
            tracing: telemetry.tracing(),
            runtime,
            shared,
            loader,
            clock,
        };
        let is_member = cluster.is_some();
        let waits = cluster.as_ref().is_some_and(|(membership, _)| !membership.seeds());
        let declared: Vec<_> = replicated.stores().stores().cloned().collect();
        let mut outlets = base.outlets(egress, is_member, &replicated)?;
        let mut cluster = base.cluster(cluster, log.image_writer(), &outlets, &replicated)?;

        let (failing, failed) = mpsc::channel(FAILING_SLOTS_MAX);
        let dispatch = Dispatch::start(&lanes.runtimes(), &base.runtime);
        let state = base.sequencer_state(intake, dispatch, failing, &outlets, &cluster);
        let (log_queue, log_jobs) = base.log_queue(log, is_member);
        let decider = |now| deciding.begin(now);
        let sequencer = Sequencer::new(decider, started, state, base.shared.clone(), log_queue.clone());
        // Progress is published now; only then may storages be queried for their watermarks.
        declared.iter().for_each(|store| outlets.pushes.declare(store.clone()));
        let log_thread = base.start_log_thread(log_queue, log_jobs, image, &outlets)?;
        let (sequencer, ended) = start_sequencer(sequencer, inbox)?;

        let window = base.sample(&cluster.offers);
        let (saver, peer_runtime) = (outlets.saver.take(), cluster.runtime.take());
        let service = Arc::new(base.service(queue, group, window, outlets, cluster));
        roll_back_faulty(&service, failed);
        stored_quota::reclaim(&service);
        let threads = vec![sequencer, log_thread];
        let unsettled = Unsettled { waits, activations, bounds, generation, declared };
        Ok(Assembled { service, ended, threads, saver, telemetry, peer_runtime, unsettled })
    }
}

impl Base<'_> {
    fn outlets(
        &self,
        egress: ConfiguredEgress,
        is_member: bool,
        replicated: &ReplicatedState,
    ) -> Result<Outlets, String> {
        let egress = EgressByTenant::new(egress, self.records.log.id(), Arc::clone(&self.access));
        let egress_by_tenant = Arc::new(egress);
        let pushes = Arc::new(Pushes::new(
            self.config.data.clone(),
            Arc::clone(&egress_by_tenant),
            self.records.clone(),
            self.messages.clone(),
            self.runtime.clone(),
            Arc::clone(&self.loader),
            self.tracing.clone(),
        ));
        let replicated = is_member.then_some((replicated, &self.messages));
        let (readers, saver) = ReaderState::open(&self.config.data, replicated, &self.runtime)?;
        let webhooks = Arc::new(Webhooks::new(
            egress_by_tenant,
            self.records.clone(),
            readers.clone(),
            is_member.then(|| Arc::clone(&self.shared.view)),
            self.runtime.clone(),
            self.tracing.clone(),
        ));
        Ok(Outlets { pushes, webhooks, readers, saver })
    }

    /// Connects a member with the other nodes. A single node has none.
    fn cluster(
        &self,
        cluster: Option<(Membership, Identity)>,
        images: ImageWriter,
        outlets: &Outlets,
        replicated: &ReplicatedState,
    ) -> Result<Cluster, String> {
        let messages = self.messages.clone();
        let take_image = Box::new(move || drop(messages.send(Message::TakeImage)));
        let offers = Offers::new(images, Arc::clone(&outlets.pushes), take_image);
        let announced = Arc::new(AnnouncedPlugins::new(replicated));
        let transfers = Transfers::new(self.runtime.clone());
        transfers.serve(Arc::clone(&offers) as _);
        transfers.serve(Arc::new(OldestRecords(self.records.clone())));
        let Some((membership, identity)) = cluster else {
            return Ok(Cluster { joined: None, runtime: None, offers, announced });
        };
        let runtime = links::runtime()?;
        let view = &self.shared.view;
        let listen = self.config.cluster.as_ref().map_or(self.config.listen, |cluster| cluster.listen);
        let listener = links::listen(listen)?;
        let peers = links::start(listener, &membership, identity, runtime.handle(), &self.messages, view, &transfers)?;
        roster::connect(&peers, &membership, replicated.members());
        peers.set_generation(replicated.releases().generation());
        view.begin(replicated.members());
        let engine = self.loader.host_name()?;
        let announcing = Announcing {
            node: membership.node,
            release: own_release(engine.clone()),
            view: Arc::clone(view),
            peers: Arc::downgrade(&peers),
            messages: self.messages.clone(),
        };
        announcing.start(&self.runtime);
        let fetching = Fetching {
            node: membership.node,
            engine,
            announced: Arc::clone(&announced),
            loader: Arc::clone(&self.loader),
            peers: Arc::downgrade(&peers),
            transfers: Arc::clone(&transfers),
            messages: self.messages.clone(),
            slots: Arc::clone(&self.slots),
            pushes: Arc::downgrade(&outlets.pushes),
        };
        fetching.start()?;
        let joined = Some(Joined { membership, peers, transfers });
        Ok(Cluster { joined, runtime: Some(runtime), offers, announced })
    }

    fn sequencer_state(
        &self,
        intake: CommitIntake,
        dispatch: Dispatch,
        failing: mpsc::Sender<FailingSlot>,
        outlets: &Outlets,
        cluster: &Cluster,
    ) -> SequencerState {
        let (on_push_frame, push_states) = of_pushes(&outlets.pushes, &outlets.webhooks);
        let over = |joined: &Joined| Outgoing::over(Arc::clone(&joined.peers));
        let (lagging, adaptors) = (Arc::clone(&outlets.pushes), Arc::clone(&outlets.pushes));
        let left_out = Arc::clone(&outlets.pushes);
        SequencerState {
            on_push_frame,
            push_states,
            clock: Arc::clone(&self.clock),
            slots: Arc::clone(&self.slots),
            intake,
            dispatch,
            on_control: self.on_control(outlets, cluster),
            lagging: Box::new(move |store| lagging.lagging(store)),
            left_out: Box::new(move |store| left_out.left_out(store)),
            outgoing: cluster.joined.as_ref().map_or_else(Outgoing::default, over),
            on_faults: Box::new(move |slot, entry| drop(failing.try_send((slot, entry)))),
            on_slot: Box::new(move |slot| {
                if let PluginSlot::Adaptor(name) = slot {
                    adaptors.adaptor_changed(name);
                }
            }),
        }
    }

    /// Returns the handler for effects of control log entries outside the replica.
    fn on_control(&self, outlets: &Outlets, cluster: &Cluster) -> OnControl {
        let (stores, access) = (Arc::clone(&self.stores), Arc::clone(&self.access));
        let (pushes, readers) = (Arc::clone(&outlets.pushes), outlets.readers.clone());
        let announced = Arc::clone(&cluster.announced);
        let connected = cluster.joined.as_ref().map(|joined| (Arc::clone(&joined.peers), joined.membership.clone()));
        Box::new(move |replicated, effect| {
            if let Some((peers, membership)) = &connected {
                roster::follow(peers, membership, replicated.members(), effect);
            }
            announced.follow(replicated, effect);
            access.follow(effect);
            stores.follow(replicated.stores(), effect);
            follow_with_push(replicated, &pushes, effect);
            if let ReaderState::Member(readers) = &readers {
                readers.follow(replicated, effect);
            }
        })
    }

    fn log_queue(&self, log: DiskLog, is_member: bool) -> (LogQueue, LogJobs) {
        let writer = LogWriter::new(log, Arc::clone(&self.shared.cache), Arc::clone(&self.shared.metrics));
        // Bounds of the queue: one batch, the outcomes of this epoch and the previous one, an image, a truncation per
        // image, per detached store and per embedded store that an image waits for, one flush per 8 MiB of rows or more
        // that such a store flushed before the image, the control changes of the sequencer's queue, one notice of a due
        // mark.
        LogQueue::new(if is_member { writer.of_member(self.records.log.clone()) } else { writer })
    }

    fn start_log_thread(
        &self,
        queue: LogQueue,
        jobs: LogJobs,
        image: GroupCursors,
        outlets: &Outlets,
    ) -> Result<JoinHandle<()>, String> {
        let (readers, records) = (outlets.readers.clone(), self.records.clone());
        let [pushes, awaited, attached] = std::array::from_fn(|_| Arc::clone(&outlets.pushes));
        let disk = DataDisk::new(&self.config.data);
        let context = LogThreadContext {
            queue,
            events: self.messages.clone(),
            quota: quota_of(self.config),
            needed: Box::new(move || consumers::needed(&readers, &records)),
            readers_quota: HoldBack { age_ms: u64::MAX / 2, bytes: self.config.log.retention_bytes },
            image,
            flush: Box::new(move |store| pushes.flush(store)),
            truncation: outlets.pushes.truncation(),
            awaited: Box::new(move || awaited.awaited()),
            attached: Box::new(move || attached.attached()),
            has_room: Box::new(move |bytes| disk.has_room(bytes)),
        };
        spawn("log", move || log_thread::run(&jobs, &context))
    }

    /// Starts the periodic work of each sampling interval; returns the sampled rates and percentiles.
    fn sample(&self, offers: &Arc<Offers>) -> Arc<Window> {
        let window = Arc::new(Window::new(Arc::clone(&self.shared.metrics)));
        let (sampled, offers) = (Arc::clone(&window), Arc::clone(offers));
        let (metrics, clock, access) =
            (Arc::clone(&self.shared.metrics), Arc::clone(&self.clock), Arc::clone(&self.access));
        self.runtime.spawn(async move {
            loop {
                tokio::time::sleep(SAMPLE_EVERY).await;
                sampled.sample();
                // Even while nothing is committed: a jump must be noticed when it happens.
                metrics.set_clock(clock.check());
                metrics.certificates.report();
                access.tick();
                offers.end_idle();
            }
        });
        window
    }

    fn service(
        self,
        queue: CommitQueue,
        group: GroupId,
        window: Arc<Window>,
        outlets: Outlets,
        cluster: Cluster,
    ) -> NodeService {
        let Base { config, runtime, messages, shared, records, stores, slots, loader, clock, access, tracing } = self;
        let Outlets { pushes, webhooks, .. } = outlets;
        let Cluster { joined, announced, .. } = cluster;
        let cluster_plugins = joined.is_some().then(|| ClusterPlugins { announced, view: Arc::clone(&shared.view) });
        let plugins =
            PluginAdmin::new(loader, slots, Arc::clone(&stores), messages.clone(), runtime.clone(), cluster_plugins);
        NodeService {
            rows: RowReader {
                pushes: Arc::clone(&pushes),
                records: records.clone(),
                runtime: runtime.clone(),
                long_reads: LongReads::default(),
            },
            messages,
            queue,
            shared,
            stores,
            records,
            pushes,
            group,
            epoch_length: config.epoch,
            tracing,
            stopping: Arc::new(AtomicBool::new(false)),
            webhooks,
            record_times: RecordTimes::default(),
            window,
            clock,
            images: ImagePermits::default(),
            disk: DataDisk::watched(&config.data, &runtime),
            row_quota: TenantBound {
                default_max: config.auth.tenant_rows_max,
                by_namespace: config.auth.rows_max.clone(),
            },
            stored_quota: TenantBound {
                default_max: config.auth.tenant_stored_bytes_max,
                by_namespace: config.auth.stored_bytes_max.clone(),
            },
            plugins: Arc::new(plugins),
            configured: AtomicBool::new(joined.is_none()),
            joined,
            catch_up: CatchUp::default(),
            access,
        }
    }
}

/// Replaces plugins that fail repeatedly by their predecessors.
fn roll_back_faulty(service: &Arc<NodeService>, mut failed: mpsc::Receiver<FailingSlot>) {
    let (runtime, plugins) = (service.rows.runtime.clone(), Arc::clone(&service.plugins));
    runtime.spawn(async move {
        while let Some((slot, entry)) = failed.recv().await {
            plugins.roll_back_after_faults(slot, entry).await;
        }
    });
}

/// Returns the thread, and how the sequencer has ended once it has.
fn start_sequencer(sequencer: Sequencer, inbox: Receiver<Message>) -> Result<SequencerThread, String> {
    let (sender, ended) = watch::channel(None);
    let thread = spawn("sequencer", move || {
        let _ = sender.send(Some(sequencer.run(&inbox)));
    })?;
    Ok((thread, ended))
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, String> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(run).map_err(|error| format!("cannot start the {name} thread: {error}"))
}
