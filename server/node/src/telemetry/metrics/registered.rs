//! Creates metrics, and registers them under their names.

use prometheus_client::registry::{Metric, Registry};

/// Registers a new metric at its initial value, and returns it.
pub(super) fn registered<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    registered_as(M::default(), registry, name, help)
}

/// Registers this metric, and returns it.
pub(super) fn registered_as<M: Metric + Clone>(metric: M, registry: &mut Registry, name: &str, help: &str) -> M {
    registry.register(name, help, metric.clone());
    metric
}
