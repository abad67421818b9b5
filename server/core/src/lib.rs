//! The deterministic core of Tribunal: no clock, no disk, no socket, no thread, no `async`, no logger, no random
//! number. Events in, effects out.
#![no_std]

extern crate alloc;

pub mod batcher;
pub mod control;
pub mod epochs;
pub mod image;
pub mod planted;
pub mod policy;
pub mod proposals;
pub mod records;
pub mod resolve;
pub mod row_key;
pub mod state;
pub mod verdicts;
pub mod visibility;

pub use image::frozen;
pub use policy::native;
pub use resolve::{executor, resolver, shard};
pub use state::id_table;
