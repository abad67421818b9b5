//! Changes of the configuration in the log, with who requested them.

use std::sync::Arc;

use axum::http::{Method, StatusCode};
use tribunal_service::Principal;

/// Characters of a path that are logged: enough for the longest name of a store and what may follow it.
const PATH_LOGGED_MAX: usize = 1024;

/// A change of the configuration that a caller requests. Logged when the request ends, also if its client disconnects: the
/// change may be made all the same.
pub(super) struct RequestedChange {
    pub by: Arc<Principal>,
    pub method: Method,
    pub path: String,
    /// The response's; `None` if the client has disconnected before.
    pub status: Option<StatusCode>,
}

impl Drop for RequestedChange {
    fn drop(&mut self) {
        let RequestedChange { by, method, path, status } = self;
        let is_refused = status.is_some_and(|status| status.is_client_error());
        let (by, namespace) = (&by.name, &by.namespace_name);
        let status =
            status.map_or("none, because the client disconnected".to_owned(), |status| status.as_str().to_owned());
        // Callers choose its length, up to that of a request's head.
        let path: String = path.chars().take(PATH_LOGGED_MAX).collect();
        // It changed nothing, and a caller may repeat it in a loop.
        if is_refused {
            tracing::debug!(by, namespace, %method, path, status, "a change of the configuration was refused");
        } else {
            tracing::info!(by, namespace, %method, path, status, "a change of the configuration was requested");
        }
    }
}
