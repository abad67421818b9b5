//! Parses the freshness that the snapshots of a Begin, or the rows of a read, require: `session`, `wait_ms` and
//! `consistency`.

use tribunal_service::Freshness;
use tribunal_types::limits::WAIT_MS_MAX;

use crate::request::json::Scalar;
use crate::request::query::{Query, session};
use crate::request::txn_body::shown;
use crate::response::field_error::{Code, FieldErrors, Path};

/// Default wait of a request for the commits that it must include, milliseconds.
const WAIT_MS_DEFAULT: u64 = 5_000;

/// A field of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreshnessField {
    /// `session`.
    Session,
    /// `wait_ms`.
    WaitMs,
    /// `consistency`.
    Consistency,
}

/// Returns the freshness of a request without any of the fields.
#[must_use]
pub fn default_freshness() -> Freshness {
    Freshness { wait_ms: WAIT_MS_DEFAULT, ..Freshness::default() }
}

/// Error text for a malformed session token.
const NO_SESSION: &str = "must be a session token exactly as a response returned it";

/// Parses the freshness from query parameters, which have the same names.
#[must_use]
pub fn freshness_of_query(query: &mut Query<'_>) -> Freshness {
    let mut freshness = default_freshness();
    if let Some(token) = query.text("session") {
        freshness.session = session(&token);
        if freshness.session.is_none() {
            query.error(Code::BadSession, "session", NO_SESSION);
        }
    }
    freshness.wait_ms = query.number("wait_ms", WAIT_MS_DEFAULT, WAIT_MS_MAX);
    match query.text("consistency").as_deref() {
        None | Some("session") => {}
        Some("fresh") => freshness.fresh = true,
        Some(other) => {
            let detail = format!("\"{}\" is not `session` or `fresh`", shown(other));
            query.error(Code::UnknownValue, "consistency", detail);
        }
    }
    freshness
}

/// Parses the value of a field.
pub fn freshness_field(
    field: FreshnessField,
    found: Scalar<'_>,
    at: Path<'_>,
    errors: &mut FieldErrors,
    freshness: &mut Freshness,
) {
    match field {
        FreshnessField::Session => {
            if let Some(token) = found.text(at, errors) {
                freshness.session = session(&token);
                if freshness.session.is_none() {
                    errors.add(Code::BadSession, at, NO_SESSION);
                }
            }
        }
        FreshnessField::WaitMs => {
            let max = u32::try_from(WAIT_MS_MAX).unwrap_or(u32::MAX);
            freshness.wait_ms = found.small(0..=max, at, errors).map_or(0, u64::from);
        }
        FreshnessField::Consistency => match found.text(at, errors).as_deref() {
            None => {}
            Some("session") => freshness.fresh = false,
            Some("fresh") => freshness.fresh = true,
            Some(other) => {
                let detail = format!("\"{}\" is not `session` or `fresh`", shown(other));
                errors.add(Code::UnknownValue, at, detail);
            }
        },
    }
}
