//! Access control on a real process: keys, roles, tokens, TLS, quotas; and malicious clients.

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use support::keyed::{AUTH, call, make_key, operator, put, serve, try_serve};
use support::{Node, eventually, new_id};

fn address(node: &Node) -> SocketAddr {
    node.url.split_once("://").expect("a URL").1.parse().expect("an address")
}

/// Sends bytes over a new connection and returns everything received until the server closes it.
fn raw(node: &Node, request: &[u8]) -> String {
    let mut socket = TcpStream::connect(address(node)).expect("it listens");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a socket");
    let _ = socket.write_all(request);
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn status_of(answer: &str) -> Option<u16> {
    answer.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

#[test]
fn an_address_that_others_reach_needs_keys() {
    let dir = tempfile::tempdir().unwrap();
    let refusal = try_serve(dir.path(), "0.0.0.0:0", "").err().expect("it must not start");
    assert!(refusal.contains("auth.required"), "{refusal}");
    let open = Node::start(&dir.path().join("dev"));
    assert_eq!(open.get("/v1/stores").status, 200, "development on loopback is open");
}

#[test]
fn requests_without_a_key_are_rejected_and_each_role_is_limited() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let file = std::fs::metadata(dir.path().join("data/operator.key")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    for path in ["/healthz", "/readyz", "/version", "/openapi.json", "/docs"] {
        assert_eq!(node.get(path).status, 200, "{path} says nothing about anybody");
    }
    for path in ["/v1/stores", "/v1/log?store=kv", "/metrics", "/v1/admin/keys", "/v1/snapshot?store=kv"] {
        let refused = node.get(path);
        assert_eq!((refused.status, &refused.body["code"]), (401, &json!("unauthenticated")), "{path}");
    }
    let challenge = raw(&node, b"GET /v1/stores HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(challenge.to_lowercase().contains("www-authenticate: bearer"), "{challenge}");

    let root = operator(dir.path());
    assert_eq!(call(&node, &root, "PUT", "/v1/stores/kv", Some(&json!({"adaptor": "kv"}))).status, 201);
    let engine = make_key(&node, &root, "default", &["engine"]);
    let reader = make_key(&node, &root, "default", &["store"]);
    assert_eq!(put(&node, &engine, &new_id(), 1).body["status"], "committed");
    // Commits take a shorter path than the other requests, through the same guard.
    let commit = format!("{}/v1/txns/{}/commit", node.url, new_id());
    let body = json!({"writes": [{"op": "put", "store": "kv", "key": "k", "value": 2}]});
    for (key, status) in [(None, 401), (Some("trb_x_y"), 401), (Some(&*reader), 403), (Some(&*root), 403)] {
        assert_eq!(support::call(&commit, "POST", key, Some(&body)).status, status, "{key:?}");
    }
    assert_eq!(call(&node, &engine, "GET", "/v1/log?store=kv", None).body["head_lsn"], "1");
    let expected = [
        (&engine, "GET", "/v1/log?store=kv", 200),
        (&engine, "PUT", "/v1/stores/other", 403),
        (&engine, "GET", "/metrics", 403),
        (&engine, "GET", "/v1/admin/keys", 403),
        (&engine, "POST", "/v1/stores/kv/push/resume", 403),
        (&reader, "GET", "/v1/log?store=kv", 200),
        (&reader, "POST", "/v1/txns", 403),
        (&root, "GET", "/metrics", 200),
        (&root, "POST", "/v1/txns", 403),
    ];
    for (key, method, path, status) in expected {
        let body = (method != "GET").then(|| json!({}));
        assert_eq!(call(&node, key, method, path, body.as_ref()).status, status, "{method} {path}");
    }
    for wrong in ["", "x", "trb_", &engine[..engine.len() - 1], &format!("{engine}0"), &engine.to_uppercase()] {
        let refused = support::call(&format!("{}/v1/stores", node.url), "GET", Some(wrong), None);
        assert_eq!(refused.status, 401, "{wrong}");
    }
    assert!(!node_log(&dir).contains(&root[25..]), "secrets are nowhere in the data");
}

/// Sends a stream of one commit and returns its response.
fn stream_of_one(node: &Node, key: &str, line: &Value) -> String {
    let line = format!("{line}\n");
    let head = format!("POST /v1/txns/stream HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {key}");
    let length = line.len();
    let request = format!("{head}\r\ncontent-type: application/x-ndjson\r\ncontent-length: {length}\r\n\r\n{line}");
    raw(node, request.as_bytes())
}

/// Responses of the three requests that can carry several rows or commits of a tenant.
struct Ways {
    stream: String,
    read: support::Response,
    begin: support::Response,
}

fn ways(node: &Node, key: &str) -> Ways {
    let write = json!({"op": "put", "store": "orders", "key": "k", "value": 1});
    let stream = stream_of_one(node, key, &json!({"txn_id": new_id(), "writes": [write]}));
    let rows = json!({"read": [{"key": "k"}]});
    let read = call(node, key, "POST", "/v1/stores/orders/rows/read", Some(&rows));
    let begin = json!({"stores": ["orders"], "read": [{"store": "orders", "key": "k"}]});
    Ways { stream, read, begin: call(node, key, "POST", "/v1/txns", Some(&begin)) }
}

#[test]
fn streams_and_reads_of_several_rows_need_their_role_and_stay_with_their_tenant() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    let owner = make_key(&node, &root, "shop", &["operator"]);
    assert_eq!(call(&node, &owner, "PUT", "/v1/stores/orders", Some(&json!({"adaptor": "kv"}))).status, 201);
    for (namespace, role, commits, reads) in [
        ("shop", "engine", true, true),
        ("shop", "store", false, true),
        ("shop", "operator", false, true),
        ("default", "metrics", false, false),
        ("default", "plugin-admin", false, false),
    ] {
        let found = ways(&node, &make_key(&node, &root, namespace, &[role]));
        let expected = (if commits { 200 } else { 403 }, if reads { 200 } else { 403 });
        assert_eq!((status_of(&found.stream), found.read.status), (Some(expected.0), expected.1), "{role}");
        assert_eq!(found.begin.status, if commits { 201 } else { 403 }, "{role}: {}", found.begin.body);
        assert_eq!(found.stream.contains("\"committed\""), commits, "{role}: {}", found.stream);
    }
    // Another tenant's store is indistinguishable from a missing one.
    for namespace in ["bank", "default"] {
        let found = ways(&node, &make_key(&node, &root, namespace, &["engine", "store", "operator"]));
        assert!(found.stream.contains("unknown_store") && !found.stream.contains("committed"), "{}", found.stream);
        for refused in [found.read, found.begin] {
            assert_eq!((refused.status, &refused.body["code"]), (404, &json!("unknown_store")), "{namespace}");
        }
    }
}

/// Returns everything in the data directory except the first key's own file, as text.
fn node_log(dir: &tempfile::TempDir) -> String {
    let mut text = String::new();
    let mut folders = vec![dir.path().join("data")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("operator.key") {
                // The node writes files under temporary names first, and removes those that it no longer needs.
                let bytes = std::fs::read(path).unwrap_or_default();
                text.push_str(&String::from_utf8_lossy(&bytes));
            }
        }
    }
    text
}

#[test]
fn revocations_are_permanent_and_keys_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    let (kept, gone) = (make_key(&node, &root, "shop", &["engine"]), make_key(&node, &root, "shop", &["engine"]));
    let id = gone.split('_').nth(1).unwrap();
    let command = |words: &[&str]| {
        let file = dir.path().join("data/operator.key");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
        let done = command.args(words).args(["--url", &node.url]).arg("--api-key-file").arg(file).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap()
    };
    assert!(command(&["key", "ls"]).contains(id));
    command(&["key", "revoke", id]);
    assert!(!command(&["key", "ls"]).contains(id));
    let made =
        command(&["key", "create", "--name", "ci", "--namespace", "shop", "--role", "store", "--role", "engine"]);
    let made = made.trim();
    for (key, status) in [(&*kept, 200), (&*gone, 401), (made, 200)] {
        assert_eq!(call(&node, key, "GET", "/v1/stores", None).status, status);
    }
    assert!(node.stop().success());
    let node = serve(dir.path(), AUTH);
    assert_eq!(operator(dir.path()), root, "there is an operator: no new key is made");
    for (key, status) in [(&*kept, 200), (&*gone, 401), (made, 200), (&*root, 200)] {
        assert_eq!(call(&node, key, "GET", "/v1/stores", None).status, status);
    }
}

#[test]
fn a_metrics_key_reads_metrics_and_statistics_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    assert_eq!(call(&node, &root, "PUT", "/v1/stores/kv", Some(&json!({"adaptor": "kv"}))).status, 201);
    let scraper = make_key(&node, &root, "default", &["metrics"]);
    assert_eq!(call(&node, &scraper, "GET", "/metrics", None).status, 200);
    assert!(call(&node, &scraper, "GET", "/v1/stats", None).body["committed_per_s"].is_number());
    for path in ["/v1/stores", "/v1/log?store=kv", "/v1/admin/keys", "/v1/admin/plugins", "/v1/consumers"] {
        assert_eq!(call(&node, &scraper, "GET", path, None).status, 403, "{path}");
    }
    assert_eq!(put(&node, &scraper, &new_id(), 1).status, 403);
    let of_tenant = make_key(&node, &root, "shop", &["metrics"]);
    assert_eq!(call(&node, &of_tenant, "GET", "/metrics", None).status, 403, "these are every tenant's figures");
    assert_eq!(call(&node, &of_tenant, "GET", "/v1/stats", None).status, 200, "its own tenant's");
}

#[test]
fn a_log_is_followed_only_as_long_as_the_key_is_in_force() {
    let dir = tempfile::tempdir().unwrap();
    // A quiet stream sends three heartbeats in this time.
    let node = serve(dir.path(), &format!("{AUTH}[http]\nidle_timeout_ms = 3000\n"));
    let root = operator(dir.path());
    let key = make_key(&node, &root, "default", &["engine", "operator"]);
    let reader = make_key(&node, &root, "default", &["store"]);
    assert_eq!(call(&node, &key, "PUT", "/v1/stores/kv", Some(&json!({}))).status, 201);
    let request = format!(
        "GET /v1/log?store=kv HTTP/1.1\r\nhost: x\r\naccept: application/x-ndjson\r\n\
         authorization: Bearer {reader}\r\nconnection: close\r\n\r\n"
    );
    let mut socket = TcpStream::connect(address(&node)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut seen = String::new();
    let mut more = || {
        let mut bytes = [0; 4096];
        let read = socket.read(&mut bytes).unwrap_or(0);
        seen.push_str(&String::from_utf8_lossy(&bytes[..read]));
        (read > 0).then(|| seen.clone())
    };
    while !more().expect("it goes on").contains("heartbeat") {}
    let id = reader.split('_').nth(1).unwrap();
    assert_eq!(call(&node, &root, "DELETE", &format!("/v1/admin/keys/{id}"), None).status, 204);
    // Longer than the node trusts its cached state of a key.
    std::thread::sleep(Duration::from_millis(3000));
    assert_eq!(put(&node, &key, &new_id(), 4711).body["status"], "committed");
    let mut last = String::new();
    while let Some(all) = more() {
        last = all;
    }
    assert!(!last.contains("4711") && last.contains("\"reason\":\"unauthenticated\""), "{last}");
    assert!(last.ends_with("\r\n0\r\n\r\n"), "it ends as a whole response: {last}");
}

/// Signs a token with Ed25519.
fn token(key: &ring::signature::Ed25519KeyPair, header: &Value, claims: &Value) -> String {
    let text = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", text(header), text(claims));
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()).as_ref()))
}

#[test]
fn only_tokens_of_one_algorithm_and_one_audience_are_accepted() {
    use ring::signature::{Ed25519KeyPair, KeyPair};
    let dir = tempfile::tempdir().unwrap();
    let pair = |seed: u8| Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
    let signer = pair(1);
    let prefix = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
    let der = [&prefix, signer.public_key().as_ref()];
    let pem = base64::engine::general_purpose::STANDARD.encode(der.concat());
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{pem}\n-----END PUBLIC KEY-----\n");
    let file = dir.path().join("jwt.pem");
    std::fs::write(&file, &pem).unwrap();
    let jwt = format!("[auth.jwt]\nalgorithm = \"EdDSA\"\naudience = \"tribunal\"\nkey_file = {file:?}\n");
    let node = serve(dir.path(), &format!("{AUTH}{jwt}"));
    let root = operator(dir.path());
    make_key(&node, &root, "shop", &["engine"]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let header = json!({"alg": "EdDSA", "typ": "JWT"});
    let claims =
        json!({"sub": "jo", "aud": "tribunal", "exp": now + 600, "namespace": "shop", "roles": ["operator", "engine"]});
    let with = |field: &str, value: Value| {
        let mut claims = claims.clone();
        claims[field] = value;
        claims
    };
    let without = |field: &str| {
        let mut claims = claims.clone();
        claims.as_object_mut().expect("claims").remove(field);
        claims
    };
    let status = |token: &str| call(&node, token, "GET", "/v1/stores", None).status;
    let good = token(&pair(1), &header, &claims);
    assert_eq!((status(&good), status(&good)), (200, 200), "the second time from memory");
    assert_eq!(call(&node, &good, "PUT", "/v1/stores/kv", Some(&json!({}))).status, 201);
    assert_eq!(call(&node, &root, "GET", "/v1/stores", None).body["stores"], json!([]), "in its own namespace");
    assert_eq!(call(&node, &good, "GET", "/metrics", None).status, 403);

    let bad = [
        ("another key", token(&pair(2), &header, &claims)),
        ("expired", token(&pair(1), &header, &with("exp", json!(now - 600)))),
        ("not yet", token(&pair(1), &header, &with("nbf", json!(now + 600)))),
        ("another audience", token(&pair(1), &header, &with("aud", json!("else")))),
        ("no such namespace", token(&pair(1), &header, &with("namespace", json!("nowhere")))),
        ("no namespace", token(&pair(1), &header, &without("namespace"))),
        ("no such role", token(&pair(1), &header, &with("roles", json!(["god"])))),
        ("no audience", token(&pair(1), &header, &without("aud"))),
        ("no expiry", token(&pair(1), &header, &without("exp"))),
        ("no algorithm", {
            let unsigned = token(&pair(1), &json!({"alg": "none"}), &claims);
            unsigned.rsplit_once('.').unwrap().0.to_owned() + "."
        }),
        ("the public key as a secret", {
            let text = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
            let signed = format!("{}.{}", text(&json!({"alg": "HS256"})), text(&claims));
            let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, pem.as_bytes());
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(ring::hmac::sign(&key, signed.as_bytes()).as_ref()))
        }),
        ("changed", {
            let (head, signature) = good.rsplit_once('.').unwrap();
            let claims = URL_SAFE_NO_PAD.encode(with("namespace", json!("default")).to_string());
            format!("{}.{claims}.{signature}", head.split_once('.').unwrap().0)
        }),
    ];
    for (what, token) in bad {
        assert_eq!(status(&token), 401, "{what}");
    }
}

#[test]
fn tls_carries_requests_and_nothing_else_gets_through() {
    let dir = tempfile::tempdir().unwrap();
    // Made for this test, for `localhost` and a hundred years; nothing else trusts it.
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&cert, include_str!("tls/cert.pem")).unwrap();
    std::fs::write(&key, include_str!("tls/key.pem")).unwrap();
    let tls = format!("[http]\nheader_timeout_ms = 5000\n[tls]\ncert_file = {cert:?}\nkey_file = {key:?}\n");
    let node = serve(dir.path(), &format!("{AUTH}{tls}"));
    assert!(node.url.starts_with("https://"), "{}", node.url);
    let root = operator(dir.path());

    use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};
    use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
    let ask = |alpn: Option<&[u8]>| {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(&cert).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = alpn.map(<[u8]>::to_vec).into_iter().collect();
        let name = "localhost".try_into().unwrap();
        let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, TcpStream::connect(address(&node)).unwrap());
        let request =
            format!("GET /v1/stores HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {root}\r\nconnection: close\r\n\r\n");
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    assert_eq!(status_of(&ask(None)), Some(200));
    assert_eq!(status_of(&ask(Some(b"http/1.1"))), Some(200));
    let plain =
        raw(&node, format!("GET /v1/stores HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {root}\r\n\r\n").as_bytes());
    assert_eq!(status_of(&plain), None, "{plain}");
    // A handshake that does not proceed is cut like a request head that does not.
    assert_eq!(raw(&node, &[0x16, 0x03, 0x01]), "");
    assert_eq!(status_of(&ask(None)), Some(200));

    std::fs::write(&key, "nothing").unwrap();
    drop(node);
    let refusal = try_serve(dir.path(), "127.0.0.1:0", &format!("{AUTH}{tls}")).err().expect("it must not start");
    assert!(refusal.contains("tls") && refusal.contains("key.pem"), "{refusal}");
}

#[test]
fn a_tenant_beyond_its_quota_is_told_when_to_retry_and_others_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), &format!("{AUTH}tenant_requests_max = 2\n"));
    let root = operator(dir.path());
    let all = ["engine", "store", "operator"];
    let (shop, bank) = (make_key(&node, &root, "shop", &all), make_key(&node, &root, "bank", &all));
    for key in [&shop, &bank] {
        assert_eq!(call(&node, key, "PUT", "/v1/stores/kv", Some(&json!({}))).status, 201);
    }
    let hold = |key: &str| {
        let mut socket = TcpStream::connect(address(&node)).unwrap();
        let request =
            format!("GET /v1/log?store=kv&wait_ms=60000 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n");
        socket.write_all(request.as_bytes()).unwrap();
        socket
    };
    // A poll that arrives during this check is refused, so poll more until the quota is used up.
    let mut held = vec![hold(&shop), hold(&shop)];
    let refused = eventually("the quota to be used up", || {
        let answer = call(&node, &shop, "GET", "/v1/stores", None);
        if answer.status != 429 {
            held.push(hold(&shop));
        }
        (answer.status == 429).then_some(answer)
    });
    assert_eq!(refused.body["code"], "quota_exceeded");
    assert!(refused.body["retry_after_ms"].as_u64().is_some_and(|ms| ms > 0), "{}", refused.body);
    let request =
        format!("GET /v1/stores HTTP/1.1\r\nhost: x\r\nconnection: close\r\nauthorization: Bearer {shop}\r\n\r\n");
    assert!(raw(&node, request.as_bytes()).to_lowercase().contains("retry-after: "));
    assert_eq!(put(&node, &bank, &new_id(), 1).body["status"], "committed", "the others do not notice");
    drop(held);
    eventually("room again", || (call(&node, &shop, "GET", "/v1/stores", None).status == 200).then_some(()));
}

#[test]
fn slow_and_idle_clients_do_not_affect_others() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), &format!("{AUTH}[http]\nheader_timeout_ms = 3000\nbody_timeout_ms = 3000\n"));
    let root = operator(dir.path());
    let key = make_key(&node, &root, "default", &["engine", "operator"]);
    assert_eq!(call(&node, &key, "PUT", "/v1/stores/kv", Some(&json!({}))).status, 201);
    // Heads that never end, one byte at a time.
    let dribbling: Vec<_> = (0..64)
        .map(|_| {
            let address = address(&node);
            std::thread::spawn(move || {
                let mut socket = TcpStream::connect(address).unwrap();
                let head = b"GET /v1/stores HTTP/1.1\r\nx-slow: ".iter().chain(std::iter::repeat_n(&b'a', 400));
                for byte in head {
                    if socket.write_all(&[*byte]).is_err() {
                        return true;
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
                matches!(socket.read(&mut [0; 16]), Ok(0) | Err(_))
            })
        })
        .collect();
    // A body that never arrives.
    let request = format!(
        "POST /v1/txns HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nauthorization: Bearer {key}\r\n\
         content-length: 1000\r\nconnection: close\r\n\r\n{{"
    );
    assert_eq!(status_of(&raw(&node, request.as_bytes())), Some(408));
    assert_eq!(put(&node, &key, &new_id(), 1).body["status"], "committed");
    assert!(dribbling.into_iter().all(|client| client.join().unwrap()), "every one of them was cut");
}

#[test]
fn ten_thousand_idle_connections_do_not_affect_others() {
    const WANTED: usize = 10_000;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = limit.maximum.unwrap_or(u64::MAX);
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit {
            current: Some(most.min(65_536).max(limit.current.unwrap_or(1024))),
            maximum: limit.maximum,
        },
    )
    .expect("up to the hard limit is allowed");
    let now = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let count = WANTED.min(usize::try_from(now).unwrap_or(WANTED).saturating_sub(512));
    if count < WANTED {
        println!("SKIPPED: {count} connections instead of {WANTED}: the limit of open files is {now}");
    }
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    let key = make_key(&node, &root, "default", &["engine", "operator"]);
    assert_eq!(call(&node, &key, "PUT", "/v1/stores/kv", Some(&json!({}))).status, 201);
    let idle: Vec<TcpStream> = (0..count).map(|_| TcpStream::connect(address(&node)).expect("it takes them")).collect();
    for value in 0..20 {
        assert_eq!(put(&node, &key, &new_id(), value).body["status"], "committed");
    }
    assert_eq!(idle.len(), count);
}

#[test]
fn deep_and_huge_bodies_are_refused_before_they_cost_anything() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    let key = make_key(&node, &root, "default", &["engine", "operator"]);
    assert_eq!(call(&node, &key, "PUT", "/v1/stores/kv", Some(&json!({}))).status, 201);
    let post = |body: &[u8], length: usize| {
        let path = format!("/v1/txns/{}/commit", new_id());
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nauthorization: Bearer {key}\r\n\
             content-length: {length}\r\nconnection: close\r\n\r\n"
        );
        raw(&node, &[head.as_bytes(), body].concat())
    };
    for depth in [65, 10_000, 400_000] {
        let value = "[".repeat(depth) + &"]".repeat(depth);
        let body = format!("{{\"writes\":[{{\"op\":\"put\",\"store\":\"kv\",\"key\":\"k\",\"value\":{value}}}]}}");
        assert_eq!(status_of(&post(body.as_bytes(), body.len())), Some(400), "depth {depth}");
    }
    assert_eq!(status_of(&post(b"{", 11 << 20)), Some(413), "an announced body is refused unread");
    assert_eq!(status_of(&post(b"{", usize::MAX / 2)), Some(413));
    let no_length = status_of(&post(b"{", usize::MAX));
    assert!(matches!(no_length, Some(400 | 413 | 431)), "{no_length:?}");
    let many: Vec<Value> =
        (0..10_001).map(|n| json!({"op": "put", "store": "kv", "key": n.to_string(), "value": 1})).collect();
    let body = json!({"writes": many}).to_string();
    assert_eq!(status_of(&post(body.as_bytes(), body.len())), Some(413));
    // Without a length, it is counted as it arrives.
    let head = format!(
        "POST /v1/txns/{}/commit HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nauthorization: Bearer {key}\r\n\
         transfer-encoding: chunked\r\nconnection: close\r\n\r\n",
        new_id()
    );
    let chunk = [&b"100000\r\n"[..], &vec![b' '; 0x10_0000], b"\r\n"].concat();
    // The response is lost if the server closes before the request was sent completely.
    let cut = status_of(&raw(&node, &[head.into_bytes(), chunk.repeat(12)].concat()));
    assert!(matches!(cut, None | Some(413)), "{cut:?}");
    assert_eq!(put(&node, &key, &new_id(), 1).body["status"], "committed");
}

#[test]
fn no_path_bypasses_authorization() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    let engine = make_key(&node, &root, "shop", &["engine"]);
    let tricks = [
        "/v1/%61dmin/keys",
        "/v1/admin%2fkeys",
        "//v1/admin/keys",
        "/v1//admin/keys",
        "/v1/./admin/keys",
        "/v1/txns/../admin/keys",
        "/v1/stores/..%2f..%2fadmin%2fkeys",
        "/v1/stores/%2e%2e/%2e%2e/admin/keys",
        "/healthz/../v1/admin/keys",
        "/healthz%2f..%2fv1/admin/keys",
        "/V1/ADMIN/KEYS",
        "/v1/admin/keys/",
        "/v1/admin/keys;x",
        "/v1/admin/keys%00",
        "http://x/v1/admin/keys",
        "/metrics?",
        "/metrics/",
        "/%6detrics",
    ];
    for path in tricks {
        for key in [None, Some(&engine)] {
            let credential = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
            for method in ["GET", "HEAD", "POST", "PROPFIND"] {
                let request = format!(
                    "{method} {path} HTTP/1.1\r\nhost: x\r\n{credential}content-length: 0\r\nconnection: close\r\n\
                     x-original-url: /healthz\r\nx-http-method-override: GET\r\n\r\n"
                );
                let status = status_of(&raw(&node, request.as_bytes()));
                assert!(matches!(status, Some(400 | 401 | 403 | 404 | 405)), "{method} {path}: {status:?}");
            }
        }
    }
    let twice = format!(
        "GET /v1/admin/keys HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {engine}\r\nauthorization: Bearer {root}\r\n\
         connection: close\r\n\r\n"
    );
    assert_eq!(status_of(&raw(&node, twice.as_bytes())), Some(401), "two credentials are none");
}
