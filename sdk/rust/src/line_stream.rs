//! An NDJSON stream of a store's log, or of its state. Reads from the connection only when a line is requested that has
//! not arrived, so that a slow reader slows down the stream and memory stays bounded.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;

use crate::answer::{NoAnswer, read, within};
use crate::failover::Repeat;
use crate::sent::Sent;
use crate::{Client, Error};

/// Maximum length of a line. A record is at most as long as a request, 10 MiB, plus its frame.
const LINE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A line of a stream.
pub(crate) trait StreamLine: Sized {
    /// What is streamed, for errors.
    const STREAM: &'static str;

    /// Parses a line.
    fn parsed(text: &[u8]) -> Result<Self, Error>;
}

/// An open stream.
pub(crate) struct LineStream<L> {
    /// The endpoint that sends it.
    endpoint: usize,
    body: Incoming,
    /// Maximum time without any data, including heartbeats.
    silence_max: Duration,
    /// Start of the wait for the next frame, including cancelled calls.
    awaited_since: Option<Instant>,
    /// Lines that have arrived, of one frame. An invalid one is reported when it is requested.
    arrived: VecDeque<Result<L, Error>>,
    /// The beginning of the following line.
    begun: Vec<u8>,
}

/// Why a stream could not be opened.
pub(crate) struct NotOpened {
    pub error: Error,
    /// Whether the service itself responded.
    pub answered: bool,
}

impl<L: StreamLine> LineStream<L> {
    /// Opens a stream with a request that the endpoints must answer within `timeout`.
    pub(crate) async fn open(
        client: &Client,
        path: &str,
        timeout: Duration,
        silence_max: Duration,
    ) -> Result<Self, NotOpened> {
        let (wait, repeat) = (Duration::ZERO, Repeat::Always);
        let sent = Sent { method: Method::GET, path, body: None, traceparent: None, wait, timeout, repeat };
        match client.connection().open(&sent, "application/x-ndjson").await {
            Ok(Ok((endpoint, body))) => Ok(LineStream {
                endpoint,
                body,
                silence_max,
                awaited_since: None,
                arrived: VecDeque::new(),
                begun: Vec::new(),
            }),
            Ok(Err(answer)) => {
                let error = match read::<serde::de::IgnoredAny>(&answer) {
                    Ok(_) => Error::misbehaved(format!("status {} for a stream", answer.status)),
                    Err(error) => error,
                };
                Err(NotOpened { error, answered: answer.is_problem() })
            }
            Err(lost) => Err(NotOpened { answered: lost.answered, error: Error::of_no_answer(lost) }),
        }
    }

    pub(crate) fn endpoint(&self) -> usize {
        self.endpoint
    }

    /// Returns the next line. Cancel safe.
    pub(crate) async fn line(&mut self) -> Result<L, Error> {
        loop {
            if let Some(line) = self.arrived.pop_front() {
                return line;
            }
            self.more().await?;
        }
    }

    /// Returns the lines that have arrived and were not requested yet.
    pub(crate) fn arrived(&self) -> impl Iterator<Item = &Result<L, Error>> {
        self.arrived.iter()
    }

    /// Receives a frame.
    async fn more(&mut self) -> Result<(), Error> {
        let awaited = self.awaited_since.get_or_insert_with(Instant::now).elapsed();
        let frame = async { Ok(self.body.frame().await) };
        let arrived = within(self.silence_max.saturating_sub(awaited), frame).await;
        self.awaited_since = None;
        let lost = match arrived {
            Ok(Some(Ok(frame))) => return self.take(&frame.into_data().unwrap_or_default()),
            Ok(Some(Err(error))) => NoAnswer::lost(error.to_string()),
            Ok(None) => NoAnswer::lost(format!("the {} stream was interrupted", L::STREAM)),
            Err(_) => NoAnswer::lost(format!("nothing has arrived for {} ms", self.silence_max.as_millis())),
        };
        Err(Error::of_no_answer(lost))
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(&bytes[..end]);
            self.arrived.push_back(L::parsed(&self.begun));
            self.begun.clear();
            bytes = &bytes[end + 1..];
        }
        self.begun.extend_from_slice(bytes);
        if self.begun.len() > LINE_BYTES_MAX {
            return Err(Error::misbehaved(format!("a line of the {} has more than {LINE_BYTES_MAX} bytes", L::STREAM)));
        }
        Ok(())
    }
}
