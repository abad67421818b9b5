//! The endpoints of a service: the one in use, and those that failed recently. Sends nothing.
//!
//! One endpoint is in use until it fails. Then the client switches to the next one in the order of the list; an
//! endpoint that failed is skipped until its cool-down has passed, unless all of them have failed.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Error;

/// The endpoints of one service, all equal.
pub(crate) struct Endpoints {
    /// Not empty; each without a trailing `/`.
    urls: Vec<String>,
    /// How long an endpoint may take to respond while another one is untried.
    timeout: Duration,
    cool_down: Duration,
    state: Mutex<State>,
}

struct State {
    in_use: usize,
    failed_at: Vec<Option<Instant>>,
}

impl Endpoints {
    /// Splits comma-separated URLs. A URL that occurs twice counts once.
    ///
    /// # Errors
    /// [`Error::Misuse`] if there are none.
    pub(crate) fn new<'a>(
        urls: impl IntoIterator<Item = &'a str>,
        timeout: Duration,
        cool_down: Duration,
    ) -> Result<Self, Error> {
        let mut each: Vec<String> = Vec::new();
        for url in urls.into_iter().flat_map(|urls| urls.split(',')) {
            let url = url.trim().trim_end_matches('/').to_owned();
            if !each.contains(&url) {
                each.push(url);
            }
        }
        if each.is_empty() {
            return Err(Error::misuse("a client needs the URL of at least one endpoint"));
        }
        let state = Mutex::new(State { in_use: 0, failed_at: vec![None; each.len()] });
        Ok(Endpoints { urls: each, timeout, cool_down, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn urls(&self) -> &[String] {
        &self.urls
    }

    /// Returns how long an endpoint may take to respond while another one is untried.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns whether any allowed endpoint has not failed recently.
    pub(crate) fn has_rested(&self, is_allowed: impl Fn(usize) -> bool, now: Instant) -> bool {
        let state = self.state();
        (0..self.urls.len()).any(|at| is_allowed(at) && !self.cools(&state, at, now))
    }

    /// Returns the endpoint in use.
    pub(crate) fn in_use(&self) -> usize {
        self.state().in_use
    }

    /// Returns the allowed endpoint to try now: the one in use or the first one after it, preferably one that has not
    /// failed recently.
    pub(crate) fn choose(&self, is_allowed: impl Fn(usize) -> bool, now: Instant) -> Option<usize> {
        self.chosen(&self.state(), is_allowed, now)
    }

    fn chosen(&self, state: &State, is_allowed: impl Fn(usize) -> bool, now: Instant) -> Option<usize> {
        let count = self.urls.len();
        let in_turn = || (0..count).map(|n| (state.in_use + n) % count).filter(|at| is_allowed(*at));
        in_turn().find(|at| !self.cools(state, *at, now)).or_else(|| in_turn().next())
    }

    fn cools(&self, state: &State, at: usize, now: Instant) -> bool {
        state.failed_at[at].is_some_and(|failed| now.saturating_duration_since(failed) < self.cool_down)
    }

    /// Records that an endpoint failed: another one is in use from now on, if there is one.
    pub(crate) fn failed(&self, at: usize, now: Instant) {
        let mut state = self.state();
        state.failed_at[at] = Some(now);
        if state.in_use == at {
            state.in_use = self.chosen(&state, |other| other != at, now).unwrap_or(at);
        }
    }

    /// Records that an endpoint has responded. It is in use from now on if the present one has failed.
    pub(crate) fn works(&self, at: usize, now: Instant) {
        let mut state = self.state();
        state.failed_at[at] = None;
        if self.cools(&state, state.in_use, now) {
            state.in_use = at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COOL_DOWN: Duration = Duration::from_secs(10);
    const TIMEOUT: Duration = Duration::from_secs(2);

    fn three() -> Endpoints {
        Endpoints::new(["http://a:1/, http://b:2", "http://c:3,http://a:1"], TIMEOUT, COOL_DOWN).expect("URLs")
    }

    #[test]
    fn lists_and_strings_with_commas_name_endpoints() {
        assert_eq!(three().urls(), ["http://a:1", "http://b:2", "http://c:3"]);
        assert!(Endpoints::new([], TIMEOUT, COOL_DOWN).is_err());
    }

    #[test]
    fn the_next_one_is_in_use_after_a_failure_and_remains_so() {
        let (endpoints, now) = (three(), Instant::now());
        assert_eq!(endpoints.choose(|_| true, now), Some(0));
        endpoints.failed(0, now);
        assert_eq!(endpoints.in_use(), 1);
        endpoints.works(1, now);
        // An earlier request to the first endpoint is answered late.
        endpoints.works(0, now);
        assert_eq!(endpoints.choose(|_| true, now + 2 * COOL_DOWN), Some(1), "it stays");
    }

    #[test]
    fn one_that_failed_for_another_call_is_passed_over_until_its_cool_down_has_passed() {
        let (endpoints, now) = (three(), Instant::now());
        // For example, a log reader that is still connected to the second endpoint.
        endpoints.failed(1, now);
        assert_eq!(endpoints.in_use(), 0);
        endpoints.failed(0, now + COOL_DOWN / 2);
        assert_eq!(endpoints.in_use(), 2);
        endpoints.failed(2, now + COOL_DOWN);
        assert_eq!(endpoints.in_use(), 1, "unlike the first one, it has rested");
    }

    #[test]
    fn the_first_that_answers_is_in_use_after_all_have_failed() {
        let (endpoints, now) = (three(), Instant::now());
        (0..3).for_each(|at| endpoints.failed(at, now));
        endpoints.works(1, now);
        assert_eq!(endpoints.choose(|_| true, now), Some(1));
    }
}
