//! `GET /v1/stats`: statistics of the service, once or as server-sent events.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::stream::unfold;
use tribunal_api::{AbortCount, Distribution, Problem, Stats, Timing};
use tribunal_types::NamespaceId;

use crate::app::App;
use crate::request::caller::principal;
use crate::request::content_negotiation::{Form, accepted};
use crate::request::query::Query;
use crate::response::content::{streamed, wire_response};
use crate::response::field_error::Code;
use crate::response::problem::ProblemResponse;
use crate::response::service_problem::refuse;
use crate::response::stream_room::{StreamRoom, chunk};
use crate::routes::{consumers, plugins, stores};
use tribunal_service::{Principal, Service, Summary, Timed};

/// Default interval between statistics.
const INTERVAL_MS_DEFAULT: u64 = 1_000;
/// Shortest interval.
const INTERVAL_MS_MIN: u64 = 100;
/// Longest interval.
const INTERVAL_MS_MAX: u64 = 60_000;

/// Returns statistics: rates, percentiles by phase, aborts by reason, lag of stores and consumers. Callers that do not operate
/// the service get the figures of their own namespace.
///
/// With `Accept: text/event-stream` they are sent repeatedly.
#[utoipa::path(
    get, path = "/v1/stats", operation_id = "stats", tag = "service",
    params(("interval_ms" = Option<u32>, Query, nullable = false, minimum = 100, maximum = 60000, description = "Events only: how often; 1000 if absent")),
    responses(
        (status = 200, description = "The figures", content((Stats = "application/json"), (String = "text/event-stream"))),
        (status = 400, description = "Malformed request", body = Problem, content_type = "application/problem+json"),
        (status = 406, description = "None of the forms is accepted", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn stats(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let form = accepted(&parts.headers, &[Form::Json, Form::Events])?;
    let mut query = Query::new(parts.uri.query(), &["interval_ms"]);
    let interval = query.number("interval_ms", INTERVAL_MS_DEFAULT, INTERVAL_MS_MAX);
    if interval < INTERVAL_MS_MIN {
        query.error(Code::BadNumber, "interval_ms", format!("must be {INTERVAL_MS_MIN} or more"));
    }
    query.finish()?;
    let caller = principal(&parts);
    let first = taken(&app.service, &caller).await?;
    if form == Form::Json {
        return Ok(wire_response(StatusCode::OK, &first));
    }
    let service: Arc<Service> = Arc::clone(&app.service);
    let room = StreamRoom::of(&app, &parts);
    let chunks = unfold((service, caller, room, Some(first)), move |(service, caller, room, first)| async move {
        let turn = room.turn().await;
        let turn = match turn {
            Ok(turn) => turn,
            Err(unread) => return Some((Err(unread), (service, caller, room, None))),
        };
        let stats = match first {
            Some(first) => first,
            None => {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(interval)) => {}
                    () = service.node.ended() => return None,
                }
                taken(&service, &caller).await.ok()?
            }
        };
        let mut text = b"data: ".to_vec();
        text.extend(serde_json::to_vec(&stats).unwrap_or_default());
        text.extend_from_slice(b"\n\n");
        let reserved = room.wait_for(text.len()).await?;
        let chunk = chunk(text, Some(reserved), turn);
        Some((Ok(chunk), (service, caller, room, None)))
    });
    Ok(streamed(form, Body::from_stream(chunks)))
}

async fn taken(service: &Service, caller: &Principal) -> Result<Stats, ProblemResponse> {
    let catalog = service.stores.catalog();
    let namespace = caller.namespace;
    let known: Result<Vec<_>, _> = catalog.list(namespace).iter().map(|spec| stores::info(service, spec)).collect();
    let readers = service.log.consumers(namespace, None).await.map_err(refuse(&catalog))?;
    let figures = if caller.sees_the_service() { of_service(service).await? } else { of_tenant(service, namespace) };
    Ok(Stats {
        stores: known.map_err(refuse(&catalog))?,
        consumers: readers.into_iter().map(|status| consumers::wire(status, &catalog)).collect(),
        ..figures
    })
}

/// Returns the statistics of the whole service.
async fn of_service(service: &Service) -> Result<Stats, ProblemResponse> {
    let stats = service.node.stats();
    let overview = service.plugins.overview().await.map_err(refuse(&service.stores.catalog()))?;
    let per_s = |count: u64| count as f64 / seconds(stats.window_ms);
    let counted = counted(stats.window_ms, stats.committed, stats.aborts);
    Ok(Stats {
        node: stats.node.map(|node| node.0),
        uptime_ms: stats.uptime_ms.to_string(),
        epoch: Some(stats.epoch.to_string()),
        epochs_per_s: Some(per_s(stats.epochs)),
        replayed_per_s: Some(per_s(stats.replayed)),
        epoch_txns: Some(distribution(&stats.epoch_txns)),
        phases: stats.phases.iter().map(timing).collect(),
        commits: stats.commits.iter().map(timing).collect(),
        plugins: overview.slots.iter().map(plugins::slot).collect(),
        ..counted
    })
}

/// Returns the statistics of one tenant, which reveal nothing about other tenants.
fn of_tenant(service: &Service, namespace: NamespaceId) -> Stats {
    let stats = service.node.tenant_stats(namespace);
    let counted = counted(stats.window_ms, stats.committed, stats.aborts);
    Stats { uptime_ms: stats.uptime_ms.to_string(), ..counted }
}

/// Computes rates from a window's commits and aborts.
fn counted(window_ms: u64, committed: u64, aborts: Vec<(String, u64)>) -> Stats {
    let aborted: u64 = aborts.iter().map(|(_, count)| count).sum();
    let decided = committed + aborted;
    Stats {
        window_ms: window_ms.to_string(),
        committed_per_s: committed as f64 / seconds(window_ms),
        aborted_per_s: aborted as f64 / seconds(window_ms),
        abort_share: if decided == 0 { 0.0 } else { aborted as f64 / decided as f64 },
        aborts: aborts.into_iter().map(|(reason, count)| AbortCount { reason, count: count.to_string() }).collect(),
        ..Stats::default()
    }
}

fn seconds(window_ms: u64) -> f64 {
    (window_ms as f64 / 1000.0).max(0.001)
}

fn timing(timed: &Timed) -> Timing {
    Timing { name: timed.name.to_owned(), us: distribution(&timed.us) }
}

fn distribution(summary: &Summary) -> Distribution {
    Distribution {
        count: summary.count.to_string(),
        mean: summary.mean,
        p50: summary.p50 as f64,
        p90: summary.p90 as f64,
        p99: summary.p99 as f64,
        max: summary.max as f64,
    }
}
