//! Sends OTLP requests from the exporters' own threads, through hyper on the node's runtime, each within its timeout.
//! Logs once that the collector is unavailable, and once that it is back.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use tokio::runtime::Handle;

/// Maximum length of an answer in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The OTLP client.
#[derive(Clone, Debug)]
pub struct Transport {
    signal: &'static str,
    client: Client<HttpConnector, Full<Bytes>>,
    runtime: Handle,
    timeout: Duration,
    /// The last request failed.
    away: Arc<AtomicBool>,
}

type Sent = Result<Response<Bytes>, HttpError>;

impl Transport {
    /// Creates a client for one signal on `runtime`.
    #[must_use]
    pub fn new(signal: &'static str, runtime: Handle, timeout: Duration) -> Transport {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Transport { signal, client, runtime, timeout, away: Arc::default() }
    }

    /// Records the result of a request.
    fn note(&self, sent: &Sent) {
        let trouble = match sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answered {}", response.status())),
            Err(error) => Some(error.to_string()),
        };
        let was_away = self.away.swap(trouble.is_some(), Ordering::Relaxed);
        match (was_away, trouble) {
            (false, Some(trouble)) => {
                tracing::warn!(signal = self.signal, trouble, "the OTLP collector does not accept exports");
            }
            (true, None) => tracing::info!(signal = self.signal, "the OTLP collector accepts exports again"),
            _ => {}
        }
    }
}

impl HttpClient for Transport {
    fn send_bytes<'me, 'sending>(
        &'me self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Sent> + Send + 'sending>>
    where
        'me: 'sending,
        Self: 'sending,
    {
        let client = self.client.clone();
        let exchange = async move {
            let response = client.request(request.map(Full::new)).await?;
            let (parts, body) = response.into_parts();
            let bytes = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
            Sent::Ok(Response::from_parts(parts, bytes))
        };
        let timeout = self.timeout;
        let sent = self.runtime.spawn(async move {
            match tokio::time::timeout(timeout, exchange).await {
                Ok(sent) => sent,
                Err(_) => Err(format!("no answer within {} ms", timeout.as_millis()).into()),
            }
        });
        Box::pin(async move {
            let sent = sent.await?;
            self.note(&sent);
            sent
        })
    }
}
