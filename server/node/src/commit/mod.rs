//! The way of a commit: from the queue to the sequencer, the log and the reply, and back to it after a restart.

pub(crate) mod abort_report;
pub mod commit_queue;
pub mod control_queue;
pub mod epoch_cache;
pub mod epoch_clock;
pub mod idle_seal;
pub mod image_capture;
pub mod log_thread;
pub mod message;
pub mod pending;
pub mod progress;
pub mod recovery;
pub mod replies;
pub mod sequencer;
pub mod sequencer_state;
pub mod shards;
pub mod store_watch;
pub mod watchers;
