//! The sender of a request: the only place where a tenant, a client's name and its trace are derived from headers.

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::request::Parts;
use tribunal_types::{NamespaceId, Roles};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use tribunal_service::Principal;

/// Header with which a client names itself to rules that are fair between clients.
pub const CLIENT_HEADER: &str = "tribunal-client";

/// The sender of a transaction and its trace: everything about it outside its body.
#[derive(Clone, Debug, Default)]
pub struct CallerContext {
    /// Tenant.
    pub namespace: NamespaceId,
    /// Hash of the client's name.
    pub origin: u64,
    /// W3C `traceparent`.
    pub traceparent: Option<String>,
}

/// Returns the tenant of a request: the caller's. Without access control, there is one tenant.
#[must_use]
pub fn tenant(parts: &Parts) -> NamespaceId {
    parts.extensions.get::<Arc<Principal>>().map_or(NamespaceId(0), |principal| principal.namespace)
}

/// Returns the caller. Without access control, every caller may do everything.
#[must_use]
pub fn principal(parts: &Parts) -> Arc<Principal> {
    parts.extensions.get::<Arc<Principal>>().cloned().unwrap_or_else(everybody)
}

/// Returns the caller to assume without access control.
pub(crate) fn everybody() -> Arc<Principal> {
    let (namespace_name, name) = ("default".to_owned(), "anonymous".to_owned());
    Arc::new(Principal { namespace: NamespaceId(0), namespace_name, roles: Roles::ALL, name })
}

/// Bytes of a name that are kept.
const NAME_BYTES_MAX: usize = 128;

/// Returns the caller's name, for display in later reports.
#[must_use]
pub fn client_name(parts: &Parts) -> String {
    if let Some(known) = parts.extensions.get::<Arc<Principal>>() {
        return known.name.clone();
    }
    let name = parts.headers.get(CLIENT_HEADER).and_then(|name| name.to_str().ok());
    name.map_or_else(|| "anonymous".to_owned(), |name| name.chars().take(NAME_BYTES_MAX).collect())
}

/// Returns everything about a transaction that is outside its body.
#[must_use]
pub fn caller(parts: &Parts) -> CallerContext {
    CallerContext { namespace: tenant(parts), origin: origin(parts), traceparent: traceparent(&parts.headers) }
}

/// Returns the value that distinguishes clients for rules that are fair between them.
fn origin(parts: &Parts) -> u64 {
    let name = match (parts.headers.get(CLIENT_HEADER), parts.extensions.get::<Arc<Principal>>()) {
        (Some(name), _) => name.as_bytes(),
        (None, Some(known)) => known.name.as_bytes(),
        (None, None) => return 0,
    };
    // Seeded by the tenant: a client cannot pass for another tenant's client by using its name.
    xxh3_64_with_seed(name, u64::from(tenant(parts).0))
}

/// Returns the W3C `traceparent`, if it is one: version, 16-byte trace id, 8-byte parent id and flags in hex. An id of
/// zeros is invalid.
fn traceparent(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let lengths = [2, 32, 16, 2];
    let mut fields = text.split('-');
    let well_formed = lengths.iter().all(|length| {
        fields.next().is_some_and(|field| {
            let is_id = *length > 2;
            field.len() == *length
                && field.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
                && !(is_id && field.bytes().all(|b| b == b'0'))
        })
    });
    (well_formed && fields.next().is_none() && !text.starts_with("ff")).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_two_tenants_that_have_one_name_are_two() {
        let origin_of = |namespace: u32, header: Option<&'static str>| {
            let mut request = axum::http::Request::new(());
            let (namespace_name, name) = (namespace.to_string(), "shop".to_owned());
            let caller = Principal { namespace: NamespaceId(namespace), namespace_name, roles: Roles::ALL, name };
            request.extensions_mut().insert(Arc::new(caller));
            if let Some(name) = header {
                request.headers_mut().insert(CLIENT_HEADER, name.parse().unwrap());
            }
            origin(&request.into_parts().0)
        };
        for header in [None, Some("shop")] {
            assert_ne!(origin_of(1, header), origin_of(2, header), "{header:?}");
            assert_eq!(origin_of(1, header), origin_of(1, header));
        }
    }

    #[test]
    fn only_complete_traceparents_are_accepted() {
        let of = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("traceparent", text.parse().unwrap());
            traceparent(&headers)
        };
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(of(good).as_deref(), Some(good));
        for bad in [
            "",
            "00",
            "00-xyz",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
