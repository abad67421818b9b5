//! Shared machinery of Tribunal's tests: readable scenarios, a cluster of the bare core that plays them, a naive oracle
//! that judges the results, and generators.
//!
//! The oracle shares no code with the core, only the vocabulary of `tribunal-types`. Nothing here is shipped.

pub mod cluster;
pub mod control;
pub mod folding;
pub mod generate;
pub mod model;
pub mod oracle;
pub mod render;
pub mod replicas;
pub mod scenario;
pub mod script;
pub mod sim;
pub mod stand_ins;
