//! Imports an [`EarlierFile`] into the control log.

use std::time::Duration;

use tribunal_codec::Readers;
use tribunal_types::{ConsumerOffset, ControlChange, StoreId, Webhook};

use crate::commit::refusals::refused;
use crate::readers::cluster_readers::ClusterReaders;
use crate::readers::consumer_state::Unsaved;
use crate::readers::earlier_file::EarlierFile;
use crate::service::NodeService;

/// Time until a retry after a failure.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

impl NodeService {
    /// Imports the file's content, however long that takes.
    pub(crate) async fn bring_in(&self, cluster: &ClusterReaders, file: &EarlierFile) {
        while let Err(reason) = self.bring_in_all(cluster, file.remembered()).await {
            tracing::debug!(reason, "consumers and webhooks of this node are not the cluster's yet");
            tokio::time::sleep(AGAIN_AFTER).await;
        }
        file.put_aside();
    }

    async fn bring_in_all(&self, cluster: &ClusterReaders, remembered: &Readers) -> Result<(), String> {
        self.catch_up_with_others().await.map_err(|error| format!("{error:?}"))?;
        let is_store = |store: StoreId| self.stores.declared(store).is_some();
        let is_known = |offset: &ConsumerOffset| cluster.offset(offset.namespace, &offset.name, offset.store).is_some();
        for offset in remembered.offsets.iter().filter(|offset| is_store(offset.store) && !is_known(offset)) {
            self.check_takes_changes().map_err(|error| format!("{error:?}"))?;
            match self.webhooks.readers.set(offset.clone()).await {
                Ok(()) => {}
                Err(Unsaved::TooMany(max)) => {
                    tracing::warn!(
                        consumer = offset.name,
                        max,
                        "a consumer of this node is forgotten: there are too many"
                    );
                }
                Err(Unsaved::NotDurable(reason) | Unsaved::Unknown(reason)) => return Err(reason),
            }
        }
        let is_new = |webhook: &Webhook| is_store(webhook.store) && cluster.webhook(webhook.store).is_none();
        for webhook in remembered.webhooks.iter().filter(|webhook| is_new(webhook)) {
            let change = ControlChange::RegisterWebhook { webhook: webhook.clone(), resumes: false };
            let registered = self.control(change).await.and_then(|applied| applied.map_err(refused));
            registered.map_err(|error| format!("{error:?}"))?;
        }
        Ok(())
    }
}
