//! API keys from an operator's view: expiry, last use, log lines, and a control log that stays small.

mod support;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use support::keyed::{AUTH, call, make_key, operator, serve, try_serve};
use support::{Node, eventually};

fn create(node: &Node, by: &str, body: &Value) -> Value {
    let made = call(node, by, "POST", "/v1/admin/keys", Some(body));
    assert_eq!(made.status, 201, "{}", made.body);
    made.body
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a string")
}

fn number(value: &Value) -> u64 {
    text(value).parse().expect("a number")
}

fn listed(node: &Node, by: &str, id: &str) -> Option<Value> {
    let keys = call(node, by, "GET", "/v1/admin/keys", None).body;
    keys["keys"].as_array().expect("keys").iter().find(|key| key["id"] == id).cloned()
}

#[test]
fn a_key_expires_with_a_reason_of_its_own_and_stays_listed() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    let short = json!({"name": "short", "roles": ["operator"], "expires_in_s": 5});
    let made = create(&node, &root, &short);
    assert_eq!(number(&made["expires_ms"]) - number(&made["created_ms"]), 5_000);
    let (key, id) = (text(&made["key"]).to_owned(), text(&made["id"]).to_owned());
    let first = call(&node, &key, "GET", "/v1/stores", None);
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    assert!(first.status == 200 || now_ms >= u128::from(number(&made["expires_ms"])), "{}", first.body);
    let refused = eventually("the key has expired", || {
        let answer = call(&node, &key, "GET", "/v1/stores", None);
        (answer.status != 200).then_some(answer)
    });
    assert_eq!((refused.status, &refused.body["code"]), (401, &json!("key_expired")), "{}", refused.body);
    assert!(text(&refused.body["detail"]).contains("expired"), "{}", refused.body);
    let wrong = call(&node, &key[..key.len() - 1], "GET", "/v1/stores", None);
    assert_eq!(wrong.body["code"], "unauthenticated", "only its owner learns that it has expired");
    assert_eq!(listed(&node, &root, &id).expect("listed until it is revoked")["expires_ms"], made["expires_ms"]);
    // The same after a restart, and such a key does not count as the operator that a service needs.
    assert!(node.stop().success());
    let node = serve(dir.path(), AUTH);
    assert_eq!(call(&node, &key, "GET", "/v1/stores", None).body["code"], "key_expired");
    create(&node, &root, &json!({"name": "soon", "roles": ["engine"], "expires_in_s": 3 * 86_400 + 3_600}));
    create(&node, &root, &json!({"name": "later", "roles": ["engine"], "expires_in_s": 300 * 86_400}));
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    let shown =
        command.args(["key", "ls", "--url", &node.url]).env("TRIBUNAL_API_KEY", &root).output().expect("it runs");
    let shown = String::from_utf8(shown.stdout).expect("text");
    let line = |name: &str| {
        shown.lines().find(|line| line.contains(&format!(" {name} "))).unwrap_or_else(|| panic!("{shown}"))
    };
    assert!(line("short").contains("Z (expired)"), "{shown}");
    assert!(line("soon").contains("Z (in 3 d)"), "{shown}");
    assert!(line("later").contains('Z') && !line("later").contains('('), "{shown}");
    for bad in [json!(0), json!(-1), json!(3_153_600_001_u64), json!("7d"), json!(1.5), json!(null)] {
        let body = json!({"name": "bad", "roles": ["engine"], "expires_in_s": bad});
        assert_eq!(call(&node, &root, "POST", "/v1/admin/keys", Some(&body)).status, 400, "{bad}");
    }
}

#[test]
fn a_service_whose_last_operator_key_has_expired_creates_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    let short = create(&node, &root, &json!({"name": "next", "roles": ["operator"], "expires_in_s": 4}));
    let first = call(&node, &root, "GET", "/v1/admin/keys", None).body["keys"][0]["id"].clone();
    assert_eq!(call(&node, &root, "DELETE", &format!("/v1/admin/keys/{}?force=true", text(&first)), None).status, 204);
    eventually("the key has expired", || {
        (call(&node, text(&short["key"]), "GET", "/v1/stores", None).status == 401).then_some(())
    });
    assert!(node.stop().success());
    let node = serve(dir.path(), AUTH);
    assert_ne!(operator(dir.path()), root);
    assert_eq!(call(&node, &operator(dir.path()), "GET", "/v1/stores", None).status, 200);
}

#[test]
fn the_last_operator_key_is_revoked_with_force_only() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    let id = text(&call(&node, &root, "GET", "/v1/admin/keys", None).body["keys"][0]["id"]).to_owned();
    let path = format!("/v1/admin/keys/{id}");
    // Neither an operator of another tenant nor an expired one could create a key here, nor one that expires today could
    // tomorrow.
    let today = create(&node, &root, &json!({"name": "today", "roles": ["operator"], "expires_in_s": 86_000}));
    create(&node, &root, &json!({"name": "of-shop", "namespace": "shop", "roles": ["operator"]}));
    let short = create(&node, &root, &json!({"name": "short", "roles": ["operator"], "expires_in_s": 1}));
    eventually("the key has expired", || {
        (call(&node, text(&short["key"]), "GET", "/v1/stores", None).status == 401).then_some(())
    });
    let refused = call(&node, &root, "DELETE", &path, None);
    assert_eq!((refused.status, &refused.body["code"]), (409, &json!("last_operator_key")), "{}", refused.body);
    assert!(text(&refused.body["detail"]).contains("?force=true"), "{}", refused.body);
    let today = format!("/v1/admin/keys/{}", text(&today["id"]));
    assert_eq!(call(&node, &root, "DELETE", &today, None).status, 204, "the other one is valid for longer");
    let other = create(&node, &root, &json!({"name": "other", "roles": ["operator"]}));
    assert_eq!(call(&node, &root, "DELETE", &path, None).status, 204, "there is another one");

    let revoke = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
        command.args(["key", "revoke", text(&other["id"]), "--url", &node.url]).args(more);
        command.env("TRIBUNAL_API_KEY", text(&other["key"])).output().unwrap()
    };
    let refused = revoke(&[]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("tribunal key revoke --force"), "{why}");
    assert!(revoke(&["--force"]).status.success());
    assert_eq!(call(&node, text(&other["key"]), "GET", "/v1/stores", None).status, 401);
    assert!(node.stop().success());
    let node = serve(dir.path(), AUTH);
    assert_eq!(call(&node, &operator(dir.path()), "GET", "/v1/stores", None).status, 200, "the way back in");
}

#[test]
fn two_operators_that_revoke_each_other_do_not_both_succeed() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    let id = text(&call(&node, &root, "GET", "/v1/admin/keys", None).body["keys"][0]["id"]).to_owned();
    let mut last = (id, root);
    for _ in 0..8 {
        let other = create(&node, &last.1, &json!({"name": "other", "roles": ["operator"]}));
        let both = [last, (text(&other["id"]).to_owned(), text(&other["key"]).to_owned())];
        let revoke = |by: usize| {
            let path = format!("/v1/admin/keys/{}", both[1 - by].0);
            call(&node, &both[by].1, "DELETE", &path, None).status
        };
        let statuses = std::thread::scope(|scope| {
            let first = scope.spawn(|| revoke(0));
            [revoke(1), first.join().unwrap()]
        });
        assert_eq!(statuses.iter().filter(|status| **status == 204).count(), 1, "{statuses:?}");
        let [first, second] = both;
        last = if call(&node, &first.1, "GET", "/v1/stores", None).status == 200 { first } else { second };
    }
}

#[test]
fn a_role_without_effect_is_refused_when_the_key_is_created() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    let new = |namespace: &str| json!({"name": "ci", "namespace": namespace, "roles": ["engine", "plugin-admin"]});
    let refused = call(&node, &root, "POST", "/v1/admin/keys", Some(&new("shop")));
    assert_eq!((refused.status, &refused.body["code"]), (422, &json!("role_without_effect")), "{}", refused.body);
    assert_eq!(refused.body["errors"][0]["pointer"], "/roles");
    assert!(text(&refused.body["detail"]).contains("namespace `default`"), "{}", refused.body);
    let made = create(&node, &root, &new("default"));
    assert_eq!(call(&node, text(&made["key"]), "GET", "/v1/admin/plugins", None).status, 200);
}

#[test]
fn the_last_use_of_a_key_is_listed_and_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    let made = create(&node, &root, &json!({"name": "ci", "roles": ["engine"]}));
    let (key, id) = (text(&made["key"]), text(&made["id"]));
    assert_eq!(listed(&node, &root, id).unwrap().get("last_used_ms"), None, "it was never used");
    assert_eq!(call(&node, key, "GET", "/v1/stores", None).status, 200);
    let used = number(&listed(&node, &root, id).unwrap()["last_used_ms"]);
    assert!(used.abs_diff(number(&made["created_ms"])) < 60_000, "{used}");
    assert!(node.stop().success());
    let node = serve(dir.path(), AUTH);
    assert_eq!(number(&listed(&node, &root, id).unwrap()["last_used_ms"]), used);
    // The file may be lost or arbitrarily damaged.
    assert!(node.stop().success());
    std::fs::write(dir.path().join("data/keys.used"), [0xff; 100]).unwrap();
    let node = serve(dir.path(), AUTH);
    assert_eq!(listed(&node, &root, id).unwrap().get("last_used_ms"), None);
}

#[test]
fn changes_of_keys_are_logged_without_their_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    let gone = create(&node, &root, &json!({"name": "gone", "namespace": "shop", "roles": ["engine", "store"]}));
    let short = create(&node, &root, &json!({"name": "short", "roles": ["engine"], "expires_in_s": 1}));
    let (key, id) = (text(&gone["key"]), text(&gone["id"]));
    assert_eq!(call(&node, &root, "DELETE", &format!("/v1/admin/keys/{id}"), None).status, 204);
    for _ in 0..5 {
        let refused = call(&node, key, "GET", "/v1/stores", None);
        assert_eq!((refused.status, &refused.body["code"]), (401, &json!("unauthenticated")));
        assert!(text(&refused.body["detail"]).contains("revoked"), "{}", refused.body);
    }
    eventually("the key has expired", || {
        (call(&node, text(&short["key"]), "GET", "/v1/stores", None).status == 401).then_some(())
    });
    for _ in 0..5 {
        assert_eq!(call(&node, text(&short["key"]), "GET", "/v1/stores", None).status, 401);
    }
    // Expiries are checked once a second, and each is logged once.
    eventually("the expiry to be logged", || node.said().contains("a key has expired").then_some(()));
    std::thread::sleep(Duration::from_secs(3));
    node.signal("TERM");
    let (_, log) = node.ended();
    assert_eq!(log.matches("a key has expired").count(), 1, "{log}");
    let lines = |of: &str| log.lines().filter(|line| line.contains(of)).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines("a key was created").len(), 2, "{log}");
    assert_eq!(lines("a key was revoked").len(), 1, "{log}");
    assert_eq!(lines("a revoked key was used").len(), 1, "one line a minute: {log}");
    assert_eq!(lines("an expired key was used").len(), 1, "one line a minute: {log}");
    assert!(lines("a key was revoked")[0].contains(id) && lines("a key was revoked")[0].contains("first-operator"));
    for key in [key, text(&short["key"]), &root] {
        // The secret may contain the separator.
        let secret = key.splitn(3, '_').nth(2).expect("a secret");
        assert!(secret.len() > 40, "the last part is the whole secret");
        assert!(!log.contains(secret), "a secret is in the log");
    }
}

#[test]
fn the_cli_shows_expiry_and_last_use() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let file = dir.path().join("data/operator.key");
    let command = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tribunal"));
        command.args(words).args(["--url", &node.url]).arg("--api-key-file").arg(&file).output().unwrap()
    };
    let made = command(&["key", "create", "--name", "ci", "--role", "engine", "--expires-in", "90d"]);
    let told = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(made.status.success() && told.contains("valid until 20"), "{told}");
    let forever = command(&["key", "create", "--name", "web", "--role", "engine"]);
    assert!(String::from_utf8_lossy(&forever.stderr).contains("until it is revoked"));
    let list = String::from_utf8(command(&["key", "ls"]).stdout).unwrap();
    let row = |name: &str| list.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{list}")).to_owned();
    assert!(list.lines().next().is_some_and(|head| head.contains("last use") && head.contains("expires")), "{list}");
    assert!(row("ci").matches("never").count() == 1 && row("web").matches("never").count() == 2, "{list}");
    assert!(row("first-operator").contains("Z "), "it was used just now: {list}");
    assert!(!list.contains("expired"), "{list}");
    assert!(command(&["key", "create", "--name", "short", "--role", "engine", "--expires-in", "1s"]).status.success());
    let short = eventually("the key has expired", || {
        let list = String::from_utf8(command(&["key", "ls", "--json"]).stdout).unwrap();
        let keys = list.lines().map(|line| serde_json::from_str::<Value>(line).expect("one key a line"));
        keys.into_iter().find(|key| key["name"] == "short" && key["expired"] == true)
    });
    assert!(short["expires_ms"].is_string(), "{short}");
    let list = String::from_utf8(command(&["key", "ls"]).stdout).unwrap();
    let marked: Vec<_> = list.lines().filter(|line| line.contains("(expired)")).collect();
    assert!(marked.len() == 1 && marked[0].contains("short"), "{list}");
    for bad in ["0s", "90", "d", "-1d", "36501d", "1w", "9999999999s"] {
        let refused = command(&["key", "create", "--name", "x", "--role", "engine", &format!("--expires-in={bad}")]);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && told.contains("90d"), "{bad}: {told}");
    }
}

fn control_bytes(data: &Path) -> u64 {
    std::fs::metadata(data.join("log/control")).expect("a control log").len()
}

#[test]
fn creating_and_revoking_keys_does_not_grow_the_control_log_without_bound() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    let kept = make_key(&node, &root, "shop", &["engine"]);
    assert!(node.stop().success());
    // As many as an automation creates in months, written the way the node writes them.
    let data = dir.path().join("data");
    let mut opened = tribunal_log::open(&data.join("log"), &tribunal_log::LogOptions::default()).unwrap();
    let mut index = opened.recovered.control.last().expect("entries").0;
    for number in 0..8_000_u64 {
        use tribunal_log::DurableLog as _;
        use tribunal_types::{ApiKey, ControlChange, ControlIndex, NamespaceId, Roles};
        let key = ApiKey {
            id: format!("{number:016x}"),
            name: format!("ci-{number}"),
            namespace: NamespaceId(0),
            namespace_name: "default".into(),
            roles: Roles::ALL,
            secret_sha256: [1; 32],
            created_ms: number,
            expires_ms: None,
        };
        let id = key.id.clone();
        for change in [ControlChange::CreateKey(key), ControlChange::RevokeKey { id }] {
            index = ControlIndex(index.0 + 1);
            opened.writer.append_control(index, &change.into()).unwrap();
        }
    }
    tribunal_log::DurableLog::sync(&mut opened.writer).unwrap();
    drop(opened);
    let grown = control_bytes(&data);
    let node = serve(dir.path(), AUTH);
    assert!(control_bytes(&data) < grown / 2, "{} of {grown} bytes", control_bytes(&data));
    let made = make_key(&node, &root, "bank", &["engine"]);
    for key in [&kept, &made, &root] {
        assert_eq!(call(&node, key, "GET", "/v1/stores", None).status, 200);
    }
    assert!(node.stop().success());
    let node = serve(dir.path(), AUTH);
    for key in [&kept, &made, &root] {
        assert_eq!(call(&node, key, "GET", "/v1/stores", None).status, 200);
    }
}

/// As if the log's disk were not mounted.
#[test]
fn a_node_without_its_log_is_refused_and_keeps_its_operator_key() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    assert!(node.stop().success());
    let (log, elsewhere) = (dir.path().join("data/log"), dir.path().join("elsewhere"));
    std::fs::rename(&log, &elsewhere).unwrap();
    for is_mount_point in [false, true] {
        if is_mount_point {
            std::fs::create_dir(&log).unwrap();
        }
        let refused = try_serve(dir.path(), "127.0.0.1:0", AUTH).err().expect("it must not start with an empty log");
        assert!(refused.contains("log is empty") && refused.contains("mount that"), "{refused}");
    }
    std::fs::remove_dir(&log).unwrap();
    std::fs::rename(&elsewhere, &log).unwrap();
    let node = serve(dir.path(), AUTH);
    assert_eq!(operator(dir.path()), root);
    assert_eq!(call(&node, &root, "GET", "/v1/stores", None).status, 200);
}
