//! Consumers and webhooks as seen by the HTTP surface: checks before anything is stored, and lag afterwards.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tribunal_core::control::Effect;
use tribunal_push::{PushActivity, TransportError};
use tribunal_service::ServiceError;
use tribunal_service::{ConsumerPosition, ConsumerStatus, Registration, WebhookStatus};
use tribunal_types::{
    ConsumerOffset, ControlChange, DEFAULT_NAMESPACE, Epoch, HeldWebhook, LogId, Lsn, NamespaceId, NodeId, StoreId,
    StoreSpec, Webhook as Registered,
};

use crate::commit::message::Message;
use crate::commit::refusals::refused;
use crate::readers::consumer_state::Unsaved;
use crate::readers::feeds::beyond_head;
use crate::readers::own_webhooks::{OF_ANOTHER_LOG, OwnWebhooks, Replacement};
use crate::readers::reader_state::ReaderState;
use crate::readers::record_times::now_ms;
use crate::service::NodeService;
use crate::stores::catalog::Records;
use crate::telemetry::metrics::{ConsumerLabel, StoreLabel};

/// How soon a member that has just started retries to catch up with the other nodes.
const CATCH_UP_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Returns the first epoch that a reader still needs, of all stores.
pub fn needed(readers: &ReaderState, records: &Records) -> Option<Epoch> {
    readers.slowest(records.log_id()).into_iter().filter_map(|(store, lsn)| records.epoch_after(store, lsn)).min()
}

impl NodeService {
    fn position(&self, offset: &ConsumerOffset) -> ConsumerPosition {
        let (store, lsn) = (offset.store, offset.lsn);
        let head = self.head(store);
        let lag_ms = if lsn < head { self.record_times.age_after(&self.records, store, lsn).max(1) } else { 0 };
        let oldest = self.records.oldest(store);
        let truncated_below = (lsn < head && lsn.next() < oldest).then_some(oldest);
        ConsumerPosition { store, log: offset.log, lsn, head, lag_ms, truncated_below, updated_at_ms: offset.at_ms }
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
        self.check_position("/lsn", store, lsn).await?;
        let log = self.records.log_id();
        let offset = ConsumerOffset { namespace, name: name.clone(), store, log, lsn, at_ms: now_ms() };
        if !self.is_known(&offset).await {
            self.check_takes_changes()?;
            self.webhooks.readers.set(offset).await.map_err(unsaved)?;
        }
        let found = self.consumers_of(namespace, Some(&name));
        Ok(found.into_iter().next().unwrap_or(ConsumerStatus { name, log, positions: Vec::new() }))
    }

    /// Refuses a position past the end of the log, including parts known only to other nodes.
    pub(crate) async fn check_position(&self, pointer: &str, store: StoreId, lsn: Lsn) -> Result<(), ServiceError> {
        if lsn > self.head(store) && self.joined.is_some() {
            self.catch_up_with_others().await?;
        }
        let head = self.head(store);
        if lsn > head { Err(beyond_head(pointer, lsn, head)) } else { Ok(()) }
    }

    /// Returns whether a member knows that a consumer already has this offset, including changes acknowledged
    /// elsewhere: an idle consumer that repeats its offset writes nothing.
    async fn is_known(&self, offset: &ConsumerOffset) -> bool {
        let ReaderState::Member(cluster) = &self.webhooks.readers else { return false };
        let is_known = || {
            let known = cluster.offset(offset.namespace, &offset.name, offset.store);
            known.is_some_and(|known| (known.lsn, known.log) == (offset.lsn, offset.log))
        };
        is_known() && self.catch_up_with_others().await.is_ok() && is_known()
    }

    pub(crate) async fn forget_consumer_of(
        &self,
        namespace: NamespaceId,
        name: &str,
        store: Option<StoreId>,
    ) -> Result<bool, ServiceError> {
        self.check_takes_changes()?;
        self.webhooks.readers.forget(namespace, name, store).await.map_err(unsaved)
    }

    pub(crate) async fn register_webhook_of(
        &self,
        store: StoreId,
        asked: Registration,
    ) -> Result<WebhookStatus, ServiceError> {
        let spec = self.catalog_entry(store)?;
        let resumes = asked.after.is_none();
        let webhook = Registered {
            store,
            url: asked.url,
            secret: asked.secret,
            records_max: asked.records_max,
            bytes_max: asked.bytes_max,
            timeout_ms: asked.timeout_ms,
            log: self.records.log_id(),
            watermark: asked.after.unwrap_or_default(),
        };
        let held = HeldWebhook { webhook, ..HeldWebhook::default() };
        let receiver = self.webhooks.receiver(&held, &spec).map_err(|text| refused_url("bad_url", text))?;
        receiver.check().await.map_err(|error| match error {
            TransportError::Refused(text) => refused_url("url_refused", text),
            other => refused_url("url_unresolved", other.to_string()),
        })?;
        // After the name was resolved, which may take long.
        let one_at_a_time = self.webhooks.registering.lock(store).await;
        if let Some(after) = asked.after {
            self.check_position("/after", store, after).await?;
        }
        let before = self.webhooks.readers.webhook(store).map(|held| held.webhook);
        if resumes {
            self.of_this_log(before.as_ref().map(|known| known.log))?;
        }
        let old = before.map_or(Lsn(0), |known| known.watermark);
        let after = asked.after.unwrap_or(old);
        if after.next() < self.records.oldest(store) {
            return Err(self.truncated(store, after).await);
        }
        match &self.webhooks.readers {
            ReaderState::Alone(file) => {
                let new = Replacement { held, resumes, spec, receiver };
                self.own_webhooks().register(Arc::clone(file), new, one_at_a_time).await.map_err(unsaved)?;
            }
            ReaderState::Member(_) => {
                let change = ControlChange::RegisterWebhook { webhook: held.webhook, resumes };
                self.control(change).await?.map_err(refused)?;
            }
        }
        self.webhook_of(store).ok_or_else(|| ServiceError::NotFound { what: "registered receiver".into() })
    }

    /// Starts the pushes to registered receivers. In a cluster, those that the control log assigns to this node, now
    /// and after every change.
    pub(crate) async fn deliver_webhooks(&self) {
        let ReaderState::Member(cluster) = &self.webhooks.readers else {
            return self.webhooks.readers.webhooks().iter().for_each(|held| self.start_webhook(held));
        };
        // Webhooks assigned before this node's start may be another node's by now.
        while self.catch_up_with_others().await.is_err() {
            tokio::time::sleep(CATCH_UP_AGAIN_AFTER).await;
        }
        if let Some(file) = cluster.take_earlier() {
            self.bring_in(cluster, &file).await;
        }
        loop {
            let own = |held: &HeldWebhook| self.deliverer(held) == Some(self.group.node);
            let own: Vec<HeldWebhook> = cluster.webhooks().into_iter().filter(own).collect();
            let running = self.webhooks.running();
            for (store, delivery) in &running {
                let goes_on = |held: &HeldWebhook| (held.webhook.store, held.delivery()) == (*store, *delivery);
                if !own.iter().any(goes_on) {
                    self.webhooks.end(*store).await;
                }
            }
            for held in own.iter().filter(|held| !running.contains(&(held.webhook.store, held.delivery()))) {
                if !self.gives_away(held).await {
                    self.start_webhook(held);
                }
            }
            cluster.reassigned().await;
        }
    }

    /// Reassigns a webhook that lacks records truncated from this node's log to a node that has them, if there is one.
    async fn gives_away(&self, held: &HeldWebhook) -> bool {
        let (store, watermark) = (held.webhook.store, held.webhook.watermark);
        if watermark.next() >= self.records.oldest(store) {
            return false;
        }
        let holders = self.holders(store, watermark).await;
        let members = self.shared.view.roles().members;
        let may_deliver = |node: &NodeId| !members.is_drained(*node) && !members.leaves(*node);
        let Some(node) = holders.into_iter().find(may_deliver) else { return false };
        let change = ControlChange::AssignWebhook { store, replaces: held.delivery(), node };
        // The reply is not needed: if another node is named meanwhile, this entry changes nothing.
        let (reply, _) = oneshot::channel();
        self.send(Message::Control(change, reply)).is_ok()
    }

    /// Starts the push to a registered receiver.
    fn start_webhook(&self, held: &HeldWebhook) {
        self.own_webhooks().start(held);
    }

    fn own_webhooks(&self) -> OwnWebhooks {
        OwnWebhooks {
            webhooks: Arc::clone(&self.webhooks),
            stores: Arc::clone(&self.stores),
            records: self.records.clone(),
        }
    }

    /// Returns the cluster node that delivers a webhook, once one is named.
    pub(crate) fn deliverer(&self, held: &HeldWebhook) -> Option<NodeId> {
        held.deliverer.map(|deliverer| deliverer.node)
    }

    pub(crate) fn webhook_of(&self, store: StoreId) -> Option<WebhookStatus> {
        self.webhooks.readers.webhook(store).map(|held| self.standing_of(held))
    }

    fn standing_of(&self, held: HeldWebhook) -> WebhookStatus {
        let node = self.deliverer(&held);
        let store = held.webhook.store;
        let told = match node.filter(|node| *node != self.group.node) {
            Some(node) => self.webhooks.told_by(node, &held),
            None => self.webhooks.status(store),
        };
        let (status, registered) = (told.unwrap_or_default(), held.webhook);
        // Another node's report is newer than the committed position, unless it has not reported yet.
        let (acked, head) = (registered.watermark.max(status.acked), self.head(store));
        let replaced = registered.log != self.records.log_id();
        // A push that found its receiver ahead of the log names the positions, until the next start.
        let found = status.last_error.filter(|_| !replaced || status.activity == PushActivity::Stopped);
        WebhookStatus {
            node,
            url: registered.url,
            records_max: registered.records_max,
            bytes_max: registered.bytes_max,
            timeout_ms: registered.timeout_ms,
            state: if replaced { PushActivity::Stopped.name() } else { status.activity.name() },
            acked,
            head,
            // Not the figure of the push, which begins at the start of its process.
            lag_ms: if acked < head { self.record_times.age_after(&self.records, store, acked).max(1) } else { 0 },
            attempts: status.attempts,
            last_error: found.or_else(|| replaced.then(|| OF_ANOTHER_LOG.to_owned())),
        }
    }

    /// Returns a reason for each stopped webhook that this node delivers.
    pub(crate) fn webhook_problems(&self) -> Vec<String> {
        let catalog = self.stores.catalog();
        let own = self.webhooks.readers.webhooks().into_iter().filter(|held| self.is_own(held));
        let stopped = own.filter(|held| self.is_stopped(held));
        let told = stopped.filter_map(|held| {
            let spec = catalog.by_id(held.webhook.store)?;
            let (name, of) = (&spec.name, self.shown_store(spec));
            let way_on = if held.webhook.log == self.records.log_id() {
                format!("POST /v1/stores/{name}/push/resume (`tribunal store resume {name}`) tries it again")
            } else {
                "a PUT there with `after` registers it again".to_owned()
            };
            Some(format!("the webhook of store {of} is stopped: GET /v1/stores/{name}/push says why, and {way_on}"))
        });
        told.collect()
    }

    /// Returns whether this node delivers a webhook. Until a cluster has named a node, each one does.
    fn is_own(&self, held: &HeldWebhook) -> bool {
        self.deliverer(held).is_none_or(|node| node == self.group.node)
    }

    fn is_stopped(&self, held: &HeldWebhook) -> bool {
        self.standing_of(held.clone()).state == PushActivity::Stopped.name()
    }

    pub(crate) async fn remove_webhook_of(&self, store: StoreId) -> Result<bool, ServiceError> {
        let one_at_a_time = self.webhooks.registering.lock(store).await;
        match &self.webhooks.readers {
            ReaderState::Alone(file) => {
                self.own_webhooks().remove(Arc::clone(file), store, one_at_a_time).await.map_err(unsaved)
            }
            ReaderState::Member(_) => {
                let removed = self.control(ControlChange::RemoveWebhook { store }).await?.map_err(refused)?;
                Ok(matches!(removed, Effect::WebhookRemoved(_)))
            }
        }
    }

    /// Returns a tenant's name, or its number if nothing names it any more.
    pub(crate) fn tenant_name(&self, namespace: NamespaceId) -> String {
        self.access.tenant_name(namespace)
    }

    /// Returns a store's name for an operator of all tenants, who may have several stores of one name.
    pub(crate) fn shown_store(&self, spec: &StoreSpec) -> String {
        match self.tenant_name(spec.namespace) {
            namespace if namespace == DEFAULT_NAMESPACE => format!("`{}`", spec.name),
            namespace => format!("`{}` of namespace `{namespace}`", spec.name),
        }
    }

    /// Updates the metrics of all consumers and webhooks.
    pub(crate) fn count_readers(&self) {
        let metrics = &self.shared.metrics.readers;
        let catalog = self.stores.catalog();
        let label_of = |store| {
            let spec = catalog.by_id(store);
            let namespace = spec.map_or_else(String::new, |spec| self.tenant_name(spec.namespace));
            StoreLabel { namespace, store: spec.map_or_else(String::new, |spec| spec.name.clone()) }
        };
        metrics.consumer_lag_records.clear();
        metrics.consumer_lag_seconds.clear();
        metrics.consumer_truncated.clear();
        for offset in self.webhooks.readers.offsets() {
            let position = self.position(&offset);
            let StoreLabel { namespace, store } = label_of(offset.store);
            let label = ConsumerLabel { namespace, consumer: offset.name, store };
            let lag = position.head.0.saturating_sub(position.lsn.0);
            metrics.consumer_lag_records.get_or_create(&label).set(lag);
            metrics.consumer_lag_seconds.get_or_create(&label).set(position.lag_ms as f64 / 1000.0);
            metrics.consumer_truncated.get_or_create(&label).set(position.truncated_below.is_some().into());
        }
        metrics.forget_webhooks();
        for held in self.webhooks.readers.webhooks().into_iter().filter(|held| self.is_own(held)) {
            let is_of_log = held.webhook.log == self.records.log_id();
            metrics.set_webhook(&label_of(held.webhook.store), &self.standing_of(held), is_of_log);
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
        Unsaved::Unknown(reason) => ServiceError::OutcomeUnknown {
            detail: format!("it is not known whether this change was made: {reason}. Check, and repeat it if not"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_change_that_was_taken_back_is_reported_as_not_made() {
        let not_made = unsaved(Unsaved::NotDurable("the disk is full".into()));
        assert_eq!(not_made, ServiceError::Unavailable { detail: "the disk is full".into() });
        let unknown = unsaved(Unsaved::Unknown("no majority has confirmed it".into()));
        assert!(matches!(unknown, ServiceError::OutcomeUnknown { detail } if detail.contains("no majority")));
    }
}
