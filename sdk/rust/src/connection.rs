//! HTTP: one keep-alive pool, one bounded request at a time. Knows no JSON and never repeats a request.

use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::{Error, tls};

/// Bytes of an answer above which it is refused.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;

pub(crate) struct Connection {
    pool: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    base: String,
    authorization: Option<HeaderValue>,
}

/// An answer, whatever its status.
pub(crate) struct Answer {
    pub status: StatusCode,
    /// The verdict in it had been given before.
    pub replayed: bool,
    pub body: Bytes,
}

/// No answer came.
pub(crate) struct NoAnswer {
    pub text: String,
    /// The request certainly did not reach the server.
    pub never_sent: bool,
    /// Nor will it, before somebody changes something.
    pub hopeless: bool,
}

impl NoAnswer {
    fn lost(text: String) -> Self {
        NoAnswer { text, never_sent: false, hopeless: false }
    }
}

impl Connection {
    pub(crate) fn new(
        url: &str,
        api_key: Option<&str>,
        ca_file: Option<&Path>,
        connections_idle_max: usize,
    ) -> Result<Self, Error> {
        let base = url.trim_end_matches('/').to_owned();
        let uri: Uri = base.parse().map_err(|e| Error::misuse(format!("`{url}` is no URL: {e}")))?;
        let tls = match (uri.scheme_str(), uri.authority()) {
            (Some("https"), Some(_)) => tls::config(ca_file)?,
            (Some("http"), Some(_)) => tls::unused()?,
            _ => {
                return Err(Error::misuse(format!("`{url}` is not of the form http://host:port or https://host:port")));
            }
        };
        let authorization = match api_key {
            None => None,
            Some(key) => {
                let mut value = HeaderValue::try_from(format!("Bearer {key}"))
                    .map_err(|_| Error::misuse("the API key has characters that no header takes"))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(Duration::from_secs(5)));
        connector.enforce_http(false);
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(connector);
        let pool = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(connections_idle_max).build(connector);
        Ok(Connection { pool, base, authorization })
    }

    pub(crate) fn url(&self) -> &str {
        &self.base
    }

    /// Sends a request and collects the answer, within `timeout`.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<(&'static str, Vec<u8>)>,
        timeout: Duration,
    ) -> Result<Answer, NoAnswer> {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        if let Some((content_type, _)) = &body {
            request = request.header(CONTENT_TYPE, *content_type);
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request
            .body(Full::new(Bytes::from(body.map(|(_, bytes)| bytes).unwrap_or_default())))
            .map_err(|e| NoAnswer { text: e.to_string(), never_sent: true, hopeless: true })?;
        let exchange = async {
            let response = self.pool.request(request).await.map_err(|e| {
                let advice = tls::advice(&e);
                let hopeless = e.is_connect() && tls::is_refusal(&e);
                let handshake = self.base.starts_with("https") && e.is_connect();
                let why = advice.unwrap_or_else(|| chain(&e) + if handshake { tls::hint(&e) } else { "" });
                NoAnswer { text: format!("{}: {why}", self.base), never_sent: e.is_connect(), hopeless }
            })?;
            let status = response.status();
            let replayed = response.headers().get("idempotency-replayed").is_some_and(|value| value == "true");
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
                .collect()
                .await
                .map_err(|e| NoAnswer::lost(e.to_string()))?;
            Ok(Answer { status, replayed, body: body.to_bytes() })
        };
        tokio::time::timeout(timeout, exchange)
            .await
            .unwrap_or_else(|_| Err(NoAnswer::lost(format!("no answer within {} ms", timeout.as_millis()))))
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
