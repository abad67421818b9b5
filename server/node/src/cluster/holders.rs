//! Finds nodes of the cluster that still have records truncated in this node's log: truncation is local (rule 19 of the
//! cluster). Queried when a reader needs it, as the positions change all the time.

use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tribunal_service::ServiceError;
use tribunal_types::{Lsn, NodeId, StoreId};

use crate::cluster::transfers::{InMemory, Source};
use crate::cluster::view::Joined;
use crate::service::NodeService;
use crate::stores::catalog::Records;

/// How long the other nodes may take to reply.
const ASKED_FOR: Duration = Duration::from_millis(500);
/// Prefix of the content's name: the oldest record of a store's log.
const NAME: &str = "log/oldest/";
/// Length of the content in bytes.
const CONTENT_BYTES: usize = 8;

/// Serves the positions of this node's oldest records to other nodes.
pub struct OldestRecords(pub Records);

impl Source for OldestRecords {
    fn part(&self, _: NodeId, name: &str, offset: u64) -> Option<Result<(u64, Bytes), String>> {
        let store = name.strip_prefix(NAME)?.parse().map(StoreId);
        let oldest = store.map(|store| self.0.oldest(store).0.to_le_bytes());
        let part = |oldest: [u8; CONTENT_BYTES]| {
            let from = usize::try_from(offset).map_or(CONTENT_BYTES, |offset| offset.min(CONTENT_BYTES));
            (CONTENT_BYTES as u64, Bytes::copy_from_slice(&oldest[from..]))
        };
        Some(oldest.map(part).map_err(|error| format!("no store has the number in {name:?}: {error}")))
    }
}

impl NodeService {
    /// Returns the other nodes that have all records of a store after `after`, ascending; nodes that do not reply in
    /// time are omitted.
    pub(crate) async fn holders(&self, store: StoreId, after: Lsn) -> Vec<NodeId> {
        let Some(Joined { peers, transfers, .. }) = &self.joined else { return Vec::new() };
        let status = peers.status();
        let connected = status.peers.iter().filter(|(_, peer)| peer.is_connected()).map(|(node, _)| *node);
        let mut asked = JoinSet::new();
        for node in connected {
            let transfers = std::sync::Arc::clone(transfers);
            asked.spawn(timeout(ASKED_FOR, async move {
                let mut told = InMemory::new(CONTENT_BYTES);
                let pulled = transfers.pull(node, &format!("{NAME}{store}"), &mut |at, part| told.take(at, part)).await;
                let oldest = pulled.ok().and_then(|_| told.content.try_into().ok()).map(u64::from_le_bytes);
                oldest.filter(|oldest| *oldest <= after.next().0).map(|_| node)
            }));
        }
        let mut holders: Vec<NodeId> =
            asked.join_all().await.into_iter().filter_map(|told| told.ok().flatten()).collect();
        holders.sort_unstable();
        holders
    }

    /// Returns the error for records after `after` that have been truncated here.
    pub(crate) async fn truncated(&self, store: StoreId, after: Lsn) -> ServiceError {
        ServiceError::LogTruncated { oldest: self.records.oldest(store), nodes: self.holders(store, after).await }
    }
}
