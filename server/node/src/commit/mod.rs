//! The commit path: from the queue through the sequencer and the log to the reply, and recovery after a restart.

pub(crate) mod abort_report;
pub mod batch_size;
pub mod change_under_way;
pub mod commit_queue;
pub mod decider;
pub mod epoch_cache;
pub mod epoch_clock;
pub mod image_cursors;
pub mod log_job;
pub mod log_queue;
pub mod log_thread;
pub mod lost_log;
pub mod message;
pub mod progress;
pub mod recovery;
pub mod refusals;
pub mod replies;
pub mod sequencer;
pub mod sequencer_state;
pub mod shards;
pub mod txn_service;
pub mod waiters;
pub mod waiting_bytes;
