//! Commits whose response does not tell what became of them: they are resolved by their ids.

#[path = "support/endpoints.rs"]
#[expect(dead_code, reason = "other tests use the other replies")]
mod endpoints;

use std::time::{Duration, Instant};

use endpoints::{Endpoint, Reply, client, kind_of, options, prepared, problem, refused, works};
use serde_json::json;
use tribunal_client::{Ack, BeginOptions, ClientOptions, Error, Outcome};

/// Responses of something on the way, and others that cannot be read.
const UNCLEAR: [fn() -> Reply; 4] = [
    || Reply::Failure(503, "upstream connect error or disconnect/reset before headers"),
    || Reply::Failure(520, "unknown error"),
    || Reply::Page("text/html", "<html>Please log in</html>"),
    || Reply::Page("application/json", "{\"status\":\"commit"),
];

fn is_resolved(outcome: &Result<Outcome, Error>) -> bool {
    matches!(outcome, Ok(Outcome::Committed(committed)) if committed.replayed)
}

#[tokio::test]
async fn a_commit_whose_response_is_unclear_is_resolved_by_its_id() {
    for (n, reply) in UNCLEAR.into_iter().enumerate() {
        let script = move |kind: &str, ids: &[String], _| if kind == "status" { works(kind, ids) } else { reply() };
        let (first, second) = (Endpoint::start(script).await, Endpoint::start(script).await);
        for urls in [&[first.url.as_str()][..], &[&first.url, &second.url]] {
            let client = client(urls, options());
            let mut traced = prepared(&client);
            traced.traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned());
            let mut outcomes = vec![client.commit(&prepared(&client)).await, client.commit(&traced).await];
            let commits = [prepared(&client), prepared(&client)];
            outcomes.extend(client.batch(&commits).await.expect("an outcome each"));
            outcomes.push(client.commit_stream().commit(&prepared(&client)).await);
            assert!(outcomes.iter().all(is_resolved), "{n}, {} endpoints: {outcomes:?}", urls.len());
        }
    }
}

#[tokio::test]
async fn run_outlasts_an_outage_that_outlasts_the_id_of_its_transaction() {
    for (outage, expected) in [(2, "begin commit commit commit begin commit"), (0, "begin commit")] {
        let service = Endpoint::start(move |kind, ids, before| match (kind, before) {
            ("commit", n) if n <= outage => refused(503, "overloaded"),
            ("commit", n) if n == outage + 1 => refused(422, "txn_id_expired"),
            _ => works(kind, ids),
        })
        .await;
        let run = client(&[&service.url], options())
            .run(BeginOptions::stores(["kv"]), async |txn| txn.put("kv", "a", &1))
            .await;
        let asked: Vec<_> = service.asked().iter().map(|(path, _)| kind_of(path)).collect();
        assert_eq!(asked.join(" "), expected);
        // Without an outage, the work itself takes too long.
        let is_final = matches!(&run, Err(Error::ClientMistake(problem)) if problem.code == "txn_id_expired");
        assert!(if outage == 0 { is_final } else { run.is_ok() }, "{run:?}");
    }
}

#[tokio::test]
async fn run_does_not_send_a_commit_again_that_may_be_durable() {
    for reply in [|| Reply::Lost, || Reply::Failure(503, "upstream connect error")] {
        let service = Endpoint::start(move |kind, ids, before| match (kind, before) {
            ("begin", _) => works(kind, ids),
            // Taken in; then the service goes down.
            ("commit", 1) => reply(),
            _ => refused(503, "stopping"),
        })
        .await;
        let options = ClientOptions { resolve_timeout: Duration::from_secs(1), ..options() };
        let run = client(&[&service.url], options)
            .run(BeginOptions::stores(["kv"]), async |txn| txn.put("kv", "a", &1))
            .await;
        assert!(matches!(run, Err(Error::OutcomeUnknown { .. })), "{run:?}");
        assert_eq!(service.asked().iter().filter(|(path, _)| path.ends_with("/commit")).count(), 1);
    }
}

#[tokio::test]
async fn commits_of_a_batch_that_another_endpoint_may_have_taken_in_are_resolved() {
    let first = Endpoint::start(|kind, ids, _| match kind {
        "batch" => Reply::Lost,
        "status" => works(kind, ids),
        _ => refused(503, "stopping"),
    })
    .await;
    let second = Endpoint::start(|kind, ids, _| match kind {
        "batch" => {
            let line = json!({ "status": "problem", "problem": problem(503, "stopping") });
            Reply::Json(200, json!({ "results": [line, line] }))
        }
        "status" => works(kind, ids),
        _ => refused(503, "stopping"),
    })
    .await;
    let client = client(&[&first.url, &second.url], options());
    let outcomes = client.batch(&[prepared(&client), prepared(&client)]).await.expect("an outcome each");
    assert!(outcomes.iter().all(is_resolved), "{outcomes:?}");
}

#[tokio::test]
async fn commits_of_a_batch_that_were_refused_are_sent_again_within_one_timeout() {
    const COUNT: usize = 6 * 64;
    let script = |kind: &str, _: &[String], _| match kind {
        "batch" => {
            let line = json!({ "status": "problem", "problem": problem(503, "stopping") });
            Reply::Json(200, json!({ "results": vec![line; COUNT] }))
        }
        "status" => Reply::Json(200, json!({ "status": "in_flight" })),
        _ => Reply::Silent,
    };
    let (first, second) = (Endpoint::start(script).await, Endpoint::start(script).await);
    let (timeout, resolve_timeout) = (Duration::from_secs(2), Duration::from_secs(1));
    let options = ClientOptions { timeout, resolve_timeout, ..options() };
    let client = client(&[&first.url, &second.url], options);
    let commits: Vec<_> = (0..COUNT).map(|_| prepared(&client)).collect();
    let begun = Instant::now();
    let outcomes = client.batch(&commits).await.expect("an outcome each");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert!(matches!(outcomes[0], Err(Error::OutcomeUnknown { .. })), "{:?}", outcomes[0]);
    let last = outcomes.last().expect("several");
    assert!(matches!(last, Err(Error::Unavailable { .. })), "one that was not sent again was not taken in: {last:?}");
}

#[tokio::test]
async fn a_commit_whose_verdict_is_forgotten_is_unknown_and_not_a_mistake() {
    for code in ["txn_id_forgotten", "verdict_truncated"] {
        let script = move |kind: &str, _: &[String], _| match kind {
            "batch" => Reply::Json(200, json!({ "results": [{ "status": "problem", "problem": problem(422, code) }] })),
            _ => refused(422, code),
        };
        let service = Endpoint::start(script).await;
        let client = client(&[&service.url], options());
        let single = client.commit(&prepared(&client)).await;
        let of_batch = client.batch(&[prepared(&client)]).await.expect("an outcome").remove(0);
        for unknown in [single, of_batch] {
            let Err(Error::OutcomeUnknown { text, .. }) = unknown else { panic!("nobody knows: {unknown:?}") };
            assert!(text.contains(code), "{text}");
        }
    }
}

#[tokio::test]
async fn a_commit_may_wait_for_its_stores() {
    // Longer than the share of each endpoint, and than the timeout of all.
    let slow = |kind: &str, ids: &[String], _| {
        let reply = match kind {
            "batch" => Reply::Json(200, json!({ "results": [endpoints::committed("one")] })),
            _ => works(kind, ids),
        };
        Reply::Late(Duration::from_millis(700), Box::new(reply))
    };
    let first = Endpoint::start(slow).await;
    let (second, third) = (Endpoint::that_commits().await, Endpoint::that_commits().await);
    let (timeout, endpoint_timeout) = (Duration::from_millis(500), Duration::from_millis(100));
    for urls in [&[first.url.as_str()][..], &[&first.url, &second.url, &third.url]] {
        let client = client(urls, ClientOptions { timeout, endpoint_timeout, ..options() });
        let mut commit = prepared(&client);
        commit.request.ack = Some(Ack::Applied);
        let batch = client.batch(std::slice::from_ref(&commit)).await.expect("an outcome each");
        assert!(
            matches!(&batch[0], Ok(Outcome::Committed(won)) if !won.replayed),
            "{} endpoints: {batch:?}",
            urls.len()
        );
        assert_eq!(client.endpoint(), first.url);
    }
    assert!(second.asked().is_empty() && third.asked().is_empty());
}
