//! What can go wrong, by who can do something about it. A verdict is never among them, except at the end of
//! [`Client::run`](crate::Client::run).

use std::time::Duration;

use tribunal_api::Problem;

use crate::Aborted;
use crate::connection::NoAnswer;

/// Why there is no decision, or no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request is wrong and will be wrong again: see `errors` of the problem.
    #[error("{}: {}{}", .0.code, .0.detail, pointers(.0))]
    ClientMistake(Box<Problem>),
    /// Nothing was decided; the same request may work later.
    #[error("tribunal is unavailable: {text}")]
    Unavailable {
        /// What happened.
        text: String,
        /// When to try again, if the server said so.
        retry_after: Option<Duration>,
    },
    /// The transaction may or may not have committed, and nobody could be asked. Ask for its status by its id.
    #[error("the outcome of transaction {txn_id} is unknown: {text}")]
    OutcomeUnknown {
        /// The transaction.
        txn_id: String,
        /// What happened.
        text: String,
    },
    /// The transaction aborted, for good or once too often.
    #[error("{0}")]
    Aborted(Box<Aborted>),
    /// The server's answer makes no sense to this client.
    #[error("unexpected answer: {0}")]
    ServerMisbehaved(String),
    /// The client was used in a way that cannot work.
    #[error("{0}")]
    Misuse(String),
}

impl Error {
    pub(crate) fn of_problem(problem: Problem) -> Self {
        if problem.retryable || problem.status >= 500 {
            Error::Unavailable {
                text: format!("{}: {}", problem.code, problem.detail),
                retry_after: problem.retry_after_ms.map(|ms| Duration::from_millis(ms.into())),
            }
        } else {
            Error::ClientMistake(Box::new(problem))
        }
    }

    pub(crate) fn of_no_answer(lost: NoAnswer) -> Self {
        if lost.hopeless {
            return Error::Misuse(lost.text);
        }
        Error::Unavailable { text: lost.text, retry_after: None }
    }

    pub(crate) fn misuse(text: impl Into<String>) -> Self {
        Error::Misuse(text.into())
    }

    pub(crate) fn misbehaved(text: impl ToString) -> Self {
        Error::ServerMisbehaved(text.to_string())
    }
}

fn pointers(problem: &Problem) -> String {
    let faults: Vec<String> = problem.errors.iter().map(|e| format!("{}: {}", e.pointer, e.detail)).collect();
    if faults.is_empty() { String::new() } else { format!(" ({})", faults.join("; ")) }
}
