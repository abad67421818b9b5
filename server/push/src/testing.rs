//! Shared by this crate's tests and benches: temporary directories, and a log in memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;
use tribunal_push::{EpochSource, LogPoint, LogSource, Pending, ReadLimit, SourceError};
use tribunal_types::{
    Batch, Csn, Decision, Digest, Epoch, EpochInput, EpochOutcome, LogId, Lsn, RecordBatch, RowKey, Span, StoreId,
    StoreLsn, TxnId, TxnIx, TxnRequest, Version, Write, WriteKind,
};

/// The only store of the log.
pub(crate) const STORE: StoreId = StoreId(1);

/// A directory removed with its content when dropped.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("tribunal-{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(unique);
        // Leftover of a killed process with the same id.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("the temporary directory is writable");
        TempDir(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A log of one store in memory. Each commit is a separate epoch, with the number of its record.
#[derive(Default)]
pub(crate) struct MemoryLog(RwLock<Vec<Arc<(EpochInput, EpochOutcome)>>>);

impl MemoryLog {
    pub(crate) fn new() -> Arc<MemoryLog> {
        Arc::default()
    }

    /// Appends a record with these rows. Returns its LSN.
    pub(crate) fn commit(&self, rows: &[(WriteKind, &str, &str)]) -> Lsn {
        self.commit_all(&[rows])
    }

    /// Appends an epoch with one record per transaction. Returns the LSN of the last one.
    pub(crate) fn commit_all(&self, txns: &[&[(WriteKind, &str, &str)]]) -> Lsn {
        let mut epochs = self.0.write();
        let epoch = Epoch(epochs.len() as u64 + 1);
        let first = epochs.last().and_then(|last| last.1.lsns.last()).map_or(Lsn(1), |last| last.lsn.next());
        let mut batch = Batch::default();
        let mut outcome = EpochOutcome { epoch, digest: Digest(epoch.0), ..EpochOutcome::default() };
        for (n, rows) in txns.iter().enumerate() {
            let mut txn = TxnRequest { id: TxnId([1; 16]), ..TxnRequest::default() };
            for (kind, key, value) in *rows {
                let key = Span::push(&mut txn.keys, key.as_bytes());
                let value = Span::push(&mut txn.values, value.as_bytes());
                let (row, kind) = (RowKey::default(), *kind);
                txn.writes.push(Write { row, store: STORE, key, value, kind, integer: false, start_len: 0 });
            }
            batch.push(&txn, Csn(n as u64));
            let version = Version::new(epoch, n as u32).expect("fits");
            outcome.decisions.push(Decision::Committed { version });
            outcome.lsns.push(StoreLsn { txn: TxnIx(n as u32), store: STORE, lsn: Lsn(first.0 + n as u64) });
        }
        let last = Lsn(first.0 + txns.len() as u64 - 1);
        let input = EpochInput { epoch, epoch_time_ms: 0, batches: vec![Arc::new(batch)] };
        epochs.push(Arc::new((input, outcome)));
        last
    }

    fn find(&self, after: Lsn) -> Option<Arc<(EpochInput, EpochOutcome)>> {
        let epochs = self.0.read();
        let last = |epoch: &Arc<(EpochInput, EpochOutcome)>| epoch.1.lsns.last().map_or(Lsn(0), |last| last.lsn);
        epochs.get(epochs.partition_point(|epoch| last(epoch) <= after)).cloned()
    }
}

impl LogSource for MemoryLog {
    fn read(&self, _: StoreId, _: Lsn, _: ReadLimit) -> Pending<'_, Result<RecordBatch, SourceError>> {
        Box::pin(async { Err(SourceError::Unavailable("only epochs are read here".into())) })
    }

    fn head(&self, _: StoreId) -> Lsn {
        let epochs = self.0.read();
        epochs.last().and_then(|last| last.1.lsns.last()).map_or(Lsn(0), |last| last.lsn)
    }

    fn oldest(&self, _: StoreId) -> Lsn {
        Lsn(1)
    }

    fn id(&self) -> LogId {
        LogId([7; 16])
    }

    fn point(&self, _: StoreId, lsn: Lsn) -> Result<LogPoint, SourceError> {
        let epoch = lsn.0.checked_sub(1).and_then(|before| self.find(Lsn(before)));
        Ok(epoch.map_or(LogPoint::Unknown, |epoch| LogPoint::Known(epoch.1.digest)))
    }
}

impl EpochSource for MemoryLog {
    fn epochs_after(
        &self,
        _: StoreId,
        mut after: Lsn,
        take: &mut dyn FnMut(&EpochInput, &EpochOutcome) -> bool,
    ) -> Result<(), SourceError> {
        while let Some(epoch) = self.find(after).filter(|epoch| take(&epoch.0, &epoch.1)) {
            after = epoch.1.lsns.last().map_or(after, |last| last.lsn);
        }
        Ok(())
    }

    fn changed(&self, _: StoreId, _: Lsn) -> Pending<'_, ()> {
        Box::pin(std::future::pending())
    }
}
