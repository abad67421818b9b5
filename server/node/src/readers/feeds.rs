//! The node's log feeds for readers: pages that wait for records, and states to restart from.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout_at;
use tribunal_push::{EmbeddedImage, EmbeddedStore};
use tribunal_replica::StoreProgress;
use tribunal_service::{ConsumerStatus, LogApi, Registration, StateRows, StoreState, WebhookStatus};
use tribunal_service::{LogPage, LogQuery, ServiceError, ServiceFuture, StoredRow};
use tribunal_types::{Epoch, LogId, Lsn, NamespaceId, ReadLimit, RecordBatch, StoreId, limits};

use crate::readers::image_permits::ImagePermit;
use crate::service::NodeService;
use crate::stores::catalog::NoRecords;
use crate::stores::reads::unreadable;

/// Number of image rows read at once.
const IMAGE_PAGE_ROWS: usize = 1_000;

impl NodeService {
    /// Reads a page of a log, waiting for the first record of that store, until the deadline or the end of the node.
    pub(crate) async fn log_page_of(&self, query: LogQuery) -> Result<LogPage, ServiceError> {
        let unknown = || ServiceError::NotFound { what: "store of this name".into() };
        self.of_this_log(query.log)?;
        let progress = &self.shared.progress;
        let deadline = Instant::now() + Duration::from_millis(query.wait_ms.min(limits::WAIT_MS_MAX));
        let records_max = query.limit.clamp(1, limits::LOG_PAGE_RECORDS_MAX);
        let limit = ReadLimit { records_max, bytes_max: query.bytes_max };
        let mut heads = progress.follow(query.store).ok_or_else(unknown)?;
        let (mut ended, mut caught_up) = (progress.ended(), false);
        loop {
            heads.borrow_and_update();
            // Before the read: then no record follows the last one read.
            let ending = *ended.borrow();
            // Read together, and before the records: the epoch must not be later than what they include.
            let StoreProgress { head, complete, .. } = progress.store(query.store).ok_or_else(unknown)?;
            // Held until the page is returned, but not while this waits for records.
            let is_near = self.records.is_near(query.store, query.after);
            let permit = match is_near {
                true => None,
                false => self.rows.long_reads.permit(self.pushes.namespace_of(query.store)).await,
            };
            let records = match self.records.page(query.store, query.after, limit) {
                Ok(records) => records,
                Err(NoRecords::Truncated(_)) => return Err(self.truncated(query.store, query.after).await),
                Err(NoRecords::Unreadable(detail)) => return Err(ServiceError::Unavailable { detail }),
            };
            let next = records.bounds().map_or(query.after, |(_, last)| last);
            if query.after > head && self.joined.is_some() && !std::mem::replace(&mut caught_up, true) {
                // Another node may have issued the position.
                self.catch_up_with_others().await?;
                continue;
            }
            if query.after > head && (ending || Instant::now() >= deadline) {
                return Err(beyond_head(query.after_place, query.after, head));
            }
            if !records.records.is_empty() || ending || Instant::now() >= deadline {
                let oldest = self.records.oldest(query.store);
                let ending = ending && next >= head;
                let log = self.records.log_id();
                let following = || self.records.epoch_after(query.store, next);
                let epoch = epoch_at(next, &records, head, complete, following);
                return Ok(LogPage { log, next, epoch, head, durable_upto: head, oldest, records, ending });
            }
            drop(permit);
            tokio::select! {
                // Either way, the loop checks once more.
                _ = timeout_at(deadline.into(), heads.changed()) => {}
                _ = ended.wait_for(|ended| *ended) => {}
            }
        }
    }

    /// Refuses positions of another log.
    pub(crate) fn of_this_log(&self, of: Option<LogId>) -> Result<(), ServiceError> {
        let log = self.records.log_id();
        if of.is_none_or(|of| of == log) { Ok(()) } else { Err(ServiceError::LogReplaced { log }) }
    }

    async fn image(&self, of: NamespaceId, store: Arc<EmbeddedStore>) -> Result<StoreState, ServiceError> {
        let place = self.images.take(of)?;
        // Waits for the push in progress, even if the reader disconnects: its permit is taken until it is done.
        // A detached store applies no more, and the log may no longer have its next records.
        let id = store.id();
        let detached = self.shared.progress.store(id).is_some_and(|progress| progress.detached);
        let begin = move || {
            if !detached {
                store.catch_up()?;
            }
            Ok(PermittedImage { image: store.image(), _place: place })
        };
        let placed = tokio::task::spawn_blocking(begin).await.map_err(failed)?.map_err(unreadable)?;
        if detached && placed.image.lsn().next() < self.records.oldest(id) {
            // The log does not continue after it: a reader would come back for the same state.
            return Err(ServiceError::StoreDetached { store: id });
        }
        Ok(StoreState::Rows { lsn: placed.image.lsn(), rows: Box::new(Rows(Some(placed))) })
    }
}

impl LogApi for NodeService {
    fn log_page(&self, query: LogQuery) -> ServiceFuture<'_, LogPage> {
        Box::pin(self.log_page_of(query))
    }

    fn log_id(&self) -> LogId {
        self.records.log_id()
    }

    fn state(&self, store: StoreId) -> ServiceFuture<'_, StoreState> {
        Box::pin(async move {
            let spec = self.catalog_entry(store)?;
            if let Some(embedded) = self.pushes.embedded(store) {
                return self.image(spec.namespace, embedded).await;
            }
            if spec.adaptor.is_some() {
                let acked = self.shared.progress.store(store).map_or(Lsn(0), |progress| progress.acked);
                return Ok(StoreState::Storage { lsn: acked });
            }
            match self.records.oldest(store) {
                oldest if oldest > Lsn(1) => Err(ServiceError::StateGone { oldest }),
                _ => Ok(StoreState::Log),
            }
        })
    }

    fn set_offset(
        &self,
        namespace: NamespaceId,
        name: String,
        store: StoreId,
        lsn: Lsn,
        log: Option<LogId>,
    ) -> ServiceFuture<'_, ConsumerStatus> {
        Box::pin(self.set_offset_of(namespace, name, store, lsn, log))
    }

    fn consumers(&self, namespace: NamespaceId, name: Option<String>) -> ServiceFuture<'_, Vec<ConsumerStatus>> {
        Box::pin(async move { Ok(self.consumers_of(namespace, name.as_deref())) })
    }

    fn forget_consumer(&self, namespace: NamespaceId, name: String, store: Option<StoreId>) -> ServiceFuture<'_, bool> {
        Box::pin(async move { self.forget_consumer_of(namespace, &name, store).await })
    }

    fn register_webhook(&self, store: StoreId, registration: Registration) -> ServiceFuture<'_, WebhookStatus> {
        Box::pin(self.register_webhook_of(store, registration))
    }

    fn webhook(&self, store: StoreId) -> Option<WebhookStatus> {
        self.webhook_of(store)
    }

    fn remove_webhook(&self, store: StoreId) -> ServiceFuture<'_, bool> {
        Box::pin(self.remove_webhook_of(store))
    }
}

/// An image and its permit, which is released when the image is dropped, on whichever thread.
struct PermittedImage {
    image: EmbeddedImage,
    _place: ImagePermit,
}

/// The image is taken out while a page is read, and not put back if the read failed.
struct Rows(Option<PermittedImage>);

impl StateRows for Rows {
    fn next(&mut self) -> ServiceFuture<'_, Vec<StoredRow>> {
        Box::pin(async move {
            let Some(mut placed) = self.0.take() else { return Ok(Vec::new()) };
            let read = move || {
                let page = placed.image.page(IMAGE_PAGE_ROWS);
                (placed, page)
            };
            let (placed, page) = tokio::task::spawn_blocking(read).await.map_err(failed)?;
            let rows = page.map_err(unreadable)?;
            self.0 = Some(placed);
            Ok(rows.into_iter().map(|row| StoredRow { key: row.key, value: row.value, version: row.version }).collect())
        })
    }
}

/// Returns an epoch up to which every commit is at `next` or before, given the last records that were read. `complete` is
/// the last complete epoch of a log that ended at `head`; `following` returns the epoch of the record after `next`.
fn epoch_at(
    next: Lsn,
    records: &RecordBatch,
    head: Lsn,
    complete: Epoch,
    following: impl FnOnce() -> Option<Epoch>,
) -> Epoch {
    if next >= head {
        return complete;
    }
    // Further records of the last one's epoch may follow.
    let last = records.records.last().map(|last| last.epoch);
    last.or_else(following).map_or(Epoch(0), Epoch::prev)
}

pub(crate) fn beyond_head(pointer: &str, after: Lsn, head: Lsn) -> ServiceError {
    ServiceError::ClientMistake {
        code: "position_beyond_head",
        pointer: pointer.into(),
        detail: format!(
            "the log ends at {head}, and {after} is past that: the position is of another log, or of another store; \
             start over from the store's state (`/v1/stores/STORE/state`)"
        ),
    }
}

fn failed(error: tokio::task::JoinError) -> ServiceError {
    ServiceError::Unavailable { detail: format!("the read failed: {error}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_without_records_covers_the_epochs_before_the_record_that_follows() {
        let none = RecordBatch::default();
        let covered =
            |next, following: Option<u64>| epoch_at(Lsn(next), &none, Lsn(9), Epoch(40), || following.map(Epoch));
        assert_eq!(covered(9, None), Epoch(40), "the whole log");
        assert_eq!(covered(4, Some(30)), Epoch(29));
        assert_eq!(covered(4, None), Epoch(0), "nothing is known");
    }
}
