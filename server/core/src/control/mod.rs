//! What the control log adds up to. Nothing here reads that log: its owner hands over entry by entry.

pub mod components;
pub mod effect;
mod founding;
pub mod keys;
pub mod members;
mod numbering;
mod proposers;
pub mod readers;
pub mod releases;
pub mod replicated_state;
pub mod slots;
pub mod stores;

pub use effect::{Applied, Effect, Refusal};
pub use replicated_state::{Moment, ReplicatedState};
