//! The checked-in OpenAPI documents match the routes. `UPDATE_OPENAPI=1` rewrites them.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

/// Returns the value with fields sorted by name, whether or not some crate in the build makes maps
/// keep their order.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let by_name: BTreeMap<_, _> = map.iter().map(|(name, inner)| (name.clone(), sorted(inner))).collect();
            Value::Object(by_name.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        leaf => leaf.clone(),
    }
}

fn check(file: &str, checked_in: &str, document: &Value) {
    let generated = format!("{}\n", serde_json::to_string_pretty(&sorted(document)).unwrap());
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi").join(file);
        std::fs::write(path, generated).unwrap();
        return;
    }
    let line = checked_in.lines().zip(generated.lines()).position(|(old, new)| old != new);
    assert!(
        checked_in == generated,
        "openapi/{file} differs from the routes, from line {}: UPDATE_OPENAPI=1 cargo test -p tribunal-http --test \
         openapi",
        line.map_or(checked_in.lines().count(), |line| line + 1)
    );
}

fn documents() -> (Value, Value) {
    let mut newest = serde_json::to_value(tribunal_http::router::openapi()).unwrap();
    tribunal_api::examples::add(&mut newest)
        .unwrap_or_else(|missing| panic!("{missing:#?} have no example: add one to the field in openapi/src"));
    let older = tribunal_api::downgrade::to_3_0(&newest).unwrap();
    (newest, older)
}

#[test]
fn the_checked_in_documents_are_those_of_the_routes() {
    let (newest, older) = documents();
    check("openapi.json", tribunal_api::OPENAPI_3_1, &newest);
    check("openapi-3.0.json", tribunal_api::OPENAPI_3_0, &older);
}

/// The keys that the routes require are tested on running servers (`surface.rs`, and the node's
/// `access.rs`).
#[test]
fn every_operation_declares_whether_it_requires_a_key() {
    let (newest, older) = documents();
    for document in [newest, older] {
        let scheme = &document["components"]["securitySchemes"]["bearer"];
        assert_eq!((&scheme["type"], &scheme["scheme"]), (&"http".into(), &"bearer".into()));
        let open: Vec<&str> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, item)| item.as_object().unwrap().values().map(move |operation| (path, operation)))
            .filter(|(path, operation)| {
                let asked = operation["security"].as_array().unwrap_or_else(|| panic!("{path} says nothing"));
                assert!(asked.is_empty() || asked[0]["bearer"].is_array(), "{path}: {asked:?}");
                asked.is_empty()
            })
            .map(|(path, _)| path.as_str())
            .collect();
        assert_eq!(open, ["/healthz", "/readyz", "/version"], "everything else asks");
    }
}

/// Conventions that every client generator accepts.
#[test]
fn every_operation_follows_the_conventions() {
    let (newest, _) = documents();
    let text = newest.to_string();
    for word in ["oneOf", "anyOf", "\"null\"", "int64"] {
        assert!(!text.contains(word), "{word}");
    }
    let mut ids = Vec::new();
    for (path, item) in newest["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            ids.push(operation["operationId"].as_str().unwrap().to_owned());
            for (status, response) in operation["responses"].as_object().unwrap() {
                let place = format!("{method} {path} {status}");
                assert!(!response["description"].as_str().unwrap().is_empty(), "{place}");
                if (status.starts_with('4') || status.starts_with('5') || status == "default") && path != "/readyz" {
                    let content = &response["content"]["application/problem+json"]["schema"]["$ref"];
                    assert_eq!(content, "#/components/schemas/Problem", "{place}");
                }
            }
        }
    }
    for id in ["begin", "txnCommit", "txnAbort", "txnStatus", "batchCommit", "logPull", "putStore", "getRow"] {
        assert!(ids.iter().any(|known| known == id), "{id}");
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count, "operationIds are unique");
}
