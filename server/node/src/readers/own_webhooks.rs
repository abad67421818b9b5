//! Starts the pushes to webhooks that this node delivers; on a single node, also registers and removes webhooks.
//!
//! Such a change runs to completion even if the client disconnects: half-done, a webhook is registered and nothing is
//! pushed to it.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;
use tribunal_push::Webhook;
use tribunal_types::{HeldWebhook, Lsn, StoreId, StoreSpec};

use crate::readers::consumer_state::{ConsumerState, Unsaved};
use crate::readers::webhooks::Webhooks;
use crate::stores::catalog::{Records, Stores};

/// Why a webhook is not started.
pub(crate) const OF_ANOTHER_LOG: &str = "its position is of another log: this node's log was salvaged, replaced or restored since, or the receiver has followed \
     another one. Bring the receiver to a state of the store (/v1/stores/{store}/state), and register it again with `after`";

/// See the module documentation.
#[derive(Clone)]
pub(crate) struct OwnWebhooks {
    pub webhooks: Arc<Webhooks>,
    pub stores: Arc<Stores>,
    pub records: Records,
}

/// A webhook that replaces its store's previous one.
pub(crate) struct Replacement {
    pub held: HeldWebhook,
    /// It continues where the previous one ended.
    pub resumes: bool,
    pub spec: Arc<StoreSpec>,
    pub receiver: Webhook,
}

impl OwnWebhooks {
    /// Starts the push to a registered receiver.
    pub fn start(&self, held: &HeldWebhook) {
        // A store that no longer exists, for example after a salvage of the log, has nothing to push.
        let catalog = self.stores.catalog();
        let Some(spec) = catalog.by_id(held.webhook.store) else { return };
        if held.webhook.log != self.records.log_id() {
            tracing::error!(store = spec.name, reason = OF_ANOTHER_LOG, "this webhook is not started");
            return;
        }
        match self.webhooks.receiver(held, spec) {
            Ok(receiver) => self.webhooks.start(held, spec, receiver),
            Err(reason) => tracing::error!(store = spec.name, reason, "this webhook cannot be started"),
        }
    }

    /// Restarts the delivery of the registered webhook after a change of it failed.
    fn start_again(&self, store: StoreId) {
        self.webhooks.readers.webhook(store).iter().for_each(|held| self.start(held));
    }

    /// Registers a webhook.
    ///
    /// # Errors
    /// See [`Unsaved`].
    pub async fn register(
        self,
        file: Arc<ConsumerState>,
        new: Replacement,
        one_at_a_time: OwnedMutexGuard<()>,
    ) -> Result<(), Unsaved> {
        to_its_end(async move {
            let _one_at_a_time = one_at_a_time;
            let Replacement { mut held, resumes, spec, receiver } = new;
            let store = held.webhook.store;
            // The old push's watermark stops moving only once the push has ended.
            self.webhooks.end(store).await;
            if resumes {
                held.webhook.watermark = file.webhook(store).map_or(Lsn(0), |known| known.watermark);
            }
            if let Err(error) = file.register(held.webhook.clone()).await {
                self.start_again(store);
                return Err(error);
            }
            self.webhooks.start(&held, &spec, receiver);
            Ok(())
        })
        .await
    }

    /// Removes a webhook; returns whether there was one.
    ///
    /// # Errors
    /// See [`Unsaved`].
    pub async fn remove(
        self,
        file: Arc<ConsumerState>,
        store: StoreId,
        one_at_a_time: OwnedMutexGuard<()>,
    ) -> Result<bool, Unsaved> {
        to_its_end(async move {
            let _one_at_a_time = one_at_a_time;
            self.webhooks.end(store).await;
            let removed = file.unregister(store).await;
            if removed.is_err() {
                self.start_again(store);
            }
            removed
        })
        .await
    }
}

/// Runs a change in a separate task.
async fn to_its_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, Unsaved>> + Send + 'static,
) -> Result<T, Unsaved> {
    let ended = tokio::spawn(change).await;
    ended.unwrap_or_else(|ended| Err(Unsaved::Unknown(ended.to_string())))
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_change_goes_on_after_its_client_has_disconnected() {
        let ((go_on, half_way), (ended, at_the_end)) = (oneshot::channel::<()>(), oneshot::channel());
        let mut asked = Box::pin(to_its_end(async move {
            let _ = half_way.await;
            let _ = ended.send(());
            Ok(())
        }));
        assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(asked);
        go_on.send(()).unwrap();
        at_the_end.await.unwrap();
    }
}
