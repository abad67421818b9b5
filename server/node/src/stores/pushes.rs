//! Runs one push per store with an adaptor. In a cluster, a node pushes to the storages that the control log assigns to
//! it, and knows the other pushes from their nodes' reports.
//!
//! The parts of a push (a compiled adaptor, an opened store) are created on threads that may block, never on the
//! sequencer's: [`Pushes::declare`] returns immediately, [`Pushes::settled`] waits. Each push belongs to the control
//! entry that started it; one that is replaced while it is being created is dropped.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tribunal_push::{
    Adaptor, AttachPlace, AttachRefusal, Attachment, EmbeddedStore, Follower, LogSource, OutOfUse, PushActivity,
    PushHandle, PushOptions, PushParts, PushStatus, Pusher, RespTransport, SqlTransport, Transport,
};
use tribunal_service::PushState;
use tribunal_types::{DeclaredStore, Lsn, NamespaceId, NodeId, StoreId, StoreSpec, WriteKinds};

use crate::commit::message::Message;
use crate::plugins::engine::{Language, LogAdaptor};
use crate::plugins::plugin_loader::PluginLoader;
use crate::stores::catalog::{Acks, Forks, Records};
use crate::stores::embedded_files::NotOpen;
use crate::stores::embedded_stores::EmbeddedStores;
use crate::stores::fork_file::ForkFile;
use crate::stores::push_states::{ToldPush, ToldPushes};
use crate::stores::store_push::StorePush;
use crate::stores::tenant_egress::EgressByTenant;
use crate::telemetry::Tracing;

mod attaching;
mod embedded;
mod reopening;

use reopening::Reopening;

/// Poll interval of a store whose rows are ahead of the log.
const LOG_POLL: Duration = Duration::from_millis(20);

/// How long to wait for the first attempt of a resumed push.
const TRIED_TIMEOUT: Duration = Duration::from_secs(2);
/// Poll interval for that attempt.
const TRIED_POLL: Duration = Duration::from_millis(5);

/// How long a pushing node may be silent before that is shown.
const SILENT_AFTER: Duration = Duration::from_secs(2);

/// Destination of a store's records.
enum Outlet {
    /// Rows that the node stores itself.
    Embedded(Arc<EmbeddedStore>),
    /// A storage, through an adaptor.
    Storage { adaptor: Arc<dyn Adaptor>, transport: Arc<dyn Transport> },
}

struct Running {
    handle: PushHandle,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

enum State {
    /// Its adaptor and transport are being created.
    Starting,
    /// The rows of an embedded store are ahead of the epochs decided since this node's start.
    Ahead(Lsn),
    LogOnly,
    Running(Running),
    /// Its creation failed.
    Broken(String),
    /// The disk has failed an embedded store, which is opened again after a pause.
    OutOfUse,
    Detached,
    /// Another node pushes to its storage, or the control log has not named one yet.
    Elsewhere {
        node: Option<NodeId>,
        since: Instant,
    },
}

struct Entry {
    store: DeclaredStore,
    state: State,
    /// Number of the start that may complete it. An earlier one in progress is void: the adaptor may have changed since
    /// it began.
    start: u64,
    /// The last time that the disk failed an embedded store.
    reopening: Option<Reopening>,
}

/// All pushes of a node.
pub struct Pushes {
    /// This node, if it is a member of a cluster: then other nodes push as well.
    me: Option<NodeId>,
    told: ToldPushes,
    data: PathBuf,
    egress_by_tenant: Arc<EgressByTenant>,
    records: Records,
    messages: Sender<Message>,
    runtime: Handle,
    entries: Mutex<HashMap<StoreId, Entry>>,
    /// Stores that are being attached, once for each attempt.
    attaching: Mutex<Vec<StoreId>>,
    /// Number of the last start.
    starts: AtomicU64,
    /// Wakes the tasks that wait for a push to be created.
    settled: watch::Sender<()>,
    embedded: EmbeddedStores,
    loader: Arc<PluginLoader>,
    tracing: Option<Arc<Tracing>>,
}

impl Pushes {
    /// Creates the set of pushes; none runs yet.
    pub fn new(
        data: PathBuf,
        egress_by_tenant: Arc<EgressByTenant>,
        records: Records,
        messages: Sender<Message>,
        runtime: Handle,
        loader: Arc<PluginLoader>,
        tracing: Option<Arc<Tracing>>,
    ) -> Pushes {
        let embedded = EmbeddedStores::new(data.clone(), records.clone(), runtime.clone(), tracing.clone());
        Pushes {
            me: records.member.as_ref().map(|(node, _)| *node),
            told: ToldPushes::default(),
            data,
            egress_by_tenant,
            records,
            messages,
            runtime,
            entries: Mutex::default(),
            attaching: Mutex::default(),
            starts: AtomicU64::new(0),
            settled: watch::Sender::new(()),
            embedded,
            loader,
            tracing,
        }
    }

    /// Checks a store's adaptor and configuration before anything is written; returns the kinds of writes that the
    /// adaptor accepts. Compiles the adaptor: may take a while.
    ///
    /// # Errors
    /// A JSON pointer into the declaration, and the problem there.
    pub fn check(&self, spec: &StoreSpec) -> Result<WriteKinds, (String, String)> {
        if spec.is_embedded() && spec.multi_version {
            // Its reads would be taken for a snapshot's, but are of the newest rows.
            let reason = "an embedded store has only the newest version of each row, so a transaction cannot read it at its snapshot: \
                          leave out `multi_version`; what Begin reads (`read`, `ranges`) is as of one snapshot anyway";
            return Err(("/multi_version".into(), reason.into()));
        }
        let Some(name) = spec.adaptor.as_ref().filter(|_| !spec.is_embedded()) else { return Ok(WriteKinds::ALL) };
        let at = |pointer: &'static str| move |e| (pointer.to_owned(), e);
        let storages = self.egress_by_tenant.storages_of(spec.namespace);
        let adaptor = self.adaptor_of(spec, name).map_err(at("/adaptor"))?;
        match adaptor.language().map_err(at("/adaptor"))? {
            Language::Resp => storages.check_resp(spec).map_err(at("/adaptor_config"))?,
            Language::Sql => storages.check_sql(spec).map_err(at("/adaptor_config"))?,
            language @ (Language::Http | Language::Raw) => return Err(at("/adaptor")(language.no_transport())),
        }
        Ok(adaptor.takes())
    }

    /// Creates a store's adaptor, which is `name`.
    ///
    /// # Errors
    /// See [`PluginLoader::adaptor`].
    pub(super) fn adaptor_of(&self, spec: &StoreSpec, name: &str) -> Result<LogAdaptor, String> {
        let config = self.egress_by_tenant.storages_of(spec.namespace).adaptor_config(spec);
        self.loader.adaptor(name, &spec.name, &config)
    }

    /// Returns the role that logs in to a store's database.
    pub(super) fn role_of(&self, spec: &StoreSpec) -> Option<String> {
        self.egress_by_tenant.storages_of(spec.namespace).login(spec).ok().map(|(_, user, _)| user)
    }

    /// Starts the push of a store as declared now, replacing the previous one.
    pub fn declare(self: &Arc<Self>, store: DeclaredStore) {
        let id = store.spec.id;
        let mut entries = self.entries.lock();
        if let Some(State::Running(old)) = entries.remove(&id).map(|entry| entry.state) {
            let _ = old.stop.send(true);
        }
        let embedded = store.spec.is_embedded();
        let state = match &store {
            store if store.detached.is_some() => State::Detached,
            store if self.is_elsewhere(store) => {
                State::Elsewhere { node: store.pusher.map(|pusher| pusher.node), since: Instant::now() }
            }
            _ => State::Starting,
        };
        let begin = matches!(state, State::Starting);
        if embedded {
            self.embedded.expect(id);
        } else {
            // Data kept here by an earlier declaration no longer belongs to this store.
            self.embedded.forget(&store.spec);
        }
        let start = self.next_start();
        entries.insert(id, Entry { store: store.clone(), state, start, reopening: None });
        drop(entries);
        if begin || embedded {
            self.start_aside(store, start);
        }
    }

    /// Returns whether another node pushes to a store's storage, or none yet.
    fn is_elsewhere(&self, store: &DeclaredStore) -> bool {
        store.is_external() && self.me.is_some_and(|me| store.pusher.is_none_or(|pusher| pusher.node != me))
    }

    /// Records another node's report of its pushes.
    pub fn told(&self, from: NodeId, told: Vec<ToldPush>) {
        let entries = self.entries.lock();
        self.told.note(from, told, |store| entries.contains_key(&store));
    }

    /// Returns a member's report of its pushes to storages.
    pub fn own_pushes(&self) -> Vec<ToldPush> {
        let entries = self.entries.lock();
        let is_own = |entry: &&Entry| {
            entry.store.is_external() && !matches!(entry.state, State::Elsewhere { .. } | State::Detached)
        };
        let own = entries.values().filter(is_own).map(|entry| ToldPush {
            store: entry.store.spec.id,
            push: entry.store.push(),
            state: self.state_of(entry),
        });
        own.collect()
    }

    /// Returns a store's name, for operators.
    pub fn name_of(&self, store: StoreId) -> String {
        self.entries.lock().get(&store).map_or_else(|| store.to_string(), |entry| entry.store.spec.name.clone())
    }

    /// Returns the tenant of a store; the default one for an unknown store.
    pub fn namespace_of(&self, store: StoreId) -> NamespaceId {
        self.entries.lock().get(&store).map(|entry| entry.store.spec.namespace).unwrap_or_default()
    }

    /// Retries a push at another node's request.
    pub fn resume_aside(self: &Arc<Self>, store: StoreId) {
        let this = Arc::clone(self);
        self.runtime.spawn(async move {
            if let Err(reason) = this.resume(store).await {
                let name = this.name_of(store);
                tracing::warn!(store = name, store_id = store.0, reason, "a push was not resumed");
            }
        });
    }

    /// Records where a store's storage was found ahead of the log, for the next start of its push.
    pub fn forked(&self, store: DeclaredStore) {
        if let Some(entry) = self.entries.lock().get_mut(&store.spec.id) {
            entry.store = store;
        }
    }

    /// Starts a push on a separate thread. If there is none, the store's state reports it: neither the node nor its
    /// start waits for an unavailable thread.
    fn start_aside(self: &Arc<Self>, store: DeclaredStore, start: u64) {
        let (this, declared) = (Arc::clone(self), store.clone());
        let run = move || {
            let _entered = this.runtime.enter();
            this.start(declared, start);
        };
        if let Err(error) = std::thread::Builder::new().name("store-start".into()).spawn(run) {
            let reason = format!("there is no thread to start the push: {error}");
            self.started(&store, start, Err(NotOpen { reason, may_pass: store.spec.is_embedded() }));
        }
    }

    fn next_start(&self) -> u64 {
        self.starts.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Restarts the pushes whose adaptor has changed, except those of detached stores.
    pub fn adaptor_changed(self: &Arc<Self>, name: &str) {
        let concerned: Vec<DeclaredStore> = {
            let entries = self.entries.lock();
            let stores = entries.values().map(|entry| &entry.store);
            stores
                .filter(|store| store.spec.adaptor.as_deref() == Some(name) && store.detached.is_none())
                .cloned()
                .collect()
        };
        concerned.into_iter().for_each(|store| self.declare(store));
    }

    /// Creates the parts of the push, and starts it unless it was replaced meanwhile.
    fn start(self: &Arc<Self>, store: DeclaredStore, start: u64) {
        if let Some(rows) = self.rows_ahead(&store.spec)
            && !self.wait_for_log(&store, start, rows)
        {
            return;
        }
        let made = self.make(&store.spec);
        self.started(&store, start, made);
    }

    /// Returns the last record reflected in the rows of an embedded store, if the log does not have it yet: rows that
    /// were copied from another member.
    fn rows_ahead(&self, spec: &StoreSpec) -> Option<Lsn> {
        if self.me.is_none() || !spec.is_embedded() || self.embedded.get(spec.id).is_some() {
            return None;
        }
        // Opening the store reports any other problem.
        let rows = EmbeddedStore::flushed_in(&self.embedded.dir(spec.id)).ok()?;
        (rows.lsn > self.records.log.head(spec.id)).then_some(rows.lsn)
    }

    /// Waits until the log has record `rows`; returns false if the store's push was replaced or ended meanwhile.
    fn wait_for_log(&self, store: &DeclaredStore, start: u64, rows: Lsn) -> bool {
        let set = |state: State| {
            let mut entries = self.entries.lock();
            let current = entries.get_mut(&store.spec.id).filter(|entry| entry.start == start);
            let Some(current) = current.filter(|entry| matches!(entry.state, State::Starting | State::Ahead(_))) else {
                return false;
            };
            let changes = std::mem::discriminant(&current.state) != std::mem::discriminant(&state);
            current.state = state;
            drop(entries);
            if changes {
                self.settled.send_replace(());
            }
            true
        };
        while self.records.log.head(store.spec.id) < rows {
            if !set(State::Ahead(rows)) {
                return false;
            }
            std::thread::sleep(LOG_POLL);
        }
        set(State::Starting)
    }

    fn started(self: &Arc<Self>, store: &DeclaredStore, start: u64, made: Result<Option<Outlet>, NotOpen>) {
        // Reads a file, so before the lock.
        let forks = self.forks(store);
        let made = made.and_then(|outlet| outlet.map(|outlet| Ok((outlet, forks.map_err(NotOpen::from)?))).transpose());
        let mut entries = self.entries.lock();
        let current = entries.get_mut(&store.spec.id).filter(|entry| entry.start == start);
        if let Some(entry) = current
            && matches!(entry.state, State::Starting)
        {
            match made {
                Ok(None) => entry.state = State::LogOnly,
                Ok(Some((outlet, forks))) => {
                    let failure = entry.reopening.as_ref().map(|last| last.reason.clone());
                    entry.state = State::Running(self.run(store, (outlet, start), forks, failure));
                }
                Err(NotOpen { reason, may_pass: true }) => {
                    self.plan_reopening(entry, &OutOfUse { text: reason, worked_for: Duration::ZERO });
                }
                Err(NotOpen { reason, .. }) => {
                    let namespace = self.egress_by_tenant.tenant_name(store.spec.namespace);
                    tracing::error!(namespace, store = store.spec.name, reason, "the store cannot be pushed to");
                    entry.state = State::Broken(reason);
                }
            }
        }
        drop(entries);
        self.settled.send_replace(());
    }

    /// Starts the task of a push. `failure` is why an embedded store was out of use before, if it was.
    fn run(
        self: &Arc<Self>,
        store: &DeclaredStore,
        (outlet, start): (Outlet, u64),
        (fork, forks): (Option<Lsn>, Forks),
        failure: Option<String>,
    ) -> Running {
        let sink = Arc::new(Acks {
            messages: self.messages.clone(),
            push: store.push(),
            reports: Arc::default(),
            forks,
            name: store.spec.name.clone(),
            namespace: self.egress_by_tenant.tenant_name(store.spec.namespace),
            adaptor: store.spec.adaptor.clone().unwrap_or_default(),
            embedded: store.spec.is_embedded(),
            tracing: self.tracing.clone(),
            known: AtomicU64::new(match &outlet {
                // Its unflushed records are in the log, and not lost.
                Outlet::Embedded(_) => 0,
                Outlet::Storage { .. } => self.records.progress.store(store.spec.id).map_or(0, |at| at.acked.0),
            }),
        });
        let (stop, mut stopped) = watch::channel(false);
        let stopped = async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        };
        let (handle, task) = match outlet {
            Outlet::Embedded(embedded) => {
                store.skipped().for_each(|lsn| embedded.skip(lsn));
                let (follower, handle) = Follower::new(embedded, store.spec.id, sink, failure);
                let followed = Pushes::reopen_after(Arc::downgrade(self), store.spec.id, start, follower.run(stopped));
                (handle, self.runtime.spawn(followed))
            }
            Outlet::Storage { adaptor, transport } => {
                let (pusher, handle) = Pusher::new(PushParts {
                    store: store.spec.id,
                    fork,
                    adaptor,
                    source: Arc::new(self.records.clone()),
                    transport,
                    sink,
                    options: PushOptions::default(),
                });
                store.skipped().for_each(|lsn| handle.skip(lsn));
                (handle, self.runtime.spawn(pusher.run(stopped)))
            }
        };
        Running { handle, stop, task }
    }

    /// Returns the last record that a storage found on another history can have in common with the log, and where that is
    /// recorded.
    ///
    /// # Errors
    /// See [`ForkFile::read`].
    fn forks(&self, store: &DeclaredStore) -> Result<(Option<Lsn>, Forks), String> {
        if self.me.is_some() {
            return Ok((store.fork, Forks::InControlLog(store.generation)));
        }
        let file = ForkFile::new(&self.data, store.spec.id);
        Ok((file.read(store.generation)?, Forks::Here(file, store.generation)))
    }

    /// Waits until the push of a store is created, or has proved impossible.
    pub async fn settled(&self, store: StoreId) {
        let mut settled = self.settled.subscribe();
        while self.entries.lock().get(&store).is_some_and(|entry| matches!(entry.state, State::Starting)) {
            if settled.changed().await.is_err() {
                return;
            }
        }
    }

    /// Creates a store's adaptor and transport, or opens its rows; returns `None` for a store that is only its log.
    fn make(&self, spec: &StoreSpec) -> Result<Option<Outlet>, NotOpen> {
        let Some(name) = &spec.adaptor else { return Ok(None) };
        if spec.is_embedded() {
            return Ok(Some(Outlet::Embedded(self.embedded.open(spec)?)));
        }
        let storages = self.egress_by_tenant.storages_of(spec.namespace);
        let egress = self.egress_by_tenant.egress_of(spec.namespace);
        let adaptor = self.adaptor_of(spec, name)?;
        let transport: Arc<dyn Transport> = match adaptor.language()? {
            Language::Resp => Arc::new(RespTransport::new(storages.resp(spec, egress)?)),
            Language::Sql => Arc::new(SqlTransport::new(storages.sql(spec, egress)?)),
            language @ (Language::Http | Language::Raw) => return Err(language.no_transport().into()),
        };
        Ok(Some(Outlet::Storage { adaptor: Arc::new(adaptor), transport }))
    }

    /// Returns the state of a store's push.
    pub fn status(&self, store: StoreId) -> StorePush {
        let entries = self.entries.lock();
        entries.get(&store).map(|entry| self.state_of(entry)).unwrap_or_default()
    }

    fn state_of(&self, entry: &Entry) -> StorePush {
        let state = |state| StorePush { state, ..StorePush::default() };
        match &entry.state {
            State::LogOnly => StorePush::default(),
            State::Starting if entry.reopening.is_none() => state(PushState::Running),
            State::Starting | State::OutOfUse => self.out_of_use(&entry.store.spec, entry.reopening.as_ref()),
            State::Ahead(rows) => {
                let head = self.records.log.head(entry.store.spec.id);
                let text =
                    format!("the rows reflect LSN {rows}, and this node has decided up to LSN {head}: it catches up");
                StorePush { last_error: Some(text), ..state(PushState::BackingOff) }
            }
            State::Detached => state(PushState::Detached),
            State::Elsewhere { node: None, .. } => state(PushState::Running),
            State::Elsewhere { node: Some(node), since } => self.told_of(&entry.store, *node, *since),
            State::Broken(reason) => StorePush { last_error: Some(reason.clone()), ..state(PushState::Stopped) },
            State::Running(running) => {
                let status = running.handle.status();
                let error = status.last_error.as_ref().map(|error| self.with_way_out(&entry.store.spec, error.clone()));
                let (state, last_error) = match (shown(&status), self.embedded.damage_of(entry.store.spec.id)) {
                    (PushState::Running, Some(damage)) => (PushState::Damaged, Some(damage)),
                    (state, _) => (state, error),
                };
                StorePush {
                    state,
                    lag_ms: status.lag_ms,
                    last_error,
                    poison: status.poison,
                    durability: status.durable,
                }
            }
        }
    }

    /// Returns the last report of the node that has pushed to a store since then.
    fn told_of(&self, store: &DeclaredStore, node: NodeId, since: Instant) -> StorePush {
        let (told, at) = match self.told.of(store.spec.id, node, store.push()) {
            Some((told, at)) => (told, at),
            None => (StorePush { state: PushState::Running, ..StorePush::default() }, since),
        };
        if at.elapsed() < SILENT_AFTER {
            return told;
        }
        let silent = format!(
            "node {node} pushes to this store, and has told nothing for {} ms; if it stays away, another node takes over",
            at.elapsed().as_millis()
        );
        StorePush { state: PushState::BackingOff, last_error: Some(silent), ..told }
    }

    /// Retries a stopped or waiting push. If its parts could not be created, they are created again; so are an embedded
    /// store's, because its disk may have been repaired.
    ///
    /// # Errors
    /// If it cannot be retried now.
    pub async fn resume(self: &Arc<Self>, store: StoreId) -> Result<(), String> {
        // Runs to completion even if the client disconnects: half-done, the store has no push.
        let this = Arc::clone(self);
        let resumed = self.runtime.spawn(async move { this.resume_to_the_end(store).await });
        resumed.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    async fn resume_to_the_end(self: &Arc<Self>, store: StoreId) -> Result<(), String> {
        let this = Arc::clone(self);
        let looked = self.runtime.spawn_blocking(move || {
            let damaged = this.damage_on_disk(store).is_some();
            (damaged, this.is_embedded(store) && this.needs_copy(store, damaged))
        });
        let (damaged, needs_copy) = looked.await.unwrap_or_default();
        if needs_copy {
            let _ = self.messages.send(Message::CopyState { store: self.name_of(store) });
            return Ok(());
        }
        let remake = {
            let mut entries = self.entries.lock();
            let Some(entry) = entries.get_mut(&store) else { return Ok(()) };
            let embedded = entry.store.spec.is_embedded();
            let stopped = |running: &Running| running.handle.status().activity == PushActivity::Stopped;
            match std::mem::replace(&mut entry.state, State::Starting) {
                State::Broken(_) | State::OutOfUse => {
                    entry.reopening = None;
                    Some((entry.store.clone(), entry.start, None))
                }
                // Without its note on the disk, the damaged files were replaced.
                State::Running(running)
                    if embedded && (damaged || self.embedded.damage_of(store).is_some() || stopped(&running)) =>
                {
                    let _ = running.stop.send(true);
                    Some((entry.store.clone(), entry.start, Some(running.task)))
                }
                other => {
                    if let State::Running(running) = &other {
                        running.handle.resume();
                    }
                    entry.state = other;
                    None
                }
            }
        };
        let Some((declared, start, task)) = remake else { return Ok(()) };
        if let Some(task) = task {
            let _ = task.await;
        }
        let closed = self.close_embedded(store).await;
        let this = Arc::clone(self);
        let _ = self.runtime.spawn_blocking(move || this.start(declared, start)).await;
        closed
    }

    /// Waits briefly until a resumed push has tried again, so that a status query then shows the result.
    pub async fn tried(&self, store: StoreId) {
        let until = Instant::now() + TRIED_TIMEOUT;
        while self.is_trying(store) && Instant::now() < until {
            tokio::time::sleep(TRIED_POLL).await;
        }
    }

    fn is_trying(&self, store: StoreId) -> bool {
        match self.entries.lock().get(&store).map(|entry| &entry.state) {
            Some(State::Starting) => true,
            Some(State::Running(running)) => running.handle.status().activity == PushActivity::Connecting,
            _ => false,
        }
    }

    /// Stops the push of a store that is now detached.
    pub fn detach(&self, store: DeclaredStore) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&store.spec.id) else { return };
        if let State::Running(running) = std::mem::replace(&mut entry.state, State::Detached) {
            let _ = running.stop.send(true);
        }
        entry.store = store;
    }

    /// Skips a record of a store, which its declaration now names: in a running push, and whenever a push of the store
    /// starts.
    pub fn skip(&self, store: DeclaredStore, lsn: Lsn) {
        if let Some(embedded) = self.embedded(store.spec.id) {
            embedded.skip(lsn);
        }
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&store.spec.id) else { return };
        entry.store = store;
        if let State::Running(running) = &entry.state {
            running.handle.skip(lsn);
        }
    }

    /// Checks whether the storage of a detached store, or of one whose push has stopped, can be pushed to again, and moves
    /// its watermark to `loaded`.
    ///
    /// # Errors
    /// A description of the obstacle.
    pub async fn prepare(
        self: &Arc<Self>,
        declared: &DeclaredStore,
        loaded: Option<Lsn>,
    ) -> Result<Lsn, AttachRefusal> {
        let refused = AttachRefusal::Refused;
        let spec = &declared.spec;
        let (fork, _) = self.forks(declared).map_err(refused)?;
        if spec.is_embedded() {
            self.end_stopped(spec.id).await;
            self.close_embedded(spec.id).await.map_err(refused)?;
        }
        let made = {
            let (this, spec) = (Arc::clone(self), spec.clone());
            self.runtime.spawn_blocking(move || this.make(&spec)).await
        };
        let made = made.map_err(|error| refused(error.to_string()))?.map_err(|error| refused(error.reason))?;
        let head = LogSource::head(&self.records, spec.id);
        let place = AttachPlace { head, oldest: self.records.oldest(spec.id), fork, loaded };
        match made {
            None => Ok(head),
            Some(Outlet::Storage { adaptor, transport }) => {
                let source = Arc::new(self.records.clone());
                Attachment { store: spec.id, adaptor, transport, source, place }.prepare().await
            }
            Some(Outlet::Embedded(embedded)) => {
                let records = self.records.clone();
                let moved = self.runtime.spawn_blocking(move || attach_embedded(&embedded, &records, place));
                moved.await.map_err(|error| refused(error.to_string()))?
            }
        }
    }

    /// Stops all pushes and waits for them. The watermarks settle the records in flight at the next start.
    pub async fn stop(&self) {
        let entries: Vec<Entry> = self.entries.lock().drain().map(|(_, entry)| entry).collect();
        let running = entries.into_iter().filter_map(|entry| match entry.state {
            State::Running(running) => Some(running),
            _ => None,
        });
        let running: Vec<Running> = running.collect();
        for push in &running {
            let _ = push.stop.send(true);
        }
        for push in running {
            let _ = push.task.await;
        }
        self.embedded.flush_at_stop().await;
    }
}

/// Returns a push's state in terms of the API. One that retries after an error has made no progress yet: a storage that
/// does not reply takes longer to fail than the pause before the next attempt.
fn shown(status: &PushStatus) -> PushState {
    match status.activity {
        PushActivity::Stopped | PushActivity::Ended => PushState::Stopped,
        PushActivity::BackingOff => PushState::BackingOff,
        _ if status.attempts > 0 && status.last_error.is_some() => PushState::BackingOff,
        PushActivity::Connecting | PushActivity::Pushing | PushActivity::Idle => PushState::Running,
    }
}

/// Moves the watermark of an embedded store to its attach position.
fn attach_embedded(store: &EmbeddedStore, records: &Records, place: AttachPlace) -> Result<Lsn, AttachRefusal> {
    let refused = |text: String| AttachRefusal::Refused(text);
    let target = place.target(store.applied())?;
    if target > store.applied() {
        let to = records.watermark_at(store.id(), target).map_err(|error| refused(error.to_string()))?;
        store.set_watermark(to).map_err(|error| refused(error.to_string()))?;
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_that_tries_again_is_not_shown_as_one_that_runs() {
        let of = |activity, attempts, error: Option<&str>| {
            let last_error = error.map(str::to_owned);
            shown(&PushStatus { activity, attempts, last_error, ..PushStatus::default() })
        };
        let timed_out = Some("no reply within 10000 ms");
        assert_eq!(of(PushActivity::Connecting, 0, None), PushState::Running);
        assert_eq!(of(PushActivity::Connecting, 1, timed_out), PushState::BackingOff);
        assert_eq!(of(PushActivity::Pushing, 7, timed_out), PushState::BackingOff);
        assert_eq!(of(PushActivity::Pushing, 0, timed_out), PushState::Running, "it has got on since");
        assert_eq!(
            of(PushActivity::Connecting, 1, None),
            PushState::Running,
            "it was resumed, or the storage has moved"
        );
        assert_eq!(of(PushActivity::Idle, 0, None), PushState::Running);
        assert_eq!(of(PushActivity::Stopped, 3, timed_out), PushState::Stopped);
    }
}
