//! Log readers against a service that streams by a script: pieces of lines, cuts, refusals and silence.

#[path = "support/log_service.rs"]
#[expect(dead_code, reason = "other tests use the rest")]
mod log_service;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use log_service::{LOG, Script, Service, beat, end, problem, record, record_of};
use serde_json::json;
use tokio::sync::mpsc;
use tribunal_client::{Error, LogReader, Lsn};

async fn next(log: &mut LogReader) -> Option<u64> {
    log.next().await.expect("an answer").map(|record| record.lsn.0)
}

#[tokio::test]
async fn one_stream_has_all_records_however_it_is_cut_into_pieces() {
    let text = beat(0, 3) + &record(1) + &record(2) + &beat(2, 3) + &record(3) + &end(3, "idle");
    let pieces: Vec<String> = text.chars().collect::<Vec<_>>().chunks(7).map(|piece| piece.iter().collect()).collect();
    let service = Service::start([Script::Stream(pieces)]).await;
    let mut log = service.reader(0).wait_ms(40);
    for lsn in 1..=3 {
        let record = log.next().await.expect("an answer").expect("a record");
        let value = record.writes[0].value.as_ref().map(|value| value.parse::<String>().expect("a text"));
        assert_eq!((record.lsn, value.as_deref()), (Lsn(lsn), Some("v\u{e4}lue")));
        assert_eq!((log.offset(), log.head()), (Lsn(lsn), Lsn(3)));
        assert_eq!(log.log_id().map(|log| log.to_string()).as_deref(), Some(LOG));
    }
    let asked = service.asked();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].starts_with("get /v1/log?store=kv&after=0&wait_ms=40&heartbeat_ms="), "{}", asked[0]);
    assert!(asked[0].contains("accept: application/x-ndjson"), "{}", asked[0]);
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_resumed_from_the_offset() {
    let service = Service::start([
        Script::Break(vec![beat(0, 9), record(1), record(2)[..40].to_owned()]),
        Script::Refuse(503, "overloaded"),
        Script::Stream(vec![beat(1, 9), record(2), end(2, "stopping")]),
        Script::Stream(vec![beat(2, 9), record(3), end(3, "limit")]),
        Script::Stay(vec![beat(3, 9), record(4)]),
    ])
    .await;
    let mut log = service.reader(0);
    for lsn in 1..=4 {
        assert_eq!(next(&mut log).await, Some(lsn));
    }
    let asked = service.asked();
    assert!(!asked[0].contains("log="), "no log is known at first");
    for (request, after) in asked[1..].iter().zip([1, 1, 2, 3]) {
        assert!(request.contains(&format!("after={after}&")) && request.contains(&format!("log={LOG}")), "{request}");
    }
}

#[tokio::test]
async fn a_reader_gives_up_once_its_retries_are_used_up() {
    let service = Service::start(vec![Script::Break(vec![beat(0, 9)]); 9]).await;
    let gone = service.reader(0).next().await;
    assert!(matches!(&gone, Err(Error::Unavailable { .. })), "{gone:?}");
    assert_eq!(service.asked().len(), 3);
}

#[tokio::test]
async fn only_a_stream_that_was_idle_during_the_call_ends_the_wait() {
    let service = Service::start([
        Script::Stream(vec![beat(0, 1), record(1), end(1, "idle")]),
        Script::Stream(vec![beat(1, 2), record(2), end(2, "idle")]),
        Script::Stream(vec![beat(2, 2), end(2, "idle")]),
        Script::Stream(vec![beat(2, 2), end(2, "idle")]),
    ])
    .await;
    let mut log = service.reader(0).wait_ms(0);
    assert_eq!(next(&mut log).await, Some(1));
    // The first stream has ended, but before this call.
    assert_eq!(next(&mut log).await, Some(2));
    assert_eq!(next(&mut log).await, None);
    assert_eq!((service.asked().len(), log.offset()), (3, Lsn(2)));
    assert_eq!(next(&mut log).await, None);
}

#[tokio::test]
async fn problems_before_and_within_a_stream_reach_the_reader() {
    let failed =
        json!({ "event": "end", "next": "1", "reason": "log_truncated", "problem": problem(410, "log_truncated") });
    let service = Service::start([
        Script::Stream(vec![beat(0, 9), record(1), format!("{failed}\n")]),
        Script::Refuse(410, "log_replaced"),
        Script::Refuse(401, "unauthorized"),
        Script::Stream(vec![beat(1, 9), record(3)]),
        Script::Stream(vec![beat(1, 9), "{\"lsn\":\n".to_owned()]),
        Script::Stream(vec![beat(1, 9), record(2).replace("\"writes\"", "\"checksum\":\"00000000\",\"writes\"")]),
        Script::Stream(vec![beat(1, 9), record(2)]),
    ])
    .await;
    let mut log = service.reader(0);
    assert_eq!(next(&mut log).await, Some(1));
    for expected in ["log_truncated", "log_replaced", "unauthorized"] {
        let refused = log.next().await;
        assert!(matches!(&refused, Err(Error::ClientMistake(problem)) if problem.code == expected), "{refused:?}");
    }
    for expected in ["record 3 where 2", "cannot be parsed", "checksum"] {
        let bad = log.next().await;
        assert!(matches!(&bad, Err(Error::ServerMisbehaved(text)) if text.contains(expected)), "{bad:?}");
        assert_eq!(log.offset(), Lsn(1));
    }
    assert_eq!(next(&mut log).await, Some(2));
}

#[tokio::test]
async fn events_of_a_newer_service_are_passed_over_and_an_unknown_operation_is_an_error() {
    let moved = format!("{}\n", json!({ "event": "moved", "log": LOG, "to": { "node": 2 } }));
    let service = Service::start([
        Script::Break(vec![moved.clone(), record(1), moved]),
        Script::Stay(vec![record(2).replace("\"put\"", "\"merge\"")]),
    ])
    .await;
    let mut log = service.reader(0);
    assert_eq!(next(&mut log).await, Some(1));
    let newer = log.next().await;
    let Err(Error::ServerMisbehaved(text)) = &newer else { panic!("it is no operation: {newer:?}") };
    assert!(text.contains("merge") && text.contains("update the client"), "{text}");
}

#[tokio::test]
async fn a_line_without_an_end_is_refused() {
    let piece = "x".repeat(1 << 20);
    let service = Service::start([Script::Stay(vec![piece; 40])]).await;
    let long = service.reader(0).next().await;
    assert!(matches!(&long, Err(Error::ServerMisbehaved(text)) if text.contains("bytes")), "{long:?}");
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_up_the_stream() {
    let value = "x".repeat(64 * 1024);
    let pieces: Vec<String> =
        std::iter::once(beat(0, 9)).chain((1..=1_000).map(|lsn| record_of(lsn, &value))).collect();
    let total: usize = pieces.iter().map(String::len).sum();
    let service = Service::start([Script::Stay(pieces)]).await;
    let mut log = service.reader(0);
    assert_eq!(next(&mut log).await, Some(1));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let written = service.written.load(Ordering::Relaxed);
    assert!(written < total / 2, "{written} of {total} bytes were taken");
    for lsn in 2..=1_000 {
        assert_eq!(next(&mut log).await, Some(lsn));
    }
}

#[tokio::test]
async fn a_page_is_over_once_all_records_that_came_were_returned() {
    let service = Service::start([Script::Stay(vec![beat(0, 2) + &record(1) + &record(2) + &beat(2, 2)])]).await;
    let mut log = service.reader(0);
    assert!(log.is_page_over());
    assert_eq!((next(&mut log).await, log.is_page_over()), (Some(1), false));
    assert_eq!((next(&mut log).await, log.is_page_over()), (Some(2), true), "a heartbeat is no record");
}

#[tokio::test]
async fn a_cancelled_wait_loses_nothing() {
    let line = record(2);
    let (first, second) = line.split_at(30);
    let pieces = vec![beat(0, 1) + &record(1), first.to_owned(), second.to_owned(), record(3)];
    let service = Service::start([Script::Stay(pieces)]).await;
    let mut log = service.reader(0);
    assert_eq!(next(&mut log).await, Some(1));
    let mut found = Vec::new();
    while found.len() < 2 {
        // Cancelled again and again, wherever it is.
        if let Ok(record) = tokio::time::timeout(Duration::from_micros(300), log.next()).await {
            found.push(record.expect("an answer").expect("a record").lsn.0);
        }
    }
    assert_eq!((found, service.asked().len()), (vec![2, 3], 1));
}

#[tokio::test]
async fn a_wait_that_was_made_shorter_ends_in_time_and_the_stream_goes_on() {
    let line = record(2);
    let (first, second) = line.split_at(40);
    let (tell, later) = mpsc::unbounded_channel();
    let pieces = vec![beat(0, 9) + &record(1), first.to_owned()];
    let script = Script::Continue(pieces, Arc::new(tokio::sync::Mutex::new(later)));
    let service = Service::start([script]).await;
    let mut log = service.reader(0).wait_ms(60_000);
    assert_eq!(next(&mut log).await, Some(1));
    for wait_ms in [20, 0, 0, 20] {
        log = log.wait_ms(wait_ms);
        assert_eq!(next(&mut log).await, None);
    }
    for piece in [second.to_owned(), record(3) + &record(4)] {
        tell.send(piece).expect("the service listens");
    }
    log = log.wait_ms(60_000);
    assert_eq!((next(&mut log).await, next(&mut log).await), (Some(2), Some(3)));
    log = log.wait_ms(0);
    assert_eq!((next(&mut log).await, next(&mut log).await), (Some(4), None));
    assert_eq!((log.offset(), service.asked().len()), (Lsn(4), 1));
}

#[tokio::test]
async fn short_waits_do_not_hide_that_a_stream_is_silent() {
    let service = Service::start([1, 2].map(|lsn| Script::Stay(vec![beat(0, 9), record(lsn)]))).await;
    let mut log = service.reader_within(0, Duration::from_secs(4)).wait_ms(60_000);
    assert_eq!(next(&mut log).await, Some(1));
    log = log.wait_ms(50);
    let found = loop {
        if let Some(lsn) = next(&mut log).await {
            break lsn;
        }
    };
    assert_eq!((found, service.asked().len()), (2, 2));
}

#[tokio::test]
async fn a_wait_longer_than_the_service_waits_is_continued_on_another_stream() {
    let idle = Script::Stream(vec![beat(0, 1), end(0, "idle")]);
    let service = Service::start([idle.clone(), idle, Script::Stay(vec![beat(0, 1), record(1)])]).await;
    assert_eq!(next(&mut service.reader(0).wait_ms(u32::MAX)).await, Some(1));
    assert!(service.asked().iter().all(|request| request.contains("&wait_ms=60000&")), "{:?}", service.asked());
    assert_eq!(service.asked().len(), 3);
}
