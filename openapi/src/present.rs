//! Values that may be JSON's `null`: present, and not the same as an absent member.

use serde::{Deserialize, Deserializer};

/// Reads a member that is present, `null` included, which `serde` reads as absent. Use it with `default`.
///
/// # Errors
/// If the member is no `T`.
pub fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(member: D) -> Result<Option<T>, D::Error> {
    T::deserialize(member).map(Some)
}

#[cfg(test)]
mod tests {
    use crate::{LogWrite, ReadRow, StateLine, Write};

    #[test]
    fn a_null_is_a_value_and_survives_a_round_trip() {
        fn value<T: serde::de::DeserializeOwned + serde::Serialize>(text: &str) -> Option<String> {
            let read: T = serde_json::from_str(text).expect("the wire type");
            let written: serde_json::Value = serde_json::to_value(&read).expect("JSON");
            written.get("value").map(ToString::to_string)
        }
        for (json, expected) in [(r#","value":null"#, Some("null")), (r#","value":1"#, Some("1")), ("", None)] {
            let expected = expected.map(str::to_owned);
            let op = format!(r#"{{"store":"kv","key":"a","op":"put"{json}}}"#);
            assert_eq!(value::<Write>(&op), expected, "a commit's write");
            assert_eq!(value::<LogWrite>(&op), expected, "a record's write");
            assert_eq!(value::<ReadRow>(&format!(r#"{{"store":"kv","key":"a"{json}}}"#)), expected, "a read row");
            assert_eq!(value::<StateLine>(&format!(r#"{{"key":"a"{json}}}"#)), expected, "a state's row");
            assert_eq!(value::<crate::Row>(&format!(r#"{{"key":"a","version":"1"{json}}}"#)), expected, "a row");
        }
    }
}
