//! tribunal-wasm
