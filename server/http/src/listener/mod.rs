//! Sockets and everything that runs on them: accepting, TLS, lanes, timeouts, and the dispatch of requests to handlers.
//!
//! Knows no endpoint except that of the fast path.

mod begun_request;
pub mod connection;
pub mod connection_tenant;
pub mod fast_path;
pub(crate) mod flushes;
pub mod head_guard;
pub mod http1_head;
pub mod lanes;
pub mod open_connections;
pub mod options;
pub mod server;
pub mod tls;
pub(crate) mod unread;
pub(crate) mod upload;
