//! The deterministic heart of Tribunal: no clock, no disk, no socket, no thread, no `async`, no logger, no random
//! number. Events in, effects out.
#![no_std]

extern crate alloc;

pub mod batcher;
pub mod epochs;
pub mod executor;
pub mod frozen;
pub mod identity;
pub mod image;
pub mod native;
pub mod planted;
pub mod policy;
pub mod records;
pub mod resolver;
pub mod row_key;
pub mod shard;
pub mod verdicts;
pub mod visibility;

mod access;
mod apply;
mod digest;
mod epoch_rows;
mod evidence;
mod floor;
mod history;
mod id_bucket;
mod join;
mod judge;
mod map;
mod map_copy;
mod merge;
mod prefetch;
mod range_votes;
mod stores;
mod txns;
mod validate;
mod vote;
mod window;
