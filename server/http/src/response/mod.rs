//! Output: decisions and records as JSON, problems, and bodies that are produced while they are sent.

pub(crate) mod accepted_encodings;
pub mod admitted_body;
pub(crate) mod body_relay;
pub mod content;
pub(crate) mod encoder_room;
pub mod field_error;
pub(crate) mod filled_body;
pub(crate) mod kept_body;
pub mod log_problem;
pub mod marks;
pub(crate) mod pieces;
pub mod problem;
pub mod prometheus_text;
pub mod response_json;
pub(crate) mod service_problem;
pub(crate) mod stream_room;
