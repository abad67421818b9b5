//! A storage and a log that was restored from an older copy and has passed the storage's watermark: the record there tells
//! whether both have the same history. What cannot be compared is pushed to as before.

#[path = "redis/log.rs"]
#[expect(dead_code, reason = "a real storage is asked for more")]
mod log;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tribunal_push::{
    Adaptor, AdaptorFault, AttachPlace, AttachRefusal, Attachment, Pending, PushActivity, PushHandle, PushOptions,
    PushParts, Pusher, ReadLimit, StorageDurability, Transport, TransportError,
};
use tribunal_types::{Ack, Command, Csn, Lsn, PushRequest, RecordBatch, RecordId, StorageReply, TxnId};

use log::{Event, Events, MemoryLog, STORE};

/// Sends the ends of a batch as two numbers, and the arrival stamp of its last record as a third one. The reply to no
/// numbers is the watermark, and the last record's position and stamp.
#[derive(Default)]
struct Plain {
    /// Calls that asked for the last record.
    asked: AtomicUsize,
    /// Whether it does not know the last record, as an adaptor of an earlier release.
    is_older: bool,
}

fn bytes(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|number| u64::from_be_bytes(number.try_into().expect("eight bytes"))).collect()
}

fn told(reply: &StorageReply) -> Result<[u64; 3], AdaptorFault> {
    let StorageReply::Raw(reply) = reply else { return Err(AdaptorFault::new("no bytes")) };
    numbers(reply).try_into().map_err(|_| AdaptorFault::new("not three numbers"))
}

impl Adaptor for Plain {
    fn watermark(&self) -> Result<PushRequest, AdaptorFault> {
        let (first, last, idempotency_key) = (Lsn(0), Lsn(0), String::new());
        Ok(PushRequest { first, last, idempotency_key, command: Command::Raw(Vec::new()) })
    }

    fn read_watermark(&self, reply: &StorageReply) -> Result<Lsn, AdaptorFault> {
        told(reply).map(|[at, ..]| Lsn(at))
    }

    fn last_record(&self, reply: &StorageReply) -> Result<Option<RecordId>, AdaptorFault> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let [_, lsn, csn] = told(reply)?;
        let record = RecordId { lsn: Lsn(lsn), csn: Csn(csn), txn_id: TxnId::default() };
        Ok((!self.is_older && lsn > 0).then_some(record))
    }

    fn encode(&self, records: &RecordBatch) -> Result<Vec<PushRequest>, AdaptorFault> {
        let (first, last) = records.bounds().expect("records");
        let csn = records.records.last().expect("records").csn;
        let command = Command::Raw(bytes(&[first.0, last.0, csn.0]));
        Ok(vec![PushRequest { first, last, idempotency_key: String::new(), command }])
    }

    fn classify(&self, _: &StorageReply) -> Ack {
        Ack::Ok
    }
}

/// A storage that contains only a watermark, and the position and stamp of the last record.
#[derive(Default)]
struct Memory(Mutex<[u64; 3]>);

impl Memory {
    fn at(numbers: [u64; 3]) -> Arc<Memory> {
        Arc::new(Memory(Mutex::new(numbers)))
    }
}

impl Transport for Memory {
    fn connect(&self) -> Pending<'_, Result<StorageDurability, TransportError>> {
        Box::pin(async { Ok(StorageDurability::Always) })
    }

    fn send(&self, command: Command) -> Pending<'_, Result<StorageReply, TransportError>> {
        Box::pin(async move {
            let Command::Raw(sent) = command else { panic!("not the adaptor's") };
            let mut state = self.0.lock();
            match numbers(&sent)[..] {
                [] => return Ok(StorageReply::Raw(bytes(&*state))),
                [first, last, csn] if first == state[0] + 1 => *state = [last, last, csn],
                ref other => panic!("{other:?} after {state:?}"),
            }
            Ok(StorageReply::Raw(Vec::new()))
        })
    }
}

/// A log of `records` records, whose arrival stamps are `stamps` more than their positions.
fn log_of(records: u64, stamps: u64) -> Arc<MemoryLog> {
    let log = Arc::new(MemoryLog::new());
    log.stamps.store(stamps, Ordering::Relaxed);
    log.append_many(records);
    log
}

struct Push {
    events: Arc<Events>,
    handle: PushHandle,
    shutdown: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

fn push(adaptor: &Arc<Plain>, log: &Arc<MemoryLog>, storage: &Arc<Memory>, fork: Option<Lsn>) -> Push {
    let events = Arc::new(Events::default());
    let (pusher, handle) = Pusher::new(PushParts {
        store: STORE,
        adaptor: adaptor.clone(),
        source: log.clone(),
        transport: storage.clone(),
        fork,
        sink: events.clone(),
        options: PushOptions {
            limit: ReadLimit { records_max: 4, bytes_max: 1 << 20 },
            backoff_min: Duration::from_millis(1),
            backoff_max: Duration::from_millis(5),
            pace: Duration::from_millis(1),
            heartbeat: Duration::from_millis(5),
        },
    });
    let (shutdown, ended) = oneshot::channel::<()>();
    let task = tokio::spawn(pusher.run(async {
        let _ = ended.await;
    }));
    Push { events, handle, shutdown, task }
}

impl Push {
    async fn until(&self, activity: PushActivity) {
        let until = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            let status = self.handle.status();
            if status.activity == activity && (activity != PushActivity::Idle || status.lag == 0) {
                return;
            }
            assert!(tokio::time::Instant::now() < until, "not in time: {status:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn forks(&self) -> Vec<Event> {
        self.events.all().into_iter().filter(|event| matches!(event, Event::Forked(_))).collect()
    }

    async fn end(self) {
        drop(self.shutdown);
        self.task.await.expect("it ends without a panic");
    }
}

#[tokio::test]
async fn a_storage_whose_last_record_is_the_logs_is_pushed_to() {
    let (adaptor, storage, log) = (Arc::new(Plain::default()), Arc::new(Memory::default()), log_of(10, 500));
    let first = push(&adaptor, &log, &storage, None);
    first.until(PushActivity::Idle).await;
    first.end().await;
    assert_eq!((*storage.0.lock(), adaptor.asked.load(Ordering::Relaxed)), ([10, 10, 510], 0), "an empty one has none");

    log.append_many(5);
    let second = push(&adaptor, &log, &storage, None);
    second.until(PushActivity::Idle).await;
    // Ten heartbeats, during which nothing is compared: the push itself has moved the storage there.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!((*storage.0.lock(), adaptor.asked.load(Ordering::Relaxed)), ([15, 15, 515], 1));
    assert_eq!(second.forks(), []);
    second.end().await;
}

#[tokio::test]
async fn a_storage_with_another_record_at_its_position_is_not_pushed_to() {
    let (adaptor, storage) = (Arc::new(Plain::default()), Memory::at([10, 10, 510]));
    let log = log_of(15, 900);
    let first = push(&adaptor, &log, &storage, None);
    first.until(PushActivity::Stopped).await;
    let error = first.handle.status().last_error.expect("an error");
    assert!(error.contains("LSN 10") && error.contains("LSN 9") && error.contains("Empty it"), "{error}");
    first.handle.resume();
    first.until(PushActivity::Stopped).await;
    assert_eq!(first.forks(), [Event::Forked(Some(Lsn(9)))]);
    first.end().await;
    // The fork outlasts the record that showed it.
    log.oldest.store(12, Ordering::Relaxed);
    let second = push(&adaptor, &log, &storage, Some(Lsn(9)));
    second.until(PushActivity::Stopped).await;
    assert_eq!((*storage.0.lock(), second.forks()), ([10, 10, 510], Vec::new()), "it is as it was");
    log.oldest.store(1, Ordering::Relaxed);
    // A backup of the storage from before the fork; the record there shows that it is.
    *storage.0.lock() = [6, 6, 906];
    second.handle.resume();
    second.until(PushActivity::Idle).await;
    assert_eq!((*storage.0.lock(), second.forks()), ([15, 15, 915], vec![Event::Forked(None)]));
    second.end().await;
}

#[tokio::test]
async fn a_fork_is_found_at_the_oldest_record_that_differs() {
    let (adaptor, storage, log) = (Arc::new(Plain::default()), Memory::at([10, 10, 510]), log_of(15, 900));
    let push = push(&adaptor, &log, &storage, None);
    push.until(PushActivity::Stopped).await;
    *storage.0.lock() = [6, 6, 506];
    push.handle.resume();
    let forks = [Event::Forked(Some(Lsn(9))), Event::Forked(Some(Lsn(5)))];
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    while push.forks() != forks {
        assert!(tokio::time::Instant::now() < until, "{:?}", push.forks());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    push.until(PushActivity::Stopped).await;
    *storage.0.lock() = [0, 0, 0];
    push.handle.resume();
    push.until(PushActivity::Idle).await;
    assert_eq!((*storage.0.lock(), push.forks().last()), ([15, 15, 915], Some(&Event::Forked(None))));
    push.end().await;
}

#[tokio::test]
async fn what_cannot_be_compared_is_pushed_to_as_before() {
    for (why, storage, is_older, oldest) in [
        ("the storage has never kept a record", [10, 0, 0], false, 1),
        ("an earlier release has moved the watermark", [10, 7, 507], false, 1),
        ("attaching has moved the watermark", [10, 10, 0], false, 1),
        ("the adaptor is of an earlier release", [10, 10, 510], true, 1),
        ("the record has been truncated", [10, 10, 510], false, 11),
    ] {
        let adaptor = Arc::new(Plain { is_older, ..Plain::default() });
        let (storage, log) = (Memory::at(storage), log_of(15, 900));
        log.oldest.store(oldest, Ordering::Relaxed);
        let push = push(&adaptor, &log, &storage, None);
        push.until(PushActivity::Idle).await;
        assert_eq!((*storage.0.lock(), push.forks()), ([15, 15, 915], Vec::new()), "{why}");
        push.end().await;
    }
}

#[tokio::test]
async fn a_storage_of_another_history_is_not_attached() {
    let place = AttachPlace { head: Lsn(15), oldest: Lsn(1), fork: None, loaded: None };
    for (storage, loaded, expected) in [
        ([10, 10, 510], None, Err(AttachRefusal::Foreign { at: Lsn(10), head: Lsn(15) })),
        ([10, 10, 510], Some(Lsn(12)), Err(AttachRefusal::Foreign { at: Lsn(10), head: Lsn(15) })),
        ([10, 10, 910], None, Ok(Lsn(10))),
        ([10, 10, 910], Some(Lsn(12)), Ok(Lsn(12))),
        ([10, 7, 507], None, Ok(Lsn(10))),
        ([0, 0, 0], Some(Lsn(12)), Ok(Lsn(12))),
    ] {
        let before = storage;
        let (adaptor, storage, source) = (Arc::new(Plain::default()), Memory::at(storage), log_of(15, 900));
        let place = AttachPlace { loaded, ..place };
        let attachment = Attachment { store: STORE, adaptor, transport: storage.clone(), source, place };
        assert_eq!(attachment.prepare().await, expected, "{before:?} {loaded:?}");
        let moved = loaded.filter(|_| expected.is_ok()).map_or(before, |loaded| [loaded.0, loaded.0, 0]);
        assert_eq!(*storage.0.lock(), moved, "{before:?} {loaded:?}");
    }
}
