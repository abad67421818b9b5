//! What the control log adds up to. Nothing here reads that log: its owner hands over entry by entry.

pub mod slots;
