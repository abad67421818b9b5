//! Requests for which [`Client`] has no method, over its connections and with its key.

use std::time::Duration;

use hyper::Method;

use crate::client::DURATION_MAX;
use crate::failover::Repeat;
use crate::sent::Sent;
use crate::{Client, Error, wire};

/// A request of the API.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// `GET`, `PUT`, `POST` or `DELETE`.
    pub method: &'a str,
    /// Path, beginning with `/`, percent-encoded.
    pub path: &'a str,
    /// Names and values of the query.
    pub query: &'a [(&'a str, &'a str)],
    /// Content type and body.
    pub body: Option<(&'static str, Vec<u8>)>,
    /// Timeout of the request, on all endpoints together.
    pub timeout: Duration,
}

impl Client {
    /// Sends a request and returns the status and body of the response, whatever they are. With several endpoints, the
    /// request goes to the next one if an endpoint is unavailable or does not respond; a request that may have taken
    /// effect only if its repetition has no further effect: reads, `PUT` except for consumers, and requests about
    /// transactions.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no response, [`Error::Misuse`] if the request is not valid.
    pub async fn call(&self, call: Call<'_>) -> Result<(u16, Vec<u8>), Error> {
        let method = Method::from_bytes(call.method.as_bytes())
            .map_err(|_| Error::misuse(format!("`{}` is not a method", call.method)))?;
        // The path is appended to the service's address. Without the slash it could name another host, which would get
        // the key.
        if !call.path.starts_with('/') {
            return Err(Error::misuse(format!("the path `{}` must begin with `/`", call.path)));
        }
        let mut path = call.path.to_owned();
        for (n, (name, value)) in call.query.iter().enumerate() {
            path.push(if n == 0 { '?' } else { '&' });
            path.push_str(&format!("{name}={}", wire::percent_encoded(value.as_bytes())));
        }
        let body = call.body.map(|(kind, bytes)| (kind, bytes.into()));
        let repeat = Repeat::of(&method, &path);
        let (wait, timeout) = (Duration::ZERO, call.timeout.min(DURATION_MAX));
        let sent = Sent { method, path: &path, body, traceparent: None, wait, timeout, repeat };
        let answer = self.connection().ask(&sent).await;
        answer.map(|answer| (answer.status.as_u16(), answer.body.to_vec())).map_err(Error::of_no_answer)
    }
}
