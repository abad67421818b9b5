//! Which encodings of a response a request accepts.

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::ACCEPT_ENCODING;

/// Lets responses be sent unencoded, even if the request excludes that (`identity;q=0`, or `*;q=0`), as RFC 9110, section
/// 12.5.3 permits. Otherwise, compression would change the status of a response to 406 after the request was carried
/// out, and a client would repeat a transaction that has committed.
pub(crate) async fn allow_identity(mut request: Request) -> Request {
    let headers = request.headers_mut();
    let excludes = |value: &HeaderValue| value.to_str().is_ok_and(|text| text.split(',').any(excludes_identity));
    if headers.get_all(ACCEPT_ENCODING).iter().any(excludes) {
        let texts = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        let kept: Vec<&str> = texts.flat_map(|text| text.split(',')).filter(|item| !excludes_identity(item)).collect();
        let kept = HeaderValue::from_str(&kept.join(","));
        headers.remove(ACCEPT_ENCODING);
        kept.into_iter().for_each(|kept| drop(headers.insert(ACCEPT_ENCODING, kept)));
    }
    request
}

/// Returns whether an item of `accept-encoding` excludes unencoded responses.
fn excludes_identity(item: &str) -> bool {
    let (coding, weight) = item.split_once(';').unwrap_or((item, ""));
    let weight = weight.split_once('=').filter(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    let is_zero = weight.and_then(|(_, q)| q.trim().parse::<f32>().ok()).is_some_and(|q| q == 0.0);
    is_zero && (coding.trim().eq_ignore_ascii_case("identity") || coding.trim() == "*")
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[tokio::test]
    async fn only_what_excludes_identity_is_dropped() {
        for (sent, kept) in [
            (&["identity;q=0"][..], ""),
            (&["br, *;q=0"], "br"),
            (&["gzip;q=0.5, identity; Q=0.000", "*;q=0"], "gzip;q=0.5"),
            (&["gzip, *"], "gzip, *"),
            (&["identity;q=0.001", "gzip;q=0"], "identity;q=0.001|gzip;q=0"),
            (&[], ""),
        ] {
            let mut request = Request::new(Body::empty());
            for value in sent {
                request.headers_mut().append(ACCEPT_ENCODING, value.parse().unwrap());
            }
            let allowed = allow_identity(request).await;
            let values = allowed.headers().get_all(ACCEPT_ENCODING).iter().map(|value| value.to_str().unwrap());
            assert_eq!(values.collect::<Vec<_>>().join("|"), kept, "{sent:?}");
        }
    }
}
