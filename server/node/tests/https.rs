//! The commands and the Rust client over https, against a node whose certificate is signed by the test's own authority.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;
use support::Node;
use support::keyed::{AUTH, operator, serve, try_serve};
use tribunal_client::{Client, ClientOptions, Error, Lsn, Outcome, StoreDeclaration};

/// Environment variables of a command, and the files that they name.
type Variables<'a> = &'a [(&'a str, &'a Path)];

/// An authority whose certificate is in a file.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    fn new(dir: &Path, name: &str) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let file = dir.join(format!("{name}.pem"));
        std::fs::write(&file, params.self_signed(&key).expect("signed").pem()).expect("written");
        Authority { issuer: Issuer::new(params, key), file }
    }

    /// Starts a node with a certificate for `localhost`.
    fn node(&self, dir: &Path) -> Node {
        self.node_with(dir, CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters"))
    }

    /// Starts a node with a certificate of these parameters.
    fn node_with(&self, dir: &Path, params: CertificateParams) -> Node {
        serve(dir, &self.config(dir, params))
    }

    /// Writes a certificate with these parameters and its key; returns the corresponding node configuration.
    fn config(&self, dir: &Path, params: CertificateParams) -> String {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        let (cert_file, key_file) = (dir.join("cert.pem"), dir.join("key.pem"));
        std::fs::write(&cert_file, certificate.pem()).expect("written");
        std::fs::write(&key_file, key.serialize_pem()).expect("written");
        format!("{AUTH}[tls]\ncert_file = {cert_file:?}\nkey_file = {key_file:?}\n")
    }
}

/// Returns the node's address under the name in its certificate.
fn named(node: &Node) -> String {
    node.url.replace("127.0.0.1", "localhost")
}

/// Runs a command with the operator's key; returns whether it succeeded, and its output.
fn run(dir: &Path, url: &str, words: &[&str], variables: Variables<'_>) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tribunal"))
        .args(words)
        .args(["--url", url, "--api-key-file"])
        .arg(dir.join("data/operator.key"))
        .env_remove("TRIBUNAL_CA_FILE")
        .envs(variables.iter().copied())
        .output()
        .expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn commands_use_https_with_trusted_servers_and_explain_untrusted_ones() {
    let dir = tempfile::tempdir().unwrap();
    let (own, other) = (Authority::new(dir.path(), "own"), Authority::new(dir.path(), "other"));
    let node = own.node(dir.path());
    let url = named(&node);
    let flag = own.file.to_str().unwrap();
    for words in [&["store", "ls"][..], &["key", "ls"], &["consumer", "ls"]] {
        let (well, said) = run(dir.path(), &url, &[words, &["--ca-file", flag]].concat(), &[]);
        assert!(well, "{words:?}: {said}");
        let (well, said) = run(dir.path(), &url, words, &[("TRIBUNAL_CA_FILE", &own.file)]);
        assert!(well, "{words:?} by the variable: {said}");
        // The machine's own authorities, replaced by a file here.
        let (well, said) = run(dir.path(), &url, words, &[("SSL_CERT_FILE", &own.file)]);
        assert!(well, "{words:?} by the machine: {said}");
    }
    let admin = ["key", "create", "--name", "admin", "--role", "plugin-admin", "--ca-file", flag];
    let (well, key) = run(dir.path(), &url, &admin, &[]);
    assert!(well, "{key}");
    let key_file = dir.path().join("admin.key");
    std::fs::write(&key_file, key.lines().next().unwrap()).unwrap();
    let listed = Command::new(env!("CARGO_BIN_EXE_tribunal"))
        .args(["plugin", "ls", "--url", &url, "--ca-file", flag, "--api-key-file"])
        .arg(&key_file)
        .output()
        .expect("it runs");
    let (said, trouble) = (String::from_utf8_lossy(&listed.stdout), String::from_utf8_lossy(&listed.stderr));
    assert!(listed.status.success() && said.contains("built in: "), "{said}{trouble}");
    let nothing = dir.path().join("nothing.pem");
    std::fs::write(&nothing, "no certificate").unwrap();
    let missing = dir.path().join("missing.pem");
    let cases: [(&str, Variables<'_>, &str); 6] = [
        (&url, &[("TRIBUNAL_CA_FILE", &other.file)], "name the service's own CA: `--ca-file`"),
        (&url, &[("SSL_CERT_FILE", &other.file)], "name the service's own CA: `--ca-file`"),
        (&node.url, &[("TRIBUNAL_CA_FILE", &own.file)], "use a URL with a name that it is for"),
        (&url, &[("TRIBUNAL_CA_FILE", &nothing)], "holds no certificate"),
        (&url, &[("TRIBUNAL_CA_FILE", &missing)], "missing.pem` cannot be read"),
        ("ftp://localhost:1", &[], "https://host:port"),
    ];
    for (url, variables, says) in cases {
        for words in [&["store", "ls"][..], &["plugin", "ls"]] {
            let (well, said) = run(dir.path(), url, words, variables);
            assert!(!well && said.contains(says), "{words:?} {variables:?}: {said}");
        }
    }
    assert!(node.stop().success());
}

#[test]
fn metrics_tell_how_long_the_certificate_remains_valid() {
    let dir = tempfile::tempdir().unwrap();
    let own = Authority::new(dir.path(), "own");
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
    params.not_after = rcgen::date_time_ymd(2200, 1, 1);
    let node = own.node_with(dir.path(), params);
    let options = ClientOptions {
        api_key: Some(operator(dir.path())),
        ca_file: Some(own.file.clone()),
        ..ClientOptions::default()
    };
    let metrics = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let client = Client::with_options(&named(&node), options).expect("a client");
        let timeout = std::time::Duration::from_secs(120);
        let call = tribunal_client::Call { method: "GET", path: "/metrics", query: &[], body: None, timeout };
        let (status, text) = client.call(call).await.expect("metrics");
        assert_eq!(status, 200);
        String::from_utf8(text).expect("text")
    });
    let line = "tribunal_certificate_expires_in_seconds{certificate=\"api\"} ";
    let seconds = metrics.lines().find_map(|known| known.strip_prefix(line)?.parse::<u64>().ok()).expect("a number");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let end = 7_258_118_400;
    assert!((end - 120..=end + 120).contains(&(now + seconds)), "{seconds}");
    assert!(metrics.lines().any(|known| known == "tribunal_ready 1"), "{metrics}");
    assert!(node.stop().success());
}

#[test]
fn a_node_does_not_start_with_a_certificate_that_has_expired() {
    let dir = tempfile::tempdir().unwrap();
    let own = Authority::new(dir.path(), "own");
    let start = |from: i32, until: i32| {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(from, 1, 1), rcgen::date_time_ymd(until, 1, 1));
        try_serve(dir.path(), "127.0.0.1:0", &own.config(dir.path(), params))
    };
    let Err(refused) = start(2001, 2020) else { panic!("it started") };
    for part in ["`tls.cert_file`", "cert.pem", "expired", "Wed, 01 Jan 2020", "correct the clock"] {
        assert!(refused.contains(part), "{part} is missing: {refused}");
    }
    assert!(!dir.path().join("data").exists());
    // A certificate that is not valid yet will become valid.
    let node = start(2190, 2200).expect("it starts");
    node.signal("TERM");
    let (status, log) = node.ended();
    assert!(status.success() && log.contains("WARN") && log.contains("becomes valid in"), "{log}");
}

#[test]
fn a_certificate_that_expires_soon_is_reported_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let own = Authority::new(dir.path(), "own");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    for (days, is_reported) in [(10, true), (40, false)] {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        let hour = std::time::Duration::from_secs(60 * 60);
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + now + (24 * days + 1) * hour;
        let node = own.node_with(dir.path(), params);
        node.signal("TERM");
        let (status, log) = node.ended();
        assert!(status.success(), "{log}");
        let reported = log.lines().find(|line| line.contains("a certificate of this node expires soon"));
        let is_of_days = |line: &str| line.contains("WARN") && line.contains("days=10");
        assert_eq!(reported.map(is_of_days), is_reported.then_some(true), "{log}");
    }
}

#[test]
fn what_is_wrong_with_a_certificate_or_its_key_is_told_of_the_right_file() {
    let dir = tempfile::tempdir().unwrap();
    let own = Authority::new(dir.path(), "own");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
    let config = own.config(dir.path(), params);
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    let good = std::fs::read_to_string(&key).unwrap();
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMII=\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let garbage = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    let other = KeyPair::generate().expect("a key").serialize_pem();
    for (file, content, names, says) in [
        (&key, encrypted, "key.pem`", "the private key is encrypted"),
        (&key, &other, "key.pem`", "does not belong to the first certificate in"),
        (&cert, garbage, "cert.pem`", "the certificate cannot be used"),
    ] {
        std::fs::write(&key, &good).unwrap();
        std::fs::write(file, content).unwrap();
        let Err(refused) = try_serve(dir.path(), "127.0.0.1:0", &config) else { panic!("{says}: it started") };
        assert!(refused.contains(names) && refused.contains(says), "{says}: {refused}");
    }
}

#[test]
fn a_server_without_tls_is_named_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let own = Authority::new(dir.path(), "own");
    let node = Node::start(&dir.path().join("data"));
    std::fs::write(dir.path().join("data/operator.key"), "").unwrap();
    let url = named(&node).replace("http://", "https://");
    let (well, said) = run(dir.path(), &url, &["store", "ls"], &[("TRIBUNAL_CA_FILE", &own.file)]);
    assert!(!well && said.contains("does not speak TLS") && said.contains("`http://`"), "{said}");
    assert!(node.stop().success());
}

#[test]
fn the_rust_client_commits_over_https_and_does_not_retry_in_vain() {
    let dir = tempfile::tempdir().unwrap();
    let (own, other) = (Authority::new(dir.path(), "own"), Authority::new(dir.path(), "other"));
    let node = own.node(dir.path());
    let client = |authority: &Authority| {
        let ca_file = Some(authority.file.clone());
        let options = ClientOptions { api_key: Some(operator(dir.path())), ca_file, ..ClientOptions::default() };
        Client::with_options(&named(&node), options).expect("a client")
    };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let trusting = client(&own);
        let key = tribunal_client::api::KeyRequest {
            name: "engine".into(),
            namespace: None,
            roles: vec!["engine".into(), "operator".into()],
            expires_in_s: None,
        };
        let key = trusting.create_key(&key).await.expect("a key").key;
        let options = ClientOptions { api_key: Some(key), ca_file: Some(own.file.clone()), ..ClientOptions::default() };
        let engine = Client::with_options(&named(&node), options).expect("a client");
        engine.declare_store("own", &StoreDeclaration::default()).await.expect("a store");
        for n in 1..=3 {
            let mut txn = engine.begin_local(Default::default());
            txn.put("own", "a", &json!(n)).expect("a row");
            let verdict = engine.commit(&txn.prepare()).await.expect("a verdict");
            assert!(matches!(verdict, Outcome::Committed(_)), "{verdict:?}");
        }
        let last = engine.log("own", Lsn(2)).wait_ms(0).next().await.expect("an answer").expect("a record");
        assert_eq!(last.lsn, Lsn(3));

        let refused = client(&other).keys().await.expect_err("nobody signed that");
        let Error::Misuse(text) = refused else { panic!("not to be tried again: {refused:?}") };
        assert!(text.contains("ca_file"), "{text}");
    });
    assert!(node.stop().success());
}
