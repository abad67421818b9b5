//! Refuses what web pages send to a node without access control. Such a node trusts everyone who reaches it, and
//! listens on loopback, which every page in a browser of this machine reaches: by requests to another origin, whose
//! responses it cannot read, or under a name of its own that it lets resolve to this machine (DNS rebinding), as which it
//! can. Only browsers send `origin` and `sec-fetch-site`; other clients are refused only for a foreign name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::http::header::{HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderName, Method, Request, StatusCode};

use crate::request::txn_body::shown;
use crate::response::problem::ProblemResponse;

/// How the origin of the page that sends a request relates to this node's.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// What the browser does with the response.
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
/// The name of this machine, and the domain of further ones.
const LOCALHOST: &str = "localhost";

/// The names by which requests may call a node.
#[derive(Clone, Debug, Default)]
pub struct HostNames {
    /// On a loopback address, the names besides `localhost`; `None` if any name will do.
    names: Option<Arc<[String]>>,
}

impl HostNames {
    /// Returns the names of a node that listens on a loopback address.
    #[must_use]
    pub fn on_loopback(names: &[String]) -> Self {
        HostNames { names: Some(names.iter().map(|name| name.to_ascii_lowercase()).collect()) }
    }

    /// Refuses a request that a web page of another origin may have sent.
    ///
    /// # Errors
    /// 403.
    pub fn check<B>(&self, request: &Request<B>) -> Result<(), ProblemResponse> {
        let headers = request.headers();
        let in_target = request.uri().authority().map(|authority| authority.as_str());
        let Some(authority) = in_target.or_else(|| text(headers, &HOST)) else { return Ok(()) };
        if !self.has(authority) {
            return Err(foreign_host(authority));
        }
        if let Some(origin) = text(headers, &ORIGIN).filter(|origin| !is_at(origin, authority)) {
            return Err(foreign_page(&format!("a page of `{}`", shown(origin))));
        }
        match text(headers, &FETCH_SITE) {
            Some("cross-site" | "same-site") if !is_link(request) => Err(foreign_page("a page of another origin")),
            _ => Ok(()),
        }
    }

    /// Returns whether a request may call the node by this host and port. A page cannot let an IP address resolve to
    /// this machine.
    fn has(&self, authority: &str) -> bool {
        let Some(names) = &self.names else { return true };
        let host = host_of(authority);
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        if literal.parse::<Ipv4Addr>().is_ok() || literal.parse::<Ipv6Addr>().is_ok() {
            return true;
        }
        let host = host.strip_suffix('.').unwrap_or(host);
        host.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case(LOCALHOST))
            || names.iter().any(|name| name.eq_ignore_ascii_case(host))
    }
}

/// Returns the value of a header; `?`, which matches nothing, if it is not text.
fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}

/// Returns the host of `host:port`.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !is_bare_ipv6(authority) => host,
        _ => authority,
    }
}

/// Returns whether a text is an IPv6 address without brackets, whose last group is not a port.
fn is_bare_ipv6(authority: &str) -> bool {
    authority.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6())
}

/// Returns whether an origin is at `authority`. Both omit the port if it is the scheme's.
fn is_at(origin: &str, authority: &str) -> bool {
    let Some((scheme, at)) = origin.split_once("://") else { return false };
    let default_port = if scheme.eq_ignore_ascii_case("https") { ":443" } else { ":80" };
    at.eq_ignore_ascii_case(authority.strip_suffix(default_port).unwrap_or(authority))
}

/// Returns whether a request follows a link to a page of this node. The linking page does not see the response.
fn is_link<B>(request: &Request<B>) -> bool {
    let navigates = text(request.headers(), &FETCH_MODE) == Some("navigate");
    navigates && *request.method() == Method::GET && !request.uri().path().starts_with("/v1/")
}

fn foreign_page(sender: &str) -> ProblemResponse {
    let detail = format!(
        "the request was sent by {sender}, and without access control this node takes none from web pages but its own: \
         require keys (`auth.required = true`) to use it from others"
    );
    ProblemResponse::new(StatusCode::FORBIDDEN, "foreign_page", detail)
}

fn foreign_host(authority: &str) -> ProblemResponse {
    let detail = format!(
        "the request calls this node `{}`, a name that any web page could let resolve to it, and the node has no access \
         control: call it `localhost` or by its address, list the name in `http.hosts`, or require keys \
         (`auth.required = true`)",
        shown(host_of(authority))
    );
    ProblemResponse::new(StatusCode::FORBIDDEN, "foreign_host", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(names: &HostNames, target: &str, headers: &[(&str, &str)]) -> Option<String> {
        let mut request = Request::builder().method("POST").uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        names.check(&request.body(()).expect("a request")).err().map(|problem| problem.body.code)
    }

    #[test]
    fn a_loopback_node_is_called_by_its_address_or_a_known_name() {
        let names = HostNames::on_loopback(&["Host.docker.internal".to_owned()]);
        for known in [
            "127.0.0.1:7420",
            "127.9.9.9",
            "10.0.0.1:7420",
            "[::1]:7420",
            "[::1]",
            "::1",
            "localhost",
            "LOCALHOST:7420",
            "localhost.:7420",
            "a.localhost:7420",
            "host.docker.internal:7420",
        ] {
            assert_eq!(code(&names, "/v1/stores", &[("host", known)]), None, "{known}");
            assert_eq!(code(&HostNames::default(), "/v1/stores", &[("host", known)]), None, "{known}");
        }
        for foreign in
            ["evil.test:7420", "localhost.evil.test", "127.0.0.1.evil.test:7420", "notlocalhost", "", ":7420"]
        {
            let found = code(&names, "/v1/stores", &[("host", foreign)]);
            assert_eq!(found.as_deref(), Some("foreign_host"), "{foreign}");
            assert_eq!(code(&HostNames::default(), "/v1/stores", &[("host", foreign)]), None, "{foreign}");
        }
        // HTTP/2 has `:authority` in place of the header, and HTTP/1.0 may have neither.
        assert_eq!(code(&names, "http://evil.test:7420/v1/stores", &[]).as_deref(), Some("foreign_host"));
        assert_eq!(code(&names, "http://localhost:7420/v1/stores", &[("host", "evil.test")]), None);
        assert_eq!(code(&names, "/v1/stores", &[]), None);
    }

    #[test]
    fn a_page_of_another_origin_is_refused() {
        for names in [HostNames::default(), HostNames::on_loopback(&[])] {
            let sent = |headers: &[(&str, &str)]| {
                let host = ("host", "localhost:7420");
                code(&names, "/v1/stores", &[&[host], headers].concat())
            };
            for own in [
                &[("origin", "http://localhost:7420")][..],
                &[("origin", "http://LOCALHOST:7420"), ("sec-fetch-site", "same-origin")],
                &[("sec-fetch-site", "none")],
                &[],
            ] {
                assert_eq!(sent(own), None, "{own:?}");
            }
            for foreign in [
                &[("origin", "http://evil.test")][..],
                &[("origin", "http://localhost:3000"), ("sec-fetch-site", "same-site")],
                &[("origin", "http://127.0.0.1:7420")],
                &[("origin", "null")],
                &[("sec-fetch-site", "same-site")],
                &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")],
                &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")],
            ] {
                assert_eq!(sent(foreign).as_deref(), Some("foreign_page"), "{foreign:?}");
            }
        }
    }

    #[test]
    fn ports_of_the_scheme_may_be_named() {
        for (origin, authority, expected) in [
            ("http://localhost", "localhost:80", true),
            ("https://localhost", "localhost:443", true),
            ("http://localhost", "localhost:443", false),
            ("http://localhost", "localhost", true),
            ("http://localhost:7420", "localhost", false),
        ] {
            assert_eq!(is_at(origin, authority), expected, "{origin} {authority}");
        }
    }

    #[test]
    fn a_link_from_another_page_may_be_followed() {
        for (method, path, expected) in
            [("GET", "/docs", true), ("GET", "/v1/txns/1?fence=true", false), ("POST", "/docs", false)]
        {
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header("host", "localhost:7420")
                .header("sec-fetch-site", "cross-site")
                .header("sec-fetch-mode", "navigate");
            let checked = HostNames::default().check(&request.body(()).expect("a request"));
            assert_eq!(checked.is_ok(), expected, "{method} {path}");
        }
    }
}
