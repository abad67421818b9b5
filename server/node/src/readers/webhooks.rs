//! Runs one push per registered webhook; in a cluster, on the node that the control log names. A webhook is a reader:
//! it never determines a store's applied position.
//!
//! A member posts only while a majority replies to it: a node that is cut off has stopped before another one takes
//! over.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tribunal_http::routes::webhooks::push_body;
use tribunal_push::{
    AckSink, LogPoint, LogSource, Pending, PushHandle, PushOptions, PushParts, PushWatch, Pusher, ReadLimit,
    SourceError, WatermarkStore, Webhook, WebhookParts,
};
use tribunal_types::{
    ControlIndex, HeldWebhook, LogId, Lsn, NodeId, RecordBatch, StoreId, StoreSpec, Webhook as Registered,
};

use crate::cluster::view::View;
use crate::readers::reader_state::ReaderState;
use crate::readers::store_locks::StoreLocks;
use crate::readers::webhook_states::{Delivery, ToldDeliveries, ToldDelivery};
use crate::stores::catalog::Records;
use crate::stores::tenant_egress::EgressByTenant;
use crate::telemetry::{PostTraces, Tracing};

/// First pause after a failed attempt.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest pause after a failed attempt.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Poll interval at which a cut-off member checks whether it may post again.
const CUT_OFF_POLL: Duration = Duration::from_millis(50);

struct Running {
    delivery: ControlIndex,
    handle: PushHandle,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// A node's pushes to webhooks.
pub struct Webhooks {
    egress_by_tenant: Arc<EgressByTenant>,
    records: Records,
    /// Durable registrations.
    pub readers: ReaderState,
    /// Other nodes' reports of their deliveries.
    told: ToldDeliveries,
    /// Whether a majority replies to this node, if it is a member of a cluster.
    view: Option<Arc<View>>,
    runtime: Handle,
    tracing: Option<Arc<Tracing>>,
    running: Mutex<HashMap<StoreId, Running>>,
    /// No push may be started any more. Changes under the lock of `running`.
    stopped: AtomicBool,
    /// Serializes registrations of a store's webhook.
    pub registering: StoreLocks,
}

#[derive(Clone)]
struct Mark {
    readers: ReaderState,
    store: StoreId,
    delivery: ControlIndex,
}

impl Mark {
    fn acknowledged(&self, lsn: Lsn) {
        if lsn != self.watermark() {
            self.readers.acknowledged(self.store, self.delivery, lsn);
        }
    }
}

impl WatermarkStore for Mark {
    fn watermark(&self) -> Lsn {
        self.readers.webhook(self.store).map_or(Lsn(0), |held| held.webhook.watermark)
    }
}

/// Records, returned only while a majority replies to this node: every post follows a read.
struct WhileServing {
    records: Records,
    view: Option<Arc<View>>,
}

impl WhileServing {
    async fn until_serving(&self) {
        while self.view.as_ref().is_some_and(|view| !view.serves_now()) {
            tokio::time::sleep(CUT_OFF_POLL).await;
        }
    }
}

impl LogSource for WhileServing {
    fn read(&self, store: StoreId, after: Lsn, limit: ReadLimit) -> Pending<'_, Result<RecordBatch, SourceError>> {
        Box::pin(async move {
            let batch = self.records.read(store, after, limit).await;
            // The read may have waited for records for long.
            self.until_serving().await;
            batch
        })
    }

    fn head(&self, store: StoreId) -> Lsn {
        self.records.head(store)
    }

    fn oldest(&self, store: StoreId) -> Lsn {
        LogSource::oldest(&self.records, store)
    }

    fn catch_up(&self) -> Pending<'_, Result<(), SourceError>> {
        self.records.catch_up()
    }

    fn id(&self) -> LogId {
        self.records.id()
    }

    fn point(&self, store: StoreId, lsn: Lsn) -> Result<LogPoint, SourceError> {
        self.records.point(store, lsn)
    }
}

/// Visibility does not depend on a webhook. Only its watermark counts, and its traces if they are on.
struct NoVisibility {
    mark: Mark,
    /// The store's name in spans and log lines.
    name: String,
    /// The name of the store's tenant in log lines.
    namespace: String,
    tracing: Option<Arc<Tracing>>,
}

impl AckSink for NoVisibility {
    /// Records the fork: the stop must outlast the log's growth, whichever node delivers next. A receiver gets records
    /// of this log again only once it is registered with a position.
    fn forked(&self, _: StoreId, fork: Option<Lsn>) {
        if fork.is_some() {
            self.mark.acknowledged(Registered::AHEAD);
        }
    }

    fn acked(&self, _: StoreId, lsn: Lsn) {
        self.mark.acknowledged(lsn);
    }

    fn rewound(&self, _: StoreId, lsn: Lsn) {
        self.mark.acknowledged(lsn);
    }

    fn failed(&self, store: StoreId, text: &str) {
        let namespace = &self.namespace;
        tracing::error!(namespace, store = self.name, store_id = store.0, text, "pushing to a webhook stopped");
    }

    fn interrupted(&self, store: StoreId, text: &str) {
        let namespace = &self.namespace;
        tracing::warn!(
            namespace,
            store = self.name,
            store_id = store.0,
            text,
            "a webhook does not take records; trying again"
        );
    }

    fn restored(&self, store: StoreId) {
        let namespace = &self.namespace;
        tracing::info!(namespace, store = self.name, store_id = store.0, "the webhook takes records again");
    }

    fn watch(&self, batch: &RecordBatch) -> Option<Box<dyn PushWatch>> {
        self.tracing.as_ref().and_then(|tracing| PostTraces::of(tracing, &self.name, batch))
    }
}

impl Webhooks {
    /// Creates the set of pushes; none runs yet. `view` is that of a member of a cluster.
    #[must_use]
    pub fn new(
        egress_by_tenant: Arc<EgressByTenant>,
        records: Records,
        readers: ReaderState,
        view: Option<Arc<View>>,
        runtime: Handle,
        tracing: Option<Arc<Tracing>>,
    ) -> Webhooks {
        let (registering, running, stopped) = (StoreLocks::default(), Mutex::default(), AtomicBool::default());
        let told = ToldDeliveries::default();
        Webhooks { egress_by_tenant, records, readers, told, view, runtime, tracing, running, stopped, registering }
    }

    /// Creates a store's receiver.
    ///
    /// # Errors
    /// If its URL is invalid.
    pub fn receiver(&self, held: &HeldWebhook, of: &StoreSpec) -> Result<Webhook, String> {
        let (name, registered) = (of.name.clone(), &held.webhook);
        Webhook::new(WebhookParts {
            url: registered.url.clone(),
            secret: registered.secret.clone(),
            timeout: Duration::from_millis(u64::from(registered.timeout_ms)),
            egress: self.egress_by_tenant.egress_of(of.namespace),
            body: Arc::new(move |records| push_body(records, &name)),
            watermark: Arc::new(self.mark(held)),
        })
    }

    fn mark(&self, held: &HeldWebhook) -> Mark {
        Mark { readers: self.readers.clone(), store: held.webhook.store, delivery: held.delivery() }
    }

    /// Starts the push to a receiver, unless the receiver was found ahead of the log.
    pub fn start(&self, held: &HeldWebhook, of: &StoreSpec, receiver: Webhook) {
        if held.webhook.watermark == Registered::AHEAD {
            tracing::error!(store = of.name, "this webhook is not started: its receiver was found ahead of the log");
            return;
        }
        let (receiver, registered) = (Arc::new(receiver), &held.webhook);
        let limit =
            ReadLimit { records_max: registered.records_max as usize, bytes_max: registered.bytes_max as usize };
        let parts = PushParts {
            store: registered.store,
            adaptor: Arc::clone(&receiver) as _,
            source: Arc::new(WhileServing { records: self.records.clone(), view: self.view.clone() }),
            transport: receiver,
            fork: None,
            sink: Arc::new(NoVisibility {
                mark: self.mark(held),
                name: of.name.clone(),
                namespace: self.egress_by_tenant.tenant_name(of.namespace),
                tracing: self.tracing.clone(),
            }),
            options: PushOptions {
                limit,
                backoff_min: BACKOFF_MIN,
                backoff_max: BACKOFF_MAX,
                ..PushOptions::default()
            },
        };
        let (pusher, handle) = Pusher::new(parts);
        let mut running = self.running.lock();
        if self.stopped.load(Ordering::Relaxed) {
            return;
        }
        let (stop, mut stopped) = watch::channel(false);
        let task = self.runtime.spawn(pusher.run(async move {
            let _ = stopped.wait_for(|stop| *stop).await;
        }));
        let delivery = held.delivery();
        running.insert(registered.store, Running { delivery, handle, stop, task });
    }

    /// Retries a stopped or waiting delivery, if it runs here.
    pub fn resume(&self, store: StoreId) {
        self.running.lock().get(&store).iter().for_each(|running| running.handle.resume());
    }

    /// Returns the local state of the delivery to a store's receiver.
    pub fn status(&self, store: StoreId) -> Option<Delivery> {
        self.running.lock().get(&store).map(|running| running.handle.status().into())
    }

    /// Returns another node's report of a delivery.
    pub fn told_by(&self, node: NodeId, held: &HeldWebhook) -> Option<Delivery> {
        self.told.of(held.webhook.store, node, held.delivery())
    }

    /// Records another node's report of its deliveries.
    pub fn told(&self, from: NodeId, told: Vec<ToldDelivery>) {
        self.told.note(from, told, |store| self.readers.webhook(store).is_some());
    }

    /// Returns a member's report of its deliveries.
    pub fn own_deliveries(&self) -> Vec<ToldDelivery> {
        let running = self.running.lock();
        let told = running.iter().map(|(&store, running)| ToldDelivery {
            store,
            delivery: running.delivery,
            state: running.handle.status().into(),
        });
        told.collect()
    }

    /// Returns the deliveries that run here.
    pub fn running(&self) -> Vec<(StoreId, ControlIndex)> {
        self.running.lock().iter().map(|(store, running)| (*store, running.delivery)).collect()
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
        let running: Vec<Running> = {
            let mut running = self.running.lock();
            self.stopped.store(true, Ordering::Relaxed);
            running.drain().map(|(_, running)| running).collect()
        };
        for push in &running {
            let _ = push.stop.send(true);
        }
        for push in running {
            let _ = push.task.await;
        }
    }
}
