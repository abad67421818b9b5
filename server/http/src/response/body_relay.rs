//! Bodies that are produced on one runtime and sent from another: streams of a log, and everything that is compressed
//! while it is sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Aborts a task whose result is no longer needed: the client has disconnected.
pub(crate) struct AbortOnDrop(pub AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A frame, or `None` at the end. If the channel closes without `None`, the task was aborted, and the sent part is not
/// the whole body.
type Piece = Option<Result<Frame<Bytes>, axum::Error>>;

/// The receiving end of a body.
struct RelayedBody {
    pieces: mpsc::Receiver<Piece>,
    ended: bool,
    _maker: AbortOnDrop,
}

/// Produces `body` on `runtime`, two frames ahead of the frame being sent; returns a body that is available as a whole
/// unchanged.
pub(crate) fn relayed(body: Body, runtime: &Handle) -> Body {
    if body.size_hint().exact().is_some() {
        return body;
    }
    let (sender, pieces) = mpsc::channel::<Piece>(1);
    let maker = runtime.spawn(async move {
        let mut body = body;
        loop {
            let piece = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
            let last = piece.as_ref().is_none_or(Result::is_err);
            if sender.send(piece).await.is_err() || last {
                return;
            }
        }
    });
    Body::new(RelayedBody { pieces, ended: false, _maker: AbortOnDrop(maker.abort_handle()) })
}

impl HttpBody for RelayedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        let piece = std::task::ready!(this.pieces.poll_recv(cx));
        this.ended = !matches!(piece, Some(Some(Ok(_))));
        Poll::Ready(
            piece.unwrap_or_else(|| Some(Err(axum::Error::new("the body was cut off by a fault of the server")))),
        )
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Yields frames, then ends or panics.
    struct Frames {
        left: u8,
        breaks: bool,
    }

    impl HttpBody for Frames {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            if self.left == 0 {
                assert!(!self.breaks, "a fault");
                return Poll::Ready(None);
            }
            self.left -= 1;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![self.left])))))
        }
    }

    async fn read(breaks: bool) -> Result<Bytes, axum::Error> {
        let body = relayed(Body::new(Frames { left: 5, breaks }), &Handle::current());
        axum::body::to_bytes(body, 100).await
    }

    #[tokio::test]
    async fn a_body_arrives_complete_or_is_known_to_be_truncated() {
        assert_eq!(&read(false).await.unwrap()[..], [4, 3, 2, 1, 0]);
        assert!(read(true).await.unwrap_err().to_string().contains("cut off"));
    }

    #[tokio::test]
    async fn a_complete_body_is_not_relayed() {
        let body = relayed(Body::from("whole"), &Handle::current());
        assert_eq!(body.size_hint().exact(), Some(5));
    }
}
