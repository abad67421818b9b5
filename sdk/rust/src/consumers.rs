//! Offsets that the service stores for consumers of the log.

use hyper::Method;
use tribunal_api::{ConsumerInfo, ConsumerList, OffsetRequest};
use tribunal_types::{LogId, Lsn};

use crate::answer::{NoAnswer, read};
use crate::{Client, Error, wire};

/// A consumer's position in a store's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// Position of the last record that the consumer has processed.
    pub lsn: Lsn,
    /// The log that the position belongs to; pass it to [`LogReader::of_log`](crate::LogReader::of_log).
    pub log: LogId,
}

impl Client {
    /// Returns all consumers, with their offsets and lag.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn consumers(&self) -> Result<Vec<ConsumerInfo>, Error> {
        let list: ConsumerList = read(&self.ask(Method::GET, "/v1/consumers", None::<&()>, 0).await?)?;
        Ok(list.consumers)
    }

    /// Returns a consumer's offset in a store's log; `None` if it has none there.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn offset(&self, consumer: &str, store: &str) -> Result<Option<Offset>, Error> {
        let known = self.consumers().await?.into_iter().find(|known| known.name == consumer);
        let at = known.and_then(|known| known.offsets.into_iter().find(|at| at.store == store));
        at.map(|at| Ok(Offset { lsn: wire::lsn(&at.lsn)?, log: wire::log_id(&at.log)? })).transpose()
    }

    /// Sets a consumer's offset: it has processed every record up to and including `lsn`. `log` is the log that `lsn`
    /// belongs to, if known ([`LogReader::log_id`](crate::LogReader::log_id)). Durable on return. After
    /// [`Error::Unavailable`] it is unknown whether the offset was set, because no other endpoint gets what one may still
    /// take: set it again.
    ///
    /// # Errors
    /// [`Error::ClientMistake`] if `lsn` is past the end of the log, or `log` is not the service's log
    /// (`log_replaced`); see [`Error`].
    pub async fn set_offset(
        &self,
        consumer: &str,
        store: &str,
        lsn: Lsn,
        log: Option<LogId>,
    ) -> Result<ConsumerInfo, Error> {
        let log = log.map(|log| log.to_string());
        let request = OffsetRequest { store: store.to_owned(), lsn: lsn.to_string(), log };
        let answer = self.exchange(Method::PUT, &path(consumer)?, Some(&request), 0, None).await?;
        read(&answer.map_err(|lost| {
            let unknown = if lost.never_sent { "" } else { "; the offset may have been set" };
            Error::of_no_answer(NoAnswer { text: lost.text + unknown, ..lost })
        })?)
    }

    /// Removes a consumer, so that the log is no longer retained for it.
    ///
    /// # Errors
    /// [`Error::ClientMistake`] with code `unknown_consumer` if there is none; see [`Error`].
    pub async fn forget_consumer(&self, consumer: &str) -> Result<(), Error> {
        let answer = self.ask(Method::DELETE, &path(consumer)?, None::<&()>, 0).await?;
        if answer.status.is_success() { Ok(()) } else { read(&answer) }
    }
}

fn path(consumer: &str) -> Result<String, Error> {
    Ok(format!("/v1/consumers/{}", wire::segment("name of the consumer", consumer)?))
}
