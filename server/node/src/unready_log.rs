//! Log lines of a node that is not ready for long: nothing else may be logged while it waits for other nodes.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tribunal_service::NodeApi;

use crate::service::NodeService;

/// How long the node may be unready without a line.
const FIRST_AFTER: Duration = Duration::from_secs(10);
/// When the line is repeated for the first time.
const SECOND_AFTER: Duration = Duration::from_secs(60);
/// Interval of further lines.
const EVERY: Duration = Duration::from_secs(600);
/// Interval at which readiness is queried.
const POLL: Duration = Duration::from_secs(1);

/// How long a node has been unready, and how often that was logged.
#[derive(Debug, Default)]
struct Unready {
    since: Option<Instant>,
    lines: u32,
}

/// What is to be logged.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Unready(Duration),
    Ready,
}

impl Unready {
    fn observe(&mut self, is_ready: bool, now: Instant) -> Option<Line> {
        if is_ready {
            let lines = std::mem::take(self).lines;
            return (lines > 0).then_some(Line::Ready);
        }
        let elapsed = now.saturating_duration_since(*self.since.get_or_insert(now));
        let due = match self.lines {
            0 => FIRST_AFTER,
            1 => SECOND_AFTER,
            lines => EVERY * (lines - 1),
        };
        (elapsed >= due).then(|| {
            self.lines += 1;
            Line::Unready(elapsed)
        })
    }
}

/// Logs why the node is not ready, until it ends.
pub fn watch(service: &Arc<NodeService>, runtime: &Handle) {
    let service: Weak<NodeService> = Arc::downgrade(service);
    runtime.spawn(async move {
        let mut unready = Unready::default();
        loop {
            tokio::time::sleep(POLL).await;
            let Some(service) = service.upgrade() else { return };
            let readiness = service.readiness(true);
            match unready.observe(readiness.ready, Instant::now()) {
                Some(Line::Unready(elapsed)) => {
                    let (seconds, reasons) = (elapsed.as_secs(), readiness.reasons.join("; "));
                    tracing::warn!(seconds, reasons, "the node is not ready");
                }
                Some(Line::Ready) => tracing::info!("the node is ready"),
                None => {}
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_stays_unready_is_logged_soon_and_then_rarely() {
        let (mut unready, begun) = (Unready::default(), Instant::now());
        let mut lines = Vec::new();
        for second in 0..3_000 {
            // Unready, ready for a moment after 5 s, ready at the end.
            let is_ready = second == 5 || second >= 2_000;
            match unready.observe(is_ready, begun + Duration::from_secs(second)) {
                Some(Line::Unready(elapsed)) => lines.push((second, elapsed.as_secs())),
                Some(Line::Ready) => lines.push((second, 0)),
                None => {}
            }
        }
        assert_eq!(lines, [(16, 10), (66, 60), (606, 600), (1_206, 1_200), (1_806, 1_800), (2_000, 0)]);
    }
}
