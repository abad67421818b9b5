//! The endpoints, one file per resource. Handlers map requests, call the service, and map the results; they make no
//! decisions.

pub mod batch_commit;
pub mod begin;
pub mod cluster;
pub mod commit;
pub mod commit_stream;
pub mod consumers;
pub mod keys;
pub mod log_pull;
pub mod log_stream;
pub mod meta;
pub mod plugins;
pub mod rows;
pub mod stats;
pub mod store_push;
pub mod store_state;
pub mod stores;
pub mod stores_of_tenants;
pub mod stream_intake;
pub mod txn_status;
pub mod versions;
pub mod webhooks;
