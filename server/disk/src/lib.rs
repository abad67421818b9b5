//! tribunal-disk
