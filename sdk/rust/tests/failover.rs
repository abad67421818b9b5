//! The client against several endpoints, some of which fail: services over HTTP that reply by a script.

#[path = "support/endpoints.rs"]
#[expect(dead_code, reason = "other tests use the other replies")]
mod endpoints;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use endpoints::{
    Endpoint, Reply, assert_committed, client, committed, kind_of, options, prepared, problem, refused, works,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tribunal_client::{BeginOptions, Client, ClientOptions, Error, Lsn, Outcome, RowRead};

/// The URL of an endpoint that nobody listens on. A closed port of 127.0.0.1 may be that of the next server.
async fn dead() -> String {
    let listener = TcpListener::bind("127.0.0.2:0").await.expect("loopback has free ports");
    let address: SocketAddr = listener.local_addr().expect("bound");
    format!("http://{address}")
}

#[tokio::test]
async fn a_dead_endpoint_is_passed_over_and_the_next_one_stays_in_use() {
    let (first, second) = (dead().await, Endpoint::that_commits().await);
    // As in the variable `TRIBUNAL_URL`.
    let client = Client::with_options(&format!("{first},{}", second.url), options()).expect("URLs");
    assert_eq!((client.url(), client.endpoint()), (format!("{first},{}", second.url).as_str(), first.as_str()));
    client.begin(BeginOptions::stores(["kv"])).await.expect("begins");
    let commit = prepared(&client);
    assert_committed(client.commit(&commit).await, &commit);
    assert_eq!(client.endpoint(), second.url);
    assert_eq!(second.asked().len(), 2);
}

#[tokio::test]
async fn an_unavailable_endpoint_is_left_until_its_cool_down_has_passed() {
    let first = Endpoint::start(|kind, ids, before| match before {
        0 => refused(503, "stopping"),
        _ => works(kind, ids),
    })
    .await;
    // The second one fails at its third request.
    let second = Endpoint::start(|kind, ids, before| match before {
        0 | 1 => works(kind, ids),
        _ => refused(503, "unavailable"),
    })
    .await;
    let third = Endpoint::that_commits().await;
    let cool_down = Duration::from_secs(3600);
    let client =
        client(&[&first.url, &second.url, &third.url], ClientOptions { endpoint_cool_down: cool_down, ..options() });
    let counts = || [first.asked().len(), second.asked().len(), third.asked().len()];
    client.stores().await.expect("the second one answers");
    client.stores().await.expect("it stays in use");
    assert_eq!(counts(), [1, 2, 0]);
    client.stores().await.expect("the third one answers");
    assert_eq!(counts(), [1, 3, 1], "the first one has failed shortly before");
    assert_eq!(client.endpoint(), third.url);
}

#[tokio::test]
async fn the_endpoint_in_use_stays_so_when_an_earlier_one_may_be_tried_again() {
    let first = Endpoint::start(|kind, ids, before| match before {
        0 => refused(503, "stopping"),
        _ => works(kind, ids),
    })
    .await;
    let second = Endpoint::that_commits().await;
    let cool_down = Duration::from_millis(50);
    let client = client(&[&first.url, &second.url], ClientOptions { endpoint_cool_down: cool_down, ..options() });
    client.stores().await.expect("the second one answers");
    tokio::time::sleep(cool_down).await;
    client.stores().await.expect("the second one stays in use");
    assert_eq!((first.asked().len(), second.asked().len(), client.endpoint()), (1, 2, second.url.as_str()));
}

#[tokio::test]
async fn a_failed_endpoint_is_tried_again_after_its_cool_down() {
    let first = Endpoint::start(|kind, ids, before| if before == 0 { Reply::Lost } else { works(kind, ids) }).await;
    let second = Endpoint::start(|kind, ids, before| match before {
        1 => refused(503, "unavailable"),
        _ => works(kind, ids),
    })
    .await;
    let cool_down = Duration::from_millis(50);
    let client = client(&[&first.url, &second.url], ClientOptions { endpoint_cool_down: cool_down, ..options() });
    client.stores().await.expect("the second one answers");
    tokio::time::sleep(cool_down).await;
    client.stores().await.expect("the first one answers");
    assert_eq!((first.asked().len(), second.asked().len()), (2, 2));
}

#[tokio::test]
async fn a_commit_whose_reply_is_lost_is_sent_elsewhere_with_the_same_id_and_body() {
    for lost in [|| Reply::Lost, || refused(504, "outcome_unknown"), || Reply::Silent] {
        let first = Endpoint::start(move |_, _, _| lost()).await;
        let second = Endpoint::that_commits().await;
        let endpoint_timeout = Duration::from_secs(2);
        let client = client(&[&first.url, &second.url], ClientOptions { endpoint_timeout, ..options() });
        let commit = prepared(&client);
        assert_committed(client.commit(&commit).await, &commit);
        assert_eq!(first.asked().len(), 1);
        assert_eq!(first.asked(), second.asked(), "the same request, and no question about its status");
        assert_eq!(client.endpoint(), second.url);
    }
}

#[tokio::test]
async fn a_refusal_after_a_lost_reply_does_not_tell_the_outcome() {
    for lost in [|| Reply::Lost, || refused(504, "outcome_unknown")] {
        let first = Endpoint::start(move |_, _, _| lost()).await;
        let second = Endpoint::start(|kind, ids, _| match kind {
            "commit" => refused(429, "quota_exceeded"),
            _ => works(kind, ids),
        })
        .await;
        let client = client(&[&first.url, &second.url], options());
        let commit = prepared(&client);
        assert_committed(client.commit(&commit).await, &commit);
        let paths: Vec<String> = second.asked().into_iter().map(|(path, _)| path).collect();
        assert!(paths[1].contains("fence=true"), "the verdict is requested: {paths:?}");
    }
}

#[tokio::test]
async fn definite_answers_are_not_repeated_elsewhere() {
    for (status, code) in [(422, "bad_write"), (429, "quota_exceeded"), (503, "overloaded"), (401, "unauthenticated")] {
        let first = Endpoint::start(move |_, _, _| refused(status, code)).await;
        let second = Endpoint::that_commits().await;
        let client = client(&[&first.url, &second.url], options());
        let refused = client.commit(&prepared(&client)).await.expect_err("a refusal");
        assert!(refused.to_string().contains(code), "{refused}");
        assert_eq!((first.asked().len(), second.asked().len(), client.endpoint()), (1, 0, first.url.as_str()));
    }
    let aborts =
        json!({ "status": "aborted", "txn_id": "x", "epoch": "9", "reason": "write_conflict", "retryable": true });
    let first = Endpoint::start(move |_, _, _| Reply::Json(200, aborts.clone())).await;
    let second = Endpoint::that_commits().await;
    let client = client(&[&first.url, &second.url], options());
    assert!(matches!(client.commit(&prepared(&client)).await, Ok(Outcome::Aborted(_))));
    assert_eq!(second.asked().len(), 0);
}

#[tokio::test]
async fn a_request_with_another_effect_the_second_time_is_not_repeated_after_a_lost_reply() {
    let first = Endpoint::start(|_, _, _| Reply::Lost).await;
    let second = Endpoint::that_commits().await;
    let client = client(&[&first.url, &second.url], options());
    assert!(matches!(client.attach_push("kv", None).await, Err(Error::Unavailable { .. })));
    assert_eq!(second.asked().len(), 0, "it may have taken effect");
    client.stores().await.expect("the next request goes elsewhere");
    assert_eq!((first.asked().len(), second.asked().len()), (1, 1));
}

#[tokio::test]
async fn the_error_after_all_have_failed_names_each_endpoint_and_its_reason() {
    let (first, second) = (dead().await, Endpoint::start(|_, _, _| refused(503, "no_majority")).await);
    let third = Endpoint::start(|_, _, _| Reply::Json(503, json!("a proxy"))).await;
    let refusing = client(&[&first, &second.url], options());
    let client = client(&[&first, &second.url, &third.url], options());
    let error = client.begin(BeginOptions::default()).await.err().expect("nobody answers");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let text = error.to_string();
    for part in [&first, &second.url, &third.url, "no_majority: says so", "503 Service Unavailable"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    assert_eq!((second.asked().len(), third.asked().len()), (2, 2), "each is tried twice");
    let commit = refusing.commit(&prepared(&client)).await;
    assert!(matches!(commit, Err(Error::Unavailable { .. })), "nothing was taken: {commit:?}");
    let commit = client.commit(&prepared(&client)).await;
    assert!(matches!(commit, Err(Error::OutcomeUnknown { .. })), "the proxy may have passed it on: {commit:?}");
}

#[tokio::test]
async fn what_is_not_tribunal_is_passed_over() {
    for status in [301, 404, 500] {
        let first = Endpoint::start(move |_, _, _| Reply::Json(status, json!("a proxy"))).await;
        let second = Endpoint::that_commits().await;
        let client = client(&[&first.url, &second.url], options());
        assert!(matches!(client.commit(&prepared(&client)).await, Ok(Outcome::Committed(_))));
        assert_eq!(first.asked(), second.asked());
        assert_eq!(client.endpoint(), second.url);
    }
}

#[tokio::test]
async fn a_refusal_for_the_size_of_a_request_is_not_repeated_elsewhere() {
    let first = Endpoint::start(|_, _, _| Reply::Json(413, json!("a proxy"))).await;
    let second = Endpoint::that_commits().await;
    let begun = client(&[&first.url, &second.url], options()).begin(BeginOptions::default()).await;
    assert!(matches!(begun, Err(Error::ServerMisbehaved(_))));
    assert_eq!(second.asked().len(), 0);
}

#[tokio::test]
async fn an_answer_that_is_not_of_tribunal_names_its_endpoint() {
    let only = Endpoint::start(|_, _, _| Reply::Json(404, json!("a proxy"))).await;
    let error = client(&[&only.url], options()).begin(BeginOptions::default()).await.err().expect("no answer");
    let expected = format!("{}: status 404 Not Found without a problem document", only.url);
    assert!(error.to_string().contains(&expected), "{error}");
}

#[tokio::test]
async fn the_timeout_is_shared_by_the_endpoints() {
    let endpoints = [Endpoint::start(|_, _, _| Reply::Silent).await, Endpoint::start(|_, _, _| Reply::Silent).await];
    let timeout = Duration::from_secs(4);
    let client = client(&[&endpoints[0].url, &endpoints[1].url], ClientOptions { timeout, ..options() });
    let begun = Instant::now();
    let error = client.begin(BeginOptions::default()).await.err().expect("nobody answers");
    assert!(begun.elapsed() >= timeout, "{:?}", begun.elapsed());
    for endpoint in &endpoints {
        let reason = format!("{}: no response within ", endpoint.url);
        assert!(error.to_string().contains(&reason), "{error}");
    }
    assert_eq!(endpoints.map(|endpoint| endpoint.asked().len()), [1, 1]);
}

/// With a timeout of half a minute, an endpoint that does not answer, such as a process that is stopped, delays a call by the time
/// that an endpoint has, once.
#[tokio::test]
async fn an_endpoint_that_does_not_answer_is_left_before_its_share_of_the_timeout_is_over() {
    for kind in ["begin", "commit", "stream"] {
        let paused = Endpoint::start(|_, _, _| Reply::Silent).await;
        let (second, third) = (Endpoint::that_commits().await, Endpoint::that_commits().await);
        let endpoint_timeout = Duration::from_secs(2);
        let timeout = Duration::from_secs(90);
        let options = ClientOptions { timeout, endpoint_timeout, ..options() };
        let client = client(&[&paused.url, &second.url, &third.url], options);
        // The second one ends its stream after the first line.
        let calls = if kind == "stream" { 1 } else { 2 };
        for _ in 0..calls {
            let (commit, begun) = (prepared(&client), Instant::now());
            match kind {
                "begin" => drop(client.begin(BeginOptions::default()).await.expect("the second one answers")),
                "commit" => assert_committed(client.commit(&commit).await, &commit),
                _ => assert_committed(client.commit_stream().commit(&commit).await, &commit),
            }
            assert!(begun.elapsed() < timeout / 3, "{kind}: {:?}", begun.elapsed());
        }
        assert_eq!((paused.asked().len(), second.asked().len(), third.asked().len()), (1, calls, 0), "{kind}");
    }
}

#[tokio::test]
async fn the_last_endpoint_has_the_time_that_is_left() {
    let paused = [Endpoint::start(|_, _, _| Reply::Silent).await, Endpoint::start(|_, _, _| Reply::Silent).await];
    let timeout = Duration::from_secs(5);
    let options = ClientOptions { timeout, endpoint_timeout: Duration::from_secs(2), ..options() };
    let client = client(&[&paused[0].url, &paused[1].url], options);
    let begun = Instant::now();
    client.begin(BeginOptions::default()).await.err().expect("nobody answers");
    assert!(begun.elapsed() >= timeout, "{:?}", begun.elapsed());
    assert_eq!(paused.map(|endpoint| endpoint.asked().len()), [1, 1]);
}

#[tokio::test]
async fn a_page_of_a_proxy_is_no_answer() {
    for (content_type, text) in [
        ("text/html; charset=utf-8", "<html>Please log in</html>"),
        ("text/plain", "Please log in"),
        ("application/json", " <html>"),
        ("", "<html>"),
    ] {
        let proxy = Endpoint::start(move |_, _, _| Reply::Page(content_type, text)).await;
        let second = Endpoint::that_commits().await;
        let client = client(&[&proxy.url, &second.url], options());
        client.begin(BeginOptions::default()).await.expect("the second one answers");
        assert_eq!(client.endpoint(), second.url, "{content_type}");
        let page = client_of(&proxy, &second);
        let commit = prepared(&page);
        assert_committed(page.commit(&commit).await, &commit);
        assert_eq!(proxy.asked().last(), second.asked().last(), "the same commit");
        let page = client_of(&proxy, &second);
        let commit = prepared(&page);
        assert_committed(page.commit_stream().commit(&commit).await, &commit);
        let alone = client_of(&proxy, &proxy).begin(BeginOptions::default()).await.err().expect("no answer");
        assert!(matches!(alone, Error::ServerMisbehaved(_)), "{alone}");
    }
}

fn client_of(first: &Endpoint, second: &Endpoint) -> Client {
    client(&[&first.url, &second.url], options())
}

#[tokio::test]
async fn commits_of_a_batch_without_an_outcome_are_sent_elsewhere() {
    // Of a batch, the second commit was not taken in, and of the third nothing is known. The others are decided.
    let first = Endpoint::start(|kind, ids, _| match kind {
        "batch" => {
            let line = |(at, id): (usize, &String)| match at {
                1 => json!({ "status": "problem", "problem": problem(503, "unavailable") }),
                2 => json!({ "status": "problem", "problem": problem(504, "outcome_unknown") }),
                _ => committed(id),
            };
            Reply::Lines(ids.iter().enumerate().map(line).collect())
        }
        _ => works(kind, ids),
    })
    .await;
    let second = Endpoint::that_commits().await;
    let client = client(&[&first.url, &second.url], options());
    let commits: Vec<_> = (0..4).map(|_| prepared(&client)).collect();
    let (a, b, c, d) = tokio::join!(
        client.commit(&commits[0]),
        client.commit(&commits[1]),
        client.commit(&commits[2]),
        client.commit(&commits[3])
    );
    for (outcome, commit) in [a, b, c, d].into_iter().zip(&commits) {
        assert_committed(outcome, commit);
    }
    let [(path, lines)] = &second.asked()[..] else { panic!("one batch: {:?}", second.asked()) };
    let sent = &first.asked().into_iter().find(|(path, _)| kind_of(path) == "batch").expect("a batch").1;
    assert_eq!(kind_of(path), "batch");
    let expected: Vec<&str> = sent.lines().skip(1).take(2).collect();
    assert_eq!(lines.lines().collect::<Vec<_>>(), expected, "the same lines");
}

#[tokio::test]
async fn a_consumers_offset_that_may_have_been_taken_is_not_sent_elsewhere() {
    let info = || Reply::Json(200, json!({ "name": "view", "log": "l", "offsets": [] }));
    let replies: [fn() -> Reply; 4] = [
        || Reply::Lost,
        || refused(504, "outcome_unknown"),
        || refused(503, "stopping"),
        || Reply::Failure(502, "a proxy"),
    ];
    for (n, reply) in replies.into_iter().enumerate() {
        let first = Endpoint::start(move |_, _, _| reply()).await;
        let second = Endpoint::start(move |_, _, _| info()).await;
        let client = client_of(&first, &second);
        match client.set_offset("view", "kv", Lsn(1), None).await {
            Err(Error::Unavailable { text, .. }) => {
                assert_eq!(text.ends_with("; the offset may have been set"), n == 0, "{text}");
            }
            set => panic!("{n}: {set:?}"),
        }
        assert_eq!((first.asked().len(), second.asked().len()), (1, 0), "{n}");
        client.set_offset("view", "kv", Lsn(1), None).await.expect("it is set again");
    }
    let second = Endpoint::start(move |_, _, _| info()).await;
    let unavailable = Endpoint::start(|_, _, _| refused(503, "unavailable")).await;
    for first in [&dead().await, &unavailable.url] {
        let client = client(&[first, &second.url], options());
        client.set_offset("view", "kv", Lsn(1), None).await.expect("the second one sets it");
    }
}

#[tokio::test]
async fn commits_of_an_explicit_batch_are_sent_elsewhere() {
    let first = Endpoint::start(|_, _, before| match before {
        0 => Reply::Json(
            200,
            json!({ "results": [{ "status": "problem", "problem": problem(504, "outcome_unknown") }] }),
        ),
        _ => refused(503, "stopping"),
    })
    .await;
    let second = Endpoint::that_commits().await;
    let client = client(&[&first.url, &second.url], options());
    let commit = prepared(&client);
    let mut outcomes = client.batch(std::slice::from_ref(&commit)).await.expect("one answer each");
    assert_committed(outcomes.pop().expect("one"), &commit);
    assert_eq!(second.asked()[0].0, format!("/v1/txns/{}/commit", commit.txn_id));
}

#[tokio::test]
async fn a_stream_of_commits_continues_at_the_next_endpoint() {
    for lost in [|| Reply::Lost, || Reply::Silent, || refused(503, "stopping"), || Reply::Lines(vec![])] {
        let first = Endpoint::start(move |_, _, _| lost()).await;
        let second = Endpoint::that_commits().await;
        let endpoint_timeout = Duration::from_secs(2);
        let client = client(&[&first.url, &second.url], ClientOptions { endpoint_timeout, ..options() });
        let stream = client.commit_stream();
        let commit = prepared(&client);
        assert_committed(stream.commit(&commit).await, &commit);
        assert_eq!(first.asked().len(), 1);
        assert_eq!(first.asked(), second.asked(), "the same line");
    }
}

#[tokio::test]
async fn a_line_that_was_not_taken_in_goes_to_the_next_endpoint() {
    let first = Endpoint::start(|_, ids, _| {
        Reply::Lines(vec![json!({ "status": "problem", "txn_id": ids[0], "problem": problem(503, "unavailable") })])
    })
    .await;
    let (second, nobody) = (Endpoint::that_commits().await, dead().await);
    let client = client(&[&first.url, &nobody, &second.url], options());
    let commit = prepared(&client);
    assert_committed(client.commit_stream().commit(&commit).await, &commit);
    assert_eq!(first.asked(), second.asked(), "the same line");
}

fn record(lsn: u64) -> Value {
    json!({ "store": "kv", "lsn": lsn.to_string(), "prev_lsn": (lsn - 1).to_string(), "epoch": "9", "csn": "1",
        "version": "5", "txn_id": "x", "writes": [] })
}

#[tokio::test]
async fn a_log_reader_continues_at_its_position_on_another_endpoint() {
    let first = Endpoint::start(move |_, _, _| {
        Reply::Lines(vec![record(1), record(2), json!({ "event": "end", "reason": "stopping", "next": "2" })])
    })
    .await;
    let second = Endpoint::start(move |_, _, _| Reply::Lines(vec![record(3)])).await;
    let client = client(&[&first.url, &second.url], options());
    let mut log = client.log("kv", Lsn(0));
    for lsn in 1..=3 {
        assert_eq!(log.next().await.expect("readable").map(|record| record.lsn), Some(Lsn(lsn)));
    }
    assert_eq!(first.asked().len(), 1);
    assert!(second.asked()[0].0.contains("after=2"), "{:?}", second.asked());
    assert_eq!(client.endpoint(), second.url);
}

#[tokio::test]
async fn a_log_reader_at_its_quota_stays_at_its_endpoint() {
    let first = Endpoint::start(move |_, _, before| {
        let mut full = problem(429, "quota_exceeded");
        full["retryable"] = json!(true);
        match before {
            0 => Reply::Lines(vec![
                record(1),
                json!({ "event": "end", "reason": "quota_exceeded", "next": "1", "problem": full }),
            ]),
            _ => Reply::Lines(vec![record(2)]),
        }
    })
    .await;
    let second = Endpoint::start(move |_, _, _| Reply::Lines(vec![record(2)])).await;
    let client = client(&[&first.url, &second.url], options());
    let mut log = client.log("kv", Lsn(0));
    for lsn in 1..=2 {
        assert_eq!(log.next().await.expect("readable").map(|record| record.lsn), Some(Lsn(lsn)));
    }
    assert_eq!((first.asked().len(), second.asked().len(), client.endpoint()), (2, 0, first.url.as_str()));
}

#[tokio::test]
async fn a_node_that_lags_is_asked_once_and_remains_in_use() {
    let lags = |kind: &str, ids: &[String], before: usize| match before {
        0 => refused(503, "store_lagging"),
        _ => works(kind, ids),
    };
    let (first, second) = (Endpoint::start(lags).await, Endpoint::that_commits().await);
    let client = client(&[&first.url, &second.url], options());
    client.begin(BeginOptions::stores(["kv"])).await.expect("the other one has applied it");
    assert_eq!((first.asked().len(), second.asked().len(), client.endpoint()), (1, 1, first.url.as_str()));
}

#[tokio::test]
async fn a_read_waits_for_the_clients_own_commits() {
    let first = Endpoint::start(|kind, ids, before| match before {
        0 => works(kind, ids),
        _ => refused(503, "stopping"),
    })
    .await;
    // The commit is of epoch 9.
    let second = Endpoint::start(|_, _, before| {
        let row = json!({ "store": "kv", "key": "n", "value": 1, "version": "5" });
        Reply::Json(200, json!({ "applied": (8 + before).to_string(), "rows": [row] }))
    })
    .await;
    let client = client(&[&first.url, &second.url], options());
    let commit = prepared(&client);
    assert_committed(client.commit(&commit).await, &commit);
    let reads = client.read_rows("kv", &[RowRead { key: b"n", known: None }]).await.expect("applied in time");
    assert_eq!((reads.applied.0, second.asked().len()), (9, 2));
}

#[test]
fn urls_that_cannot_be_used_are_named() {
    for urls in [&["http://a:1,b:2"][..], &["http://a:1", "ftp://b:2"], &["http://a:1,"], &[]] {
        let error = Client::with_endpoints(urls, ClientOptions::default()).err().expect("unusable");
        assert!(matches!(error, Error::Misuse(_)), "{error:?}");
    }
}
