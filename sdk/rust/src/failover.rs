//! One call over the endpoints of a service: where to send it next, for how long, and when to give up.
//!
//! With one endpoint, it is sent once. With several, it goes to the next one after a failure, in rounds; a request that
//! may have taken effect is repeated only if a repetition has no further effect. A reader whose records were truncated at
//! one endpoint is sent to the others, too, because each node truncates its own log. Invariant: no endpoint gets a call
//! more than [`ROUNDS_MAX`] times, and none after the deadline.

use std::time::{Duration, Instant};

use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use tribunal_api::Problem;

use crate::RetryPolicy;
use crate::answer::{Answer, NoAnswer};
use crate::endpoints::Endpoints;

/// Maximum number of times that one of several endpoints gets a call.
pub(crate) const ROUNDS_MAX: u32 = 2;

/// Statuses of refusals for size, which every endpoint would return.
const ABOUT_THE_REQUEST: [StatusCode; 3] =
    [StatusCode::PAYLOAD_TOO_LARGE, StatusCode::URI_TOO_LONG, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE];

/// Codes of what an endpoint no longer has, but another one may have.
const TRUNCATED: [&str; 2] = ["log_truncated", "state_gone"];

/// When a request may be sent again to another endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Only if it certainly was not accepted: a second one may have another effect.
    IfNotTaken,
    /// Always: it changes nothing, or repeats the same change.
    Always,
    /// Always: its transaction is decided once, by its id. If one copy may have been accepted, only a verdict reveals
    /// its outcome.
    Commit,
}

impl Repeat {
    /// Returns how a request may be repeated.
    pub(crate) fn of(method: &Method, path: &str) -> Self {
        let path = path.split('?').next().unwrap_or_default();
        match path.strip_prefix("/v1/txns") {
            Some(rest) if *method == Method::POST && rest.ends_with("commit") => Repeat::Commit,
            Some(_) => Repeat::Always,
            // The offset of a consumer: a copy that is taken late would undo a later one.
            None if path.starts_with("/v1/consumers/") => Repeat::IfNotTaken,
            None if *method == Method::GET || *method == Method::PUT || path.ends_with("/rows/read") => Repeat::Always,
            None => Repeat::IfNotTaken,
        }
    }
}

/// Why an endpoint did not respond to a request.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    text: String,
    /// Whether the request may have taken effect.
    pub maybe_taken: bool,
    /// Whether a retry on this endpoint cannot help.
    hopeless: bool,
    retry_after: Option<Duration>,
    /// Whether the endpoint works, but has not applied the required commits, despite waiting for them.
    lags: bool,
    /// Whether the service itself refused.
    answered: bool,
    /// Whether the service stopped before it answered: it decides no transaction then, but may still make another change.
    stops: bool,
}

impl Failure {
    /// Returns why a reply is not usable: the connection failed, the endpoint is unavailable, or another server
    /// responded.
    pub(crate) fn of_reply(reply: &Result<Answer, NoAnswer>) -> Option<Self> {
        match reply {
            Ok(Answer { foreign: Some(foreign), .. }) => Some(Failure::of_foreign(foreign)),
            Ok(answer) => {
                let problem = || serde_json::from_slice(&answer.body).ok();
                Failure::of_status(answer.status, problem)
            }
            Err(lost) => Some(Failure::of_lost(lost)),
        }
    }

    pub(crate) fn of_lost(lost: &NoAnswer) -> Self {
        let (text, hopeless) = (lost.text.clone(), lost.hopeless);
        Failure {
            text,
            maybe_taken: !lost.never_sent,
            hopeless,
            retry_after: lost.retry_after,
            lags: false,
            answered: lost.answered,
            stops: false,
        }
    }

    /// Returns the failure when another server responds in the endpoint's place, such as a proxy's login page.
    pub(crate) fn of_foreign(text: &str) -> Self {
        let text = text.to_owned();
        let (hopeless, answered) = (false, false);
        Failure { text, maybe_taken: true, hopeless, retry_after: None, lags: false, answered, stops: false }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the failure for a problem in place of one commit's outcome, if it is one.
    pub(crate) fn of_problem(problem: &Problem) -> Option<Self> {
        let status = StatusCode::from_u16(problem.status).ok()?;
        Failure::of_status(status, || Some(problem.clone()))
    }

    /// Returns the failure for a status. `overloaded` is a reply, not a failure: the same load would follow to the next
    /// endpoint.
    fn of_status(status: StatusCode, problem: impl FnOnce() -> Option<Problem>) -> Option<Self> {
        if status.is_success() {
            return None;
        }
        let problem = problem();
        // Without a problem document, the 503 is from an intermediary, which may have passed the request on.
        let refuses = status == StatusCode::SERVICE_UNAVAILABLE && problem.is_some();
        let maybe_taken = status.is_server_error() && !refuses;
        let answered = problem.is_some();
        let (hopeless, retry_after, lags, stops) = (false, None, false, false);
        let failure = |text| Failure { text, maybe_taken, hopeless, retry_after, lags, answered, stops };
        let Some(problem) = problem else {
            let is_the_same_elsewhere = ABOUT_THE_REQUEST.contains(&status);
            return (!is_the_same_elsewhere).then(|| failure(format!("status {status} without a problem document")));
        };
        let is_unavailable = matches!(status.as_u16(), 502..=504) && problem.retryable;
        (is_unavailable && problem.code != "overloaded").then(|| Failure {
            retry_after: problem.retry_after_ms.map(|ms| Duration::from_millis(ms.into())),
            lags: problem.code == "store_lagging",
            stops: problem.code == "stopping",
            ..failure(format!("{} {}: {}", status.as_u16(), problem.code, problem.detail))
        })
    }
}

/// The attempts of one call.
pub(crate) struct Failover<'e> {
    endpoints: &'e Endpoints,
    retry: RetryPolicy,
    repeat: Repeat,
    /// How long the request itself may wait.
    wait: Duration,
    deadline: Instant,
    /// The endpoint of the latest attempt.
    at: usize,
    tried: Vec<u32>,
    /// The latest failure of each endpoint.
    failures: Vec<Option<Failure>>,
    maybe_taken: bool,
    /// The first response of an endpoint that no longer has the records, and its problem.
    truncated: Option<(Answer, Problem)>,
}

impl<'e> Failover<'e> {
    /// Begins a call that may take `timeout`, in addition to the time that the request itself may wait.
    pub(crate) fn new(
        endpoints: &'e Endpoints,
        retry: RetryPolicy,
        repeat: Repeat,
        wait: Duration,
        timeout: Duration,
    ) -> Self {
        let (at, count) = (endpoints.in_use(), endpoints.urls().len());
        Failover {
            endpoints,
            retry,
            repeat,
            wait,
            deadline: Instant::now() + wait + timeout,
            at,
            tried: vec![0; count],
            failures: vec![None; count],
            maybe_taken: false,
            truncated: None,
        }
    }

    /// Returns whether there is only one endpoint.
    pub(crate) fn is_single(&self) -> bool {
        self.tried.len() == 1
    }

    /// Chooses the endpoint of the next attempt, after a wait if all endpoints had their turn. Returns the timeout of
    /// the attempt; `None` if no attempt is left.
    pub(crate) async fn next(&mut self) -> Option<Duration> {
        let rounds_max = if self.is_single() { 1 } else { ROUNDS_MAX };
        let round = self.tried.iter().copied().min().filter(|round| *round < rounds_max)?;
        if round > 0 && self.tried.iter().all(|tried| *tried == round || *tried == ROUNDS_MAX) {
            let asked = self.failures.iter().flatten().filter_map(|failure| failure.retry_after).min();
            let wait = self.retry.wait(round, asked)?;
            if Instant::now() + wait >= self.deadline {
                return None;
            }
            tokio::time::sleep(wait).await;
        }
        let now = Instant::now();
        let left = self.deadline.saturating_duration_since(now);
        let is_first = self.tried.iter().all(|tried| *tried == 0);
        if left.is_zero() && !is_first {
            return None;
        }
        self.at = self.endpoints.choose(|at| self.tried[at] == round, now)?;
        // Each endpoint that may still be tried in this round gets a share of the time.
        let others = self.tried.iter().filter(|tried| **tried == round).count();
        self.tried[self.at] += 1;
        if self.repeat == Repeat::IfNotTaken {
            return Some(left);
        }
        let share = left.saturating_sub(self.wait) / u32::try_from(others).unwrap_or(u32::MAX);
        let untried = |at: usize| self.tried[at] == 0;
        let share = match self.endpoints.has_rested(untried, now) {
            true => share.min(self.endpoints.timeout()),
            false => share,
        };
        Some((self.wait + share).min(left))
    }

    /// Returns the endpoint of the latest attempt.
    pub(crate) fn endpoint(&self) -> usize {
        self.at
    }

    pub(crate) fn url(&self) -> &'e str {
        &self.endpoints.urls()[self.at]
    }

    /// Returns whether an attempt may have taken effect.
    pub(crate) fn maybe_taken(&self) -> bool {
        self.maybe_taken
    }

    /// Records the end of the latest attempt. Returns whether its reply is the call's, without further attempts.
    pub(crate) fn is_over(&mut self, failure: Option<Failure>) -> bool {
        let now = Instant::now();
        let Some(failure) = failure else {
            self.endpoints.works(self.at, now);
            return true;
        };
        let is_in_doubt = failure.maybe_taken || failure.stops;
        let is_over = self.is_single() || self.repeat == Repeat::IfNotTaken && is_in_doubt;
        if failure.lags {
            self.tried[self.at] = ROUNDS_MAX;
        } else {
            self.endpoints.failed(self.at, now);
        }
        if !is_over {
            self.maybe_taken |= failure.maybe_taken;
        }
        self.failures[self.at] = Some(failure);
        is_over
    }

    /// Records whether the endpoint of the latest attempt no longer has the records, in which case another one may have them.
    pub(crate) fn is_truncated(&mut self, reply: &Result<Answer, NoAnswer>) -> bool {
        let Ok(answer) = reply else { return false };
        if self.is_single() || answer.status != StatusCode::GONE {
            return false;
        }
        let problem = serde_json::from_slice::<Problem>(&answer.body).ok();
        let Some(problem) = problem.filter(|problem| TRUNCATED.contains(&problem.code.as_str())) else { return false };
        self.endpoints.works(self.at, Instant::now());
        self.tried[self.at] = ROUNDS_MAX;
        self.failures[self.at] = None;
        self.truncated.get_or_insert_with(|| (answer.clone(), problem));
        true
    }

    /// Returns the reply of a call that no endpoint has answered otherwise: if one of them no longer has the records, its
    /// response, with the others that were not reached.
    pub(crate) fn nowhere(&mut self) -> Result<Answer, NoAnswer> {
        let Some((answer, mut problem)) = self.truncated.take() else { return Err(self.exhausted()) };
        problem.detail.push_str(&match self.failures() {
            failures if failures.is_empty() => "; none of this client's endpoints has enough of the log".to_owned(),
            failures => format!(
                "; none of this client's endpoints that answered has enough of the log, and these did not: {failures}"
            ),
        });
        let body = serde_json::to_vec(&problem).map_or(answer.body, Bytes::from);
        Ok(Answer { body, ..answer })
    }

    /// Returns the reply of the call, given the reply of its last attempt. A refusal does not reveal the outcome of a
    /// commit that another endpoint may have accepted earlier.
    pub(crate) fn reply(&self, reply: Result<Answer, NoAnswer>) -> Result<Answer, NoAnswer> {
        match &reply {
            Ok(answer) if self.repeat == Repeat::Commit && self.maybe_taken && !answer.status.is_success() => {
                let text = format!("{}: {}; before: {}", self.url(), answer.status, self.failures());
                Err(NoAnswer::lost(text))
            }
            _ => reply,
        }
    }

    /// Returns the result of the call when no attempt is left.
    pub(crate) fn exhausted(&self) -> NoAnswer {
        let failures = || self.failures.iter().flatten();
        NoAnswer {
            text: format!("no endpoint has answered: {}", self.failures()),
            never_sent: !self.maybe_taken,
            hopeless: failures().all(|failure| failure.hopeless),
            retry_after: failures().filter_map(|failure| failure.retry_after).min(),
            answered: failures().any(|failure| failure.answered),
        }
    }

    fn failures(&self) -> String {
        let texts: Vec<_> = self.failures.iter().map(|failure| Some(failure.as_ref()?.text.clone())).collect();
        listed(self.endpoints.urls(), &texts)
    }
}

/// Lists each endpoint that failed with its reason.
pub(crate) fn listed(urls: &[String], reasons: &[Option<String>]) -> String {
    let each = urls.iter().zip(reasons).filter_map(|(url, reason)| {
        let text = reason.as_deref()?;
        // Failures of a connection already name the endpoint.
        Some(if text.starts_with(url.as_str()) { text.to_owned() } else { format!("{url}: {text}") })
    });
    each.collect::<Vec<_>>().join("; ")
}
