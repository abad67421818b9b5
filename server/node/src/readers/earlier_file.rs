//! Reader state that an earlier release stored beside a member's log: imported into the control log once, unless the
//! cluster has newer state.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tribunal_codec::Readers;
use tribunal_types::{ConsumerOffset, ControlChange, StoreId, Webhook};

use crate::commit::refusals::refused;
use crate::readers::cluster_readers::ClusterReaders;
use crate::readers::consumer_state::{FILE, Unsaved, load};
use crate::service::NodeService;

/// Name of the file once its content is in the control log.
const BROUGHT_IN: &str = "readers.brought-in";
/// Time until a retry after a failure.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The file and its content.
#[derive(Debug)]
pub struct EarlierFile {
    path: PathBuf,
    remembered: Readers,
}

impl EarlierFile {
    /// Reads the file; returns `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(dir: &Path) -> Result<Option<EarlierFile>, String> {
        let path = dir.join(FILE);
        if !path.exists() {
            return Ok(None);
        }
        load(&path).map(|remembered| Some(EarlierFile { path, remembered }))
    }

    /// Renames the file.
    fn put_aside(&self) {
        let aside = self.path.with_file_name(BROUGHT_IN);
        match std::fs::rename(&self.path, &aside) {
            Ok(()) => {
                tracing::info!(file = %aside.display(), "consumers and webhooks of this node are the cluster's now")
            }
            // Its content changes nothing at the next start.
            Err(error) => tracing::warn!(file = %self.path.display(), %error, "the file cannot be put aside"),
        }
    }
}

impl NodeService {
    /// Imports the file's content, however long that takes.
    pub(crate) async fn bring_in(&self, cluster: &ClusterReaders, file: &EarlierFile) {
        while let Err(reason) = self.bring_in_all(cluster, &file.remembered).await {
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
