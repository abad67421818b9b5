//! The information in the reply to a commit: its outcome, the certainty that there is none, or nothing certain. Sends
//! no requests.

use crate::answer::{Answer, read};
use crate::commit_batch::{Reply, Verdict};
use crate::wire_outcome::WireOutcome;
use crate::{Error, Outcome};

/// The information in the reply to a commit.
pub(crate) enum Told {
    /// Its outcome, or an error after which there will be none.
    Decided(Result<Outcome, Error>),
    /// The outcome is uncertain, for this reason: it must be requested by the id.
    Lost(String),
}

impl Told {
    pub(crate) fn of(reply: Reply) -> Told {
        match reply {
            Ok(Verdict::Response(answer)) if is_settled(&answer) => {
                let outcome = read(&answer).and_then(|outcome| decision(outcome, answer.replayed, answer.traceparent));
                // A refusal is not an outcome, whatever its form. After a success, the commit may have taken effect.
                Told::of_outcome(outcome, answer.status.is_success())
            }
            Ok(Verdict::Response(answer)) => Told::Lost(answer.refusal_text()),
            Ok(Verdict::Committed(committed)) => Told::Decided(Ok(Outcome::Committed(*committed))),
            Ok(Verdict::Line(outcome, traceparent)) => match outcome.problem.as_ref().map(|problem| problem.status) {
                Some(status) if !tells_outcome(status) => Told::Lost(format!("status {status}")),
                _ => {
                    let replayed = outcome.replayed.unwrap_or(false);
                    Told::of_outcome(decision(*outcome, replayed, traceparent), true)
                }
            },
            Err(lost) if lost.never_sent => Told::Decided(Err(Error::of_no_answer(lost))),
            Err(lost) => Told::Lost(lost.text),
        }
    }

    fn of_outcome(outcome: Result<Outcome, Error>, may_be_taken: bool) -> Told {
        match outcome {
            Err(Error::ServerMisbehaved(text)) if may_be_taken => Told::Lost(text),
            outcome => Told::Decided(outcome),
        }
    }
}

/// Returns whether a response to a commit has its outcome, or establishes that there is none. An error from a server
/// other than Tribunal, such as the 503 of a proxy whose connection broke, does not reveal whether the commit was
/// passed on.
pub(crate) fn is_settled(answer: &Answer) -> bool {
    tells_outcome(answer.status.as_u16()) && (!answer.status.is_server_error() || answer.is_problem())
}

/// Returns whether a status makes a request for the verdict unnecessary. 409: a commit with the same id is waiting for
/// it. The other statuses do not reveal whether the commit was accepted.
fn tells_outcome(status: u16) -> bool {
    !matches!(status, 409 | 500 | 502 | 504)
}

/// Returns the verdict.
///
/// # Errors
/// The problem in place of the verdict; [`Error::ServerMisbehaved`] if there is neither.
pub(crate) fn decision(outcome: WireOutcome, replayed: bool, traceparent: Option<String>) -> Result<Outcome, Error> {
    match outcome.problem {
        Some(problem) => Err(Error::of_problem(problem)),
        None => Outcome::of(outcome, replayed, traceparent),
    }
}
