//! tribunal-codec
