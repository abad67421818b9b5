//! The settings in the `OTEL_*` variables. Unsupported values are refused by name at the start, rather than ignored.

use std::time::Duration;

/// Default timeout of one request to the collector.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Default interval of metrics.
const METRIC_INTERVAL: Duration = Duration::from_secs(60);
/// Default number of spans that may wait to be sent.
const QUEUE_SIZE: usize = 2048;
/// Maximum of that variable: some hundred megabytes.
const QUEUE_SIZE_MAX: usize = 1 << 18;
/// Maximum of times in variables, milliseconds.
const MILLIS_MAX: usize = 3_600_000;

/// A kind of telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Metrics.
    Metrics,
}

/// Settings of one signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// How long one request to the collector may take.
    pub timeout: Duration,
    /// How often metrics are sent.
    pub metric_interval: Duration,
    /// Maximum number of spans that may wait to be sent.
    pub queue_size: usize,
}

impl Signal {
    fn word(self) -> &'static str {
        match self {
            Signal::Traces => "TRACES",
            Signal::Metrics => "METRICS",
        }
    }

    /// Reads the environment; `None` if this signal is not sent.
    ///
    /// # Errors
    /// If a variable has an unsupported value, or is not a number; lists the supported values.
    pub fn settings(self) -> Result<Option<Settings>, String> {
        self.settings_of(|name| std::env::var(name).ok().filter(|value| !value.trim().is_empty()))
    }

    fn settings_of(self, get: impl Fn(&str) -> Option<String>) -> Result<Option<Settings>, String> {
        if get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let word = self.word();
        let exporter = get(&format!("OTEL_{word}_EXPORTER"));
        match exporter.as_deref() {
            Some("none") => return Ok(None),
            None | Some("otlp") => {}
            Some(other) => {
                return Err(format!("OTEL_{word}_EXPORTER is `{other}`; this service knows `otlp` and `none`"));
            }
        }
        let own = |name: &str| {
            let of = |variable: String| get(&variable).map(|value| (variable, value));
            of(format!("OTEL_EXPORTER_OTLP_{word}_{name}")).or_else(|| of(format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        match own("ENDPOINT") {
            // Enabled by the other variable: the endpoint is the standard's default.
            None if exporter.is_some() => {}
            None => return Ok(None),
            Some((_, endpoint)) if endpoint.starts_with("http://") => {}
            Some((variable, endpoint)) => {
                return Err(format!(
                    "{variable} is `{endpoint}`, which does not begin with http://; send to a collector beside this \
                     node, which forwards over TLS"
                ));
            }
        }
        if let Some((variable, other)) = own("PROTOCOL").filter(|(_, protocol)| protocol != "http/protobuf") {
            return Err(format!(
                "{variable} is `{other}`; this service speaks `http/protobuf` (port 4318 of a collector)"
            ));
        }
        if let Some((variable, other)) = own("COMPRESSION").filter(|(_, compression)| compression != "none") {
            return Err(format!("{variable} is `{other}`; this service sends uncompressed: `none`"));
        }
        let timeout = millis(own("TIMEOUT"), TIMEOUT)?;
        let plain = |name: &str| get(name).map(|value| (name.to_owned(), value));
        let metric_interval = millis(plain("OTEL_METRIC_EXPORT_INTERVAL"), METRIC_INTERVAL)?;
        let settings = Settings { timeout, metric_interval, queue_size: QUEUE_SIZE };
        if self == Signal::Metrics {
            return Ok(Some(settings));
        }
        millis(plain("OTEL_BSP_SCHEDULE_DELAY"), TIMEOUT)?;
        let timeout = timeout.min(millis(plain("OTEL_BSP_EXPORT_TIMEOUT"), timeout)?);
        spans(plain("OTEL_BSP_MAX_EXPORT_BATCH_SIZE"))?;
        let queue_size = spans(plain("OTEL_BSP_MAX_QUEUE_SIZE"))?.unwrap_or(QUEUE_SIZE);
        Ok(Some(Settings { timeout, queue_size, ..settings }))
    }
}

/// A variable that is set, and its value.
type Found = Option<(String, String)>;

fn millis(found: Found, default: Duration) -> Result<Duration, String> {
    let Some((variable, value)) = found else { return Ok(default) };
    number(&variable, &value, MILLIS_MAX).map(|number| Duration::from_millis(number as u64))
}

fn spans(found: Found) -> Result<Option<usize>, String> {
    found.map(|(variable, value)| number(&variable, &value, QUEUE_SIZE_MAX)).transpose()
}

fn number(variable: &str, value: &str, most: usize) -> Result<usize, String> {
    let number = value.trim().parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("{variable} is `{value}`; it must be a whole number from 1 to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(signal: Signal, variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        signal.settings_of(|name| variables.iter().find(|(is, _)| *is == name).map(|(_, value)| (*value).to_owned()))
    }

    const AT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");

    #[test]
    fn nothing_is_sent_unless_asked_for() {
        let on = |variables: &[(&str, &str)]| settings(Signal::Traces, variables).unwrap().is_some();
        assert!(!on(&[]));
        assert!(on(&[AT]));
        assert!(on(&[("OTEL_TRACES_EXPORTER", "otlp")]), "to where the standard says");
        assert!(!on(&[AT, ("OTEL_SDK_DISABLED", "True")]));
        assert!(!on(&[AT, ("OTEL_TRACES_EXPORTER", "none")]));
        assert!(on(&[AT, ("OTEL_METRICS_EXPORTER", "none")]), "the other signal");
        assert!(!on(&[("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://127.0.0.1:4318/v1/metrics")]));
    }

    #[test]
    fn a_signals_own_variable_comes_first() {
        let of = |signal| {
            settings(
                signal,
                &[
                    AT,
                    ("OTEL_EXPORTER_OTLP_TIMEOUT", "5000"),
                    ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "700"),
                    ("OTEL_BSP_EXPORT_TIMEOUT", "900"),
                    ("OTEL_BSP_MAX_QUEUE_SIZE", "77"),
                    ("OTEL_METRIC_EXPORT_INTERVAL", "1000"),
                ],
            )
            .unwrap()
            .unwrap()
        };
        assert_eq!((of(Signal::Traces).timeout, of(Signal::Traces).queue_size), (Duration::from_millis(700), 77));
        assert_eq!(of(Signal::Metrics).timeout, Duration::from_secs(5));
        assert_eq!(of(Signal::Metrics).metric_interval, Duration::from_secs(1));
    }

    #[test]
    fn unsupported_settings_are_rejected_by_name() {
        for (name, value) in [
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://collector.example"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "soon"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "99999999999"),
            ("OTEL_BSP_SCHEDULE_DELAY", "-5"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1.5"),
        ] {
            let refused = settings(Signal::Traces, &[AT, (name, value)]).unwrap_err();
            assert!(refused.contains(name) && refused.contains(value), "{refused}");
        }
    }
}
