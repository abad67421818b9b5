//! Webhooks: a real process against a receiver that fails, hangs, redirects, loses records and rejects them.

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ring::hmac;
use serde_json::{Value, json};
use support::{Node, eventually};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

const SECRET: &str = "a secret of the receiver";

/// A request that arrived.
#[derive(Clone, Debug)]
struct Post {
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Post {
    fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a body in JSON")
    }

    fn lsns(&self) -> Vec<u64> {
        self.json()["records"].as_array().expect("records").iter().map(|record| number(&record["lsn"])).collect()
    }

    /// What a receiver does to know that a request is from its server: see the README.
    fn is_signed(&self, secret: &str) -> bool {
        let parts: Vec<_> =
            self.header("tribunal-signature").split(',').filter_map(|part| part.split_once('=')).collect();
        let [("t", seconds), ("v1", hex)] = parts[..] else { return false };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock").as_secs();
        let fresh = seconds.parse::<u64>().is_ok_and(|seconds| now.abs_diff(seconds) < 300);
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex")).collect();
        let signed = [seconds.as_bytes(), b".", &self.body].concat();
        fresh && hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), &signed, &bytes).is_ok()
    }
}

/// What a receiver does with a request.
#[derive(Clone, Debug)]
enum Does {
    Answer(u16, &'static str, String),
    Hang,
    Close,
    Babble,
}

fn ok() -> Does {
    Does::Answer(204, "", String::new())
}

type Behaviour = Box<dyn Fn(usize, &Post) -> Does + Send + Sync>;

struct Shared {
    posts: Mutex<Vec<Post>>,
    behaviour: Mutex<Behaviour>,
    stop: AtomicBool,
}

/// An HTTP server on a port of its own. Its threads end with it.
struct Receiver {
    address: std::net::SocketAddr,
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
    scheme: &'static str,
}

impl Receiver {
    fn new(behaviour: impl Fn(usize, &Post) -> Does + Send + Sync + 'static) -> Receiver {
        Receiver::with(None, behaviour)
    }

    /// One that speaks TLS, with a certificate for `localhost` that nobody but the test trusts.
    fn tls(behaviour: impl Fn(usize, &Post) -> Does + Send + Sync + 'static) -> Receiver {
        let pem = include_bytes!("tls/cert.pem");
        let chain = vec![CertificateDer::from_pem_slice(pem).expect("a certificate")];
        let key = PrivateKeyDer::from_pem_slice(include_bytes!("tls/key.pem")).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("versions").with_no_client_auth().with_single_cert(chain, key);
        Receiver::with(Some(Arc::new(config.expect("they belong together"))), behaviour)
    }

    fn with(
        tls: Option<Arc<ServerConfig>>,
        behaviour: impl Fn(usize, &Post) -> Does + Send + Sync + 'static,
    ) -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            posts: Mutex::default(),
            behaviour: Mutex::new(Box::new(behaviour)),
            stop: AtomicBool::new(false),
        });
        let all = Arc::clone(&shared);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let thread = std::thread::spawn(move || {
            for socket in listener.incoming() {
                if all.stop.load(Ordering::Relaxed) {
                    return;
                }
                let one = Arc::clone(&all);
                let tls = tls.clone();
                std::thread::spawn(move || {
                    let socket = socket.expect("a connection");
                    drop(match tls {
                        None => serve(socket, &one),
                        Some(config) => {
                            let session = rustls::ServerConnection::new(config).expect("a session");
                            serve(rustls::StreamOwned::new(session, socket), &one)
                        }
                    });
                });
            }
        });
        Receiver { address, shared, thread: Some(thread), scheme }
    }

    fn becomes(&self, behaviour: impl Fn(usize, &Post) -> Does + Send + Sync + 'static) {
        *self.shared.behaviour.lock().unwrap() = Box::new(behaviour);
    }

    fn url(&self) -> String {
        format!("{}://{}/hook?from=tribunal", self.scheme, self.address)
    }

    /// The same by the name that the certificate has.
    fn named_url(&self) -> String {
        format!("{}://localhost:{}/hook?from=tribunal", self.scheme, self.address.port())
    }

    fn posts(&self) -> Vec<Post> {
        self.shared.posts.lock().unwrap().clone()
    }

    fn seen(&self) -> BTreeSet<u64> {
        self.posts().iter().flat_map(Post::lsns).collect()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(socket: impl Read + Write, shared: &Shared) -> std::io::Result<()> {
    let mut reader = BufReader::new(socket);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let target = line.split(' ').nth(1).unwrap_or_default().to_owned();
        assert!(line.starts_with("POST "), "{line}");
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut post = Post { target, headers, body: Vec::new() };
        let length = post.header("content-length").parse().expect("a length");
        post.body = vec![0; length];
        reader.read_exact(&mut post.body)?;
        let does = {
            let mut posts = shared.posts.lock().unwrap();
            posts.push(post.clone());
            let count = posts.len();
            drop(posts);
            (shared.behaviour.lock().unwrap())(count, &post)
        };
        let writer = reader.get_mut();
        match does {
            Does::Answer(status, header, text) => {
                write!(writer, "HTTP/1.1 {status} x\r\n{header}content-length: {}\r\n\r\n{text}", text.len())?;
                writer.flush()?;
            }
            // Longer than any test waits; the other side closes.
            Does::Hang => drop(reader.read(&mut [0; 1])),
            Does::Close => return Ok(()),
            Does::Babble => writer.write_all(b"this is not HTTP at all\r\n\r\n")?,
        }
    }
}

fn number(value: &Value) -> u64 {
    value.as_str().expect("a decimal string").parse().expect("a number")
}

fn register(node: &Node, store: &str, more: &Value) -> support::Response {
    let mut body = json!({"kind": "webhook", "secret": SECRET});
    for (name, value) in more.as_object().expect("fields") {
        body[name] = value.clone();
    }
    node.put(&format!("/v1/stores/{store}/push"), &body)
}

fn standing(node: &Node, store: &str) -> Value {
    let answer = node.get(&format!("/v1/stores/{store}/push"));
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(!answer.body.to_string().contains(SECRET), "a secret is shown");
    answer.body
}

fn until_acked(node: &Node, store: &str, lsn: u64) -> Value {
    eventually("the receiver's acknowledgement", || {
        Some(standing(node, store)).filter(|standing| number(&standing["acked_lsn"]) == lsn)
    })
}

#[test]
fn every_record_arrives_signed_and_in_order_and_a_restart_resumes_after_the_watermark() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    for n in 0..5 {
        node.put_row(&format!("k{n}"), n);
    }
    let receiver = Receiver::new(|_, _| ok());
    let answer = register(&node, "kv", &json!({"url": receiver.url(), "records_max": 3}));
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!((&answer.body["kind"], &answer.body["url"]), (&json!("webhook"), &json!(receiver.url())));
    until_acked(&node, "kv", 5);
    let posts = receiver.posts();
    let lsns: Vec<u64> = posts.iter().flat_map(Post::lsns).collect();
    assert_eq!(lsns, [1, 2, 3, 4, 5]);
    for post in &posts {
        assert!(post.is_signed(SECRET) && !post.is_signed("another secret of 16"), "{post:?}");
        assert!(post.lsns().len() <= 3 && post.target == "/hook?from=tribunal", "{post:?}");
        let body = post.json();
        assert_eq!(
            (&body["store"], body["first_lsn"].as_str()),
            (&json!("kv"), Some(post.header("tribunal-first-lsn")))
        );
    }
    let records: Vec<Value> =
        posts.iter().flat_map(|post| post.json()["records"].as_array().expect("records").clone()).collect();
    assert_eq!(records, node.log_of("kv"), "what is pushed is what is pulled");

    assert!(node.stop().success());
    let before = receiver.posts().len();
    let node = Node::start(dir.path());
    node.put_row("later", 6);
    until_acked(&node, "kv", 6);
    let after: Vec<u64> = receiver.posts()[before..].iter().flat_map(Post::lsns).collect();
    assert_eq!(after, [6], "the watermark was durable at the stop");
    node.kill();
    let node = Node::start(dir.path());
    node.put_row("last", 7);
    until_acked(&node, "kv", 7);
    assert_eq!(receiver.seen(), (1..=7).collect(), "after a kill some may come again, none is missing");

    let path = format!("{}/v1/stores/kv/push", node.url);
    assert_eq!(node.delete("/v1/stores/kv/push").status, 204, "{path}");
    assert_eq!(node.delete("/v1/stores/kv/push").status, 404);
    assert_eq!(node.get("/v1/stores/kv/push").body["code"], "push_unregistered");
    node.put_row("unseen", 8);
    assert_eq!(receiver.seen().last(), Some(&7));
}

#[test]
fn a_receiver_that_recovers_gets_everything_and_delays_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    assert_eq!(node.put("/v1/stores/other", &json!({})).status, 201);
    let failing = Receiver::new(|n, _| match n % 5 {
        0 => Does::Close,
        1 => Does::Answer(503, "", "come back later".into()),
        2 => Does::Babble,
        3 => Does::Hang,
        _ => Does::Answer(429, "retry-after: 1\r\n", String::new()),
    });
    let healthy = Receiver::new(|_, _| ok());
    assert_eq!(register(&node, "kv", &json!({"url": failing.url(), "timeout_ms": 150})).status, 200);
    assert_eq!(register(&node, "other", &json!({"url": healthy.url()})).status, 200);
    let write = |store: &str| json!({"op": "put", "store": store, "key": "k", "value": 1});
    for _ in 0..10 {
        let body = json!({"ack": "applied", "writes": [write("kv"), write("other")]});
        let verdict = node.commit(&body).body;
        assert_eq!((&verdict["status"], &verdict["applied"]), (&json!("committed"), &json!(true)));
    }
    until_acked(&node, "other", 10);
    let standing = eventually("a push that backs off", || {
        Some(standing(&node, "kv")).filter(|standing| standing["state"] == "backing_off" && failing.posts().len() >= 5)
    });
    assert_eq!((&standing["acked_lsn"], &standing["lag_records"]), (&json!("0"), &json!("10")), "{standing}");
    assert!(standing["last_error"].is_string() && standing["attempts"].as_u64() > Some(0), "{standing}");
    failing.becomes(|_, _| ok());
    until_acked(&node, "kv", 10);
    assert_eq!(failing.seen(), (1..=10).collect());
}

#[test]
fn a_receiver_that_hangs_times_out() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let receiver = Receiver::new(|_, _| Does::Hang);
    assert_eq!(register(&node, "kv", &json!({"url": receiver.url(), "timeout_ms": 100})).status, 200);
    node.put_row("k", 1);
    let standing = eventually("a time-out", || Some(standing(&node, "kv")).filter(|s| s["last_error"].is_string()));
    assert!(standing["last_error"].as_str().expect("a text").contains("within 100 ms"), "{standing}");
    assert!(node.stop().success(), "a hanging receiver does not hold a stop back");
}

#[test]
fn redirects_are_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let elsewhere = Receiver::new(|_, _| ok());
    let to = elsewhere.url();
    let receiver = Receiver::new(move |_, _| {
        Does::Answer(307, Box::leak(format!("location: {to}\r\n").into_boxed_str()), String::new())
    });
    assert_eq!(register(&node, "kv", &json!({"url": receiver.url()})).status, 200);
    node.put_row("k", 1);
    let standing = eventually("a stop", || Some(standing(&node, "kv")).filter(|s| s["state"] == "stopped"));
    let text = standing["last_error"].as_str().expect("a reason").to_owned();
    assert!(text.contains("307") && text.contains("redirects are not followed"), "{text}");
    assert!(elsewhere.posts().is_empty());
}

#[test]
fn a_receiver_that_replies_410_stops_the_push_and_may_be_registered_again() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let receiver = Receiver::new(|_, _| Does::Answer(410, "", "moved away".into()));
    assert_eq!(register(&node, "kv", &json!({"url": receiver.url()})).status, 200);
    node.put_row("a", 1);
    let stopped = eventually("a stop", || Some(standing(&node, "kv")).filter(|s| s["state"] == "stopped"));
    assert!(stopped["last_error"].as_str().expect("a reason").contains("410: moved away"), "{stopped}");
    node.put_row("b", 2);
    assert_eq!(receiver.posts().len(), 1, "it is not asked again");
    receiver.becomes(|_, _| ok());
    assert_eq!(register(&node, "kv", &json!({"url": receiver.url()})).status, 200);
    until_acked(&node, "kv", 2);
}

#[test]
fn a_refused_record_stops_the_push_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    for n in 1..=8 {
        node.put_row(&format!("k{n}"), n);
    }
    let receiver = Receiver::new(|_, post| match post.lsns().contains(&5) {
        true => Does::Answer(422, "", "no fives".into()),
        false => ok(),
    });
    assert_eq!(register(&node, "kv", &json!({"url": receiver.url()})).status, 200);
    let stopped = eventually("a stop", || Some(standing(&node, "kv")).filter(|s| s["state"] == "stopped"));
    let text = stopped["last_error"].as_str().expect("a reason");
    assert!(text.contains("LSN 5 ") && text.contains("422: no fives"), "{text}");
    assert_eq!(stopped["acked_lsn"], "4");
    let again = register(&node, "kv", &json!({"url": receiver.url(), "after": "5"}));
    assert_eq!(again.status, 200, "{}", again.body);
    until_acked(&node, "kv", 8);
}

#[test]
fn the_receiver_can_report_its_position() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    for n in 1..=6 {
        node.put_row(&format!("k{n}"), n);
    }
    // It was set back to LSN 2 once, as from a backup.
    let receiver = Receiver::new(|n, post| match (n, post.lsns().last()) {
        (1, _) => Does::Answer(200, "tribunal-watermark: 2\r\n", String::new()),
        (_, Some(last)) => {
            Does::Answer(200, Box::leak(format!("tribunal-watermark: {last}\r\n").into_boxed_str()), "fine".into())
        }
        _ => Does::Close,
    });
    assert_eq!(register(&node, "kv", &json!({"url": receiver.url()})).status, 200);
    until_acked(&node, "kv", 6);
    let posts: Vec<_> = receiver.posts().iter().map(Post::lsns).collect();
    assert_eq!(posts, [vec![1, 2, 3, 4, 5, 6], vec![3, 4, 5, 6]]);

    receiver.becomes(|_, _| Does::Answer(200, "tribunal-watermark: 1000\r\n", String::new()));
    node.put_row("k7", 7);
    let stopped = eventually("a stop", || Some(standing(&node, "kv")).filter(|s| s["state"] == "stopped"));
    assert!(stopped["last_error"].as_str().expect("a reason").contains("another log"), "{stopped}");
}

#[test]
fn invalid_registrations_are_rejected_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.args(["dev", "--listen", "127.0.0.1:0", "--data"]).arg(dir.path()).env("TRIBUNAL__PUSH__ALLOW", "[]");
    let node = Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"));
    let receiver = Receiver::new(|_, _| ok());
    let port = receiver.address.port();
    for inside in [
        receiver.url(),
        format!("http://localhost:{port}/"),
        format!("http://0x7f.1:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0177.0.0.1:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        "http://0.0.0.0/".into(),
        "http://169.254.169.254/latest/meta-data/".into(),
        "http://10.0.0.1/".into(),
        "https://192.168.1.1/".into(),
        "https://[fd00::1]/".into(),
        "https://[fe80::1]/".into(),
        "http://100.64.0.1/".into(),
    ] {
        let answer = register(&node, "kv", &json!({"url": inside}));
        let code = answer.body["code"].as_str().unwrap_or_default();
        // A resolver may refuse an odd spelling by itself.
        assert_eq!(answer.status, 422, "{inside}: {}", answer.body);
        assert!(code == "url_refused" || code == "url_unresolved", "{inside}: {}", answer.body);
        assert_eq!(answer.body["errors"][0]["pointer"], "/url");
    }
    let good = "https://9.9.9.9/hook";
    for (fields, status, code) in [
        (json!({"url": "https://receiver.invalid/"}), 422, "url_unresolved"),
        (json!({"url": "ftp://9.9.9.9/"}), 400, "bad_url"),
        (json!({"url": "https://user:pw@9.9.9.9/"}), 400, "bad_url"),
        (json!({"url": "https://9.9.9.9/#x"}), 400, "bad_url"),
        (json!({"url": "https://9.9.9.9:0/"}), 400, "bad_url"),
        (json!({"url": "/hook"}), 400, "bad_url"),
        (json!({"url": format!("https://9.9.9.9/{}", "x".repeat(3000))}), 400, "bad_url"),
        (json!({"url": 7}), 400, "wrong_type"),
        (json!({}), 400, "missing_field"),
        (json!({"url": good, "secret": "short"}), 400, "bad_secret"),
        (json!({"url": good, "secret": "x".repeat(257)}), 400, "bad_secret"),
        (json!({"url": good, "kind": "pigeon"}), 400, "unknown_value"),
        (json!({"url": good, "after": "1"}), 422, "position_beyond_head"),
        (json!({"url": good, "after": "-1"}), 400, "bad_number"),
        (json!({"url": good, "records_max": 0}), 400, "bad_number"),
        (json!({"url": good, "records_max": 10_001}), 400, "bad_number"),
        (json!({"url": good, "timeout_ms": 99}), 400, "bad_number"),
        (json!({"url": good, "bytes_max": 1e12}), 400, "bad_number"),
        (json!({"url": good, "retries": 5}), 400, "unknown_field"),
    ] {
        let answer = register(&node, "kv", &fields);
        assert_eq!((answer.status, answer.body["code"].as_str()), (status, Some(code)), "{fields}: {}", answer.body);
    }
    assert_eq!(register(&node, "nope", &json!({"url": good})).status, 404);
    assert_eq!(node.get("/v1/stores/kv/push").status, 404, "nothing was registered");
    node.put_row("k", 1);
    std::thread::sleep(Duration::from_millis(50));
    assert!(receiver.posts().is_empty());
}

/// Starts a node that trusts one certificate only.
fn trusting(certificate: &str, data: &Path) -> Node {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.args(["dev", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    command.env("SSL_CERT_FILE", Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(certificate));
    Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"))
}

#[test]
fn a_receiver_over_tls_must_have_a_certificate_for_its_name_that_the_node_trusts() {
    let receiver = Receiver::tls(|_, _| ok());
    let dir = tempfile::tempdir().unwrap();
    let node = trusting("cert.pem", &dir.path().join("trusting"));
    node.put_row("a", 1);
    assert_eq!(register(&node, "kv", &json!({"url": receiver.named_url()})).status, 200);
    until_acked(&node, "kv", 1);
    assert!(receiver.posts().iter().all(|post| post.is_signed(SECRET)));
    assert_eq!(receiver.seen(), BTreeSet::from([1]));
    let in_trouble =
        |node: &Node| eventually("trouble", || standing(node, "kv")["last_error"].as_str().map(str::to_owned));
    // Trusted, but for another name.
    assert_eq!(register(&node, "kv", &json!({"url": receiver.url()})).status, 200);
    node.put_row("a", 2);
    let error = in_trouble(&node);
    assert!(error.contains("TLS handshake with 127.0.0.1 failed"), "{error}");
    // The right name, but nobody whom the node trusts.
    let node = trusting("other.pem", &dir.path().join("other"));
    node.put_row("a", 1);
    assert_eq!(register(&node, "kv", &json!({"url": receiver.named_url()})).status, 200);
    let error = in_trouble(&node);
    assert!(error.contains("TLS handshake with localhost failed") && error.contains("certificate"), "{error}");
    assert_eq!(receiver.seen(), BTreeSet::from([1]), "nothing was told to somebody who may be anybody");
}
