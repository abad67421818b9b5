//! Bounds of connections.

use std::time::Duration;

/// Concurrent streams of one HTTP/2 connection.
pub(crate) const STREAMS_MAX: u32 = 256;
/// Commit streams of one connection. While a stream reads nothing, bytes of its body fill the HTTP/2 windows, and the
/// connection's window is shared by all its requests.
pub(crate) const STREAMS_PER_CONNECTION_MAX: usize = 3;

/// Bounds of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// Time from the first byte of a head to its last byte.
    pub header_timeout: Duration,
    /// Time between requests, and until a client takes a part of a response.
    pub idle_timeout: Duration,
    /// Connections served at the same time. For a further one, an idle one is closed; if none is idle, it waits in the
    /// listener's backlog.
    pub connections_max: usize,
    /// Time that requests may still take once a shutdown has begun.
    pub grace: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            connections_max: 16_384,
            grace: Duration::from_secs(10),
        }
    }
}
