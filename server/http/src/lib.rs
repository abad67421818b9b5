//! tribunal-http
