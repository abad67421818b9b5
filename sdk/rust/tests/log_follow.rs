//! Followers of a log, against a service that streams by a script: outages, and futures that are dropped.

#[path = "support/log_service.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod log_service;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use log_service::{Script, Service, beat, end, record};
use serde_json::json;
use tribunal_client::{Client, ClientOptions, Epoch, Error, LogReader, Lsn, RetryPolicy};

const TIMEOUT: Duration = Duration::from_secs(20);

fn down() -> Script {
    Script::Refuse(503, "unavailable")
}

fn code_of(ended: &Result<tribunal_client::LogRecord, Error>) -> &str {
    match ended {
        Err(Error::ClientMistake(problem)) => &problem.code,
        other => panic!("no mistake: {other:?}"),
    }
}

/// A client that makes one attempt.
fn once(url: &str) -> Client {
    let retry = RetryPolicy { attempts_max: 1, ..RetryPolicy::default() };
    Client::with_options(url, ClientOptions { retry, ..ClientOptions::default() }).expect("a URL")
}

/// An address at which nothing listens.
async fn nowhere() -> String {
    let address = Service::start([]).await.stop().await;
    format!("http://{address}")
}

/// Drops the future of `follow` again and again, wherever it is.
async fn dropped_again_and_again(log: &mut LogReader, after: Duration) -> Result<u64, Error> {
    let begun = Instant::now();
    loop {
        if let Ok(record) = tokio::time::timeout(after, log.follow()).await {
            return record.map(|record| record.lsn.0);
        }
        assert!(begun.elapsed() < TIMEOUT, "it has no end");
    }
}

#[tokio::test]
async fn a_follower_outlives_what_ends_a_single_call() {
    let service = Service::start([
        down(),
        down(),
        down(),
        Script::Break(vec![beat(0, 2), record(1)]),
        down(),
        down(),
        down(),
        Script::Stream(vec![beat(1, 2), record(2), end(2, "stopping")]),
        Script::Refuse(410, "log_truncated"),
    ])
    .await;
    let client = once(&service.url);
    let single = client.log("kv", Lsn(0)).next().await;
    assert!(matches!(&single, Err(Error::Unavailable { .. })), "{single:?}");
    let mut log = client.log("kv", Lsn(0));
    for lsn in 1..=2 {
        assert_eq!(log.follow().await.expect("a record").lsn, Lsn(lsn));
    }
    assert_eq!(code_of(&log.follow().await), "log_truncated");
    assert_eq!((log.offset(), service.asked().len()), (Lsn(2), 9));
}

#[tokio::test]
async fn a_follower_outlives_an_outage_of_the_address() {
    let first = Service::start([Script::Stay(vec![beat(0, 1), record(1)])]).await;
    let mut log = once(&first.url).log("kv", Lsn(0));
    assert_eq!(log.follow().await.expect("a record").lsn, Lsn(1));
    let following = tokio::spawn(async move { (log.follow().await.map(|record| record.lsn), log) });
    let address = first.stop().await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    let second = Service::start_at(&address, [Script::Stay(vec![beat(1, 2), record(2)])]).await;
    let (found, log) = following.await.expect("no panic");
    assert_eq!((found.expect("a record"), log.offset()), (Lsn(2), Lsn(2)));
    assert!(second.asked()[0].contains("after=1&log="), "{:?}", second.asked());
}

#[tokio::test]
async fn a_follower_gives_up_after_the_time_to_reconnect_and_the_next_call_has_it_again() {
    let service = Service::start([Script::Stay(vec![beat(0, 1), record(1)])]).await;
    let mut log = once(&service.url).log("kv", Lsn(0)).reconnect_ms(600);
    assert_eq!(log.follow().await.expect("a record").lsn, Lsn(1));
    let address = service.stop().await;
    // The third of these drops its futures, which does not lengthen the time: no wait alone is as long.
    for (drops, reconnect_ms) in [(false, 600), (false, 600), (true, 2_500)] {
        let begun = Instant::now();
        log = log.reconnect_ms(reconnect_ms);
        let ended = match drops {
            false => log.follow().await.map(|record| record.lsn.0),
            true => dropped_again_and_again(&mut log, Duration::from_millis(1)).await,
        };
        let took = begun.elapsed();
        assert!(matches!(&ended, Err(Error::Unavailable { .. })), "{ended:?}");
        assert!(took > Duration::from_millis(10) && took < TIMEOUT, "{took:?}");
    }
    let second = Service::start_at(&address, [Script::Stay(vec![beat(1, 2), record(2)])]).await;
    assert_eq!(log.follow().await.expect("a record").lsn, Lsn(2));
    second.stop().await;
    let mut log = log.reconnect_ms(0);
    let ended = log.follow().await;
    assert!(matches!(&ended, Err(Error::Unavailable { .. })), "{ended:?}");
}

#[tokio::test]
async fn a_follower_that_has_reached_no_endpoint_ends_after_the_attempts_of_a_read() {
    let begun = Instant::now();
    let mut log = once(&nowhere().await).log("kv", Lsn(0));
    let ended = log.follow().await;
    assert!(matches!(&ended, Err(Error::Unavailable { .. })), "{ended:?}");
    let ended = dropped_again_and_again(&mut log, Duration::from_micros(200)).await;
    assert!(matches!(&ended, Err(Error::Unavailable { .. })), "{ended:?}");
    assert!(begun.elapsed() < TIMEOUT);
}

#[tokio::test]
async fn every_endpoint_that_refuses_counts_as_reached() {
    let services = [Service::start([down(), down(), down()]).await, Service::start(vec![down(); 9]).await];
    let urls = services.each_ref().map(|service| service.url.clone());
    let retry = RetryPolicy { attempts_max: 1, ..RetryPolicy::default() };
    let client = Client::with_endpoints(urls, ClientOptions { retry, ..ClientOptions::default() }).expect("URLs");
    // The first endpoint has no further script, which ends the follower.
    assert_eq!(code_of(&client.log("kv", Lsn(0)).follow().await), "no_script");
    assert_eq!(services[0].asked().len(), 4);
}

#[tokio::test]
async fn a_follower_waits_also_if_next_does_not() {
    let idle = Script::Stream(vec![beat(0, 0), end(0, "idle")]);
    let service = Service::start([idle.clone(), idle, Script::Refuse(410, "log_truncated")]).await;
    let mut log = service.reader(0).wait_ms(0);
    assert_eq!(code_of(&log.follow().await), "log_truncated");
    assert_eq!(service.asked().len(), 3);
    assert!(service.asked().iter().all(|request| request.contains("&wait_ms=10000&")), "{:?}", service.asked());
}

#[tokio::test]
async fn futures_that_are_dropped_lose_and_repeat_neither_records_nor_requests() {
    let late = |script| Script::Late(Duration::from_millis(30), Box::new(script));
    let line = record(3);
    let (first, second) = line.split_at(30);
    let service = Service::start([
        late(Script::Break(vec![beat(0, 9), record(1) + &record(2), first.to_owned()])),
        late(down()),
        late(Script::Stream(vec![beat(2, 9), first.to_owned(), second.to_owned(), end(3, "limit")])),
        late(Script::Stay(vec![beat(3, 9), record(4), record(5)])),
    ])
    .await;
    let mut log = service.reader(0);
    let mut found = Vec::new();
    while found.len() < 5 {
        found.push(dropped_again_and_again(&mut log, Duration::from_micros(300)).await.expect("a record"));
    }
    assert_eq!((found, service.asked().len()), (vec![1, 2, 3, 4, 5], 4));
}

#[tokio::test]
async fn calls_of_next_that_are_dropped_repeat_no_request() {
    let stay = Script::Stay(vec![beat(0, 9), record(1)]);
    let service = Service::start([Script::Late(Duration::from_millis(50), Box::new(stay))]).await;
    let mut log = service.reader(0);
    let begun = Instant::now();
    let found = loop {
        assert!(begun.elapsed() < TIMEOUT, "no call gets the record");
        if let Ok(found) = tokio::time::timeout(Duration::from_micros(300), log.next()).await {
            break found.expect("an answer").expect("a record").lsn;
        }
    };
    assert_eq!((found, service.asked().len()), (Lsn(1), 1));
}

#[tokio::test]
async fn a_stream_ends_with_its_reader_and_with_a_close() {
    let streams = [0, 1].map(|lsn| Script::Stay(vec![beat(lsn, 9), record(lsn + 1)]));
    let service = Service::start(streams).await;
    let mut log = service.reader(0);
    assert_eq!(log.follow().await.expect("a record").lsn, Lsn(1));
    log.close();
    left(&service, 1).await;
    assert_eq!(log.follow().await.expect("a record").lsn, Lsn(2), "a closed reader continues");
    drop(log);
    left(&service, 2).await;
}

#[tokio::test]
async fn a_request_for_a_stream_ends_with_its_reader() {
    let service = Service::start([Script::Late(Duration::from_millis(200), Box::new(Script::Stay(Vec::new())))]).await;
    let mut log = service.reader(0);
    assert!(tokio::time::timeout(Duration::from_millis(50), log.follow()).await.is_err());
    drop(log);
    left(&service, 1).await;
}

/// Waits until this many streams were left.
async fn left(service: &Service, count: usize) {
    let begun = Instant::now();
    while service.left.load(Ordering::Relaxed) < count {
        assert!(begun.elapsed() < TIMEOUT, "the stream is still open");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_call_of_next_ends_within_its_wait_and_the_timeout() {
    // The service neither ends the stream nor sends a record.
    let service = Service::start([Script::Stay(vec![beat(0, 0)]), Script::Stay(vec![beat(0, 0)])]).await;
    let begun = Instant::now();
    let mut log = service.client(50, Duration::from_millis(300)).log("kv", Lsn(0)).wait_ms(100);
    let ended = log.next().await;
    assert!(matches!(&ended, Err(Error::Unavailable { text, .. }) if text.contains("in time")), "{ended:?}");
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    assert_eq!(service.asked().len(), 1);
}

/// A heartbeat of a service that names the epoch that the position covers.
fn beat_of(next: u64, epoch: u64) -> String {
    let mut beat: serde_json::Value = serde_json::from_str(&beat(next, 2)).expect("JSON");
    beat["epoch"] = epoch.to_string().into();
    format!("{beat}\n")
}

#[tokio::test]
async fn a_follower_knows_which_snapshots_its_records_cover() {
    // The records are of epoch 9.
    let lines = vec![beat_of(0, 5), record(1), record(2), beat_of(2, 12)];
    let service = Service::start([Script::Stay(lines)]).await;
    let mut log = service.reader(0);
    assert_eq!(log.epoch(), Epoch(0));
    for (lsn, epoch) in [(1, 8), (2, 8)] {
        let record = log.follow_to(Lsn(2)).await.expect("a stream").expect("a record");
        assert_eq!((record.lsn, log.epoch()), (Lsn(lsn), Epoch(epoch)), "more of epoch 9 may follow");
    }
    assert_eq!(log.follow_to(Lsn(2)).await.expect("nothing to read"), None);
    let waiting = tokio::time::timeout(TIMEOUT, async {
        while log.epoch() < Epoch(12) {
            let _ = tokio::time::timeout(Duration::from_millis(20), log.follow()).await;
        }
    });
    waiting.await.expect("the heartbeat arrives");
    assert_eq!((log.offset(), service.asked().len()), (Lsn(2), 1));
}

/// The end of a stream whose next records were truncated.
fn end_truncated(next: u64) -> String {
    let problem = log_service::problem(410, "log_truncated");
    let end = json!({"event": "end", "next": next.to_string(), "reason": "log_truncated", "problem": problem});
    format!("{end}\n")
}

fn client_of(urls: &[&str]) -> Client {
    let retry = RetryPolicy { attempts_max: 1, ..RetryPolicy::default() };
    Client::with_endpoints(urls, ClientOptions { retry, ..ClientOptions::default() }).expect("URLs")
}

#[tokio::test]
async fn a_reader_continues_at_an_endpoint_that_has_the_records() {
    let truncated = Script::Refuse(410, "log_truncated");
    let first = Service::start([truncated.clone(), truncated.clone()]).await;
    let second = Service::start([Script::Stream(vec![beat(0, 2), record(1), end_truncated(1)]), truncated]).await;
    let third = Service::start([Script::Stay(vec![beat(1, 2), record(2)])]).await;
    let mut log = client_of(&[&first.url, &second.url, &third.url]).log("kv", Lsn(0));
    assert_eq!(log.next().await.expect("a stream").expect("a record").lsn, Lsn(1));
    assert_eq!(log.follow().await.expect("a record").lsn, Lsn(2));
    assert_eq!([first.asked().len(), second.asked().len(), third.asked().len()], [2, 2, 1]);
}

#[tokio::test]
async fn a_reader_whose_records_no_endpoint_has_ends_and_is_told_which_was_not_reached() {
    let truncated = || Service::start([Script::Refuse(410, "log_truncated")]);
    let (first, second, third) = (truncated().await, truncated().await, nowhere().await);
    for (urls, told) in [
        ([first.url.as_str(), &second.url], "none of this client's endpoints has enough of the log".to_owned()),
        ([third.as_str(), &truncated().await.url], format!("and these did not: {third}: ")),
    ] {
        let ended = client_of(&urls).log("kv", Lsn(0)).follow().await;
        assert_eq!(code_of(&ended), "log_truncated");
        let text = ended.expect_err("it has ended").to_string();
        assert!(text.contains(&told), "{text}");
    }
    assert_eq!([first.asked().len(), second.asked().len()], [1, 1]);
    // A single endpoint is asked once, and its answer is passed on as it is.
    let single = truncated().await;
    let text = client_of(&[&single.url]).log("kv", Lsn(0)).follow().await.expect_err("it ends").to_string();
    assert!(!text.contains("endpoint"), "{text}");
    assert_eq!(single.asked().len(), 1);
}
