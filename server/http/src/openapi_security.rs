//! The security section of the OpenAPI document: derived from the rules that [`crate::authz::rules`] enforces, so that the two
//! never differ.

use axum::http::Method;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, OpenApi};

use crate::authz::rules::asks_nobody;

/// The scheme's name in the document.
const SCHEME: &str = "bearer";
const ABOUT: &str = "An API key (`trb_...`), or a token that the configured issuer signed (a JWT). A server that asks \
                     (`[auth] required`) answers 401 without it and 403 if its roles do not suffice; an open one, \
                     such as `tribunal dev`, takes no notice of it.";

/// Adds the scheme, and states for each operation whether it is required.
pub(crate) fn describe(document: &mut OpenApi) {
    let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("API key or JWT");
    let scheme = SecurityScheme::Http(scheme.description(Some(ABOUT)).build());
    document.components.get_or_insert_with(Components::new).add_security_scheme(SCHEME, scheme);
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in [
            (Method::GET, &mut item.get),
            (Method::PUT, &mut item.put),
            (Method::POST, &mut item.post),
            (Method::DELETE, &mut item.delete),
        ] {
            let Some(operation) = operation else { continue };
            let asks = !asks_nobody(&method, path);
            let needs = SecurityRequirement::new(SCHEME, std::iter::empty::<&str>());
            // The second requirement is for servers without access control.
            operation.security = Some(if asks { vec![needs, SecurityRequirement::default()] } else { Vec::new() });
        }
    }
}
