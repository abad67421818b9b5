//! Nodes on real loopback sockets: the frames they exchange, how they fail, and the callers they refuse.

mod exchange;
mod failures;
mod intruder;
mod intruders;
mod members;
mod nodes;
mod unusable_peers;
