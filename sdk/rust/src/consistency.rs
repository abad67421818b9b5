//! What a read must include, on the wire.

use crate::Consistency;

/// Problem code: no node of the service's log has issued the session token.
pub(crate) const SESSION_UNKNOWN: &str = "session_unknown";

/// Returns the consistency to send: `None` for the default.
pub(crate) fn asked_consistency(consistency: Consistency) -> Option<Consistency> {
    (consistency != Consistency::default()).then_some(consistency)
}
