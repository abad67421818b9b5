//! `GET /v1/stores/{store}/state`: the state from which a reader restarts after its position was truncated.

use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use futures_util::stream::unfold;
use tribunal_api::Problem;

use crate::app::App;
use crate::request::content_negotiation::{Form, accepted};
use crate::response::content::streamed;
use crate::response::problem::ProblemResponse;
use crate::response::response_json::JsonWriter;
use crate::response::service_problem::refuse;
use crate::response::stream_room::{StreamRoom, chunk, no_room};
use tribunal_service::{Catalog, StoredRow};
use tribunal_service::{StateRows, StoreState};

/// The state of a store at a position of its log, as NDJSON: one `StateLine` a line.
///
/// The first line names the log and the position in it: what a reader's watermark needs. The rows of an embedded store are
/// those at `lsn`; continue with the log after it. A store with an external storage returns
/// only the position of that storage: read the rows there. A store that is only its log has no other state: `lsn` is 0 as
/// long as the log is complete; afterwards the status is 410.
#[utoipa::path(
    get, path = "/v1/stores/{store}/state", operation_id = "getState", tag = "log",
    params(("store" = String, Path, description = "Name of the store")),
    responses(
        (status = 200, description = "The state", body = String, content_type = "application/x-ndjson"),
        (status = 404, description = "No such store", body = Problem, content_type = "application/problem+json"),
        (status = 406, description = "NDJSON is not accepted", body = Problem, content_type = "application/problem+json"),
        (status = 410, description = "The store is only its log, which has been truncated", body = Problem, content_type = "application/problem+json"),
        (status = 503, description = "Too many state images are being read", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn get_state(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let form = accepted(&parts.headers, &[Form::NdJson])?;
    let (spec, catalog) = app.known_store(&parts).await?;
    let image = app.service.log.state(spec.id).await.map_err(refuse(&catalog))?;
    let (kind, lsn, detail, rows) = match image {
        StoreState::Rows { lsn, rows } => {
            ("rows", lsn.0, "the rows follow; continue with the log after lsn", Some(rows))
        }
        StoreState::Storage { lsn } => (
            "storage",
            lsn.0,
            "read the store's own storage, which is at lsn or later; continue with the log after lsn",
            None,
        ),
        StoreState::Log => (
            "log",
            0,
            "the log is complete: pull it from the start; rows whose versions were imported are not in it, unless written since",
            None,
        ),
    };
    let mut head = JsonWriter::with_capacity(256);
    head.open(b'{');
    head.text_field("event", "state");
    head.text_field("store", &spec.name);
    head.text_field("kind", kind);
    head.text_field("log", &app.service.log.log_id().to_string());
    head.decimal_field("lsn", lsn);
    head.text_field("detail", detail);
    head.close(b'}');
    head.end_line();
    let room = StreamRoom::of(&app, &parts);
    let image = Image { app, room, catalog, head: Some(head.finish()), rows, count: 0, ended: false };
    let chunks = unfold(image, |mut image| async {
        let chunk = image.next().await?;
        Some((chunk, image))
    });
    Ok(streamed(form, Body::from_stream(chunks)))
}

struct Image {
    app: App,
    room: StreamRoom,
    catalog: Arc<Catalog>,
    head: Option<Vec<u8>>,
    rows: Option<Box<dyn StateRows>>,
    count: u64,
    ended: bool,
}

impl Image {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.ended {
            return None;
        }
        let turn = match self.room.turn().await {
            Ok(turn) => turn,
            Err(unread) => {
                self.ended = true;
                return Some(Err(unread));
            }
        };
        if let Some(head) = self.head.take() {
            return Some(Ok(chunk(head, None, turn)));
        }
        let mut page = match &mut self.rows {
            Some(rows) => rows.next().await,
            None => Ok(Vec::new()),
        };
        let bytes: usize =
            page.as_ref().map_or(0, |rows| rows.iter().map(|row| 64 + row.key.len() + row.value.len()).sum());
        // The rows and their text. A node has few images, so each may hold its rows while it waits.
        let room = self.room.wait_for(2 * bytes).await;
        if room.is_none() {
            page = Err(no_room(&self.app));
        }
        let mut json = JsonWriter::with_capacity(256 + if room.is_some() { bytes } else { 0 });
        match page {
            Ok(rows) if !rows.is_empty() => {
                self.count += rows.len() as u64;
                rows.into_iter().for_each(|row| write_row(&mut json, &row));
            }
            Ok(_) => {
                self.ended = true;
                json.open(b'{');
                json.text_field("event", "end");
                json.decimal_field("rows", self.count);
                json.close(b'}');
                json.end_line();
            }
            Err(error) => {
                self.ended = true;
                let problem = ProblemResponse::of_service(error, &self.catalog);
                json.open(b'{');
                json.text_field("event", "failed");
                json.name("problem");
                json.raw(&serde_json::to_vec(&problem.body).unwrap_or_default());
                json.close(b'}');
                json.end_line();
            }
        }
        Some(Ok(chunk(json.finish(), room, turn)))
    }
}

fn write_row(json: &mut JsonWriter, row: &StoredRow) {
    json.open(b'{');
    json.key_field("key", "key_b64", &row.key);
    json.value_field(&row.value);
    json.decimal_field("version", row.version.bits());
    json.close(b'}');
    json.end_line();
}
