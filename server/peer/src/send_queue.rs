//! Frames waiting to be sent on one connection, and the request body that takes them from the queue.
//!
//! The queue is bounded in bytes. It ends with its connection: frames still in it are lost, and its owner notifies the
//! sender.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::{BufMut, Bytes, BytesMut};
use hyper::body::{Body, Frame};
use parking_lot::Mutex;

use crate::deframer::LENGTH_BYTES;
use crate::settings::FRAME_COST_BYTES;

/// Frames up to this length are copied, so that many of them are sent in one write.
const COPIED_BYTES_MAX: usize = 16 << 10;
/// Bytes collected for one write.
const PIECE_BYTES: usize = 128 << 10;

/// The queued frames.
pub(crate) struct SendQueue {
    waiting: Mutex<Waiting>,
    bytes_max: usize,
}

#[derive(Default)]
struct Waiting {
    frames: VecDeque<Bytes>,
    /// Bytes charged for the frames.
    bytes: usize,
    /// Waker of the connection, while it has nothing to send.
    waker: Option<Waker>,
}

impl SendQueue {
    pub(crate) fn new(bytes_max: usize) -> SendQueue {
        SendQueue { waiting: Mutex::default(), bytes_max }
    }

    /// Adds frames in order while there is room; wakes the connection once for all of them. Returns the number of
    /// frames without room.
    pub(crate) fn push(&self, frames: Vec<Bytes>) -> u64 {
        let mut dropped = 0;
        let mut waiting = self.waiting.lock();
        for frame in frames {
            let bytes = waiting.bytes + frame.len() + FRAME_COST_BYTES;
            // A smaller frame may still fit after a dropped one; the two are repaired independently.
            if bytes > self.bytes_max {
                dropped += 1;
            } else {
                waiting.bytes = bytes;
                waiting.frames.push_back(frame);
            }
        }
        let waker = if waiting.frames.is_empty() { None } else { waiting.waker.take() };
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
        dropped
    }

    /// Returns the bytes charged for the queued frames.
    pub(crate) fn bytes(&self) -> usize {
        self.waiting.lock().bytes
    }
}

/// Counts of the data passed to connections.
#[derive(Default)]
pub(crate) struct SentCounts {
    pub bytes: AtomicU64,
    pub frames: AtomicU64,
}

/// The body of a request that never ends: the frames of a queue.
pub(crate) struct FrameBody {
    queue: Arc<SendQueue>,
    sent: Arc<SentCounts>,
    /// A long frame whose length was already sent.
    next: Option<Bytes>,
}

impl FrameBody {
    pub(crate) fn new(queue: Arc<SendQueue>, sent: Arc<SentCounts>) -> FrameBody {
        FrameBody { queue, sent, next: None }
    }

    /// Takes as many frames as fit into one write. If the piece ends with the length of a long frame, that frame is
    /// `next`.
    fn take_piece(&mut self, waiting: &mut Waiting) -> Bytes {
        let mut piece = BytesMut::with_capacity(waiting.bytes.min(PIECE_BYTES));
        while piece.len() + LENGTH_BYTES + COPIED_BYTES_MAX <= PIECE_BYTES {
            let Some(frame) = waiting.frames.pop_front() else { break };
            waiting.bytes -= frame.len() + FRAME_COST_BYTES;
            self.sent.bytes.fetch_add(frame.len() as u64, Ordering::Relaxed);
            self.sent.frames.fetch_add(1, Ordering::Relaxed);
            // Fits: settings limit a queue, and so a frame, to 32 bits.
            piece.put_u32(u32::try_from(frame.len()).unwrap_or(u32::MAX));
            if frame.len() > COPIED_BYTES_MAX {
                self.next = Some(frame);
                break;
            }
            piece.put_slice(&frame);
        }
        piece.freeze()
    }
}

impl Body for FrameBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let body = self.get_mut();
        if let Some(frame) = body.next.take() {
            return Poll::Ready(Some(Ok(Frame::data(frame))));
        }
        let queue = Arc::clone(&body.queue);
        let mut waiting = queue.waiting.lock();
        if waiting.frames.is_empty() {
            waiting.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(Some(Ok(Frame::data(body.take_piece(&mut waiting)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deframer::Deframer;

    fn pieces(body: &mut FrameBody) -> Vec<Bytes> {
        let mut context = Context::from_waker(Waker::noop());
        let mut pieces = Vec::new();
        while let Poll::Ready(piece) = Pin::new(&mut *body).poll_frame(&mut context) {
            pieces.push(piece.expect("it never ends").expect("infallible").into_data().expect("no trailers"));
        }
        pieces
    }

    #[test]
    fn small_frames_leave_in_one_write_and_long_ones_are_not_copied() {
        let queue = Arc::new(SendQueue::new(1 << 20));
        let sent = Arc::new(SentCounts::default());
        let mut body = FrameBody::new(Arc::clone(&queue), Arc::clone(&sent));
        let long = Bytes::from(vec![9; 300_000]);
        let mut frames = (0..100_u8).map(|number| Bytes::from(vec![number; 50])).collect::<Vec<_>>();
        frames.push(long.clone());
        frames.push(Bytes::new());
        assert_eq!(queue.push(frames.clone()), 0);
        let pieces = pieces(&mut body);
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces[1].as_ptr(), long.as_ptr());
        assert_eq!(queue.bytes(), 0);
        assert_eq!(sent.bytes.load(Ordering::Relaxed), 100 * 50 + 300_000);
        assert_eq!(sent.frames.load(Ordering::Relaxed), 102);
        let mut deframer = Deframer::new(1 << 20);
        let mut received = Vec::new();
        for mut piece in pieces {
            while let Some(frame) = deframer.next(&mut piece).expect("short enough") {
                received.push(frame);
            }
        }
        assert_eq!(received, frames);
    }

    #[test]
    fn a_full_queue_takes_nothing_until_something_was_sent() {
        let queue = Arc::new(SendQueue::new(2 * (10 + FRAME_COST_BYTES)));
        let frame = Bytes::from_static(&[0; 10]);
        assert_eq!(queue.push(vec![frame.clone(), frame.clone()]), 0);
        assert_eq!(queue.push(vec![Bytes::new()]), 1);
        let mut body = FrameBody::new(Arc::clone(&queue), Arc::default());
        assert_eq!(pieces(&mut body).len(), 1);
        assert_eq!(queue.push(vec![frame.clone(), frame.clone(), frame]), 1, "the third one finds no room");
        assert_eq!(pieces(&mut body).len(), 1);
    }
}
