//! Limits on open descriptors: of the process, and of its connections. The log must never wait for a descriptor: a
//! segment that cannot be created puts durability in doubt and ends the node.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Minimum number of descriptors reserved from connections: an idle member of a cluster of three has about 50 open.
const RESERVED_MIN: u64 = 96;
/// Maximum number of descriptors reserved from connections: for the log, stores, pushes, plugins and metrics.
const RESERVED_MAX: u64 = 1024;
/// One part in this many of all descriptors is reserved from connections.
const RESERVED_SHARE: u64 = 4;

/// Raises the soft limit of open descriptors to the hard limit. Returns the limit in force.
pub fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if limit.current != limit.maximum
        && let Err(error) = setrlimit(Resource::Nofile, raised)
    {
        tracing::warn!(%error, "the soft limit on open files could not be raised");
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns the maximum number of open connections: the configured one, if `limit` leaves enough for everything else.
#[must_use]
pub fn connections_max(configured: usize, limit: u64) -> usize {
    let rest = limit.saturating_sub((limit / RESERVED_SHARE).clamp(RESERVED_MIN, RESERVED_MAX));
    let rest = usize::try_from(rest).unwrap_or(usize::MAX).max(1);
    if rest < configured {
        tracing::warn!(
            limit,
            connections = rest,
            "fewer connections than configured: the process may open too few files; raise its limit (`ulimit -n`, \
             `LimitNOFILE`)"
        );
    }
    configured.min(rest).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_everything_else() {
        assert_eq!(connections_max(16_384, 1024), 768);
        assert_eq!(connections_max(100, 1024), 100);
        assert_eq!(connections_max(16_384, 256), 160);
        assert_eq!(connections_max(16_384, 64), 1, "more would take what the log needs");
        assert_eq!(connections_max(16_384, 16_384), 15_360);
        assert_eq!(connections_max(16_384, 1 << 20), 16_384);
        assert_eq!(connections_max(16_384, u64::MAX), 16_384);
    }
}
