//! The body of a response: at most one sentence, sent immediately for a refusal, otherwise at the end of the
//! connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame};
use tokio::sync::oneshot;

/// Contains the reason why a request is refused, or its connection ends.
pub(crate) struct ReasonBody {
    now: Option<Bytes>,
    later: Option<oneshot::Receiver<String>>,
}

impl ReasonBody {
    pub(crate) fn now(reason: String) -> ReasonBody {
        ReasonBody { now: Some(reason.into()), later: None }
    }

    /// Creates a body that lasts until `reason` is sent or its sender is dropped.
    pub(crate) fn later(reason: oneshot::Receiver<String>) -> ReasonBody {
        ReasonBody { now: None, later: Some(reason) }
    }
}

impl Body for ReasonBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let body = self.get_mut();
        if let Some(later) = &mut body.later {
            body.now = ready!(Pin::new(later).poll(cx)).ok().map(Bytes::from);
            body.later = None;
        }
        Poll::Ready(body.now.take().map(|reason| Ok(Frame::data(reason))))
    }

    fn is_end_stream(&self) -> bool {
        self.now.is_none() && self.later.is_none()
    }
}
