//! A running node: the waits of its start, and its stop.
//!
//! Order of a stop: new requests are refused, the epochs in flight are finished, an image is taken, the log is synced,
//! streams and long polls are answered, the pushes end. A failed log ends the process with its reason; waiting requests
//! are answered with an unknown outcome.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};
use tribunal_core::control::Effect;
use tribunal_http::quota::TenantQuota;
use tribunal_http::{Carriers, FastPath, HostNames, Lanes, RouterOptions, ServerOptions};
use tribunal_peer::Peers;
use tribunal_service::{NodeApi as _, Service};
use tribunal_types::{
    ControlChange, DeclaredStore, Existence, NamespaceId, PluginActivation, StoreId, StoreSpec, WriteKinds,
};

use crate::assembly::{Assembled, Parts, Unsettled};
use crate::auth::access::{OPERATOR_KEY_FILE, write_operator_key};
use crate::cluster::links;
use crate::cluster::state_copy::{Lacks, Lag};
use crate::cluster::{lost_entries, unfinished_recovery};
use crate::commit::message::{Ended, Message};
use crate::config::Config;
use crate::configured::Configured;
use crate::descriptors::{connections_max, raise_limit};
use crate::listening::cannot_listen;
use crate::plugins::plugin_loader::PluginLoader;
use crate::readers::consumer_state::Saver;
use crate::ready::Ready;
use crate::service::NodeService;
use crate::signals::Signals;
use crate::stop_deadline::StopDeadline;
use crate::supervisor;
use crate::telemetry::Telemetry;
use crate::unready_log;

/// How long a start waits for one configuration change: a control log entry that is written and applied.
const START_STEP_TIMEOUT: Duration = Duration::from_secs(60);
/// A member waits for the other nodes practically without limit.
const MEMBER_STEP_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// Poll interval for the cluster's configuration.
const CONFIGURATION_POLL: Duration = Duration::from_millis(20);
/// When the start first logs its wait, and how often it repeats that: the wait may require an operator.
const WAIT_TOLD_AFTER: Duration = Duration::from_secs(60);
const WAIT_TOLD_EVERY: Duration = Duration::from_secs(600);
/// How long a start waits for one store to be opened, which reads the data for its memory.
const STORE_START_TIMEOUT: Duration = Duration::from_secs(600);
/// How long connections may take to end when the node stops.
const HTTP_STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of the signal for a file that exceeds `RLIMIT_FSIZE`. Without a handler it ends the process silently.
const SIGXFSZ: i32 = 25;

/// Why a node could not start, or had to end.
#[derive(Debug)]
pub enum NodeError {
    /// It did not start.
    Start(String),
    /// Durability came into doubt.
    LogFailed(String),
    /// It lacks state that only another member has. It has stopped.
    Lags(Lag),
}

impl std::fmt::Display for NodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            NodeError::Start(reason) => f.write_str(reason),
            NodeError::Lags(lag) => match &lag.lacks {
                Lacks::Entries { group, .. } => write!(f, "entries of node {} are missing", group.node),
                Lacks::Rows { store } => write!(f, "rows of the embedded store `{store}` are missing"),
            },
            NodeError::LogFailed(reason) => write!(
                f,
                "durability is in doubt, so the node stopped: {reason}. Nothing acknowledged is lost. Repair the disk \
                 (space, quota, file size limit, hardware) and start again: the node continues after the last \
                 acknowledged epoch"
            ),
        }
    }
}

/// A running node.
pub struct Node {
    /// For long-running work: pushes, streams, the control plane.
    runtime: Runtime,
    /// For connections and commits.
    lanes: Arc<Lanes>,
    address: SocketAddr,
    service: Arc<NodeService>,
    ended: watch::Receiver<Option<Ended>>,
    threads: Vec<JoinHandle<()>>,
    /// Writes the readers' state; ends on drop.
    saver: Option<Saver>,
    http_stop: Option<oneshot::Sender<()>>,
    http_done: Option<tokio::task::JoinHandle<()>>,
    telemetry: Option<Telemetry>,
    /// Runs the connections to the other nodes, if there are any.
    peer_runtime: Option<Runtime>,
}

impl Node {
    /// Recovers from `config.data`, starts every thread, declares the embedded store `kv` if `with_kv` is set, and then
    /// serves.
    ///
    /// # Errors
    /// If any of these steps fails. Some threads may run then, so the process must end.
    pub fn start(config: &Config, with_kv: bool) -> Result<Node, NodeError> {
        let configured = Configured::read(config).map_err(NodeError::Start)?;
        let runtime = runtime().map_err(NodeError::Start)?;
        survive_file_size_limit(&runtime).map_err(NodeError::Start)?;
        supervisor::keep_alive(runtime.handle());
        let listener = runtime.block_on(async { tribunal_http::listen(config.listen) }).map_err(|error| {
            let setting = "`listen` in the configuration, --listen of `tribunal dev`; port 0 takes a free one";
            NodeError::Start(cannot_listen(config.listen, setting, &error))
        })?;
        let address = listener.local_addr().map_err(|error| NodeError::Start(error.to_string()))?;
        if let Some(cluster) = &config.cluster {
            // Before a data directory exists. No peer can connect yet, or it would wait until the log has been read.
            links::listen(cluster.listen).map(drop).map_err(NodeError::Start)?;
        }
        let Configured { tls, jwt, signers, egress, cluster, expiries } = configured;
        let loader = PluginLoader::open(config, signers).map(Arc::new).map_err(NodeError::Start)?;
        let ready = match &cluster {
            None => Ready::alone(config, Arc::clone(&loader)),
            Some((membership, _)) => lost_entries::must_be_unmarked(&config.data)
                .and_then(|()| unfinished_recovery::must_be_unmarked(&config.data))
                .and_then(|()| Ready::member(config, membership, Arc::clone(&loader))),
        };
        let ready = ready.map_err(NodeError::Start)?;
        let is_member = cluster.is_some();
        let lanes = lanes(config).map_err(NodeError::Start)?;
        let parts = Parts { config, runtime: &runtime, lanes: &lanes, ready, loader, jwt, egress, cluster };
        let assembled = parts.assemble().map_err(NodeError::Start)?;
        let Assembled { service, ended, threads, saver, telemetry, peer_runtime, unsettled } = assembled;
        let lanes = Arc::new(lanes);
        let (http_stop, http_done) = (None, None);
        let mut node = Node {
            runtime,
            lanes,
            address,
            service,
            ended,
            threads,
            saver,
            http_stop,
            http_done,
            telemetry: None,
            peer_runtime,
        };
        node.telemetry = Some(node.send_figures(telemetry)?);
        node.service.shared.metrics.certificates.watch(expiries);
        let mut listener = Some((listener, tls));
        if is_member {
            // A member may wait long for the other nodes: serve meanwhile, so that it reports this.
            listener.take().into_iter().for_each(|(listener, tls)| node.serve(config, listener, tls));
        }
        if let Err(error) = node.settle(config, with_kv, unsettled) {
            if matches!(error, NodeError::Lags(_)) {
                return node.stop().and(Err(error));
            }
            // A thread that hangs cannot be joined either; the process ends with the reason.
            std::mem::forget(node);
            return Err(error);
        }
        node.service.configured.store(true, Ordering::Relaxed);
        unready_log::watch(&node.service, node.runtime.handle());
        listener.into_iter().for_each(|(listener, tls)| node.serve(config, listener, tls));
        Ok(node)
    }

    /// Applies the configuration to the recovered state, and waits until it works. Every wait is bounded.
    fn settle(&self, config: &Config, with_kv: bool, unsettled: Unsettled) -> Result<(), NodeError> {
        if unsettled.waits {
            self.wait_for_configuration(&unsettled)?;
            self.start_readers(&unsettled.declared)?;
            return self.ensure_operator(config);
        }
        for activation in unsettled.activations {
            let from = activation.from.max(self.service.shared.progress.last().next());
            self.control(ControlChange::ActivatePlugin(PluginActivation { from, ..activation }))?;
        }
        if let Some(bounds) = unsettled.bounds {
            self.control(ControlChange::SetBounds(bounds))?;
        }
        if let Some(generation) = unsettled.generation {
            self.control(ControlChange::SwitchGeneration(generation))?;
        }
        self.start_readers(&unsettled.declared)?;
        if with_kv {
            self.ensure_kv()?;
        }
        self.ensure_operator(config)
    }

    /// Creates a key for an operator if none has a valid one. In a cluster, the member with the lowest number does so.
    fn ensure_operator(&self, config: &Config) -> Result<(), NodeError> {
        if !config.auth.required || !self.service.has_lowest_number() {
            return Ok(());
        }
        // Another node may have created one meanwhile, or revoked the last one.
        let knows = self.runtime.block_on(self.service.catch_up_with_others()).is_ok() || self.service.seeds();
        let Some((key, token)) = self.service.access.first_operator().map_err(NodeError::Start)? else { return Ok(()) };
        if !knows {
            tracing::warn!(
                "as far as this node knows, no operator has a valid key, but it cannot ask the other nodes: restart it once a majority \
                 of the cluster runs, and it writes a new one"
            );
            return Ok(());
        }
        write_operator_key(&config.data, &token).map_err(NodeError::Start)?;
        self.control(ControlChange::CreateKey(key))?;
        let file = config.data.join(OPERATOR_KEY_FILE);
        tracing::info!(file = %file.display(), "no operator had a valid key; a new one was written to this file");
        Ok(())
    }

    /// Waits until a new cluster's configuration is set by its node: nothing may be decided before.
    fn wait_for_configuration(&self, unsettled: &Unsettled) -> Result<(), NodeError> {
        let is_named = |wanted: &PluginActivation| self.service.plugins.is_named(&wanted.choice.slot);
        let begun = Instant::now();
        let mut tell_at = begun;
        while !unsettled.activations.iter().all(is_named) {
            let now = Instant::now();
            if tell_at == begun {
                tracing::info!("waiting: {}", self.service.obstacle());
                tell_at = begun + WAIT_TOLD_AFTER;
            } else if now >= tell_at {
                tracing::warn!(seconds = begun.elapsed().as_secs(), "still waiting: {}", self.service.obstacle());
                tell_at = now + WAIT_TOLD_EVERY;
            }
            if self.ended.borrow().is_some() {
                return Err(self.failure());
            }
            std::thread::sleep(CONFIGURATION_POLL);
        }
        Ok(())
    }

    /// Starts the readers of the log: stores' pushes, which must be ready, and webhooks.
    fn start_readers(&self, declared: &[DeclaredStore]) -> Result<(), NodeError> {
        for store in declared {
            self.store_started(store.spec.id, &store.spec.name)?;
        }
        self.runtime.block_on(self.service.embedded_reported());
        let service = Arc::clone(&self.service);
        match self.peers() {
            None => self.runtime.block_on(service.deliver_webhooks()),
            // It follows the control log until the runtime ends.
            Some(_) => drop(self.runtime.spawn(async move { service.deliver_webhooks().await })),
        }
        Ok(())
    }

    /// Waits until a store's push is created, or has proved impossible.
    fn store_started(&self, store: StoreId, name: &str) -> Result<(), NodeError> {
        let settled = self.service.pushes.settled(store);
        let settled = async { tokio::time::timeout(STORE_START_TIMEOUT, settled).await };
        self.runtime.block_on(settled).map_err(|_| {
            let seconds = STORE_START_TIMEOUT.as_secs();
            NodeError::Start(format!("the store `{name}` was not opened within {seconds} s; see the lines before"))
        })
    }

    fn send_figures(&self, mut telemetry: Telemetry) -> Result<Telemetry, NodeError> {
        let service = Arc::downgrade(&self.service);
        let figures = move || service.upgrade().map(|service| service.metrics()).unwrap_or_default();
        telemetry.send_figures(self.runtime.handle(), Arc::new(figures)).map_err(NodeError::Start)?;
        Ok(telemetry)
    }

    fn serve(
        &mut self,
        config: &Config,
        listener: tokio::net::TcpListener,
        tls: Option<tribunal_http::listener::tls::TlsAcceptor>,
    ) {
        let (stop, stopped) = oneshot::channel::<()>();
        let millis = Duration::from_millis;
        let options = ServerOptions {
            connections_max: connections_max(config.http.connections_max, raise_limit()),
            header_timeout: millis(config.http.header_timeout_ms),
            idle_timeout: millis(config.http.idle_timeout_ms),
            ..ServerOptions::default()
        };
        let auth = &config.auth;
        let quota = TenantQuota { requests_max: auth.tenant_requests_max, bytes_max: auth.tenant_bytes_max };
        let routes = RouterOptions {
            body_timeout: millis(config.http.body_timeout_ms),
            debug_routes: config.http.debug_routes,
            heartbeat: millis((config.http.idle_timeout_ms / 3).min(15_000)),
            access: auth.required.then_some(quota),
            ..RouterOptions::default()
        };
        let node = &self.service;
        let service = Service {
            txns: Arc::clone(node) as _,
            stores: Arc::clone(node) as _,
            log: Arc::clone(node) as _,
            keys: Arc::clone(node) as _,
            plugins: Arc::clone(&node.plugins) as _,
            node: Arc::clone(node) as _,
        };
        let mut fast_path = FastPath::new(service, routes).with_shared(self.runtime.handle().clone());
        if config.listen.ip().is_loopback() {
            fast_path = fast_path.with_names(HostNames::on_loopback(&config.http.hosts));
        }
        let carriers = Carriers { lanes: Some(Arc::clone(&self.lanes)), tls };
        let server = async move {
            let stopped = async {
                let _ = stopped.await;
            };
            if let Err(error) = tribunal_http::serve_on(carriers, listener, fast_path, options, stopped).await {
                tracing::error!(%error, "the listener failed");
            }
        };
        self.http_stop = Some(stop);
        self.http_done = Some(self.runtime.spawn(server));
    }

    fn control(&self, change: ControlChange) -> Result<Effect, NodeError> {
        let (reply, applied) = oneshot::channel();
        let sent = self.service.messages.send(Message::Control(change, reply));
        let timeout = if self.peers().is_some() { MEMBER_STEP_TIMEOUT } else { START_STEP_TIMEOUT };
        let applied = async { tokio::time::timeout(timeout, applied).await };
        match sent.map(|()| self.runtime.block_on(applied)) {
            Ok(Ok(Ok(reply))) => reply.applied.map_err(|refusal| NodeError::Start(refusal.to_string())),
            Ok(Err(_)) => Err(NodeError::Start(format!(
                "a change of the configuration was not written and applied within {} s: the disk, or a thread of the node, \
                 does not go on; see the lines before",
                timeout.as_secs()
            ))),
            _ => Err(self.failure()),
        }
    }

    /// Returns the connections to the other nodes, if there are any.
    fn peers(&self) -> Option<&Peers> {
        self.service.joined.as_ref().map(|joined| &*joined.peers)
    }

    fn failure(&self) -> NodeError {
        match self.runtime.block_on(how_it_ended(self.ended.clone())) {
            Ended::LogFailed(reason) => NodeError::LogFailed(reason),
            Ended::Refused(reason) => NodeError::Start(reason),
            Ended::Lags(lag) => NodeError::Lags(lag),
            Ended::Stopped => NodeError::Start("the node stopped while it was starting".into()),
        }
    }

    /// Returns the address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Declares the embedded store `kv` unless it exists.
    fn ensure_kv(&self) -> Result<(), NodeError> {
        let namespace = NamespaceId(0);
        if self.service.stores.catalog().store(namespace, "kv").is_some() {
            return Ok(());
        }
        let spec = StoreSpec {
            id: StoreId(0),
            namespace,
            name: "kv".into(),
            existence: Existence::Tracked,
            multi_version: false,
            transactional: true,
            takes: WriteKinds::ALL,
            adaptor: Some("kv".into()),
            adaptor_config: "{}".into(),
        };
        match self.control(ControlChange::DeclareStore(spec))? {
            Effect::StoreDeclared { store, .. } => self.store_started(store, "kv"),
            _ => Ok(()),
        }
    }

    /// Catches SIGINT and SIGTERM from now on. Before, they end the process immediately.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn catch_signals(&self) -> Result<Signals, NodeError> {
        let _entered = self.runtime.enter();
        Signals::catch().map_err(NodeError::Start)
    }

    /// Runs until SIGINT or SIGTERM, then stops in order; or until the log fails.
    ///
    /// # Errors
    /// [`NodeError::LogFailed`]; [`NodeError::Lags`], once everything has stopped.
    pub fn run_until(self, mut signals: Signals) -> Result<(), NodeError> {
        let ended = how_it_ended(self.ended.clone());
        let signalled = self.runtime.block_on(async {
            tokio::select! {
                () = signals.first() => Ok(()),
                ended = ended => Err(match ended {
                    Ended::LogFailed(reason) => NodeError::LogFailed(reason),
                    Ended::Refused(reason) => NodeError::Start(reason),
                    Ended::Lags(lag) => NodeError::Lags(lag),
                    Ended::Stopped => NodeError::LogFailed("the sequencer ended unexpectedly".into()),
                }),
            }
        });
        let deadline = StopDeadline::start();
        if matches!(signalled, Err(NodeError::Lags(_))) {
            // The process continues.
            return self.stop();
        }
        supervisor::tell_stopping();
        // Never cancelled: drops after the stop may hang as well.
        std::mem::forget(deadline);
        match signalled {
            Ok(()) => {
                tracing::info!("stopping");
                match self.stop() {
                    // It was to stop anyway; the next start finds the same.
                    Err(NodeError::Lags(_)) => Ok(()),
                    stopped => stopped,
                }
            }
            Err(error) => {
                self.runtime.shutdown_background();
                self.peer_runtime.into_iter().for_each(Runtime::shutdown_background);
                Err(error)
            }
        }
    }

    /// Stops in order.
    ///
    /// # Errors
    /// [`NodeError::LogFailed`] if the log failed on the way.
    pub fn stop(mut self) -> Result<(), NodeError> {
        self.service.stopping.store(true, Ordering::Relaxed);
        let others = self.peers().map(|peers| peers.addresses()).unwrap_or_default();
        let _ = self.service.messages.send(Message::Stop);
        // Requests that wait for something that can no longer happen are answered now.
        self.service.shared.progress.wake();
        let ended = self.runtime.block_on(how_it_ended(self.ended.clone()));
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        // Nothing is appended to the log any more: long polls are answered, streams end.
        self.service.shared.progress.end();
        if let Some(stop) = self.http_stop.take() {
            let _ = stop.send(());
        }
        if let Some(done) = self.http_done.take() {
            let _ = self.runtime.block_on(async { tokio::time::timeout(HTTP_STOP_TIMEOUT, done).await });
        }
        if let Some(peers) = self.peers() {
            self.runtime.block_on(peers.stop());
        }
        drop(self.peer_runtime.take());
        self.runtime.block_on(self.service.pushes.stop());
        self.runtime.block_on(self.service.webhooks.stop());
        self.service.access.write_uses();
        drop(self.saver.take());
        if let Some(telemetry) = self.telemetry.take() {
            telemetry.stop();
        }
        self.runtime.shutdown_timeout(Duration::from_secs(2));
        match ended {
            Ended::Stopped => Ok(()),
            Ended::LogFailed(reason) => Err(NodeError::LogFailed(reason)),
            Ended::Refused(reason) => Err(NodeError::Start(reason)),
            Ended::Lags(lag) => Err(NodeError::Lags(Lag { others, ..lag })),
        }
    }
}

/// Makes writes beyond `RLIMIT_FSIZE` return an error, which stops the node with its reason.
fn survive_file_size_limit(runtime: &Runtime) -> Result<(), String> {
    use tokio::signal::unix::{SignalKind, signal};
    let _entered = runtime.enter();
    // The handler stays installed when the signal stream is dropped.
    signal(SignalKind::from_raw(SIGXFSZ)).map(drop).map_err(|error| format!("cannot handle SIGXFSZ: {error}"))
}

fn runtime() -> Result<Runtime, String> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.thread_name("shared").enable_all().build().map_err(|error| format!("cannot start threads: {error}"))
}

fn lanes(config: &Config) -> Result<Lanes, String> {
    let count = match config.http.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        count => count,
    };
    Lanes::start(count).map_err(|error| format!("cannot start threads: {error}"))
}

/// Waits until the sequencer has ended. If it ends without a report, it has panicked.
async fn how_it_ended(mut ended: watch::Receiver<Option<Ended>>) -> Ended {
    match ended.wait_for(Option::is_some).await {
        Ok(ended) => ended.clone().unwrap_or(Ended::Stopped),
        Err(_) => Ended::LogFailed("the sequencer panicked; please report this with its message".into()),
    }
}
