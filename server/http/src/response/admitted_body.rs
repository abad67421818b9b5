//! The body of a response that is still being written after its handler returned, mainly a followed log: it holds the
//! request's permit, and breaks off when its reader is no longer admitted.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

use crate::quota::Permit;
use tribunal_service::Service;

/// Maximum age of the last check that the reader is admitted.
const KNOWN_FOR: Duration = Duration::from_secs(1);

struct AdmittedBody {
    body: Body,
    _permit: Permit,
    service: Arc<Service>,
    token: String,
    known_at: Instant,
}

/// Creates the body of a response to the caller with this token.
pub fn admitted(body: Body, permit: Permit, service: Arc<Service>, token: String) -> Body {
    Body::new(AdmittedBody { body, _permit: permit, service, token, known_at: Instant::now() })
}

impl HttpBody for AdmittedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        // Check after the wait: the key may have been revoked or have expired meanwhile.
        if frame.is_some() && this.known_at.elapsed() >= KNOWN_FOR {
            if let Err(reason) = this.service.keys.authenticate(&this.token) {
                return Poll::Ready(Some(Err(axum::Error::new(reason))));
            }
            this.known_at = Instant::now();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
