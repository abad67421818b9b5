//! tribunal-plugin-serializable
