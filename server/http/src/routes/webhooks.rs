//! `/v1/stores/{store}/push`: registration of a receiver to which a store's log is pushed.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::de::MapAccess;
use tribunal_api::{Problem, PushInfo, PushKind, PushRequest, WebhookState};
use tribunal_types::{Lsn, RecordBatch, StoreSpec};

use crate::app::App;
use crate::request::body::{MediaType, utf8};
use crate::request::json::{CANONICAL, Fields, ObjectSeed, decimal, document, scalar};
use crate::request::txn_body::shown;
use crate::response::content::wire_response;
use crate::response::field_error::{Code, FieldErrors, Path};
use crate::response::log_problem::refused;
use crate::response::problem::{ProblemResponse, without_folders};
use crate::response::response_json::{JsonWriter, record};
use crate::response::service_problem::refuse;
use tribunal_service::{Registration, WebhookStatus};

/// Bytes of a URL.
const URL_BYTES_MAX: usize = 2048;
/// Characters of a secret.
const SECRET_CHARS: std::ops::RangeInclusive<usize> = 16..=256;
/// Records of a request: the accepted range, and the default.
const RECORDS: (std::ops::RangeInclusive<u32>, u32) = (1..=10_000, 500);
/// Bytes of a request: the accepted range, and the default.
const BYTES: (std::ops::RangeInclusive<u32>, u32) = (1..=8 << 20, 1 << 20);
/// Milliseconds of a request: the accepted range, and the default.
const TIMEOUT_MS: (std::ops::RangeInclusive<u32>, u32) = (100..=60_000, 10_000);

/// LogPush: registers a receiver of the store's log, or changes the one that is registered.
///
/// Records are posted in order, as `PushBody`, at least once; a 2xx acknowledges them, and its header
/// `tribunal-watermark` may name another LSN that the receiver holds. Each request carries `tribunal-signature:
/// t=SECONDS,v1=HEX`, where HEX is HMAC-SHA256 with the secret over `SECONDS`, a full stop, and the body.
#[utoipa::path(
    put, path = "/v1/stores/{store}/push", operation_id = "logPushRegister", tag = "log",
    params(("store" = String, Path, description = "Name of the store")),
    request_body(content = PushRequest, description = "The receiver"),
    responses(
        (status = 200, description = "The receiver, registered", body = PushInfo),
        (status = 400, description = "Malformed request", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No such store", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The log after this position has been truncated, or the position is of another log; restart from the state at `state_url`, which a truncated store without an adaptor does not have", body = Problem, content_type = "application/problem+json"),
        (status = 422, description = "The URL is not allowed, or the position is past the end of the log", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed; nothing was changed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn put_push(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let (spec, catalog) = app.known_store(&parts).await?;
    let (_, bytes) = app.body(&parts, body, &[MediaType::Json]).await?;
    let registration = registration(utf8(&bytes)?)?;
    let answer = app.service.log.register_webhook(spec.id, registration).await;
    let status = answer.map_err(|error| refused(error, &catalog, spec.id))?;
    Ok(wire_response(StatusCode::OK, &wire(&spec, status)))
}

/// Returns the registered receiver and the state of its push, without the secret.
#[utoipa::path(
    get, path = "/v1/stores/{store}/push", operation_id = "logPushStatus", tag = "log",
    params(("store" = String, Path, description = "Name of the store")),
    responses(
        (status = 200, description = "The receiver", body = PushInfo),
        (status = 404, description = "No such store, or nothing is registered", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn get_push(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let (spec, _) = app.known_store(&parts).await?;
    let status = app.service.log.webhook(spec.id).ok_or_else(unregistered)?;
    Ok(wire_response(StatusCode::OK, &wire(&spec, status)))
}

/// Ends a push and deletes its receiver.
#[utoipa::path(
    delete, path = "/v1/stores/{store}/push", operation_id = "logPushRemove", tag = "log",
    params(("store" = String, Path, description = "Name of the store")),
    responses(
        (status = 204, description = "Deleted; nothing is pushed any more"),
        (status = 404, description = "No such store, or nothing is registered", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed; nothing was changed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn delete_push(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let (spec, catalog) = app.known_store(&parts).await?;
    if !app.service.log.remove_webhook(spec.id).await.map_err(refuse(&catalog))? {
        return Err(unregistered());
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

/// Builds the body of a request to a receiver.
#[must_use]
pub fn push_body(records: &RecordBatch, store: &str) -> Vec<u8> {
    let mut json = JsonWriter::with_capacity(256 + 200 * records.records.len() + 2 * records.bytes.len());
    json.open(b'{');
    json.text_field("store", store);
    if let Some((first, last)) = records.bounds() {
        json.decimal_field("first_lsn", first.0);
        json.decimal_field("last_lsn", last.0);
    }
    json.name("records");
    json.open(b'[');
    for index in 0..records.records.len() {
        record(&mut json, records, index, store);
    }
    json.close(b']');
    json.close(b'}');
    json.finish()
}

fn unregistered() -> ProblemResponse {
    ProblemResponse::new(StatusCode::NOT_FOUND, "push_unregistered", "no webhook is registered for this store")
}

fn wire(spec: &StoreSpec, status: WebhookStatus) -> PushInfo {
    PushInfo {
        kind: PushKind::Webhook,
        store: spec.name.clone(),
        url: status.url,
        records_max: status.records_max,
        bytes_max: status.bytes_max,
        timeout_ms: status.timeout_ms,
        node: status.node.map(|node| node.0),
        state: match status.state {
            "pushing" => WebhookState::Pushing,
            "idle" => WebhookState::Idle,
            "backing_off" => WebhookState::BackingOff,
            "stopped" => WebhookState::Stopped,
            _ => WebhookState::Connecting,
        },
        acked_lsn: status.acked.to_string(),
        head_lsn: status.head.to_string(),
        lag_records: status.head.0.saturating_sub(status.acked.0).to_string(),
        lag_ms: status.lag_ms.to_string(),
        attempts: status.attempts,
        last_error: status.last_error.map(|error| without_folders(&error)),
    }
}

fn registration(text: &str) -> Result<Registration, ProblemResponse> {
    let mut body =
        RegistrationBody { errors: FieldErrors::default(), kind: false, url: None, secret: None, found: defaults() };
    document(text, ObjectSeed { fields: &mut body, at: Path::Root })
        .map_err(|malformed| ProblemResponse::of_syntax(&malformed))?;
    for (name, given) in [("kind", body.kind), ("url", body.url.is_some()), ("secret", body.secret.is_some())] {
        if !given && body.errors.is_empty() {
            body.errors.add(Code::MissingField, Path::Root.field(name), "is required");
        }
    }
    body.found.url = body.url.unwrap_or_default();
    body.found.secret = body.secret.unwrap_or_default();
    if body.errors.is_empty() { Ok(body.found) } else { Err(ProblemResponse::of_errors(&body.errors)) }
}

fn defaults() -> Registration {
    Registration {
        url: String::new(),
        secret: String::new(),
        after: None,
        records_max: RECORDS.1,
        bytes_max: BYTES.1,
        timeout_ms: TIMEOUT_MS.1,
    }
}

/// Returns the error in the form of a receiver's URL. The node checks its target.
fn url_fault(url: &str) -> Option<String> {
    if url.len() > URL_BYTES_MAX {
        return Some(format!("{} bytes, {URL_BYTES_MAX} is the limit", url.len()));
    }
    if url.contains('#') {
        return Some("a fragment is not sent to a receiver; leave it out".into());
    }
    let Ok(uri) = url.parse::<Uri>() else { return Some("is not a URL".into()) };
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Some("must begin with https:// or http://".into());
    }
    let Some(authority) = uri.authority() else { return Some("has no host".into()) };
    if authority.as_str().contains('@') {
        return Some("must not hold user information: requests are signed with the secret".into());
    }
    let port = authority.as_str().strip_prefix(authority.host()).unwrap_or("");
    if authority.host().is_empty() || !port.is_empty() && authority.port_u16().is_none_or(|port| port == 0) {
        return Some("has no host, or no port from 1 to 65535".into());
    }
    None
}

struct RegistrationBody {
    errors: FieldErrors,
    kind: bool,
    url: Option<String>,
    secret: Option<String>,
    found: Registration,
}

impl RegistrationBody {
    fn bounded(&mut self, number: Option<u32>, range: &std::ops::RangeInclusive<u32>, at: Path<'_>) -> Option<u32> {
        let number = number?;
        if range.contains(&number) {
            return Some(number);
        }
        self.errors.add(Code::BadNumber, at, format!("must be between {} and {}", range.start(), range.end()));
        None
    }
}

impl<'de> Fields<'de> for RegistrationBody {
    fn names(&self) -> &'static [&'static str] {
        &["kind", "url", "secret", "after", "records_max", "bytes_max", "timeout_ms"]
    }

    fn field<A: MapAccess<'de>>(&mut self, index: usize, at: Path<'_>, map: &mut A) -> Result<(), A::Error> {
        let found = scalar(map)?;
        if index >= 4 {
            let number = found.small(0..=u32::MAX, at, &mut self.errors);
            let range = [&RECORDS.0, &BYTES.0, &TIMEOUT_MS.0][index - 4];
            if let Some(number) = self.bounded(number, range, at) {
                *[&mut self.found.records_max, &mut self.found.bytes_max, &mut self.found.timeout_ms][index - 4] =
                    number;
            }
            return Ok(());
        }
        let Some(text) = found.text(at, &mut self.errors) else { return Ok(()) };
        match index {
            0 if text == "webhook" => self.kind = true,
            0 => self.errors.add(Code::UnknownValue, at, format!("must be \"webhook\", is \"{}\"", shown(&text))),
            1 => {
                if let Some(fault) = url_fault(&text) {
                    self.errors.add(Code::BadUrl, at, fault);
                }
                self.url = Some(text.into_owned());
            }
            2 => {
                if !SECRET_CHARS.contains(&text.chars().count()) {
                    let detail = format!("must have {} to {} characters", SECRET_CHARS.start(), SECRET_CHARS.end());
                    self.errors.add(Code::BadSecret, at, detail);
                }
                self.secret = Some(text.into_owned());
            }
            _ => match decimal(&text) {
                Some(lsn) => self.found.after = Some(Lsn(lsn)),
                None => self.errors.add(Code::BadNumber, at, format!("must be a decimal string {CANONICAL}")),
            },
        }
        Ok(())
    }

    fn errors(&mut self) -> &mut FieldErrors {
        &mut self.errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_classified_by_their_form() {
        let long = format!("https://host/{}", "x".repeat(URL_BYTES_MAX));
        for good in ["https://receiver.example/hook?x=1", "http://127.0.0.1:8080", "http://[::1]:80/", "https://a"] {
            assert_eq!(url_fault(good), None, "{good}");
        }
        for bad in [
            "",
            "receiver.example/hook",
            "ftp://host/",
            "file:///etc/passwd",
            "https://",
            "https:///path",
            "https://user:password@host/",
            "https://user@host/",
            "https://host/#part",
            "https://host:0/",
            "https://host:65536/",
            "https://host:x/",
            "https://ho st/",
            "https://host/\r\nx: y",
            "javascript:alert(1)",
            "//host/",
            "*",
            &long,
        ] {
            assert!(url_fault(bad).is_some(), "{bad}");
        }
    }
}
