//! tribunal-plugin-sdk
