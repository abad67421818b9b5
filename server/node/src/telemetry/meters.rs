//! The metrics of `/metrics`, sent over OTLP: the same names without their unit suffixes, the same numbers.
//!
//! They are rendered once per collection and parsed from that text, so that no commit counts anything twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, Meter, MeterProvider};
use opentelemetry_otlp::MetricExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Instruments of one collection are read one after another; their values are no older than this.
const FRESH: Duration = Duration::from_millis(100);

type Figures = Arc<dyn Fn() -> String + Send + Sync>;

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It only rises.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// One sample: its labels and its value.
type Sample = (Vec<KeyValue>, f64);

/// Samples by the name of their metric.
type Samples = BTreeMap<String, Vec<Sample>>;

/// The most recently rendered metrics.
struct Latest {
    figures: Figures,
    read: Mutex<Option<(Instant, Samples)>>,
}

impl Latest {
    fn samples(&self, name: &str) -> Vec<Sample> {
        let mut read = self.read.lock();
        if read.as_ref().is_none_or(|(at, _)| at.elapsed() > FRESH) {
            *read = Some((Instant::now(), samples((self.figures)().as_str())));
        }
        read.as_ref().and_then(|(_, samples)| samples.get(name).cloned()).unwrap_or_default()
    }
}

/// Sends metrics until stopped.
pub struct Meters {
    provider: SdkMeterProvider,
    announcing: JoinHandle<()>,
}

impl Meters {
    /// Sends all metrics through `exporter`, every `interval`.
    #[must_use]
    pub fn start(
        exporter: MetricExporter,
        resource: Resource,
        figures: Figures,
        runtime: &Handle,
        interval: Duration,
    ) -> Meters {
        let reader = PeriodicReader::builder(exporter).with_interval(interval).build();
        let provider = SdkMeterProvider::builder().with_reader(reader).with_resource(resource).build();
        let meter = provider.meter("tribunal");
        let latest = Arc::new(Latest { figures: Arc::clone(&figures), read: Mutex::new(None) });
        let mut known = BTreeSet::new();
        // A metric with labels exists only once it has a label value: check again.
        let announcing = runtime.spawn(async move {
            loop {
                for figure in instruments(&figures()) {
                    if known.insert(figure.name.clone()) {
                        instrument(&meter, &latest, figure);
                    }
                }
                tokio::time::sleep(interval).await;
            }
        });
        Meters { provider, announcing }
    }

    /// Sends the last metrics, unless that takes longer than `timeout`.
    pub fn stop(self, timeout: Duration) {
        self.announcing.abort();
        let (done, end) = mpsc::channel();
        // The reader has no timeout: a separate thread waits for it, and the process does not wait for the thread.
        let waiting = std::thread::Builder::new().name("telemetry".into()).spawn(move || {
            let _ = done.send(self.provider.shutdown());
        });
        if !matches!((waiting, end.recv_timeout(timeout)), (Ok(_), Ok(Ok(())))) {
            tracing::debug!("the last metrics were not exported");
        }
    }
}

/// A metric announced in a text.
#[derive(Debug, PartialEq, Eq)]
struct Figure {
    /// The name of its samples.
    name: String,
    kind: Kind,
    help: String,
}

fn instrument(meter: &Meter, latest: &Arc<Latest>, Figure { name, kind, help }: Figure) {
    let dotted = name.strip_suffix("_total").unwrap_or(&name).replacen('_', ".", 1);
    let latest = Arc::clone(latest);
    let observe = move |into: &dyn AsyncInstrument<f64>| {
        latest.samples(&name).iter().for_each(|(labels, number)| into.observe(*number, labels));
    };
    match kind {
        Kind::Counter => {
            meter.f64_observable_counter(dotted).with_description(help).with_callback(observe).build();
        }
        Kind::Gauge => {
            meter.f64_observable_gauge(dotted).with_description(help).with_callback(observe).build();
        }
    }
}

/// Lists the metrics announced in a text. A histogram is sent as its sum and its count.
fn instruments(text: &str) -> Vec<Figure> {
    let mut found = Vec::new();
    let mut help = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), Some(text)) => {
                help.insert(name.to_owned(), text.trim_end_matches('.').to_owned());
            }
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let help = help.get(name).cloned().unwrap_or_default();
                let mut add = |name, kind| found.push(Figure { name, kind, help: help.clone() });
                match kind {
                    "counter" => add(format!("{name}_total"), Kind::Counter),
                    "gauge" => add(name.to_owned(), Kind::Gauge),
                    "histogram" => {
                        add(format!("{name}_sum"), Kind::Counter);
                        add(format!("{name}_count"), Kind::Counter);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    found
}

/// Parses the samples of a text, by name.
fn samples(text: &str) -> Samples {
    let mut found = Samples::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((head, number)) = line.rsplit_once(' ') else { continue };
        let Ok(number) = number.parse::<f64>() else { continue };
        let (name, labels) = match head.split_once('{') {
            Some((name, labels)) => (name, labels_of(labels.trim_end_matches('}'))),
            None => (head, Vec::new()),
        };
        found.entry(name.to_owned()).or_default().push((labels, number));
    }
    found
}

/// Parses `a="1",b="2"`.
fn labels_of(mut text: &str) -> Vec<KeyValue> {
    let mut labels = Vec::new();
    while let Some((name, rest)) = text.split_once("=\"") {
        let mut value = String::new();
        let mut characters = rest.char_indices();
        let mut end = rest.len();
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    end = at + 1;
                    break;
                }
                '\\' => value.extend(characters.next().map(|(_, escaped)| if escaped == 'n' { '\n' } else { escaped })),
                other => value.push(other),
            }
        }
        labels.push(KeyValue::new(name.trim_start_matches(',').to_owned(), value));
        text = &rest[end..];
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP tribunal_txns_aborted Aborted.\n# TYPE tribunal_txns_aborted counter\n\
        tribunal_txns_aborted_total{reason=\"read_conflict\"} 5\n\
        tribunal_txns_aborted_total{reason=\"a\\\"b\",x=\"2\"} 6\n\
        # HELP tribunal_rows Rows.\n# TYPE tribunal_rows gauge\ntribunal_rows 7\n\
        # HELP tribunal_sync_seconds Time.\n# TYPE tribunal_sync_seconds histogram\n\
        tribunal_sync_seconds_sum 1.5\ntribunal_sync_seconds_count 3\ntribunal_sync_seconds_bucket{le=\"1\"} 3\n# EOF\n";

    #[test]
    fn every_metric_is_exported_with_its_labels() {
        let names: Vec<_> = instruments(TEXT).into_iter().map(|figure| (figure.name, figure.kind)).collect();
        let expected = [
            ("tribunal_txns_aborted_total", Kind::Counter),
            ("tribunal_rows", Kind::Gauge),
            ("tribunal_sync_seconds_sum", Kind::Counter),
            ("tribunal_sync_seconds_count", Kind::Counter),
        ];
        assert_eq!(names, expected.map(|(name, kind)| (name.to_owned(), kind)));
        let samples = samples(TEXT);
        assert_eq!(samples["tribunal_rows"], [(vec![], 7.0)]);
        let aborted = &samples["tribunal_txns_aborted_total"];
        assert_eq!(aborted[0], (vec![KeyValue::new("reason", "read_conflict")], 5.0));
        assert_eq!(aborted[1].0, [KeyValue::new("reason", "a\"b"), KeyValue::new("x", "2")]);
    }
}
