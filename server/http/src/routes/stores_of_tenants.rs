//! `/v1/admin/stores`: the stores of all namespaces, for operators of the service.
//!
//! Shows declarations and progress, never rows or records: those remain with the keys of the store's namespace.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use tribunal_api::{Problem, StoreInfo, StoreList};
use tribunal_types::StoreSpec;

use crate::app::App;
use crate::request::query::{Query, segment};
use crate::request::txn_body::shown;
use crate::response::content::wire_response;
use crate::response::field_error::{Code, FieldError};
use crate::response::problem::ProblemResponse;
use crate::response::service_problem::refuse;
use crate::routes::stores::info;
use tribunal_service::{Catalog, Service, ServiceError};

/// Lists the stores of all namespaces, or of the given one. Only for operators of the namespace `default`.
#[utoipa::path(
    get, path = "/v1/admin/stores", operation_id = "listStoresOfTenants", tag = "access",
    params(("namespace" = Option<String>, Query, description = "Only the stores of this namespace", nullable = false)),
    responses(
        (status = 200, description = "The stores, by namespace and name", body = StoreList),
        (status = 400, description = "A parameter cannot be read", body = Problem, content_type = "application/problem+json"),
        (status = 404, description = "There is no such namespace", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn list_stores_of_tenants(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let mut query = Query::new(parts.uri.query(), &["namespace"]);
    let only = query.text("namespace");
    query.finish()?;
    let mut catalog = app.service.stores.catalog();
    if let Some(name) = &only
        && !has_namespace(&app.service, &catalog, name)
    {
        // Another node may just have created it.
        let caught_up = app.catches_up().await?;
        catalog = app.service.stores.catalog();
        if !caught_up || !has_namespace(&app.service, &catalog, name) {
            let what = format!("namespace \"{}\": creating a key for it creates it", shown(name));
            return Err(refuse(&catalog)(ServiceError::NotFound { what }));
        }
    }
    let named = catalog.all().map(|spec| (app.service.stores.namespace_name(spec.namespace), spec));
    let mut found: Vec<_> = named.filter(|(name, _)| only.as_ref().is_none_or(|only| only == name)).collect();
    found.sort_by(|(one, a), (other, b)| (one, &a.name).cmp(&(other, &b.name)));
    let stores: Result<Vec<_>, _> =
        found.into_iter().map(|(namespace, spec)| named_info(&app.service, namespace, spec)).collect();
    Ok(wire_response(StatusCode::OK, &StoreList { stores: stores.map_err(refuse(&catalog))? }))
}

/// Returns whether a namespace exists. One whose name nothing tells any more is named by its number, as in the list.
fn has_namespace(service: &Service, catalog: &Catalog, name: &str) -> bool {
    service.stores.has_namespace(name)
        || catalog.all().any(|spec| service.stores.namespace_name(spec.namespace) == name)
}

/// Returns a store of any namespace with its progress and its push. Only for operators of the namespace `default`.
#[utoipa::path(
    get, path = "/v1/admin/stores/{namespace}/{store}", operation_id = "getStoreOfTenant", tag = "access",
    params(
        ("namespace" = String, Path, description = "Namespace of the store"),
        ("store" = String, Path, description = "Name of the store"),
    ),
    responses(
        (status = 200, description = "The store", body = StoreInfo),
        (status = 404, description = "No such store in this namespace", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The request failed", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn get_store_of_tenant(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (parts, _) = request.into_parts();
    let part = |index| String::from_utf8_lossy(&segment(parts.uri.path(), index)).into_owned();
    let (namespace, name) = (part(3), part(4));
    let find = |catalog: &Catalog| {
        let is_meant = |spec: &&std::sync::Arc<StoreSpec>| {
            spec.name == name && app.service.stores.namespace_name(spec.namespace) == namespace
        };
        catalog.all().find(is_meant).cloned().ok_or_else(|| {
            let detail = format!("the namespace \"{}\" has no store \"{}\"", shown(&namespace), shown(&name));
            FieldError::in_path(Code::UnknownStore, "store", detail).into()
        })
    };
    let (spec, catalog) = app.known(find).await?;
    let info = named_info(&app.service, namespace, &spec).map_err(refuse(&catalog))?;
    Ok(wire_response(StatusCode::OK, &info))
}

fn named_info(service: &Service, namespace: String, spec: &StoreSpec) -> Result<StoreInfo, ServiceError> {
    Ok(StoreInfo { namespace: Some(namespace), ..info(service, spec)? })
}
