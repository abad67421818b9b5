//! `GET /v1/stats`: what the service is doing, once or as server-sent events.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::stream::unfold;
use tribunal_api::{AbortCount, Distribution, Problem, Stats, Timing};
use tribunal_types::NamespaceId;

use crate::app::{App, refuse, wire_response};
use crate::request::caller::tenant;
use crate::request::content_negotiation::{Form, accepted};
use crate::request::query::Query;
use crate::response::field_error::Code;
use crate::response::problem::ProblemResponse;
use crate::routes::consumers;
use crate::routes::log_stream::streamed;
use crate::routes::{plugins, stores};
use tribunal_service::Service;
use tribunal_service::{Summary, Timed};

/// How often statistics are sent, if it is not said.
const INTERVAL_MS_DEFAULT: u64 = 1_000;
/// Shortest time between two of them.
const INTERVAL_MS_MIN: u64 = 100;
/// Longest time between two of them.
const INTERVAL_MS_MAX: u64 = 60_000;

/// What the service is doing: rates, percentiles by phase, aborts by reason, lag of stores and consumers.
///
/// With `Accept: text/event-stream`, again and again.
#[utoipa::path(
    get, path = "/v1/stats", operation_id = "stats", tag = "service",
    params(("interval_ms" = Option<u32>, Query, nullable = false, minimum = 100, maximum = 60000, description = "Events only: how often; 1000 if absent")),
    responses(
        (status = 200, description = "The figures", content((Stats = "application/json"), (String = "text/event-stream"))),
        (status = 400, description = "The request cannot be read", body = Problem, content_type = "application/problem+json"),
        (status = 406, description = "None of the forms is accepted", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "Not known now", body = Problem, content_type = "application/problem+json"),
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
    let namespace = tenant(&parts);
    let first = taken(&app.service, namespace).await?;
    if form == Form::Json {
        return Ok(wire_response(StatusCode::OK, &first));
    }
    let service: Arc<Service> = Arc::clone(&app.service);
    let chunks = unfold((service, Some(first)), move |(service, first)| async move {
        let stats = match first {
            Some(first) => first,
            None => {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(interval)) => {}
                    () = service.node.ended() => return None,
                }
                taken(&service, namespace).await.ok()?
            }
        };
        let mut text = b"data: ".to_vec();
        text.extend(serde_json::to_vec(&stats).unwrap_or_default());
        text.extend_from_slice(b"\n\n");
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(text)), (service, None)))
    });
    Ok(streamed(form, Body::from_stream(chunks)))
}

async fn taken(service: &Service, namespace: NamespaceId) -> Result<Stats, ProblemResponse> {
    let catalog = service.stores.catalog();
    let stats = service.node.stats();
    let seconds = (stats.window_ms as f64 / 1000.0).max(0.001);
    let per_s = |count: u64| count as f64 / seconds;
    let aborted: u64 = stats.aborts.iter().map(|(_, count)| count).sum();
    let decided = stats.committed + aborted;
    let known: Result<Vec<_>, _> = catalog.list(namespace).iter().map(|spec| stores::info(service, spec)).collect();
    let overview = service.plugins.overview().await.map_err(refuse(&catalog))?;
    let readers = service.log.consumers(namespace, None).await.map_err(refuse(&catalog))?;
    Ok(Stats {
        uptime_ms: stats.uptime_ms.to_string(),
        window_ms: stats.window_ms.to_string(),
        epoch: stats.epoch.to_string(),
        epochs_per_s: per_s(stats.epochs),
        committed_per_s: per_s(stats.committed),
        aborted_per_s: per_s(aborted),
        replayed_per_s: per_s(stats.replayed),
        abort_share: if decided == 0 { 0.0 } else { aborted as f64 / decided as f64 },
        aborts: stats
            .aborts
            .into_iter()
            .map(|(reason, count)| AbortCount { reason, count: count.to_string() })
            .collect(),
        epoch_txns: distribution(&stats.epoch_txns),
        phases: stats.phases.iter().map(timing).collect(),
        commits: stats.commits.iter().map(timing).collect(),
        plugins: overview.slots.iter().map(plugins::slot).collect(),
        stores: known.map_err(refuse(&catalog))?,
        consumers: readers.into_iter().map(|status| consumers::wire(status, &catalog)).collect(),
    })
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
