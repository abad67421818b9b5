//! Examples of whole requests and responses, for the reference page, for generators and for readers of the spec.
//!
//! Requests, and the responses of transactions, are written here. Other responses are composed from the examples of
//! their fields, so that a new field needs one example, in one place. Nothing is invented: a field without an example
//! is an error.

use serde_json::{Map, Value, json};

/// The transaction id of all examples. The server replaces it when it serves the document: ids expire.
pub const TXN_ID: &str = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a";

/// A commit that reads one row and writes two.
const COMMIT: &str = r#"{
  "isolation": "serializable",
  "reads": [{"store": "kv", "key": "acct/1", "version": "9271508992"}],
  "writes": [
    {"op": "put", "store": "kv", "key": "acct/1", "value": {"balance": 90}},
    {"op": "put", "store": "kv", "key": "acct/2", "value": {"balance": 10}}
  ]
}"#;

/// Bodies of requests, by operation.
const REQUESTS: &[(&str, &str)] = &[
    ("begin", r#"{"stores": ["kv"], "isolation": "serializable"}"#),
    ("txnCommit", COMMIT),
    ("txnValidate", COMMIT),
    (
        "batchCommit",
        r#"{"txns": [{
  "txn_id": "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a",
  "writes": [{"op": "put", "store": "kv", "key": "acct/1", "value": {"balance": 100}}]
}]}"#,
    ),
    ("putConsumer", r#"{"store": "kv", "lsn": "120"}"#),
    (
        "logPushRegister",
        r#"{"kind": "webhook", "url": "https://receiver.example/hook", "secret": "at least 16 characters"}"#,
    ),
    ("putStore", r#"{"existence": "tracked", "adaptor": "kv"}"#),
    ("attachPush", r#"{"loaded_lsn": "120"}"#),
    ("skipRecord", r#"{"lsn": "120"}"#),
    ("createKey", r#"{"name": "shop-engine", "namespace": "shop", "roles": ["engine"]}"#),
    ("activatePlugin", r#"{"slot": "rule", "at_epoch": "9000"}"#),
    ("deactivatePlugin", r#"{"slot": "rule"}"#),
    ("rollBackPlugin", r#"{"slot": "rule"}"#),
];

/// Bodies of successful responses that are not composed, by operation.
const RESPONSES: &[(&str, &str)] = &[
    ("txnCommit", COMMITTED),
    ("txnStatus", COMMITTED),
    (
        "batchCommit",
        r#"{"results": [{
  "status": "committed", "txn_id": "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a", "epoch": "8842",
  "csn": "1808217543843841024", "version": "9271508992", "lsn": {"kv": "120"}, "session": "v1-8842"
}]}"#,
    ),
    (
        "txnAbort",
        r#"{"status": "aborted", "txn_id": "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a", "reason": "client_abort", "retryable": false}"#,
    ),
    ("txnValidate", r#"{"status": "would_commit", "txn_id": "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a"}"#),
];

const COMMITTED: &str = r#"{
  "status": "committed", "txn_id": "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a", "epoch": "8842",
  "csn": "1808217543843841024", "version": "9271508992", "lsn": {"kv": "120"}, "session": "v1-8842"
}"#;

/// Bodies that are the same in all operations, by media type.
const TEXTS: &[(&str, &str)] = &[
    (
        "application/openmetrics-text",
        "# TYPE tribunal_txns_committed counter\ntribunal_txns_committed_total 1000\n# EOF\n",
    ),
    ("text/plain", "# TYPE tribunal_txns_committed_total counter\ntribunal_txns_committed_total 1000\n"),
];

/// Server-sent events, by operation and part.
const EVENTS: &[(&str, &str)] = &[
    (
        "logPull, response 200",
        "id: 120\ndata: {\"lsn\":\"120\",\"prev_lsn\":\"119\",\"epoch\":\"8842\",\"csn\":\"1808217543843841024\",\"version\":\"9271508992\",\
         \"txn_id\":\"0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a\",\"store\":\"kv\",\
         \"writes\":[{\"op\":\"put\",\"key\":\"acct/1\",\"value\":{\"balance\":100}}],\"checksum\":\"7f28eae3\"}\n\n",
    ),
    ("stats, response 200", "data: {\"epoch\":\"8842\",\"committed_per_s\":1250.0,\"aborted_per_s\":12.5}\n\n"),
];

/// Lines of NDJSON, by operation and part.
const LINES: &[(&str, &str)] = &[
    ("importVersions, request", "{\"key\":\"acct/1\",\"version\":\"17\"}\n"),
    (
        "logPull, response 200",
        "{\"lsn\":\"120\",\"prev_lsn\":\"119\",\"epoch\":\"8842\",\"csn\":\"1808217543843841024\",\"version\":\"9271508992\",\
         \"txn_id\":\"0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a\",\"store\":\"kv\",\
         \"writes\":[{\"op\":\"put\",\"key\":\"acct/1\",\"value\":{\"balance\":100}}],\"checksum\":\"7f28eae3\"}\n",
    ),
    (
        "getState, response 200",
        "{\"event\":\"state\",\"store\":\"kv\",\"kind\":\"rows\",\"log\":\"e7e7b974579b9559d0134a22d940f71a\",\"lsn\":\"120\",\
         \"detail\":\"the rows follow; continue with the log after lsn\"}\n\
         {\"key\":\"acct/1\",\"value\":{\"balance\":100},\"version\":\"9271508992\"}\n\
         {\"event\":\"end\",\"rows\":\"1\"}\n",
    ),
    (
        "batchCommit, request",
        "{\"txn_id\":\"0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a\",\
         \"writes\":[{\"op\":\"put\",\"store\":\"kv\",\"key\":\"acct/1\",\"value\":{\"balance\":100}}]}\n",
    ),
    (
        "batchCommit, response 200",
        "{\"status\":\"committed\",\"txn_id\":\"0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a\",\"epoch\":\"8842\",\
         \"version\":\"9271508992\",\"lsn\":{\"kv\":\"120\"},\"session\":\"v1-8842\",\"csn\":\"1808217543843841024\"}\n",
    ),
    (
        "commitStream, request",
        "{\"txn_id\":\"0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a\",\
         \"writes\":[{\"op\":\"put\",\"store\":\"kv\",\"key\":\"acct/1\",\"value\":{\"balance\":100}}]}\n",
    ),
    (
        "commitStream, response 200",
        "{\"status\":\"committed\",\"txn_id\":\"0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a\",\"epoch\":\"8842\",\
         \"version\":\"9271508992\",\"lsn\":{\"kv\":\"120\"},\"session\":\"v1-8842\",\"csn\":\"1808217543843841024\"}\n\
         {\"event\":\"end\",\"reason\":\"complete\",\"lines\":\"1\"}\n",
    ),
];

/// Problems, by status: title, code, detail, and whether the same request may succeed later.
const PROBLEMS: &[(&str, &str, &str, &str, bool)] = &[
    ("400", "Bad Request", "unknown_field", "/writes/0/valeu: no such field", false),
    ("401", "Unauthorized", "unauthenticated", "send an API key or a token as `authorization: Bearer`", false),
    ("403", "Forbidden", "forbidden", "this operation needs the role operator", false),
    ("404", "Not Found", "unknown_store", "/writes/0/store: there is no store `accounts`; declare it first", false),
    ("406", "Not Acceptable", "not_acceptable", "this operation returns application/json", false),
    ("408", "Request Timeout", "body_timeout", "the body did not arrive in time", true),
    ("409", "Conflict", "in_flight", "this id waits for its verdict; ask for its status with wait_ms", true),
    ("410", "Gone", "log_truncated", "the log starts at 100", false),
    ("413", "Content Too Large", "body_too_large", "the body is larger than 10485760 bytes", false),
    ("414", "URI Too Long", "key_too_long", "the key is longer than 10240 bytes", false),
    ("415", "Unsupported Media Type", "unsupported_media_type", "the body must be application/json", false),
    ("422", "Unprocessable Content", "body_mismatch", "this id was used for another body; use a new id", false),
    ("429", "Too Many Requests", "quota_exceeded", "more is in flight than the quota allows", true),
    ("503", "Service Unavailable", "overloaded", "the queues are full; nothing was accepted", true),
    ("504", "Gateway Timeout", "outcome_unknown", "the verdict is not known; ask for it by the id", true),
    ("default", "Service Unavailable", "unavailable", "the node is stopping", true),
];

/// A field whose type has neither an example nor values to choose from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoExample {
    /// The operation, and the path of fields from the body down.
    pub place: String,
}

impl std::fmt::Display for NoExample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} has no example: add one to the field in openapi/src", self.place)
    }
}

impl std::error::Error for NoExample {}

/// Adds an example to every request body, to every response body and to the path parameter `txn_id`.
///
/// # Errors
/// Every field that an example cannot be composed for.
///
/// # Panics
/// If an example of this file is not JSON.
pub fn add(document: &mut Value) -> Result<(), Vec<NoExample>> {
    let mut missing = Vec::new();
    let schemas = document["components"]["schemas"].as_object().cloned().unwrap_or_default();
    let Some(paths) = document["paths"].as_object_mut() else { return Ok(()) };
    for operation in paths.values_mut().filter_map(Value::as_object_mut).flat_map(Map::values_mut) {
        let id = operation["operationId"].as_str().unwrap_or_default().to_owned();
        for parameter in operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
            if parameter["name"] == "txn_id" {
                parameter["example"] = TXN_ID.into();
            }
        }
        for (kind, media) in content(operation.get_mut("requestBody")) {
            let written = REQUESTS.iter().find(|(of, _)| *of == id).map(|(_, text)| parsed(text));
            missing.extend(describe(kind, media, written, &schemas, &format!("{id}, request")).err());
        }
        let Some(responses) = operation.get_mut("responses").and_then(Value::as_object_mut) else { continue };
        for (status, response) in responses {
            for (kind, media) in content(Some(response)) {
                let written = if kind == "application/problem+json" {
                    problem(status)
                } else {
                    RESPONSES.iter().find(|(of, _)| *of == id).map(|(_, text)| parsed(text))
                };
                missing.extend(describe(kind, media, written, &schemas, &format!("{id}, response {status}")).err());
            }
        }
    }
    if missing.is_empty() { Ok(()) } else { Err(missing) }
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("examples are JSON")
}

fn content(part: Option<&mut Value>) -> impl Iterator<Item = (&String, &mut Value)> {
    part.and_then(|part| part.get_mut("content")).and_then(Value::as_object_mut).into_iter().flatten()
}

fn problem(status: &str) -> Option<Value> {
    let (_, title, code, detail, retryable) = PROBLEMS.iter().find(|row| row.0 == status)?;
    let number: u16 = status.parse().unwrap_or(503);
    let mut problem = json!({
        "type": "about:blank", "title": title, "status": number, "code": code, "detail": detail, "retryable": retryable,
    });
    match status {
        "400" => {
            problem["errors"] =
                json!([{"pointer": "/writes/0/valeu", "code": "unknown_field", "detail": "no such field"}]);
        }
        "410" => {
            problem["oldest"] = "100".into();
            problem["state_url"] = "/v1/stores/kv/state".into();
        }
        "429" | "503" | "default" => problem["retry_after_ms"] = 5.into(),
        _ => {}
    }
    Some(problem)
}

fn describe(
    kind: &str,
    media: &mut Value,
    written: Option<Value>,
    schemas: &Map<String, Value>,
    place: &str,
) -> Result<(), NoExample> {
    let json = kind == "application/json" || kind.ends_with("+json");
    let example = match (written, json) {
        (Some(example), true) => example,
        (None, true) => compose(&media["schema"], schemas, place)?,
        (_, false) => match text(kind, place) {
            Some(text) => text.into(),
            None if streams(kind).is_some() => return Err(NoExample { place: format!("{place}, {kind}") }),
            None => return Ok(()),
        },
    };
    media["example"] = example;
    Ok(())
}

fn text(kind: &str, place: &str) -> Option<&'static str> {
    let found = match streams(kind) {
        Some(texts) => texts.iter().find(|(of, _)| *of == place),
        None => TEXTS.iter().find(|(of, _)| *of == kind),
    };
    found.map(|(_, text)| *text)
}

/// Returns the examples of a media type of which every operation has its own.
fn streams(kind: &str) -> Option<&'static [(&'static str, &'static str)]> {
    match kind {
        "application/x-ndjson" => Some(LINES),
        "text/event-stream" => Some(EVENTS),
        _ => None,
    }
}

/// Composes an example from those of the fields. Alternatives in base64 are left out, and so is what is optional and
/// has no example of its own. A list of what has no example is empty, a bounded number the least one.
fn compose(schema: &Value, schemas: &Map<String, Value>, place: &str) -> Result<Value, NoExample> {
    if let Some(example) = schema.get("example") {
        return Ok(example.clone());
    }
    let reference = schema.get("$ref").or_else(|| schema.pointer("/allOf/0/$ref")).and_then(Value::as_str);
    if let Some(inner) = reference.and_then(|path| schemas.get(path.rsplit('/').next()?)) {
        return compose(inner, schemas, place);
    }
    if let Some(first) = schema.pointer("/enum/0") {
        return Ok(first.clone());
    }
    if let Some(items) = schema.get("items") {
        let item = compose(items, schemas, place);
        return Ok(item.map_or_else(|_| json!([]), |item| json!([item])));
    }
    if let Some(least) = schema.get("minimum") {
        return Ok(least.clone());
    }
    if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
        return Ok(json!({ "kv": compose(values, schemas, place)? }));
    }
    if let Some(fields) = schema.get("properties").and_then(Value::as_object) {
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut object = Map::new();
        for (name, field) in fields {
            let place = format!("{place}, {name}");
            let optional = !required.contains(&name.as_str());
            if optional && (name.ends_with("_b64") || !says_something(field, schemas)) {
                continue;
            }
            object.insert(name.clone(), compose(field, schemas, &place)?);
        }
        return Ok(object.into());
    }
    match schema["type"].as_str() {
        Some("boolean") => Ok(false.into()),
        Some("object") => Ok(json!({})),
        _ => Err(NoExample { place: place.to_owned() }),
    }
}

/// Tells whether an optional field has an example of its own, or one of its type.
fn says_something(field: &Value, schemas: &Map<String, Value>) -> bool {
    let reference = field.get("$ref").and_then(Value::as_str);
    let inner = reference.and_then(|path| schemas.get(path.rsplit('/').next()?)).unwrap_or(field);
    field.get("example").is_some() || inner.get("example").is_some() || inner.get("enum").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: serde::de::DeserializeOwned>(text: &str) {
        let parsed: Result<T, _> = serde_json::from_str(text);
        assert!(parsed.is_ok(), "{text}: {:?}", parsed.err());
    }

    #[test]
    fn written_examples_have_the_types_of_their_operations() {
        for (id, text) in REQUESTS {
            match *id {
                "begin" => round_trip::<crate::BeginRequest>(text),
                "txnCommit" | "txnValidate" => round_trip::<crate::CommitRequest>(text),
                "batchCommit" => round_trip::<crate::BatchCommitRequest>(text),
                "putConsumer" => round_trip::<crate::OffsetRequest>(text),
                "logPushRegister" => round_trip::<crate::PushRequest>(text),
                "putStore" => round_trip::<crate::StoreDeclaration>(text),
                "attachPush" => round_trip::<crate::AttachRequest>(text),
                "skipRecord" => round_trip::<crate::SkipRequest>(text),
                "createKey" => round_trip::<crate::KeyRequest>(text),
                "activatePlugin" => round_trip::<crate::PluginActivate>(text),
                "deactivatePlugin" => round_trip::<crate::PluginDeactivate>(text),
                "rollBackPlugin" => round_trip::<crate::PluginRollback>(text),
                other => panic!("{other} has no type here"),
            }
        }
        for (id, text) in RESPONSES {
            match *id {
                "batchCommit" => round_trip::<crate::BatchCommitResponse>(text),
                _ => round_trip::<crate::TxnOutcome>(text),
            }
        }
    }

    #[test]
    fn a_field_without_an_example_is_named() {
        let mut document = json!({
            "components": {"schemas": {"Box": {
                "type": "object", "required": ["label"], "properties": {"label": {"type": "string"}},
            }}},
            "paths": {"/box": {"get": {"operationId": "getBox", "responses": {"200": {
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Box"}}},
            }}}}},
        });
        let refused = add(&mut document).unwrap_err();
        assert_eq!(refused, [NoExample { place: "getBox, response 200, label".to_owned() }]);
        document["components"]["schemas"]["Box"]["properties"]["label"]["example"] = "fragile".into();
        add(&mut document).unwrap();
        let media = &document["paths"]["/box"]["get"]["responses"]["200"]["content"]["application/json"];
        assert_eq!(media["example"], json!({"label": "fragile"}));
    }
}
