//! A body that holds a value until it has been sent or dropped.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

struct KeptBody<Kept> {
    body: Body,
    _kept: Kept,
}

/// Makes `body` hold a value until it is dropped.
pub(crate) fn keeping<Kept: Send + Unpin + 'static>(body: Body, kept: Kept) -> Body {
    Body::new(KeptBody { body, _kept: kept })
}

impl<Kept: Unpin> HttpBody for KeptBody<Kept> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
