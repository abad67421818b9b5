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
}

impl Form {
    /// Returns the media type.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Form::Json => "application/json",
            Form::NdJson => "application/x-ndjson",
            Form::Events => "text/event-stream",
        }
    }
}

/// Chooses among `offered`, most preferred first. Without the header, the first one is chosen.
///
/// # Errors
/// 406 if the client accepts none of them.
pub fn accepted(headers: &HeaderMap, offered: &[Form]) -> Result<Form, ProblemResponse> {
    let mut ranges: Vec<(&str, u16)> = Vec::new();
    let mut given = false;
    for value in headers.get_all(ACCEPT) {
        given = true;
        ranges.extend(value.to_str().unwrap_or("").split(',').filter_map(range));
    }
    if !given {
        return Ok(offered[0]);
    }
    let mut best: Option<(u16, u8, Form)> = None;
    for &form in offered {
        // The most specific range that matches a form determines its weight.
        let fitting = ranges.iter().filter_map(|&(range, q)| Some((specificity(range, form)?, q)));
        let Some((specific, q)) = fitting.max_by_key(|(specific, _)| *specific) else { continue };
        if q > 0 && best.is_none_or(|(best_q, best_specific, _)| (q, specific) > (best_q, best_specific)) {
            best = Some((q, specific, form));
        }
    }
    best.map(|(_, _, form)| form).ok_or_else(|| {
        let names: Vec<_> = offered.iter().map(|form| form.media_type()).collect();
        let detail =
            format!("the response is available as {}, none of which the header Accept allows", names.join(", "));
        ProblemResponse::new(StatusCode::NOT_ACCEPTABLE, "not_acceptable", detail)
    })
}

/// Parses one media range and its weight in thousandths; a malformed weight counts as the largest.
fn range(text: &str) -> Option<(&str, u16)> {
    let mut parts = text.split(';');
    let name = parts.next()?.trim();
    let weight = parts.find_map(|part| {
        let (key, value) = part.split_once('=')?;
        key.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse::<f32>().unwrap_or(1.0))
    });
    let thousandths = (weight.unwrap_or(1.0).clamp(0.0, 1.0) * 1000.0) as u16;
    (!name.is_empty()).then_some((name, thousandths))
}

fn specificity(range: &str, form: Form) -> Option<u8> {
    let (kind, _) = form.media_type().split_once('/')?;
    match range.split_once('/') {
        _ if range.eq_ignore_ascii_case(form.media_type()) => Some(2),
        Some((left, "*")) if left.eq_ignore_ascii_case(kind) => Some(1),
        Some(("*", "*")) => Some(0),
        // Some clients send a lone star.
        None if range == "*" => Some(0),
        _ => None,
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
    fn media_types_that_are_not_offered_are_rejected() {
        for accept in ["text/html", "application/x-ndjson;q=0", "", "image/*", "/", "application/"] {
            check(&[accept], None);
        }
    }
}
