//! Input: bodies, paths, queries and headers are converted to the domain's types, or to field errors.

pub mod body;
pub mod body_hash;
pub mod caller;
pub(crate) mod commit_line;
pub mod content_negotiation;
pub mod freshness;
pub mod json;
pub mod lines;
pub mod no_fields;
pub mod op_fields;
pub mod plain_commit;
pub mod plain_json;
pub mod query;
pub mod read_body;
pub mod target;
pub mod txn_body;
pub mod web_pages;
