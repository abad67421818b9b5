//! Consumers and webhooks as the HTTP surface sees them: checks before anything is remembered, lag afterwards.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tribunal_codec::{ConsumerOffset, Webhook as Registered};
use tribunal_push::{PushActivity, TransportError};
use tribunal_service::ServiceError;
use tribunal_service::{ConsumerPosition, ConsumerStatus, Registration, WebhookStatus};
use tribunal_types::{Epoch, LogId, Lsn, NamespaceId, StoreId};

use crate::readers::consumer_state::{ConsumerState, Unsaved};
use crate::readers::feeds::beyond_head;
use crate::service::NodeService;
use crate::stores::catalog::Records;
use crate::telemetry::metrics::{ConsumerLabel, StoreLabel};

/// Times of records that are remembered, so that a lag does not read the log again and again.
const TIMES_MAX: usize = 16_384;

/// Why a webhook is not started.
const OF_ANOTHER_LOG: &str = "its position is of another log: this node's log was salvaged or replaced since. Bring the \
                              receiver to a state of the store (/v1/stores/{store}/state), and register it again with \
                              `after`";

/// When records were committed. What is known of a record never changes.
#[derive(Default)]
pub struct RecordTimes(Mutex<HashMap<(StoreId, Lsn), u64>>);

impl RecordTimes {
    /// Returns how long ago the first record after `lsn` was committed, milliseconds; 0 if there is none.
    fn age_after(&self, records: &Records, store: StoreId, lsn: Lsn) -> u64 {
        let known = self.0.lock().get(&(store, lsn)).copied();
        let time = known.or_else(|| {
            let time = tokio::task::block_in_place(|| records.time_after(store, lsn))?;
            let mut times = self.0.lock();
            if times.len() >= TIMES_MAX {
                times.clear();
            }
            times.insert((store, lsn), time);
            Some(time)
        });
        time.map_or(0, |time| now_ms().saturating_sub(time))
    }
}

/// Returns the first epoch that a reader still needs, of all stores.
pub fn needed(readers: &ConsumerState, records: &Records) -> Option<Epoch> {
    readers.slowest(records.log_id()).into_iter().filter_map(|(store, lsn)| records.epoch_after(store, lsn)).min()
}

impl NodeService {
    fn position(&self, offset: &ConsumerOffset) -> ConsumerPosition {
        let (store, lsn) = (offset.store, offset.lsn);
        let head = self.head(store);
        let lag_ms = if lsn < head { self.record_times.age_after(&self.records, store, lsn).max(1) } else { 0 };
        ConsumerPosition { store, log: offset.log, lsn, head, lag_ms, updated_at_ms: offset.at_ms }
    }

    pub(crate) fn consumers_of(&self, namespace: NamespaceId, name: Option<&str>) -> Vec<ConsumerStatus> {
        let mut found: Vec<ConsumerStatus> = Vec::new();
        for offset in self.webhooks.readers.offsets() {
            if offset.namespace != namespace || name.is_some_and(|name| name != offset.name) {
                continue;
            }
            let position = self.position(&offset);
            match found.last_mut().filter(|last| last.name == offset.name) {
                Some(last) => last.positions.push(position),
                None => {
                    let log = self.records.log_id();
                    found.push(ConsumerStatus { name: offset.name, log, positions: vec![position] });
                }
            }
        }
        found
    }

    pub(crate) async fn set_offset_of(
        &self,
        namespace: NamespaceId,
        name: String,
        store: StoreId,
        lsn: Lsn,
        of: Option<LogId>,
    ) -> Result<ConsumerStatus, ServiceError> {
        self.of_this_log(of)?;
        let head = self.head(store);
        if lsn > head {
            return Err(beyond_head("/lsn", lsn, head));
        }
        let log = self.records.log_id();
        let offset = ConsumerOffset { namespace, name: name.clone(), store, log, lsn, at_ms: now_ms() };
        self.webhooks.readers.set(offset).await.map_err(unsaved)?;
        let found = self.consumers_of(namespace, Some(&name));
        Ok(found.into_iter().next().unwrap_or(ConsumerStatus { name, log, positions: Vec::new() }))
    }

    pub(crate) async fn forget_consumer_of(
        &self,
        namespace: NamespaceId,
        name: &str,
        store: Option<StoreId>,
    ) -> Result<bool, ServiceError> {
        self.webhooks.readers.forget(namespace, name, store).await.map_err(unsaved)
    }

    pub(crate) async fn register_webhook_of(
        &self,
        store: StoreId,
        asked: Registration,
    ) -> Result<WebhookStatus, ServiceError> {
        let _one_at_a_time = self.webhooks.registering.lock().await;
        let (spec, head) = (self.catalog_entry(store)?, self.head(store));
        let mut registered = Registered {
            store,
            url: asked.url,
            secret: asked.secret,
            records_max: asked.records_max,
            bytes_max: asked.bytes_max,
            timeout_ms: asked.timeout_ms,
            log: self.records.log_id(),
            watermark: Lsn(0),
        };
        let receiver = self.webhooks.receiver(&registered, &spec).map_err(|text| refused_url("bad_url", text))?;
        receiver.check().await.map_err(|error| match error {
            TransportError::Refused(text) => refused_url("url_refused", text),
            other => refused_url("url_unresolved", other.to_string()),
        })?;
        if asked.after.is_some_and(|after| after > head) {
            return Err(beyond_head("/after", asked.after.unwrap_or_default(), head));
        }
        let before = self.webhooks.readers.webhook(store);
        if asked.after.is_none() {
            self.of_this_log(before.as_ref().map(|known| known.log))?;
        }
        let old = before.map_or(Lsn(0), |known| known.watermark);
        let oldest = self.records.oldest(store);
        if asked.after.unwrap_or(old).next() < oldest {
            return Err(ServiceError::LogTruncated { oldest });
        }
        // Only when the old push has ended does its watermark no longer move.
        self.webhooks.end(store).await;
        let old = self.webhooks.readers.webhook(store).map_or(Lsn(0), |known| known.watermark);
        registered.watermark = asked.after.unwrap_or(old);
        self.webhooks.readers.register(registered.clone()).await.map_err(unsaved)?;
        self.webhooks.start(&registered, &spec, receiver);
        self.webhook_of(store).ok_or_else(|| ServiceError::NotFound { what: "registered receiver".into() })
    }

    /// Starts the pushes to all registered receivers.
    pub(crate) fn start_webhooks(&self) {
        let catalog = self.stores.catalog();
        for registered in self.webhooks.readers.webhooks() {
            // A store that no longer exists, for example after a salvage of the log, has nothing to push.
            let Some(spec) = catalog.by_id(registered.store) else { continue };
            if registered.log != self.records.log_id() {
                tracing::error!(store = spec.name, reason = OF_ANOTHER_LOG, "this webhook is not started");
                continue;
            }
            match self.webhooks.receiver(&registered, spec) {
                Ok(receiver) => self.webhooks.start(&registered, spec, receiver),
                Err(reason) => tracing::error!(store = spec.name, reason, "this webhook cannot be started"),
            }
        }
    }

    pub(crate) fn webhook_of(&self, store: StoreId) -> Option<WebhookStatus> {
        let registered = self.webhooks.readers.webhook(store)?;
        let replaced = registered.log != self.records.log_id();
        let status = self.webhooks.status(store).unwrap_or_default();
        Some(WebhookStatus {
            url: registered.url,
            records_max: registered.records_max,
            bytes_max: registered.bytes_max,
            timeout_ms: registered.timeout_ms,
            state: if replaced { PushActivity::Stopped.name() } else { status.activity.name() },
            acked: registered.watermark,
            head: self.head(store),
            lag_ms: status.lag_ms,
            attempts: status.attempts,
            last_error: if replaced { Some(OF_ANOTHER_LOG.into()) } else { status.last_error },
        })
    }

    pub(crate) async fn remove_webhook_of(&self, store: StoreId) -> Result<bool, ServiceError> {
        let _one_at_a_time = self.webhooks.registering.lock().await;
        self.webhooks.end(store).await;
        self.webhooks.readers.unregister(store).await.map_err(unsaved)
    }

    /// Returns a tenant's name; its number if nothing names it any more.
    pub(crate) fn tenant_name(&self, namespace: NamespaceId) -> String {
        self.access.namespace_name(namespace).unwrap_or_else(|| namespace.0.to_string())
    }

    /// Sets the figures of all consumers and webhooks.
    pub(crate) fn count_readers(&self) {
        let metrics = &self.shared.metrics;
        let catalog = self.stores.catalog();
        let label_of = |store| {
            let spec = catalog.by_id(store);
            let namespace = spec.map_or_else(String::new, |spec| self.tenant_name(spec.namespace));
            StoreLabel { namespace, store: spec.map_or_else(String::new, |spec| spec.name.clone()) }
        };
        metrics.consumer_lag_records.clear();
        metrics.consumer_lag_seconds.clear();
        for offset in self.webhooks.readers.offsets() {
            let position = self.position(&offset);
            let StoreLabel { namespace, store } = label_of(offset.store);
            let label = ConsumerLabel { namespace, consumer: offset.name, store };
            let lag = position.head.0.saturating_sub(position.lsn.0);
            metrics.consumer_lag_records.get_or_create(&label).set(lag);
            metrics.consumer_lag_seconds.get_or_create(&label).set(position.lag_ms as f64 / 1000.0);
        }
        metrics.webhook_lag_records.clear();
        for registered in self.webhooks.readers.webhooks() {
            let lag = self.head(registered.store).0.saturating_sub(registered.watermark.0);
            metrics.webhook_lag_records.get_or_create(&label_of(registered.store)).set(lag);
        }
    }
}

fn refused_url(code: &'static str, detail: String) -> ServiceError {
    ServiceError::ClientMistake { code, pointer: "/url".into(), detail }
}

fn unsaved(error: Unsaved) -> ServiceError {
    match error {
        Unsaved::TooMany(max) => ServiceError::ClientMistake {
            code: "too_many_consumers",
            pointer: String::new(),
            detail: format!("at most {max} offsets are stored; delete consumers that are no longer used"),
        },
        Unsaved::NotDurable(detail) => ServiceError::Unavailable { detail },
    }
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
