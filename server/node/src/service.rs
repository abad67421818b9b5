//! The node as seen by the HTTP surface: the traits of `tribunal-service`, each implemented in its module (`TxnApi` in
//! `commit`, `StoreApi` in `stores`, `LogApi` in `readers`, `KeyApi` in `auth`, `NodeApi` in `node_status`), and here
//! their common part: admission, access to the sequencer, timeouts.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use tokio::sync::oneshot;
use tokio::time::timeout_at;
use tribunal_core::control::Applied;
use tribunal_service::ServiceError;
use tribunal_types::{ControlChange, Epoch, GroupId, NamespaceId, StoreId};

use crate::auth::access::Access;
use crate::cluster::catch_up::CatchUp;
use crate::cluster::view::Joined;
use crate::commit::batch_size::{MEMBER_BYTES_MAX, single_node_bytes_max};
use crate::commit::commit_queue::CommitQueue;
use crate::commit::epoch_clock::EpochClock;
use crate::commit::message::Message;
use crate::commit::refusals::{change_unknown, stopping};
use crate::commit::sequencer_state::Shared;
use crate::config::EpochLength;
use crate::data_disk::DataDisk;
use crate::plugins::plugin_admin::PluginAdmin;
use crate::readers::image_permits::ImagePermits;
use crate::readers::record_times::RecordTimes;
use crate::readers::webhooks::Webhooks;
use crate::stores::catalog::{Records, Stores};
use crate::stores::pushes::Pushes;
use crate::stores::reads::RowReader;
use crate::stores::tenant_bound::TenantBound;
use crate::telemetry::Tracing;
use crate::telemetry::stats::Window;

/// A commit that is not durable after this long is answered with "outcome unknown".
pub(crate) const DECISION_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum retry delay if there is no room, milliseconds.
const RETRY_AFTER_MS_MAX: u64 = 30_000;

/// The node's API: implements the traits of `tribunal-service`.
pub struct NodeService {
    /// The sequencer's queue.
    pub messages: Sender<Message>,
    /// Queue of single commits for the sequencer.
    pub queue: CommitQueue,
    /// State shared with the sequencer.
    pub shared: Shared,
    /// The catalog.
    pub stores: Arc<Stores>,
    /// The log.
    pub records: Records,
    /// The pushes and embedded stores.
    pub pushes: Arc<Pushes>,
    /// Reads rows of embedded stores.
    pub rows: RowReader,
    /// The group that this node leads.
    pub group: GroupId,
    /// How epochs are sealed.
    pub epoch_length: EpochLength,
    /// Creates spans, if traces are on.
    pub tracing: Option<Arc<Tracing>>,
    /// Set when the node begins to stop.
    pub stopping: Arc<AtomicBool>,
    /// The pushes to webhooks, and the readers' state.
    pub webhooks: Arc<Webhooks>,
    /// Commit times of records that readers have not acknowledged.
    pub record_times: RecordTimes,
    /// Rates and percentiles.
    pub window: Arc<Window>,
    /// The clock that ids are made from.
    pub clock: Arc<EpochClock>,
    /// State images in progress.
    pub images: ImagePermits,
    /// The other nodes, if there are any.
    pub joined: Option<Joined>,
    /// When the node last caught up with them.
    pub catch_up: CatchUp,
    /// The control log has the configuration that every node needs; a new cluster gets it at its first start.
    pub configured: AtomicBool,
    /// Plugins.
    pub plugins: Arc<PluginAdmin>,
    /// The disk of the data directory.
    pub disk: Arc<DataDisk>,
    /// Authentication.
    pub access: Arc<Access>,
    /// Limits on the rows of tenants.
    pub row_quota: TenantBound,
    /// Limits on the bytes of their embedded stores.
    pub stored_quota: TenantBound,
}

impl NodeService {
    /// Admits `bytes` of a tenant to the sequencer's queue.
    pub(crate) fn admit(&self, namespace: NamespaceId, bytes: usize) -> Result<(), ServiceError> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(stopping());
        }
        if self.joined.is_some() && self.shared.view.refuses_transactions() {
            return Err(self.not_taken());
        }
        if self.shared.waiting.admit(namespace, bytes) {
            Ok(())
        } else {
            Err(ServiceError::Overloaded { retry_after_ms: self.retry_after() })
        }
    }

    /// Admits a tenant's change of `bytes`, unless the disk is too full for it.
    pub(crate) fn admit_writes(&self, namespace: NamespaceId, bytes: usize) -> Result<(), ServiceError> {
        match self.disk.too_full_for_commits() {
            Some(full) => Err(ServiceError::Unavailable { detail: format!("nothing was taken in: {full}") }),
            None => self.admit(namespace, bytes),
        }
    }

    /// Returns when the queued transactions will have been decided: the number of epochs times their recent duration.
    pub(crate) fn retry_after(&self) -> u64 {
        let waiting = self.shared.waiting.all();
        let is_member = self.joined.is_some();
        let batch = if is_member { MEMBER_BYTES_MAX } else { single_node_bytes_max(&self.epoch_length) };
        let epochs = 1 + (waiting / batch) as u64;
        let length = match self.epoch_length {
            EpochLength::Adaptive => Duration::ZERO,
            EpochLength::Fixed(ms) => Duration::from_millis(ms),
        };
        let epoch_us = length.max(self.shared.progress.epoch_takes()).as_micros();
        let ms = u64::try_from(epoch_us).unwrap_or(u64::MAX).saturating_mul(epochs).div_ceil(1000);
        ms.clamp(1, RETRY_AFTER_MS_MAX)
    }

    pub(crate) fn send(&self, message: Message) -> Result<(), ServiceError> {
        self.messages.send(message).map_err(|_| stopping())
    }

    /// Waits until all `stores` have applied epoch `epoch`.
    pub(crate) async fn until_visible(
        &self,
        stores: &[StoreId],
        epoch: Epoch,
        deadline: Instant,
    ) -> Result<(), StoreId> {
        let progress = &self.shared.progress;
        let (mut changes, mut ended) = (progress.subscribe(), progress.ended());
        loop {
            changes.borrow_and_update();
            let lagging = |store: &&StoreId| progress.store(**store).is_none_or(|p| p.applied < epoch);
            let Some(&store) = stores.iter().find(lagging) else { return Ok(()) };
            let detached = stores.iter().find(|store| progress.store(**store).is_some_and(|p| p.detached));
            if let Some(never) = detached.or(self.stopping.load(Ordering::Relaxed).then_some(&store)) {
                return Err(*never);
            }
            tokio::select! {
                changed = timeout_at(deadline.into(), changes.changed()) => {
                    if !matches!(changed, Ok(Ok(()))) {
                        return Err(store);
                    }
                }
                _ = ended.wait_for(|ended| *ended) => return Err(store),
            }
        }
    }

    /// Refuses a change that no majority would agree on now.
    pub(crate) fn check_takes_changes(&self) -> Result<(), ServiceError> {
        if self.joined.is_some() && !(self.configured.load(Ordering::Relaxed) && self.shared.view.takes_changes()) {
            return Err(self.not_taken());
        }
        Ok(())
    }

    /// Proposes a configuration change; returns once its entry is durable and applied.
    ///
    /// # Errors
    /// If that is not known to have happened. The entry's effect, or the reason for its refusal, is in the reply.
    pub(crate) async fn control(&self, change: ControlChange) -> Result<Applied, ServiceError> {
        self.check_takes_changes()?;
        agreed(&self.messages, change).await
    }
}

/// Sends a configuration change to the sequencer; returns once its entry is durable and applied.
///
/// # Errors
/// See [`NodeService::control`].
pub(crate) async fn agreed(messages: &Sender<Message>, change: ControlChange) -> Result<Applied, ServiceError> {
    let (reply, applied) = oneshot::channel();
    messages.send(Message::Control(change, reply)).map_err(|_| stopping())?;
    // A node that is cut off from the others waits for a majority; the change may still be committed.
    match tokio::time::timeout(DECISION_TIMEOUT, applied).await {
        Ok(Ok(reply)) => Ok(reply.applied),
        _ => Err(change_unknown()),
    }
}
