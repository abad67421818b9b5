//! tribunal-plugin-read-committed
