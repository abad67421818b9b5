//! The REST surface: a hyper server with timeouts of its own, axum routes, and the mapping of JSON to transactions
//! and of verdicts to JSON. It decides nothing.
//!
//! Entry points: [`front::Front`] over an implementation of [`service::Service`], served by [`server::serve`].

pub mod accept;
pub mod access;
mod admitted_body;
pub mod answer;
pub mod app;
pub mod batch_commit;
pub mod begin;
pub mod body;
pub mod body_hash;
mod carried;
pub mod commit;
pub mod connection;
pub mod consumers;
pub mod counters;
pub mod fault;
pub mod feeds;
pub mod front;
pub mod json;
pub mod keys;
pub mod lanes;
pub mod log_pull;
pub mod log_stream;
pub mod meta;
pub mod plugin_service;
pub mod plugins;
pub mod poster;
pub mod query;
pub mod refusal;
pub mod router;
pub mod rows;
mod security;
pub mod server;
pub mod service;
pub mod stats;
pub mod store_push;
pub mod store_state;
pub mod stores;
pub mod tls;
pub mod txn_body;
pub mod txn_status;
pub mod versions;
pub mod webhooks;

pub use app::RouterOptions;
pub use feeds::Feeds;
pub use front::Front;
pub use lanes::Lanes;
pub use router::router;
pub use server::{Carriers, ServerOptions, listen, serve, serve_on};
pub use service::Service;
