//! Errors, grouped by who can act on them. A verdict is not an error, except at the end of
//! [`Client::run`](crate::Client::run).

use std::time::Duration;

use tribunal_api::Problem;

use crate::Aborted;
use crate::answer::NoAnswer;

/// An error of the client or the service.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request is wrong, and a retry would fail, too; `errors` of the problem has the details.
    #[error("{}: {}{}", .0.code, .0.detail, pointers(.0))]
    ClientMistake(Box<Problem>),
    /// Nothing was decided, and the same request may succeed later.
    #[error("tribunal is unavailable: {text}")]
    Unavailable {
        /// What happened.
        text: String,
        /// How long to wait before a retry, if the server gave a time.
        retry_after: Option<Duration>,
    },
    /// It is not known whether the transaction committed. [`Client::status`](crate::Client::status) requests its
    /// outcome by its id, and the same prepared commit may be sent again.
    #[error("the outcome of transaction {txn_id} is unknown: {text}; `Client::status` requests it")]
    OutcomeUnknown {
        /// The transaction.
        txn_id: String,
        /// What happened.
        text: String,
    },
    /// [`Client::run`](crate::Client::run) ended without a commit: the last abort was final, or no retries are left.
    #[error("{0}")]
    Aborted(Box<Aborted>),
    /// The server's response violates the API.
    #[error("unexpected response: {0}")]
    ServerMisbehaved(String),
    /// The client is used or configured in a way that cannot work.
    #[error("{0}")]
    Misuse(String),
}

impl Error {
    pub(crate) fn of_problem(problem: Problem) -> Self {
        if problem.retryable || problem.status >= 500 {
            // The preceding text already states this.
            let says_the_same = problem.code == "unavailable";
            Error::Unavailable {
                text: if says_the_same { problem.detail } else { format!("{}: {}", problem.code, problem.detail) },
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
        Error::Unavailable { text: lost.text, retry_after: lost.retry_after }
    }

    pub(crate) fn misuse(text: impl Into<String>) -> Self {
        Error::Misuse(text.into())
    }

    pub(crate) fn misbehaved(text: impl ToString) -> Self {
        Error::ServerMisbehaved(text.to_string())
    }
}

/// Lists the errors that the detail of a problem does not already contain.
fn pointers(problem: &Problem) -> String {
    let missing = problem.errors.iter().filter(|error| !problem.detail.contains(&error.detail));
    let errors: Vec<String> = missing.map(|error| format!("{}: {}", error.pointer, error.detail)).collect();
    if errors.is_empty() { String::new() } else { format!(" ({})", errors.join("; ")) }
}
