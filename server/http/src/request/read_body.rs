//! Parses the parts of a request that read embedded stores: `read`, a list of rows, and `ranges`.

use std::sync::Arc;

use serde::de::{IgnoredAny, MapAccess, SeqAccess};
use tribunal_service::{Catalog, Freshness, ReadQuery, RowQuery, RowsQuery};
use tribunal_types::limits::{OPS_PER_TXN_MAX, RANGES_PER_TXN_MAX};
use tribunal_types::{NamespaceId, StoreId, StoreSpec, Version};

use crate::request::freshness::{FreshnessField, default_freshness, freshness_field};
use crate::request::json::{ArraySeed, CANONICAL, Fields, Items, ObjectSeed, decimal, document, scalar};
use crate::request::op_fields::{OpFields, OpSeed, Text, put_key};
use crate::request::txn_body::no_such_store;
use crate::response::field_error::{Code, FieldErrors, Path};
use crate::response::problem::ProblemResponse;

/// Default limit of a range.
pub const LIMIT_DEFAULT: usize = 100;
/// Maximum limit of a range.
pub const LIMIT_MAX: usize = 10_000;

const ROW_FIELDS: &[&str] = &["store", "key", "version", "key_b64"];
const RANGE_FIELDS: &[&str] = &["store", "start", "end", "start_b64", "end_b64", "limit"];

/// A query that is being parsed.
pub struct ReadDraft<'c> {
    /// All stores.
    pub catalog: &'c Catalog,
    /// Namespace of the caller.
    pub namespace: NamespaceId,
    /// The query so far. Items that name no store are of the one in the path.
    pub query: ReadQuery,
}

/// Parses a body that consists of the two lists and the freshness that the rows require.
///
/// # Errors
/// All errors, with their JSON pointers.
pub fn read_query(text: &str, draft: ReadDraft<'_>) -> Result<(ReadQuery, Freshness), ProblemResponse> {
    let mut body = Body { draft, freshness: default_freshness(), errors: FieldErrors::default() };
    document(text, ObjectSeed { fields: &mut body, at: Path::Root })
        .map_err(|error| ProblemResponse::of_syntax(&error))?;
    if body.draft.query.is_empty() && body.errors.is_empty() {
        body.errors.add(Code::MissingField, "/read", "name at least one row in `read` or one range in `ranges`");
    }
    if body.errors.is_empty() {
        Ok((body.draft.query, body.freshness))
    } else {
        Err(ProblemResponse::of_errors(&body.errors))
    }
}

struct Body<'c> {
    draft: ReadDraft<'c>,
    freshness: Freshness,
    errors: FieldErrors,
}

impl<'de> Fields<'de> for Body<'_> {
    fn names(&self) -> &'static [&'static str] {
        &["read", "ranges", "session", "wait_ms", "consistency"]
    }

    fn field<A: MapAccess<'de>>(&mut self, index: usize, at: Path<'_>, map: &mut A) -> Result<(), A::Error> {
        let list = match index {
            0 => ReadList::Rows,
            1 => ReadList::Ranges,
            other => {
                let Some(found) = scalar(map)?.given() else { return Ok(()) };
                let field = [FreshnessField::Session, FreshnessField::WaitMs, FreshnessField::Consistency][other - 2];
                freshness_field(field, found, at, &mut self.errors, &mut self.freshness);
                return Ok(());
            }
        };
        let mut items = ReadItems { draft: &mut self.draft, list, errors: &mut self.errors };
        map.next_value_seed(ArraySeed { items: &mut items, at })?;
        Ok(())
    }

    fn errors(&mut self) -> &mut FieldErrors {
        &mut self.errors
    }
}

/// A list of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadList {
    /// `read`.
    Rows,
    /// `ranges`.
    Ranges,
}

/// A list that is being parsed.
pub struct ReadItems<'a, 'c> {
    /// The query.
    pub draft: &'a mut ReadDraft<'c>,
    /// Which of the two lists.
    pub list: ReadList,
    /// Errors so far.
    pub errors: &'a mut FieldErrors,
}

impl ReadItems<'_, '_> {
    fn store(&mut self, name: Text<'_>, at: Path<'_>) -> Option<StoreId> {
        let at = at.field("store");
        let name = match (name, self.draft.query.path_store) {
            (Text::Absent, Some(store)) => return Some(store),
            (Text::Absent, None) => {
                self.errors.add(Code::MissingField, at, "the name of the store is required");
                return None;
            }
            (Text::Faulty, _) => return None,
            (Text::Given(name), _) => name,
        };
        let Some(spec): Option<&Arc<StoreSpec>> = self.draft.catalog.store(self.draft.namespace, &name) else {
            self.errors.add(Code::UnknownStore, at, no_such_store(&name));
            return None;
        };
        if self.draft.query.path_store.is_some_and(|of| of != spec.id) {
            self.errors.add(Code::UnknownStore, at, "differs from the store in the path; omit it");
            return None;
        }
        Some(spec.id)
    }

    fn key(&mut self, texts: (Text<'_>, Text<'_>), names: (&str, &str), at: Path<'_>) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        put_key(&mut key, texts, names, at, self.errors).map(|_| key)
    }

    fn add_row(&mut self, mut fields: OpFields<'_>, at: Path<'_>) {
        let store = self.store(fields.take(0), at);
        let name = if fields.has(3) { "key_b64" } else { "key" };
        let key = self.key((fields.take(1), fields.take(3)), ("key", "key_b64"), at);
        if key.as_ref().is_some_and(Vec::is_empty) {
            self.errors.add(Code::EmptyKey, at.field(name), "a key must have at least one byte");
        }
        let known = match fields.take(2) {
            Text::Given(text) => {
                let version = decimal(&text).and_then(Version::from_bits);
                if version.is_none() {
                    let detail =
                        format!("must be a version from a response: a positive decimal number below 2^63, {CANONICAL}");
                    self.errors.add(Code::BadNumber, at.field("version"), detail);
                }
                version
            }
            Text::Absent | Text::Faulty => None,
        };
        if let (Some(store), Some(key)) = (store, key) {
            self.draft.query.rows.push(RowQuery { store, key, known });
        }
    }

    fn add_range(&mut self, mut fields: OpFields<'_>, at: Path<'_>) {
        let store = self.store(fields.take(0), at);
        let end_name = if fields.has(4) { "end_b64" } else { "end" };
        let mut bound = |items: &mut Self, plain: usize, b64: usize, names| {
            let texts = (fields.take(plain), fields.take(b64));
            if matches!(texts, (Text::Absent, Text::Absent)) {
                return Some(Vec::new());
            }
            items.key(texts, names, at)
        };
        let start = bound(self, 1, 3, ("start", "start_b64"));
        let end = bound(self, 2, 4, ("end", "end_b64"));
        let limit = fields.take_count(LIMIT_MAX as u32, at.field("limit"), self.errors);
        let limit = limit.map_or(LIMIT_DEFAULT, |limit| limit as usize);
        let (Some(store), Some(start), Some(end)) = (store, start, end) else { return };
        if !end.is_empty() && start >= end {
            self.errors.add(Code::EmptyRange, at.field(end_name), "must be after start");
        }
        self.draft.query.ranges.push(RowsQuery { store, start, end, limit });
    }
}

impl<'de> Items<'de> for ReadItems<'_, '_> {
    fn item<A: SeqAccess<'de>>(&mut self, at: Path<'_>, index: usize, seq: &mut A) -> Result<bool, A::Error> {
        let (names, max) = match self.list {
            ReadList::Rows => (ROW_FIELDS, OPS_PER_TXN_MAX),
            ReadList::Ranges => (RANGE_FIELDS, RANGES_PER_TXN_MAX),
        };
        if index >= max {
            if seq.next_element::<IgnoredAny>()?.is_none() {
                return Ok(false);
            }
            if index == max {
                let what = if self.list == ReadList::Rows { "rows" } else { "ranges" };
                self.errors.add(Code::TooMany, at, format!("{max} {what} is the limit"));
            }
            return Ok(true);
        }
        let Some(fields) = seq.next_element_seed(OpSeed { names, at, errors: self.errors })? else {
            return Ok(false);
        };
        if let Some(fields) = fields {
            match self.list {
                ReadList::Rows => self.add_row(fields, at),
                ReadList::Ranges => self.add_range(fields, at),
            }
        }
        Ok(true)
    }

    fn errors(&mut self) -> &mut FieldErrors {
        self.errors
    }
}
