//! Splits a JSON object into its fields and leaves their values as text.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// Fields of an object, in its order.
pub(crate) struct Fields<'a>(pub Vec<(Cow<'a, str>, &'a str)>);

#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    fields.push((name, value.get()));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// Reads an object.
pub(crate) fn fields(json: &str) -> Result<Fields<'_>, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_text() {
        let Fields(fields) = fields(r#" {"a": 1.50, "b\n": {"c": [ ]}} "#).expect("an object");
        let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_ref(), *value)).collect();
        assert_eq!(fields, [("a", "1.50"), ("b\n", r#"{"c": [ ]}"#)]);
        assert!(super::fields("[1]").is_err());
    }
}
