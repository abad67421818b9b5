//! Nodes with authentication, and callers with keys.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{Node, Response};

/// Starts a node that requires keys; `more` is appended to the configuration.
pub fn serve(dir: &Path, more: &str) -> Node {
    try_serve(dir, "127.0.0.1:0", more).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"))
}

/// As [`serve`]; returns the node's output if it refuses to start.
pub fn try_serve(dir: &Path, listen: &str, more: &str) -> Result<Node, String> {
    let config = dir.join("tribunal.toml");
    let text = format!("listen = {listen:?}\ndata = {:?}\n{more}", dir.join("data"));
    std::fs::write(&config, text).expect("the directory is ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.arg("serve").arg("--config").arg(&config);
    Node::spawn(command)
}

/// Requires callers to authenticate.
pub const AUTH: &str = "[auth]\nrequired = true\n";

/// Returns the key that the node created for its first operator.
pub fn operator(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("data/operator.key")).expect("the first key is there").trim().to_owned()
}

/// Sends one request with a key.
pub fn call(node: &Node, key: &str, method: &str, path: &str, body: Option<&Value>) -> Response {
    super::call(&format!("{}{path}", node.url), method, Some(key), body)
}

/// Creates a key through the API.
pub fn make_key(node: &Node, by: &str, namespace: &str, roles: &[&str]) -> String {
    let body = json!({"name": format!("of-{namespace}"), "namespace": namespace, "roles": roles});
    let made = call(node, by, "POST", "/v1/admin/keys", Some(&body));
    assert_eq!(made.status, 201, "{}", made.body);
    made.body["key"].as_str().expect("a key").to_owned()
}

/// Puts the row `k` of `kv` blindly.
pub fn put(node: &Node, key: &str, id: &str, value: i64) -> Response {
    let body = json!({"writes": [{"op": "put", "store": "kv", "key": "k", "value": value}]});
    call(node, key, "POST", &format!("/v1/txns/{id}/commit"), Some(&body))
}
