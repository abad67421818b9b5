//! Frames of other nodes that were refused: counted, and logged now and then.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tribunal_types::NodeId;

/// Time between two warnings about one node.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Refused frames since the start, by sender.
#[derive(Default)]
pub struct RefusedFrames(Mutex<BTreeMap<NodeId, Noted>>);

#[derive(Default)]
struct Noted {
    count: u64,
    /// When the last warning was logged, and how many frames had been refused then.
    warned: Option<(Instant, u64)>,
}

impl RefusedFrames {
    /// Notes a frame that was refused.
    pub fn note(&self, from: NodeId, reason: &dyn Display) {
        let mut nodes = self.0.lock();
        let noted = nodes.entry(from).or_default();
        noted.count += 1;
        let before = match noted.warned {
            Some((at, _)) if at.elapsed() < WARNING_INTERVAL => return,
            warned => warned.map_or(0, |(_, count)| count),
        };
        noted.warned = Some((Instant::now(), noted.count));
        let more = noted.count - before - 1;
        drop(nodes);
        tracing::warn!(from = from.0, more, %reason, "a frame was refused; unless the reason tells why, check that both nodes run the same version");
    }

    /// Returns how many frames of a node were refused.
    #[must_use]
    pub fn count(&self, from: NodeId) -> u64 {
        self.0.lock().get(&from).map_or(0, |noted| noted.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_by_sender_and_warnings_are_rare() {
        let refused = RefusedFrames::default();
        (0..5).for_each(|_| refused.note(NodeId(2), &"late"));
        refused.note(NodeId(3), &"forged");
        let warned = |node| refused.0.lock()[&NodeId(node)].warned.map(|(_, count)| count);
        assert_eq!((warned(2), warned(3)), (Some(1), Some(1)), "the first of each");
        assert_eq!([1, 2, 3].map(|node| refused.count(NodeId(node))), [0, 5, 1]);
    }
}
