//! tribunal-plugin-snapshot
