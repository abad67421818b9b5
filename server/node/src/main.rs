//! The `tribunal` binary.
fn main() {}
