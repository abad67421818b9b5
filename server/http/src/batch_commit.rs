//! `POST /v1/txns/batch-commit`: many commits in one request, answers in their order.
//!
//! A bad item gets a problem of its own and the others are decided. Only what concerns the request as a whole (syntax
//! of a JSON document, its size) refuses all.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::de::{IgnoredAny, MapAccess, SeqAccess};
use tribunal_api::{BatchCommitRequest, BatchCommitResponse, Problem};
use tribunal_types::limits::TXNS_PER_REQUEST_MAX;
use tribunal_types::{TxnId, TxnRequest};

use crate::answer::{JsonWriter, decision, refused};
use crate::app::{App, json_response, refuse, typed_response};
use crate::body::{MediaType, utf8};
use crate::commit::{TRACEPARENT, traceparent_value};
use crate::fault::{Code, Faults, Path};
use crate::json::{ArraySeed, Fields, Items, ObjectSeed, document};
use crate::poster::poster;
use crate::refusal::Refusal;
use crate::service::{AckMode, Catalog, Decided, ServiceError};
use crate::txn_body::{Posted, Poster, TxnSeed};

/// Bytes of an answer that an item is expected to need.
const ANSWER_BYTES: usize = 256;
/// Bytes of text that an item of a JSON document is expected to have.
const ITEM_BYTES: usize = 1024;

/// Many commits in one request, each with its `txn_id`; as `{"txns": [...]}` or as NDJSON, answered alike.
#[utoipa::path(
    post, path = "/v1/txns/batch-commit", operation_id = "batchCommit", tag = "transactions",
    request_body(content(
        (BatchCommitRequest = "application/json"),
        (String = "application/x-ndjson"),
    ), description = "The commits; as NDJSON one `BatchTxn` a line"),
    responses(
        (status = 200, description = "One answer per commit, in order; as NDJSON one `TxnOutcome` a line", content(
            (BatchCommitResponse = "application/json"),
            (String = "application/x-ndjson"),
        ), headers(
            ("traceparent" = String, description = "W3C trace context of the span that this request got, if it is traced"),
        )),
        (status = 400, description = "The request cannot be read", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Not taken in", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "No decision was made", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn batch_commit(State(app): State<App>, request: Request) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let (kind, bytes) = app.body(&parts, body, &[MediaType::Json, MediaType::NdJson]).await?;
    let catalog = app.service.catalog();
    let text = utf8(&bytes)?;
    let poster = poster(&parts);
    let batch = match kind {
        MediaType::Json => of_document(text, &catalog, &poster)?,
        MediaType::NdJson | MediaType::Bytes => of_lines(text, &catalog, &poster)?,
    };
    let decided = if batch.txns.is_empty() {
        Vec::new()
    } else {
        app.service.commit_many(batch.txns, batch.ack).await.map_err(refuse(&catalog))?
    };
    let traceparent = decided.iter().flatten().find_map(traceparent_value);
    let json = answers(kind, &batch.items, decided, &catalog);
    let mut response = match kind {
        MediaType::Json => json_response(StatusCode::OK, json),
        MediaType::NdJson | MediaType::Bytes => typed_response(StatusCode::OK, "application/x-ndjson", json),
    };
    if let Some(traceparent) = traceparent {
        response.headers_mut().insert(TRACEPARENT, traceparent);
    }
    Ok(response)
}

/// What was posted: `txns` holds the readable items, `items` all of them.
#[derive(Default)]
struct Batch {
    txns: Vec<TxnRequest>,
    items: Vec<(TxnId, Option<Refusal>)>,
    ack: AckMode,
}

impl Batch {
    fn add(&mut self, posted: Posted) {
        let id = posted.txn.id;
        if posted.faults.is_empty() {
            self.ack = self.ack.max(posted.ack);
            self.txns.push(posted.txn);
            self.items.push((id, None));
        } else {
            self.items.push((id, Some(Refusal::of_faults(&posted.faults))));
        }
    }
}

fn answers(
    kind: MediaType,
    items: &[(TxnId, Option<Refusal>)],
    decided: Vec<Result<Decided, ServiceError>>,
    catalog: &Catalog,
) -> Vec<u8> {
    let mut json = JsonWriter::with_capacity(ANSWER_BYTES * items.len() + 32);
    if kind == MediaType::Json {
        json.open(b'{');
        json.name("results");
        json.open(b'[');
    }
    let mut decided = decided.into_iter();
    for (id, refusal) in items {
        match refusal {
            Some(refusal) => refused(&mut json, *id, refusal),
            None => match decided.next() {
                Some(Ok(decided)) => decision(&mut json, *id, &decided, catalog),
                Some(Err(error)) => refused(&mut json, *id, &Refusal::of_service(error, catalog)),
                // The node answered less than it was asked: the client asks for these by id.
                None => {
                    let detail = "no answer came for this item".to_owned();
                    refused(&mut json, *id, &Refusal::of_service(ServiceError::OutcomeUnknown { detail }, catalog));
                }
            },
        }
        if kind == MediaType::NdJson {
            json.end_line();
        }
    }
    if kind == MediaType::Json {
        json.close(b']');
        json.close(b'}');
    }
    json.finish()
}

fn too_many() -> Refusal {
    Refusal::of_fault(Code::TooMany, "/txns", format!("{TXNS_PER_REQUEST_MAX} transactions a request is the limit"))
}

fn of_lines(text: &str, catalog: &Catalog, poster: &Poster) -> Result<Batch, Refusal> {
    let mut batch = Batch::default();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        if batch.items.len() == TXNS_PER_REQUEST_MAX {
            return Err(too_many());
        }
        let seed = TxnSeed { catalog, poster, id: None, at: Path::Root, bytes_hint: line.len() };
        match document(line, seed) {
            Ok(posted) => batch.add(posted),
            Err(mut malformed) => {
                malformed.line = number + 1;
                batch.items.push((TxnId::default(), Some(Refusal::of_syntax(&malformed))));
            }
        }
    }
    Ok(batch)
}

fn of_document(text: &str, catalog: &Catalog, poster: &Poster) -> Result<Batch, Refusal> {
    let mut body = Body { catalog, poster, batch: Batch::default(), too_many: false, faults: Faults::default() };
    let seed = ObjectSeed { fields: &mut body, at: Path::Root };
    let seen = document(text, seed).map_err(|malformed| Refusal::of_syntax(&malformed))?;
    if seen == Some(0) {
        body.faults.add(Code::MissingField, "/txns", "the commits");
    }
    if body.too_many {
        return Err(too_many());
    }
    if body.faults.is_empty() { Ok(body.batch) } else { Err(Refusal::of_faults(&body.faults)) }
}

struct Body<'a> {
    catalog: &'a Catalog,
    poster: &'a Poster,
    batch: Batch,
    too_many: bool,
    faults: Faults,
}

impl<'de> Fields<'de> for Body<'_> {
    fn names(&self) -> &'static [&'static str] {
        &["txns"]
    }

    fn field<A: MapAccess<'de>>(&mut self, _: usize, at: Path<'_>, map: &mut A) -> Result<(), A::Error> {
        map.next_value_seed(ArraySeed { items: &mut Txns { body: self }, at })?;
        Ok(())
    }

    fn faults(&mut self) -> &mut Faults {
        &mut self.faults
    }
}

struct Txns<'b, 'a> {
    body: &'b mut Body<'a>,
}

impl<'de> Items<'de> for Txns<'_, '_> {
    fn item<A: SeqAccess<'de>>(&mut self, at: Path<'_>, _: usize, seq: &mut A) -> Result<bool, A::Error> {
        let body = &mut *self.body;
        if body.batch.items.len() == TXNS_PER_REQUEST_MAX {
            let another = seq.next_element::<IgnoredAny>()?.is_some();
            body.too_many |= another;
            return Ok(another);
        }
        let seed = TxnSeed { catalog: body.catalog, poster: body.poster, id: None, at, bytes_hint: ITEM_BYTES };
        match seq.next_element_seed(seed)? {
            Some(posted) => body.batch.add(posted),
            None => return Ok(false),
        }
        Ok(true)
    }

    fn faults(&mut self) -> &mut Faults {
        &mut self.body.faults
    }
}
