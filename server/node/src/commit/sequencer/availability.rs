//! Logs whether a member takes transactions: when it starts, stops and resumes.

use std::time::{Duration, Instant};

/// Shorter interruptions are not logged: an election, a node that hands over.
const TOLD_AFTER: Duration = Duration::from_secs(1);

/// The state last seen, and the state last logged.
#[derive(Debug, Default)]
pub(super) struct Availability {
    seen: Option<(bool, Instant)>,
    told: bool,
}

impl Availability {
    /// Records whether the member takes transactions now. Returns the state if it is to be logged.
    pub(super) fn note(&mut self, takes: bool, now: Instant) -> Option<bool> {
        let since = match self.seen {
            Some((seen, since)) if seen == takes => since,
            _ => now,
        };
        self.seen = Some((takes, since));
        let is_news = takes != self.told && now.duration_since(since) >= TOLD_AFTER;
        self.told ^= is_news;
        is_news.then_some(takes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lasts_is_told_and_only_once() {
        let begun = Instant::now();
        let mut availability = Availability::default();
        let mut told = |takes, ms| availability.note(takes, begun + Duration::from_millis(ms));
        assert_eq!([told(false, 0), told(false, 5_000)], [None, None], "it has not begun to");
        assert_eq!(
            [told(true, 5_010), told(true, 6_000), told(true, 6_010), told(true, 9_000)],
            [None, None, Some(true), None]
        );
        assert_eq!([told(false, 9_010), told(true, 9_500), told(true, 12_000)], [None, None, None], "an election");
        assert_eq!([told(false, 13_000), told(false, 14_000), told(false, 15_000)], [None, Some(false), None]);
        assert_eq!([told(true, 16_000), told(true, 17_000)], [None, Some(true)]);
    }
}
