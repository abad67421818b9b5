//! tribunal-client
