//! Incoming connections: a listener, callers that are strangers until they are admitted, and peers whose frames are
//! read.
//!
//! A stranger has a few seconds, and there are at most a few dozen at once: the oldest makes room. So idle callers do
//! not block other callers, and admitted connections are limited to one for each peer and lane.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::server::TlsStream;

use crate::admission::{Admitted, Refusal, admit};
use crate::deframer::Deframer;
use crate::intake::Delivery;
use crate::reason_body::ReasonBody;
use crate::settings::Lane;
use crate::shared::Shared;
use crate::socket::{ArrivedAt, Socket};
use crate::task_scope::TaskScope;
use crate::tls_errors;

/// Maximum time until a caller's request is admitted.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of strangers at once.
const STRANGERS_MAX: usize = 64;
/// Time for the caller of an ending connection to read the reason.
const REASON_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause when the process has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Unread bytes in transit on each connection: enough for several entries of the largest size.
const WINDOW_BYTES: u32 = 8 << 20;
const HTTP_FRAME_BYTES_MAX: u32 = 256 << 10;
const HEAD_BYTES_MAX: u32 = 8 << 10;

/// Serves callers until `stop` is set.
pub(crate) async fn listen(shared: Arc<Shared>, listener: TcpListener, mut stop: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    let mut strangers = VecDeque::<Stranger>::new();
    loop {
        let accepted = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let (socket, from) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "node {} cannot accept connections of peers", shared.settings.node);
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        strangers.retain(|stranger| !stranger.task.is_finished() && !stranger.admitted.load(Ordering::Relaxed));
        if strangers.len() >= STRANGERS_MAX
            && let Some(oldest) = strangers.pop_front()
        {
            oldest.task.abort();
            let reason = format!(
                "node {} closes a connection from {} to its port for other nodes: too many callers, {STRANGERS_MAX}, have not shown \
                 yet that they are nodes of the cluster, and this one has had the longest time. Let only nodes reach this port",
                shared.settings.node,
                oldest.from.ip()
            );
            shared.refusals.note(oldest.from.ip(), reason);
        }
        let admitted = Arc::new(AtomicBool::new(false));
        let caller = serve(Arc::clone(&shared), socket, from, Arc::clone(&admitted));
        strangers.push_back(Stranger { from, task: connections.spawn(caller), admitted });
    }
    drop(listener);
    connections.shutdown().await;
}

struct Stranger {
    from: SocketAddr,
    task: AbortHandle,
    admitted: Arc<AtomicBool>,
}

/// An admitted request, and the frames that arrive on it.
struct Accepted {
    who: Admitted,
    delivery: Delivery,
    body: Incoming,
    /// Sends the reason that ends the response.
    reason: oneshot::Sender<String>,
}

async fn serve(shared: Arc<Shared>, socket: TcpStream, from: SocketAddr, admitted: Arc<AtomicBool>) {
    let here = shared.settings.node;
    let deadline = Instant::now() + STRANGER_TIMEOUT;
    let refuse = |why: &str| {
        let reason = format!(
            "node {here} refuses a connection from {} to its port for other nodes: {why}. If a node of the cluster runs there, \
             correct its certificate or its [cluster] settings; if none does, let only nodes reach this port",
            from.ip()
        );
        shared.refusals.note(from.ip(), reason);
    };
    let too_slow = || format!("it is not admitted after {STRANGER_TIMEOUT:?}");
    let socket = match timeout_at(deadline, secured(&shared, socket)).await {
        Ok(Ok(socket)) => socket,
        Ok(Err(why)) => return refuse(&why),
        Err(_) => return refuse(&too_slow()),
    };
    let Some(certificate) = caller_certificate(&socket) else {
        return refuse("it did not agree on HTTP/2; only nodes of the cluster can connect");
    };
    let (socket, _) = Socket::new(socket);
    let (accepted, mut accepting) = oneshot::channel();
    let caller = Arc::new(Caller {
        shared: Arc::clone(&shared),
        certificate,
        from: from.ip(),
        arrived_at: socket.arrived_at(),
        accepted: Mutex::new(Some(accepted)),
        is_answered: AtomicBool::new(false),
    });
    let answering = Arc::clone(&caller);
    let service = service_fn(move |request| {
        let response = answering.answer(request);
        async { Ok::<_, Infallible>(response) }
    });
    let (scope, _guard) = TaskScope::new();
    let mut running = std::pin::pin!(http(&shared, scope).serve_connection(TokioIo::new(socket), service));
    let mut accepted = tokio::select! {
        biased;
        accepted = &mut accepting => match accepted {
            Ok(accepted) => accepted,
            Err(_) => return,
        },
        ended = running.as_mut() => {
            // A refusal of its request has already been noted.
            if !caller.is_answered.load(Ordering::Relaxed) {
                refuse(&ended.err().map_or_else(|| "it closed the connection".into(), |error| error.to_string()));
            }
            return;
        }
        () = tokio::time::sleep_until(deadline) => return refuse(&too_slow()),
    };
    admitted.store(true, Ordering::Relaxed);
    let (reason, has_ended) = read_until_either_ends(&shared, &mut accepted, running.as_mut()).await;
    tracing::debug!("node {here} no longer reads from node {} ({:?}): {reason}", accepted.who.node, accepted.who.lane);
    drop(accepted.delivery);
    if !has_ended {
        let _ = accepted.reason.send(reason);
        running.as_mut().graceful_shutdown();
        let _ = timeout(REASON_TIMEOUT, running).await;
    }
}

/// Reads frames while the connection runs. Returns the reason why the frames end, and whether the connection has ended.
async fn read_until_either_ends(shared: &Shared, accepted: &mut Accepted, connection: impl Future) -> (String, bool) {
    let mut reading = std::pin::pin!(read(shared, &mut accepted.body, &mut accepted.delivery, &accepted.who));
    tokio::select! {
        biased;
        reason = &mut reading => (reason, false),
        // Read the data that has already arrived.
        _ = connection => (reading.await, true),
    }
}

/// Configures HTTP/2 for one long-lived request. Its lane is not known yet, so the pings are those of the bulk lane.
fn http(shared: &Shared, scope: TaskScope) -> http2::Builder<TaskScope> {
    let mut builder = http2::Builder::new(scope);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(shared.silent_after(Lane::Bulk) / 2)
        .keep_alive_timeout(shared.silent_after(Lane::Bulk) / 2)
        .max_concurrent_streams(1)
        .max_header_list_size(HEAD_BYTES_MAX)
        .max_frame_size(HTTP_FRAME_BYTES_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    builder
}

/// Performs the TLS handshake.
async fn secured(shared: &Shared, socket: TcpStream) -> Result<TlsStream<TcpStream>, String> {
    socket.set_nodelay(true).map_err(|error| error.to_string())?;
    let acceptor = TlsAcceptor::from(Arc::clone(&shared.identity.server));
    match acceptor.accept(socket).into_fallible().await {
        Ok(socket) => Ok(socket),
        Err((error, mut socket)) => {
            // Closing with unread bytes would reset the connection, and the caller might not read the alert with the
            // reason.
            let linger = async {
                let _ = socket.shutdown().await;
                let mut rest = [0; 1024];
                while socket.read(&mut rest).await.is_ok_and(|count| count > 0) {}
            };
            let _ = timeout(REASON_TIMEOUT, linger).await;
            Err(tls_errors::in_words(&error))
        }
    }
}

/// Returns the caller's certificate, if the caller agreed on HTTP/2.
fn caller_certificate(socket: &TlsStream<TcpStream>) -> Option<CertificateDer<'static>> {
    let (_, session) = socket.get_ref();
    session.alpn_protocol()?;
    session.peer_certificates()?.first().map(|certificate| certificate.clone().into_owned())
}

/// The caller of a connection.
struct Caller {
    shared: Arc<Shared>,
    certificate: CertificateDer<'static>,
    from: IpAddr,
    /// Time of the last arrival on its connection.
    arrived_at: ArrivedAt,
    /// Receives the admitted request: one for each connection.
    accepted: Mutex<Option<oneshot::Sender<Accepted>>>,
    is_answered: AtomicBool,
}

impl Caller {
    fn answer(&self, request: Request<Incoming>) -> Response<ReasonBody> {
        self.is_answered.store(true, Ordering::Relaxed);
        let (head, body) = request.into_parts();
        let answer = {
            let peers = self.shared.peers.read();
            let generation = *self.shared.generation.read();
            admit(&head, &self.certificate, &self.shared.settings, &peers, &self.shared.former.read(), generation)
        };
        let answer = answer.and_then(|who| self.accept(who, body));
        let (status, body) = match answer {
            Ok(body) => (StatusCode::OK, body),
            Err(Refusal { status, reason }) => {
                self.shared.refusals.note(self.from, reason.clone());
                (status, ReasonBody::now(reason))
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        response
    }

    fn accept(&self, who: Admitted, body: Incoming) -> Result<ReasonBody, Refusal> {
        let here = self.shared.settings.node;
        let refused = |reason| Refusal { status: StatusCode::CONFLICT, reason };
        let mut once = self.accepted.lock();
        if once.is_none() {
            return Err(refused(format!("node {here} reads one request of node {} for each connection", who.node)));
        }
        // Before the sender is taken: without the sender, the connection ends, and the caller would not learn why it is
        // refused.
        let delivery = self.shared.accept(&who, self.from, &self.arrived_at).map_err(refused)?;
        let (reason, later) = oneshot::channel();
        // If the connection ends at this moment, so does the delivery.
        if let Some(accepted) = once.take() {
            let _ = accepted.send(Accepted { who, delivery, body, reason });
        }
        Ok(ReasonBody::later(later))
    }
}

/// Delivers frames until the connection ends or is replaced. Returns the reason.
async fn read(shared: &Shared, body: &mut Incoming, delivery: &mut Delivery, who: &Admitted) -> String {
    let (here, peer) = (shared.settings.node, who.node);
    let replaced = || {
        if !shared.peers.read().contains_key(&peer) {
            return format!("node {here} no longer has node {peer} among its peers");
        }
        format!(
            "node {here} has a newer connection of node {peer}; if this repeats, two processes run as node {peer}: stop one of them"
        )
    };
    let mut deframer = Deframer::new(shared.settings.frame_bytes_max);
    loop {
        let next = tokio::select! {
            biased;
            () = delivery.replaced() => return replaced(),
            next = body.frame() => next,
        };
        let mut piece = match next {
            Some(Ok(frame)) => frame.into_data().unwrap_or_else(|_| Bytes::new()),
            Some(Err(error)) => return format!("node {here} cannot read from node {peer}: {error}"),
            None if deframer.is_between_frames() => return format!("node {peer} has ended its frames to node {here}"),
            None => return format!("node {peer} ended within a frame to node {here}"),
        };
        delivery.note_received();
        loop {
            match deframer.next(&mut piece) {
                Ok(Some(frame)) => {
                    if !delivery.deliver(frame, &*shared.events).await {
                        return replaced();
                    }
                }
                Ok(None) => break,
                Err(too_long) => {
                    let (announced, max) = (too_long.announced, shared.settings.frame_bytes_max);
                    let reason = format!(
                        "node {here} takes frames of at most {max} bytes, but node {peer} announces one of {announced}; run the \
                         same release on both"
                    );
                    tracing::warn!("{reason}");
                    return reason;
                }
            }
        }
    }
}
