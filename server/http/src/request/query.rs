//! Parameters of the path and of the query: percent-decoding to bytes, and all errors together.

use std::borrow::Cow;
use std::str;

use percent_encoding::percent_decode_str;
use tribunal_types::limits::{KEY_BYTES_MAX, WAIT_MS_MAX};
use tribunal_types::{LogId, StoreId, TxnId};

use crate::request::json::{CANONICAL, decimal};
use crate::request::txn_body::{no_such_store, shown, txn_id};
use crate::response::field_error::{Code, FieldError, FieldErrors};
use crate::response::problem::ProblemResponse;
use tribunal_service::{Catalog, Session};

/// A query string that is being parsed.
pub struct Query<'a> {
    pairs: Vec<(&'a str, Cow<'a, [u8]>)>,
    errors: FieldErrors,
}

impl<'a> Query<'a> {
    /// Splits a query string whose parameters must be among `names`.
    #[must_use]
    pub fn new(query: Option<&'a str>, names: &[&str]) -> Self {
        let mut read = Query { pairs: Vec::new(), errors: FieldErrors::default() };
        for pair in query.unwrap_or("").split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let pointer = format!("?{}", shown(name));
            if !names.contains(&name) {
                let detail = match names {
                    [] => "unknown parameter; this route has none, leave it out".to_owned(),
                    names => format!("unknown parameter; known ones are {}", names.join(", ")),
                };
                read.errors.add(Code::UnknownParameter, pointer, detail);
            } else if read.pairs.iter().any(|(known, _)| *known == name) {
                read.errors.add(Code::BadParameter, pointer, "occurs twice");
            } else {
                if let Some(detail) = escape_error(value) {
                    read.errors.add(Code::BadParameter, pointer, detail);
                }
                read.pairs.push((name, decoded(value)));
            }
        }
        read
    }

    /// Returns a parameter of the path that was parsed before; if that failed, records the error and returns the
    /// default.
    pub fn noted<T: Default>(&mut self, read: Result<T, FieldError>) -> T {
        read.unwrap_or_else(|FieldError { code, pointer, detail }| {
            self.errors.add(code, pointer, detail);
            T::default()
        })
    }

    /// Records an error in a header.
    pub fn header_error(&mut self, code: Code, name: &str, detail: impl Into<String>) {
        self.errors.add(code, format_args!("{name}:"), detail);
    }

    /// Records an error in a query parameter.
    pub fn error(&mut self, code: Code, name: &str, detail: impl Into<String>) {
        self.errors.add(code, format_args!("?{name}"), detail);
    }

    /// Returns a parameter's bytes.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_ref())
    }

    /// Returns a parameter's text.
    pub fn text(&mut self, name: &str) -> Option<String> {
        match str::from_utf8(self.bytes(name)?) {
            Ok(text) => Some(text.to_owned()),
            Err(_) => {
                self.error(Code::InvalidUtf8, name, "is not UTF-8");
                None
            }
        }
    }

    /// Returns a number; `default` if absent.
    pub fn number(&mut self, name: &str, default: u64, max: u64) -> u64 {
        let Some(text) = self.text(name) else { return default };
        match decimal(&text).filter(|number| *number <= max) {
            Some(number) => number,
            None => {
                self.error(Code::BadNumber, name, format!("must be a decimal number up to {max}, {CANONICAL}"));
                default
            }
        }
    }

    /// Returns the id of a log; `None` if absent.
    pub fn log(&mut self) -> Option<LogId> {
        let text = self.text("log")?;
        let id = text.parse().ok();
        if id.is_none() {
            self.error(Code::BadParameter, "log", "must be the id of a log from a response: 32 hexadecimal digits");
        }
        id
    }

    /// Returns the maximum number of items in a page, at least one; `default` if absent.
    pub fn limit(&mut self, default: usize, max: usize) -> usize {
        let number = self.number("limit", default as u64, max as u64);
        if number == 0 {
            self.error(Code::BadNumber, "limit", format!("must be a decimal number from 1 to {max}, {CANONICAL}"));
        }
        usize::try_from(number).unwrap_or(max)
    }

    /// Returns how long to wait, milliseconds.
    pub fn wait_ms(&mut self) -> u64 {
        self.number("wait_ms", 0, WAIT_MS_MAX)
    }

    /// Returns a boolean; false if absent.
    pub fn flag(&mut self, name: &str) -> bool {
        match self.bytes(name) {
            None | Some(b"false") => false,
            Some(b"true") => true,
            Some(_) => {
                self.error(Code::BadParameter, name, "must be true or false");
                false
            }
        }
    }

    /// Returns a key; empty if absent.
    pub fn key(&mut self, name: &str) -> Vec<u8> {
        let key = self.bytes(name).unwrap_or_default().to_vec();
        if key.len() > KEY_BYTES_MAX {
            self.error(Code::KeyTooLong, name, format!("{} bytes, {KEY_BYTES_MAX} is the limit", key.len()));
        }
        key
    }

    /// Returns the required store.
    pub fn store(&mut self, catalog: &Catalog, namespace: tribunal_types::NamespaceId) -> StoreId {
        let Some(name) = self.text("store") else {
            if self.bytes("store").is_none() {
                self.error(Code::MissingField, "store", "the name of the store is required");
            }
            return StoreId::default();
        };
        match catalog.store(namespace, &name) {
            Some(spec) => spec.id,
            None => {
                self.error(Code::UnknownStore, "store", no_such_store(&name));
                StoreId::default()
            }
        }
    }

    /// Finishes the parsing.
    ///
    /// # Errors
    /// If there were any errors.
    pub fn finish(self) -> Result<(), ProblemResponse> {
        if self.errors.is_empty() { Ok(()) } else { Err(ProblemResponse::of_errors(&self.errors)) }
    }
}

/// Returns the error in the percent escapes of a text, if there is one.
#[must_use]
pub fn escape_error(text: &str) -> Option<String> {
    let is_wrong =
        |rest: &str| !matches!(rest.as_bytes(), [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit());
    let rest = text.split('%').skip(1).find(|rest| is_wrong(rest))?;
    let shown: String = rest.chars().take(2).collect();
    Some(format!(
        "\"%{shown}\" is not a percent escape: `%` is followed by two hexadecimal digits; write `%` itself as `%25`"
    ))
}

fn decoded(text: &str) -> Cow<'_, [u8]> {
    if text.contains('+') {
        return Cow::Owned(percent_decode_str(&text.replace('+', " ")).collect());
    }
    percent_decode_str(text).into()
}

/// Returns the decoded segment `index` of a path.
#[must_use]
pub fn segment(path: &str, index: usize) -> Cow<'_, [u8]> {
    percent_decode_str(path.split('/').nth(index + 1).unwrap_or("")).into()
}

/// Returns the decoded rest of a path from segment `index` on: a key may contain slashes.
#[must_use]
pub fn segments_from(path: &str, index: usize) -> Cow<'_, [u8]> {
    percent_decode_str(path.splitn(index + 2, '/').nth(index + 1).unwrap_or("")).into()
}

/// Returns the transaction id in `/v1/txns/{txn_id}`.
///
/// # Errors
/// 400 if it is not a UUIDv7.
pub fn path_txn_id(path: &str) -> Result<TxnId, FieldError> {
    let text = String::from_utf8_lossy(&segment(path, 2)).into_owned();
    txn_id(&text).ok_or_else(|| {
        let detail = format!("\"{}\" is not a UUIDv7; begin a transaction to get an id, or generate one", shown(&text));
        FieldError::in_path(Code::BadTxnId, "txn_id", detail)
    })
}

/// Returns the name in `/v1/stores/{store}`.
///
/// # Errors
/// 400 if it is not UTF-8.
pub fn path_store_name(path: &str) -> Result<String, FieldError> {
    String::from_utf8(segment(path, 2).into_owned())
        .map_err(|_| FieldError::in_path(Code::InvalidUtf8, "store", "is not UTF-8"))
}

/// Returns the existing store in `/v1/stores/{store}`.
///
/// # Errors
/// 404 if there is no store of this name.
pub fn path_store(
    path: &str,
    catalog: &Catalog,
    namespace: tribunal_types::NamespaceId,
) -> Result<std::sync::Arc<tribunal_types::StoreSpec>, FieldError> {
    let name = path_store_name(path)?;
    catalog
        .store(namespace, &name)
        .cloned()
        .ok_or_else(|| FieldError::in_path(Code::UnknownStore, "store", no_such_store(&name)))
}

/// Parses a session token.
#[must_use]
pub fn session(token: &str) -> Option<Session> {
    let epoch = tribunal_types::Epoch(decimal(token.strip_prefix("v1-")?)?);
    (epoch <= tribunal_types::Epoch::MAX).then_some(Session(epoch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_may_be_any_bytes() {
        assert_eq!(segment("/v1/stores/kv/rows/a%2Fb%FF+", 4).as_ref(), b"a/b\xff+");
        let mut query = Query::new(Some("start=a%20%00&end=b+c"), &["start", "end"]);
        assert_eq!((query.key("start"), query.key("end")), (b"a \0".to_vec(), b"b c".to_vec()));
        assert!(query.finish().is_ok());
    }

    #[test]
    fn an_id_in_a_path_is_decoded_as_well() {
        let plain = path_txn_id("/v1/txns/01902b7e-0000-7000-8000-000000000001/abort").expect("an id");
        assert_eq!(path_txn_id("/v1/txns/01902b7e%2D0000-7000-8000-000000000001").ok(), Some(plain));
        let refused = path_txn_id("/v1/txns/a%2Fb%C3%A9%FF").expect_err("no id");
        assert!(format!("{refused:?}").contains("a/bé\u{fffd}"), "{refused:?}");
    }

    #[test]
    fn every_error_of_a_query_is_reported() {
        let mut query = Query::new(Some("limit=-1&fence=maybe&nonsense=1&limit=2"), &["limit", "fence"]);
        query.number("limit", 10, 100);
        query.flag("fence");
        let problem = query.finish().unwrap_err().body;
        let pointers: Vec<_> = problem.errors.iter().map(|error| error.pointer.as_str()).collect();
        assert_eq!(pointers, ["?nonsense", "?limit", "?limit", "?fence"]);
    }

    #[test]
    fn a_truth_value_is_written_out() {
        for (given, expected) in [
            ("", Some(false)),
            ("fence=true", Some(true)),
            ("fence=false", Some(false)),
            ("fence", None),
            ("fence=", None),
            ("fence=1", None),
            ("fence=0", None),
        ] {
            let mut query = Query::new(Some(given), &["fence"]);
            let flag = query.flag("fence");
            assert_eq!(query.finish().ok().map(|()| flag), expected, "{given}");
        }
    }

    #[test]
    fn an_escape_has_two_digits() {
        for text in ["", "a", "%00", "a%2Fb%fF", "%25", "%25zz"] {
            assert_eq!(escape_error(text), None, "{text}");
        }
        for (text, shown) in
            [("%", "\"%\""), ("a%2", "\"%2\""), ("%zz", "\"%zz\""), ("%20%%20", "\"%\""), ("%1ü", "\"%1ü\"")]
        {
            let detail = escape_error(text).unwrap_or_default();
            assert!(detail.starts_with(shown), "{text}: {detail}");
        }
    }

    #[test]
    fn a_page_has_at_least_one_item() {
        for (given, expected) in [("limit=1", Some(1)), ("", Some(10)), ("limit=0", None), ("limit=101", None)] {
            let mut query = Query::new(Some(given), &["limit"]);
            let limit = query.limit(10, 100);
            assert_eq!(query.finish().ok().map(|()| limit), expected, "{given}");
        }
    }

    #[test]
    fn foreign_session_tokens_are_rejected() {
        assert_eq!(session("v1-17").map(|s| s.0.0), Some(17));
        for bad in ["", "17", "v1-", "v1-x", "v1-9223372036854775808"] {
            assert_eq!(session(bad), None, "{bad}");
        }
    }
}
