//! A PostgreSQL for the test, a node with a login, and the final state of both.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::postgres_server::{DATABASE, PostgresServer, ROLE};
use crate::support::{Node, eventually};

/// A database and a runtime to query it.
pub struct Database {
    pub server: PostgresServer,
    runtime: tokio::runtime::Runtime,
}

/// One row of a result, as text.
pub type Cells = Vec<Option<String>>;

impl Database {
    /// Starts one; returns `None` and prints a line, which is counted, if PostgreSQL is not
    /// installed.
    pub fn start() -> Option<Database> {
        let server = match PostgresServer::start(&[]) {
            Ok(server) => server,
            Err(text) if text.contains("is not installed") => {
                println!("SKIPPED: {text}");
                return None;
            }
            Err(text) => panic!("{text}"),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Some(Database { server, runtime })
    }

    /// Runs SQL and returns the rows of all statements.
    pub fn sql(&self, text: &str) -> Vec<Cells> {
        self.runtime.block_on(async {
            let config: tokio_postgres::Config = self.server.url().parse().expect("an address");
            let stream = tokio::net::TcpStream::connect(self.server.address()).await.expect("it listens");
            let (client, connection) = config.connect_raw(stream, tokio_postgres::NoTls).await.expect("it is up");
            let carrier = tokio::spawn(connection);
            let messages = client.simple_query(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
            drop(client);
            let _ = carrier.await;
            let rows = messages.into_iter().filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
                _ => None,
            });
            rows.map(|row| (0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect()).collect()
        })
    }

    /// Returns the only cell of a result.
    pub fn cell(&self, text: &str) -> String {
        let rows = self.sql(text);
        rows.into_iter().flatten().flatten().next().unwrap_or_else(|| panic!("{text}: nothing"))
    }

    /// Returns the address as in a declaration.
    pub fn endpoint(&self) -> String {
        format!("postgres://{}/{DATABASE}", self.server.address())
    }

    /// Starts a node that knows the password.
    pub fn node(&self, data: &Path) -> Node {
        self.node_with(data, self.server.password())
    }

    /// Starts a node that logs in as another role, which has the same password.
    pub fn node_as(&self, data: &Path, role: &str) -> Node {
        self.spawn(data, role, self.server.password())
    }

    /// Starts a node with this password.
    pub fn node_with(&self, data: &Path, password: &str) -> Node {
        self.spawn(data, ROLE, password)
    }

    fn spawn(&self, data: &Path, role: &str, password: &str) -> Node {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
        command.args(["dev", "--listen", "127.0.0.1:0", "--data"]).arg(data);
        let address = self.server.address();
        command.env(
            "TRIBUNAL__PUSH__CREDENTIALS",
            format!("[{{endpoint=\"{address}\",user=\"{role}\",password=\"{password}\"}}]"),
        );
        Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"))
    }

    /// Declares a store with these tables.
    pub fn declare(&self, node: &Node, store: &str, tables: &Value) {
        let config = json!({"endpoint": self.endpoint(), "tables": tables});
        let answer =
            node.put(&format!("/v1/stores/{store}"), &json!({"adaptor": "postgres", "adaptor_config": config}));
        assert!(matches!(answer.status, 200 | 201), "{}", answer.body);
    }
}

/// Waits until the storage has acknowledged the whole log.
pub fn caught_up(node: &Node, store: &str) {
    eventually("the storage to catch up", || {
        let status = node.get(&format!("/v1/stores/{store}")).body;
        let done = status["acked_lsn"] == status["head_lsn"] && status["push"]["state"] == "running";
        if !done && status["push"]["state"] == "stopped" {
            panic!("the push stopped: {status}");
        }
        done.then_some(())
    });
}

/// Waits until the push has stopped; returns the reason.
pub fn stopped(node: &Node, store: &str) -> String {
    in_state(node, store, "stopped")
}

/// Waits until the push is in a state with an error; returns the error.
pub fn in_state(node: &Node, store: &str, state: &str) -> String {
    eventually(&format!("the push to be {state}"), || {
        let push = node.get(&format!("/v1/stores/{store}")).body["push"].clone();
        let error = push["last_error"].as_str().map(str::to_owned);
        error.filter(|_| push["state"] == state)
    })
}

/// Replays the store's log: key to version and value.
pub fn replayed(node: &Node, store: &str) -> BTreeMap<String, (String, Value)> {
    let mut rows: BTreeMap<String, (String, Value)> = BTreeMap::new();
    for record in node.log_of(store) {
        let version = record["version"].as_str().expect("a version").to_owned();
        for write in record["writes"].as_array().expect("writes") {
            let key = write["key"].as_str().expect("a key").to_owned();
            match write["op"].as_str() {
                Some("delete") => drop(rows.remove(&key)),
                Some("add") => {
                    let before = rows[&key].1.as_i64().expect("an integer");
                    let sum = before + write["value"].as_i64().expect("an integer");
                    rows.insert(key, (version.clone(), json!(sum)));
                }
                _ => drop(rows.insert(key, (version.clone(), write["value"].clone()))),
            }
        }
    }
    rows
}
