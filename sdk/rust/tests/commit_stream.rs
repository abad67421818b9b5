//! Commit streams: against a live server, through a proxy that breaks them, and against a service that replies by a script.

mod support;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use support::{Loss, Proxy, Server};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tribunal_client::{
    Ack, Call, Client, ClientOptions, CommitStream, Error, IsolationLevel, Outcome, PreparedCommit, TxnStatus,
};

const TIMEOUT: Duration = Duration::from_secs(30);

fn client(url: &str) -> Client {
    Client::with_options(url, ClientOptions { timeout: TIMEOUT, ..ClientOptions::default() }).expect("a URL")
}

fn put(client: &Client, key: &str) -> PreparedCommit {
    let mut txn = client.begin_local(IsolationLevel::Serializable);
    txn.put("kv", key, &1).expect("a number");
    txn.prepare()
}

/// Tells what becomes of a commit.
fn shown(result: &Result<Outcome, Error>) -> String {
    match result {
        Ok(Outcome::Committed(won)) if won.replayed => "committed, replayed".to_owned(),
        Ok(Outcome::Committed(_)) => "committed".to_owned(),
        Ok(Outcome::Aborted(lost)) => format!("aborted {}", lost.reason),
        Err(Error::ClientMistake(problem)) => format!("mistake {}", problem.code),
        Err(Error::Unavailable { .. }) => "unavailable".to_owned(),
        Err(error) => error.to_string(),
    }
}

type Ends = JoinHandle<(PreparedCommit, Result<Outcome, Error>)>;

fn commit(stream: &CommitStream, prepared: PreparedCommit) -> Ends {
    let stream = stream.clone();
    tokio::spawn(async move {
        let result = stream.commit(&prepared).await;
        (prepared, result)
    })
}

async fn ends(commits: Vec<Ends>) -> Vec<(PreparedCommit, Result<Outcome, Error>)> {
    let mut ends = Vec::new();
    for commit in commits {
        ends.push(tokio::time::timeout(TIMEOUT * 2, commit).await.expect("in time").expect("no panic"));
    }
    ends
}

async fn metric(client: &Client, name: &str) -> u64 {
    let call = Call { method: "GET", path: "/metrics", query: &[], body: None, timeout: TIMEOUT };
    let (_, body) = client.call(call).await.expect("metrics");
    let text = String::from_utf8(body).expect("text");
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).expect("the metric")
}

#[tokio::test]
async fn sessions_share_a_stream_and_each_gets_its_verdict() {
    let Some(server) = Server::start("stream-shared") else { return };
    let client = client(&server.url);
    let stream = client.commit_stream();
    let keys = (0..300).map(|n| format!("k{}", n % 150));
    // The same rows twice, inserted: one of each two is refused.
    let inserted = keys.map(|key| {
        let mut txn = client.begin_local(IsolationLevel::Serializable);
        txn.insert("kv", &key, &1).expect("a number");
        commit(&stream, txn.prepare())
    });
    let found = ends(inserted.collect()).await;
    let count = |text: &str| found.iter().filter(|(_, result)| shown(result) == text).count();
    assert_eq!(count("committed"), 150);
    let lost = found.iter().filter(|(_, result)| matches!(result, Ok(Outcome::Aborted(_)))).count();
    assert_eq!(lost, 150, "the others have their verdicts as well");
    for (prepared, result) in &found {
        let (Ok(Outcome::Committed(won)), txn_id) = (result, &prepared.txn_id) else { continue };
        assert_eq!(&won.txn_id, txn_id);
    }
    assert_eq!(metric(&client, "tribunal_http_commit_streams_opened_total").await, 1);
    // Own writes are visible to what begins afterwards.
    let mut txn = client.begin(tribunal_client::BeginOptions::stores(["kv"])).await.expect("a transaction");
    assert!(txn.get("kv", "k149").await.expect("a read").is_some());

    let mut unknown = put(&client, "a");
    unknown.request.writes[0].store = "nope".to_owned();
    let mut nameless = put(&client, "b");
    nameless.txn_id = "nobody".to_owned();
    let mut applied = put(&client, "c");
    applied.request.ack = Some(Ack::Applied);
    let mut traced = put(&client, "d");
    traced.traceparent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned());
    let commits = [unknown, nameless, applied, traced].map(|prepared| commit(&stream, prepared));
    let found: Vec<String> = ends(commits.into()).await.iter().map(|(_, result)| shown(result)).collect();
    assert_eq!(found, ["mistake unknown_store", "mistake bad_txn_id", "committed", "committed"]);

    let repeated = put(&client, "e");
    for expected in ["committed", "committed, replayed"] {
        assert_eq!(shown(&stream.commit(&repeated).await), expected);
    }
    drop(stream);
    let begun = Instant::now();
    while metric(&client, "tribunal_http_commit_streams_open").await > 0 {
        assert!(begun.elapsed() < TIMEOUT, "a stream that nobody has is open");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn every_commit_of_a_broken_stream_is_resolved() {
    let Some(server) = Server::start("stream-broken") else { return };
    let direct = client(&server.url);
    for loss in [Loss::Reply, Loss::Request] {
        let proxy = Proxy::start(&server.url).await;
        let proxied = client(&proxy.url);
        let stream = proxied.commit_stream();
        assert_eq!(shown(&stream.commit(&put(&proxied, "first")).await), "committed");
        // Whatever is written next breaks the connection.
        proxy.lose(loss, "");
        let commits = (0..200).map(|n| commit(&stream, put(&proxied, &format!("{loss:?}{n}"))));
        for (prepared, result) in ends(commits.collect()).await {
            let text = shown(&result);
            assert!(
                ["committed", "committed, replayed", "aborted fenced"].contains(&text.as_str()),
                "{loss:?}: {text}"
            );
            let status = direct.status(&prepared.txn_id, false, 5_000).await.expect("a status");
            let TxnStatus::Decided(known) = status else { panic!("{status:?}") };
            assert_eq!(matches!(known, Outcome::Committed(_)), text.starts_with("committed"), "{loss:?}: {text}");
        }
        // The next commit connects again.
        assert_eq!(shown(&stream.commit(&put(&proxied, "again")).await), "committed");
    }
}

#[tokio::test]
async fn a_silent_stream_is_given_up() {
    let Some(server) = Server::start("stream-silent") else { return };
    let proxy = Proxy::start(&server.url).await;
    let options = ClientOptions { timeout: Duration::from_secs(3), ..ClientOptions::default() };
    let proxied = Client::with_options(&proxy.url, options).expect("a URL");
    let stream = proxied.commit_stream();
    proxy.lose(Loss::Silence, "/v1/txns/stream");
    let text = shown(&stream.commit(&put(&proxied, "a")).await);
    proxy.lost.notified().await;
    assert!(["committed, replayed", "aborted fenced"].contains(&text.as_str()), "{text}");
    // Sent a second time, if the first answer took longer than the client waits.
    let text = shown(&stream.commit(&put(&proxied, "b")).await);
    assert!(text.starts_with("committed"), "{text}");
    proxy.stop();
    let options = ClientOptions { resolve_timeout: Duration::from_millis(300), ..ClientOptions::default() };
    let stopped = Client::with_options(&proxy.url, options).expect("a URL");
    assert_eq!(shown(&stopped.commit_stream().commit(&put(&stopped, "c")).await), "unavailable");
}

/// What a service does with a stream.
enum Script {
    /// It commits every line.
    Commit,
    /// It refuses the request.
    Refuse(u16),
    /// It takes so many lines in, ends the stream after so many more without an answer to any, and tells how many it took.
    End { taken: u64, after: usize },
    /// It answers the first line like this, with `ID` for its id, and commits the others.
    Say(&'static str),
    /// It answers nothing.
    Hold,
    /// It commits every line after a while.
    Late(Duration),
}

/// A service whose streams follow scripts. A request for a status is answered: committed.
struct Service {
    url: String,
    lines: Arc<AtomicUsize>,
}

impl Service {
    async fn start(scripts: Vec<Script>) -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let lines: Arc<AtomicUsize> = Arc::default();
        let count = Arc::clone(&lines);
        let scripts = Arc::new(Mutex::new(scripts.into_iter()));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (count, scripts) = (Arc::clone(&count), Arc::clone(&scripts));
                let service = service_fn(move |request| respond(request, Arc::clone(&count), Arc::clone(&scripts)));
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service),
                );
            }
        });
        Service { url, lines }
    }
}

type Out = Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>;

async fn respond(
    request: Request<Incoming>,
    count: Arc<AtomicUsize>,
    scripts: Arc<Mutex<std::vec::IntoIter<Script>>>,
) -> Result<Response<Out>, Infallible> {
    let whole = |status: u16, text: Value| {
        let body: Out = Box::pin(http_body_util::Full::new(Bytes::from(text.to_string())));
        Ok(Response::builder().status(status).body(body).expect("a response"))
    };
    let name = request.uri().path().split('/').nth(3).unwrap_or_default().to_owned();
    if name != "stream" {
        return whole(200, committed(&name));
    }
    let script = scripts.lock().expect("no panic").next().unwrap_or(Script::Commit);
    if let Script::Refuse(status) = script {
        let problem = json!({"type": "about:blank", "title": "x", "detail": "x", "status": status, "code": "refused", "retryable": false, "errors": []});
        return whole(status, problem);
    }
    let (out, frames) = mpsc::unbounded_channel::<Bytes>();
    tokio::spawn(act(script, request.into_body(), count, out));
    Ok(Response::new(Box::pin(Frames(frames)) as Out))
}

/// A body that is written as it comes.
struct Frames(mpsc::UnboundedReceiver<Bytes>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

async fn act(script: Script, mut body: Incoming, count: Arc<AtomicUsize>, out: mpsc::UnboundedSender<Bytes>) {
    let say = |text: String| {
        let _ = out.send(Bytes::from(text + "\n"));
    };
    let mut pending = Vec::new();
    let mut seen = 0;
    while let Some(Ok(frame)) = body.frame().await {
        pending.extend_from_slice(&frame.into_data().unwrap_or_default());
        while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = pending.drain(..=end).collect();
            let line: Value = serde_json::from_slice(&line).expect("a commit");
            let id = line["txn_id"].as_str().expect("an id");
            seen += 1;
            count.fetch_add(1, Ordering::SeqCst);
            match script {
                Script::Commit => say(committed(id).to_string()),
                Script::Late(wait) => {
                    tokio::time::sleep(wait).await;
                    say(committed(id).to_string());
                }
                Script::Say(text) if seen == 1 => say(text.replace("ID", id)),
                Script::Say(_) => say(committed(id).to_string()),
                Script::End { taken, after } if seen == after => {
                    say(json!({"event": "end", "reason": "stopping", "lines": taken.to_string()}).to_string());
                    return;
                }
                _ => {}
            }
        }
    }
}

fn committed(id: &str) -> Value {
    json!({"status": "committed", "txn_id": id, "epoch": "9", "version": "9437184", "lsn": {"kv": "3"}, "session": "s"})
}

#[tokio::test]
async fn what_a_stream_did_not_take_in_is_written_again_and_the_rest_is_resolved() {
    let service = Service::start(vec![Script::End { taken: 4, after: 10 }]).await;
    let client = client(&service.url);
    let stream = client.commit_stream();
    let commits = (0..10).map(|n| commit(&stream, put(&client, &format!("k{n}"))));
    let mut found: Vec<String> = ends(commits.collect()).await.iter().map(|(_, result)| shown(result)).collect();
    found.sort();
    let count = |text: &str| found.iter().filter(|found| *found == text).count();
    assert_eq!((count("committed, replayed"), count("committed")), (4, 6), "{found:?}");
    assert_eq!(service.lines.load(Ordering::SeqCst), 16);
}

#[tokio::test]
async fn a_refused_stream_and_strange_lines_reach_each_commit() {
    for (script, expected) in [
        (Script::Refuse(403), "mistake refused"),
        (Script::Refuse(503), "unavailable"),
        // It does not tell what became of the commit.
        (Script::Refuse(502), "committed, replayed"),
        (Script::Say("no JSON"), "committed, replayed"),
        (Script::Say("[1]"), "committed, replayed"),
        (Script::Say("{\"event\":\"end\",\"reason\":\"stopping\",\"lines\":\"1\"}"), "committed, replayed"),
        // As a newer service may say it.
        (
            Script::Say(
                "{\"event\":\"advice\"}\n{\"status\":\"aborted\",\"txn_id\":\"ID\",\"epoch\":\"9\",\
                 \"reason\":\"lease_lost\",\"retryable\":true}",
            ),
            "aborted lease_lost",
        ),
        (
            Script::Say(
                "{\"status\":\"problem\",\"problem\":{\"type\":\"about:blank\",\"title\":\"x\",\"detail\":\"x\",\
                 \"status\":400,\"code\":\"bad_txn_id\",\"retryable\":false,\"line\":1}}",
            ),
            "mistake bad_txn_id",
        ),
        (
            Script::Say(
                "{\"status\":\"problem\",\"txn_id\":\"ID\",\"problem\":{\"type\":\"about:blank\",\"title\":\"x\",\
                 \"detail\":\"x\",\"status\":504,\"code\":\"outcome_unknown\",\"retryable\":true}}",
            ),
            "committed, replayed",
        ),
    ] {
        let service = Service::start(vec![script]).await;
        let client = client(&service.url);
        let stream = client.commit_stream();
        assert_eq!(shown(&stream.commit(&put(&client, "a")).await), expected);
        assert_eq!(shown(&stream.commit(&put(&client, "b")).await), "committed", "after {expected}");
    }
}

#[tokio::test]
async fn a_commit_may_wait_for_its_stores() {
    // Longer than the share of each endpoint, and than the timeout of all.
    let (timeout, endpoint_timeout) = (Duration::from_millis(500), Duration::from_millis(100));
    for several in [false, true] {
        let late = Service::start(vec![Script::Late(Duration::from_millis(900))]).await;
        let others = [Service::start(vec![]).await, Service::start(vec![]).await];
        let mut urls = vec![&late.url];
        urls.extend(others.iter().map(|other| &other.url).filter(|_| several));
        let options = ClientOptions { timeout, endpoint_timeout, ..ClientOptions::default() };
        let client = Client::with_endpoints(&urls, options).expect("URLs");
        let mut commit = put(&client, "a");
        commit.request.ack = Some(Ack::Applied);
        let outcome = client.commit_stream().commit(&commit).await;
        assert_eq!((shown(&outcome).as_str(), client.endpoint()), ("committed", late.url.as_str()), "{several}");
        assert_eq!(late.lines.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test]
async fn the_window_holds_commits_back_and_an_id_in_flight_is_sent_by_itself() {
    let service = Service::start(vec![Script::Hold]).await;
    let client = client(&service.url);
    let stream = client.commit_stream();
    let first = put(&client, "first");
    let mut commits = vec![commit(&stream, first.clone())];
    let begun = Instant::now();
    while service.lines.load(Ordering::SeqCst) < 1 {
        assert!(begun.elapsed() < TIMEOUT);
        tokio::task::yield_now().await;
    }
    assert_eq!(shown(&stream.commit(&first).await), "committed");
    commits.extend((0..3000).map(|n| commit(&stream, put(&client, &format!("k{n}")))));
    while service.lines.load(Ordering::SeqCst) < 1024 {
        assert!(begun.elapsed() < TIMEOUT);
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(service.lines.load(Ordering::SeqCst), 1024);
    commits.iter().for_each(JoinHandle::abort);
}
