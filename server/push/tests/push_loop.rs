//! The push loop with an in-memory storage and adaptor: an overloaded storage, a worn connection, a blocking adaptor.

#[path = "redis/log.rs"]
#[expect(dead_code, reason = "a real storage is asked for more")]
mod log;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tribunal_push::{
    Adaptor, AdaptorFault, AttachPlace, Attachment, Pending, PushActivity, PushHandle, PushOptions, PushParts,
    PushStatus, Pusher, ReadLimit, StorageDurability, Transport, TransportError,
};
use tribunal_types::{Ack, Command, Lsn, PushRequest, RecordBatch, StorageReply};

use log::{Event, Events, MemoryLog, STORE};

/// Sends the bounds of a batch as bytes; the reply is the watermark, `later` or nothing.
#[derive(Default)]
struct Plain {
    /// Blocks calls until they are released.
    gate: Option<Mutex<mpsc::Receiver<()>>>,
    /// Calls that were not released in time.
    stuck: AtomicUsize,
}

impl Plain {
    fn wait(&self) {
        let late = self.gate.as_ref().is_some_and(|gate| gate.lock().recv_timeout(Duration::from_secs(5)).is_err());
        self.stuck.fetch_add(usize::from(late), Ordering::Relaxed);
    }
}

fn request(first: Lsn, last: Lsn) -> PushRequest {
    let command = Command::Raw([first.0.to_be_bytes(), last.0.to_be_bytes()].concat());
    PushRequest { first, last, idempotency_key: String::new(), command }
}

impl Adaptor for Plain {
    fn watermark(&self) -> Result<PushRequest, AdaptorFault> {
        self.wait();
        Ok(request(Lsn(0), Lsn(0)))
    }

    fn read_watermark(&self, reply: &StorageReply) -> Result<Lsn, AdaptorFault> {
        self.wait();
        let StorageReply::Raw(bytes) = reply else { return Err(AdaptorFault::new("no bytes")) };
        let lsn = bytes.as_slice().try_into().map_err(|_| AdaptorFault::new("not eight bytes"))?;
        Ok(Lsn(u64::from_be_bytes(lsn)))
    }

    fn encode(&self, records: &RecordBatch) -> Result<Vec<PushRequest>, AdaptorFault> {
        self.wait();
        let (first, last) = records.bounds().expect("records");
        Ok(vec![request(first, last)])
    }

    fn classify(&self, reply: &StorageReply) -> Ack {
        self.wait();
        match reply {
            StorageReply::Raw(bytes) if bytes == b"later" => Ack::Retry("later".to_owned()),
            _ => Ack::Ok,
        }
    }
}

/// A storage's reaction to more records than it can apply at once.
#[derive(Clone, Copy, Debug)]
enum Overload {
    TimesOut,
    SaysLater,
    /// It does not take the command at all.
    SpeaksAnother,
}

/// A storage that contains only a watermark.
struct Memory {
    at: AtomicU64,
    /// Maximum records that it can apply at once.
    most: AtomicU64,
    overload: Overload,
    connections: AtomicUsize,
    sent: AtomicUsize,
    /// Requests per connection until it is worn.
    wears_after: usize,
    /// Whether it has forgotten everything whenever its watermark is read.
    forgets: AtomicBool,
}

impl Memory {
    fn new(most: u64, overload: Overload, wears_after: usize) -> Arc<Memory> {
        let (at, most) = (AtomicU64::new(0), AtomicU64::new(most));
        let (connections, sent, forgets) = Default::default();
        Arc::new(Memory { at, most, overload, connections, sent, wears_after, forgets })
    }
}

impl Transport for Memory {
    fn connect(&self) -> Pending<'_, Result<StorageDurability, TransportError>> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.sent.store(0, Ordering::Relaxed);
        Box::pin(async { Ok(StorageDurability::Always) })
    }

    fn send(&self, command: Command) -> Pending<'_, Result<StorageReply, TransportError>> {
        Box::pin(async move {
            self.sent.fetch_add(1, Ordering::Relaxed);
            let Command::Raw(bounds) = command else { panic!("not the adaptor's") };
            let of = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
            let (first, last) = (of(&bounds[..8]), of(&bounds[8..]));
            if first == 0 {
                if self.forgets.load(Ordering::Relaxed) {
                    self.at.store(0, Ordering::Relaxed);
                }
                return Ok(StorageReply::Raw(self.at.load(Ordering::Relaxed).to_be_bytes().to_vec()));
            }
            assert_eq!(first, self.at.load(Ordering::Relaxed) + 1, "no record twice, none left out");
            let is_too_much = last - first >= self.most.load(Ordering::Relaxed);
            match self.overload {
                Overload::TimesOut if is_too_much => Err(TransportError::Timeout { ms: 1 }),
                Overload::SaysLater if is_too_much => Ok(StorageReply::Raw(b"later".to_vec())),
                Overload::SpeaksAnother if is_too_much => Err(TransportError::WrongCommand("it takes others only")),
                _ => {
                    self.at.store(last, Ordering::Relaxed);
                    Ok(StorageReply::Raw(Vec::new()))
                }
            }
        })
    }

    fn is_worn(&self) -> bool {
        self.sent.load(Ordering::Relaxed) >= self.wears_after
    }
}

struct Push {
    log: Arc<MemoryLog>,
    events: Arc<Events>,
    handle: PushHandle,
    shutdown: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

fn push(adaptor: Arc<Plain>, storage: Arc<Memory>, records_max: usize) -> Push {
    let (log, events) = (Arc::new(MemoryLog::new()), Arc::new(Events::default()));
    let (pusher, handle) = Pusher::new(PushParts {
        store: STORE,
        adaptor,
        source: log.clone(),
        transport: storage,
        fork: None,
        sink: events.clone(),
        options: PushOptions {
            limit: ReadLimit { records_max, bytes_max: 1 << 20 },
            backoff_min: Duration::from_millis(1),
            backoff_max: Duration::from_millis(5),
            pace: Duration::from_millis(1),
            heartbeat: Duration::from_millis(500),
        },
    });
    let (shutdown, ended) = oneshot::channel::<()>();
    let task = tokio::spawn(pusher.run(async {
        let _ = ended.await;
    }));
    Push { log, events, handle, shutdown, task }
}

async fn ended(push: Push) {
    drop(push.shutdown);
    push.task.await.expect("it ends without a panic");
}

async fn caught_up(push: &Push) {
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let status = push.handle.status();
        if status.lag == 0 && status.activity == PushActivity::Idle {
            return;
        }
        assert!(tokio::time::Instant::now() < until, "not in time: {status:?}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_batch_that_is_too_much_for_its_storage_is_split() {
    for overload in [Overload::TimesOut, Overload::SaysLater] {
        let storage = Memory::new(3, overload, usize::MAX);
        let push = push(Arc::new(Plain::default()), Arc::clone(&storage), 100);
        push.log.append_many(300);
        caught_up(&push).await;
        assert_eq!(storage.at.load(Ordering::Relaxed), 300, "{overload:?}");
        assert_eq!(push.log.largest_read.load(Ordering::Relaxed), 100, "{overload:?}: it began with whole batches");
    }
}

#[tokio::test]
async fn a_storage_that_recovers_gets_whole_batches_again() {
    let storage = Memory::new(3, Overload::TimesOut, usize::MAX);
    let push = push(Arc::new(Plain::default()), Arc::clone(&storage), 100);
    push.log.append_many(300);
    caught_up(&push).await;
    storage.most.store(1000, Ordering::Relaxed);
    push.log.append_many(3000);
    caught_up(&push).await;
    assert_eq!(push.log.largest_read.load(Ordering::Relaxed), 100);
}

async fn until(push: &Push, what: &str, is_so: impl Fn(&PushStatus) -> bool) -> PushStatus {
    let end = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let status = push.handle.status();
        if is_so(&status) {
            return status;
        }
        assert!(tokio::time::Instant::now() < end, "{what} not in time: {status:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_storage_that_never_keeps_its_watermark_is_not_shown_as_one_that_works() {
    let storage = Memory::new(100, Overload::TimesOut, usize::MAX);
    let push = push(Arc::new(Plain::default()), Arc::clone(&storage), 10);
    push.log.append_many(30);
    caught_up(&push).await;
    // Once: it was restarted without its rows.
    let forgets = |forgets| storage.forgets.store(forgets, Ordering::Relaxed);
    forgets(true);
    until(&push, "the loss", |status| status.rewinds == 1).await;
    forgets(false);
    caught_up(&push).await;
    assert!(!push.events.all().contains(&Event::Interrupted), "the push just went on");
    // It never keeps anything.
    until(&push, "a watermark that was kept", |_| storage.sent.load(Ordering::Relaxed) > 8).await;
    forgets(true);
    let failing = until(&push, "the error", |status| status.last_error.is_some()).await;
    assert!(failing.last_error.is_some_and(|error| error.contains("does not keep what it acknowledges")));
    let rewinds = failing.rewinds;
    let failing = until(&push, "more losses", |status| status.rewinds > rewinds + 2).await;
    assert!(failing.attempts > 2 && failing.last_error.is_some(), "it has not looked well in between: {failing:?}");
    assert!(push.events.all().contains(&Event::Interrupted));
    forgets(false);
    let works = until(&push, "the end of it", |status| status.activity == PushActivity::Idle).await;
    assert_eq!((works.last_error, works.attempts, works.acked), (None, 0, Lsn(30)));
    ended(push).await;
}

#[tokio::test]
async fn a_command_that_the_transport_never_sends_stops_the_push() {
    let storage = Memory::new(0, Overload::SpeaksAnother, usize::MAX);
    let push = push(Arc::new(Plain::default()), Arc::clone(&storage), 10);
    push.log.append_many(30);
    let stopped = until(&push, "the stop", |status| status.activity == PushActivity::Stopped).await;
    assert_eq!(stopped.poison, Some(Lsn(1)));
    assert_eq!(stopped.last_error.as_deref(), Some("LSN 1 cannot be pushed: it takes others only"));
    ended(push).await;
}

#[tokio::test]
async fn a_worn_connection_is_replaced_without_an_interruption() {
    let storage = Memory::new(10_000, Overload::TimesOut, 10);
    let push = push(Arc::new(Plain::default()), Arc::clone(&storage), 10);
    push.log.append_many(500);
    caught_up(&push).await;
    let connections = storage.connections.load(Ordering::Relaxed);
    assert!((5..=12).contains(&connections), "{connections} connections for 50 batches and as many watermarks");
    assert!(!push.events.all().contains(&Event::Interrupted));
    ended(push).await;

    let place = AttachPlace { head: Lsn(200_500), oldest: Lsn(1), fork: None, loaded: Some(Lsn(200_500)) };
    let (adaptor, source) = (Arc::new(Plain::default()), Arc::new(MemoryLog::new()));
    let attachment = Attachment { store: STORE, adaptor, transport: storage.clone(), source, place };
    assert_eq!(attachment.prepare().await, Ok(Lsn(200_500)));
    let more = storage.connections.load(Ordering::Relaxed) - connections;
    assert!((3..=5).contains(&more), "{more} connections for 25 steps");
}

#[tokio::test]
async fn an_adaptor_that_waits_holds_up_nothing_else() {
    // On one thread: if the loop called the adaptor on it, nothing could release the call.
    let (go, gate) = mpsc::channel();
    let adaptor = Arc::new(Plain { gate: Some(Mutex::new(gate)), stuck: AtomicUsize::new(0) });
    let storage = Memory::new(100, Overload::TimesOut, usize::MAX);
    let push = push(Arc::clone(&adaptor), Arc::clone(&storage), 10);
    push.log.append_many(30);
    let letting_go = tokio::spawn(async move {
        while go.send(()).is_ok() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    caught_up(&push).await;
    ended(push).await;
    let place = AttachPlace { head: Lsn(50), oldest: Lsn(1), fork: None, loaded: Some(Lsn(50)) };
    let source = Arc::new(MemoryLog::new());
    let attachment = Attachment { store: STORE, adaptor: adaptor.clone(), transport: storage, source, place };
    assert_eq!(attachment.prepare().await, Ok(Lsn(50)));
    assert_eq!(adaptor.stuck.load(Ordering::Relaxed), 0, "calls that held up the only thread");
    letting_go.abort();
}
