//! tribunal-plugin-priority
