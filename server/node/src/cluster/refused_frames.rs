//! Refused frames of other nodes: counted, and logged periodically.

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
    /// When the last warning was logged, and the number of refused frames then.
    warned: Option<(Instant, u64)>,
}

impl RefusedFrames {
    /// Records a refused frame.
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
        tracing::warn!("{}", refusal(from, reason, more));
    }

    /// Returns the number of refused frames of a node.
    #[must_use]
    pub fn count(&self, from: NodeId) -> u64 {
        self.0.lock().get(&from).map_or(0, |noted| noted.count)
    }
}

/// Describes the refused frame, and the remedy. `more` frames were refused since the previous warning.
fn refusal(from: NodeId, reason: &dyn Display, more: u64) -> String {
    let since = if more == 0 { String::new() } else { format!(", and {more} more since the last warning") };
    format!(
        "this node has refused a message of node {from}{since}: {reason}. Compare the releases of both nodes in `tribunal cluster \
         status`: if they differ, upgrade the older one; if they are equal, report this with the logs of both"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_names_the_sender_and_what_to_do() {
        let text = refusal(NodeId(2), &"it is malformed", 3);
        assert!(text.contains("a message of node 2, and 3 more since the last warning: it is malformed."), "{text}");
        assert!(text.contains("tribunal cluster status") && !refusal(NodeId(2), &"x", 0).contains("more"), "{text}");
    }

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
