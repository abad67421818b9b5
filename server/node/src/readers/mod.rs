//! Readers of logs: pages and images, consumers, webhooks and what is remembered of them.

pub mod consumer_state;
pub mod consumers;
pub mod feeds;
pub mod image_permits;
pub mod webhooks;
