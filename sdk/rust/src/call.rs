//! Requests that no method of [`Client`] makes, over its connections and with its key.

use std::time::Duration;

use hyper::Method;

use crate::{Client, Error, wire};

/// A request of the API.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    /// `GET`, `PUT`, `POST` or `DELETE`.
    pub method: &'a str,
    /// Path from its `/` on, as it goes over the wire.
    pub path: &'a str,
    /// Names and values behind the path.
    pub query: &'a [(&'a str, &'a str)],
    /// What the body is, and the body.
    pub body: Option<(&'static str, Vec<u8>)>,
    /// Bound for the answer.
    pub timeout: Duration,
}

impl Client {
    /// Makes a request; returns the answer's status and body, whatever they are.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no answer, [`Error::Misuse`] if there can be none.
    pub async fn call(&self, call: Call<'_>) -> Result<(u16, Vec<u8>), Error> {
        let method = Method::from_bytes(call.method.as_bytes())
            .map_err(|_| Error::misuse(format!("`{}` is no method", call.method)))?;
        // It goes behind the service's address, of which it could make another host's otherwise: that would get the key.
        if !call.path.starts_with('/') {
            return Err(Error::misuse(format!("the path `{}` must begin with `/`", call.path)));
        }
        let mut path = call.path.to_owned();
        for (n, (name, value)) in call.query.iter().enumerate() {
            path.push(if n == 0 { '?' } else { '&' });
            path.push_str(&format!("{name}={}", wire::percent_encoded(value.as_bytes())));
        }
        let answer = self.connection().ask(method, &path, call.body, call.timeout).await;
        answer.map(|answer| (answer.status.as_u16(), answer.body.to_vec())).map_err(Error::of_no_answer)
    }
}
