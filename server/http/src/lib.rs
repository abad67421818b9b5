//! The REST surface: a hyper server with timeouts of its own, axum routes, and the mapping of JSON to transactions
//! and of verdicts to JSON. It decides nothing.

pub mod service;
