//! Components of a client that measures a service and shares its cores: workloads, the client's knowledge of rows,
//! hand-written HTTP, many connections on one thread, and figures. `tribunal-bench` is the program on top.

pub mod body;
pub mod chart;
pub mod collector;
pub mod engine;
pub mod error;
pub mod idle;
pub mod inserts;
pub mod key;
pub mod lag;
pub mod machine;
pub mod measure;
pub mod model;
pub mod options;
pub mod plan;
pub mod record;
pub mod reply;
pub mod report;
pub mod rpc;
pub mod server;
pub mod space;
pub(crate) mod spread;
pub mod sweep;
pub mod traffic;
pub mod wire;
pub mod workload;
pub mod ycsb;
