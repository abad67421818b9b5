//! `POST /v1/txns/batch-commit`: many commits in one request, results in their order.
//!
//! An invalid item gets its own problem, and the other items are decided. Only an error that concerns the request as a
//! whole (syntax of a JSON document, its size) refuses all of them. The problem of an NDJSON item names its line.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::de::{IgnoredAny, MapAccess, SeqAccess};
use tribunal_api::{BatchCommitRequest, BatchCommitResponse, Problem};
use tribunal_types::limits::TXNS_PER_REQUEST_MAX;
use tribunal_types::{TxnId, TxnRequest};

use crate::app::App;
use crate::request::body::{MediaType, utf8};
use crate::request::caller::{CallerContext, caller};
use crate::request::commit_line::commit_line;
use crate::request::json::{ArraySeed, Fields, Items, ObjectSeed, document};
use crate::request::lines::split_lines;
use crate::request::plain_commit::plain_commit;
use crate::request::plain_json::{PlainJson, once};
use crate::request::txn_body::{ParsedCommit, TxnSeed};
use crate::response::content::{json_response, typed_response};
use crate::response::field_error::{Code, FieldErrors, Path};
use crate::response::problem::ProblemResponse;
use crate::response::response_json::{JsonWriter, item_decision, refused};
use crate::response::service_problem::refuse;
use crate::routes::commit::{TRACEPARENT, traceparent_value};
use tribunal_service::{AckMode, Catalog, Decided, ServiceError};

/// Expected bytes of an item's result.
const ANSWER_BYTES: usize = 256;
/// Expected bytes of an item's text in a JSON document.
const ITEM_BYTES: usize = 1024;

/// Commits many transactions in one request, each with its `txn_id`: as `{"txns": [...]}` or as NDJSON, with a response of
/// the same form. A commit that cannot be read gets a problem of its own, in NDJSON with its line; the others are decided.
#[utoipa::path(
    post, path = "/v1/txns/batch-commit", operation_id = "batchCommit", tag = "transactions",
    request_body(content(
        (BatchCommitRequest = "application/json"),
        (String = "application/x-ndjson"),
    ), description = "The commits; as NDJSON one `BatchTxn` a line"),
    responses(
        (status = 200, description = "One outcome per commit, in order; as NDJSON one `TxnOutcome` a line", content(
            (BatchCommitResponse = "application/json"),
            (String = "application/x-ndjson"),
        ), headers(
            ("traceparent" = String, description = "W3C trace context of the span that this request got, if it is traced"),
        )),
        (status = 400, description = "Malformed request", body = Problem, content_type = "application/problem+json"),
        (status = 413, description = "Too large", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Overloaded or not ready; no transaction was accepted", body = Problem, content_type = "application/problem+json", headers(
            ("retry-after" = u32, description = "When to retry, seconds; absent if unknown"),
        )),
        (status = 504, description = "No verdicts within 30 s, or the node failed meanwhile: possibly accepted, outcomes unknown; get the status of each by its id", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed; no decision was made", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn batch_commit(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let (kind, bytes) = app.body(&parts, body, &[MediaType::Json, MediaType::NdJson]).await?;
    let caller = caller(&parts);
    let is_document = kind == MediaType::Json;
    let parse = if is_document { of_document } else { of_lines };
    let mut catalog = app.service.stores.catalog();
    let mut batch = parse(&bytes, &catalog, &caller)?;
    // Another node may just have created the store.
    if batch.names_unknown_store() && app.catches_up().await? {
        catalog = app.service.stores.catalog();
        batch = parse(&bytes, &catalog, &caller)?;
    }
    let decided = if batch.txns.is_empty() {
        Vec::new()
    } else {
        app.service.txns.commit_many(batch.txns, batch.ack).await.map_err(refuse(&catalog))?
    };
    let traceparent = decided.iter().flatten().find_map(traceparent_value);
    let json = answers(is_document, &batch.items, decided, &catalog);
    let mut response = if is_document {
        json_response(StatusCode::OK, json)
    } else {
        typed_response(StatusCode::OK, "application/x-ndjson", json)
    };
    if let Some(traceparent) = traceparent {
        response.headers_mut().insert(TRACEPARENT, traceparent);
    }
    Ok(response)
}

/// A parsed batch: `txns` has the valid items, `items` has all of them.
#[derive(Default)]
struct Batch {
    txns: Vec<TxnRequest>,
    items: Vec<(TxnId, Option<ProblemResponse>)>,
    ack: AckMode,
}

impl Batch {
    fn names_unknown_store(&self) -> bool {
        self.items.iter().any(|(_, problem)| problem.as_ref().is_some_and(ProblemResponse::names_unknown_store))
    }

    fn add(&mut self, parsed: ParsedCommit) {
        let id = parsed.txn.id;
        if parsed.errors.is_empty() {
            self.ack = self.ack.max(parsed.ack);
            self.txns.push(parsed.txn);
            self.items.push((id, None));
        } else {
            self.refuse(id, ProblemResponse::of_errors(&parsed.errors));
        }
    }

    fn refuse(&mut self, id: TxnId, problem: ProblemResponse) {
        self.items.push((id, Some(problem)));
    }
}

fn answers(
    is_document: bool,
    items: &[(TxnId, Option<ProblemResponse>)],
    decided: Vec<Result<Decided, ServiceError>>,
    catalog: &Catalog,
) -> Vec<u8> {
    let mut json = JsonWriter::with_capacity(ANSWER_BYTES * items.len() + 32);
    if is_document {
        json.open(b'{');
        json.name("results");
        json.open(b'[');
    }
    let mut decided = decided.into_iter();
    for (id, problem) in items {
        match problem {
            Some(problem) => refused(&mut json, *id, problem),
            None => match decided.next() {
                Some(Ok(decided)) => item_decision(&mut json, *id, &decided, catalog),
                Some(Err(error)) => refused(&mut json, *id, &ProblemResponse::of_service(error, catalog)),
                // The node returned too few results: the client requests these by id.
                None => {
                    let detail = "no answer came for this item".to_owned();
                    refused(
                        &mut json,
                        *id,
                        &ProblemResponse::of_service(ServiceError::OutcomeUnknown { detail }, catalog),
                    );
                }
            },
        }
        if !is_document {
            json.end_line();
        }
    }
    if is_document {
        json.close(b']');
        json.close(b'}');
    }
    json.finish()
}

fn too_many() -> ProblemResponse {
    ProblemResponse::of_error(
        Code::TooMany,
        "/txns",
        format!("at most {TXNS_PER_REQUEST_MAX} transactions per request are accepted"),
    )
}

fn of_lines(bytes: &[u8], catalog: &Catalog, caller: &CallerContext) -> Result<Batch, ProblemResponse> {
    let mut batch = Batch::default();
    for (number, line) in (1..).zip(split_lines(bytes)).filter(|(_, line)| !line.trim_ascii().is_empty()) {
        if batch.items.len() == TXNS_PER_REQUEST_MAX {
            return Err(too_many());
        }
        match commit_line(line, number, catalog, caller) {
            Ok(parsed) => batch.add(parsed),
            Err(refused) => batch.refuse(refused.id, refused.problem),
        }
    }
    Ok(batch)
}

/// Parses a document in the form that clients usually write; `None` if it has another form, or contains an error.
fn of_plain_document(text: &str, catalog: &Catalog, caller: &CallerContext) -> Option<Batch> {
    let seed = TxnSeed { catalog, caller, id: None, at: Path::Root, bytes_hint: ITEM_BYTES };
    let (mut batch, mut seen, mut json) = (Batch::default(), 0, PlainJson::new(text));
    json.object(|json, name| {
        if name != "txns" {
            return None;
        }
        once(&mut seen, 0)?;
        json.array(|json| {
            if batch.items.len() == TXNS_PER_REQUEST_MAX {
                return None;
            }
            batch.add(plain_commit(json, &seed)?);
            Some(())
        })
    })?;
    (json.is_over() && seen != 0).then_some(batch)
}

fn of_document(bytes: &[u8], catalog: &Catalog, caller: &CallerContext) -> Result<Batch, ProblemResponse> {
    let text = utf8(bytes)?;
    if let Some(batch) = of_plain_document(text, catalog, caller) {
        return Ok(batch);
    }
    let mut body = Body { catalog, caller, batch: Batch::default(), too_many: false, errors: FieldErrors::default() };
    let seed = ObjectSeed { fields: &mut body, at: Path::Root };
    let seen = document(text, seed).map_err(|malformed| ProblemResponse::of_syntax(&malformed))?;
    if seen == Some(0) {
        body.errors.add(Code::MissingField, "/txns", "is required: the commits");
    }
    if body.too_many {
        return Err(too_many());
    }
    if body.errors.is_empty() { Ok(body.batch) } else { Err(ProblemResponse::of_errors(&body.errors)) }
}

struct Body<'a> {
    catalog: &'a Catalog,
    caller: &'a CallerContext,
    batch: Batch,
    too_many: bool,
    errors: FieldErrors,
}

impl<'de> Fields<'de> for Body<'_> {
    fn names(&self) -> &'static [&'static str] {
        &["txns"]
    }

    fn field<A: MapAccess<'de>>(&mut self, _: usize, at: Path<'_>, map: &mut A) -> Result<(), A::Error> {
        map.next_value_seed(ArraySeed { items: &mut Txns { body: self }, at })?;
        Ok(())
    }

    fn errors(&mut self) -> &mut FieldErrors {
        &mut self.errors
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
        let seed = TxnSeed { catalog: body.catalog, caller: body.caller, id: None, at, bytes_hint: ITEM_BYTES };
        match seq.next_element_seed(seed)? {
            Some(parsed) => body.batch.add(parsed),
            None => return Ok(false),
        }
        Ok(true)
    }

    fn errors(&mut self) -> &mut FieldErrors {
        &mut self.body.errors
    }
}
