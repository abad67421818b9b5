//! The REST surface: a hyper server with its own timeouts, axum routes, and the mapping of JSON to transactions and of
//! verdicts to JSON. It makes no decisions.
//!
//! Entry points: [`FastPath`] over a [`tribunal_service::Service`], served by [`serve`].

pub mod app;
pub mod authz;
pub mod binary;
pub mod counters;
mod known_paths;
mod limits_table;
pub mod listener;
mod near_routes;
mod openapi_security;
pub mod problem_codes;
pub mod quota;
pub mod request;
pub mod response;
pub mod router;
pub mod routes;

pub use app::RouterOptions;
pub use listener::fast_path::FastPath;
pub use listener::lanes::Lanes;
pub use listener::options::ServerOptions;
pub use listener::server::{Carriers, listen, serve, serve_on};
pub use request::web_pages::HostNames;
pub use router::router;
