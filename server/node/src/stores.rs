//! Stores as the rest of the node sees them: their catalog, their embedded storages and their pushes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use parking_lot::RwLock;
use tribunal_core::records::records_of;
use tribunal_core::row_key::RowKeyer;
use tribunal_http::service::Catalog;
use tribunal_log::{Located, LogReader};
use tribunal_push::{AckSink, LogSource, Pending, ReadLimit, SourceError};
use tribunal_types::{Lsn, RecordBatch, StoreId, StoreSpec};

use crate::epoch_cache::{EpochCache, ResolvedEpoch};
use crate::published::Published;
use crate::sequencer::Message;

/// The declared stores, for lookups without asking the sequencer.
pub struct Stores {
    keyer: RowKeyer,
    specs: RwLock<BTreeMap<StoreId, StoreSpec>>,
    catalog: RwLock<Arc<Catalog>>,
}

impl Stores {
    /// Starts with these stores.
    #[must_use]
    pub fn new(keyer: RowKeyer, specs: impl IntoIterator<Item = StoreSpec>) -> Stores {
        let specs: BTreeMap<_, _> = specs.into_iter().map(|spec| (spec.id, spec)).collect();
        let catalog = RwLock::new(Arc::new(Self::build(&keyer, &specs)));
        Stores { keyer, specs: RwLock::new(specs), catalog }
    }

    fn build(keyer: &RowKeyer, specs: &BTreeMap<StoreId, StoreSpec>) -> Catalog {
        let keyer = *keyer;
        Catalog::new(specs.values().cloned(), Arc::new(move |namespace, store, key| keyer.row(namespace, store, key)))
    }

    /// Adds a store, or replaces the one of the same id.
    pub fn declare(&self, spec: StoreSpec) {
        let mut specs = self.specs.write();
        specs.insert(spec.id, spec);
        *self.catalog.write() = Arc::new(Self::build(&self.keyer, &specs));
    }

    /// Returns the catalog as of now.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read())
    }

    /// Returns the specs in force.
    pub fn specs(&self) -> Vec<StoreSpec> {
        self.specs.read().values().cloned().collect()
    }

    /// Returns the id that the next new store gets.
    pub fn next_id(&self) -> StoreId {
        StoreId(self.specs.read().keys().next_back().map_or(1, |id| id.0 + 1))
    }
}

/// Committed records, from memory near the head and from the log behind it.
#[derive(Clone)]
pub struct Records {
    /// Recent epochs.
    pub cache: Arc<EpochCache>,
    /// Everything else.
    pub log: LogReader,
    /// Where the head is.
    pub published: Arc<Published>,
}

/// Why records cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRecords {
    /// The log begins at this one.
    Truncated(Lsn),
    /// The log cannot be read.
    Unreadable(String),
}

impl Records {
    /// Returns records behind `after`, as many as there are within the bounds, none if there are none. May read the
    /// disk.
    ///
    /// # Errors
    /// If the log no longer reaches back, or cannot be read.
    pub fn page(
        &self,
        store: StoreId,
        after: Lsn,
        records_max: usize,
        bytes_max: usize,
    ) -> Result<RecordBatch, NoRecords> {
        let head = self.published.store(store).map_or(Lsn(0), |progress| progress.head);
        let mut page = RecordBatch { store, ..RecordBatch::default() };
        let mut next = after;
        while next < head && page.records.len() < records_max && page.bytes.len() < bytes_max {
            let before = page.records.len();
            if let Some(epoch) = self.cache.following(store, next) {
                take(&epoch, store, next, &mut page, records_max, bytes_max);
            } else {
                self.take_logged(store, next, &mut page, records_max, bytes_max)?;
            }
            match page.records.last() {
                Some(last) if page.records.len() > before => next = last.lsn,
                _ => break,
            }
        }
        Ok(page)
    }

    /// Runs `read` where it may block, unless what follows `after` is in memory or does not exist yet: a reader at the
    /// head must not cost a change of threads an epoch.
    pub fn near_or_far<T>(&self, store: StoreId, after: Lsn, read: impl FnOnce() -> T) -> T {
        let head = self.published.store(store).map_or(Lsn(0), |progress| progress.head);
        if after >= head || self.cache.following(store, after).is_some() {
            read()
        } else {
            tokio::task::block_in_place(read)
        }
    }

    /// Returns the oldest record that is still kept.
    #[must_use]
    pub fn oldest(&self, store: StoreId) -> Lsn {
        self.log.oldest(store)
    }

    fn take_logged(
        &self,
        store: StoreId,
        after: Lsn,
        page: &mut RecordBatch,
        records_max: usize,
        bytes_max: usize,
    ) -> Result<(), NoRecords> {
        let unreadable = |error: tribunal_log::LogError| NoRecords::Unreadable(error.to_string());
        match self.log.locate(store, after).map_err(unreadable)? {
            Located::Head => Ok(()),
            Located::Truncated { oldest } => Err(NoRecords::Truncated(oldest)),
            Located::Epoch(cen) => {
                let Some(epoch) = self.log.epoch(cen).map_err(unreadable)? else {
                    return Err(NoRecords::Unreadable(format!("epoch {cen} is indexed but not stored")));
                };
                records_of(&epoch.0, &epoch.1, store, after, page, records_max, bytes_max);
                Ok(())
            }
        }
    }
}

fn take(
    epoch: &ResolvedEpoch,
    store: StoreId,
    after: Lsn,
    page: &mut RecordBatch,
    records_max: usize,
    bytes_max: usize,
) {
    records_of(&epoch.input, &epoch.outcome, store, after, page, records_max, bytes_max);
}

impl LogSource for Records {
    fn read(&self, store: StoreId, after: Lsn, limit: ReadLimit) -> Pending<'_, Result<RecordBatch, SourceError>> {
        Box::pin(async move {
            let mut changes = self.published.subscribe();
            loop {
                changes.borrow_and_update();
                let read = || self.page(store, after, limit.records_max, limit.bytes_max);
                match self.near_or_far(store, after, read) {
                    Ok(page) if !page.records.is_empty() => return Ok(page),
                    Ok(_) => {}
                    Err(NoRecords::Truncated(oldest)) => return Err(SourceError::Truncated { oldest }),
                    Err(NoRecords::Unreadable(text)) => return Err(SourceError::Unavailable(text)),
                }
                if tokio::time::timeout(Duration::from_secs(1), changes.changed()).await.is_ok_and(|c| c.is_err()) {
                    return Err(SourceError::Unavailable("the node is stopping".into()));
                }
            }
        })
    }

    fn head(&self, store: StoreId) -> Lsn {
        self.published.store(store).map_or(Lsn(0), |progress| progress.head)
    }
}

/// Tells the sequencer how far storages are.
pub struct Acks(pub Sender<Message>);

impl AckSink for Acks {
    fn acked(&self, store: StoreId, lsn: Lsn) {
        let _ = self.0.send(Message::Acked(store, lsn));
    }

    fn rewound(&self, store: StoreId, lsn: Lsn) {
        let _ = self.0.send(Message::Rewound(store, lsn));
    }

    fn failed(&self, store: StoreId, text: &str) {
        tracing::error!(store = store.0, text, "pushing stopped");
    }
}
