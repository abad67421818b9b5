//! The permit of a request while it is answered, and the room that its response takes up.

use std::sync::Arc;
use std::time::Duration;

use axum::body::HttpBody;
use axum::http::header::CONTENT_ENCODING;
use axum::response::{IntoResponse, Response};
use tribunal_service::{Service, ServiceError};

use crate::quota::Permit;
use crate::response::encoder_room::EncoderRoom;
use crate::response::kept_body::keeping;
use crate::response::marks::WholeBytes;
use crate::response::pieces::is_as_good_as_sent;
use crate::response::problem::ProblemResponse;

/// The permit of a request that is being answered. If the request is dropped first (its caller has disconnected), its
/// transaction may still be pending: the permit is released only after the delay with which another request would be
/// told to retry, by when the transaction is most likely decided.
pub(crate) struct Answering<'a> {
    permit: Option<Permit>,
    /// The service that decides the request, if it is a transaction.
    waits_on: Option<&'a Arc<Service>>,
}

impl<'a> Answering<'a> {
    /// Holds the permit of a request; `waits_on` is the service that decides it, if it is a transaction.
    pub(crate) fn new(permit: Permit, waits_on: Option<&'a Arc<Service>>) -> Self {
        Answering { permit: Some(permit), waits_on }
    }

    /// Returns the permit once the response is available.
    pub(crate) fn answered(mut self) -> Option<Permit> {
        self.permit.take()
    }
}

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        let Some(service) = self.waits_on else { return };
        if let (Some(permit), Ok(runtime)) = (self.permit.take(), tokio::runtime::Handle::try_current()) {
            let wait = Duration::from_millis(service.txns.retry_after_ms());
            runtime.spawn(async move {
                tokio::time::sleep(wait).await;
                drop(permit);
            });
        }
    }
}

/// Counts the response to a transaction as in flight until it is taken.
pub(crate) fn until_taken(mut response: Response, mut permit: Permit) -> Response {
    if is_as_good_as_sent(response.body()) {
        return response;
    }
    let bytes = held_bytes(&mut response, &mut permit);
    permit.add(bytes);
    response.map(|body| keeping(body, permit))
}

/// Counts a waiting response. Returns false if the tenant has no room for it, and it may be dropped.
pub(super) fn has_room(response: &mut Response, permit: &mut Permit, only_reads: bool) -> bool {
    let bytes = held_bytes(response, permit);
    if only_reads {
        return permit.try_add(bytes);
    }
    permit.add(bytes);
    true
}

/// Returns the bytes that a waiting response holds, and keeps the reservation for its encoder. The chunks of a stream,
/// whose size is not known, count themselves.
fn held_bytes(response: &mut Response, permit: &mut Permit) -> usize {
    let encoder = response.extensions_mut().remove::<EncoderRoom>();
    if let Some(EncoderRoom(reserved)) = encoder.filter(|_| response.headers().contains_key(CONTENT_ENCODING)) {
        permit.keep(reserved);
    }
    let before_compression = response.extensions().get::<WholeBytes>().map(|whole| whole.0);
    let bytes = before_compression.or_else(|| response.body().size_hint().exact()).unwrap_or(0);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Returns the response to a request for which the quota has no room.
pub(super) fn no_room(service: &Service) -> Response {
    let error = ServiceError::QuotaExceeded { retry_after_ms: service.txns.retry_after_ms() };
    ProblemResponse::of_service(error, &service.stores.catalog()).into_response()
}
