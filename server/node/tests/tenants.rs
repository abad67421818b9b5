//! Isolation of tenants on a real process: by name, by id, by position, and through storages.

mod support;

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use support::keyed::{AUTH, call, make_key, operator, put, serve};
use support::{Node, Response, eventually, new_id, noise};

const ALL: [&str; 3] = ["engine", "store", "operator"];

/// Starts a node with a key for each of two tenants, which has all permissions in its own tenant.
fn two_tenants(dir: &tempfile::TempDir, more: &str) -> (Node, String, String) {
    let node = serve(dir.path(), &format!("{AUTH}{more}"));
    let root = operator(dir.path());
    let (shop, bank) = (make_key(&node, &root, "shop", &ALL), make_key(&node, &root, "bank", &ALL));
    (node, shop, bank)
}

#[test]
fn tenants_see_nothing_of_one_another() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    let all = ["engine", "store", "operator"];
    let (shop, bank) = (make_key(&node, &root, "shop", &all), make_key(&node, &root, "bank", &all));
    assert_eq!(call(&node, &shop, "PUT", "/v1/stores/kv", Some(&json!({"adaptor": "kv"}))).status, 201);
    let id = new_id();
    for value in 1..=5 {
        assert_eq!(put(&node, &shop, &new_id(), value).body["status"], "committed");
    }
    let version = put(&node, &shop, &id, 6).body["version"].clone();

    // A foreign store does not exist.
    for path in ["/v1/stores/kv", "/v1/log?store=kv", "/v1/snapshot?store=kv", "/v1/stores/kv/rows/k"] {
        let answer = call(&node, &bank, "GET", path, None);
        assert_eq!((answer.status, &answer.body["code"]), (404, &json!("unknown_store")), "{path}: {}", answer.body);
    }
    assert_eq!(call(&node, &bank, "GET", "/v1/stores", None).body["stores"], json!([]));
    assert_eq!(put(&node, &bank, &new_id(), 1).status, 404);
    assert_eq!(call(&node, &bank, "POST", "/v1/stores/kv/push/resume", Some(&json!({}))).status, 404);
    // A foreign id does not exist: it can be neither read nor fenced, and it is not taken.
    assert_eq!(call(&node, &bank, "GET", &format!("/v1/txns/{id}"), None).body["status"], "unknown");
    // The same names denote other stores, and positions start again at 1.
    assert_eq!(call(&node, &bank, "PUT", "/v1/stores/kv", Some(&json!({"adaptor": "kv"}))).status, 201);
    let stale = json!({"reads": [{"store": "kv", "key": "k", "version": version}],
        "writes": [{"op": "put", "store": "kv", "key": "k", "value": 0}]});
    let verdict = call(&node, &bank, "POST", &format!("/v1/txns/{}/commit", new_id()), Some(&stale)).body;
    assert_eq!(verdict["reason"], "read_conflict", "{verdict}");
    assert!(verdict["conflicts"][0]["current_version"].is_null(), "no word of the other's row: {verdict}");
    let same_id = put(&node, &bank, &id, 100).body;
    assert_eq!((&same_id["status"], &same_id["lsn"]["kv"]), (&json!("committed"), &json!("1")), "{same_id}");
    assert_eq!(call(&node, &bank, "GET", "/v1/log?store=kv", None).body["head_lsn"], "1");
    assert_eq!(call(&node, &shop, "GET", "/v1/log?store=kv", None).body["head_lsn"], "6");
    let row = |key: &str| {
        eventually("row k", || {
            let answer = call(&node, key, "GET", "/v1/stores/kv/rows/k", None);
            (answer.status == 200).then_some(answer.body["value"].clone())
        })
    };
    assert_eq!(row(&bank), 100);
    eventually("the last write", || (row(&shop) == 6).then_some(()));
    // Keys and statistics. Stores with the same name are separate series.
    assert_eq!(call(&node, &bank, "GET", "/metrics", None).status, 403);
    let consumer = json!({"store": "kv", "lsn": "1"});
    for key in [&shop, &bank] {
        assert_eq!(call(&node, key, "PUT", "/v1/consumers/reader", Some(&consumer)).status, 200);
    }
    let figures = call(&node, &root, "GET", "/metrics", None).body;
    for (tenant, head, lag) in [("shop", 6, 5), ("bank", 1, 0)] {
        let store = format!("tribunal_store_head_lsn{{namespace=\"{tenant}\",store=\"kv\"}} {head}\n");
        let labels = format!("{{namespace=\"{tenant}\",consumer=\"reader\",store=\"kv\"}}");
        let consumer = format!("tribunal_consumer_lag_records{labels} {lag}\n");
        let text = figures.as_str().expect("text");
        assert!(text.contains(&store) && text.contains(&consumer), "{store}{consumer}{text}");
    }
    let keys = call(&node, &bank, "GET", "/v1/admin/keys", None).body["keys"].clone();
    assert!(keys.as_array().unwrap().iter().all(|key| key["namespace"] == "bank"), "{keys}");
    let shop_id = shop.split('_').nth(1).unwrap();
    assert_eq!(call(&node, &bank, "DELETE", &format!("/v1/admin/keys/{shop_id}"), None).status, 404);
    for namespace in ["shop", "default", "new"] {
        let body = json!({"name": "x", "namespace": namespace, "roles": ["engine"]});
        assert_eq!(call(&node, &bank, "POST", "/v1/admin/keys", Some(&body)).status, 403, "{namespace}");
    }
    assert_eq!(call(&node, &shop, "GET", "/v1/stores", None).status, 200);
}

#[test]
fn nothing_of_another_tenant_is_accessible_by_name_id_or_position() {
    let dir = tempfile::tempdir().unwrap();
    let (node, shop, bank) = two_tenants(&dir, "");
    assert_eq!(call(&node, &shop, "PUT", "/v1/stores/kv", Some(&json!({"adaptor": "kv"}))).status, 201);
    assert_eq!(call(&node, &shop, "PUT", "/v1/stores/own", Some(&json!({}))).status, 201);
    for value in 1..=5 {
        assert_eq!(put(&node, &shop, &new_id(), value).body["status"], "committed");
    }
    // Names, on every route that takes one.
    let offset = json!({"store": "own", "lsn": "0"});
    assert_eq!(call(&node, &shop, "PUT", "/v1/consumers/reader", Some(&offset)).status, 200);
    let hook = json!({"kind": "webhook", "url": "https://192.0.2.1/", "secret": "0123456789abcdef"});
    let write = json!({"writes": [{"op": "put", "store": "own", "key": "k", "value": 1}]});
    let mut in_batch = write.clone();
    in_batch["txn_id"] = json!(new_id());
    let foreign = [
        ("GET", "/v1/stores/own/state".to_owned(), None),
        ("GET", "/v1/stores/own/rows?limit=1".to_owned(), None),
        ("GET", "/v1/stores/own/push".to_owned(), None),
        ("PUT", "/v1/stores/own/push".to_owned(), Some(hook)),
        ("DELETE", "/v1/stores/own/push".to_owned(), None),
        ("POST", "/v1/stores/own/push/resume".to_owned(), Some(json!({}))),
        ("POST", "/v1/stores/own/push/skip".to_owned(), Some(json!({"lsn": "1"}))),
        ("POST", "/v1/stores/own/push/attach".to_owned(), Some(json!({}))),
        ("GET", "/v1/stores/own/push/skips".to_owned(), None),
        ("GET", "/v1/consumers/reader".to_owned(), None),
        ("DELETE", "/v1/consumers/reader".to_owned(), None),
        ("PUT", "/v1/consumers/reader".to_owned(), Some(offset)),
        ("POST", "/v1/txns".to_owned(), Some(json!({"stores": ["own"]}))),
        ("POST", format!("/v1/txns/{}/commit", new_id()), Some(write.clone())),
        ("POST", format!("/v1/txns/{}/validate", new_id()), Some(write)),
    ];
    for (method, path, body) in foreign {
        let answer = call(&node, &bank, method, &path, body.as_ref());
        let code = answer.body["code"].as_str().unwrap_or_default();
        let unknown = answer.status == 404 && ["unknown_store", "unknown_consumer"].contains(&code);
        assert!(unknown, "{method} {path}: {}", answer.body);
    }
    let batch = call(&node, &bank, "POST", "/v1/txns/batch-commit", Some(&json!({"txns": [in_batch]}))).body;
    assert!(batch["results"][0]["problem"]["code"] == "unknown_store", "{batch}");
    assert_eq!(call(&node, &bank, "GET", "/v1/consumers", None).body["consumers"], json!([]));
    let reader = call(&node, &shop, "GET", "/v1/consumers/reader", None);
    assert_eq!(reader.body["offsets"].as_array().map(Vec::len), Some(1), "{}", reader.body);
    // Anything that concerns all tenants is for the service's operators, whatever a tenant's own operator may do in its
    // tenant.
    for path in ["/v1/admin/plugins", "/metrics", "/v1/admin/stores", "/v1/admin/stores/bank/kv"] {
        assert_eq!(call(&node, &bank, "GET", path, None).status, 403, "{path}");
    }

    // Ids: fencing, aborting or querying one reveals nothing about another tenant's.
    let (fenced, aborted) = (new_id(), new_id());
    assert_eq!(call(&node, &bank, "PUT", "/v1/stores/kv", Some(&json!({"adaptor": "kv"}))).status, 201);
    let fence = call(&node, &bank, "GET", &format!("/v1/txns/{fenced}?fence=true"), None).body;
    assert_eq!(fence["reason"], "fenced", "{fence}");
    assert_eq!(call(&node, &bank, "POST", &format!("/v1/txns/{aborted}/abort"), Some(&json!({}))).status, 200);
    for id in [&fenced, &aborted] {
        assert_eq!(put(&node, &shop, id, 6).body["status"], "committed", "the other tenant's {id} is another one");
        assert_eq!(put(&node, &bank, id, 6).body["status"], "aborted", "{id}");
    }

    // Positions: LSN 5 exists in one log of that name, and is past the end of the other.
    assert_eq!(put(&node, &bank, &new_id(), 7).body["lsn"]["kv"], "1");
    assert_eq!(call(&node, &shop, "GET", "/v1/log?store=kv&after=5", None).status, 200);
    let offset = json!({"store": "kv", "lsn": "5"});
    let beyond = [
        call(&node, &bank, "GET", "/v1/log?store=kv&after=5&wait_ms=0", None),
        call(&node, &bank, "PUT", "/v1/consumers/reader", Some(&offset)),
    ];
    for answer in beyond {
        assert_eq!(answer.body["code"], "position_beyond_head", "{}", answer.body);
    }
    assert_eq!(call(&node, &shop, "PUT", "/v1/consumers/reader", Some(&offset)).status, 200);
    let records = call(&node, &bank, "GET", "/v1/log?store=kv", None).body["records"].clone();
    assert_eq!(records.as_array().map(Vec::len), Some(1), "{records}");
    assert_eq!(records[0]["writes"][0]["value"], 7);
}

#[test]
fn an_operator_of_the_service_sees_the_stores_of_every_tenant_but_not_their_rows() {
    let dir = tempfile::tempdir().unwrap();
    let (node, shop, bank) = two_tenants(&dir, "");
    let root = operator(dir.path());
    let (embedded, log_only) = (json!({"adaptor": "kv"}), json!({}));
    for (key, name, body) in
        [(&shop, "kv", &embedded), (&shop, "events", &log_only), (&bank, "kv", &embedded), (&root, "own", &log_only)]
    {
        assert_eq!(call(&node, key, "PUT", &format!("/v1/stores/{name}"), Some(body)).status, 201, "{name}");
    }
    assert_eq!(put(&node, &shop, &new_id(), 1).body["status"], "committed");

    let listed = |path: &str| {
        let answer = call(&node, &root, "GET", path, None);
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        let stores = answer.body["stores"].as_array().expect("a list").clone();
        stores.iter().map(|store| format!("{}/{}", store["namespace"], store["store"]).replace('"', "")).collect()
    };
    let all: Vec<String> = listed("/v1/admin/stores");
    assert_eq!(all, ["bank/kv", "default/own", "shop/events", "shop/kv"]);
    let one: Vec<String> = listed("/v1/admin/stores?namespace=shop");
    assert_eq!(one, ["shop/events", "shop/kv"]);
    make_key(&node, &root, "new", &["engine"]);
    let none: Vec<String> = listed("/v1/admin/stores?namespace=new");
    assert!(none.is_empty(), "{none:?}");
    let unknown = call(&node, &root, "GET", "/v1/admin/stores?namespace=shp", None);
    assert_eq!((unknown.status, &unknown.body["code"]), (404, &json!("not_found")), "{}", unknown.body);
    assert!(unknown.body["detail"].to_string().contains("there is no namespace"), "{}", unknown.body);
    assert_eq!(call(&node, &root, "GET", "/v1/admin/stores?tenant=shop", None).status, 400);
    for (namespace, head) in [("shop", "1"), ("bank", "0")] {
        let store = call(&node, &root, "GET", &format!("/v1/admin/stores/{namespace}/kv"), None).body;
        assert_eq!((&store["namespace"], &store["head_lsn"]), (&json!(namespace), &json!(head)), "{store}");
    }
    for path in ["/v1/admin/stores/bank/events", "/v1/admin/stores/none/kv"] {
        let answer = call(&node, &root, "GET", path, None);
        assert_eq!((answer.status, &answer.body["code"]), (404, &json!("unknown_store")), "{}", answer.body);
    }

    // It does not open their rows, and a key without that role or of another namespace sees nothing of them.
    assert_eq!(call(&node, &root, "GET", "/v1/stores/kv/rows/k", None).status, 404);
    assert_eq!(call(&node, &root, "GET", "/v1/stores", None).body["stores"].as_array().map(Vec::len), Some(1));
    let engine = make_key(&node, &root, "default", &["engine", "store", "metrics"]);
    for key in [&shop, &bank, &engine] {
        for path in ["/v1/admin/stores", "/v1/admin/stores?namespace=shop", "/v1/admin/stores/shop/kv"] {
            let answer = call(&node, key, "GET", path, None);
            assert_eq!((answer.status, &answer.body["code"]), (403, &json!("forbidden")), "{path}: {}", answer.body);
        }
    }

    let command = |key: &str, words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tribunal"));
        let output = command.args(words).args(["--url", &node.url]).env("TRIBUNAL_API_KEY", key).output().unwrap();
        let told = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).expect("UTF-8")).concat();
        (output.status.success(), told)
    };
    let (listed, table) = command(&root, &["store", "ls", "--all-namespaces"]);
    let columns = |line: &str| line.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>();
    assert!(listed, "{table}");
    assert_eq!(
        table.lines().map(columns).collect::<Vec<_>>(),
        [["namespace", "store"], ["bank", "kv"], ["default", "own"], ["shop", "events"], ["shop", "kv"]],
        "{table}"
    );
    let (listed, table) = command(&root, &["store", "ls", "--namespace", "bank"]);
    assert!(listed && table.lines().count() == 2 && table.contains("bank "), "{table}");
    let (shown, text) = command(&root, &["store", "show", "kv", "--namespace", "shop"]);
    assert!(shown && text.contains("shop") && text.contains("acknowledged 1 of 1"), "{text}");
    for words in [&["store", "ls", "--all-namespaces"][..], &["store", "show", "kv", "--namespace", "shop"]] {
        let (allowed, text) = command(&bank, words);
        assert!(!allowed && text.contains("operator in the namespace `default`"), "{words:?}: {text}");
    }
}

#[test]
fn a_tenants_stores_only_connect_to_addresses_allowed_for_that_tenant() {
    let dir = tempfile::tempdir().unwrap();
    let storage = TcpListener::bind("127.0.0.1:0").expect("a port");
    storage.set_nonblocking(true).expect("a socket");
    let endpoint = storage.local_addr().expect("its address").to_string();
    let credential = format!("{{ endpoint = \"{endpoint}\", user = \"shop\", password = \"word\" }}");
    let push = format!(
        "[push]\nallow = [\"{endpoint}\"]\n\
         [push.tenants.shop]\nallow = [\"{endpoint}\"]\ncredentials = [{credential}]\n"
    );
    let (node, shop, bank) = two_tenants(&dir, &push);
    let redis = json!({"adaptor": "redis", "adaptor_config": {"endpoint": endpoint}});
    let hook = json!({"kind": "webhook", "url": format!("http://{endpoint}/"), "secret": "0123456789abcdef"});
    let sql = json!({"adaptor": "postgres", "adaptor_config": {
        "endpoint": format!("postgres://{endpoint}/shop"), "table": "docs"}});

    assert_eq!(call(&node, &bank, "PUT", "/v1/stores/far", Some(&redis)).status, 201);
    let refused = eventually("the push to be refused", || {
        let push = call(&node, &bank, "GET", "/v1/stores/far", None).body["push"].clone();
        push["last_error"].as_str().map(str::to_owned)
    });
    assert!(refused.contains("loopback"), "{refused}");
    let answer = call(&node, &bank, "PUT", "/v1/stores/far/push", Some(&hook));
    assert_eq!(answer.body["code"], "url_refused", "{}", answer.body);
    let answer = call(&node, &bank, "PUT", "/v1/stores/sql", Some(&sql));
    assert!(answer.body.to_string().contains("names no role"), "another's credential is none: {}", answer.body);
    std::thread::sleep(Duration::from_millis(300));
    assert!(storage.accept().is_err(), "nothing of it came to the storage");

    assert_eq!(call(&node, &shop, "PUT", "/v1/stores/far", Some(&redis)).status, 201);
    let connected = || storage.accept().ok();
    drop(eventually("the tenant's own push", connected));
    let answer = call(&node, &shop, "PUT", "/v1/stores/sql", Some(&sql));
    assert_eq!(answer.status, 201, "{}", answer.body);
}

#[test]
fn a_tenant_that_is_configured_twice_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let more = format!("{AUTH}[push.tenants.default]\nallow = []\n");
    let refusal = support::keyed::try_serve(dir.path(), "127.0.0.1:0", &more).err().expect("it must not start");
    assert!(refusal.contains("push.tenants"), "{refusal}");
}

#[test]
fn the_number_of_stores_is_limited_per_tenant() {
    let dir = tempfile::tempdir().unwrap();
    let (node, shop, bank) = two_tenants(&dir, "");
    let declare = |key: &str, name: &str| call(&node, key, "PUT", &format!("/v1/stores/{name}"), Some(&json!({})));
    for n in 0..64 {
        assert_eq!(declare(&shop, &format!("s{n}")).status, 201, "{n}");
    }
    let refused = declare(&shop, "one-more");
    assert_eq!((refused.status, &refused.body["code"]), (422, &json!("too_many_stores")), "{}", refused.body);
    assert_eq!(declare(&shop, "s7").status, 200, "what is there may be said again");
    assert_eq!(declare(&bank, "s0").status, 201);
}

#[test]
fn what_many_clients_create_at_the_same_time_is_created_once() {
    const CLIENTS: usize = 8;
    let dir = tempfile::tempdir().unwrap();
    let (node, shop, _) = two_tenants(&dir, "");
    let root = operator(dir.path());
    let create = |client: usize| {
        let statuses: Vec<_> =
            (0..16).map(|n| call(&node, &shop, "PUT", &format!("/v1/stores/s{n}"), Some(&json!({}))).status).collect();
        (statuses, (0..4).map(|n| make_key(&node, &root, &format!("new-{n}"), &ALL)).collect::<Vec<_>>(), client)
    };
    let create = &create;
    let made: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(move || create(client))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
    });
    for n in 0..16 {
        let mut statuses: Vec<_> = made.iter().map(|(statuses, ..)| statuses[n]).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [vec![200; CLIENTS - 1], vec![201]].concat(), "one of them has created s{n}");
    }
    // All keys of a name belong to one tenant, and two names are two tenants. A restart does not change that.
    for n in 0..4 {
        let path = format!("/v1/stores/of-{n}");
        assert_eq!(call(&node, &made[0].1[n], "PUT", &path, Some(&json!({}))).status, 201);
    }
    let check = |node: &Node| {
        for (_, keys, client) in &made {
            for (n, key) in keys.iter().enumerate() {
                let listed = call(node, key, "GET", "/v1/stores", None).body;
                let names = listed["stores"].as_array().expect("a list").iter().map(|store| &store["store"]);
                assert!(names.eq([&json!(format!("of-{n}"))]), "client {client}, tenant {n}: {listed}");
            }
        }
    };
    check(&node);
    assert!(node.stop().success());
    check(&serve(dir.path(), AUTH));
}

/// A client may disconnect before the tenant or store that it creates exists. The next one must not get the same
/// number.
#[test]
fn tenants_and_stores_of_disconnected_clients_keep_their_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let (node, shop, _) = two_tenants(&dir, "");
    let root = operator(dir.path());
    assert_eq!(call(&node, &shop, "PUT", "/v1/stores/bulk", Some(&json!({}))).status, 201);
    // Sends a request, and disconnects while the log is still busy with earlier requests.
    let leave = |key: &str, method: &str, path: &str, body: &serde_json::Value, stay: Duration| {
        let body = body.to_string();
        let mut socket = TcpStream::connect(node.url.strip_prefix("http://").expect("plain HTTP")).expect("connects");
        let length = body.len();
        write!(
            socket,
            "{method} {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .expect("is sent");
        std::thread::sleep(stay);
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seed in 0.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                let writes: Vec<_> = (0..8)
                    .map(|n| json!({"op": "put", "store": "bulk", "key": n.to_string(), "value": noise(seed, 1 << 20)}))
                    .collect();
                let commit = format!("/v1/txns/{}/commit", new_id());
                call(&node, &shop, "POST", &commit, Some(&json!({ "writes": writes })));
            }
        });
        for n in 0..24 {
            let key = json!({"name": "k", "namespace": format!("tenant-{n}"), "roles": ["operator"]});
            let stay = Duration::from_millis(n % 6);
            leave(&root, "POST", "/v1/admin/keys", &key, stay);
            make_key(&node, &root, &format!("other-{n}"), &["operator"]);
            leave(&shop, "PUT", &format!("/v1/stores/left-{n}"), &json!({}), stay);
            assert_eq!(call(&node, &shop, "PUT", &format!("/v1/stores/next-{n}"), Some(&json!({}))).status, 201);
        }
        done.store(true, Ordering::Relaxed);
    });
    // A tenant that shares another's number would see its stores.
    for n in 0..24 {
        let names = [format!("tenant-{n}"), format!("other-{n}")];
        let [left, next] = names.map(|name| make_key(&node, &root, &name, &["operator"]));
        assert_eq!(call(&node, &left, "PUT", "/v1/stores/mine", Some(&json!({}))).status, 201, "{n}");
        assert_eq!(call(&node, &next, "GET", "/v1/stores", None).body["stores"], json!([]), "{n}");
    }
    // A store that shares another's number would have its records.
    let listed = call(&node, &shop, "GET", "/v1/stores", None).body;
    let stores = listed["stores"].as_array().expect("a list").iter().filter(|store| store["store"] != "bulk");
    for name in stores.map(|store| store["store"].as_str().expect("text")) {
        let write = json!({"writes": [{"op": "put", "store": name, "key": "k", "value": 1}]});
        let verdict = call(&node, &shop, "POST", &format!("/v1/txns/{}/commit", new_id()), Some(&write)).body;
        assert_eq!(verdict["lsn"][name], "1", "the first record of {name}: {verdict}");
    }
}

#[test]
fn the_number_of_consumers_is_limited_per_tenant() {
    let dir = tempfile::tempdir().unwrap();
    let (node, shop, bank) = two_tenants(&dir, "");
    for key in [&shop, &bank] {
        assert_eq!(call(&node, key, "PUT", "/v1/stores/kv", Some(&json!({}))).status, 201);
    }
    let offset = json!({"store": "kv", "lsn": "0"});
    let set = |key: &str, n: u32| call(&node, key, "PUT", &format!("/v1/consumers/c{n}"), Some(&offset));
    let made = (0..1000).take_while(|n| set(&shop, *n).status == 200).count();
    assert_eq!(made, 256);
    let refused = set(&shop, 256);
    assert_eq!((refused.status, &refused.body["code"]), (422, &json!("too_many_consumers")), "{}", refused.body);
    assert!(refused.body["detail"].as_str().unwrap().contains("delete consumers"), "{}", refused.body);
    assert_eq!(set(&shop, 0).status, 200, "one that is there goes on");
    assert_eq!(set(&bank, 0).status, 200, "the other tenant does not notice");
    assert_eq!(call(&node, &shop, "DELETE", "/v1/consumers/c7", None).status, 204);
    assert_eq!(set(&shop, 256).status, 200);
}

/// Connections of the tenant that posts more than the node can judge.
const FLOOD: usize = 100;
/// It ends after this time even if the test has failed.
const FLOOD_TIME_MAX: Duration = Duration::from_secs(60);

/// Returns how many of the flood's requests are answered during one of `count` requests, which must all commit: the
/// median.
fn answered_before(answered: &AtomicUsize, count: usize, commit: impl Fn() -> Response) -> usize {
    let during = |_| {
        let before = answered.load(Ordering::Relaxed);
        let answer = commit();
        assert_eq!(answer.body["status"], "committed", "{}", answer.body);
        answered.load(Ordering::Relaxed) - before
    };
    let mut others: Vec<usize> = (0..count).map(during).collect();
    others.sort_unstable();
    others[count / 2]
}

#[test]
fn a_tenants_reads_do_not_wait_for_all_reads_of_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let (node, shop, bank) = two_tenants(&dir, "");
    for key in [&shop, &bank] {
        assert_eq!(call(&node, key, "PUT", "/v1/stores/kv", Some(&json!({}))).status, 201);
    }
    let snapshot = |key: &str| call(&node, key, "POST", "/v1/txns", Some(&json!({}))).body["snapshots"].clone();
    let ranges: Vec<_> =
        (0..256).map(|n| json!({"store": "kv", "start": format!("z{n}"), "end": format!("z{n}z")})).collect();
    let costly = json!({"snapshots": snapshot(&shop), "ranges": ranges});
    // Ranges are compared with all later writes.
    for round in 0..20 {
        let writes = |txn: usize| {
            (0..50).map(move |n| json!({"op": "put", "store": "kv", "key": format!("{round}/{txn}/{n}"), "value": 1}))
        };
        let txns = (0..50).map(|txn| json!({"txn_id": new_id(), "writes": writes(txn).collect::<Vec<_>>()}));
        let body = json!({"txns": txns.collect::<Vec<_>>()});
        assert_eq!(call(&node, &shop, "POST", "/v1/txns/batch-commit", Some(&body)).status, 200);
    }
    let read = json!({"snapshots": snapshot(&bank), "reads": [{"store": "kv", "key": "k"}]});
    let write = json!({"writes": [{"op": "put", "store": "kv", "key": "k", "value": 1}]});
    let commit = |key: &str, body| call(&node, key, "POST", &format!("/v1/txns/{}/commit", new_id()), Some(body));
    let (answered, stop, begun) = (AtomicUsize::new(0), AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let flood = || {
            while !stop.load(Ordering::Relaxed) && begun.elapsed() < FLOOD_TIME_MAX {
                commit(&shop, &costly);
                answered.fetch_add(1, Ordering::Relaxed);
            }
        };
        (0..FLOOD).for_each(|_| drop(scope.spawn(flood)));
        eventually("the flood", || (answered.load(Ordering::Relaxed) > 2 * FLOOD).then_some(()));
        let [reads, writes] = [&read, &write].map(|body| answered_before(&answered, 15, || commit(&bank, body)));
        stop.store(true, Ordering::Relaxed);
        // In one queue, nearly all of the flood would be answered first.
        assert!(reads < FLOOD / 2 && writes < FLOOD / 2, "{reads} before a read, {writes} before a write");
    });
}
