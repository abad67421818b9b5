//! State images: the rows of a store at a position of its log, from which a copy starts.

use std::time::Instant;

use tribunal_api::{StateKind, StateLine};
use tribunal_types::{LogId, Lsn, Version};

use crate::line_stream::{LineStream, StreamLine};
use crate::{Client, Error, StoredValue, wire};

/// The state of a store at a position of its log, read as it arrives. The log continues after [`StateImage::lsn`]:
///
/// ```no_run
/// # async fn example(client: tribunal_client::Client) -> Result<(), tribunal_client::Error> {
/// use std::collections::BTreeMap;
///
/// let mut copy = BTreeMap::new();
/// let mut image = client.state("kv").await?;
/// while let Some(row) = image.next().await? {
///     copy.insert(row.key, row.value);
/// }
/// let mut log = client.log("kv", image.lsn()).of_log(image.log_id());
/// loop {
///     for write in log.follow().await?.writes {
///         // Apply it to `copy`; an `add` adds to the value that the row has.
///     }
/// }
/// # }
/// ```
///
/// Dropping the image ends the stream.
pub struct StateImage {
    client: Client,
    store: String,
    kind: StateKind,
    lsn: Lsn,
    log: LogId,
    count: u64,
    rest: Rest,
}

/// What remains to be read of an image.
enum Rest {
    Stream(LineStream<StateLine>),
    /// Every row was returned.
    Nothing,
    /// The image has failed.
    Missing,
}

/// A row of a state image.
#[derive(Clone, Debug, PartialEq)]
pub struct StateRow {
    /// Key.
    pub key: Vec<u8>,
    /// Value.
    pub value: StoredValue,
    /// Version.
    pub version: Version,
}

impl StreamLine for StateLine {
    const STREAM: &'static str = "state image";

    fn parsed(text: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice(text)
            .map_err(|error| Error::misbehaved(format!("a line of the state image cannot be parsed: {error}")))
    }
}

impl Client {
    /// Requests the state of a store, to start a copy of it, or to restart one after `log_truncated`, `log_replaced` or
    /// `position_beyond_head`. Retries while the service is unavailable, within the client's
    /// [`RetryPolicy`](crate::RetryPolicy), for at most its `timeout`.
    ///
    /// # Errors
    /// [`Error::ClientMistake`] with code `unknown_store`, or `state_gone` if the store is only its log, which is no
    /// longer complete at any endpoint that answers; see [`Error`].
    pub async fn state(&self, store: &str) -> Result<StateImage, Error> {
        let path = format!("/v1/stores/{}/state", wire::percent_encoded(store.as_bytes()));
        let deadline = Instant::now() + self.timeout();
        let mut failed = 0;
        loop {
            let error = match self.state_by(&path, deadline).await {
                Err(error @ Error::Unavailable { .. }) => error,
                done => return done,
            };
            failed += 1;
            let Error::Unavailable { retry_after, .. } = &error else { return Err(error) };
            match self.retry().wait(failed, *retry_after) {
                Some(wait) if Instant::now() + wait < deadline => tokio::time::sleep(wait).await,
                _ => return Err(error),
            }
        }
    }

    /// Opens an image and reads its first line, until the deadline.
    async fn state_by(&self, path: &str, deadline: Instant) -> Result<StateImage, Error> {
        let left = deadline.saturating_duration_since(Instant::now());
        let opened = LineStream::<StateLine>::open(self, path, left, self.timeout()).await;
        let mut stream = opened.map_err(|not_opened| not_opened.error)?;
        let line = match tokio::time::timeout_at(deadline.into(), stream.line()).await {
            Ok(line) => line,
            Err(_) => {
                let text = "the state image did not begin in time".to_owned();
                Err(Error::Unavailable { text, retry_after: None })
            }
        };
        let first = line.inspect_err(|error| self.stream_lost(&stream, error))?;
        let (Some("state"), Some(store), Some(kind), Some(lsn), Some(log)) =
            (first.event.as_deref(), first.store, first.kind, first.lsn, first.log)
        else {
            return Err(Error::misbehaved("the first line of a state image names no position of a log"));
        };
        let (lsn, log) = (wire::lsn(&lsn)?, wire::log_id(&log)?);
        Ok(StateImage { client: self.clone(), store, kind, lsn, log, count: 0, rest: Rest::Stream(stream) })
    }

    /// Records that the endpoint of a stream failed, if it did.
    fn stream_lost(&self, stream: &LineStream<StateLine>, error: &Error) {
        if matches!(error, Error::Unavailable { .. }) {
            self.connection().failed(stream.endpoint());
        }
    }
}

impl StateImage {
    /// Returns the name of the store.
    #[must_use]
    pub fn store(&self) -> &str {
        &self.store
    }

    /// Returns where the rows are: only an image of kind [`StateKind::Rows`] contains rows.
    #[must_use]
    pub fn kind(&self) -> StateKind {
        self.kind
    }

    /// Returns the position of the log that the rows reflect: where [`Client::log`] continues.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Returns the log that the position belongs to, for [`LogReader::of_log`](crate::LogReader::of_log).
    #[must_use]
    pub fn log_id(&self) -> LogId {
        self.log
    }

    /// Returns the next row, in no particular order; `None` once all of them were returned. Cancel safe: dropping the
    /// future loses no row.
    ///
    /// # Errors
    /// Rows are missing: request the state again. See [`Error`].
    pub async fn next(&mut self) -> Result<Option<StateRow>, Error> {
        loop {
            let stream = match &mut self.rest {
                Rest::Stream(stream) => stream,
                Rest::Nothing => return Ok(None),
                Rest::Missing => {
                    return Err(Error::misuse(
                        "the state image has failed, and has no further rows: request another one",
                    ));
                }
            };
            let line = stream.line().await.inspect_err(|error| self.client.stream_lost(stream, error));
            match line.and_then(|line| self.take(line)) {
                Ok(Step::Row(row)) => return Ok(Some(row)),
                Ok(Step::End) => self.rest = Rest::Nothing,
                Ok(Step::Further) => {}
                Err(error) => {
                    self.rest = Rest::Missing;
                    return Err(error);
                }
            }
        }
    }

    fn take(&mut self, line: StateLine) -> Result<Step, Error> {
        match line.event.as_deref() {
            None => {
                self.count += 1;
                row_of(line).map(Step::Row)
            }
            Some("end") => match line.rows {
                Some(rows) if wire::number(&rows)? == self.count => Ok(Step::End),
                rows => {
                    let stated = rows.unwrap_or_else(|| "no number".to_owned());
                    Err(Error::misbehaved(format!("a state image with {} rows that states {stated}", self.count)))
                }
            },
            Some("failed") => Err(match line.problem {
                Some(problem) => Error::of_problem(problem),
                None => Error::misbehaved("a state image has failed without a problem document"),
            }),
            // An event of a newer service.
            Some(_) => Ok(Step::Further),
        }
    }
}

/// The effect of a line.
enum Step {
    Row(StateRow),
    Further,
    End,
}

fn row_of(line: StateLine) -> Result<StateRow, Error> {
    let key = wire::key_of(line.key, line.key_b64)?;
    let value = wire::value_of(line.value, line.value_b64)?;
    let (Some(key), Some(value), Some(version)) = (key, value, line.version) else {
        return Err(Error::misbehaved("a row of a state image without a key, value or version"));
    };
    Ok(StateRow { key, value: StoredValue::new(value), version: wire::version(&version)? })
}
