//! A real `tribunal` process on loopback, with its own data directory, and a small client for it.
#![expect(dead_code, reason = "every test target uses another part of this support")]

pub mod cluster;
pub mod damage;
pub mod faulty_proxy;
pub mod history;
pub mod keyed;
pub mod list_append;
pub mod receiver;
pub mod redis;
pub mod workload;
pub mod wrong_clock;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Number of its last lines that a node prints if a test fails.
const LINES_TOLD: usize = 200;

/// A running node. Killed by its process id on drop.
pub struct Node {
    child: Child,
    pub url: String,
    agent: ureq::Agent,
    stderr: Option<std::thread::JoinHandle<()>>,
    said: Arc<Mutex<Vec<u8>>>,
}

/// A response: status and body.
pub struct Response {
    pub status: u16,
    pub body: Value,
}

impl Node {
    /// Starts `tribunal dev` on a free port.
    pub fn start(data: &Path) -> Node {
        Node::try_start(data, &[]).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"))
    }

    /// Starts it with additional flags; returns its output if it refuses to start.
    pub fn try_start(data: &Path, flags: &[&str]) -> Result<Node, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
        command.args(["dev", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(flags);
        Node::spawn(command)
    }

    /// Starts a prepared command that eventually runs a node.
    pub fn spawn(mut command: Command) -> Result<Node, String> {
        let mut child = command
            .env_remove("TRIBUNAL_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut stderr = child.stderr.take().expect("piped");
        let Some(url) = lines.find_map(|line| Some(line.ok()?.strip_prefix("tribunal listens on ")?.to_owned())) else {
            let mut text = String::new();
            std::io::Read::read_to_string(&mut stderr, &mut text).expect("stderr is text");
            child.wait().expect("it ended");
            return Err(text);
        };
        // Keep draining; otherwise a chatty node blocks on a full pipe.
        let said = Arc::<Mutex<Vec<u8>>>::default();
        let all = Arc::clone(&said);
        let stderr = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = std::io::Read::read(&mut stderr, &mut bytes) {
                all.lock().expect("no panic").extend_from_slice(&bytes[..read]);
            }
        });
        std::thread::spawn(move || lines.for_each(drop));
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        let agent = config.timeout_global(Some(Duration::from_secs(120))).build().new_agent();
        Ok(Node { child, url, agent, stderr: Some(stderr), said })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, the closest that a process gets to a power failure.
    pub fn kill(mut self) {
        self.child.kill().expect("kill");
        self.child.wait().expect("wait");
    }

    /// Asks it to stop and waits until it has exited.
    pub fn stop(mut self) -> std::process::ExitStatus {
        self.signal("TERM");
        self.child.wait().expect("wait")
    }

    /// Waits until it exits by itself; returns its status and its stderr.
    pub fn ended(mut self) -> (std::process::ExitStatus, String) {
        let status = self.child.wait().expect("wait");
        self.stderr.take().expect("taken once").join().expect("the reader ends with the process");
        (status, self.said())
    }

    /// Returns its stderr so far.
    pub fn said(&self) -> String {
        String::from_utf8_lossy(&self.said.lock().expect("no panic")).into_owned()
    }

    pub fn signal(&self, name: &str) {
        let done = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status().expect("kill runs");
        assert!(done.success());
    }

    pub fn get(&self, path: &str) -> Response {
        self.try_get(path).expect("the node answers")
    }

    pub fn try_get(&self, path: &str) -> Result<Response, ureq::Error> {
        read(self.agent.get(format!("{}{path}", self.url)).call()?)
    }

    pub fn post(&self, path: &str, body: &Value) -> Response {
        self.try_post(path, body).expect("the node answers")
    }

    pub fn try_post(&self, path: &str, body: &Value) -> Result<Response, ureq::Error> {
        let request = self.agent.post(format!("{}{path}", self.url)).header("content-type", "application/json");
        read(request.send(body.to_string())?)
    }

    /// Posts lines of JSON.
    pub fn post_lines(&self, path: &str, lines: &[Value]) -> Response {
        self.post_text(path, &lines.iter().map(|line| format!("{line}\n")).collect::<String>())
    }

    /// Posts lines as they are.
    pub fn post_text(&self, path: &str, body: &str) -> Response {
        let request = self.agent.post(format!("{}{path}", self.url)).header("content-type", "application/x-ndjson");
        read(request.send(body).expect("the node answers")).expect("the node answers")
    }

    pub fn put(&self, path: &str, body: &Value) -> Response {
        let request = self.agent.put(format!("{}{path}", self.url)).header("content-type", "application/json");
        read(request.send(body.to_string()).expect("the node answers")).expect("the node answers")
    }

    /// Puts a component.
    pub fn put_wasm(&self, path: &str, bytes: &[u8]) -> Response {
        let request = self.agent.put(format!("{}{path}", self.url)).header("content-type", "application/wasm");
        read(request.send(bytes).expect("the node answers")).expect("the node answers")
    }

    pub fn delete(&self, path: &str) -> Response {
        let request = self.agent.delete(format!("{}{path}", self.url));
        read(request.call().expect("the node answers")).expect("the node answers")
    }

    /// Commits under a fresh id.
    pub fn commit(&self, body: &Value) -> Response {
        self.post(&format!("/v1/txns/{}/commit", new_id()), body)
    }

    /// Puts one row of `kv` blindly and returns the verdict.
    pub fn put_row(&self, key: &str, value: i64) -> Value {
        let response = self.commit(&json!({"writes": [{"op": "put", "store": "kv", "key": key, "value": value}]}));
        assert_eq!(response.status, 200, "{}", response.body);
        response.body
    }

    /// Makes two transactions of one request contend for a row: the first writes one row, the second three. Returns the
    /// epoch and whether the second one won.
    pub fn contest(&self, key: &str) -> (u64, bool) {
        let mut tries = 0;
        let reply = eventually("both to be decided", || {
            // Transactions left undecided by a log that changed its leader may still be decided, so the next attempt
            // uses another row.
            let key = if tries == 0 { key.to_owned() } else { format!("{key}, try {tries}") };
            tries += 1;
            let put = |key: String| json!({"op": "insert", "store": "kv", "key": key, "value": 1});
            let small = json!({"txn_id": new_id(), "writes": [put(key.clone())]});
            let large = json!({"txn_id": new_id(),
                "writes": [put(key.clone()), put(format!("{key}/a")), put(format!("{key}/b"))]});
            let reply = self.post("/v1/txns/batch-commit", &json!({"txns": [small, large]}));
            assert!(matches!(reply.status, 200 | 503 | 504), "{}", reply.body);
            let results = reply.body["results"].as_array()?;
            results.iter().all(|result| result["problem"].is_null()).then_some(reply.body)
        });
        let of = |at: usize| &reply["results"][at];
        assert_ne!(of(0)["status"], of(1)["status"], "exactly one of them wins: {reply}");
        let epoch = of(0)["epoch"].as_str().and_then(|epoch| epoch.parse().ok()).expect("an epoch");
        (epoch, of(1)["status"] == "committed")
    }

    /// Declares the store `rows` with an adaptor and the prefix `p:`, and commits 502 transactions to it: 500 rows, of
    /// which `row/3` is deleted and `row/7` becomes 499.
    pub fn push_rows_to(&self, adaptor: &str, endpoint: &str) {
        let store = json!({"adaptor": adaptor, "adaptor_config": {"endpoint": endpoint, "prefix": "p:"}});
        let declared = self.put("/v1/stores/rows", &store);
        assert_eq!(declared.status, 201, "{}", declared.body);
        let put =
            |key: u32, value: u32| json!({"op": "put", "store": "rows", "key": format!("row/{key}"), "value": value});
        for first in (0..500).step_by(100) {
            let txns = (first..first + 100).map(|n| json!({"txn_id": new_id(), "writes": [put(n, n)]}));
            let reply = self.post("/v1/txns/batch-commit", &json!({"txns": txns.collect::<Vec<_>>()})).body;
            let results = reply["results"].as_array().expect("results");
            assert!(results.iter().all(|result| result["status"] == "committed"), "{reply}");
        }
        for write in [json!({"op": "delete", "store": "rows", "key": "row/3"}), put(7, 499)] {
            assert_eq!(self.commit(&json!({"writes": [write]})).body["status"], "committed");
        }
    }

    /// Reads all records of a store's log.
    pub fn log_of(&self, store: &str) -> Vec<Value> {
        let mut records = Vec::new();
        let mut after = "0".to_owned();
        loop {
            let page = self.get(&format!("/v1/log?store={store}&after={after}&limit=1000"));
            assert_eq!(page.status, 200, "{}", page.body);
            let found = page.body["records"].as_array().expect("records").clone();
            if found.is_empty() {
                return records;
            }
            after = page.body["next"].as_str().expect("next").to_owned();
            records.extend(found);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let (url, said) = (&self.url, self.said());
            let lines: Vec<&str> = said.lines().collect();
            let last = &lines[lines.len().saturating_sub(LINES_TOLD)..];
            eprintln!("the last lines of the node at {url}:\n{}", last.join("\n"));
        }
    }
}

fn read(mut response: ureq::http::Response<ureq::Body>) -> Result<Response, ureq::Error> {
    let status = response.status().as_u16();
    let text = response.body_mut().read_to_string()?;
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Ok(Response { status, body })
}

/// Posts to any node, with a configurable timeout.
pub struct Caller {
    agent: ureq::Agent,
    /// Maximum attempts to post a commit.
    pub tries: usize,
}

impl Caller {
    pub fn new(timeout: Duration) -> Caller {
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        Caller { agent: config.timeout_global(Some(timeout)).build().new_agent(), tries: 12 }
    }

    /// Returns a caller that gives up only after more time than a log needs to change its leader on a busy machine.
    pub fn patient() -> Caller {
        Caller { tries: 2_000, ..Caller::new(Duration::from_secs(10)) }
    }

    /// Posts to a full URL.
    pub fn post(&self, url: &str, body: &Value) -> Result<Response, ureq::Error> {
        read(self.agent.post(url).header("content-type", "application/json").send(body.to_string())?)
    }
}

/// Posts to a full URL, from any thread.
pub fn post(url: &str, body: &Value) -> Response {
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    let agent = config.timeout_global(Some(Duration::from_secs(120))).build().new_agent();
    let sent = agent.post(url).header("content-type", "application/json").send(body.to_string());
    read(sent.expect("the node answers")).expect("the node answers")
}

/// Sends any request to a full URL, with a key if one is given.
pub fn call(url: &str, method: &str, key: Option<&str>, body: Option<&Value>) -> Response {
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    let agent = config.timeout_global(Some(Duration::from_secs(120))).build().new_agent();
    let mut request = ureq::http::Request::builder().method(method).uri(url);
    if let Some(key) = key {
        request = request.header("authorization", format!("Bearer {key}"));
    }
    let text = body.map(ToString::to_string).unwrap_or_default();
    if body.is_some() {
        request = request.header("content-type", "application/json");
    }
    let answer = match body {
        Some(_) => agent.run(request.body(text).expect("a request")),
        None => agent.run(request.body(()).expect("a request")),
    };
    read(answer.expect("the node answers")).expect("the node answers")
}

/// Gets a full URL, from any thread.
pub fn get(url: &str) -> Response {
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    let agent = config.timeout_global(Some(Duration::from_secs(120))).build().new_agent();
    read(agent.get(url).call().expect("the node answers")).expect("the node answers")
}

/// Returns incompressible text.
pub fn noise(seed: u64, len: usize) -> Value {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let text = (0..len).map(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        match b'!' + (state % 90) as u8 {
            b'"' | b'\\' => 'x',
            byte => char::from(byte),
        }
    });
    Value::String(text.collect())
}

/// Generates a transaction id.
pub fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// Waits until `check` returns a value; panics with `what` on a timeout, which suits a busy machine.
pub fn eventually<T>(what: &str, check: impl FnMut() -> Option<T>) -> T {
    eventually_within(Duration::from_secs(120), what, check)
}

/// Repeats a request while its response is 503: in a cluster, the log that it needs may just be changing its leader.
pub fn taken(mut request: impl FnMut() -> Response) -> Response {
    eventually("the request to be taken", || Some(request()).filter(|answer| answer.status != 503))
}

/// As [`eventually`], for events that may take longer than usual.
pub fn eventually_within<T>(timeout: Duration, what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < deadline, "still waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
