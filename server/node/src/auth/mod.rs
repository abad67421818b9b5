//! Authentication: keys, tokens and the principals that they stand for.

pub mod access;
pub mod jwt;
pub mod keys;
pub mod public_key;
