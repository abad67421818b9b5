//! A request, before it has a response.

use std::time::Duration;

use hyper::Method;
use hyper::body::Bytes;

use crate::failover::Repeat;

/// A request to send.
pub(crate) struct Sent<'a> {
    pub method: Method,
    /// Path, beginning with `/`, and query.
    pub path: &'a str,
    /// Content type and body.
    pub body: Option<(&'static str, Bytes)>,
    pub traceparent: Option<&'a str>,
    /// How long the request itself may wait.
    pub wait: Duration,
    /// How long the request may take in addition, on all endpoints together.
    pub timeout: Duration,
    pub repeat: Repeat,
}
