//! The listener and the server loop: HTTP/1.1 and HTTP/2 with prior knowledge.
//!
//! Every resource that a client can hold is bounded: connections, the time to send a head, the idle time, streams and
//! header bytes. `axum::serve` sets none of these.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_rustls::TlsAcceptor;
use tribunal_service::Lane;

use crate::counters;
use crate::listener::begun_request::BegunRequest;
use crate::listener::connection::{Activity, WatchedIo};
use crate::listener::fast_path::{ConnectionContext, FastPath};
use crate::listener::http1_head::{FIELDS_MAX, HEAD_BYTES_MAX};
use crate::listener::lanes::{Lanes, Seat};
use crate::listener::open_connections::OpenConnections;
use crate::listener::options::{STREAMS_MAX, STREAMS_PER_CONNECTION_MAX, ServerOptions};
use crate::listener::tls::Socket;
use crate::listener::unread::StreamExecutor;

/// Bytes that a client may send of one body, and of all bodies of a connection, before they are read.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
// Commit streams that read nothing leave a whole window to other requests.
const _: () = assert!((STREAMS_PER_CONNECTION_MAX as u32 + 1) * STREAM_WINDOW_BYTES <= CONNECTION_WINDOW_BYTES);
/// Bytes of one response that a connection buffers, in addition to one piece of it.
const SEND_BUFFER_BYTES: usize = 32 * 1024;
/// Interval of pings to an HTTP/2 peer, and the time limit for the reply.
const PING: Duration = Duration::from_secs(20);
/// Connections that may wait to be accepted; the kernel has its own limit, usually as high.
const BACKLOG: u32 = 4096;
/// Interval of attempts to close an idle connection while there is no room for a new connection.
const EVICTION_INTERVAL: Duration = Duration::from_millis(50);
/// Delay when the process is out of file descriptors.
const ACCEPT_BACK_OFF: Duration = Duration::from_millis(50);
/// Pause between two warnings about that.
const ACCEPT_WARNED_EVERY: Duration = Duration::from_secs(10);

/// States of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShutdownState {
    Open,
    Draining,
    Closed,
}

/// Listens, with a backlog for all clients of a service that connect at once after a restart: with the usual backlog of
/// 128, the other clients would wait a second for each retry of their kernel.
///
/// # Errors
/// If the address is in use or not local.
///
/// # Panics
/// Outside a runtime.
pub fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // As listeners of the standard library do: a restart need not wait for the remains of old connections.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// The environment of connections, other than their sockets.
#[derive(Default)]
pub struct Carriers {
    /// Threads with connections of their own; without lanes, connections share the accepting threads.
    pub lanes: Option<Arc<Lanes>>,
    /// TLS, if connections are secured.
    pub tls: Option<TlsAcceptor>,
}

/// Serves until `shutdown` completes, then lets requests in flight finish within the grace period.
///
/// # Errors
/// Only if the listener itself fails permanently.
pub async fn serve(
    listener: TcpListener,
    fast_path: FastPath,
    options: ServerOptions,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    serve_on(Carriers::default(), listener, fast_path, options, shutdown).await
}

/// Serves like [`serve`], on lanes and over TLS if configured. A handshake has the time limit of a head, too.
///
/// # Errors
/// As for [`serve`].
pub async fn serve_on(
    carriers: Carriers,
    listener: TcpListener,
    fast_path: FastPath,
    options: ServerOptions,
    shutdown: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let permits = Arc::new(Semaphore::new(options.connections_max));
    let open = OpenConnections::default();
    let (shutdown_state, watched) = watch::channel(ShutdownState::Open);
    let builder = Arc::new(connection_builder(options.idle_timeout));
    let fast_path = Arc::new(fast_path);
    let mut warned_at: Option<Instant> = None;
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &permits, &open) => accepted,
        };
        let (socket, permit) = match accepted {
            Ok(accepted) => accepted,
            Err(error) if is_passing(&error) => continue,
            Err(error) => {
                if warned_at.is_none_or(|at| at.elapsed() >= ACCEPT_WARNED_EVERY) {
                    warned_at = Some(Instant::now());
                    tracing::warn!(
                        %error,
                        "cannot accept connections; trying again 20 times a second. If too many files are open, raise the \
                         process's limit (`ulimit -n`)"
                    );
                }
                tokio::time::sleep(ACCEPT_BACK_OFF).await;
                continue;
            }
        };
        let (builder, fast_path, watched) = (Arc::clone(&builder), Arc::clone(&fast_path), watched.clone());
        let tls = carriers.tls.clone();
        let activity = Arc::new(Activity::new());
        open.add(&activity);
        let serve = move |socket: TcpStream, seat: Option<Seat>| async move {
            counters::accepted();
            let lane = seat.as_ref().map(|seat| seat.lane);
            if let Some(socket) = secured(socket, tls, options.header_timeout, &activity, watched.clone()).await {
                connection(socket, lane, activity, &builder, fast_path, options, watched).await;
            }
            counters::ended();
            drop((permit, seat));
        };
        match carriers.lanes.as_ref().and_then(|lanes| lanes.seat()) {
            None => drop(tokio::spawn(serve(socket, None))),
            Some((lane, seat)) => {
                // Register the socket on its lane, which receives its readiness events.
                let Ok(socket) = socket.into_std() else { continue };
                lane.spawn(async move {
                    if let Ok(socket) = TcpStream::from_std(socket) {
                        serve(socket, Some(seat)).await;
                    }
                });
            }
        }
    }
    drop(listener);
    // From here on, only connections hold receivers and permits.
    drop(watched);
    let _ = shutdown_state.send(ShutdownState::Draining);
    let all = u32::try_from(options.connections_max).unwrap_or(u32::MAX);
    if tokio::time::timeout(options.grace, permits.acquire_many(all)).await.is_err() {
        let _ = shutdown_state.send(ShutdownState::Closed);
        let _ = permits.acquire_many(all).await;
    }
    Ok(())
}

async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
    open: &OpenConnections,
) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    // Accept before acquiring a permit: a connection is closed only if another client is waiting.
    let (socket, _) = listener.accept().await?;
    socket.set_nodelay(true)?;
    loop {
        if permits.available_permits() == 0 {
            open.evict();
        }
        let permit = Arc::clone(permits).acquire_owned();
        if let Ok(permit) = tokio::time::timeout(EVICTION_INTERVAL, permit).await {
            return Ok((socket, permit.map_err(io::Error::other)?));
        }
    }
}

/// Returns whether an error concerns only one connection that was aborted before it was accepted.
fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, InvalidInput, NotConnected};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | InvalidInput | NotConnected)
}

fn connection_builder(unread_timeout: Duration) -> auto::Builder<StreamExecutor> {
    let mut builder = auto::Builder::new(StreamExecutor { unread_timeout });
    builder
        .http1()
        .keep_alive(true)
        // `Activity` bounds heads instead; see there.
        .header_read_timeout(None)
        .max_buf_size(HEAD_BYTES_MAX.max(256 * 1024))
        .max_headers(FIELDS_MAX + 1)
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES);
    builder
}

/// Performs the TLS handshake, if any, within `bound` and not beyond a shutdown.
async fn secured(
    socket: TcpStream,
    tls: Option<TlsAcceptor>,
    bound: Duration,
    activity: &Activity,
    mut shutdown_state: watch::Receiver<ShutdownState>,
) -> Option<Socket> {
    let Some(tls) = tls else { return Some(Socket::Plain(socket)) };
    tokio::select! {
        shaken = tokio::time::timeout(bound, tls.accept(socket)) => match shaken {
            Ok(Ok(socket)) => Some(Socket::Tls(Box::new(socket))),
            Ok(Err(error)) => {
                tracing::debug!(%error, "no TLS");
                None
            }
            Err(_) => {
                counters::cut();
                None
            }
        },
        () = activity.evicted() => {
            counters::cut();
            None
        }
        _ = shutdown_state.changed() => None,
    }
}

async fn connection(
    socket: Socket,
    lane: Option<Lane>,
    activity: Arc<Activity>,
    builder: &auto::Builder<StreamExecutor>,
    fast_path: Arc<FastPath>,
    options: ServerOptions,
    mut shutdown_state: watch::Receiver<ShutdownState>,
) {
    let io = TokioIo::new(WatchedIo::new(socket, Arc::clone(&activity)));
    let context = Arc::new(ConnectionContext {
        lane,
        tenant: activity.tenant().clone(),
        activity: Arc::clone(&activity),
        ..ConnectionContext::default()
    });
    let requests = Arc::clone(&activity);
    let service = service_fn(move |request| {
        let request = BegunRequest::new(request, &requests);
        let (fast_path, context) = (Arc::clone(&fast_path), Arc::clone(&context));
        async move { Ok::<_, Infallible>(request.answer(&fast_path, &context).await) }
    });
    let mut served = std::pin::pin!(builder.serve_connection(io, service));
    let mut watchdog = std::pin::pin!(tokio::time::sleep(options.header_timeout));
    let mut draining = false;
    loop {
        tokio::select! {
            // Poll requests first, without a random choice on each turn.
            biased;
            ended = served.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection failed");
                }
                return;
            }
            () = watchdog.as_mut() => {
                let left = activity.time_left(options.header_timeout, options.idle_timeout);
                if left.is_some_and(|left| left.is_zero()) {
                    counters::cut();
                    return;
                }
                // A head may begin at this moment: check again before it could exceed its time.
                let next = left.unwrap_or(options.header_timeout).min(options.header_timeout / 2);
                watchdog.as_mut().reset(tokio::time::Instant::now() + next.max(Duration::from_millis(1)));
            }
            () = activity.evicted() => {
                if activity.stays() {
                    continue;
                }
                counters::cut();
                return;
            }
            changed = shutdown_state.changed(), if !draining || changed_may_come(&shutdown_state) => {
                if changed.is_err() || *shutdown_state.borrow() == ShutdownState::Closed {
                    return;
                }
                if !draining {
                    draining = true;
                    activity.stop();
                    served.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Returns whether the state may still change.
fn changed_may_come(shutdown_state: &watch::Receiver<ShutdownState>) -> bool {
    *shutdown_state.borrow() != ShutdownState::Closed
}
