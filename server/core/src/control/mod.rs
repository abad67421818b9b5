//! The state built from the control log. Nothing here reads that log: its owner passes the entries in one by one.

pub mod components;
pub mod effect;
mod founding;
pub mod keys;
pub mod members;
mod numbering;
mod proposers;
pub mod readers;
pub mod refusal;
pub mod releases;
pub mod replicated_state;
pub mod slots;
pub mod stores;

pub use effect::{Applied, Effect};
pub use refusal::{Limit, Refusal};
pub use replicated_state::{Moment, ReplicatedState};
