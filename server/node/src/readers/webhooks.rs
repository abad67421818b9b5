//! Runs one push per registered webhook. A webhook is a reader: it never decides what its store has applied.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tribunal_codec::Webhook as Registered;
use tribunal_http::routes::webhooks::push_body;
use tribunal_push::{
    AckSink, PushHandle, PushOptions, PushParts, PushStatus, PushWatch, Pusher, ReadLimit, WatermarkStore, Webhook,
    WebhookParts,
};
use tribunal_types::{Lsn, RecordBatch, StoreId, StoreSpec};

use crate::readers::consumer_state::ConsumerState;
use crate::stores::catalog::Records;
use crate::stores::tenant_egress::EgressByTenant;
use crate::telemetry::{PostTraces, Tracing};

/// First pause after a failed attempt.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest pause after a failed attempt.
const BACKOFF_MAX: Duration = Duration::from_secs(60);

struct Running {
    handle: PushHandle,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// The pushes to webhooks of a node.
pub struct Webhooks {
    egress_by_tenant: Arc<EgressByTenant>,
    records: Records,
    /// What is registered, durably.
    pub readers: Arc<ConsumerState>,
    runtime: Handle,
    tracing: Option<Arc<Tracing>>,
    running: Mutex<HashMap<StoreId, Running>>,
    /// One registration at a time.
    pub registering: tokio::sync::Mutex<()>,
}

struct Mark {
    readers: Arc<ConsumerState>,
    store: StoreId,
}

impl WatermarkStore for Mark {
    fn watermark(&self) -> Lsn {
        self.readers.webhook(self.store).map_or(Lsn(0), |webhook| webhook.watermark)
    }

    fn acknowledged(&self, lsn: Lsn) {
        self.readers.acknowledged(self.store, lsn);
    }
}

/// Nobody's visibility hangs on a webhook; its watermark is kept by [`Mark`]. What is left is its traces, if they are on.
struct NoVisibility(Option<(Arc<Tracing>, String)>);

impl AckSink for NoVisibility {
    fn forked(&self, _store: StoreId, _fork: Option<Lsn>) {}

    fn acked(&self, _: StoreId, _: Lsn) {}

    fn rewound(&self, _: StoreId, _: Lsn) {}

    fn failed(&self, store: StoreId, text: &str) {
        tracing::error!(store = store.0, text, "pushing to a webhook stopped");
    }

    fn watch(&self, batch: &RecordBatch) -> Option<Box<dyn PushWatch>> {
        self.0.as_ref().and_then(|(tracing, store)| PostTraces::of(tracing, store, batch))
    }
}

impl Webhooks {
    /// Prepares pushes; none runs yet.
    #[must_use]
    pub fn new(
        egress_by_tenant: Arc<EgressByTenant>,
        records: Records,
        readers: Arc<ConsumerState>,
        runtime: Handle,
        tracing: Option<Arc<Tracing>>,
    ) -> Webhooks {
        let registering = tokio::sync::Mutex::default();
        Webhooks { egress_by_tenant, records, readers, runtime, tracing, running: Mutex::default(), registering }
    }

    /// Makes a store's receiver.
    ///
    /// # Errors
    /// If its URL cannot be one.
    pub fn receiver(&self, registered: &Registered, of: &StoreSpec) -> Result<Webhook, String> {
        let name = of.name.clone();
        Webhook::new(WebhookParts {
            url: registered.url.clone(),
            secret: registered.secret.clone(),
            timeout: Duration::from_millis(u64::from(registered.timeout_ms)),
            egress: self.egress_by_tenant.of(of.namespace).egress.clone(),
            body: Arc::new(move |records| push_body(records, &name)),
            watermark: Arc::new(Mark { readers: Arc::clone(&self.readers), store: registered.store }),
        })
    }

    /// Starts the push to a receiver.
    pub fn start(&self, registered: &Registered, of: &StoreSpec, receiver: Webhook) {
        let receiver = Arc::new(receiver);
        let limit =
            ReadLimit { records_max: registered.records_max as usize, bytes_max: registered.bytes_max as usize };
        let parts = PushParts {
            store: registered.store,
            adaptor: Arc::clone(&receiver) as _,
            source: Arc::new(self.records.clone()),
            transport: receiver,
            fork: None,
            sink: Arc::new(NoVisibility(self.tracing.clone().map(|tracing| (tracing, of.name.clone())))),
            options: PushOptions {
                limit,
                backoff_min: BACKOFF_MIN,
                backoff_max: BACKOFF_MAX,
                ..PushOptions::default()
            },
        };
        let (pusher, handle) = Pusher::new(parts);
        let (stop, mut stopped) = watch::channel(false);
        let task = self.runtime.spawn(pusher.run(async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        }));
        self.running.lock().insert(registered.store, Running { handle, stop, task });
    }

    /// Returns the state of the push to a store's receiver.
    pub fn status(&self, store: StoreId) -> Option<PushStatus> {
        self.running.lock().get(&store).map(|running| running.handle.status())
    }

    /// Ends the push to a store's receiver and waits for it.
    pub async fn end(&self, store: StoreId) {
        let running = self.running.lock().remove(&store);
        if let Some(running) = running {
            let _ = running.stop.send(true);
            let _ = running.task.await;
        }
    }

    /// Ends all pushes and waits for them.
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
