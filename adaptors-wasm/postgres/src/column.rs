//! Column types, and the conversion of JSON values to their text. A value that does not fit is refused with the reason;
//! nothing is rounded, truncated or guessed.

use std::borrow::Cow;

use serde::Deserialize;

use crate::array::Array;

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Type {
    Text,
    Boolean,
    Smallint,
    Integer,
    Bigint,
    Numeric,
    #[serde(rename = "double precision")]
    Double,
    Timestamptz,
    Date,
    Uuid,
    Jsonb,
}

impl Type {
    /// Returns its SQL name.
    pub(crate) fn sql(self) -> &'static str {
        match self {
            Type::Text => "text",
            Type::Boolean => "boolean",
            Type::Smallint => "smallint",
            Type::Integer => "integer",
            Type::Bigint => "bigint",
            Type::Numeric => "numeric",
            Type::Double => "double precision",
            Type::Timestamptz => "timestamptz",
            Type::Date => "date",
            Type::Uuid => "uuid",
            Type::Jsonb => "jsonb",
        }
    }

    /// Returns whether it can hold the integers that `add` counts with.
    pub(crate) fn takes_add(self) -> bool {
        matches!(self, Type::Jsonb) || self.bounds().is_some()
    }

    /// Returns whether it may be part of a key: its values are equal only if their texts are.
    pub(crate) fn is_key(self) -> bool {
        matches!(self, Type::Text) || self.bounds().is_some()
    }

    fn bounds(self) -> Option<(i64, i64)> {
        match self {
            Type::Smallint => Some((i16::MIN.into(), i16::MAX.into())),
            Type::Integer => Some((i32::MIN.into(), i32::MAX.into())),
            Type::Bigint => Some((i64::MIN, i64::MAX)),
            _ => None,
        }
    }

    /// Adds one part of a row's key.
    pub(crate) fn key_part(self, part: &str, into: &mut Array) -> Result<(), String> {
        let Some((min, max)) = self.bounds() else {
            if part.contains('\0') {
                return Err(NUL.to_owned());
            }
            into.quoted(part);
            return Ok(());
        };
        // Accept only the canonical form of a number: `7` and `07` are two keys, and must not become one row.
        match part.parse::<i64>() {
            Ok(number) if (min..=max).contains(&number) && number.to_string() == part => {
                into.plain(part);
                Ok(())
            }
            _ => Err(format!("`{}` is no {} in plain decimal digits", shown(part), self.sql())),
        }
    }

    /// Adds a JSON value, given as its text.
    pub(crate) fn value(self, json: &str, into: &mut Array) -> Result<(), String> {
        let first = json.as_bytes().first().copied().unwrap_or_default();
        let is_number = first == b'-' || first.is_ascii_digit();
        match self {
            Type::Jsonb if escapes_nul(json) => return Err(NUL.to_owned()),
            Type::Jsonb => into.quoted(json),
            Type::Boolean if matches!(json, "true" | "false") => into.plain(json),
            Type::Numeric | Type::Double if is_number => into.plain(json),
            Type::Text | Type::Timestamptz | Type::Date | Type::Uuid if first == b'"' => {
                let text = string(json)?;
                if text.contains('\0') {
                    return Err(NUL.to_owned());
                }
                if matches!(self, Type::Timestamptz | Type::Date)
                    && let Some(word) = clock_word(&text)
                {
                    return Err(format!("`{word}` is another {} whenever it is written", self.sql()));
                }
                into.quoted(&text);
            }
            _ => match self.bounds() {
                Some((min, max)) if is_number => match json.parse::<i64>() {
                    Ok(number) if (min..=max).contains(&number) => into.plain(json),
                    _ => return Err(format!("{} is no integer from {min} to {max}", shown(json))),
                },
                _ => return Err(format!("{} where the column takes {}", kind(first), self.sql())),
            },
        }
        Ok(())
    }
}

/// Words that PostgreSQL replaces with its current time, anywhere in a date: a record pushed again would write another
/// value.
const CLOCK_WORDS: [&str; 4] = ["now", "today", "tomorrow", "yesterday"];

/// Returns the word of a date whose meaning depends on when it is read.
fn clock_word(text: &str) -> Option<&str> {
    let mut words = text.split(|c: char| !c.is_ascii_alphabetic());
    words.find(|word| CLOCK_WORDS.iter().any(|clock| word.eq_ignore_ascii_case(clock)))
}

/// Reason for refusing a value with U+0000.
const NUL: &str = "it contains the character U+0000, which PostgreSQL stores in no text and no jsonb";

/// Returns whether a JSON text contains the escape of U+0000; JSON does not allow the character itself.
fn escapes_nul(json: &str) -> bool {
    let mut rest = json.as_bytes();
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        if rest[at + 1..].starts_with(b"u0000") {
            return true;
        }
        // The escaped character, which may be another backslash, begins no escape.
        rest = rest.get(at + 2..).unwrap_or_default();
    }
    false
}

/// Reads a JSON string.
pub(crate) fn string(json: &str) -> Result<Cow<'_, str>, String> {
    match json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(inner) if !inner.contains('\\') => Ok(Cow::Borrowed(inner)),
        _ => serde_json::from_str::<String>(json).map(Cow::Owned).map_err(|error| error.to_string()),
    }
}

/// Returns the name of a JSON value's kind by its first byte.
pub(crate) fn kind(first: u8) -> &'static str {
    match first {
        b'"' => "a string",
        b'{' => "an object",
        b'[' => "an array",
        b't' | b'f' => "a boolean",
        b'n' => "null",
        _ => "a number",
    }
}

/// Truncates a value for display.
pub(crate) fn shown(text: &str) -> &str {
    &text[..text.floor_char_boundary(80)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(kind: Type, json: &str) -> Result<String, String> {
        let mut array = Array::default();
        kind.value(json, &mut array)?;
        let text = String::from_utf8(array.finish()).expect("text");
        Ok(text.trim_start_matches('{').trim_end_matches('}').to_owned())
    }

    #[test]
    fn values_that_fit_are_kept_as_they_are() {
        assert_eq!(value(Type::Bigint, "-9223372036854775808").as_deref(), Ok("-9223372036854775808"));
        assert_eq!(value(Type::Numeric, "12.300").as_deref(), Ok("12.300"));
        assert_eq!(value(Type::Text, r#""\u00e4\n\"""#).as_deref(), Ok("\"ä\n\\\"\""));
        assert_eq!(value(Type::Boolean, "false").as_deref(), Ok("false"));
        for date in ["infinity", "-infinity", "epoch", "0044-03-15 BC", "March 15, 44 BC", "2026-01-02T03:04:05Z"] {
            assert_eq!(value(Type::Timestamptz, &format!("\"{date}\"")), Ok(format!("\"{date}\"")));
        }
        assert_eq!(value(Type::Text, "\"now\"").as_deref(), Ok("\"now\""));
        assert!(value(Type::Jsonb, r#"["\\u0000"]"#).is_ok(), "a backslash and five characters");
        assert_eq!(value(Type::Jsonb, r#"["a"]"#).as_deref(), Ok(r#""[\"a\"]""#));
    }

    #[test]
    fn values_that_do_not_fit_are_refused_with_the_reason() {
        for (kind, json, reason) in [
            (Type::Bigint, "9223372036854775808", "is no integer from"),
            (Type::Bigint, "1.0", "is no integer from"),
            (Type::Smallint, "40000", "from -32768 to 32767"),
            (Type::Bigint, "\"1\"", "a string where the column takes bigint"),
            (Type::Text, "1", "a number where the column takes text"),
            (Type::Text, "null", "null where the column takes text"),
            (Type::Boolean, "0", "a number where the column takes boolean"),
            (Type::Numeric, "{}", "an object where the column takes numeric"),
            (Type::Uuid, "[]", "an array where the column takes uuid"),
            (Type::Timestamptz, "\"now\"", "`now` is another timestamptz whenever it is written"),
            (Type::Timestamptz, "\"10:00 ToDay\"", "`ToDay` is another timestamptz"),
            (Type::Timestamptz, "\"now+1\"", "`now` is another"),
            (Type::Date, "\" yesterday \"", "`yesterday` is another date"),
            (Type::Date, "\"\\u0074omorrow\"", "`tomorrow` is another date"),
            (Type::Text, r#""a\u0000""#, "U+0000"),
            (Type::Jsonb, r#"{"a":"\\\u0000"}"#, "U+0000"),
        ] {
            let said = value(kind, json).expect_err(json);
            assert!(said.contains(reason), "{json}: {said}");
        }
    }

    #[test]
    fn two_keys_never_become_one_row() {
        let part = |text: &str| Type::Integer.key_part(text, &mut Array::default());
        assert!(Type::Text.key_part("a\0", &mut Array::default()).is_err());
        assert_eq!((part("7"), part("-7"), part("0")), (Ok(()), Ok(()), Ok(())));
        for other in ["07", "+7", "-0", " 7", "7 ", "", "2147483648", "x"] {
            assert!(part(other).is_err(), "{other:?}");
        }
    }
}
