//! An in-memory log with records of many kinds, the state of a storage that has applied it, and a sink that records
//! events.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;
use tribunal_push::{AckSink, LogPoint, LogSource, Pending, ReadLimit, SourceError};
use tribunal_types::{
    Csn, Digest, Epoch, LogId, Lsn, RecordBatch, RecordHead, RecordWrite, Span, StoreId, TxnId, Version, WriteKind,
};

pub const STORE: StoreId = StoreId(3);

pub type TestWrite = (WriteKind, String, String);

/// Records by LSN - 1.
pub struct MemoryLog {
    records: Mutex<Vec<Vec<TestWrite>>>,
    head: watch::Sender<u64>,
    pub largest_read: AtomicUsize,
    /// Records that the log receives only when it is asked to catch up.
    pub late: AtomicU64,
    /// Added to the arrival stamps of all records: distinguishes histories.
    pub stamps: AtomicU64,
    /// The oldest record that has not been truncated.
    pub oldest: AtomicU64,
}

impl MemoryLog {
    pub fn new() -> Self {
        let (records, head) = (Mutex::default(), watch::Sender::new(0));
        let (late, stamps, oldest) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(1));
        MemoryLog { records, head, largest_read: AtomicUsize::new(0), late, stamps, oldest }
    }

    pub fn append(&self, writes: Vec<TestWrite>) {
        self.records.lock().push(writes);
        self.head.send_modify(|head| *head += 1);
    }

    /// Appends records of puts, deletes and adds over a few hundred rows.
    pub fn append_many(&self, count: u64) {
        for _ in 0..count {
            let n = *self.head.borrow();
            self.append(vec![
                (WriteKind::Put, format!("row/{}", n * 7 % 331), format!("{{\"n\":{n}}}")),
                (if n == 0 { WriteKind::Insert } else { WriteKind::Add }, "counter".to_owned(), n.to_string()),
                match n % 5 {
                    0 => (WriteKind::Put, format!("temp/{}", n % 50), "true".to_owned()),
                    _ => (WriteKind::Delete, format!("temp/{}", n % 50), String::new()),
                },
            ]);
        }
    }

    /// Replays the log: key to version and value.
    pub fn state(&self) -> BTreeMap<String, String> {
        let mut rows: BTreeMap<String, (u64, String)> = BTreeMap::new();
        for (index, writes) in self.records.lock().iter().enumerate() {
            for (kind, key, value) in writes {
                let version = version(Lsn(index as u64 + 1)).bits();
                match kind {
                    WriteKind::Delete => drop(rows.remove(key)),
                    WriteKind::Add => {
                        let row = rows.get_mut(key).expect("adds follow an insert");
                        let sum = row.1.parse::<i64>().expect("a number") + value.parse::<i64>().expect("a number");
                        *row = (version, sum.to_string());
                    }
                    _ => drop(rows.insert(key.clone(), (version, value.clone()))),
                }
            }
        }
        rows.into_iter().map(|(key, (version, value))| (key, format!("{version} {value}"))).collect()
    }
}

pub fn version(lsn: Lsn) -> Version {
    Version::new(Epoch(lsn.0), 0).expect("a small epoch")
}

impl LogSource for MemoryLog {
    fn read(&self, store: StoreId, after: Lsn, limit: ReadLimit) -> Pending<'_, Result<RecordBatch, SourceError>> {
        Box::pin(async move {
            let mut head = self.head.subscribe();
            head.wait_for(|head| *head > after.0).await.expect("the log outlives its readers");
            let oldest = self.oldest(store);
            if after.next() < oldest {
                return Err(SourceError::Truncated { oldest });
            }
            let mut batch = RecordBatch { store, ..RecordBatch::default() };
            let records = self.records.lock();
            for (index, writes) in records.iter().enumerate().skip(after.0 as usize).take(limit.records_max) {
                for (kind, key, value) in writes {
                    let key = Span::push(&mut batch.bytes, key.as_bytes());
                    let value = Span::push(&mut batch.bytes, value.as_bytes());
                    batch.writes.push(RecordWrite { kind: *kind, key, value });
                }
                let lsn = Lsn(index as u64 + 1);
                batch.records.push(RecordHead {
                    lsn,
                    epoch: Epoch(lsn.0),
                    csn: Csn(lsn.0 + self.stamps.load(Ordering::Relaxed)),
                    version: version(lsn),
                    txn_id: TxnId::default(),
                    writes_end: batch.writes.len() as u32,
                    traceparent: Span::default(),
                });
                if batch.bytes.len() >= limit.bytes_max {
                    break;
                }
            }
            self.largest_read.fetch_max(batch.records.len(), Ordering::Relaxed);
            Ok(batch)
        })
    }

    fn head(&self, _store: StoreId) -> Lsn {
        Lsn(*self.head.borrow())
    }

    fn oldest(&self, _store: StoreId) -> Lsn {
        Lsn(self.oldest.load(Ordering::Relaxed))
    }

    fn catch_up(&self) -> Pending<'_, Result<(), SourceError>> {
        self.append_many(self.late.swap(0, Ordering::Relaxed));
        Box::pin(std::future::ready(Ok(())))
    }

    fn id(&self) -> LogId {
        LogId([3; 16])
    }

    fn point(&self, store: StoreId, lsn: Lsn) -> Result<LogPoint, SourceError> {
        Ok(match lsn {
            Lsn(0) => LogPoint::Unknown,
            lsn if lsn > self.head(store) => LogPoint::PastHead,
            Lsn(lsn) => LogPoint::Known(Digest(lsn)),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Acked(Lsn),
    Rewound(Lsn),
    Forked(Option<Lsn>),
    Failed(String),
    Interrupted,
    Restored,
}

#[derive(Default)]
pub struct Events(Mutex<Vec<Event>>);

impl Events {
    pub fn all(&self) -> Vec<Event> {
        self.0.lock().clone()
    }
}

impl AckSink for Events {
    fn forked(&self, _store: StoreId, fork: Option<Lsn>) {
        self.0.lock().push(Event::Forked(fork));
    }

    fn acked(&self, _store: StoreId, lsn: Lsn) {
        self.0.lock().push(Event::Acked(lsn));
    }

    fn rewound(&self, _store: StoreId, lsn: Lsn) {
        self.0.lock().push(Event::Rewound(lsn));
    }

    fn failed(&self, _store: StoreId, text: &str) {
        self.0.lock().push(Event::Failed(text.to_owned()));
    }

    fn interrupted(&self, _: StoreId, _: &str) {
        self.0.lock().push(Event::Interrupted);
    }

    fn restored(&self, _: StoreId) {
        self.0.lock().push(Event::Restored);
    }
}
