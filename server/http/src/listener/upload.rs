//! The body of a request; its rest is read and dropped if a response does not wait for it.
//!
//! Dropping a body before its end makes HTTP/2 reset the stream. Clients that are still sending, among them curl,
//! report the reset and not the response that preceded it. So the rest is read here, within the bounds that HTTP/1 has
//! for the same case ([`crate::listener::connection`]), while the response is sent.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use http_body_util::BodyExt;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::{Request, Version};
use tokio::runtime::Handle;
use tribunal_types::limits::{LINGER_BYTES_MAX, LINGER_MS};

/// The body of a request.
#[derive(Debug)]
pub(crate) struct Upload {
    /// Taken when the upload is dropped.
    body: Option<Incoming>,
    /// HTTP/1 reads the rest in its connection.
    is_http_2: bool,
}

impl Upload {
    /// Returns a request whose body is an upload.
    pub(crate) fn of(request: Request<Incoming>) -> Request<Upload> {
        let is_http_2 = request.version() == Version::HTTP_2;
        request.map(|body| Upload { body: Some(body), is_http_2 })
    }
}

impl HttpBody for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let Some(body) = self.body.take().filter(|body| self.is_http_2 && !body.is_end_stream()) else { return };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(tokio::time::timeout(Duration::from_millis(LINGER_MS), dropped(body)));
        }
    }
}

async fn dropped(mut body: Incoming) {
    let mut left = LINGER_BYTES_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        let Some(rest) = left.checked_sub(bytes) else { return };
        left = rest;
    }
}
