//! The push loop and the RESP transport against a real redis-server that is killed, restarted, and restored from a
//! backup.

mod adaptor;
mod log;
mod server;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tribunal_push::{
    AllowedNet, EgressPolicy, LogSource, PushActivity, PushHandle, PushOptions, PushParts, Pusher, ReadLimit,
    RespOptions, RespTransport, StorageDurability, Transport, TransportError,
};
use tribunal_types::{Command, Lsn, RespPipeline, RespValue, StorageReply, WriteKind};

use adaptor::{LuaAdaptor, POISON, command};
use log::{Event, Events, MemoryLog, STORE};
use server::{RedisServer, free_port};

const WAIT_MAX: Duration = Duration::from_secs(60);
const REPLY_MAX: Duration = Duration::from_secs(5);

fn transport(endpoint: String) -> RespTransport {
    let mut options = RespOptions::new(endpoint, EgressPolicy::loopback());
    options.reply_timeout = REPLY_MAX;
    RespTransport::new(options)
}

struct Push {
    log: Arc<MemoryLog>,
    events: Arc<Events>,
    handle: PushHandle,
    task: JoinHandle<()>,
    shutdown: oneshot::Sender<()>,
}

impl Push {
    fn start(endpoint: String) -> Self {
        Push::of(Arc::new(MemoryLog::new()), endpoint)
    }

    fn of(log: Arc<MemoryLog>, endpoint: String) -> Self {
        let events = Arc::new(Events::default());
        let (pusher, handle) = Pusher::new(PushParts {
            store: STORE,
            adaptor: Arc::new(LuaAdaptor),
            source: log.clone(),
            transport: Arc::new(transport(endpoint)),
            fork: None,
            sink: events.clone(),
            options: PushOptions {
                limit: ReadLimit { records_max: 100, bytes_max: 1 << 20 },
                backoff_min: Duration::from_millis(10),
                backoff_max: Duration::from_millis(200),
                pace: Duration::from_millis(1),
                heartbeat: Duration::from_millis(100),
            },
        });
        let (shutdown, ended) = oneshot::channel();
        let task = tokio::spawn(pusher.run(async {
            let _ = ended.await;
        }));
        Push { log, events, handle, task, shutdown }
    }

    async fn until(&self, what: &str, met: impl Fn(&Push) -> bool) {
        let begun = Instant::now();
        while !met(self) {
            assert!(begun.elapsed() < WAIT_MAX, "not in time: {what}; {:?}", self.handle.status());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn until_caught_up(&self) {
        self.until("caught up", |push| {
            let status = push.handle.status();
            status.lag == 0 && status.activity == PushActivity::Idle
        })
        .await;
    }

    async fn end(self) {
        self.shutdown.send(()).expect("the push runs");
        self.task.await.expect("the push ends without a panic");
        assert_eq!(self.handle.status().activity, PushActivity::Ended);
    }
}

async fn ask(transport: &RespTransport, parts: &[&str]) -> RespValue {
    let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes()).collect();
    match transport.send(command(&parts)).await.expect("an answer") {
        StorageReply::Resp(mut values) if values.len() == 1 => values.remove(0),
        other => panic!("not one value: {other:?}"),
    }
}

/// Reads all rows directly from Redis.
async fn rows_in(endpoint: String) -> BTreeMap<String, String> {
    let transport = transport(endpoint);
    transport.connect().await.expect("redis is up");
    let list = "local out = '' for _, k in ipairs(redis.call('KEYS', '*')) do if k ~= 'watermark' then \
                out = out .. k .. '\\t' .. redis.call('GET', k) .. '\\n' end end return out";
    let RespValue::Text(text) = ask(&transport, &["EVAL", list, "0"]).await else { panic!("no text") };
    let text = String::from_utf8(text).expect("utf-8");
    text.lines().filter_map(|line| line.split_once('\t')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn values_errors_and_durability_are_reported() {
    let redis = RedisServer::start("everysec");
    let transport = transport(redis.endpoint());
    let unconnected = transport.send(command(&[b"PING"])).await;
    assert!(matches!(unconnected, Err(TransportError::Broken(_))), "{unconnected:?}");
    assert_eq!(transport.connect().await, Ok(StorageDurability::EverySecond));
    assert_eq!(ask(&transport, &["PING"]).await, RespValue::Text(b"PONG".to_vec()));
    assert_eq!(ask(&transport, &["SET", "a", "x"]).await, RespValue::Text(b"OK".to_vec()));
    assert_eq!(ask(&transport, &["GET", "a"]).await, RespValue::Text(b"x".to_vec()));
    assert_eq!(ask(&transport, &["GET", "nothing"]).await, RespValue::Nil);
    assert_eq!(ask(&transport, &["INCRBY", "n", "-5"]).await, RespValue::Int(-5));
    let RespValue::Error(text) = ask(&transport, &["INCR", "a"]).await else { panic!("no error") };
    assert!(text.starts_with("ERR value is not an integer"), "{text}");
    assert!(matches!(ask(&transport, &["KEYS", "*"]).await, RespValue::Error(_)), "arrays are not asked for");
    let wrong = transport.send(Command::Raw(vec![1])).await;
    assert!(matches!(wrong, Err(TransportError::WrongCommand(_))), "{wrong:?}");
    for (arg_ends, command_ends) in [(vec![9], vec![1]), (vec![1], vec![2]), (vec![1], vec![]), (vec![2, 1], vec![2])] {
        let malformed = Command::Resp(RespPipeline { args: b"ab".to_vec(), arg_ends, command_ends });
        let refused = transport.send(malformed).await;
        assert!(matches!(refused, Err(TransportError::WrongCommand(_))), "{refused:?}");
    }
    let both = RespPipeline { args: b"PINGINCRa".to_vec(), arg_ends: vec![4, 8, 9], command_ends: vec![1, 3] };
    let StorageReply::Resp(values) = transport.send(Command::Resp(both)).await.expect("answers") else {
        panic!("no RESP")
    };
    assert!(matches!(values.as_slice(), [RespValue::Text(_), RespValue::Error(_)]), "{values:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_that_are_not_listed_are_never_connected_to() {
    let redis = RedisServer::start("no");
    let listed: AllowedNet = "127.0.0.1:1".parse().expect("a network");
    for policy in [EgressPolicy::default(), EgressPolicy::new(vec![listed])] {
        let refused = RespTransport::new(RespOptions::new(redis.endpoint(), policy)).connect().await;
        assert!(matches!(refused, Err(TransportError::Refused(_))), "{refused:?}");
    }
    assert_eq!(transport(redis.endpoint()).connect().await, Ok(StorageDurability::None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_storage_times_out() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let mut options = RespOptions::new(silent.local_addr().expect("bound").to_string(), EgressPolicy::loopback());
    options.connect_timeout = Duration::from_millis(100);
    let given_up = RespTransport::new(options).connect().await;
    assert_eq!(given_up, Err(TransportError::Timeout { ms: 100 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_equals_the_log_after_a_kill_and_after_a_restore() {
    let mut redis = RedisServer::start("always");
    let push = Push::start(redis.endpoint());
    push.log.append_many(500);
    push.until_caught_up().await;
    assert_eq!(push.handle.status().durable, Some(StorageDurability::Always));
    let older = redis.copy_data();

    push.log.append_many(5_000);
    push.until("in the middle", |push| push.handle.status().acked > Lsn(1_500)).await;
    redis.kill();
    push.log.append_many(500);
    push.until("noticed", |push| push.handle.status().activity == PushActivity::BackingOff).await;
    assert!(push.handle.status().lag >= 500 && push.handle.status().last_error.is_some());
    redis.restart();
    push.until_caught_up().await;
    assert_eq!(rows_in(redis.endpoint()).await, push.log.state(), "after a kill");
    let outages = || {
        let events = push.events.all().into_iter();
        events.filter(|event| matches!(event, Event::Interrupted | Event::Restored)).collect::<Vec<_>>()
    };
    push.until("the end of the outage is told", |_| outages().last() == Some(&Event::Restored)).await;
    let told = outages();
    assert_eq!(told.iter().filter(|event| **event == Event::Restored).count(), 1);
    // The connection is lost first, and refused by each attempt after that.
    assert!((2..=5).contains(&told.len()), "each reason is told once, however often it was tried: {told:?}");

    let acked = push.handle.status().acked;
    redis.kill();
    redis.restore_data(&older);
    redis.restart();
    push.until("noticed without new records", |push| push.handle.status().rewinds > 0).await;
    push.log.append_many(300);
    push.until_caught_up().await;
    assert_eq!(rows_in(redis.endpoint()).await, push.log.state(), "after it was set back");
    let rewound = push.events.all().into_iter().rev().find_map(|event| match event {
        Event::Rewound(lsn) => Some(lsn),
        _ => None,
    });
    assert!(rewound.is_some_and(|lsn| lsn < acked), "{rewound:?} of {acked}");
    assert!(push.log.largest_read.load(Ordering::Relaxed) <= 100, "batches are bounded");
    push.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_that_stalls_is_not_written_twice() {
    let redis = RedisServer::start("no");
    let push = Push::start(redis.endpoint());
    push.log.append_many(100);
    push.until_caught_up().await;
    redis.pause(true);
    push.log.append_many(1_000);
    push.until("gave up waiting", |push| push.handle.status().attempts > 0).await;
    assert!(push.handle.status().lag > 0);
    redis.pause(false);
    push.until_caught_up().await;
    assert_eq!(rows_in(redis.endpoint()).await, push.log.state());
    push.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_pushes_of_one_log_write_every_record_once_and_one_that_lags_catches_up() {
    let redis = RedisServer::start("no");
    let log = Arc::new(MemoryLog::new());
    let pushes = [Push::of(log.clone(), redis.endpoint()), Push::of(log.clone(), redis.endpoint())];
    for _ in 0..60 {
        log.append_many(20);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for push in &pushes {
        push.until_caught_up().await;
    }
    assert_eq!(rows_in(redis.endpoint()).await, log.state());
    // A node that does not know yet which records another node has pushed.
    let source = Arc::new(MemoryLog::new());
    source.late.store(1_200, Ordering::Relaxed);
    let lagging = Push::of(source, redis.endpoint());
    lagging.until("it knows", |push| push.handle.status().acked == Lsn(1_200)).await;
    for push in pushes.into_iter().chain([lagging]) {
        push.until_caught_up().await;
        assert_eq!(push.log.state(), log.state());
        let stopped = |event: &Event| matches!(event, Event::Failed(_) | Event::Forked(_));
        assert!(!push.events.all().iter().any(stopped), "{:?}", push.events.all());
        push.end().await;
    }
    assert_eq!(rows_in(redis.endpoint()).await, log.state());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_push_to_a_dead_storage_backs_off_and_delays_no_other() {
    let dead = Push::start(format!("127.0.0.1:{}", free_port()));
    let redis = RedisServer::start("no");
    let live = Push::start(redis.endpoint());
    for push in [&dead, &live] {
        push.log.append_many(1_000);
    }
    live.until_caught_up().await;
    dead.until("several attempts", |push| {
        let status = push.handle.status();
        status.attempts > 3 && status.activity == PushActivity::BackingOff
    })
    .await;
    let status = dead.handle.status();
    assert_eq!((status.lag, status.acked), (1_000, Lsn(0)));
    assert_eq!(dead.log.largest_read.load(Ordering::Relaxed), 0, "nothing is read for a storage that is not there");
    dead.end().await;
    live.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_pushed_stops_the_push_and_is_named() {
    let redis = RedisServer::start("no");
    let push = Push::start(redis.endpoint());
    push.log.append_many(150);
    push.log.append(vec![(WriteKind::Put, POISON.to_owned(), "1".to_owned())]);
    push.log.append_many(20);
    push.until("stopped", |push| push.handle.status().activity == PushActivity::Stopped).await;
    let status = push.handle.status();
    assert_eq!(status.acked, Lsn(150), "everything before it is pushed");
    assert!(status.last_error.as_ref().is_some_and(|text| text.contains("LSN 151")), "{status:?}");
    push.handle.resume();
    push.until("stopped again", |push| {
        push.events.all().iter().filter(|event| matches!(event, Event::Failed(_))).count() == 2
    })
    .await;
    assert_eq!(push.handle.status().acked, Lsn(150));
    push.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_of_another_log_is_not_changed() {
    let redis = RedisServer::start("no");
    let direct = transport(redis.endpoint());
    direct.connect().await.expect("redis is up");
    ask(&direct, &["SET", "watermark", "20"]).await;
    // Filled before the push reads the watermark: the fork is at the log's end at that time.
    let log = Arc::new(MemoryLog::new());
    log.append_many(10);
    let push = Push::of(log, redis.endpoint());
    push.until("stopped", |push| push.handle.status().activity == PushActivity::Stopped).await;
    assert!(push.handle.status().last_error.is_some_and(|text| text.contains("another log")));
    assert_eq!(rows_in(redis.endpoint()).await, BTreeMap::new());
    assert_eq!(push.log.head(STORE), Lsn(10));
    // Even when the log is past that position: its records there are different ones.
    push.log.append_many(15);
    push.handle.resume();
    push.until("stopped again", |push| {
        push.events.all().iter().filter(|event| matches!(event, Event::Failed(_))).count() == 2
    })
    .await;
    assert_eq!(rows_in(redis.endpoint()).await, BTreeMap::new());
    ask(&direct, &["DEL", "watermark"]).await;
    push.handle.resume();
    push.until_caught_up().await;
    assert_eq!(rows_in(redis.endpoint()).await, push.log.state(), "an emptied storage is filled");
    let forks: Vec<_> = push.events.all().into_iter().filter(|event| matches!(event, Event::Forked(_))).collect();
    assert_eq!(forks, [Event::Forked(Some(Lsn(10))), Event::Forked(None)]);
    push.end().await;
}
