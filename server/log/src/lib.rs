//! tribunal-log
