//! Traces and metrics of a real node, exported to a real OpenTelemetry Collector and read from its file.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::cluster::free_port;
use support::{Node, new_id};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
const TIMEOUT: Duration = Duration::from_secs(60);

/// A collector that writes the data it receives to a file. Killed by its process id on drop.
struct Collector {
    child: Child,
    port: u16,
    file: PathBuf,
}

impl Collector {
    /// Starts the collector that `tests/collector/build.sh` builds; returns `None` if it is not available here.
    fn start(dir: &Path) -> Option<Collector> {
        static BUILT: OnceLock<Result<String, String>> = OnceLock::new();
        let binary = match BUILT.get_or_init(build) {
            Ok(binary) => binary,
            Err(reason) => {
                println!("SKIPPED: no collector: {reason}");
                return None;
            }
        };
        let port = free_port();
        let (config, file) = (dir.join("collector.yaml"), dir.join("received.json"));
        std::fs::write(&config, configuration(port, &file)).expect("written");
        let log = std::fs::File::create(dir.join("collector.log")).expect("a log");
        let child = Command::new(binary)
            .arg("--config")
            .arg(format!("file:{}", config.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("the collector starts");
        let collector = Collector { child, port, file };
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let log = || std::fs::read_to_string(dir.join("collector.log")).unwrap_or_default();
            assert!(start.elapsed() < TIMEOUT, "the collector does not listen: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(collector)
    }

    /// Returns all objects of one kind received so far.
    fn received(&self, resources: &str, scopes: &str, items: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let whole = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
        whole
            .flat_map(|message| list(&message, resources))
            .flat_map(|resource| list(&resource, scopes))
            .flat_map(|scope| list(&scope, items))
            .collect()
    }

    fn spans_of(&self, trace: &str) -> Vec<Value> {
        let spans = self.received("resourceSpans", "scopeSpans", "spans");
        spans.into_iter().filter(|span| span["traceId"] == trace).collect()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn build() -> Result<String, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/collector/build.sh");
    let built = Command::new("bash").arg(script).stdin(Stdio::null()).output().expect("bash runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim().to_owned();
    if built.status.success() { Ok(text(built.stdout)) } else { Err(text(built.stderr)) }
}

fn configuration(port: u16, file: &Path) -> String {
    let config = json!({
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": format!("127.0.0.1:{port}")}}}},
        "exporters": {"file": {"path": file, "flush_interval": "100ms"}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {
                "traces": {"receivers": ["otlp"], "exporters": ["file"]},
                "metrics": {"receivers": ["otlp"], "exporters": ["file"]},
            },
        },
    });
    // JSON is valid YAML.
    config.to_string()
}

/// Starts a node that exports to a port, soon and often, with additional variables.
fn node(data: &Path, port: u16, variables: &[(&str, &str)]) -> Node {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.args(["dev", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{port}"))
        .env("OTEL_SERVICE_NAME", "tribunal-under-test")
        .env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
        .env("OTEL_BSP_SCHEDULE_DELAY", "100")
        .env("OTEL_METRIC_EXPORT_INTERVAL", "200")
        .envs(variables.iter().copied());
    Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"))
}

struct Committed {
    traceparent: Option<String>,
    timing: Option<String>,
    body: Value,
}

fn commit(node: &Node, traceparent: Option<&str>) -> Committed {
    let row = json!({"store": "kv", "key": new_id()});
    let write = json!({"op": "put", "store": "kv", "key": row["key"], "value": 1});
    post(node, &format!("{}/commit", new_id()), traceparent, &json!({"reads": [row], "writes": [write]}))
}

/// Reads a row that never existed at a version, which is impossible.
fn abort(node: &Node) -> Committed {
    let row = json!({"store": "kv", "key": new_id(), "version": "1"});
    let write = json!({"op": "put", "store": "kv", "key": row["key"], "value": 1});
    let aborted = post(node, &format!("{}/commit", new_id()), None, &json!({"reads": [row], "writes": [write]}));
    assert_eq!(aborted.body["status"], "aborted", "{}", aborted.body);
    aborted
}

fn post(node: &Node, path: &str, traceparent: Option<&str>, body: &Value) -> Committed {
    let url = format!("{}/v1/txns/{path}", node.url);
    let mut request = ureq::post(&url).header("content-type", "application/json");
    if let Some(traceparent) = traceparent {
        request = request.header("traceparent", traceparent);
    }
    let mut response = request.send(body.to_string()).expect("an answer");
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (traceparent, timing) = (header("traceparent"), header("server-timing"));
    let body = response.body_mut().read_to_string().expect("a body");
    Committed { traceparent, timing, body: serde_json::from_str(&body).expect("JSON") }
}

fn trace_of(traceparent: &str) -> String {
    traceparent.split('-').nth(1).expect("a trace").to_owned()
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let attributes = span["attributes"].as_array().map_or(&[][..], Vec::as_slice);
    attributes.iter().find(|attribute| attribute["key"] == key).map_or(&Value::Null, |found| &found["value"])
}

/// Returns the span counter of `/metrics`.
fn spans(node: &Node, fate: &str) -> u64 {
    let name = format!("tribunal_telemetry_spans_total{{fate=\"{fate}\"}} ");
    let text = node.get("/metrics").body;
    let line = text.as_str().expect("text").lines().find_map(|line| line.strip_prefix(&name).map(str::to_owned));
    line.and_then(|count| count.parse().ok()).unwrap_or_else(|| panic!("nothing is said of {fate} spans"))
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < TIMEOUT, "{what} did not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_commit_is_traced_from_the_request_to_the_storage() {
    let dir = tempfile::tempdir().unwrap();
    let Some(collector) = Collector::start(dir.path()) else { return };
    let node = node(&dir.path().join("data"), collector.port, &[]);
    let committed = commit(&node, Some(&format!("00-{TRACE}-{CALLER}-01")));
    assert_eq!(committed.body["status"], "committed");
    let timing = committed.timing.unwrap();
    assert!(timing.contains("sync;dur=") && timing.contains("resolve;dur="), "{timing}");

    let handed_on = committed.traceparent.unwrap();
    let span = handed_on.strip_prefix(&format!("00-{TRACE}-")).and_then(|rest| rest.strip_suffix("-01"));
    let span = span.unwrap_or_else(|| panic!("{handed_on} goes on with the caller's trace"));
    let log = node.get("/v1/log?store=kv&after=0&limit=100").body;
    assert_eq!(log["records"][0]["traceparent"], handed_on, "the record carries the trace on");

    let expected = ["commit", "log.sync", "epoch.resolve", "plugin.validate", "store.apply"];
    let spans = until("the spans", || {
        let spans = collector.spans_of(TRACE);
        let has = |name: &&str| spans.iter().any(|span| span["name"] == **name);
        expected.iter().all(has).then_some(spans)
    });
    let named = |name: &str| spans.iter().find(|span| span["name"] == name).unwrap();
    assert_eq!((&named("commit")["parentSpanId"], &named("commit")["spanId"]), (&json!(CALLER), &json!(span)));
    assert_eq!(attribute(named("commit"), "tribunal.verdict")["stringValue"], "committed");
    assert_eq!(attribute(named("plugin.validate"), "tribunal.plugin.slot")["stringValue"], "validator:serializable");
    for (above, below) in [
        ("commit", "log.sync"),
        ("commit", "epoch.resolve"),
        ("epoch.resolve", "plugin.validate"),
        ("commit", "store.apply"),
    ] {
        assert_eq!(named(below)["parentSpanId"], named(above)["spanId"], "{below} below {above}");
    }
    let nanos = |name: &str, end: &str| named(name)[end].as_str().unwrap().parse::<u64>().unwrap();
    assert_eq!(nanos("log.sync", "endTimeUnixNano"), nanos("epoch.resolve", "startTimeUnixNano"));
    let (applied, durable) = (nanos("store.apply", "startTimeUnixNano"), nanos("log.sync", "endTimeUnixNano"));
    assert!(applied >= durable, "applied after it was durable");
    assert!(node.stop().success());
}

/// Responds to posts on a socket with 204; sends each one's `traceparent` and records to the channel.
fn receiver() -> (String, Receiver<(String, Vec<Value>)>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let url = format!("http://{}/hook", listener.local_addr().expect("bound"));
    let (posts, received) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        // One connection; it ends with the node.
        let mut reader = BufReader::new(listener.accept().expect("a connection").0);
        loop {
            let (mut trace, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 {
                    return;
                }
                match line.trim_end().split_once(": ") {
                    Some(("traceparent", text)) => trace = text.to_owned(),
                    Some(("content-length", text)) => length = text.parse().expect("a length"),
                    None if line == "\r\n" => break,
                    _ => {}
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).expect("a body");
            let body: Value = serde_json::from_slice(&body).expect("JSON");
            let _ = posts.send((trace, body["records"].as_array().expect("records").clone()));
            reader.get_mut().write_all(b"HTTP/1.1 204 x\r\n\r\n").expect("the node listens");
        }
    });
    (url, received)
}

#[test]
fn a_webhook_post_continues_one_trace_or_links_to_many() {
    let dir = tempfile::tempdir().unwrap();
    let Some(collector) = Collector::start(dir.path()) else { return };
    let node = node(&dir.path().join("data"), collector.port, &[]);
    let other = TRACE.chars().rev().collect::<String>();
    for trace in [TRACE, &other] {
        commit(&node, Some(&format!("00-{trace}-{CALLER}-01")));
    }
    let (url, posts) = receiver();
    let webhook = json!({"kind": "webhook", "url": url, "secret": "at least 16 characters", "after": "0"});
    assert_eq!(node.put("/v1/stores/kv/push", &webhook).status, 200);
    let (linked, records) = posts.recv_timeout(TIMEOUT).expect("a post");
    assert_eq!(records.len(), 2);
    let span_of = |traceparent: &str| traceparent.split('-').nth(2).expect("a span").to_owned();
    let spans_below = |traceparent: &str| {
        until("the spans of a post", || {
            let spans = collector.spans_of(&trace_of(traceparent));
            let post = spans.iter().find(|span| span["spanId"] == span_of(traceparent).as_str())?.clone();
            let push = spans.iter().find(|span| span["spanId"] == post["parentSpanId"])?.clone();
            Some((post, push))
        })
    };
    let (post, push) = spans_below(&linked);
    assert_eq!((&post["name"], &push["name"]), (&json!("webhook.post"), &json!("push")));
    assert_eq!(push["parentSpanId"], "", "it begins a trace");
    let links: Vec<_> = push["links"].as_array().expect("links").iter().map(|link| &link["traceId"]).collect();
    assert_eq!(links, [TRACE, &other]);
    assert_eq!(attribute(&push, "tribunal.records")["intValue"], "2");

    let own = commit(&node, Some(&format!("00-{TRACE}-{CALLER}-01"))).traceparent.expect("it is traced");
    let (sole, records) = posts.recv_timeout(TIMEOUT).expect("a post");
    assert_eq!(records[0]["traceparent"], own, "the record says what the log says");
    assert_eq!(trace_of(&sole), TRACE);
    let (_, push) = spans_below(&sole);
    assert_eq!(push["parentSpanId"], span_of(&own).as_str(), "below its commit");
    assert!(node.stop().success());
}

#[test]
fn metrics_are_exported_under_their_names_once_they_appear() {
    let dir = tempfile::tempdir().unwrap();
    let Some(collector) = Collector::start(dir.path()) else { return };
    let node = node(&dir.path().join("data"), collector.port, &[("OTEL_TRACES_EXPORTER", "none")]);
    assert_eq!(commit(&node, None).traceparent, None, "traces are off");
    let point = |name: &str, value: f64| {
        until(name, || {
            let metrics = collector.received("resourceMetrics", "scopeMetrics", "metrics");
            let points = metrics.iter().filter(|metric| metric["name"] == name);
            points
                .flat_map(|metric| metric["sum"]["dataPoints"].as_array().cloned().unwrap_or_default())
                .find(|point| point["asDouble"] == value)
        })
    };
    point("tribunal.txns_committed", 1.0);
    // There were no aborts when the metrics were first collected.
    abort(&node);
    let aborted = point("tribunal.txns_aborted", 1.0);
    assert_eq!(attribute(&aborted, "reason")["stringValue"], "read_conflict");
    let resource = until("a resource", || {
        let text = std::fs::read_to_string(&collector.file).ok()?;
        let first = serde_json::from_str::<Value>(text.lines().next()?).ok()?;
        Some(first["resourceMetrics"][0]["resource"].clone())
    });
    assert_eq!(attribute(&resource, "service.name")["stringValue"], "tribunal-under-test");
    assert_eq!(attribute(&resource, "deployment.environment")["stringValue"], "test");
    assert!(node.stop().success());
}

#[test]
fn a_caller_that_does_not_trace_is_not_traced_and_its_header_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let Some(collector) = Collector::start(dir.path()) else { return };
    let node = node(&dir.path().join("data"), collector.port, &[]);
    let untraced = format!("00-{TRACE}-{CALLER}-00");
    assert_eq!(commit(&node, Some(&untraced)).traceparent, None);
    let own = commit(&node, None).traceparent.expect("a trace of its own");
    let trace = trace_of(&own);
    until("the other trace", || (!collector.spans_of(&trace).is_empty()).then_some(()));
    // Spans that ended before it were exported before it.
    assert!(collector.spans_of(TRACE).is_empty());
    let log = node.get("/v1/log?store=kv&after=0&limit=100").body;
    assert_eq!(log["records"][0]["traceparent"], untraced);
    assert!(node.stop().success());
}

#[test]
fn a_batch_is_one_span_and_its_records_carry_it() {
    let dir = tempfile::tempdir().unwrap();
    let Some(collector) = Collector::start(dir.path()) else { return };
    let node = node(&dir.path().join("data"), collector.port, &[]);
    let txn = |_| json!({"txn_id": new_id(), "writes": [{"op": "put", "store": "kv", "key": new_id(), "value": 1}]});
    let txns: Vec<Value> = (0..3).map(txn).collect();
    let traceparent = format!("00-{TRACE}-{CALLER}-01");
    let answer = post(&node, "batch-commit", Some(&traceparent), &json!({"txns": txns}));
    let own = answer.traceparent.expect("it is traced");
    let spans = until("the spans", || {
        let spans = collector.spans_of(TRACE);
        let has = |name: &str| spans.iter().any(|span| span["name"] == name);
        (has("batch-commit") && has("log.sync")).then_some(spans)
    });
    let batches: Vec<_> = spans.iter().filter(|span| span["name"] == "batch-commit").collect();
    assert_eq!(batches.len(), 1);
    assert_eq!(attribute(batches[0], "tribunal.txns.committed")["intValue"], "3");
    let log = node.get("/v1/log?store=kv&after=0&limit=100").body;
    let records = log["records"].as_array().unwrap();
    assert_eq!(records.len(), 3);
    assert!(records.iter().all(|record| record["traceparent"] == own), "{log}");
    assert!(node.stop().success());
}

#[test]
fn an_abort_is_traced_although_it_was_not_sampled() {
    let dir = tempfile::tempdir().unwrap();
    let Some(collector) = Collector::start(dir.path()) else { return };
    let almost_none = [("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0.000000001")];
    let node = node(&dir.path().join("data"), collector.port, &almost_none);
    assert_eq!(commit(&node, None).traceparent, None);
    let trace = trace_of(&abort(&node).traceparent.expect("it carries its trace"));
    let span = until("the span", || {
        let spans = collector.spans_of(&trace);
        spans.into_iter().find(|span| span["name"] == "commit")
    });
    assert_eq!(attribute(&span, "tribunal.verdict")["stringValue"], "aborted");
    assert_eq!(attribute(&span, "tribunal.abort.reason")["stringValue"], "read_conflict");
    assert!(node.stop().success());
}

#[test]
fn a_slow_transaction_is_logged_with_its_trace() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(&dir.path().join("data"), free_port(), &[]);
    let far = json!({"adaptor": "redis", "adaptor_config": {"endpoint": "127.0.0.1:1"}});
    assert_eq!(node.put("/v1/stores/far", &far).status, 201);
    let body = json!({"ack": "applied", "writes": [{"op": "put", "store": "far", "key": "a", "value": 1}]});
    let traceparent = format!("00-{TRACE}-{CALLER}-01");
    std::thread::scope(|scope| {
        let (node_ref, body) = (&node, &body);
        scope.spawn(move || post(node_ref, &format!("{}/commit", new_id()), Some(&traceparent), body));
        until("the record", || (node.get("/v1/stores/far").body["head_lsn"] == "1").then_some(()));
        // It waits for a storage that does not exist; this duration makes it slow.
        std::thread::sleep(Duration::from_millis(1200));
        node.signal("TERM");
    });
    let (status, text) = node.ended();
    assert!(status.success());
    let line = text.lines().find(|line| line.contains("a transaction was slow")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains(TRACE), "{line}");
}

#[test]
fn a_dead_collector_changes_nothing_for_commits() {
    let dir = tempfile::tempdir().unwrap();
    let node = node(&dir.path().join("data"), free_port(), &[]);
    for _ in 0..100 {
        assert_eq!(commit(&node, None).body["status"], "committed");
    }
    until("spans to be lost", || (spans(&node, "lost") > 0).then_some(()));
    node.signal("TERM");
    let (status, text) = node.ended();
    assert!(status.success(), "it stops in order, with spans that nobody took");
    let told = text.lines().filter(|line| line.contains("collector does not accept") && line.contains("traces"));
    assert_eq!(told.count(), 1, "said once: {text}");
}

#[test]
fn a_collector_that_hangs_delays_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // Accepts connections and never responds.
    let hanging = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = hanging.local_addr().unwrap().port();
    let all = [("OTEL_TRACES_SAMPLER", "always_on"), ("OTEL_BSP_MAX_QUEUE_SIZE", "50")];
    let node = node(&dir.path().join("data"), port, &all);
    for _ in 0..100 {
        let committed = commit(&node, None);
        assert_eq!(committed.body["status"], "committed");
        assert!(committed.traceparent.is_some());
    }
    assert!(
        spans(&node, "dropped") >= 200,
        "a hundred traces do not fit into fifty spans: {}",
        spans(&node, "dropped")
    );
    assert_eq!(spans(&node, "sent"), 0);
    assert!(node.stop().success());
    drop(hanging);
}

#[test]
fn unsupported_telemetry_settings_are_rejected_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    for (name, value, says) in [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "http/protobuf"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector.example:4318", "does not begin with http://"),
        ("OTEL_TRACES_SAMPLER", "jaeger_remote", "jaeger_remote"),
        ("OTEL_METRICS_EXPORTER", "statsd", "statsd"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
        command.args(["dev", "--listen", "127.0.0.1:0", "--data"]).arg(dir.path());
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318").env(name, value);
        let refused = Node::spawn(command).err().unwrap_or_else(|| panic!("{name}={value} was taken"));
        assert!(refused.contains(says), "{name}={value}: {refused}");
    }
}
