//! Bodies of requests without fields: absent, or an empty object. A field that was ignored might have mattered.

use axum::body::Body;
use axum::http::request::Parts;
use serde::de::{IgnoredAny, MapAccess};
use tribunal_types::limits::BODY_BYTES_MAX;

use crate::app::App;
use crate::request::body::{MediaType, media_type, utf8};
use crate::request::json::{Fields, ObjectSeed, document};
use crate::response::field_error::{FieldErrors, Path};
use crate::response::problem::ProblemResponse;

/// Collects the body of a request that takes no fields.
///
/// # Errors
/// As for [`App::whole`]; 415 if a body is present and is not JSON, 400 if it is anything but an empty object.
pub async fn no_fields(app: &App, parts: &Parts, body: Body) -> Result<(), ProblemResponse> {
    let bytes = app.whole(parts, body, BODY_BYTES_MAX).await?;
    if bytes.is_empty() {
        return Ok(());
    }
    media_type(&parts.headers, &[MediaType::Json])?;
    let mut none = NoFields::default();
    document(utf8(&bytes)?, ObjectSeed { fields: &mut none, at: Path::Root })
        .map_err(|malformed| ProblemResponse::of_syntax(&malformed))?;
    if none.errors.is_empty() { Ok(()) } else { Err(ProblemResponse::of_errors(&none.errors)) }
}

#[derive(Default)]
struct NoFields {
    errors: FieldErrors,
}

impl<'de> Fields<'de> for NoFields {
    fn names(&self) -> &'static [&'static str] {
        &[]
    }

    fn field<A: MapAccess<'de>>(&mut self, _: usize, _: Path<'_>, map: &mut A) -> Result<(), A::Error> {
        map.next_value::<IgnoredAny>().map(drop)
    }

    fn errors(&mut self) -> &mut FieldErrors {
        &mut self.errors
    }
}
