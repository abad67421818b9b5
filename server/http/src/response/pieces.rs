//! A body that is handed to its connection piece by piece, and records when it is read.
//!
//! A connection polls for the next piece when it has room for it, and drops the body, with everything it holds (the
//! request's permit), once it has the last piece. The bytes it holds by then count towards no quota. So pieces are
//! small, the last one is very small, and a piece holds no more memory than its own bytes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Buf, Frame, SizeHint};

use crate::listener::flushes::Flushes;
use crate::listener::unread;

/// Bytes that are handed out at a time: an HTTP/2 frame of the size that most clients accept.
const PIECE_BYTES_MAX: usize = 16 * 1024;
/// Bytes that may remain in a connection after the body is dropped.
pub(crate) const LAST_BYTES_MAX: usize = 1024;

struct Pieces {
    body: Body,
    /// The rest of the last frame.
    rest: Bytes,
    /// Whether the bytes of that frame are shared: then they take no memory of their own.
    is_shared: bool,
    /// Whether the whole body was handed out.
    has_ended: bool,
    /// In HTTP/1: the end is handed out only after the connection has written the preceding bytes.
    flushes: Option<Arc<Flushes>>,
}

/// Hands out `body` in pieces; in HTTP/1, to the connection that records its `flushes`.
pub(crate) fn in_pieces(body: Body, flushes: Option<Arc<Flushes>>) -> Body {
    Body::new(Pieces { body, rest: Bytes::new(), is_shared: false, has_ended: false, flushes })
}

/// Returns whether a body is practically sent: it is very small, and a connection takes it in one piece.
pub(crate) fn is_as_good_as_sent(body: &Body) -> bool {
    body.size_hint().exact().is_some_and(|bytes| bytes <= LAST_BYTES_MAX as u64)
}

impl Pieces {
    /// Returns whether the connection may drop this body after the next piece.
    fn is_near_end(&self) -> bool {
        self.rest.len() <= LAST_BYTES_MAX && (self.has_ended || self.body.is_end_stream())
    }

    fn next_piece(&mut self) -> Bytes {
        let left = self.rest.len();
        let bytes = if left > LAST_BYTES_MAX { (left - LAST_BYTES_MAX).min(PIECE_BYTES_MAX) } else { left };
        if self.is_shared {
            return self.rest.split_to(bytes);
        }
        // A slice of the frame would keep the whole frame alive.
        let piece = Bytes::copy_from_slice(&self.rest[..bytes]);
        self.rest.advance(bytes);
        if self.rest.is_empty() {
            self.rest = Bytes::new();
        }
        piece
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        unread::polled();
        let this = self.get_mut();
        if this.rest.is_empty() && !this.has_ended {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => {
                        // A short frame is handed out unchanged.
                        this.is_shared = bytes.len() <= LAST_BYTES_MAX || !bytes.is_unique();
                        this.rest = bytes;
                    }
                    Err(trailers) => {
                        unread::handed_out();
                        return Poll::Ready(Some(Ok(trailers)));
                    }
                },
                None => this.has_ended = true,
                error => return Poll::Ready(error),
            }
        }
        if let Some(flushes) = this.flushes.as_ref().filter(|_| this.is_near_end()) {
            ready!(flushes.poll_flushed(cx));
        }
        if this.has_ended {
            return Poll::Ready(None);
        }
        unread::handed_out();
        let piece = this.next_piece();
        if let Some(flushes) = &this.flushes {
            flushes.handed_out(piece.len());
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && (self.has_ended || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let (of_body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(of_body.lower() + rest);
        if let Some(upper) = of_body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(body: &mut Body) -> Option<Bytes> {
        let frame = Pin::new(body).poll_frame(&mut Context::from_waker(std::task::Waker::noop()));
        let Poll::Ready(frame) = frame else { panic!("all of it is there") };
        frame.map(|frame| frame.unwrap().into_data().unwrap())
    }

    /// Returns the lengths of a body's pieces, whose concatenation is the body.
    fn pieces(of: &Bytes) -> Vec<usize> {
        let mut body = in_pieces(Body::from(of.clone()), None);
        let (mut lengths, mut whole) = (Vec::new(), Vec::new());
        while !body.is_end_stream() {
            assert_eq!(body.size_hint().exact(), Some((of.len() - whole.len()) as u64));
            let piece = next(&mut body).unwrap();
            lengths.push(piece.len());
            whole.extend_from_slice(&piece);
        }
        assert_eq!(whole, of[..]);
        lengths
    }

    #[test]
    fn the_last_piece_is_very_small() {
        assert_eq!(pieces(&Bytes::from(vec![7; 1024])), [1024]);
        assert_eq!(pieces(&Bytes::from(vec![7; 1025])), [1, 1024]);
        let long: Vec<u8> = (0..40_000_u32).map(|n| n as u8).collect();
        assert_eq!(pieces(&Bytes::from(long)), [16_384, 16_384, 6_208, 1_024]);
        assert_eq!(pieces(&Bytes::from_static(&[7; 20_000])), [16_384, 2_592, 1_024]);
    }

    #[test]
    fn a_piece_holds_no_more_than_its_own_bytes() {
        let mut body = in_pieces(Body::from(vec![7; 40_000]), None);
        while !body.is_end_stream() {
            // A slice of the frame would share it with the rest.
            assert!(next(&mut body).unwrap().is_unique());
        }
    }
}
