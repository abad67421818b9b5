//! tribunal-push
