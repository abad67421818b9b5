//! Keeps one connection to one peer: dials, requests admission, sends queued frames, and redials when the connection
//! ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Buf;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::admission::{
    CLUSTER_HEADER, GENERATIONS_HEADER, LANE_HEADER, LOG_HEADER, NODE_HEADER, PATH, PROCESS_HEADER, VERSION,
    VERSION_HEADER,
};
use crate::identity::node_name;
use crate::link::Link;
use crate::send_queue::{FrameBody, SendQueue};
use crate::settings::Lane;
use crate::shared::Shared;
use crate::socket::Socket;
use crate::task_scope::TaskScope;
use crate::tls_errors;

/// Pauses between two attempts double from the first of these to the second.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Timeout of the TCP connection; the TLS handshake and the answer to the request have the second one each.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time to wait for the cause after a connection has failed.
const CAUSE_TIMEOUT: Duration = Duration::from_millis(100);
/// Maximum length of a peer's reason for a refusal.
const REASON_BYTES_MAX: usize = 1 << 10;

/// Keeps `link` connected on one lane; never returns.
pub(crate) async fn keep_connected(shared: &Shared, link: &Link, lane: Lane) {
    let mut pauses = Pauses::default();
    loop {
        let mut opened = None;
        let problem = connection(shared, link, lane, &mut opened).await;
        link.closed(lane, problem, &*shared.events);
        sleep(pauses.next(opened.map(|at: Instant| at.elapsed()))).await;
    }
}

/// The pauses between attempts.
#[derive(Default)]
struct Pauses {
    before: Option<Duration>,
}

impl Pauses {
    /// Returns the pause after a connection that lasted for `lasted`, or `None` if it was not made. A peer that accepts
    /// and closes is dialled no more often than one that refuses.
    fn next(&mut self, lasted: Option<Duration>) -> Duration {
        let before = self.before.filter(|_| lasted.is_none_or(|lasted| lasted < PAUSE_MAX));
        let pause = before.map_or(PAUSE_MIN, |before| (before * 2).min(PAUSE_MAX));
        self.before = Some(pause);
        pause
    }
}

/// Establishes a connection and sends on it until it ends. Returns the reason, in a sentence that names both sides.
async fn connection(shared: &Shared, link: &Link, lane: Lane, opened: &mut Option<Instant>) -> String {
    let (here, peer, address) = (shared.settings.node, link.peer, &link.address);
    let ended = match dial(shared, link).await {
        Ok(socket) => exchange(shared, link, lane, socket, opened).await,
        Err(error) => Ended::Failed(error),
    };
    match ended {
        Ended::Removed(reason) => {
            shared.events.removed(peer);
            format!("node {peer} at {address} refuses node {here}: {reason}")
        }
        Ended::Refused(reason) => format!("node {peer} at {address} refuses node {here}: {reason}"),
        Ended::Closed(reason) => format!("node {peer} at {address} closed the connection of node {here}: {reason}"),
        Ended::Failed(error) if opened.is_some() => {
            format!("node {here} lost its connection to node {peer} at {address}: {error}")
        }
        Ended::Failed(error) => format!("node {here} cannot connect to node {peer} at {address}: {error}"),
    }
}

/// The end of a connection, with the cause as text.
enum Ended {
    /// The peer reports that this node was removed.
    Removed(String),
    /// The peer did not admit this node.
    Refused(String),
    /// The peer admitted this node, and closed the connection later.
    Closed(String),
    /// The connection could not be made, or was lost.
    Failed(String),
}

async fn dial(shared: &Shared, link: &Link) -> Result<TlsStream<TcpStream>, String> {
    let socket = timeout(CONNECT_TIMEOUT, TcpStream::connect(&link.address))
        .await
        .map_err(|_| format!("no answer within {CONNECT_TIMEOUT:?}; is it running, and is this its address?"))?
        .map_err(|error| format!("{error}; is it running, and is this its address?"))?;
    socket.set_nodelay(true).map_err(|error| error.to_string())?;
    let name = ServerName::try_from(node_name(link.peer)).map_err(|error| error.to_string())?;
    let connector = TlsConnector::from(Arc::clone(&shared.identity.client));
    timeout(HANDSHAKE_TIMEOUT, connector.connect(name, socket))
        .await
        .map_err(|_| format!("its TLS handshake takes longer than {HANDSHAKE_TIMEOUT:?}"))?
        .map_err(|error| tls_errors::in_words(&error))
}

/// Runs HTTP/2 on a socket: one request, which lasts as long as the connection.
async fn exchange(
    shared: &Shared,
    link: &Link,
    lane: Lane,
    socket: TlsStream<TcpStream>,
    opened: &mut Option<Instant>,
) -> Ended {
    let silent_after = shared.silent_after(lane);
    let (socket, failure) = Socket::new(socket);
    let (scope, _guard) = TaskScope::new();
    let handshake = http2::Builder::new(scope)
        .timer(TokioTimer::new())
        .keep_alive_interval(silent_after / 2)
        .keep_alive_timeout(silent_after / 2)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(socket))
        .await;
    let (mut requests, running) = match handshake {
        Ok(made) => made,
        Err(error) => return Ended::Failed(in_words(&error)),
    };
    let queue = Arc::new(SendQueue::new(shared.settings.queue_bytes_max));
    let request = match request(shared, link, lane, FrameBody::new(Arc::clone(&queue), link.sent(lane))) {
        Ok(request) => request,
        Err(error) => return Ended::Failed(error.to_string()),
    };
    let asked = async {
        let response = match timeout(HANDSHAKE_TIMEOUT, requests.send_request(request)).await {
            Ok(response) => response?,
            Err(_) => return Ok(Ended::Failed(format!("no answer to its request within {HANDSHAKE_TIMEOUT:?}"))),
        };
        follow(link, lane, response, queue, opened).await
    };
    let (mut asked, mut running) = (std::pin::pin!(asked), std::pin::pin!(running));
    let mut cause = None;
    let ended = tokio::select! {
        biased;
        ended = &mut asked => ended,
        end = &mut running => {
            cause = end.err();
            // The request fails now, unless its answer gives a better reason.
            match timeout(CAUSE_TIMEOUT, &mut asked).await {
                Ok(ended) => ended,
                Err(_) => Ok(Ended::Failed("it ended the connection".into())),
            }
        }
    };
    let error = match ended {
        Ok(ended) => return ended,
        Err(error) => error,
    };
    if cause.is_none() && !error.is_timeout() {
        cause = timeout(CAUSE_TIMEOUT, &mut running).await.ok().and_then(Result::err);
    }
    if error.is_timeout() || cause.is_some_and(|cause| cause.is_timeout()) {
        return Ended::Failed(format!("it has been silent for {silent_after:?}"));
    }
    let failure = failure.lock().take();
    Ended::Failed(failure.unwrap_or_else(|| in_words(&error)))
}

fn request(
    shared: &Shared,
    link: &Link,
    lane: Lane,
    body: FrameBody,
) -> Result<Request<FrameBody>, hyper::http::Error> {
    Request::post(format!("https://{}{PATH}", node_name(link.peer)))
        .header(VERSION_HEADER, VERSION)
        .header(CLUSTER_HEADER, &shared.settings.cluster)
        .header(LOG_HEADER, &shared.settings.log)
        .header(NODE_HEADER, shared.settings.node.to_string())
        .header(LANE_HEADER, lane.name())
        .header(PROCESS_HEADER, &shared.process)
        .header(GENERATIONS_HEADER, shared.settings.generations.to_string())
        .body(body)
}

/// Sends until the peer's response ends.
async fn follow(
    link: &Link,
    lane: Lane,
    response: Response<Incoming>,
    queue: Arc<SendQueue>,
    opened: &mut Option<Instant>,
) -> Result<Ended, hyper::Error> {
    let status = response.status();
    let reason = read_reason(response.into_body());
    if status != StatusCode::OK {
        let reason = timeout(HANDSHAKE_TIMEOUT, reason).await.unwrap_or_else(|_| Ok(String::new()))?;
        let reason = if reason.is_empty() { format!("HTTP status {status}") } else { reason };
        return Ok(if status == StatusCode::GONE { Ended::Removed(reason) } else { Ended::Refused(reason) });
    }
    *opened = Some(Instant::now());
    link.opened(lane, queue);
    let reason = reason.await?;
    Ok(if reason.is_empty() { Ended::Failed("it ended the connection".into()) } else { Ended::Closed(reason) })
}

/// Reads a sentence to its end, with control characters replaced so that no part of it can be hidden.
async fn read_reason(mut body: Incoming) -> Result<String, hyper::Error> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let taken = data.remaining().min(REASON_BYTES_MAX - bytes.len());
        bytes.extend_from_slice(&data[..taken]);
        if bytes.len() == REASON_BYTES_MAX {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect())
}

/// Returns an error with its causes.
fn in_words(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_connection_has_lasted() {
        let mut pauses = Pauses::default();
        let millis = |pause: Duration| pause.as_millis();
        let short = Some(Duration::from_millis(999));
        let grown = [None, short, None, None, short, None, None].map(|lasted| millis(pauses.next(lasted)));
        assert_eq!(grown, [50, 100, 200, 400, 800, 1000, 1000]);
        assert_eq!(millis(pauses.next(Some(PAUSE_MAX))), 50);
        assert_eq!(millis(pauses.next(None)), 100);
    }
}
