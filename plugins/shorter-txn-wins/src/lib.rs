//! tribunal-plugin-shorter-txn-wins
