//! Metrics in the text format of Prometheus, version 0.0.4, converted from OpenMetrics.
//!
//! The samples are the same. In 0.0.4, a family has the name of its samples, so counters are announced with their
//! suffix; a type that it does not have becomes the nearest one. Exemplars, timestamps and creation times would need
//! more: the service exposes none.

use std::collections::HashMap;
use std::fmt::Write as _;

/// Last line of OpenMetrics.
pub const OPENMETRICS_END: &str = "# EOF\n";

/// Converts a text.
#[must_use]
pub fn prometheus_text(openmetrics: &str) -> String {
    let lines = || openmetrics.lines();
    let kinds: HashMap<&str, &str> = lines()
        .filter_map(metadata)
        .filter(|(keyword, ..)| *keyword == "TYPE")
        .map(|(_, family, kind)| (family, kind))
        .collect();
    let mut text = String::with_capacity(openmetrics.len());
    for line in lines() {
        if !line.starts_with('#') {
            text.extend([line, "\n"]);
            continue;
        }
        // Everything else (the end, units) has no meaning in this format.
        let Some((keyword @ ("HELP" | "TYPE"), family, value)) = metadata(line) else { continue };
        let (suffix, kind) = match kinds.get(family).copied().unwrap_or("unknown") {
            "counter" => ("_total", "counter"),
            "info" => ("_info", "gauge"),
            kind @ ("gauge" | "histogram" | "summary") => ("", kind),
            _ => ("", "untyped"),
        };
        let value = if keyword == "TYPE" { kind } else { value };
        let _ = writeln!(text, "# {keyword} {family}{suffix} {value}");
    }
    text
}

/// Splits a line about a family into its keyword, the family and the rest.
fn metadata(line: &str) -> Option<(&str, &str, &str)> {
    let mut words = line.strip_prefix("# ")?.splitn(3, ' ');
    Some((words.next()?, words.next()?, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_has_the_name_of_its_samples() {
        let openmetrics = "# HELP x_txns Decided: a b.\n# TYPE x_txns counter\n# UNIT x_txns txns\nx_txns_total{a=\"# \"} 5\n\
            # HELP x_rows Rows.\n# TYPE x_rows gauge\nx_rows 7\n\
            # TYPE x_seconds histogram\nx_seconds_sum 1.5\nx_seconds_count 3\nx_seconds_bucket{le=\"+Inf\"} 3\n\
            # TYPE x_build info\nx_build_info{version=\"1\"} 1\n# TYPE x_state stateset\nx_state{x_state=\"a\"} 1\n# EOF\n";
        let expected = "# HELP x_txns_total Decided: a b.\n# TYPE x_txns_total counter\nx_txns_total{a=\"# \"} 5\n\
            # HELP x_rows Rows.\n# TYPE x_rows gauge\nx_rows 7\n\
            # TYPE x_seconds histogram\nx_seconds_sum 1.5\nx_seconds_count 3\nx_seconds_bucket{le=\"+Inf\"} 3\n\
            # TYPE x_build_info gauge\nx_build_info{version=\"1\"} 1\n# TYPE x_state untyped\nx_state{x_state=\"a\"} 1\n";
        assert_eq!(prometheus_text(openmetrics), expected);
    }
}
