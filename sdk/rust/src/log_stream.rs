//! The NDJSON stream of a store's log. Reads from the connection only when a line is requested that has not arrived, so
//! that a slow reader slows down the stream and memory stays bounded.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use tribunal_api::{LogEvent, LogRecord};

use crate::client::read;
use crate::connection::{Connection, NoAnswer, Sent, within};
use crate::failover::Repeat;
use crate::{ClientOptions, Error};

/// Interval of heartbeats to request from the service, which may choose a shorter one, in milliseconds.
const HEARTBEAT_MS: u64 = 5_000;
/// Maximum length of a line. A record is at most as long as a request, 10 MiB, plus its frame.
const LINE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A stream of a log.
pub(crate) struct LogStream {
    /// The endpoint that sends it.
    endpoint: usize,
    body: Incoming,
    wait_ms: u32,
    /// Maximum time without any data, including heartbeats.
    silence_max: Duration,
    /// Start of the wait for the next frame, including cancelled calls.
    awaited_since: Option<Instant>,
    /// Lines that have arrived, of one frame. An invalid one is reported when it is requested.
    arrived: VecDeque<Result<Line, Error>>,
    /// The beginning of the following line.
    begun: Vec<u8>,
}

/// One line.
pub(crate) enum Line {
    Record(LogRecord),
    Event(LogEvent),
}

impl LogStream {
    /// Opens a stream. `query` is that of the request, without the wait and the heartbeats.
    pub(crate) async fn open(
        connection: &Connection,
        options: &ClientOptions,
        query: &str,
        wait_ms: u32,
    ) -> Result<Self, Error> {
        let path = format!("/v1/log?{query}&wait_ms={wait_ms}&heartbeat_ms={HEARTBEAT_MS}");
        let timeout = options.timeout;
        let (wait, repeat) = (Duration::ZERO, Repeat::Always);
        let sent = Sent { method: Method::GET, path: &path, body: None, traceparent: None, wait, timeout, repeat };
        match connection.open(&sent, "application/x-ndjson").await.map_err(Error::of_no_answer)? {
            Ok((endpoint, body)) => {
                let endpoints = u32::try_from(connection.endpoints().urls().len()).unwrap_or(u32::MAX);
                let silence_max = timeout / endpoints + Duration::from_millis(HEARTBEAT_MS);
                Ok(LogStream {
                    endpoint,
                    body,
                    wait_ms,
                    silence_max,
                    awaited_since: None,
                    arrived: VecDeque::new(),
                    begun: Vec::new(),
                })
            }
            Err(answer) => match read::<serde::de::IgnoredAny>(&answer) {
                Ok(_) => Err(Error::misbehaved(format!("status {} for a stream", answer.status))),
                Err(error) => Err(error),
            },
        }
    }

    pub(crate) fn endpoint(&self) -> usize {
        self.endpoint
    }

    /// Returns how long the service waits for a record before it ends the stream, in milliseconds.
    pub(crate) fn wait_ms(&self) -> u32 {
        self.wait_ms
    }

    /// Returns the next line. Cancel safe.
    pub(crate) async fn line(&mut self) -> Result<Line, Error> {
        loop {
            if let Some(line) = self.arrived.pop_front() {
                return line;
            }
            self.more().await?;
        }
    }

    /// Returns whether another record has arrived.
    pub(crate) fn has_record(&self) -> bool {
        self.arrived.iter().any(|line| !matches!(line, Ok(Line::Event(_))))
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
            Ok(None) => NoAnswer::lost("the log stream was interrupted".to_owned()),
            Err(_) => NoAnswer::lost(format!("nothing has arrived for {} ms", self.silence_max.as_millis())),
        };
        Err(Error::of_no_answer(lost))
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.begun.extend_from_slice(&bytes[..end]);
            self.arrived.push_back(parsed(&self.begun));
            self.begun.clear();
            bytes = &bytes[end + 1..];
        }
        self.begun.extend_from_slice(bytes);
        if self.begun.len() > LINE_BYTES_MAX {
            return Err(Error::misbehaved(format!("a line of the log has more than {LINE_BYTES_MAX} bytes")));
        }
        Ok(())
    }
}

fn parsed(line: &[u8]) -> Result<Line, Error> {
    // Most lines are records.
    let no_record = match serde_json::from_slice(line) {
        Ok(record) => return Ok(Line::Record(record)),
        Err(error) => error,
    };
    serde_json::from_slice(line)
        .map(Line::Event)
        .map_err(|_| Error::misbehaved(format!("a line of the log cannot be parsed: {no_record}")))
}
