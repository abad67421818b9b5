//! Readers of logs: pages and images, consumers, webhooks and their durable state.

pub mod cluster_readers;
pub mod consumer_state;
pub mod consumers;
pub mod earlier_file;
pub mod earlier_import;
pub mod feeds;
pub mod image_permits;
pub(crate) mod own_webhooks;
pub mod reader_state;
pub mod record_times;
pub mod store_locks;
pub mod webhook_states;
pub mod webhooks;
