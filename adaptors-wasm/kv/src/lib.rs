//! tribunal-adaptor-kv
