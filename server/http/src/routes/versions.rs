//! `POST /v1/stores/{store}/versions`: bulk import of the versions of existing rows. Imports all lines or none.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine as _;
use serde::de::MapAccess;
use tribunal_api::{ImportResult, Problem};
use tribunal_types::limits::KEY_BYTES_MAX;
use tribunal_types::{ImportedVersion, StoreSpec, Version};

use crate::app::App;
use crate::binary::{BASE64, not_base64};
use crate::request::body::{MediaType, utf8};
use crate::request::caller::tenant;
use crate::request::json::{CANONICAL, Fields, ObjectSeed, decimal, document, scalar};
use crate::response::content::wire_response;
use crate::response::field_error::{Code, FieldErrors, Path};
use crate::response::problem::ProblemResponse;
use crate::response::service_problem::refuse;
use tribunal_service::{Catalog, ServiceError};

/// Imports versions of existing rows, one `ImportLine` a line: all or none. Known rows are never overwritten, and a row
/// may occur at most once in a request. The JSON pointer of an error begins with the number of the line, from 0. Embedded
/// stores are refused, because they have no rows but those of their log, and so are stores with `existence` `declared`, whose
/// engines tell which rows exist.
#[utoipa::path(
    post, path = "/v1/stores/{store}/versions", operation_id = "importVersions", tag = "stores",
    params(("store" = String, Path, description = "Name of the store")),
    request_body(content(
        (String = "application/x-ndjson"),
        (inline(tribunal_api::ImportLines) = "application/octet-stream"),
    ), description = "One `ImportLine` a line"),
    responses(
        (status = 200, description = "All of them are imported, durably", body = ImportResult),
        (status = 400, description = "Malformed line", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No such store", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The store is embedded (`store_embedded`) or declared (`store_declared`), or a version is of an epoch that is not complete (`version_from_the_future`), or two lines have the same row (`duplicate_row`)", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "The tenant would have more rows than it may (`rows_exceeded`)", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed; nothing was imported", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn import_versions(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let namespace = tenant(&parts);
    let (spec, catalog) = app.known_store(&parts).await?;
    let (_, bytes) = app.body(&parts, body, &[MediaType::NdJson, MediaType::Bytes]).await?;
    let (versions, lines) = read(utf8(&bytes)?, &spec, &catalog)?;
    let accepted = if versions.is_empty() {
        0
    } else {
        let imported = app.service.stores.import(namespace, versions).await;
        imported.map_err(|error| on_its_line(error, &lines)).map_err(refuse(&catalog))?
    };
    Ok(wire_response(StatusCode::OK, &ImportResult { accepted: accepted.to_string() }))
}

/// Replaces the place of a version among all of them in an error's pointer by the number of its line: empty lines have none.
fn on_its_line(error: ServiceError, lines: &[usize]) -> ServiceError {
    let ServiceError::ClientMistake { code, pointer, detail } = error else { return error };
    let line = |pointer: &str| {
        let (place, field) = pointer.strip_prefix('/')?.split_once('/')?;
        Some(format!("/{}/{field}", lines.get(place.parse::<usize>().ok()?)?))
    };
    ServiceError::ClientMistake { pointer: line(&pointer).unwrap_or(pointer), code, detail }
}

/// Returns the versions, each with the number of its line, from 0.
fn read(
    text: &str,
    spec: &StoreSpec,
    catalog: &Catalog,
) -> Result<(Vec<ImportedVersion>, Vec<usize>), ProblemResponse> {
    let mut versions = Vec::with_capacity(text.len() / 64);
    let mut lines = Vec::with_capacity(text.len() / 64);
    let mut errors = FieldErrors::default();
    for (number, text) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let at = Path::Root.item(number);
        let mut line = Line { key: None, version: None, integer: false, errors: &mut errors };
        let seen = match document(text, ObjectSeed { fields: &mut line, at }) {
            Ok(Some(seen)) => seen,
            Ok(None) => continue,
            Err(malformed) => return Err(ProblemResponse::of_syntax(&malformed.on_line(number as u64 + 1))),
        };
        let Line { key, version, integer, .. } = line;
        match seen & 0b11 {
            0 => errors.add(Code::MissingField, at.field("key"), "either key or key_b64 is required"),
            0b11 => errors.add(Code::ExclusiveFields, at.field("key_b64"), "key excludes key_b64"),
            _ => {}
        }
        if seen & 0b100 == 0 {
            errors.add(Code::MissingField, at.field("version"), "is required: the row's version");
        }
        if let (Some(key), Some(version)) = (key, version) {
            let row = catalog.row(spec.namespace, spec.id, &key);
            versions.push(ImportedVersion { row, store: spec.id, version, integer });
            lines.push(number);
        }
    }
    refuse_duplicates(&versions, &lines, &mut errors);
    if errors.is_empty() { Ok((versions, lines)) } else { Err(ProblemResponse::of_errors(&errors)) }
}

/// Adds an error for each line with the row of an earlier one: which of the two versions is right cannot be told. `lines` are
/// the numbers of the lines, from 0.
fn refuse_duplicates(versions: &[ImportedVersion], lines: &[usize], errors: &mut FieldErrors) {
    let mut order: Vec<usize> = (0..versions.len()).collect();
    order.sort_unstable_by_key(|at| (versions[*at].row, *at));
    let same = order.windows(2).filter(|pair| versions[pair[0]].row == versions[pair[1]].row);
    let mut twice: Vec<(usize, usize)> = same.map(|pair| (lines[pair[1]], lines[pair[0]])).collect();
    twice.sort_unstable();
    for (line, before) in twice {
        let detail = format!("lines {} and {} have the same row", before + 1, line + 1);
        errors.add(Code::DuplicateRow, Path::Root.item(line), detail);
    }
}

struct Line<'f> {
    key: Option<Vec<u8>>,
    version: Option<Version>,
    integer: bool,
    errors: &'f mut FieldErrors,
}

impl Line<'_> {
    fn keep(&mut self, key: Vec<u8>, at: Path<'_>) {
        if key.is_empty() {
            self.errors.add(Code::EmptyKey, at, "a key must have at least one byte");
        } else if key.len() > KEY_BYTES_MAX {
            self.errors.add(Code::KeyTooLong, at, format!("{} bytes, {KEY_BYTES_MAX} is the limit", key.len()));
        } else {
            self.key = Some(key);
        }
    }
}

impl<'de> Fields<'de> for Line<'_> {
    fn names(&self) -> &'static [&'static str] {
        &["key", "key_b64", "version", "integer"]
    }

    fn field<A: MapAccess<'de>>(&mut self, index: usize, at: Path<'_>, map: &mut A) -> Result<(), A::Error> {
        let found = scalar(map)?;
        if index == 3 {
            self.integer = found.boolean(at, self.errors).unwrap_or(false);
            return Ok(());
        }
        let Some(text) = found.text(at, self.errors) else { return Ok(()) };
        match index {
            0 => self.keep(text.into_owned().into_bytes(), at),
            1 => match BASE64.decode(text.as_bytes()) {
                Ok(key) => self.keep(key, at),
                Err(error) => self.errors.add(Code::BadBase64, at, not_base64(error)),
            },
            _ => {
                self.version = decimal(&text).and_then(Version::from_bits);
                if self.version.is_none() {
                    self.errors.add(
                        Code::BadNumber,
                        at,
                        format!("must be a positive decimal number below 2^63, {CANONICAL}"),
                    );
                }
            }
        }
        Ok(())
    }

    fn errors(&mut self) -> &mut FieldErrors {
        self.errors
    }
}
