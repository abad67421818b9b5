//! The durable log: what a group contributed to every epoch, and beside it what the epochs decided.
//!
//! The log carries inputs; outcomes are computed from them and recorded, and a recorded outcome is authoritative on
//! replay. An entry is chained to the one before it by hash, every stored chunk carries a checksum, and a mark of its
//! own says how far the log was durable. What follows from that:
//!
//! * [`DurableLog::sync`] makes everything appended durable by exactly one `fdatasync` (two when a segment has become full).
//!   After a failure nothing is tried again and nothing is acknowledged any more.
//! * Entries and outcomes lie in segment files of our own; sled holds the control log and what must outlive truncation.
//!   sled alone did at first: its pages are written again as they fill, its file grew by twice what was appended, and a
//!   batch of a thousand transactions took 29 ms where one write and one `fdatasync` took 7 (two busy cores).
//! * The mark is written behind the acknowledgement, never before it, at most some 50 ms later under load. A log that ends
//!   below its mark has lost what was promised: [`open`] refuses and names the way out ([`salvage`]).
//! * What was appended but not synced is all there or not at all after a crash.
//! * Reading never waits for the writer's sync.
//!
//! Must never: resolve anything, look at a clock to decide anything, acknowledge on its own.

mod batches;
mod epoch_runs;
mod error;
mod frame;
mod identity;
mod images;
mod lsn_index;
mod mark_file;
mod open;
mod outcomes;
mod reader;
mod recent;
mod retention;
mod salvage;
mod segment_scan;
mod segment_writer;
mod segments;
mod tree_records;
mod truncation;
mod writer;

pub use error::LogError;
pub use images::ImageWriter;
pub use open::{LogOptions, Opened, Recovered, open};
pub use reader::{Entries, Located, LogReader, PointInLog};
pub use salvage::{SalvageReport, salvage};
pub use writer::{DiskLog, DurableLog, HoldBack, LogStats};
