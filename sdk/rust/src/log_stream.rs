//! The NDJSON stream of a store's log. Reads from the connection only when a line is requested, so a slow reader slows down
//! the stream, and memory stays bounded.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tribunal_api::{LogEvent, LogRecord};

use crate::client::read;
use crate::connection::{Connection, NoAnswer, Sent, within};
use crate::{ClientOptions, Error};

/// Interval of heartbeats to request from the service, which may choose a shorter one, in milliseconds.
const HEARTBEAT_MS: u64 = 5_000;
/// Maximum length of a line. A record is at most as long as a request, 10 MiB, plus its frame.
const LINE_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A stream of a log.
pub(crate) struct LogStream {
    body: Incoming,
    /// How long to wait for anything, heartbeats included.
    silence_max: Duration,
    /// Bytes received.
    buffer: Vec<u8>,
    /// How many of them belong to lines that were returned.
    taken: usize,
}

/// One line.
pub(crate) enum Line {
    Record(LogRecord),
    Event(LogEvent),
}

/// The field that distinguishes events from records.
#[derive(Deserialize)]
struct Kind {
    #[serde(default)]
    event: Option<serde::de::IgnoredAny>,
}

impl LogStream {
    /// Opens a stream. `query` is that of the request, without the heartbeats.
    pub(crate) async fn open(connection: &Connection, options: &ClientOptions, query: &str) -> Result<Self, Error> {
        let path = format!("/v1/log?{query}&heartbeat_ms={HEARTBEAT_MS}");
        let timeout = options.timeout;
        let sent = Sent { method: Method::GET, path: &path, body: None, traceparent: None, timeout };
        match connection.open(sent, "application/x-ndjson").await.map_err(Error::of_no_answer)? {
            Ok(body) => {
                let silence_max = timeout + Duration::from_millis(HEARTBEAT_MS);
                Ok(LogStream { body, silence_max, buffer: Vec::new(), taken: 0 })
            }
            Err(answer) => match read::<serde::de::IgnoredAny>(&answer) {
                Ok(_) => Err(Error::misbehaved(format!("status {} for a stream", answer.status))),
                Err(error) => Err(error),
            },
        }
    }

    /// Returns the next line. Cancel safe.
    pub(crate) async fn line(&mut self) -> Result<Line, Error> {
        let end = loop {
            if let Some(length) = self.whole() {
                break self.taken + length;
            }
            self.more().await?;
        };
        let line = &self.buffer[self.taken..end];
        let parsed = match is_event(line)? {
            true => Line::Event(parsed(line)?),
            false => Line::Record(parsed(line)?),
        };
        self.taken = end + 1;
        Ok(parsed)
    }

    /// Returns whether another record has arrived.
    pub(crate) fn has_record(&self) -> bool {
        let mut rest = &self.buffer[self.taken..];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            // An invalid line is reported when it is requested.
            if !is_event(&rest[..end]).unwrap_or(false) {
                return true;
            }
            rest = &rest[end + 1..];
        }
        false
    }

    /// Returns the length of the next line if it is complete.
    fn whole(&self) -> Option<usize> {
        self.buffer[self.taken..].iter().position(|byte| *byte == b'\n')
    }

    async fn more(&mut self) -> Result<(), Error> {
        if self.buffer.len() - self.taken > LINE_BYTES_MAX {
            return Err(Error::misbehaved(format!("a line of the log has more than {LINE_BYTES_MAX} bytes")));
        }
        let frame = async { Ok(self.body.frame().await) };
        let lost = match within(self.silence_max, frame).await {
            Ok(Some(Ok(frame))) => {
                self.buffer.drain(..std::mem::take(&mut self.taken));
                if let Ok(bytes) = frame.into_data() {
                    self.buffer.extend_from_slice(&bytes);
                }
                return Ok(());
            }
            Ok(Some(Err(error))) => NoAnswer::lost(error.to_string()),
            Ok(None) => NoAnswer::lost("the log stream was interrupted".to_owned()),
            Err(silent) => silent,
        };
        Err(Error::of_no_answer(lost))
    }
}

fn is_event(line: &[u8]) -> Result<bool, Error> {
    parsed::<Kind>(line).map(|kind| kind.event.is_some())
}

fn parsed<T: DeserializeOwned>(line: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(line).map_err(|e| Error::misbehaved(format!("a line of the log cannot be parsed: {e}")))
}
