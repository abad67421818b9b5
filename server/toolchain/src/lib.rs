//! Owns the check of the toolchain, which is the build script of this crate; the library itself is empty.
//!
//! The built-in plugins are compiled to WebAssembly by the build script of `server/wasm`, which cargo can only run once
//! that crate's own dependencies are compiled. A missing target must not surface after minutes, so it is looked for
//! here. This crate has no dependencies, and must never get one.

#![no_std]
