//! Selects the traced requests: exactly by `OTEL_TRACES_SAMPLER`; without it, by the caller's decision, or if the
//! caller made none, as many per second as cost nothing measurable.

use opentelemetry::TraceId;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};

use super::parent::Parent;
use super::slice_budget::Budget;

/// Maximum number of unrequested traces that begin in one slice: 125 a second.
const ROOTS_PER_SLICE_MAX: u64 = 8;

/// Selects the traced requests.
#[derive(Debug)]
pub struct Sampling {
    /// Whether the caller's own decision counts.
    parent_based: bool,
    /// Traces with an id below this are sampled.
    below: u64,
    /// Bounds the traces that no caller has requested.
    roots: Option<Budget>,
}

impl Sampling {
    /// Reads the variables.
    ///
    /// # Errors
    /// If the sampler is unknown or its argument is not a ratio.
    pub fn from_env() -> Result<Sampling, String> {
        let get = |name| std::env::var(name).ok().filter(|value: &String| !value.trim().is_empty());
        Self::parse(get("OTEL_TRACES_SAMPLER").as_deref(), get("OTEL_TRACES_SAMPLER_ARG").as_deref())
    }

    fn parse(sampler: Option<&str>, arg: Option<&str>) -> Result<Sampling, String> {
        let Some(sampler) = sampler else {
            let roots = Some(Budget::new(ROOTS_PER_SLICE_MAX));
            return Ok(Sampling { parent_based: true, below: u64::MAX, roots });
        };
        let (parent_based, root) = match sampler.strip_prefix("parentbased_") {
            Some(root) => (true, root),
            None => (false, sampler),
        };
        let below = match root {
            "always_on" => u64::MAX,
            "always_off" => 0,
            "traceidratio" => {
                let ratio = arg.unwrap_or("1").parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
                let ratio = ratio.ok_or("OTEL_TRACES_SAMPLER_ARG must be a ratio from 0 to 1")?;
                (ratio * u64::MAX as f64) as u64
            }
            _ => {
                return Err(format!(
                    "OTEL_TRACES_SAMPLER is `{sampler}`; this service knows always_on, always_off, traceidratio, and \
                     each with parentbased_ before it"
                ));
            }
        };
        Ok(Sampling { parent_based, below, roots: None })
    }

    /// Returns the trace of a request, if it is sampled. `parent` is its caller's.
    pub fn draw(&self, parent: Option<Parent>) -> Option<TraceId> {
        match parent {
            Some(parent) if self.parent_based => parent.sampled.then_some(parent.trace),
            _ if self.below == 0 || self.roots.as_ref().is_some_and(|budget| !budget.take()) => None,
            parent => Some(trace_of(parent)).filter(|trace| self.by_id(*trace)),
        }
    }

    /// Returns whether a request that was not sampled may still be traced once it proves worth it.
    pub fn may_be_late(&self, parent: Option<Parent>) -> bool {
        self.below > 0 && !(self.parent_based && parent.is_some())
    }

    fn by_id(&self, trace: TraceId) -> bool {
        let [.., a, b, c, d, e, f, g, h] = trace.to_bytes();
        self.below == u64::MAX || u64::from_be_bytes([a, b, c, d, e, f, g, h]) < self.below
    }
}

/// Returns the caller's trace, or a new one.
pub fn trace_of(parent: Option<Parent>) -> TraceId {
    parent.map_or_else(|| RandomIdGenerator::default().new_trace_id(), |parent| parent.trace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::SpanId;

    fn of(sampler: &str, arg: Option<&str>) -> Sampling {
        Sampling::parse(Some(sampler), arg).unwrap()
    }

    fn parent(byte: u8, sampled: bool) -> Option<Parent> {
        Some(Parent { trace: TraceId::from_bytes([byte; 16]), span: SpanId::from_bytes([1; 8]), sampled })
    }

    #[test]
    fn samplers_sample_according_to_their_names() {
        let takes = |sampling: &Sampling, parent| sampling.draw(parent).is_some();
        assert!(takes(&of("always_on", None), parent(0xff, false)), "the caller is not asked");
        assert!(!takes(&of("always_off", None), parent(1, true)));
        assert!(!takes(&of("always_off", None), None));
        assert!(takes(&of("parentbased_always_off", None), parent(1, true)));
        assert!(!takes(&of("parentbased_always_on", None), parent(1, false)));
        let half = of("traceidratio", Some("0.5"));
        assert!(takes(&half, parent(1, false)) && !takes(&half, parent(0xff, true)));
        assert_eq!(half.draw(parent(1, false)), parent(1, false).map(|p| p.trace), "the caller's trace goes on");
    }

    #[test]
    fn without_a_sampler_callers_decide_and_the_rest_is_bounded() {
        let default = Sampling::parse(None, None).unwrap();
        assert!((0..1000).all(|_| default.draw(parent(1, true)).is_some()));
        assert!((0..1000).all(|_| default.draw(parent(1, false)).is_none()));
        // However long this takes, it cannot span as many slices.
        let drawn = (0..100_000).filter(|_| default.draw(None).is_some()).count();
        assert!((1..50_000).contains(&drawn), "{drawn}");
        assert!((0..100_000).all(|_| of("always_on", None).draw(None).is_some()), "asked for exactly that");
    }

    #[test]
    fn an_unsampled_request_is_not_traced_late() {
        let default = Sampling::parse(None, None).unwrap();
        assert!(default.may_be_late(None) && !default.may_be_late(parent(1, false)));
        assert!(!of("always_off", None).may_be_late(None));
        assert!(of("traceidratio", Some("0.1")).may_be_late(None));
    }

    #[test]
    fn unknown_samplers_are_rejected_by_name() {
        assert!(Sampling::parse(Some("jaeger_remote"), None).unwrap_err().contains("jaeger_remote"));
        for arg in ["2", "-1", "half", "NaN"] {
            assert!(Sampling::parse(Some("traceidratio"), Some(arg)).is_err(), "{arg}");
        }
    }
}
