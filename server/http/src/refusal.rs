//! Every answer that is not a decision: `application/problem+json`, made in one place.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, LINK, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use tribunal_api::{Problem, ProblemError};

use crate::fault::{Code, Faults};
use crate::json::Malformed;
use crate::service::{Catalog, ServiceError};

/// A request that got no decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the client reads.
    pub problem: Box<Problem>,
}

impl Refusal {
    /// Builds a refusal that the same request meets again.
    #[must_use]
    pub fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Self {
        let problem = Problem {
            kind: "about:blank".to_owned(),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            code: code.to_owned(),
            ..Problem::default()
        };
        Refusal { problem: Box::new(problem) }
    }

    /// Says that the same request may work later.
    #[must_use]
    pub fn retryable(mut self, retry_after_ms: Option<u64>) -> Self {
        self.problem.retryable = true;
        self.problem.retry_after_ms = retry_after_ms.map(|ms| u32::try_from(ms).unwrap_or(u32::MAX));
        self
    }

    /// Builds the refusal of a request with these faults. The first one gives the status; it gives the code, too,
    /// if all agree.
    #[must_use]
    pub fn of_faults(faults: &Faults) -> Self {
        let list = faults.list();
        let (name, status) = list.first().map_or(Code::MalformedJson, |fault| fault.code).parts();
        let same = list.iter().all(|fault| fault.code.parts().0 == name);
        let detail = match list {
            [only] if only.pointer.is_empty() => only.detail.clone(),
            [only] => format!("{}: {}", only.pointer, only.detail),
            _ => format!("{} faults, see errors", faults.count()),
        };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_REQUEST);
        let mut refusal = Refusal::new(status, if same { name } else { "invalid_request" }, detail);
        refusal.problem.errors = list
            .iter()
            .map(|fault| ProblemError {
                pointer: fault.pointer.clone(),
                code: fault.code.parts().0.to_owned(),
                detail: fault.detail.clone(),
            })
            .collect();
        refusal
    }

    /// Builds the refusal of a request with one fault.
    #[must_use]
    pub fn of_fault(code: Code, pointer: &str, detail: impl Into<String>) -> Self {
        let mut faults = Faults::default();
        faults.add(code, pointer, detail);
        Refusal::of_faults(&faults)
    }

    /// Builds the refusal of text that is no JSON.
    #[must_use]
    pub fn of_syntax(malformed: &Malformed) -> Self {
        let mut refusal = Refusal::of_fault(Code::MalformedJson, "", malformed.detail.clone());
        refusal.problem.line = u32::try_from(malformed.line).ok();
        refusal.problem.column = u32::try_from(malformed.column).ok();
        refusal
    }

    /// Builds the refusal that says what the node said.
    #[must_use]
    pub fn of_service(error: ServiceError, catalog: &Catalog) -> Self {
        match error {
            ServiceError::ClientMistake { code, pointer, detail } => {
                let mut refusal = Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail.clone());
                refusal.problem.errors = vec![ProblemError { pointer, code: code.to_owned(), detail }];
                refusal
            }
            ServiceError::Overloaded { retry_after_ms } => {
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "the queues are full; nothing was taken in")
                    .retryable(Some(retry_after_ms))
            }
            ServiceError::QuotaExceeded { retry_after_ms } => {
                Refusal::new(StatusCode::TOO_MANY_REQUESTS, "quota_exceeded", "more is in flight than the quota allows")
                    .retryable(Some(retry_after_ms))
            }
            ServiceError::Unavailable { detail } => {
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail).retryable(Some(1000))
            }
            ServiceError::OutcomeUnknown { detail } => {
                Refusal::new(StatusCode::GATEWAY_TIMEOUT, "outcome_unknown", detail).retryable(None)
            }
            ServiceError::InFlight => {
                let detail = "this id waits for its verdict; ask for its status with wait_ms";
                Refusal::new(StatusCode::CONFLICT, "in_flight", detail).retryable(None)
            }
            ServiceError::BodyMismatch => {
                let detail = "this id was used for another body; a new transaction needs a new id";
                Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "body_mismatch", detail)
            }
            ServiceError::TxnIdExpired => {
                let detail = "the time in this id lies outside the window; it is never executed under it";
                Refusal::new(StatusCode::UNPROCESSABLE_ENTITY, "txn_id_expired", detail)
            }
            ServiceError::LogTruncated { oldest } => {
                let detail = format!("the log starts at {oldest}");
                let mut refusal = Refusal::new(StatusCode::GONE, "log_truncated", detail);
                refusal.problem.oldest = Some(oldest.to_string());
                refusal
            }
            ServiceError::StateGone { oldest } => {
                let detail = format!(
                    "this store is only its log, which starts at {oldest} by now: the state before that is with those \
                     who read it; a consumer with a checkpoint keeps the log from being truncated too early"
                );
                let mut refusal = Refusal::new(StatusCode::GONE, "state_gone", detail);
                refusal.problem.oldest = Some(oldest.to_string());
                refusal
            }
            ServiceError::StoreLagging { store, retry_after_ms } => {
                let name = catalog.by_id(store).map_or("a store", |spec| spec.name.as_str());
                let detail = format!("{name} has not applied what this request must see");
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "store_lagging", detail).retryable(Some(retry_after_ms))
            }
            ServiceError::StoreDetached { store } => {
                let name = catalog.by_id(store).map_or("a store", |spec| spec.name.as_str());
                let detail = format!("{name} is detached: its storage held too much of the log back, see its status");
                Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "store_detached", detail)
            }
            ServiceError::NotFound { what } => {
                Refusal::new(StatusCode::NOT_FOUND, "not_found", format!("there is no {what}"))
            }
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let json = serde_json::to_vec(&self.problem).unwrap_or_default();
        let mut response = Response::new(Body::from(json));
        *response.status_mut() = StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::BAD_REQUEST);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(ms) = self.problem.retry_after_ms {
            headers.insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000)));
        }
        if let Some(link) = self.problem.state_url.and_then(|url| format!("<{url}>; rel=\"alternate\"").parse().ok()) {
            headers.insert(LINK, link);
        }
        response
    }
}
