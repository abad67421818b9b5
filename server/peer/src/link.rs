//! Frames to one peer: the queue of each lane's connection while there is one, and the handling of lost frames.
//!
//! The peer is reported unreachable once when frames may have been lost, and again only after further frames were
//! accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use parking_lot::Mutex;
use tribunal_types::NodeId;

use crate::events::PeerEvents;
use crate::send_queue::{SendQueue, SentCounts};
use crate::settings::Lane;
use crate::status::Problem;

/// A dialled peer.
pub(crate) struct Link {
    pub peer: NodeId,
    pub address: String,
    lanes: [LinkLane; 2],
    /// The problem that was last logged, while it persists.
    warned: Mutex<Option<String>>,
}

#[derive(Default)]
struct LinkLane {
    state: Mutex<LaneState>,
    sent: Arc<SentCounts>,
    dropped_count: AtomicU64,
}

#[derive(Default)]
struct LaneState {
    /// Queue of the connection that the peer accepted.
    queue: Option<Arc<SendQueue>>,
    reported: bool,
    last_problem: Option<Problem>,
}

/// The part of [`LaneStatus`](crate::LaneStatus) that a link knows.
pub(crate) struct LinkStatus {
    pub connected: bool,
    pub sent_bytes: u64,
    pub sent_frames: u64,
    pub queued_bytes: usize,
    pub dropped_count: u64,
    pub last_problem: Option<Problem>,
}

impl Link {
    pub(crate) fn new(peer: NodeId, address: String) -> Link {
        Link { peer, address, lanes: Default::default(), warned: Mutex::default() }
    }

    fn lane(&self, lane: Lane) -> &LinkLane {
        match lane {
            Lane::Heartbeat => &self.lanes[0],
            Lane::Bulk => &self.lanes[1],
        }
    }

    pub(crate) fn sent(&self, lane: Lane) -> Arc<SentCounts> {
        Arc::clone(&self.lane(lane).sent)
    }

    /// Queues frames; drops and reports those without room. Returns whether all were queued.
    pub(crate) fn send(&self, lane: Lane, frames: Vec<Bytes>, events: &dyn PeerEvents) -> bool {
        let lane = self.lane(lane);
        let mut state = lane.state.lock();
        let count = frames.len() as u64;
        let dropped = state.queue.as_ref().map_or(count, |queue| queue.push(frames));
        if dropped < count {
            state.reported = false;
        }
        if dropped == 0 {
            return true;
        }
        let was_reported = std::mem::replace(&mut state.reported, true);
        drop(state);
        lane.dropped_count.fetch_add(dropped, Ordering::Relaxed);
        if !was_reported {
            events.unreachable(self.peer);
        }
        false
    }

    /// Notes that the peer accepted a connection.
    pub(crate) fn opened(&self, lane: Lane, queue: Arc<SendQueue>) {
        let mut state = self.lane(lane).state.lock();
        (state.queue, state.reported) = (Some(queue), false);
        drop(state);
        if self.lanes.iter().all(|lane| lane.state.lock().queue.is_some()) && self.warned.lock().take().is_some() {
            tracing::info!("connected to node {} at {}", self.peer, self.address);
        }
    }

    /// Notes that there is no connection, and why. Frames queued on it are lost.
    pub(crate) fn closed(&self, lane: Lane, problem: String, events: &dyn PeerEvents) {
        let mut warned = self.warned.lock();
        if warned.as_ref() != Some(&problem) {
            tracing::warn!("{problem}");
            *warned = Some(problem.clone());
        }
        drop(warned);
        let mut state = self.lane(lane).state.lock();
        state.last_problem = Some(Problem { at: Instant::now(), reason: problem });
        let is_news = state.queue.take().is_some() && !std::mem::replace(&mut state.reported, true);
        drop(state);
        if is_news {
            events.unreachable(self.peer);
        }
    }

    /// Accepts no further frames, and reports nothing.
    pub(crate) fn stopped(&self, lane: Lane) {
        let problem = Problem { at: Instant::now(), reason: "this node has stopped".into() };
        *self.lane(lane).state.lock() = LaneState { queue: None, reported: true, last_problem: Some(problem) };
    }

    pub(crate) fn status(&self, lane: Lane) -> LinkStatus {
        let lane = self.lane(lane);
        let state = lane.state.lock();
        LinkStatus {
            connected: state.queue.is_some(),
            sent_bytes: lane.sent.bytes.load(Ordering::Relaxed),
            sent_frames: lane.sent.frames.load(Ordering::Relaxed),
            queued_bytes: state.queue.as_ref().map_or(0, |queue| queue.bytes()),
            dropped_count: lane.dropped_count.load(Ordering::Relaxed),
            last_problem: state.last_problem.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Received;

    #[derive(Default)]
    struct Reports(AtomicU64);

    impl PeerEvents for Reports {
        fn received(&self, _: Received) {}

        fn unreachable(&self, _: NodeId) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn removed(&self, _: NodeId) {}
    }

    /// Checks the number of reports and drops after each step.
    #[test]
    fn what_is_lost_is_reported_once() {
        let (link, events) = (Link::new(NodeId(2), "x:1".into()), Reports::default());
        let seen = || (events.0.load(Ordering::Relaxed), link.status(Lane::Bulk).dropped_count);
        let send = || link.send(Lane::Bulk, vec![Bytes::from_static(b"frame")], &events);
        assert!(!send() && !send());
        assert_eq!(seen(), (1, 2));
        link.opened(Lane::Bulk, Arc::new(SendQueue::new(100)));
        assert!(send() && !send() && !send());
        assert_eq!(seen(), (2, 4));
        link.closed(Lane::Bulk, "cut".into(), &events);
        assert_eq!(
            (seen(), link.status(Lane::Bulk).last_problem.expect("there is one").reason),
            ((2, 4), "cut".into())
        );
        link.opened(Lane::Bulk, Arc::new(SendQueue::new(100)));
        assert!(link.status(Lane::Bulk).connected);
        assert!(send());
        link.closed(Lane::Bulk, "cut".into(), &events);
        assert!(!send());
        assert_eq!(seen(), (3, 5));
        link.closed(Lane::Bulk, "still".into(), &events);
        assert_eq!(seen(), (3, 5));
    }
}
