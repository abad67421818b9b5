//! tribunal-plugin-first-writer-wins
