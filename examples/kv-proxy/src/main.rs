//! kv-proxy
fn main() {}
