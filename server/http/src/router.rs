//! All routes, and the OpenAPI document derived from them.

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::http::{Extensions, HeaderMap, Method, StatusCode, Version};
use axum::routing::{get, post};
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{Predicate, SizeAbove};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::{App, RouterOptions};
use crate::authz::admission;
use crate::near_routes::RoutePatterns;
use crate::request::target;
use crate::response::marks::Streamed;
use crate::response::problem::ProblemResponse;
use crate::response::{accepted_encodings, encoder_room};
use crate::routes::{
    batch_commit, begin, cluster, commit, commit_stream, consumers, keys, log_pull, meta, plugins, rows, stats,
    store_push, store_state, stores, stores_of_tenants, txn_status, versions, webhooks,
};
use crate::{limits_table, openapi_security, problem_codes};
use tribunal_service::Service;

/// The document without its paths.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tribunal",
        version = "1.0.0",
        description = "Concurrency control as a service: post what a transaction read and what it wants to write, \
                       get a durable verdict.\n\n64-bit numbers are decimal strings. Responses omit absent fields and \
                       never contain null; in requests that begin, commit or validate a transaction or read rows, an \
                       optional string, number or flag may be null. Routes under `/v1` refuse unknown \
                       query parameters. Their responses outside 2xx are problem details. They mean that no decision was made, \
                       except 504 `outcome_unknown`: the transaction, or the change, may have been accepted; get the status of a \
                       transaction by its id.\n\nConnections are HTTP/1.1 or HTTP/2: over TLS by ALPN, in cleartext by prior knowledge only \
                       (no `Upgrade`).\n\nLimits, beyond which a request is refused:\n\n",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    servers((url = "http://127.0.0.1:7420", description = "A node for development")),
    components(schemas(tribunal_api::CommitEvent, tribunal_api::ImportLine, tribunal_api::LogEvent, tribunal_api::PushBody, tribunal_api::StateLine)),
    tags(
        (name = "transactions", description = "Begin, commit, abort, and the status of a transaction"),
        (name = "log", description = "Committed writes, in order: pulled, streamed or pushed"),
        (name = "stores", description = "Stores, their rows and their pushes"),
        (name = "plugins", description = "Conflict rules, isolation validators and LogAdaptors"),
        (name = "access", description = "API keys and their roles"),
        (name = "service", description = "Health, metrics and version"),
    )
)]
struct Document;

/// Route of one row, in the router's notation.
const ROW_ROUTE: &str = "/v1/stores/{store}/rows/{*key}";

/// Routes that the document does not describe.
const UNDESCRIBED: [&str; 4] = ["/", "/docs", "/openapi.json", "/openapi-3.0.json"];

/// Routes whose responses may be long.
fn long_answers() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(batch_commit::batch_commit))
        .routes(routes!(log_pull::log_pull))
        .routes(routes!(stores::list_stores))
        .routes(routes!(stores_of_tenants::list_stores_of_tenants))
        .routes(routes!(plugins::list_plugins))
        .routes(routes!(rows::list_rows))
        .routes(routes!(rows::get_row))
        .routes(routes!(rows::read_rows))
        // The row whose key is `read`.
        .route("/v1/stores/{store}/rows/read", get(rows::get_row))
        .routes(routes!(meta::metrics))
        // These are in [`UNDESCRIBED`], too.
        .route("/openapi.json", get(meta::openapi_3_1))
        .route("/openapi-3.0.json", get(meta::openapi_3_0))
        .route("/docs", get(meta::docs))
        .route("/", get(meta::root))
        .layer(axum::middleware::from_fn(encoder_room::reserve))
        .layer(CompressionLayer::new().compress_when(SizeAbove::new(encoder_room::COMPRESSED_BYTES_MIN).and(is_whole)))
        .layer(axum::middleware::map_request(accepted_encodings::allow_identity))
}

/// Returns whether a response is available as a whole. Compressing a stream would hold back records.
fn is_whole(_: StatusCode, _: Version, _: &HeaderMap, extensions: &Extensions) -> bool {
    extensions.get::<Streamed>().is_none()
}

fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Document::openapi())
        .merge(long_answers())
        .routes(routes!(begin::begin))
        .routes(routes!(commit_stream::commit_stream))
        .routes(routes!(commit::txn_commit))
        .routes(routes!(commit::txn_abort))
        .routes(routes!(commit::txn_validate))
        .routes(routes!(txn_status::txn_status))
        .routes(routes!(stores::put_store, stores::get_store))
        .routes(routes!(stores::get_snapshot))
        .routes(routes!(stores_of_tenants::get_store_of_tenant))
        .routes(routes!(store_push::resume_push))
        .routes(routes!(store_push::skip_record))
        .routes(routes!(store_push::list_skips))
        .routes(routes!(store_push::attach_push))
        .routes(routes!(webhooks::put_push, webhooks::get_push, webhooks::delete_push))
        .routes(routes!(store_state::get_state))
        .routes(routes!(consumers::list_consumers))
        .routes(routes!(consumers::put_consumer, consumers::get_consumer, consumers::delete_consumer))
        .routes(routes!(versions::import_versions))
        .routes(routes!(plugins::put_plugin, plugins::get_plugin, plugins::delete_plugin))
        .routes(routes!(plugins::delete_plugin_version))
        .routes(routes!(plugins::activate_plugin))
        .routes(routes!(plugins::roll_back_plugin))
        .routes(routes!(plugins::deactivate_plugin))
        .routes(routes!(keys::create_key, keys::list_keys))
        .routes(routes!(keys::revoke_key))
        .routes(routes!(meta::health))
        .routes(routes!(meta::ready))
        .routes(routes!(meta::version))
        .routes(routes!(stats::stats))
        .routes(routes!(cluster::cluster))
        .routes(routes!(cluster::add_node))
        .routes(routes!(cluster::remove_node))
        .routes(routes!(cluster::drain_node))
        .routes(routes!(cluster::resume_node))
}

/// Returns the OpenAPI 3.1 document of the routes.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut document = routes().into_openapi();
    openapi_security::describe(&mut document);
    let about = document.info.description.get_or_insert_default();
    about.push_str(&limits_table::markdown());
    about.push_str(&problem_codes::markdown());
    // The router's notation for a key that may contain slashes is not OpenAPI's.
    if let Some(row) = document.paths.paths.remove(ROW_ROUTE) {
        document.paths.paths.insert(ROW_ROUTE.replace('*', ""), row);
    }
    document
}

/// Builds the router.
pub fn router(service: Service, options: RouterOptions) -> Router {
    router_of(App::new(service, options))
}

/// Builds the router on existing shared state.
pub(crate) fn router_of(app: App) -> Router {
    let (mut router, document) = routes().split_for_parts();
    let patterns = RoutePatterns::new(document.paths.paths.into_keys().chain(UNDESCRIBED.map(str::to_owned)));
    if app.options.debug_routes {
        router = router.route("/v1/debug/constant", post(commit::debug_constant));
    }
    router = router.layer(axum::middleware::from_fn(target::check));
    router = router.fallback(move |request| no_route(patterns, request)).method_not_allowed_fallback(no_method);
    router = match app.options.access {
        Some(_) => router.layer(axum::middleware::from_fn_with_state(app.clone(), admission::admit)),
        None => router.layer(axum::middleware::from_fn_with_state(app.clone(), admission::bound_responses)),
    };
    router.with_state(app)
}

async fn no_route(patterns: RoutePatterns, request: Request) -> ProblemResponse {
    ProblemResponse::new(StatusCode::NOT_FOUND, "unknown_route", patterns.hint(request.uri().path()))
}

async fn no_method(request: Request) -> ProblemResponse {
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let detail = match (request.method(), route) {
        (&Method::DELETE, Some("/v1/stores/{store}")) => stores::PERMANENT.to_owned(),
        (&Method::PUT | &Method::POST | &Method::PATCH | &Method::DELETE, Some(route)) if route.contains("/rows") => {
            "rows are written by a commit: `POST /v1/txns/{txn_id}/commit` with `writes`".to_owned()
        }
        (method, _) => format!("{method} is not allowed here; the header Allow lists the methods that are"),
    };
    ProblemResponse::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
}
