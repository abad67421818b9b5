//! Traces and metrics over OTLP, enabled and configured by the standard `OTEL_*` variables.
//!
//! Without an endpoint nothing here runs. With one, a dead or hanging collector costs only the lost spans: they wait in
//! a bounded budget, are dropped and counted when it is full, and are sent by separate threads. Only sampled requests
//! are traced (`sampling.rs`), and their spans are created when they end, from timestamps taken anyway, so an untraced
//! commit pays for one decision only.

pub mod certificates;
pub mod cluster_metrics;
pub mod histogram;
mod meters;
pub mod metrics;
pub mod own_txns;
mod parent;
pub mod process_metrics;
mod push_spans;
mod sampling;
mod settings;
mod slice_budget;
mod slow_log;
mod span_budget;
mod spans;
pub mod stats;
pub mod tenant_counts;
mod transport;
mod webhook_spans;

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{BatchSpanProcessor, SpanProcessor};
use tokio::runtime::Handle;

pub use push_spans::{ApplyTraces, PushTraces};
pub use span_budget::SpanCounts;
pub use spans::Tracing;
pub use webhook_spans::PostTraces;

use self::meters::Meters;
use self::sampling::Sampling;
use self::settings::Signal;
use self::span_budget::{Counting, SpanBudget};
use self::transport::Transport;
use crate::commit::epoch_cache::EpochCache;

/// How long the last spans, and then the last metrics, may take when the node stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// Name of the resource, unless `OTEL_SERVICE_NAME` is set.
const SERVICE_NAME: &str = "tribunal";

/// The enabled signals.
#[derive(Default)]
pub struct Telemetry {
    tracing: Option<Arc<Tracing>>,
    meters: Option<Meters>,
    /// Name of the node among those of its cluster.
    instance: Option<String>,
}

/// Returns the faults of the variables that enable and configure the signals.
#[must_use]
pub fn faults() -> Vec<String> {
    let traces = Signal::Traces.settings();
    let sampling = matches!(traces, Ok(Some(_))).then(Sampling::from_env).and_then(Result::err);
    [traces.err(), sampling, Signal::Metrics.settings().err()].into_iter().flatten().collect()
}

impl Telemetry {
    /// Starts traces, if the variables enable them. `cache` contains the call times of an epoch's plugins. `instance`
    /// names a member of a cluster.
    ///
    /// # Errors
    /// If a variable has an unsupported value; lists the supported ones.
    pub fn start(runtime: &Handle, cache: &Arc<EpochCache>, instance: Option<String>) -> Result<Telemetry, String> {
        let mut telemetry = Telemetry { instance, ..Telemetry::default() };
        if let Some(settings) = Signal::Traces.settings()? {
            let transport = Transport::new("traces", runtime.clone(), settings.timeout);
            let exporter = SpanExporter::builder().with_http().with_http_client(transport).build();
            let exporter = exporter.map_err(|error| format!("traces over OTLP: {error}"))?;
            let budget = Arc::new(SpanBudget::new(settings.queue_size));
            let counting = Counting { exporter, budget: Arc::clone(&budget) };
            let mut processor = BatchSpanProcessor::builder(counting).build();
            processor.set_resource(&telemetry.resource());
            let tracing = Tracing::new(processor, budget, Sampling::from_env()?, Arc::clone(cache));
            telemetry.tracing = Some(Arc::new(tracing));
        }
        Ok(telemetry)
    }

    /// Starts to send metrics, if the variables enable it. `figures` renders all of them as text.
    ///
    /// # Errors
    /// See [`Telemetry::start`].
    pub fn send_figures(
        &mut self,
        runtime: &Handle,
        figures: Arc<dyn Fn() -> String + Send + Sync>,
    ) -> Result<(), String> {
        if let Some(settings) = Signal::Metrics.settings()? {
            let transport = Transport::new("metrics", runtime.clone(), settings.timeout);
            let exporter = MetricExporter::builder().with_http().with_http_client(transport).build();
            let exporter = exporter.map_err(|error| format!("metrics over OTLP: {error}"))?;
            self.meters = Some(Meters::start(exporter, self.resource(), figures, runtime, settings.metric_interval));
        }
        Ok(())
    }

    /// Returns the reporting resource: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, otherwise the service's own
    /// name and, in a cluster, the node's.
    fn resource(&self) -> Resource {
        let attributes = std::env::var("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
        let is_given = |name: &str| attributes.split(',').any(|one| one.trim_start().starts_with(&format!("{name}=")));
        let named = std::env::var("OTEL_SERVICE_NAME").is_ok_and(|name| !name.is_empty()) || is_given("service.name");
        let mut builder = Resource::builder();
        if !named {
            builder = builder.with_service_name(SERVICE_NAME);
        }
        if let Some(instance) = self.instance.clone().filter(|_| !is_given("service.instance.id")) {
            builder = builder.with_attribute(KeyValue::new("service.instance.id", instance));
        }
        builder.build()
    }

    /// Returns the creator of spans, if traces are on.
    #[must_use]
    pub fn tracing(&self) -> Option<Arc<Tracing>> {
        self.tracing.clone()
    }

    /// Sends the remaining data, unless that takes longer than [`FLUSH_TIMEOUT`] per signal. Must not be called on the
    /// runtime.
    pub fn stop(self) {
        if let Some(tracing) = self.tracing {
            tracing.stop(FLUSH_TIMEOUT);
        }
        if let Some(meters) = self.meters {
            meters.stop(FLUSH_TIMEOUT);
        }
    }
}
