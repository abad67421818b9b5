//! What each route requires of its caller, and how its requests are treated. A pattern without a rule requires an
//! operator.

use axum::http::Method;
use tribunal_types::{Role, Roles};

/// The authorization that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// None: without a key, the response reveals nothing about tenants.
    Nobody,
    /// One of these roles.
    AnyOf(Roles),
    /// One of these roles in the namespace `default`: the route concerns all tenants.
    OfService(Roles),
}

impl Need {
    /// Returns whether only operators, and what watches the service for them, may call the route.
    pub(crate) fn is_of_operators(self) -> bool {
        match self {
            Need::Nobody => false,
            Need::AnyOf(roles) | Need::OfService(roles) => !roles.has(Role::Engine) && !roles.has(Role::Store),
        }
    }
}

/// Returns what a route requires, by its pattern.
pub(crate) fn need(method: &Method, pattern: &str) -> Need {
    let any = |roles: &[Role]| Need::AnyOf(roles.iter().copied().collect());
    let of_service = |roles: &[Role]| Need::OfService(roles.iter().copied().collect());
    let reads = matches!(*method, Method::GET | Method::HEAD);
    match pattern {
        "/" | "/healthz" | "/readyz" | "/version" | "/openapi.json" | "/openapi-3.0.json" | "/docs" => Need::Nobody,
        "/metrics" | "/v1/cluster" => of_service(&[Role::Operator, Role::Metrics]),
        // A tenant's operator gets the statistics of its own tenant.
        "/v1/stats" => any(&[Role::Operator, Role::Metrics]),
        path if path.starts_with("/v1/txns") => any(&[Role::Engine]),
        "/v1/snapshot" => any(&[Role::Engine, Role::Store, Role::Operator]),
        path if path == "/v1/log" || path.starts_with("/v1/log/") => any(&[Role::Engine, Role::Store, Role::Operator]),
        path if path.starts_with("/v1/consumers") => any(&[Role::Engine, Role::Store, Role::Operator]),
        "/v1/stores/{store}/versions" => any(&[Role::Store, Role::Operator]),
        path if path.starts_with("/v1/stores/{store}/push") => any(&[Role::Operator]),
        // A read, although its query needs a body because of its size.
        "/v1/stores/{store}/rows/read" => any(&[Role::Engine, Role::Store, Role::Operator]),
        path if path.starts_with("/v1/stores") && reads => any(&[Role::Engine, Role::Store, Role::Operator]),
        path if path.starts_with("/v1/admin/plugins") => of_service(&[Role::PluginAdmin]),
        "/v1/admin/keys" | "/v1/admin/keys/{id}" => any(&[Role::Operator]),
        // Declarations and progress, not rows.
        path if path.starts_with("/v1/admin/stores") => of_service(&[Role::Operator]),
        path if path.starts_with("/v1/stores") => any(&[Role::Operator]),
        _ => of_service(&[Role::Operator]),
    }
}

/// Returns whether a request keeps its permit after its caller has disconnected: a transaction is decided anyway.
/// Reads end with their request, and changes by operators are few.
pub(crate) fn waits_on(method: &Method, pattern: &str) -> bool {
    *method == Method::POST && pattern.starts_with("/v1/txns")
}

/// Returns whether a request only reads: its response may be dropped if there is no room for it.
pub(crate) fn only_reads(method: &Method, pattern: &str) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
        || *method == Method::POST
            && matches!(pattern, "/v1/stores/{store}/rows/read" | "/v1/txns" | "/v1/txns/{txn_id}/validate")
}

/// Returns whether a request changes the configuration: operators look for it in the log. Keys log their own changes.
pub(crate) fn changes_configuration(method: &Method, pattern: &str, need: Need) -> bool {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    need.is_of_operators() && !reads && !pattern.starts_with("/v1/admin/keys")
}

/// Returns whether a route is open to unauthenticated callers.
pub(crate) fn asks_nobody(method: &Method, pattern: &str) -> bool {
    need(method, pattern) == Need::Nobody
}

/// Returns whether a request decides a transaction. Once its body is complete, its caller gets the response, even if
/// the credential is revoked meanwhile.
pub(crate) fn decides(method: &Method, pattern: &str) -> bool {
    *method == Method::POST
        && matches!(pattern, "/v1/txns/{txn_id}/commit" | "/v1/txns/{txn_id}/abort" | "/v1/txns/batch-commit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_without_a_rule_requires_an_operator_of_the_service() {
        let operator = Need::OfService([Role::Operator].into_iter().collect());
        assert_eq!(need(&Method::GET, "/v1/no-such-rule"), operator);
        assert_eq!(need(&Method::POST, "/v1/debug/constant"), operator);
        assert_eq!(need(&Method::PUT, "/v1/stores/{store}"), Need::AnyOf([Role::Operator].into_iter().collect()));
        assert_eq!(need(&Method::GET, "/healthz"), Need::Nobody);
    }

    #[test]
    fn reading_several_rows_requires_the_same_as_reading_one() {
        let one = need(&Method::GET, "/v1/stores/{store}/rows/{key}");
        assert_eq!(need(&Method::POST, "/v1/stores/{store}/rows/read"), one);
    }

    #[test]
    fn the_metrics_role_reads_metrics_and_statistics_and_nothing_else() {
        let allows = |method: &Method, pattern: &str| match need(method, pattern) {
            Need::Nobody => true,
            Need::AnyOf(roles) | Need::OfService(roles) => roles.has(Role::Metrics),
        };
        assert!(allows(&Method::GET, "/metrics") && allows(&Method::GET, "/v1/stats"));
        for (method, pattern) in [
            (Method::GET, "/v1/stores"),
            (Method::GET, "/v1/stores/{store}"),
            (Method::GET, "/v1/log"),
            (Method::GET, "/v1/snapshot"),
            (Method::GET, "/v1/consumers"),
            (Method::GET, "/v1/admin/keys"),
            (Method::GET, "/v1/admin/stores"),
            (Method::GET, "/v1/admin/plugins"),
            (Method::POST, "/v1/txns/{txn_id}/commit"),
        ] {
            assert!(!allows(&method, pattern), "{method} {pattern}");
        }
    }

    #[test]
    fn only_transactions_continue_after_a_disconnect() {
        assert!(waits_on(&Method::POST, "/v1/txns/{txn_id}/commit"));
        assert!(waits_on(&Method::POST, "/v1/txns/batch-commit"));
        assert!(!waits_on(&Method::GET, "/v1/txns/{txn_id}"));
        assert!(!waits_on(&Method::POST, "/v1/admin/keys"));
    }
}
