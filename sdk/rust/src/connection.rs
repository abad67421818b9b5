//! HTTP: a pool of connections, and requests with timeouts, each to the endpoint in use. A request is repeated only on
//! another endpoint, as [`Repeat`] allows.

use std::time::{Duration, Instant};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Builder;
use hyper::{Method, Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::TokioExecutor;

use crate::answer::{Answer, NoAnswer, TRACEPARENT, collected, foreign_type, within};
use crate::endpoints::Endpoints;
use crate::failover::{Failover, Failure, Repeat};
use crate::link::LinkBody;
use crate::per_runtime::PerRuntime;
use crate::sent::Sent;
use crate::{ClientOptions, Error, RetryPolicy, tls};

/// Maximum bytes of a response; a longer one is rejected.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;
const CLIENT_NAME: HeaderName = HeaderName::from_static("tribunal-client");

type Pool = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

pub(crate) struct Connection {
    connector: HttpsConnector<HttpConnector>,
    pools: PerRuntime<Pool>,
    /// Maximum number of idle connections of a pool to one endpoint.
    idle_max: usize,
    /// For commit streams, each of which has its connection to itself.
    streams: Client<HttpsConnector<HttpConnector>, LinkBody>,
    endpoints: Endpoints,
    retry: RetryPolicy,
    /// The URLs of all endpoints, separated by commas.
    urls: String,
    /// Headers of every request.
    headers: HeaderMap,
}

impl Connection {
    pub(crate) fn new(endpoints: Endpoints, options: &ClientOptions) -> Result<Self, Error> {
        let mut has_tls = false;
        for url in endpoints.urls() {
            let uri: Uri = url.parse().map_err(|e| Error::misuse(format!("`{url}` is not a URL: {e}")))?;
            has_tls |= is_https(url, &uri)?;
        }
        let tls = if has_tls { tls::config(options.ca_file.as_deref())? } else { tls::unused()? };
        let mut headers = HeaderMap::new();
        if let Some(key) = &options.api_key {
            let mut value = header("API key", format!("Bearer {key}"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        if let Some(name) = &options.client_name {
            headers.insert(CLIENT_NAME, header("client name", name.clone())?);
        }
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(Duration::from_secs(5)));
        connector.enforce_http(false);
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(connector);
        let idle_max = options.connections_idle_max;
        let streams = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector.clone());
        let urls = endpoints.urls().join(",");
        let (pools, retry) = (PerRuntime::new(), options.retry);
        Ok(Connection { connector, pools, idle_max, streams, endpoints, retry, urls, headers })
    }

    /// Returns the connections of this runtime.
    fn pool(&self) -> Pool {
        self.pools.get(|| {
            let mut builder = Client::builder(TokioExecutor::new());
            builder.pool_max_idle_per_host(self.idle_max).build(self.connector.clone())
        })
    }

    /// Returns the URLs of all endpoints, separated by commas.
    pub(crate) fn urls(&self) -> &str {
        &self.urls
    }

    pub(crate) fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// Records that an endpoint failed during its response.
    pub(crate) fn failed(&self, endpoint: usize) {
        self.endpoints.failed(endpoint, Instant::now());
    }

    /// Records that an endpoint has responded.
    pub(crate) fn works(&self, endpoint: usize) {
        self.endpoints.works(endpoint, Instant::now());
    }

    /// Begins a call.
    pub(crate) fn failover(&self, repeat: Repeat, wait: Duration, timeout: Duration) -> Failover<'_> {
        Failover::new(&self.endpoints, self.retry, repeat, wait, timeout)
    }

    /// Builds a request with the common headers.
    fn request(&self, url: &str, method: Method, path: &str) -> Builder {
        let mut request = Request::builder().method(method).uri(format!("{url}{path}"));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request
    }

    fn no_answer(url: &str, e: &ClientError) -> NoAnswer {
        let advice = tls::advice(e);
        let is_tls = url.starts_with("https");
        let hopeless = if is_tls { e.is_connect() && tls::is_final(e) } else { tls::is_not_http(e) };
        let hint = if !is_tls {
            tls::plain_hint(e)
        } else if e.is_connect() {
            tls::hint(e)
        } else {
            ""
        };
        let why = advice.unwrap_or_else(|| chain(e) + hint);
        let text = format!("{url}: {why}");
        NoAnswer { text, never_sent: e.is_connect(), hopeless, retry_after: None, answered: false }
    }

    /// Posts a body that is written as its content arrives, to one endpoint. Returns the response as soon as it begins.
    pub(crate) async fn open_stream(
        &self,
        endpoint: usize,
        path: &str,
        content_type: &'static str,
        body: LinkBody,
    ) -> Result<Response<Incoming>, NoAnswer> {
        let url = &self.endpoints.urls()[endpoint];
        let request = self.request(url, Method::POST, path).header(CONTENT_TYPE, content_type).body(body);
        let request = request.map_err(|e| NoAnswer::hopeless(e.to_string()))?;
        self.streams.request(request).await.map_err(|e| Self::no_answer(url, &e))
    }

    /// Sends a request and collects the response, within its timeout.
    pub(crate) async fn ask(&self, sent: &Sent<'_>) -> Result<Answer, NoAnswer> {
        self.ask_on(&mut self.failover(sent.repeat, sent.wait, sent.timeout), sent).await
    }

    /// Sends a request to one endpoint after another until one responds or the call has no attempt left.
    pub(crate) async fn ask_on(&self, call: &mut Failover<'_>, sent: &Sent<'_>) -> Result<Answer, NoAnswer> {
        while let Some(timeout) = call.next().await {
            let answered =
                async { collected(self.response(call.url(), sent, None).await?, call.url(), ANSWER_BYTES_MAX).await };
            let reply = within(timeout, answered).await;
            if call.is_over(Failure::of_reply(&reply)) {
                return call.reply(reply);
            }
        }
        Err(call.exhausted())
    }

    /// Sends a request and returns the endpoint and the body of the response as it arrives, or the whole response if it
    /// is not a success. The timeout applies to the head of the response.
    pub(crate) async fn open(
        &self,
        sent: &Sent<'_>,
        accept: &'static str,
    ) -> Result<Result<(usize, Incoming), Answer>, NoAnswer> {
        let mut call = self.failover(sent.repeat, sent.wait, sent.timeout);
        while let Some(timeout) = call.next().await {
            let opened = async {
                let response = self.response(call.url(), sent, Some(accept)).await?;
                if response.status().is_success() && foreign_type(&response).is_none() {
                    return Ok(Ok(response.into_body()));
                }
                collected(response, call.url(), ANSWER_BYTES_MAX).await.map(Err)
            };
            let reply = match within(timeout, opened).await {
                Ok(Ok(body)) => {
                    call.is_over(None);
                    return Ok(Ok((call.endpoint(), body)));
                }
                Ok(Err(answer)) => Ok(answer),
                Err(lost) => Err(lost),
            };
            if !call.is_truncated(&reply) && call.is_over(Failure::of_reply(&reply)) {
                return reply.map(Err);
            }
        }
        call.nowhere().map(Err)
    }

    async fn response(
        &self,
        url: &str,
        sent: &Sent<'_>,
        accept: Option<&'static str>,
    ) -> Result<Response<Incoming>, NoAnswer> {
        let mut request = self.request(url, sent.method.clone(), sent.path);
        if let Some((content_type, _)) = &sent.body {
            request = request.header(CONTENT_TYPE, *content_type);
        }
        if let Some(accept) = accept {
            request = request.header(ACCEPT, accept);
        }
        if let Some(traceparent) = sent.traceparent {
            let value = header("traceparent", traceparent.to_owned());
            request = request.header(TRACEPARENT, value.map_err(|error| NoAnswer::hopeless(error.to_string()))?);
        }
        let body = sent.body.as_ref().map(|(_, bytes)| bytes.clone()).unwrap_or_default();
        let request = request.body(Full::new(body)).map_err(|e| NoAnswer::hopeless(e.to_string()))?;
        self.pool().request(request).await.map_err(|e| Self::no_answer(url, &e))
    }
}

/// Returns whether the URL of an endpoint is one of `https`.
fn is_https(url: &str, uri: &Uri) -> Result<bool, Error> {
    let is_https = uri.scheme_str() == Some("https");
    let authority = uri.authority().filter(|_| is_https || uri.scheme_str() == Some("http"));
    let Some(authority) = authority.filter(|_| uri.query().is_none()) else {
        let form = "http://host:port or https://host:port";
        return Err(Error::misuse(format!("`{url}` is not of the form {form}")));
    };
    if authority.as_str().contains('@') {
        // Not repeated: it may contain a password.
        return Err(Error::misuse("the URL of an endpoint names a user: pass the key as `api_key` in the options"));
    }
    let has_port = authority.as_str().rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    if has_port && authority.port_u16().is_none() {
        return Err(Error::misuse(format!("`{url}` has no valid port: ports are from 1 to 65535")));
    }
    Ok(is_https)
}

fn header(what: &str, text: String) -> Result<HeaderValue, Error> {
    HeaderValue::try_from(text).map_err(|_| Error::misuse(format!("the {what} has characters that no header can have")))
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
