//! Content negotiation: the header `Accept` against the forms that an endpoint offers.

use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, StatusCode};

use crate::response::problem::ProblemResponse;

/// A form of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One document.
    Json,
    /// One document per line, as they become available.
    NdJson,
    /// Server-sent events, as they become available.
    Events,
    /// Metrics in the text format of Prometheus.
    PrometheusText,
    /// Metrics in the text format of OpenMetrics.
    OpenMetrics,
}

impl Form {
    /// Returns the media type.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Form::Json => "application/json",
            Form::NdJson => "application/x-ndjson",
            Form::Events => "text/event-stream",
            Form::PrometheusText => "text/plain",
            Form::OpenMetrics => "application/openmetrics-text",
        }
    }

    /// Returns the version of the form, if its media type has several.
    const fn version(self) -> Option<&'static str> {
        match self {
            Form::Json | Form::NdJson | Form::Events => None,
            Form::PrometheusText => Some("0.0.4"),
            Form::OpenMetrics => Some("1.0.0"),
        }
    }
}

/// Chooses among `offered`, most preferred first. Without the header, the first one is chosen.
///
/// # Errors
/// 406 if the client accepts none of them.
pub fn accepted(headers: &HeaderMap, offered: &[Form]) -> Result<Form, ProblemResponse> {
    preferred(headers, offered).ok_or_else(|| {
        let names: Vec<_> = offered.iter().map(|form| form.media_type()).collect();
        let detail =
            format!("the response is available as {}, none of which the header Accept allows", names.join(", "));
        ProblemResponse::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", detail)
    })
}

/// Chooses as [`accepted`] does. Returns `None` if the client accepts none of `offered`.
#[must_use]
pub fn preferred(headers: &HeaderMap, offered: &[Form]) -> Option<Form> {
    let mut ranges: Vec<Range<'_>> = Vec::new();
    let mut given = false;
    for value in headers.get_all(ACCEPT) {
        given = true;
        ranges.extend(value.to_str().unwrap_or("").split(',').filter_map(Range::parse));
    }
    if !given {
        return offered.first().copied();
    }
    let mut best: Option<(u16, u8, Form)> = None;
    for &form in offered {
        // The most specific range that matches a form determines its weight.
        let fitting = ranges.iter().filter_map(|range| Some((range.specificity(form)?, range.thousandths)));
        let Some((specific, q)) = fitting.max_by_key(|(specific, _)| *specific) else { continue };
        if q > 0 && best.is_none_or(|(best_q, best_specific, _)| (q, specific) > (best_q, best_specific)) {
            best = Some((q, specific, form));
        }
    }
    best.map(|(_, _, form)| form)
}

/// A media range of the header.
struct Range<'a> {
    name: &'a str,
    version: Option<&'a str>,
    /// Its weight; the largest if it is malformed.
    thousandths: u16,
}

impl<'a> Range<'a> {
    fn parse(text: &'a str) -> Option<Range<'a>> {
        let mut parts = text.split(';');
        let name = parts.next()?.trim();
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let parameter = |wanted: &str| {
            let found = parameters.iter().find(|(name, _)| name.trim().eq_ignore_ascii_case(wanted));
            found.map(|(_, value)| value.trim())
        };
        let weight = parameter("q").map_or(1.0, |q| q.parse::<f32>().unwrap_or(1.0));
        let version = parameter("version").map(|version| version.trim_matches('"'));
        (!name.is_empty()).then(|| Range { name, version, thousandths: (weight.clamp(0.0, 1.0) * 1000.0) as u16 })
    }

    fn specificity(&self, form: Form) -> Option<u8> {
        let (kind, _) = form.media_type().split_once('/')?;
        match self.name.split_once('/') {
            _ if self.name.eq_ignore_ascii_case(form.media_type()) => match (self.version, form.version()) {
                (Some(wanted), Some(offered)) => (wanted == offered).then_some(3),
                _ => Some(2),
            },
            Some((left, "*")) if left.eq_ignore_ascii_case(kind) => Some(1),
            Some(("*", "*")) => Some(0),
            // Some clients send a lone star.
            None if self.name == "*" => Some(0),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[Form] = &[Form::Json, Form::NdJson, Form::Events];

    fn check(accept: &[&str], expected: Option<Form>) {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(ACCEPT, value.parse().unwrap());
        }
        let found = accepted(&headers, ALL);
        assert_eq!(found.as_ref().ok().copied(), expected, "{accept:?}");
        if let Err(problem) = found {
            assert_eq!((problem.body.status, problem.body.code.as_str()), (406, "not_acceptable"));
        }
    }

    #[test]
    fn the_most_specific_range_and_its_weight_decide() {
        check(&[], Some(Form::Json));
        check(&["*/*"], Some(Form::Json));
        check(&["*"], Some(Form::Json));
        check(&["application/x-ndjson"], Some(Form::NdJson));
        check(&["Text/Event-Stream"], Some(Form::Events));
        check(&["text/event-stream, */*"], Some(Form::Events));
        check(&["text/*"], Some(Form::Events));
        check(&["application/json;q=0.5, application/x-ndjson"], Some(Form::NdJson));
        check(&["application/json;q=0, */*;q=0.1"], Some(Form::NdJson));
        check(&["text/html", "application/json;q=0.2"], Some(Form::Json));
    }

    #[test]
    fn a_scraper_gets_the_format_and_version_with_the_highest_weight() {
        let chosen = |accept: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, accept.parse().unwrap());
            preferred(&headers, &[Form::PrometheusText, Form::OpenMetrics])
        };
        for (accept, expected) in [
            ("*/*", Some(Form::PrometheusText)),
            ("text/html,application/xhtml+xml,*/*;q=0.8", Some(Form::PrometheusText)),
            ("text/plain;version=0.0.4", Some(Form::PrometheusText)),
            (
                "text/plain;version=0.0.4;q=1,application/openmetrics-text;version=1.0.0;q=0.5",
                Some(Form::PrometheusText),
            ),
            ("application/openmetrics-text", Some(Form::OpenMetrics)),
            ("application/openmetrics-text; version=\"1.0.0\"", Some(Form::OpenMetrics)),
            // As Prometheus 2.50 and 3.0 send it.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Some(Form::OpenMetrics),
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                 application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                 text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                Some(Form::OpenMetrics),
            ),
            // Versions that are not offered.
            ("text/plain;version=1.0.0,application/openmetrics-text;version=1.0.0;q=0.1", Some(Form::OpenMetrics)),
            ("application/openmetrics-text;version=0.0.1,text/plain;q=0.1", Some(Form::PrometheusText)),
            ("application/openmetrics-text;version=0.0.1", None),
            ("application/json", None),
        ] {
            assert_eq!(chosen(accept), expected, "{accept}");
        }
    }

    #[test]
    fn media_types_that_are_not_offered_are_rejected() {
        for accept in ["text/html", "application/x-ndjson;q=0", "", "image/*", "/", "application/"] {
            check(&[accept], None);
        }
    }
}
