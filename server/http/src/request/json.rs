//! JSON parsing that finds every error, not just the first: objects, arrays and scalars of the wrong type are recorded
//! and skipped. Only a syntax error stops the parser.
//!
//! Borrows from the document wherever JSON allows it, and itself allocates nothing.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use tribunal_types::limits::JSON_DEPTH_MAX;

use crate::response::field_error::{Code, FieldErrors, Path, SyntaxError};

/// The fields that an object may have, and the handling of each.
pub trait Fields<'de> {
    /// Returns the names, at most 32.
    fn names(&self) -> &'static [&'static str];

    /// Parses the value of the field `names()[index]`, exactly once.
    ///
    /// # Errors
    /// Syntax errors only.
    fn field<A: MapAccess<'de>>(&mut self, index: usize, at: Path<'_>, map: &mut A) -> Result<(), A::Error>;

    /// Returns the list for errors.
    fn errors(&mut self) -> &mut FieldErrors;
}

/// Parses an object into `fields`. Returns one bit per field present, or `None` if it is not an object.
pub struct ObjectSeed<'a, F> {
    /// Its fields.
    pub fields: &'a mut F,
    /// Its position.
    pub at: Path<'a>,
}

/// The items of an array.
pub trait Items<'de> {
    /// Parses one item; returns `false` if there are no more.
    ///
    /// # Errors
    /// Syntax errors only.
    fn item<A: SeqAccess<'de>>(&mut self, at: Path<'_>, index: usize, seq: &mut A) -> Result<bool, A::Error>;

    /// Returns the list for errors.
    fn errors(&mut self) -> &mut FieldErrors;
}

/// Parses an array into `items`. Returns the number of items, or `None` if it is not an array.
pub struct ArraySeed<'a, I> {
    /// Its items.
    pub items: &'a mut I,
    /// Its position.
    pub at: Path<'a>,
}

/// The entries of an object whose names are data.
pub trait Entries<'de> {
    /// Parses the value of one entry, exactly once.
    ///
    /// # Errors
    /// Syntax errors only.
    fn entry<A: MapAccess<'de>>(&mut self, name: &str, at: Path<'_>, map: &mut A) -> Result<(), A::Error>;

    /// Returns the list for errors.
    fn errors(&mut self) -> &mut FieldErrors;
}

/// Parses an object into `entries`.
pub struct EntriesSeed<'a, E> {
    /// Its entries.
    pub entries: &'a mut E,
    /// Its position.
    pub at: Path<'a>,
}

/// A scalar value, or the kind of another value in its place.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar<'de> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// An integer that fits into `i64`.
    Int(i64),
    /// Any other number.
    Number,
    /// A string.
    Text(Cow<'de, str>),
    /// An array, skipped.
    Array,
    /// An object, skipped.
    Object,
}

/// Parses a [`Scalar`].
pub struct ScalarSeed;

/// Parses the name of a field.
pub struct NameSeed;

impl<'de> Scalar<'de> {
    /// Returns the value of an optional field: `null` equals an absent field, because many generated clients write one
    /// for the other.
    #[must_use]
    pub fn given(self) -> Option<Self> {
        (self != Scalar::Null).then_some(self)
    }

    /// Returns the JSON type, for display.
    #[must_use]
    pub fn type_name(&self) -> &'static str {
        match self {
            Scalar::Null => "null",
            Scalar::Bool(_) => "a boolean",
            Scalar::Int(_) | Scalar::Number => "a number",
            Scalar::Text(_) => "a string",
            Scalar::Array => "an array",
            Scalar::Object => "an object",
        }
    }

    /// Returns the string, or records an error if it is not one.
    pub fn text(self, at: Path<'_>, errors: &mut FieldErrors) -> Option<Cow<'de, str>> {
        match self {
            Scalar::Text(text) => Some(text),
            other => wrong_type(errors, at, "a string", other.type_name()),
        }
    }

    /// Returns the boolean, or records an error if it is not one.
    pub fn boolean(self, at: Path<'_>, errors: &mut FieldErrors) -> Option<bool> {
        match self {
            Scalar::Bool(value) => Some(value),
            other => wrong_type(errors, at, "a boolean", other.type_name()),
        }
    }

    /// Returns the integer if it is within `bounds`, or records an error if it is not.
    pub fn small(self, bounds: RangeInclusive<u32>, at: Path<'_>, errors: &mut FieldErrors) -> Option<u32> {
        let (min, max) = (bounds.start(), bounds.end());
        match self {
            Scalar::Int(value) => {
                let fitting = u32::try_from(value).ok().filter(|value| bounds.contains(value));
                if fitting.is_none() {
                    errors.add(Code::BadNumber, at, format!("must be between {min} and {max}"));
                }
                fitting
            }
            Scalar::Number => {
                errors.add(Code::BadNumber, at, format!("must be an integer between {min} and {max}"));
                None
            }
            other => wrong_type(errors, at, "a number", other.type_name()),
        }
    }
}

fn wrong_type<T>(errors: &mut FieldErrors, at: Path<'_>, expected: &str, found: &str) -> Option<T> {
    // Only a field can be omitted: neither an item of an array nor the document can.
    let hint = if found == "null" && matches!(at, Path::Field(..)) { "; leave the field out instead" } else { "" };
    errors.add(Code::WrongType, at, format!("must be {expected}, is {found}{hint}"));
    None
}

/// Parses the next value of `map` as a scalar.
///
/// # Errors
/// Syntax errors.
pub fn scalar<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Scalar<'de>, A::Error> {
    map.next_value_seed(ScalarSeed)
}

/// The form that [`decimal`] requires, for display.
pub const CANONICAL: &str = "without sign or leading zeros";

/// Parses a decimal number without sign, leading zeros or blanks: the wire form of 64-bit numbers.
#[must_use]
pub fn decimal(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    if bytes.is_empty() || bytes.len() > 20 || (bytes[0] == b'0' && bytes.len() > 1) {
        return None;
    }
    bytes.iter().try_fold(0_u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

/// Returns whether JSON text is an integer within `i64`.
#[must_use]
pub fn is_integer(json: &str) -> bool {
    let digits = json.strip_prefix('-').unwrap_or(json);
    !digits.is_empty()
        && digits.len() <= 19
        && digits.bytes().all(|b| b.is_ascii_digit())
        && json.parse::<i64>().is_ok()
}

/// Returns whether valid JSON text that is nested `outer` levels deep stays within the depth limit.
#[must_use]
pub fn depth_within_limit(json: &str, outer: usize) -> bool {
    let room = JSON_DEPTH_MAX.saturating_sub(outer);
    // Each level takes an opening and a closing bracket.
    if json.len() <= 2 * room {
        return true;
    }
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for byte in json.bytes() {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b'[' | b'{' => {
                depth += 1;
                if depth > room {
                    return false;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    true
}

/// Returns the reason why other programs could not carry valid JSON text, if there is one: a string that is not
/// Unicode, or a number beyond a double (RFC 7493, I-JSON, sections 2.1 and 2.2).
#[must_use]
pub fn not_interoperable(json: &str) -> Option<&'static str> {
    /// Digits from which a number may be too large without an exponent.
    const DIGITS_MIN: usize = 309;
    let bytes = json.as_bytes();
    let escapes = bytes.iter().fold(false, |found, byte| found | (*byte == b'\\'));
    let exponents = bytes
        .iter()
        .zip(bytes.iter().skip(1))
        .fold(false, |found, (digit, next)| found | (digit.is_ascii_digit() & (*next | 0x20 == b'e')));
    if !escapes && !exponents && bytes.len() < DIGITS_MIN {
        return None;
    }
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => match string_length(&bytes[at..]) {
                Some(length) => at += length,
                None => return Some("contains half of a surrogate pair, which is not a character"),
            },
            b'-' | b'0'..=b'9' => {
                let digits =
                    bytes[at..].iter().take_while(|b| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'));
                let end = at + digits.count();
                if !json[at..end].parse::<f64>().is_ok_and(f64::is_finite) {
                    return Some("contains a number beyond 1.8e308; write it as a string");
                }
                at = end;
            }
            _ => at += 1,
        }
    }
    None
}

/// Returns the length of the string at the start of `json`, or `None` if one of its escapes is not a character.
fn string_length(json: &[u8]) -> Option<usize> {
    let unit = |at: usize| {
        let digits = json.get(at..at + 6).filter(|text| text.starts_with(b"\\u"))?;
        u32::from_str_radix(str::from_utf8(&digits[2..]).ok()?, 16).ok()
    };
    let mut at = 1;
    loop {
        match json.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => match unit(at) {
                Some(0xD800..=0xDBFF) if matches!(unit(at + 6), Some(0xDC00..=0xDFFF)) => at += 12,
                Some(0xD800..=0xDFFF) => return None,
                Some(_) => at += 6,
                None => at += 2,
            },
            _ => at += 1,
        }
    }
}

/// Parses one document with `seed`, to its end.
///
/// # Errors
/// Invalid syntax, or data after the document.
pub fn document<'de, S: DeserializeSeed<'de>>(text: &'de str, seed: S) -> Result<S::Value, SyntaxError> {
    if text.is_empty() {
        let detail = "the body is empty; send a JSON document, at least `{}`".to_owned();
        return Err(SyntaxError { detail, line: 1, column: 1 });
    }
    if text.starts_with('\u{feff}') {
        let detail = "the document begins with a byte order mark (U+FEFF); send it without".to_owned();
        return Err(SyntaxError { detail, line: 1, column: 1 });
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = seed.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

impl<'de> DeserializeSeed<'de> for ScalarSeed {
    type Value = Scalar<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Scalar<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ScalarSeed {
    type Value = Scalar<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Scalar<'de>, E> {
        Ok(i64::try_from(value).map_or(Scalar::Number, Scalar::Int))
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Number)
    }

    fn visit_unit<E: Error>(self) -> Result<Scalar<'de>, E> {
        Ok(Scalar::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Scalar<'de>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Scalar::Array)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Scalar<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Scalar::Object)
    }
}

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for NameSeed {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

impl<'de, F: Fields<'de>> DeserializeSeed<'de> for ObjectSeed<'_, F> {
    type Value = Option<u32>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<u32>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Handles every value other than the expected compound: records an error and skips it.
macro_rules! scalars_are_wrong {
    ($holder:ident, $expected:literal) => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str($expected)
        }

        fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
            Ok(wrong_type(self.$holder.errors(), self.at, $expected, "a string"))
        }

        fn visit_bool<E: Error>(self, _: bool) -> Result<Self::Value, E> {
            Ok(wrong_type(self.$holder.errors(), self.at, $expected, "a boolean"))
        }

        fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
            Ok(wrong_type(self.$holder.errors(), self.at, $expected, "a number"))
        }

        fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
            Ok(wrong_type(self.$holder.errors(), self.at, $expected, "a number"))
        }

        fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
            Ok(wrong_type(self.$holder.errors(), self.at, $expected, "a number"))
        }

        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(wrong_type(self.$holder.errors(), self.at, $expected, "null"))
        }
    };
}

impl<'de, F: Fields<'de>> Visitor<'de> for ObjectSeed<'_, F> {
    type Value = Option<u32>;

    scalars_are_wrong!(fields, "an object");

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(wrong_type(self.fields.errors(), self.at, "an object", "an array"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let names = self.fields.names();
        let mut seen = 0_u32;
        while let Some(name) = map.next_key_seed(NameSeed)? {
            let at = self.at.field(&name);
            let Some(index) = names.iter().position(|known| *known == name) else {
                let detail = match names {
                    [] => "unknown field; this object has none".to_owned(),
                    _ => format!("unknown field; known ones are {}", names.join(", ")),
                };
                self.fields.errors().add(Code::UnknownField, at, detail);
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if seen & 1 << index != 0 {
                self.fields.errors().add(Code::DuplicateField, at, "occurs twice");
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            seen |= 1 << index;
            self.fields.field(index, at, &mut map)?;
        }
        Ok(Some(seen))
    }
}

impl<'de, N: Entries<'de>> DeserializeSeed<'de> for EntriesSeed<'_, N> {
    type Value = Option<()>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<()>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, N: Entries<'de>> Visitor<'de> for EntriesSeed<'_, N> {
    type Value = Option<()>;

    scalars_are_wrong!(entries, "an object");

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(wrong_type(self.entries.errors(), self.at, "an object", "an array"))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while let Some(name) = map.next_key_seed(NameSeed)? {
            self.entries.entry(&name, self.at.field(&name), &mut map)?;
        }
        Ok(Some(()))
    }
}

impl<'de, I: Items<'de>> DeserializeSeed<'de> for ArraySeed<'_, I> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, I: Items<'de>> Visitor<'de> for ArraySeed<'_, I> {
    type Value = Option<usize>;

    scalars_are_wrong!(items, "an array");

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(wrong_type(self.items.errors(), self.at, "an array", "an object"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut count = 0;
        while self.items.item(self.at.item(count), count, &mut seq)? {
            count += 1;
        }
        Ok(Some(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_canonical() {
        for (text, number) in [("0", Some(0)), ("18446744073709551615", Some(u64::MAX)), ("7", Some(7))] {
            assert_eq!(decimal(text), number, "{text}");
        }
        for text in ["", "-1", "+1", " 1", "1 ", "01", "1e3", "18446744073709551616", "99999999999999999999999", "٣"] {
            assert_eq!(decimal(text), None, "{text}");
        }
    }

    #[test]
    fn integers_are_json_integers_within_i64() {
        for (text, integer) in [
            ("0", true),
            ("-9223372036854775808", true),
            ("9223372036854775808", false),
            ("1.0", false),
            ("1e3", false),
            ("\"1\"", false),
            ("-", false),
        ] {
            assert_eq!(is_integer(text), integer, "{text}");
        }
    }

    #[test]
    fn depth_counts_brackets_outside_of_strings() {
        let nested = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
        assert!(depth_within_limit(&nested(61), 3));
        assert!(!depth_within_limit(&nested(62), 3));
        assert!(depth_within_limit(&format!("\"\\\"{}\"", "[".repeat(500)), 3));
        assert!(depth_within_limit(&format!("[{}1]", "[],".repeat(500)), 3));
    }
}
