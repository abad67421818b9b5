//! Stores as seen by the rest of the node: their catalog, their embedded storages and their pushes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::Sender;
use parking_lot::RwLock;
use tokio::sync::oneshot;
use tribunal_core::control::stores::{Declaration, StoreTable};
use tribunal_core::control::{Effect, Refusal};
use tribunal_core::records::records_of;
use tribunal_core::row_key::RowKeyer;
use tribunal_log::{Located, LogReader, PointInLog};
use tribunal_push::{AckSink, EpochSource, LogPoint, LogSource, Pending, PushWatch, ReadLimit, SourceError};
use tribunal_replica::PushReport;
use tribunal_service::Catalog;
use tribunal_types::{
    ControlChange, ControlIndex, DeclaredStore, Detachment, Digest, Epoch, EpochInput, EpochOutcome, LogId, Lsn,
    NodeId, RecordBatch, StoreId, StoreSpec, Watermark,
};

use crate::commit::epoch_cache::{EpochCache, ResolvedEpoch};
use crate::commit::message::Message;
use crate::commit::progress::Progress;
use crate::stores::fork_file::ForkFile;
use crate::stores::push_reports::PushReports;
use crate::telemetry::{PushTraces, Tracing};

/// How long a push waits until this node has learned of the other nodes' pushes.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(10);

/// The declared stores, for lookups without querying the sequencer: a view of its applied state.
pub struct Stores {
    keyer: RowKeyer,
    declared: RwLock<StoreTable>,
    catalog: RwLock<Arc<Catalog>>,
}

impl Stores {
    /// Starts with the recovered declarations.
    #[must_use]
    pub fn new(keyer: RowKeyer, declared: StoreTable) -> Stores {
        let catalog = RwLock::new(Arc::new(Self::build(&keyer, &declared)));
        Stores { keyer, declared: RwLock::new(declared), catalog }
    }

    fn build(keyer: &RowKeyer, declared: &StoreTable) -> Catalog {
        let keyer = *keyer;
        let specs = declared.stores().map(|store| store.spec.clone());
        Catalog::new(specs, Arc::new(move |namespace, store, key| keyer.row(namespace, store, key)))
    }

    /// Applies a control entry that had this effect on `declared`.
    pub fn follow(&self, declared: &StoreTable, effect: &Effect) {
        match effect {
            Effect::StoreDeclared { .. } => {
                *self.declared.write() = declared.clone();
                *self.catalog.write() = Arc::new(Self::build(&self.keyer, declared));
            }
            Effect::PushAttached(_)
            | Effect::PushDetached(_)
            | Effect::PushAssigned(_)
            | Effect::PushForked(_)
            | Effect::RecordSkipped(..) => {
                *self.declared.write() = declared.clone();
            }
            _ => {}
        }
    }

    /// Returns what a declaration would do if it were applied now. `is_fixed` returns whether a store's declared
    /// existence can no longer be changed.
    ///
    /// # Errors
    /// If it would be refused.
    pub fn check(&self, spec: &StoreSpec, is_fixed: &dyn Fn(StoreId) -> bool) -> Result<Declaration, Refusal> {
        self.declared.read().check(spec, is_fixed)
    }

    /// Returns the current catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read())
    }

    /// Returns a store's declaration.
    pub fn declared(&self, store: StoreId) -> Option<DeclaredStore> {
        self.declared.read().store(store).cloned()
    }

    /// Returns why a store is detached, if it is.
    pub fn detached(&self, store: StoreId) -> Option<Detachment> {
        self.declared.read().store(store).and_then(|store| store.detached.clone())
    }

    /// Returns all stores, ascending id.
    pub fn all(&self) -> Vec<DeclaredStore> {
        self.declared.read().stores().cloned().collect()
    }
}

/// Committed records, from memory near the head, otherwise from the log.
#[derive(Clone)]
pub struct Records {
    /// Recent epochs.
    pub cache: Arc<EpochCache>,
    /// All other epochs.
    pub log: LogReader,
    /// Position of the head.
    pub progress: Arc<Progress>,
    /// This node and its sequencer's queue, if it is a member of a cluster: it may know less than its storages have
    /// seen.
    pub member: Option<(NodeId, Sender<Message>)>,
}

/// Why records are unavailable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoRecords {
    /// The log begins at this record.
    Truncated(Lsn),
    /// The log cannot be read.
    Unreadable(String),
}

impl Records {
    /// Returns the records after `after` up to the limit, or none. Blocks on the disk only if the first one
    /// exists and is not in memory: a reader at the head must not cost a thread switch per epoch.
    ///
    /// # Errors
    /// If the log has truncated the records, or cannot be read.
    pub fn page(&self, store: StoreId, after: Lsn, limit: ReadLimit) -> Result<RecordBatch, NoRecords> {
        let head = self.head_of(store);
        if after >= head {
            return Ok(RecordBatch { store, ..RecordBatch::default() });
        }
        let first = self.cache.following(store, after);
        let near = first.is_some();
        let read = || self.page_from(first, (store, after, head), limit);
        if near { read() } else { tokio::task::block_in_place(read) }
    }

    /// Reads a page of the records from `after` to `head`. `first` is its first epoch, if in memory.
    fn page_from(
        &self,
        mut first: Option<Arc<ResolvedEpoch>>,
        (store, after, head): (StoreId, Lsn, Lsn),
        limit: ReadLimit,
    ) -> Result<RecordBatch, NoRecords> {
        let mut page = RecordBatch { store, ..RecordBatch::default() };
        let mut next = after;
        while next < head && limit.has_room(&page) {
            let before = page.records.len();
            if let Some(epoch) = first.take().or_else(|| self.cache.following(store, next)) {
                records_of(&epoch.input, &epoch.outcome, store, next, &mut page, limit);
            } else {
                self.take_logged((store, next, head), &mut page, limit)?;
            }
            match page.records.last() {
                Some(last) if page.records.len() > before => next = last.lsn,
                _ => break,
            }
        }
        Ok(page)
    }

    fn head_of(&self, store: StoreId) -> Lsn {
        self.progress.store(store).map_or(Lsn(0), |progress| progress.head)
    }

    /// Returns whether the records after `after` are in memory, or do not exist yet.
    pub fn is_near(&self, store: StoreId, after: Lsn) -> bool {
        after >= self.head_of(store) || self.cache.following(store, after).is_some()
    }

    /// Returns the epoch of the first record after `after`; `None` if there is none, or it is truncated. May read the disk.
    #[must_use]
    pub fn epoch_after(&self, store: StoreId, after: Lsn) -> Option<Epoch> {
        if let Some(epoch) = self.cache.following(store, after) {
            return Some(epoch.outcome.epoch);
        }
        match self.log.locate(store, after) {
            Ok(Located::Epoch(epoch)) => Some(epoch),
            _ => None,
        }
    }

    /// Returns when the first retained record after `after` was committed, milliseconds of replicated time. May read
    /// the disk.
    #[must_use]
    pub fn time_after(&self, store: StoreId, after: Lsn) -> Option<u64> {
        let after = after.max(Lsn(self.oldest(store).0.saturating_sub(1)));
        if let Some(epoch) = self.cache.following(store, after) {
            return Some(epoch.input.epoch_time_ms);
        }
        let epoch = self.epoch_after(store, after)?;
        self.log.epoch(epoch).ok()?.map(|epoch| epoch.0.epoch_time_ms)
    }

    /// Returns the watermark of a storage that has applied everything up to `lsn`. May read the disk.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn watermark_at(&self, store: StoreId, lsn: Lsn) -> Result<Watermark, SourceError> {
        let digest = match self.point(store, lsn)? {
            LogPoint::Known(digest) => digest,
            LogPoint::Unknown | LogPoint::PastHead => Digest::default(),
        };
        Ok(Watermark { lsn, log: self.log.id(), digest })
    }

    /// Returns the identity of the log.
    #[must_use]
    pub fn log_id(&self) -> LogId {
        self.log.id()
    }

    /// Returns the oldest retained record.
    #[must_use]
    pub fn oldest(&self, store: StoreId) -> Lsn {
        self.log.oldest(store)
    }

    fn take_logged(
        &self,
        (store, after, head): (StoreId, Lsn, Lsn),
        page: &mut RecordBatch,
        limit: ReadLimit,
    ) -> Result<(), NoRecords> {
        let unreadable = |error: tribunal_log::LogError| NoRecords::Unreadable(error.to_string());
        match self.log.locate(store, after).map_err(unreadable)? {
            Located::Head => Ok(()),
            Located::Truncated { oldest } => Err(NoRecords::Truncated(oldest)),
            Located::Epoch(epoch) => {
                let mut add = |input: &EpochInput, outcome: &EpochOutcome| {
                    let due = page.bounds().map_or(after, |(_, last)| last).next();
                    if !has_record(outcome, store, due) {
                        return false;
                    }
                    records_of(input, outcome, store, after, page, limit);
                    let last = page.bounds().map(|(_, last)| last);
                    let goes_on = last_of(outcome, store) == last && last.is_some_and(|last| last < head);
                    goes_on && limit.has_room(page)
                };
                // An epoch that spans several pages is decoded once.
                let Some(first) = self.log.epoch(epoch).map_err(unreadable)? else {
                    return Err(NoRecords::Unreadable(format!("epoch {epoch} is indexed but not stored")));
                };
                if add(&first.0, &first.1) {
                    let mut pass = self.log.pass_over(store, epoch.next());
                    while let Some((input, outcome)) = pass.read().map_err(unreadable)? {
                        if !add(&input, &outcome) {
                            break;
                        }
                    }
                }
                Ok(())
            }
        }
    }
}

/// Returns whether an epoch has this record of a store. If a pass reaches one without the record that is due, the epochs
/// in between were truncated in the meantime.
fn has_record(outcome: &EpochOutcome, store: StoreId, lsn: Lsn) -> bool {
    outcome.lsns.iter().any(|at| at.store == store && at.lsn == lsn)
}

/// Returns the last record of a store in an epoch.
fn last_of(outcome: &EpochOutcome, store: StoreId) -> Option<Lsn> {
    outcome.lsns.iter().rfind(|at| at.store == store).map(|at| at.lsn)
}

impl LogSource for Records {
    fn read(&self, store: StoreId, after: Lsn, limit: ReadLimit) -> Pending<'_, Result<RecordBatch, SourceError>> {
        Box::pin(async move {
            let mut changes = self.progress.subscribe();
            loop {
                changes.borrow_and_update();
                match self.page(store, after, limit) {
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
        self.head_of(store)
    }

    fn oldest(&self, store: StoreId) -> Lsn {
        self.log.oldest(store)
    }

    fn catch_up(&self) -> Pending<'_, Result<(), SourceError>> {
        Box::pin(async move {
            let Some((_, sequencer)) = &self.member else { return Ok(()) };
            // A record pushed by any node belongs to an epoch that it has decided from committed entries.
            let (reply, fresh) = oneshot::channel();
            let _ = sequencer.send(Message::Fresh(reply));
            match tokio::time::timeout(CATCH_UP_TIMEOUT, fresh).await {
                Ok(Ok(Some(_))) => Ok(()),
                _ => Err(SourceError::Unavailable(
                    "the storage has records that this node does not know, and the node does not reach a majority of the \
                     cluster's nodes to get them"
                        .into(),
                )),
            }
        })
    }

    fn id(&self) -> LogId {
        self.log.id()
    }

    fn point(&self, store: StoreId, lsn: Lsn) -> Result<LogPoint, SourceError> {
        if lsn == Lsn(0) {
            return Ok(LogPoint::Unknown);
        }
        // A member that has just started may not know yet that everything in its log was committed.
        let is_ahead = lsn > LogSource::head(self, store);
        if is_ahead && self.member.is_none() {
            return Ok(LogPoint::PastHead);
        }
        if let Some(epoch) = self.cache.following(store, Lsn(lsn.0 - 1)) {
            return Ok(LogPoint::Known(epoch.outcome.digest));
        }
        match self.log.point(store, lsn) {
            Ok(PointInLog::Known { digest, .. }) => Ok(LogPoint::Known(digest)),
            Ok(PointInLog::Unknown) => Ok(LogPoint::Unknown),
            Ok(PointInLog::PastHead { .. }) if self.member.is_some() => {
                let reason = "this node has not caught up with the cluster yet";
                Err(SourceError::Unavailable(reason.to_owned()))
            }
            Ok(PointInLog::PastHead { .. }) => Ok(LogPoint::PastHead),
            Err(error) => Err(SourceError::Unavailable(error.to_string())),
        }
    }

    fn contains(&self, store: StoreId, watermark: &Watermark) -> Result<bool, SourceError> {
        let point = self.point(store, watermark.lsn)?;
        let is_common = point == LogPoint::Unknown && self.log.continues(watermark.log, store, watermark.lsn);
        Ok(is_common || point.is_of(watermark, LogSource::id(self)))
    }
}

impl EpochSource for Records {
    fn epochs_after(
        &self,
        store: StoreId,
        after: Lsn,
        take: &mut dyn FnMut(&EpochInput, &EpochOutcome) -> bool,
    ) -> Result<(), SourceError> {
        // A record that is only in memory would be lost with it: the log, which is the journal, no longer contains it.
        let oldest = self.log.oldest(store);
        if after.next() < oldest {
            return Err(SourceError::Truncated { oldest });
        }
        if let Some(epoch) = self.cache.following(store, after) {
            take(&epoch.input, &epoch.outcome);
            return Ok(());
        }
        let unreadable = |error: tribunal_log::LogError| SourceError::Unavailable(error.to_string());
        let first = match self.log.locate(store, after).map_err(unreadable)? {
            Located::Head => return Ok(()),
            Located::Truncated { oldest } => return Err(SourceError::Truncated { oldest }),
            Located::Epoch(epoch) => epoch,
        };
        let mut next = after.next();
        let mut pass = self.log.pass_over(store, first);
        while let Some((input, outcome)) = pass.read().map_err(unreadable)? {
            let Some(last) = last_of(&outcome, store) else { break };
            if !has_record(&outcome, store, next) || !take(&input, &outcome) {
                break;
            }
            next = last.next();
        }
        Ok(())
    }

    fn changed(&self, store: StoreId, after: Lsn) -> Pending<'_, ()> {
        Box::pin(async move {
            let Some(mut head) = self.progress.follow(store) else { return std::future::pending().await };
            let _ = head.wait_for(|head| *head > after).await;
        })
    }
}

/// Where to record that a storage has followed another history than the log. Belongs to the control entry that last declared or attached the
/// store.
pub enum Forks {
    /// Beside the data of this single node.
    Here(ForkFile, ControlIndex),
    /// In the control log, where every node finds it.
    InControlLog(ControlIndex),
}

/// Reports the progress of one store's storage to the sequencer. One per push, so that reports of an old push are
/// recognized as stale.
pub struct Acks {
    /// The sequencer's queue.
    pub messages: Sender<Message>,
    /// The control entry that started the push.
    pub push: ControlIndex,
    /// Reports that the sequencer has not taken yet.
    pub reports: Arc<PushReports>,
    /// Records that the storage has followed another history than the log.
    pub forks: Forks,
    /// The store's name in spans and log lines.
    pub name: String,
    /// The name of the store's tenant in log lines.
    pub namespace: String,
    /// The adaptor's name in spans and log lines.
    pub adaptor: String,
    /// Whether the store is embedded.
    pub embedded: bool,
    /// Creates spans, if traces are on.
    pub tracing: Option<Arc<Tracing>>,
    /// The newest record that the storage is known to have acknowledged.
    pub known: AtomicU64,
}

impl Acks {
    fn report(&self, store: StoreId, add: impl FnOnce(&mut PushReport)) {
        if self.reports.add(add) {
            let _ = self.messages.send(Message::PushReported(store, self.push, Arc::clone(&self.reports)));
        }
    }
}

impl AckSink for Acks {
    fn acked(&self, store: StoreId, lsn: Lsn) {
        self.known.store(lsn.0, Ordering::Relaxed);
        self.report(store, |newest| newest.acked = Some(lsn));
    }

    fn rewound(&self, store: StoreId, lsn: Lsn) {
        if lsn.0 < self.known.swap(lsn.0, Ordering::Relaxed) {
            tracing::warn!(
                namespace = self.namespace,
                store = self.name,
                store_id = store.0,
                lsn = lsn.0,
                "the storage has lost acknowledged records; pushing those after this LSN again"
            );
        }
        // It was opened all the same, and damage found before remains.
        self.report(store, |newest| {
            let PushReport { opened, damaged, .. } = *newest;
            *newest = PushReport { opened, rewound: Some(lsn), damaged, ..PushReport::default() };
        });
    }

    fn forked(&self, store: StoreId, fork: Option<Lsn>) {
        match &self.forks {
            Forks::Here(file, generation) => file.write(*generation, fork),
            Forks::InControlLog(generation) => {
                let change = ControlChange::ForkPush { store, generation: *generation, fork };
                // The reply is not needed: the next node to push finds out itself, unless the log has grown meanwhile.
                let _ = self.messages.send(Message::Control(change, oneshot::channel().0));
            }
        }
    }

    fn failed(&self, store: StoreId, text: &str) {
        let (namespace, adaptor) = (&self.namespace, &self.adaptor);
        tracing::error!(namespace, store = self.name, store_id = store.0, adaptor, text, "pushing stopped");
        self.report(store, |newest| newest.stopped = true);
    }

    fn out_of_use(&self, store: StoreId) {
        self.report(store, |newest| newest.stopped = true);
    }

    fn opened(&self, store: StoreId) {
        self.report(store, |newest| *newest = PushReport { opened: true, ..PushReport::default() });
    }

    fn damaged(&self, store: StoreId) {
        self.report(store, |newest| newest.damaged = true);
    }

    fn interrupted(&self, store: StoreId, text: &str) {
        let (namespace, adaptor) = (&self.namespace, &self.adaptor);
        tracing::warn!(
            namespace,
            store = self.name,
            store_id = store.0,
            adaptor,
            text,
            "the storage cannot be pushed to; trying again"
        );
    }

    fn restored(&self, store: StoreId) {
        let (namespace, what) = (&self.namespace, "the storage is pushed to again");
        let what = if self.embedded { "the embedded store works again" } else { what };
        tracing::info!(namespace, store = self.name, store_id = store.0, "{what}");
    }

    fn watch(&self, batch: &RecordBatch) -> Option<Box<dyn PushWatch>> {
        self.tracing.as_ref().and_then(|tracing| PushTraces::of(tracing, &self.name, batch))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_has_one_message_in_the_queue_and_a_fall_back_outweighs_what_was_acknowledged_before() {
        let (messages, queue) = crossbeam_channel::unbounded();
        let dir = tempfile::tempdir().expect("a directory");
        let forks = Forks::Here(ForkFile::new(dir.path(), StoreId(1)), ControlIndex(3));
        let (name, adaptor, reports) = ("orders".into(), "redis".into(), Arc::default());
        let known = AtomicU64::new(0);
        let namespace = String::new();
        let acks = Acks {
            messages,
            push: ControlIndex(3),
            reports,
            forks,
            name,
            namespace,
            adaptor,
            embedded: false,
            tracing: None,
            known,
        };
        let taken = || match queue.try_recv() {
            Ok(Message::PushReported(store, push, reports)) => Some((store, push, reports.take())),
            _ => None,
        };
        acks.rewound(StoreId(1), Lsn(2));
        (3..=9).for_each(|lsn| acks.acked(StoreId(1), Lsn(lsn)));
        let report = PushReport { rewound: Some(Lsn(2)), acked: Some(Lsn(9)), ..PushReport::default() };
        assert_eq!(taken(), Some((StoreId(1), ControlIndex(3), report)));
        assert_eq!(taken(), None, "one message for all of them");
        acks.opened(StoreId(1));
        acks.damaged(StoreId(1));
        acks.rewound(StoreId(1), Lsn(5));
        let report = PushReport { opened: true, rewound: Some(Lsn(5)), damaged: true, ..PushReport::default() };
        assert_eq!(taken(), Some((StoreId(1), ControlIndex(3), report)), "what it was opened with is not lost");
        acks.acked(StoreId(1), Lsn(10));
        acks.rewound(StoreId(1), Lsn(4));
        let report = PushReport { rewound: Some(Lsn(4)), ..PushReport::default() };
        assert_eq!(taken(), Some((StoreId(1), ControlIndex(3), report)));
    }
}
