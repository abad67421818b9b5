//! The deterministic heart of Tribunal: no clock, no disk, no socket, no thread, no `async`, no logger, no random
//! number. Events in, effects out.
#![no_std]

extern crate alloc;

pub mod batcher;
pub mod epochs;
pub mod native;
pub mod policy;
pub mod records;
pub mod row_key;
pub mod verdicts;
pub mod visibility;
