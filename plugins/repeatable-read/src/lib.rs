//! tribunal-plugin-repeatable-read
