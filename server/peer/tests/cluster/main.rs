//! Nodes that talk over real sockets on loopback: what they exchange, how they fail, and whom they refuse.

mod exchange;
mod failures;
mod intruder;
mod intruders;
mod members;
mod nodes;
mod unusable_peers;
