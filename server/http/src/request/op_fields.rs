//! The fields of one operation of a body: a read, a range or a write. Texts remain borrowed from the body.

use std::borrow::Cow;

use base64::Engine as _;
use serde::de::{DeserializeSeed, Deserializer, MapAccess};
use serde_json::value::RawValue;
use tribunal_types::Span;
use tribunal_types::limits::KEY_BYTES_MAX;

use crate::binary::{BASE64, not_base64};
use crate::request::json::{Fields, ObjectSeed, scalar};
use crate::request::plain_json::ValueText;
use crate::response::field_error::{Code, FieldErrors, Path};

/// Maximum number of text fields of an operation.
const FIELDS_MAX: usize = 5;
/// Index of the field that may be any JSON, after the text fields of an operation.
pub const VALUE: usize = 5;
/// Index of the field with an add's start value for a missing row.
pub const OR: usize = 6;

/// A text field of an operation.
#[derive(Debug, Default)]
pub enum Text<'de> {
    /// Not present.
    #[default]
    Absent,
    /// Present.
    Given(Cow<'de, str>),
    /// Not a string; the error is recorded.
    Faulty,
}

/// The fields of one operation, in the order of its names.
pub struct OpFields<'de> {
    texts: [Text<'de>; FIELDS_MAX],
    /// The raw field [`VALUE`].
    pub value: Option<ValueText<'de>>,
    /// The raw field [`OR`].
    pub or: Option<ValueText<'de>>,
}

impl<'de> OpFields<'de> {
    /// Returns the fields of an operation that has none.
    #[must_use]
    pub fn none() -> OpFields<'de> {
        OpFields { texts: [const { Text::Absent }; FIELDS_MAX], value: None, or: None }
    }

    /// Sets a text field.
    pub fn set(&mut self, index: usize, text: &'de str) {
        self.texts[index] = Text::Given(Cow::Borrowed(text));
    }

    /// Returns the fields of an operation that is not an object; the error is recorded.
    #[must_use]
    pub fn faulty() -> OpFields<'de> {
        OpFields { texts: [const { Text::Faulty }; FIELDS_MAX], value: None, or: None }
    }

    /// Takes the field [`VALUE`] as an integer from 1 to `max`; records an error if it is anything else.
    pub fn take_count(&mut self, max: u32, at: Path<'_>, errors: &mut FieldErrors) -> Option<u32> {
        let text = self.value.take()?.json;
        // Generated clients serialise an absent field as null.
        if text == "null" {
            return None;
        }
        let count = text.parse().ok().filter(|count| (1..=max).contains(count));
        if count.is_none() {
            errors.add(Code::BadNumber, at, format!("must be an integer between 1 and {max}"));
        }
        count
    }

    /// Returns whether a text field is present.
    #[must_use]
    pub fn has(&self, index: usize) -> bool {
        !matches!(self.texts[index], Text::Absent)
    }

    /// Takes a field.
    pub fn take(&mut self, index: usize) -> Text<'de> {
        std::mem::take(&mut self.texts[index])
    }
}

struct Op<'de, 'f> {
    names: &'static [&'static str],
    fields: OpFields<'de>,
    errors: &'f mut FieldErrors,
}

impl<'de> Fields<'de> for Op<'de, '_> {
    fn names(&self) -> &'static [&'static str] {
        self.names
    }

    fn field<A: MapAccess<'de>>(&mut self, index: usize, at: Path<'_>, map: &mut A) -> Result<(), A::Error> {
        if index == VALUE {
            self.fields.value = Some(map.next_value::<&RawValue>()?.into());
        } else if index == OR {
            self.fields.or = Some(map.next_value::<&RawValue>()?.into());
        } else {
            self.fields.texts[index] = match scalar(map)?.given() {
                Some(found) => found.text(at, self.errors).map_or(Text::Faulty, Text::Given),
                None => Text::Absent,
            };
        }
        Ok(())
    }

    fn errors(&mut self) -> &mut FieldErrors {
        self.errors
    }
}

/// Parses one operation; `None` if it is not an object.
pub struct OpSeed<'a> {
    /// Names of its fields.
    pub names: &'static [&'static str],
    /// Its position.
    pub at: Path<'a>,
    /// List for errors.
    pub errors: &'a mut FieldErrors,
}

impl<'de> DeserializeSeed<'de> for OpSeed<'_> {
    type Value = Option<OpFields<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let mut op = Op { names: self.names, fields: OpFields::none(), errors: self.errors };
        let seen = ObjectSeed { fields: &mut op, at: self.at }.deserialize(deserializer)?;
        Ok(seen.map(|_| op.fields))
    }
}

/// Appends a key to `into`. It was posted in one of two forms: plain, or in base64.
pub fn put_key(
    into: &mut Vec<u8>,
    (plain, b64): (Text<'_>, Text<'_>),
    names: (&str, &str),
    at: Path<'_>,
    errors: &mut FieldErrors,
) -> Option<Span> {
    let name = if matches!(b64, Text::Absent) { names.0 } else { names.1 };
    let span = match (plain, b64) {
        (Text::Absent, Text::Absent) => {
            errors.add(Code::MissingField, at.field(names.0), format!("is required; or send {}", names.1));
            return None;
        }
        (Text::Absent, Text::Given(coded)) => {
            let start = into.len();
            if let Err(error) = BASE64.decode_vec(coded.as_bytes(), into) {
                into.truncate(start);
                errors.add(Code::BadBase64, at.field(names.1), not_base64(error));
                return None;
            }
            let length = into.len() - start;
            Span { at: u32::try_from(start).ok()?, len: u32::try_from(length).ok()? }
        }
        (Text::Given(key), Text::Absent) => Span::push(into, key.as_bytes()),
        (Text::Faulty, _) | (_, Text::Faulty) => return None,
        (Text::Given(_), Text::Given(_)) => {
            let detail = format!("send either {} or {}, not both", names.0, names.1);
            errors.add(Code::ExclusiveFields, at.field(names.1), detail);
            return None;
        }
    };
    if span.len as usize > KEY_BYTES_MAX {
        let detail = format!("{} bytes, {KEY_BYTES_MAX} is the limit", span.len);
        errors.add(Code::KeyTooLong, at.field(name), detail);
        return None;
    }
    Some(span)
}
