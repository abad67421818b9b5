//! Runs one push per store that has an adaptor, and keeps the embedded stores open.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tribunal_http::service::PushState;
use tribunal_push::{
    AckSink, EgressPolicy, EmbeddedStore, EmbeddedTransport, PushHandle, PushOptions, PushParts, Pusher, RespOptions,
    RespTransport, Transport,
};
use tribunal_types::{StoreId, StoreSpec};

use crate::config::Config;
use crate::plugins::{self, LogAdaptor};
use crate::stores::Records;

/// Memory that one embedded store may use, bytes; it is taken as rows come. With less, a million rows written
/// uniformly wait for the disk.
const EMBEDDED_CACHE_BYTES: u64 = 1 << 30;

/// What the `redis` adaptor's configuration says to the host; the adaptor reads the rest.
#[derive(Debug, Deserialize)]
struct RespEndpoint {
    endpoint: String,
}

/// Where a store's push stands, in the words of the API.
#[derive(Clone, Debug, Default)]
pub struct StorePush {
    /// What it is doing.
    pub state: PushState,
    /// Age of the oldest record that is not acknowledged, milliseconds.
    pub lag_ms: u64,
    /// Last trouble.
    pub last_error: Option<String>,
}

struct Outlet {
    adaptor: LogAdaptor,
    transport: Arc<dyn Transport>,
}

struct Running {
    spec: StoreSpec,
    handle: PushHandle,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// All pushes of a node.
pub struct Pushes {
    data: PathBuf,
    egress: EgressPolicy,
    records: Records,
    sink: Arc<dyn AckSink>,
    runtime: Handle,
    running: Mutex<HashMap<StoreId, Running>>,
    broken: Mutex<HashMap<StoreId, String>>,
    embedded: Mutex<HashMap<StoreId, Arc<EmbeddedStore>>>,
}

impl Pushes {
    /// Prepares pushes; none runs yet.
    ///
    /// # Errors
    /// If the configured networks cannot be read.
    pub fn new(config: &Config, records: Records, sink: Arc<dyn AckSink>, runtime: Handle) -> Result<Pushes, String> {
        let allowed = config
            .push
            .allow
            .iter()
            .map(|net| net.parse().map_err(|error| format!("configuration: `push.allow` has `{net}`: {error}")));
        Ok(Pushes {
            data: config.data.clone(),
            egress: EgressPolicy::new(allowed.collect::<Result<_, String>>()?),
            records,
            sink,
            runtime,
            running: Mutex::default(),
            broken: Mutex::default(),
            embedded: Mutex::default(),
        })
    }

    /// Checks a store's adaptor and configuration before anything is written; returns whether the adaptor moves its
    /// watermark in the storage's transaction.
    ///
    /// # Errors
    /// A JSON pointer into the declaration, and what is wrong there.
    pub fn check(&self, spec: &StoreSpec) -> Result<bool, (String, String)> {
        let Some(name) = &spec.adaptor else { return Ok(true) };
        plugins::adaptor(name, &spec.name, &spec.adaptor_config).map_err(|e| ("/adaptor".to_owned(), e))?;
        if name == "redis" {
            serde_json::from_str::<RespEndpoint>(&spec.adaptor_config)
                .map_err(|e| ("/adaptor_config".to_owned(), format!("needs \"endpoint\": \"host:port\": {e}")))?;
        }
        Ok(true)
    }

    /// Starts the push of a store, or starts it anew if its declaration changed.
    pub fn declare(&self, spec: &StoreSpec) {
        let mut running = self.running.lock();
        if running.get(&spec.id).is_some_and(|known| known.spec == *spec) {
            return;
        }
        if let Some(old) = running.remove(&spec.id) {
            let _ = old.stop.send(true);
        }
        self.broken.lock().remove(&spec.id);
        match self.build(spec) {
            Ok(None) => {}
            Ok(Some(Outlet { adaptor, transport })) => {
                let parts = PushParts {
                    store: spec.id,
                    adaptor: Arc::new(adaptor),
                    source: Arc::new(self.records.clone()),
                    transport,
                    sink: Arc::clone(&self.sink),
                    options: PushOptions::default(),
                };
                let (pusher, handle) = Pusher::new(parts);
                let (stop, mut stopped) = watch::channel(false);
                let task = self.runtime.spawn(pusher.run(async move {
                    let _ = stopped.wait_for(|stop| *stop).await;
                }));
                running.insert(spec.id, Running { spec: spec.clone(), handle, stop, task });
            }
            Err(reason) => {
                tracing::error!(store = spec.name, reason, "the store cannot be pushed to");
                self.broken.lock().insert(spec.id, reason);
            }
        }
    }

    /// Makes what speaks a storage's language, and what carries it there; `None` for a store that is only its log.
    fn build(&self, spec: &StoreSpec) -> Result<Option<Outlet>, String> {
        let Some(name) = &spec.adaptor else { return Ok(None) };
        let adaptor = plugins::adaptor(name, &spec.name, &spec.adaptor_config)?;
        let transport: Arc<dyn Transport> = match name.as_str() {
            "kv" => Arc::new(EmbeddedTransport::new(self.open_embedded(spec)?)),
            _ => {
                let config: RespEndpoint =
                    serde_json::from_str(&spec.adaptor_config).map_err(|error| error.to_string())?;
                Arc::new(RespTransport::new(RespOptions::new(config.endpoint, self.egress.clone())))
            }
        };
        Ok(Some(Outlet { adaptor, transport }))
    }

    fn open_embedded(&self, spec: &StoreSpec) -> Result<Arc<EmbeddedStore>, String> {
        let mut embedded = self.embedded.lock();
        if let Some(open) = embedded.get(&spec.id) {
            return Ok(Arc::clone(open));
        }
        let dir = self.data.join("stores").join(spec.id.to_string());
        let open = EmbeddedStore::open(&dir, EMBEDDED_CACHE_BYTES).map_err(|error| error.to_string())?;
        embedded.insert(spec.id, Arc::clone(&open));
        Ok(open)
    }

    /// Returns an embedded store.
    pub fn embedded(&self, store: StoreId) -> Option<Arc<EmbeddedStore>> {
        self.embedded.lock().get(&store).cloned()
    }

    /// Returns where a store's push stands.
    pub fn status(&self, store: StoreId) -> StorePush {
        if let Some(reason) = self.broken.lock().get(&store) {
            return StorePush { state: PushState::Stopped, lag_ms: 0, last_error: Some(reason.clone()) };
        }
        let running = self.running.lock();
        let Some(running) = running.get(&store) else { return StorePush::default() };
        let status = running.handle.status();
        StorePush {
            state: match status.state {
                tribunal_push::PushState::BackingOff => PushState::BackingOff,
                tribunal_push::PushState::Stopped | tribunal_push::PushState::Ended => PushState::Stopped,
                _ => PushState::Running,
            },
            lag_ms: u64::try_from(status.behind.as_millis()).unwrap_or(u64::MAX),
            last_error: status.last_error,
        }
    }

    /// Stops all pushes and waits for them. What was in flight is settled by the watermarks at the next start.
    pub async fn stop(&self) {
        let running: Vec<Running> = self.running.lock().drain().map(|(_, running)| running).collect();
        for push in &running {
            let _ = push.stop.send(true);
        }
        for push in running {
            let _ = push.task.await;
        }
    }
}
