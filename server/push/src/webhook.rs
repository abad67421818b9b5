//! Posts a store's log to a webhook: both the adaptor and the transport of a [`Pusher`](crate::Pusher).
//!
//! Requests are signed: `tribunal-signature: t=SECONDS,v1=HEX` with HEX = HMAC-SHA256(secret, SECONDS "." body). A
//! request goes to an address that the egress policy has checked, follows no redirects, and ends within its timeout
//! whatever the receiver does. A 2xx response acknowledges the records; with the header `tribunal-watermark` it may
//! state that the receiver is at another LSN, where the push then resumes if the log has it. The node stores the
//! watermark, so a receiver may get duplicate records; it recognizes them by their LSN.
//!
//! Statuses: 2xx means applied; 408, 425, 429 and 5xx are retried; 410 stops the push immediately; any other status
//! rejects the records, which are then posted one by one, and the push stops at a record that is rejected again. A
//! retry waits for the delay in the header `retry-after`, up to a limit.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response, Uri};
use parking_lot::Mutex;
use ring::hmac;
use tokio::time::timeout;
use tribunal_types::{Ack, Command, HttpCall, Lsn, PushRequest, RecordBatch, RecordHead, StorageReply};

use crate::http_connection::{HttpConnection, Target};
use crate::pusher::TRACE_HEADER;
use crate::{Adaptor, AdaptorFault, EgressPolicy, Pending, StorageDurability, Transport, TransportError};

/// Maximum size of an error response's text that is read and shown.
const ANSWER_BYTES_MAX: usize = 512;
/// Header with the signature.
pub const SIGNATURE_HEADER: &str = "tribunal-signature";
/// Response header with the last record that the receiver has.
pub const WATERMARK_HEADER: &str = "tribunal-watermark";
const FIRST_HEADER: &str = "tribunal-first-lsn";
const LAST_HEADER: &str = "tribunal-last-lsn";

/// Stores a receiver's watermark, as the push has acknowledged it to its [`AckSink`](crate::AckSink).
pub trait WatermarkStore: Send + Sync + 'static {
    /// Returns the last record that the receiver acknowledged.
    fn watermark(&self) -> Lsn;
}

/// Encodes records as the body of a request.
pub type BodyWriter = Arc<dyn Fn(&RecordBatch) -> Vec<u8> + Send + Sync>;

/// The parts of a webhook.
#[derive(Clone)]
pub struct WebhookParts {
    /// URL to post to; its address is checked when connecting.
    pub url: String,
    /// Key that signs the bodies.
    pub secret: String,
    /// Timeout of one request, including connecting.
    pub timeout: Duration,
    /// Addresses that may be connected to.
    pub egress: EgressPolicy,
    /// Encodes bodies.
    pub body: BodyWriter,
    /// Stores the watermark.
    pub watermark: Arc<dyn WatermarkStore>,
}

/// A webhook: implements both [`Adaptor`] and [`Transport`].
pub struct Webhook {
    parts: WebhookParts,
    target: Target,
    key: hmac::Key,
    connection: tokio::sync::Mutex<Option<HttpConnection>>,
    /// Position stated by the receiver, until it has acknowledged later records. The push decides whether the log has
    /// this position: until then nothing is stored.
    told: Mutex<Option<Lsn>>,
    /// Text of the receiver's 410 response. Reported once, so that a resumed push tries again.
    gone: Mutex<Option<String>>,
    /// Delay requested by the receiver's last response, until the push has read it.
    retry_after: Mutex<Option<Duration>>,
}

/// First byte of the raw replies that the transport passes to the adaptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Said {
    Watermark,
    Applied,
    Later,
    Moved,
    Refused,
}

impl Webhook {
    /// Creates a webhook. Connects when there is something to post.
    ///
    /// # Errors
    /// If the URL is invalid.
    pub fn new(parts: WebhookParts) -> Result<Webhook, String> {
        let target = Target::of(&parts.url)?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, parts.secret.as_bytes());
        let (connection, told) = (tokio::sync::Mutex::default(), Mutex::default());
        let (gone, retry_after) = (Mutex::default(), Mutex::default());
        Ok(Webhook { parts, target, key, connection, told, gone, retry_after })
    }

    /// Resolves the receiver's name and checks its addresses.
    ///
    /// # Errors
    /// [`TransportError::Refused`] if an address is not allowed; [`TransportError::Broken`] if there is none.
    pub async fn check(&self) -> Result<(), TransportError> {
        let ms = u64::try_from(self.parts.timeout.as_millis()).unwrap_or(u64::MAX);
        let resolved = timeout(self.parts.timeout, self.parts.egress.resolve(&self.target.endpoint)).await;
        resolved.map_err(|_| TransportError::Timeout { ms })?.map(drop)
    }

    /// Posts one body. Returns the status, watermark and beginning of the text of the response.
    async fn post(&self, call: HttpCall) -> Result<(u16, Option<String>, String), TransportError> {
        let request = self.request(call)?;
        let mut slot = self.connection.lock().await;
        let reused = slot.take().filter(HttpConnection::is_ready);
        let mut connection = match reused {
            Some(connection) => connection,
            None => HttpConnection::open(&self.target, &self.parts.egress).await?,
        };
        let response = connection.send(request).await?;
        let status = response.status().as_u16();
        let watermark = response.headers().get(WATERMARK_HEADER).map(|value| value.to_str().unwrap_or("?").to_owned());
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| delay_of(value.to_str().ok()?));
        *self.retry_after.lock() = retry_after.filter(|_| is_temporary(status));
        let (text, whole) = beginning(response).await?;
        if whole {
            *slot = Some(connection);
        }
        Ok((status, watermark, text))
    }

    fn request(&self, call: HttpCall) -> Result<Request<Full<Bytes>>, TransportError> {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut request = Request::post(&self.target.path)
            .header(HOST, &self.target.authority)
            .header(USER_AGENT, concat!("tribunal/", env!("CARGO_PKG_VERSION")))
            .header(CONTENT_TYPE, "application/json")
            .header(SIGNATURE_HEADER, signature(&self.key, seconds, &call.body));
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        let body = Full::new(Bytes::from(call.body));
        request.body(body).map_err(|error| TransportError::Broken(format!("the request cannot be made: {error}")))
    }

    /// Interprets a response, and notes the position stated by the receiver.
    fn meaning(&self, status: u16, watermark: Option<&str>, text: &str, last: Lsn) -> (Said, String) {
        let answered = || if text.is_empty() { status.to_string() } else { format!("{status}: {text}") };
        match (status, watermark) {
            (200..=299, None) => {
                *self.told.lock() = None;
                (Said::Applied, String::new())
            }
            (200..=299, Some(told)) => match told.parse::<u64>().map(Lsn) {
                Ok(told) => {
                    let elsewhere = (told != last).then_some(told);
                    *self.told.lock() = elsewhere;
                    let moved = format!("the receiver is at LSN {told}, not {last}");
                    if elsewhere.is_none() { (Said::Applied, String::new()) } else { (Said::Moved, moved) }
                }
                Err(_) => (Said::Later, format!("the receiver's header {WATERMARK_HEADER} is not an LSN")),
            },
            (status, _) if is_temporary(status) => (Said::Later, format!("the receiver answered {}", answered())),
            (410, _) => {
                let text = format!(
                    "the receiver answered {} and has thereby unsubscribed; `tribunal store resume` subscribes it again",
                    answered()
                );
                *self.gone.lock() = Some(text.clone());
                (Said::Moved, text)
            }
            (300..=399, _) => (
                Said::Refused,
                format!("the receiver answered {status}: redirects are not followed; register the final URL"),
            ),
            _ => (
                Said::Refused,
                format!(
                    "the receiver answered {}; once it accepts the records, resume with `tribunal store resume`; to leave out the \
                     record at which the webhook stops, register it again with that LSN as `after` (`tribunal webhook set --after`)",
                    answered()
                ),
            ),
        }
    }
}

/// Returns whether a receiver that responds with this status may accept the same records later.
fn is_temporary(status: u16) -> bool {
    matches!(status, 408 | 425 | 429 | 500..=599)
}

/// Returns the delay in a header `retry-after`: a number of seconds, or a date.
fn delay_of(value: &str) -> Option<Duration> {
    let value = value.trim();
    let seconds = value.parse().map(Duration::from_secs);
    seconds.ok().or_else(|| httpdate::parse_http_date(value).ok()?.duration_since(SystemTime::now()).ok())
}

/// Returns the signature of a body: `t=SECONDS,v1=HEX`.
fn signature(key: &hmac::Key, seconds: u64, body: &[u8]) -> String {
    let mut context = hmac::Context::with_key(key);
    context.update(seconds.to_string().as_bytes());
    context.update(b".");
    context.update(body);
    let hex: String = context.sign().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={seconds},v1={hex}")
}

/// Reads the beginning of a response. Also returns whether that was the complete body, so that the connection can be
/// reused.
async fn beginning(response: Response<Incoming>) -> Result<(String, bool), TransportError> {
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while bytes.len() < ANSWER_BYTES_MAX {
        match body.frame().await {
            None => return Ok((shown(&bytes), true)),
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    bytes.extend_from_slice(&data[..data.len().min(ANSWER_BYTES_MAX)]);
                }
            }
            Some(Err(error)) => return Err(TransportError::Broken(format!("the response ended early: {error}"))),
        }
    }
    Ok((shown(&bytes), false))
}

/// Returns the text of a response as one line that is safe to show.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(ANSWER_BYTES_MAX)]);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

fn said(said: Said, payload: &[u8]) -> StorageReply {
    StorageReply::Raw([&[said as u8], payload].concat())
}

impl Transport for Webhook {
    fn connect(&self) -> Pending<'_, Result<StorageDurability, TransportError>> {
        Box::pin(async {
            *self.connection.lock().await = None;
            Ok(StorageDurability::Unknown)
        })
    }

    fn send(&self, command: Command) -> Pending<'_, Result<StorageReply, TransportError>> {
        Box::pin(async move {
            let call = match command {
                Command::Http(call) => call,
                Command::Raw(_) => {
                    let told = *self.told.lock();
                    let at = told.unwrap_or_else(|| self.parts.watermark.watermark());
                    return Ok(said(Said::Watermark, &at.0.to_be_bytes()));
                }
                _ => return Err(TransportError::WrongCommand("a webhook takes HTTP requests only")),
            };
            let last = call.headers.iter().find(|(name, _)| name == LAST_HEADER);
            let last = Lsn(last.and_then(|(_, value)| value.parse().ok()).unwrap_or(0));
            let limit = self.parts.timeout;
            let ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
            // A timeout drops the connection together with the request in flight.
            let answer = timeout(limit, self.post(call)).await.map_err(|_| TransportError::Timeout { ms })?;
            let (status, watermark, text) = answer?;
            let (kind, text) = self.meaning(status, watermark.as_deref(), &text, last);
            Ok(said(kind, text.as_bytes()))
        })
    }

    fn retry_after(&self) -> Option<Duration> {
        self.retry_after.lock().take()
    }
}

impl Adaptor for Webhook {
    fn if_ahead(&self) -> &'static str {
        "Bring the receiver to a state of the store (/v1/stores/{store}/state), and register it again with `after`"
    }

    fn if_truncated(&self, oldest: Lsn) -> String {
        format!(
            "Bring the receiver to a state of the store (/v1/stores/{{store}}/state), and register it again with `after`, {} or later",
            oldest.0.saturating_sub(1)
        )
    }

    fn watermark(&self) -> Result<PushRequest, AdaptorFault> {
        if let Some(text) = self.gone.lock().take() {
            return Err(AdaptorFault { text });
        }
        let command = Command::Raw(Vec::new());
        Ok(PushRequest { first: Lsn(0), last: Lsn(0), idempotency_key: String::new(), command })
    }

    fn read_watermark(&self, reply: &StorageReply) -> Result<Lsn, AdaptorFault> {
        match reply {
            StorageReply::Raw(bytes) if bytes.first() == Some(&(Said::Watermark as u8)) => {
                let lsn = bytes[1..].try_into().map(u64::from_be_bytes);
                lsn.map(Lsn).map_err(|_| AdaptorFault::new("a watermark has 8 bytes"))
            }
            _ => Err(AdaptorFault::new("the reply is not a watermark")),
        }
    }

    fn encode(&self, records: &RecordBatch) -> Result<Vec<PushRequest>, AdaptorFault> {
        let Some((first, last)) = records.bounds() else { return Ok(Vec::new()) };
        let mut headers =
            vec![(FIRST_HEADER.to_owned(), first.to_string()), (LAST_HEADER.to_owned(), last.to_string())];
        headers.extend(traceparent(records).map(|traceparent| (TRACE_HEADER.to_owned(), traceparent.to_owned())));
        let body = (self.parts.body)(records);
        let call = HttpCall { method: "POST".into(), path: self.target.path.to_string(), headers, body };
        let idempotency_key = format!("{first}-{last}");
        Ok(vec![PushRequest { first, last, idempotency_key, command: Command::Http(call) }])
    }

    fn classify(&self, reply: &StorageReply) -> Ack {
        let StorageReply::Raw(bytes) = reply else { return Ack::Fatal("the reply is not one of a webhook".into()) };
        let text = || String::from_utf8_lossy(bytes.get(1..).unwrap_or_default()).into_owned();
        match bytes.first() {
            Some(kind) if *kind == Said::Applied as u8 => Ack::Ok,
            Some(kind) if *kind == Said::Later as u8 => Ack::Retry(text()),
            Some(kind) if *kind == Said::Moved as u8 => Ack::Moved(text()),
            _ => Ack::Fatal(text()),
        }
    }
}

impl Target {
    fn of(url: &str) -> Result<Target, String> {
        let uri: Uri = url.parse().map_err(|error| format!("`{url}` is not a URL: {error}"))?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(format!("`{url}` does not begin with https:// or http://")),
        };
        let authority = uri.authority().ok_or_else(|| format!("`{url}` has no host"))?;
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let host = authority.host().to_owned();
        Ok(Target {
            tls,
            endpoint: format!("{host}:{port}"),
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            authority: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }
}

/// Returns the trace that a post continues, if all of its records share one. A post cannot continue several traces; the
/// body contains the trace of each record, and the push's watch may give the post a span that links to all of them.
fn traceparent(records: &RecordBatch) -> Option<&str> {
    let of = |record: &RecordHead| str::from_utf8(record.traceparent.of(&records.bytes)).ok();
    let mut all = records.records.iter().filter_map(of).filter(|traceparent| !traceparent.is_empty());
    let first = all.next()?;
    all.all(|other| other == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tribunal_types::{Csn, Epoch, Span, TxnId, Version};

    #[test]
    fn the_signature_can_be_verified_with_openssl() {
        // printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac 0123456789abcdef
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"0123456789abcdef");
        let expected = include_str!("../tests/webhook-signature.txt").trim();
        assert_eq!(signature(&key, 1_700_000_000, b"{\"a\":1}"), format!("t=1700000000,v1={expected}"));
    }

    #[test]
    fn a_delay_is_a_number_of_seconds_or_a_time() {
        assert_eq!(delay_of(" 120 "), Some(Duration::from_secs(120)));
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(600));
        let delay = delay_of(&later).expect("a time in the future").as_secs();
        assert!((590..=600).contains(&delay), "{delay}");
        for none in ["", "soon", "-1", "1.5", "Sun, 06 Nov 1994 08:49:37 GMT"] {
            assert_eq!(delay_of(none), None, "{none}");
        }
    }

    #[test]
    fn a_post_continues_the_common_trace_of_its_records() {
        let mut batch = RecordBatch::default();
        assert_eq!(traceparent(&batch), None);
        for (text, goes_on) in [
            ("", None),
            ("00-a-b-01", Some("00-a-b-01")),
            ("", Some("00-a-b-01")),
            ("00-a-b-01", Some("00-a-b-01")),
            ("00-c-d-01", None),
        ] {
            let traceparent = Span::push(&mut batch.bytes, text.as_bytes());
            batch.records.push(RecordHead {
                lsn: Lsn(1),
                epoch: Epoch(1),
                csn: Csn::default(),
                version: Version::new(Epoch(1), 0).expect("fits"),
                txn_id: TxnId::default(),
                writes_end: 0,
                traceparent,
            });
            assert_eq!(super::traceparent(&batch), goes_on);
        }
    }

    #[test]
    fn urls_are_split_into_targets() {
        let of = |url| Target::of(url).map(|t| (t.tls, t.endpoint, t.host, t.authority, t.path));
        let whole = |tls, endpoint: &str, host: &str, authority: &str, path: &str| {
            Ok((tls, endpoint.to_owned(), host.to_owned(), authority.to_owned(), path.to_owned()))
        };
        assert_eq!(of("https://a.example/x?y=1"), whole(true, "a.example:443", "a.example", "a.example", "/x?y=1"));
        assert_eq!(of("http://[::1]:8080"), whole(false, "[::1]:8080", "::1", "[::1]:8080", "/"));
        assert!(of("ftp://a").is_err() && of("/x").is_err());
    }

    #[test]
    fn a_receiver_past_truncation_is_registered_again() {
        let watermark: Arc<dyn WatermarkStore> = Arc::new(Nothing);
        let (url, secret) = ("http://127.0.0.1:9/".to_owned(), "0123456789abcdef".to_owned());
        let (timeout, egress) = (Duration::from_secs(1), EgressPolicy::default());
        let parts = WebhookParts { url, secret, timeout, egress, body: Arc::new(|_| Vec::new()), watermark };
        let told = Webhook::new(parts).expect("a URL").if_truncated(Lsn(225));
        assert!(told.contains("with `after`, 224 or later") && !told.contains("attach"), "{told}");
    }

    struct Nothing;

    impl WatermarkStore for Nothing {
        fn watermark(&self) -> Lsn {
            Lsn(0)
        }
    }

    #[test]
    fn the_text_of_a_response_is_shown_as_one_short_line() {
        let long = format!("a\r\nb\u{1b}[31m{}", "x".repeat(2 * ANSWER_BYTES_MAX));
        let line = shown(long.as_bytes());
        assert!(line.starts_with("a  b [31m") && line.len() <= ANSWER_BYTES_MAX, "{line}");
    }
}
