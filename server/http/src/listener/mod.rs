//! Sockets and what runs on them: accepting, TLS, lanes, time-outs, and the way of a request to its handler.
//!
//! Knows no endpoint but the one of the short way.

pub mod connection;
pub mod fast_path;
pub(crate) mod flushes;
pub mod head_guard;
pub mod http1_head;
pub mod lanes;
pub mod server;
pub mod strangers;
pub mod tls;
pub(crate) mod unread;
pub(crate) mod upload;
