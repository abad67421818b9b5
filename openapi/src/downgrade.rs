//! Derives the OpenAPI 3.0.3 document from the 3.1 one, for client generators that know no 3.1.
//!
//! Only what this API uses is translated; [`to_3_0`] refuses the rest, so that nothing is lost in silence. Where 3.0's
//! generators stumble over what 3.0 allows, it says less, but nothing else.

use serde_json::{Map, Value};

/// Something that OpenAPI 3.0 cannot say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotExpressible {
    /// JSON pointer into the 3.1 document.
    pub pointer: String,
    /// What it is.
    pub what: String,
}

impl std::fmt::Display for NotExpressible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {} has no counterpart in OpenAPI 3.0", self.what, self.pointer)
    }
}

impl std::error::Error for NotExpressible {}

/// Translates a 3.1 document.
///
/// # Errors
/// If it uses what 3.0 cannot say: type lists, `null`, `const`, `oneOf`, `$defs` and the like.
pub fn to_3_0(document: &Value) -> Result<Value, NotExpressible> {
    let mut downgraded = document.clone();
    downgraded["openapi"] = Value::from("3.0.3");
    if let Some(license) = downgraded.pointer_mut("/info/license").and_then(Value::as_object_mut) {
        // 3.0 knows no SPDX identifiers, only addresses.
        if let Some(Value::String(identifier)) = license.remove("identifier") {
            license.insert("url".into(), Value::from(format!("https://spdx.org/licenses/{identifier}.html")));
        }
    }
    check(&downgraded, &mut String::new())?;
    simplify(&mut downgraded);
    narrow(&mut downgraded);
    Ok(downgraded)
}

const NEW_IN_3_1: [&str; 9] =
    ["const", "$defs", "prefixItems", "if", "then", "oneOf", "unevaluatedProperties", "patternProperties", "webhooks"];

fn check(value: &Value, pointer: &mut String) -> Result<(), NotExpressible> {
    let found = |pointer: &str, what: &str| Err(NotExpressible { pointer: pointer.into(), what: what.into() });
    match value {
        Value::Object(map) => {
            if map.get("type").is_some_and(|t| t.is_array() || t == "null") {
                return found(pointer, "a list of types");
            }
            // The names of properties are no keywords.
            let keywords: &[&str] = if pointer.ends_with("/properties") { &[] } else { &NEW_IN_3_1 };
            if let Some(key) = keywords.iter().find(|key| map.contains_key(**key)) {
                return found(pointer, key);
            }
            // Neither is anything in an example.
            for (key, inner) in map.iter().filter(|(key, _)| *key != "example") {
                let length = pointer.len();
                pointer.push('/');
                pointer.push_str(&key.replace('~', "~0").replace('/', "~1"));
                check(inner, pointer)?;
                pointer.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                let length = pointer.len();
                pointer.push_str(&format!("/{index}"));
                check(inner, pointer)?;
                pointer.truncate(length);
            }
        }
        _ => {}
    }
    Ok(())
}

/// Puts a description beside a `$ref` into an `allOf`: 3.0 ignores siblings of a reference. Names of maps are strings
/// anyway, so 3.1's word for that goes.
fn simplify(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if map.get("propertyNames").is_some_and(|names| *names == serde_json::json!({"type": "string"})) {
                map.remove("propertyNames");
            }
            if map.len() > 1
                && let Some(reference) = map.remove("$ref")
            {
                let mut inner = Map::new();
                inner.insert("$ref".into(), reference);
                map.insert("allOf".into(), Value::Array(vec![Value::Object(inner)]));
            }
            map.values_mut().for_each(simplify);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify),
        _ => {}
    }
}

const NDJSON: &str = "application/x-ndjson";
const WASM: &str = "application/wasm";

/// Leaves out what generators of clients stumble over. A body that may be NDJSON, or a component by its own name, or something else is something else;
/// `default`, which means problems only, is said as `4XX` and `5XX`, lest it be taken for a success.
fn narrow(document: &mut Value) {
    let paths = document.get_mut("paths").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut);
    for operation in paths.filter_map(Value::as_object_mut).flat_map(Map::values_mut) {
        if let Some(content) = operation.pointer_mut("/requestBody/content").and_then(Value::as_object_mut)
            && content.len() > 1
        {
            content.remove(NDJSON);
            content.remove(WASM);
        }
        if let Some(responses) = operation.pointer_mut("/responses").and_then(Value::as_object_mut)
            && let Some(problem) = responses.remove("default")
        {
            responses.insert("4XX".into(), problem.clone());
            responses.insert("5XX".into(), problem);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn constructs_unknown_to_3_0_are_rejected() {
        let error = to_3_0(&json!({"openapi": "3.1.0", "x": {"a/b": {"type": ["string", "null"]}}})).unwrap_err();
        assert_eq!((error.pointer.as_str(), error.what.as_str()), ("/x/a~1b", "a list of types"));
    }

    #[test]
    fn properties_may_be_named_like_keywords() {
        let schema = |schema| json!({"openapi": "3.1.0", "components": {"schemas": {"Info": schema}}});
        let named = schema(json!({"properties": {"webhooks": {"type": "array"}}, "example": {"webhooks": []}}));
        assert!(to_3_0(&named).is_ok());
        assert_eq!(to_3_0(&schema(json!({"webhooks": {}}))).unwrap_err().what, "webhooks");
    }

    #[test]
    fn constructs_that_generators_mishandle_are_simplified() {
        let operation = json!({
            "requestBody": {"content": {"application/json": {}, "application/x-ndjson": {}}},
            "responses": {"200": {}, "default": {"description": "a problem"}}
        });
        let downgraded = to_3_0(&json!({"openapi": "3.1.0", "paths": {"/x": {"post": operation}}})).unwrap();
        let expected = json!({
            "requestBody": {"content": {"application/json": {}}},
            "responses": {"200": {}, "4XX": {"description": "a problem"}, "5XX": {"description": "a problem"}}
        });
        assert_eq!(downgraded["paths"]["/x"]["post"], expected);
    }

    #[test]
    fn descriptions_next_to_references_are_kept() {
        let downgraded = to_3_0(&json!({"openapi": "3.1.0", "p": {"$ref": "#/x", "description": "why"}})).unwrap();
        assert_eq!(downgraded, json!({"openapi": "3.0.3", "p": {"allOf": [{"$ref": "#/x"}], "description": "why"}}));
    }
}
