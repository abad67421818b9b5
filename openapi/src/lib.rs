//! tribunal-api
