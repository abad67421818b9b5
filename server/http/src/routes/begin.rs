//! `POST /v1/txns`: returns an id and one snapshot per store.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::de::{MapAccess, SeqAccess};
use tribunal_api::{BeginRequest, BeginResponse, Problem};
use tribunal_types::limits::{ID_WINDOW_MS, STORES_PER_TXN_MAX};
use tribunal_types::{Epoch, NamespaceId, StoreId, TxnId};

use crate::app::App;
use crate::request::body::{MediaType, utf8};
use crate::request::caller::tenant;
use crate::request::freshness::{FreshnessField, default_freshness, freshness_field};
use crate::request::json::{ArraySeed, Fields, Items, ObjectSeed, ScalarSeed, document, scalar};
use crate::request::read_body::{ReadDraft, ReadItems, ReadList};
use crate::request::txn_body::{no_such_store, shown};
use crate::response::content::json_response;
use crate::response::field_error::{Code, FieldErrors, Path};
use crate::response::problem::ProblemResponse;
use crate::response::response_json::{JsonWriter, session_token};
use crate::response::service_problem::refuse;
use crate::routes::rows::write_read;
use tribunal_service::{Begin, Catalog, ReadQuery, Session};

/// Begin: returns an id and snapshots to read at. Optional: a client may generate the id (UUIDv7) itself.
///
/// One response may serve several transactions that begin at the same time: each needs its own id, which the client
/// generates with the time in `txn_id`.
#[utoipa::path(
    post, path = "/v1/txns", operation_id = "begin", tag = "transactions",
    request_body(content = BeginRequest, description = "The stores that the transaction will use"),
    responses(
        (status = 201, description = "The transaction has begun", body = BeginResponse),
        (status = 400, description = "Malformed request", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "No such store", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "A store lags", body = Problem, content_type = "application/problem+json", headers(
            ("retry-after" = u32, description = "When to retry, seconds; absent if unknown"),
        )),
        (status = "default", description = "The request failed; no decision was made", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn begin(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let namespace = tenant(&parts);
    let (_, bytes) = app.body(&parts, body, &[MediaType::Json]).await?;
    let text = utf8(&bytes)?;
    let (mut asked, catalog) = app.known(|catalog| read(text, catalog, namespace)).await?;
    if asked.all_stores {
        // The request names no store: one that cannot be reached must not block the other ones.
        let can_begin = |id: &&StoreId| !app.service.stores.is_out_of_reach(**id);
        let within_reach: Vec<_> = asked.begin.stores.iter().filter(can_begin).copied().collect();
        if !within_reach.is_empty() {
            asked.begin.stores = within_reach;
        }
    }
    let query = asked.begin.read.clone();
    let begun = app.service.txns.begin(asked.begin).await.map_err(refuse(&catalog))?;

    let now = Duration::from_millis(begun.time_ms);
    let lifetime = Duration::from_millis(asked.ttl_ms.unwrap_or(ID_WINDOW_MS).min(ID_WINDOW_MS));
    let visible = begun.snapshots.iter().map(|snapshot| snapshot.at).min().unwrap_or(Epoch(0));
    let timestamp = uuid::Timestamp::from_unix(uuid::NoContext, now.as_secs(), now.subsec_nanos());
    let mut json = JsonWriter::with_capacity(256 + 64 * query.rows.len());
    json.open(b'{');
    json.id_field("txn_id", TxnId(uuid::Uuid::new_v7(timestamp).into_bytes()));
    json.snapshots_field("snapshots", &begun.snapshots, &catalog);
    json.lsns_field("lsn", &begun.lsns, &catalog);
    json.text_field("log", &app.service.log.log_id().to_string());
    json.decimal_field("epoch", begun.epoch.0);
    json.text_field("expires_at", &rfc3339(now + lifetime));
    json.text_field("session", &session_token(Session(visible)));
    write_read(&mut json, &query, &begun.read, &catalog);
    json.close(b'}');
    Ok(json_response(StatusCode::CREATED, json.finish()))
}

struct Asked {
    begin: Begin,
    ttl_ms: Option<u64>,
    /// Whether the request names no store, which means all stores.
    all_stores: bool,
}

fn read(text: &str, catalog: &Catalog, namespace: NamespaceId) -> Result<Asked, ProblemResponse> {
    let mut body = Body {
        catalog,
        read: ReadDraft { catalog, namespace, query: ReadQuery::default() },
        asked: Asked {
            begin: Begin { namespace, freshness: default_freshness(), ..Begin::default() },
            ttl_ms: None,
            all_stores: false,
        },
        errors: FieldErrors::default(),
    };
    document(text, ObjectSeed { fields: &mut body, at: Path::Root })
        .map_err(|error| ProblemResponse::of_syntax(&error))?;
    body.asked.all_stores = body.asked.begin.stores.is_empty() && body.errors.is_empty();
    let all_stores = body.asked.all_stores;
    let begin = &mut body.asked.begin;
    begin.read = body.read.query;
    if !all_stores {
        // Stores that are read are used.
        begin.stores.extend(begin.read.stores());
    }
    if all_stores {
        begin.stores = catalog.list(namespace).iter().map(|spec| spec.id).collect();
    }
    begin.stores.sort_unstable();
    begin.stores.dedup();
    if begin.stores.len() > STORES_PER_TXN_MAX {
        let detail = format!("{} stores, {STORES_PER_TXN_MAX} is the limit; name those used", begin.stores.len());
        body.errors.add(Code::TooMany, "/stores", detail);
    }
    if begin.stores.is_empty() && body.errors.is_empty() {
        body.errors.add(
            Code::MissingField,
            "/stores",
            "is required: the namespace has no store; declare one with `PUT /v1/stores/NAME`",
        );
    }
    if body.errors.is_empty() { Ok(body.asked) } else { Err(ProblemResponse::of_errors(&body.errors)) }
}

/// Index of `read` among the fields.
const READ: usize = 6;

struct Body<'c> {
    catalog: &'c Catalog,
    read: ReadDraft<'c>,
    asked: Asked,
    errors: FieldErrors,
}

impl<'de> Fields<'de> for Body<'_> {
    fn names(&self) -> &'static [&'static str] {
        &["stores", "isolation", "session", "wait_ms", "ttl_ms", "consistency", "read", "ranges"]
    }

    fn field<A: MapAccess<'de>>(&mut self, index: usize, at: Path<'_>, map: &mut A) -> Result<(), A::Error> {
        if index == 0 {
            map.next_value_seed(ArraySeed { items: &mut Stores { body: self }, at })?;
            return Ok(());
        }
        if index >= READ {
            let list = if index == READ { ReadList::Rows } else { ReadList::Ranges };
            let mut items = ReadItems { draft: &mut self.read, list, errors: &mut self.errors };
            map.next_value_seed(ArraySeed { items: &mut items, at })?;
            return Ok(());
        }
        let Some(found) = scalar(map)?.given() else { return Ok(()) };
        let (errors, freshness) = (&mut self.errors, &mut self.asked.begin.freshness);
        match index {
            1 => {
                if let Some(level) = found.text(at, errors)
                    && !tribunal_types::Isolation::ALL.iter().any(|known| known.name() == level)
                {
                    let levels = tribunal_types::Isolation::ALL.map(|known| known.name()).join(", ");
                    let detail = format!("\"{}\" is not one of {levels}", shown(&level));
                    errors.add(Code::UnknownValue, at, detail);
                }
            }
            2 => freshness_field(FreshnessField::Session, found, at, errors, freshness),
            3 => freshness_field(FreshnessField::WaitMs, found, at, errors, freshness),
            5 => freshness_field(FreshnessField::Consistency, found, at, errors, freshness),
            _ => {
                let max = u32::try_from(ID_WINDOW_MS).unwrap_or(u32::MAX);
                self.asked.ttl_ms = found.small(1..=max, at, errors).map(u64::from);
            }
        }
        Ok(())
    }

    fn errors(&mut self) -> &mut FieldErrors {
        &mut self.errors
    }
}

struct Stores<'a, 'c> {
    body: &'a mut Body<'c>,
}

impl<'de> Items<'de> for Stores<'_, '_> {
    fn item<A: SeqAccess<'de>>(&mut self, at: Path<'_>, _: usize, seq: &mut A) -> Result<bool, A::Error> {
        let Some(found) = seq.next_element_seed(ScalarSeed)? else { return Ok(false) };
        let body = &mut *self.body;
        if let Some(name) = found.text(at, &mut body.errors) {
            match body.catalog.store(body.asked.begin.namespace, &name) {
                Some(spec) => {
                    let id: StoreId = spec.id;
                    body.asked.begin.stores.push(id);
                }
                None => {
                    body.errors.add(Code::UnknownStore, at, no_such_store(&name));
                }
            }
        }
        Ok(true)
    }

    fn errors(&mut self) -> &mut FieldErrors {
        &mut self.body.errors
    }
}

/// Formats a time since the Unix epoch as RFC 3339 in UTC (days to civil date: Howard Hinnant's algorithm).
fn rfc3339(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second, ms) = (second / 3_600, second / 60 % 60, second % 60, since_epoch.subsec_millis());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_767_225_599_999, "2025-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(Duration::from_millis(ms)), text);
        }
    }
}
