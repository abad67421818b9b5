//! Receivers that the service posts the log of a store to.

use hyper::Method;
use tribunal_api::{PushInfo, PushRequest};

use crate::answer::read;
use crate::{Client, Error, wire};

impl Client {
    /// Registers the receiver of a store's log, or changes the registered one. Durable on return.
    ///
    /// # Errors
    /// [`Error::ClientMistake`] if the URL is not allowed, or `after` is not a position of the log; see [`Error`].
    pub async fn set_webhook(&self, store: &str, request: &PushRequest) -> Result<PushInfo, Error> {
        read(&self.ask(Method::PUT, &path(store), Some(request), 0).await?)
    }

    /// Returns the registered receiver of a store's log and its progress; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::ClientMistake`] if there is no such store; see [`Error`].
    pub async fn webhook(&self, store: &str) -> Result<Option<PushInfo>, Error> {
        match read(&self.ask(Method::GET, &path(store), None::<&()>, 0).await?) {
            Err(Error::ClientMistake(problem)) if problem.code == "push_unregistered" => Ok(None),
            found => found.map(Some),
        }
    }

    /// Deletes the receiver of a store's log.
    ///
    /// # Errors
    /// [`Error::ClientMistake`] with code `push_unregistered` if there is none; see [`Error`].
    pub async fn remove_webhook(&self, store: &str) -> Result<(), Error> {
        let answer = self.ask(Method::DELETE, &path(store), None::<&()>, 0).await?;
        if answer.status.is_success() { Ok(()) } else { read(&answer) }
    }
}

fn path(store: &str) -> String {
    format!("/v1/stores/{}/push", wire::percent_encoded(store.as_bytes()))
}
