//! The errors of a request: code, JSON pointer, and text for people.
//!
//! Collecting never fails and is bounded: after a hundred errors, further ones are only counted.

use std::fmt;

/// Errors listed in one response. Further ones are counted, not listed.
const LISTED_MAX: usize = 100;

/// The kind of an error, for programs. Each code has one HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Not JSON.
    MalformedJson,
    /// Not UTF-8.
    InvalidUtf8,
    /// A JSON type other than the field's.
    WrongType,
    /// A field that does not exist in this object.
    UnknownField,
    /// A field that occurs twice.
    DuplicateField,
    /// A required field that is absent.
    MissingField,
    /// Two fields that exclude each other.
    ExclusiveFields,
    /// An operation that does not exist.
    UnknownOp,
    /// A word that is not one of the choices.
    UnknownValue,
    /// Not a decimal number of the required form.
    BadNumber,
    /// Not base64.
    BadBase64,
    /// Not a UUIDv7.
    BadTxnId,
    /// A token that this service never issued.
    BadSession,
    /// A parameter of the query or the path that cannot be parsed.
    BadParameter,
    /// A query parameter that does not exist on this route.
    UnknownParameter,
    /// A name that is not valid for a store.
    BadName,
    /// Not a valid URL of a receiver.
    BadUrl,
    /// A secret that is too short or too long.
    BadSecret,
    /// A role that a key of its namespace cannot use.
    RoleWithoutEffect,
    /// Snapshots are required here.
    SnapshotRequired,
    /// Nested too deeply.
    TooDeep,
    /// No such store in the namespace.
    UnknownStore,
    /// Too many operations, ranges, stores or transactions.
    TooMany,
    /// A key above its limit.
    KeyTooLong,
    /// A value above its limit.
    ValueTooLarge,
    /// An empty key.
    EmptyKey,
    /// A row that occurs twice.
    DuplicateRow,
    /// A value that must be an integer.
    NotAnInteger,
    /// A value that other programs cannot parse.
    NotInteroperable,
    /// The store takes no `add`.
    AddUnsupported,
    /// The store's adaptor does not take writes of this kind.
    WriteNotSupported,
    /// An empty range.
    EmptyRange,
    /// A store that `snapshots` does not contain.
    StoreNotNamed,
    /// A row of a multi-version store, read at a version later than its snapshot.
    ReadAfterSnapshot,
}

impl Code {
    /// Returns the code's name and status.
    #[must_use]
    pub const fn parts(self) -> (&'static str, u16) {
        match self {
            Code::MalformedJson => ("malformed_json", 400),
            Code::InvalidUtf8 => ("invalid_utf8", 400),
            Code::WrongType => ("wrong_type", 400),
            Code::UnknownField => ("unknown_field", 400),
            Code::DuplicateField => ("duplicate_field", 400),
            Code::MissingField => ("missing_field", 400),
            Code::ExclusiveFields => ("exclusive_fields", 400),
            Code::UnknownOp => ("unknown_op", 400),
            Code::UnknownValue => ("unknown_value", 400),
            Code::BadNumber => ("bad_number", 400),
            Code::BadBase64 => ("bad_base64", 400),
            Code::BadTxnId => ("bad_txn_id", 400),
            Code::BadSession => ("bad_session", 400),
            Code::BadParameter => ("bad_parameter", 400),
            Code::UnknownParameter => ("unknown_parameter", 400),
            Code::BadName => ("bad_name", 400),
            Code::BadUrl => ("bad_url", 400),
            Code::BadSecret => ("bad_secret", 400),
            Code::RoleWithoutEffect => ("role_without_effect", 422),
            Code::SnapshotRequired => ("snapshot_required", 400),
            Code::TooDeep => ("too_deep", 400),
            Code::UnknownStore => ("unknown_store", 404),
            Code::TooMany => ("too_many", 413),
            Code::KeyTooLong => ("key_too_long", 413),
            Code::ValueTooLarge => ("value_too_large", 413),
            Code::EmptyKey => ("empty_key", 422),
            Code::DuplicateRow => ("duplicate_row", 422),
            Code::NotAnInteger => ("not_an_integer", 422),
            Code::NotInteroperable => ("not_interoperable", 400),
            Code::AddUnsupported => ("add_unsupported", 422),
            Code::WriteNotSupported => ("write_not_supported", 422),
            Code::EmptyRange => ("empty_range", 422),
            Code::StoreNotNamed => ("store_not_named", 422),
            Code::ReadAfterSnapshot => ("read_after_snapshot", 422),
        }
    }
}

/// A position in a document. Lives on the stack of the parser and is formatted only for an error.
#[derive(Clone, Copy, Debug)]
pub enum Path<'a> {
    /// The whole document.
    Root,
    /// A field of an object.
    Field(&'a Path<'a>, &'a str),
    /// An item of an array.
    Item(&'a Path<'a>, usize),
}

impl Path<'_> {
    /// Returns the position of a field of the object at this position.
    #[must_use]
    pub fn field<'b>(&'b self, name: &'b str) -> Path<'b> {
        Path::Field(self, name)
    }

    /// Returns the position of an item of the array at this position.
    #[must_use]
    pub fn item(&self, index: usize) -> Path<'_> {
        Path::Item(self, index)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(parent, name) => {
                write!(f, "{parent}/")?;
                if name.contains(['~', '/']) {
                    f.write_str(&name.replace('~', "~0").replace('/', "~1"))
                } else {
                    f.write_str(name)
                }
            }
            Path::Item(parent, index) => write!(f, "{parent}/{index}"),
        }
    }
}

/// One error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Kind of the error.
    pub code: Code,
    /// Position: a JSON pointer into the body; `?name` in the query, `{name}` in the path, `name:` in the headers.
    pub pointer: String,
    /// For people.
    pub detail: String,
}

impl FieldError {
    /// Builds an error about a parameter of the path.
    #[must_use]
    pub fn in_path(code: Code, name: &str, detail: impl Into<String>) -> FieldError {
        FieldError { code, pointer: format!("{{{name}}}"), detail: detail.into() }
    }
}

/// The errors of one document.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldErrors {
    list: Vec<FieldError>,
    unlisted: usize,
}

impl FieldErrors {
    /// Adds an error.
    pub fn add(&mut self, code: Code, pointer: impl fmt::Display, detail: impl Into<String>) {
        if self.list.len() < LISTED_MAX {
            self.list.push(FieldError { code, pointer: pointer.to_string(), detail: detail.into() });
        } else {
            self.unlisted += 1;
        }
    }

    /// Returns whether there are no errors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns the listed errors, in the order in which they were found.
    #[must_use]
    pub fn list(&self) -> &[FieldError] {
        &self.list
    }

    /// Returns the number of errors found.
    #[must_use]
    pub fn count(&self) -> usize {
        self.list.len() + self.unlisted
    }
}

/// A syntax error and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// For people.
    pub detail: String,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1; 0 at the end of an empty line.
    pub column: usize,
}

impl SyntaxError {
    /// Moves the error to line `number` of a larger body, of which the document was one line.
    #[must_use]
    pub fn on_line(mut self, number: u64) -> Self {
        if let Some(words) = self.detail.strip_suffix(&place(self.line, self.column)) {
            self.detail = format!("{words} at line {number} column {}", self.column);
        }
        self.line = usize::try_from(number).unwrap_or(usize::MAX);
        self
    }
}

fn place(line: usize, column: usize) -> String {
    format!(" at line {line} column {column}")
}

impl From<serde_json::Error> for SyntaxError {
    fn from(error: serde_json::Error) -> Self {
        let (mut detail, line, column) = (error.to_string(), error.line(), error.column());
        if ["unexpected end of hex escape", "lone leading surrogate"].iter().any(|words| detail.starts_with(words)) {
            detail = format!(
                "binary keys belong in `key_b64`, binary values in `value_b64`: this string contains half of a surrogate \
                 pair, which is not a character,{}",
                place(line, column)
            );
        }
        SyntaxError { detail, line, column }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_escape_what_rfc_6901_escapes() {
        let writes = Path::Root.field("wri~tes/x");
        let item = writes.item(3);
        assert_eq!(item.field("key").to_string(), "/wri~0tes~1x/3/key");
        assert_eq!(Path::Root.to_string(), "");
    }

    #[test]
    fn an_error_in_a_line_names_the_line_of_the_body() {
        let error = serde_json::from_str::<serde_json::Value>("{\"a\":").unwrap_err();
        let error = SyntaxError::from(error).on_line(7);
        assert_eq!((error.line, error.column), (7, 5));
        assert!(error.detail.ends_with(" at line 7 column 5"), "{}", error.detail);
    }

    #[test]
    fn half_of_a_surrogate_pair_is_named() {
        for text in [r#""\ud800""#, r#""\udc00""#, r#""\ud800\u0041""#, r#""\ud800\n""#] {
            let error = SyntaxError::from(serde_json::from_str::<String>(text).unwrap_err());
            assert!(error.detail.contains("half of a surrogate pair"), "{text}: {}", error.detail);
        }
        let error = SyntaxError::from(serde_json::from_str::<String>(r#""\u00g0""#).unwrap_err());
        assert!(!error.detail.contains("surrogate"), "{}", error.detail);
    }

    #[test]
    fn the_list_is_bounded_and_the_count_is_not() {
        let mut errors = FieldErrors::default();
        for index in 0..250 {
            errors.add(Code::EmptyKey, Path::Root.item(index), "");
        }
        assert_eq!((errors.list().len(), errors.count()), (LISTED_MAX, 250));
    }
}
