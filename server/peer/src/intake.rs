//! Frames from one peer on one lane: from one connection at a time, and no more than the node processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tribunal_types::NodeId;

use crate::events::{PeerEvents, Received};
use crate::settings::{FRAME_COST_BYTES, Lane};

/// One lane of one peer.
pub(crate) struct Intake {
    from: NodeId,
    lane: Lane,
    room: Arc<Semaphore>,
    /// The connection that may deliver.
    current: watch::Sender<Current>,
    received_bytes: AtomicU64,
    received_frames: AtomicU64,
    received_at: Mutex<Option<Instant>>,
}

#[derive(Clone, Copy, Default)]
struct Current {
    /// Raised by every accepted connection, and by [`Intake::close`].
    number: u64,
    open: bool,
}

impl Intake {
    pub(crate) fn new(from: NodeId, lane: Lane, unprocessed_bytes_max: usize) -> Intake {
        Intake {
            from,
            lane,
            room: Arc::new(Semaphore::new(unprocessed_bytes_max)),
            current: watch::Sender::default(),
            received_bytes: AtomicU64::default(),
            received_frames: AtomicU64::default(),
            received_at: Mutex::default(),
        }
    }

    /// Allows a connection to deliver, and no older one.
    pub(crate) fn accept(self: &Arc<Intake>) -> Delivery {
        let mut number = 0;
        self.current.send_modify(|current| {
            number = current.number + 1;
            *current = Current { number, open: true };
        });
        let mut current = self.current.subscribe();
        current.mark_unchanged();
        Delivery { intake: Arc::clone(self), number, current }
    }

    /// Allows no connection to deliver.
    pub(crate) fn close(&self) {
        self.current.send_modify(|current| *current = Current { number: current.number + 1, open: false });
    }

    pub(crate) fn is_accepted(&self) -> bool {
        self.current.borrow().open
    }

    pub(crate) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn received_frames(&self) -> u64 {
        self.received_frames.load(Ordering::Relaxed)
    }

    pub(crate) fn received_at(&self) -> Option<Instant> {
        *self.received_at.lock()
    }
}

/// A connection's right to deliver, until a newer one takes over or the peer is removed.
pub(crate) struct Delivery {
    intake: Arc<Intake>,
    number: u64,
    current: watch::Receiver<Current>,
}

impl Delivery {
    /// Completes when this connection may no longer deliver.
    pub(crate) async fn replaced(&mut self) {
        let number = self.number;
        // Never fails: the sender is in the intake that this delivery holds.
        let _ = self.current.wait_for(|current| current.number != number).await;
    }

    /// Notes that the peer is alive.
    pub(crate) fn note_received(&self) {
        *self.intake.received_at.lock() = Some(Instant::now());
    }

    /// Waits until the node has processed enough frames, then delivers. Returns whether the connection may continue.
    pub(crate) async fn deliver(&mut self, frame: Bytes, events: &dyn PeerEvents) -> bool {
        let intake = Arc::clone(&self.intake);
        // Fits: settings limit a queue to 32 bits, and a frame to a queue.
        let cost = u32::try_from(frame.len() + FRAME_COST_BYTES).unwrap_or(u32::MAX);
        let acquired = tokio::select! {
            biased;
            acquired = Arc::clone(&intake.room).acquire_many_owned(cost) => acquired,
            () = self.replaced() => return false,
        };
        let Ok(room) = acquired else { return false };
        // Held during the delivery: when a newer connection is accepted, this one has delivered its last frame.
        let current = intake.current.borrow();
        if current.number != self.number {
            return false;
        }
        intake.received_bytes.fetch_add(frame.len() as u64, Ordering::Relaxed);
        intake.received_frames.fetch_add(1, Ordering::Relaxed);
        events.received(Received { from: intake.from, lane: intake.lane, frame, _room: room });
        true
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        let number = self.number;
        self.intake.current.send_if_modified(|current| {
            if current.number == number {
                current.open = false;
            }
            false
        });
    }
}
