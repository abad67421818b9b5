//! tribunal-tests
