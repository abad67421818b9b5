//! One request on a connection, from its head to a response whose body records how much of it the client takes.

use std::sync::Arc;

use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request, Version};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;

use crate::counters::{self, OpenStream};
use crate::listener::connection::{Activity, Working};
use crate::listener::fast_path::{ConnectionContext, FastPath};
use crate::listener::http1_head::BadHead;
use crate::response::kept_body::keeping;
use crate::response::marks::Duplex;
use crate::response::pieces::{in_pieces, is_as_good_as_sent};

/// A request that counts as work of its connection.
pub(super) struct BegunRequest {
    request: Request<Incoming>,
    is_multiplexed: bool,
    /// Its position on the connection.
    number: u64,
    bad: Option<BadHead>,
    working: Working,
    activity: Arc<Activity>,
}

impl BegunRequest {
    pub(super) fn new(request: Request<Incoming>, activity: &Arc<Activity>) -> BegunRequest {
        let is_multiplexed = request.version() == Version::HTTP_2;
        let working = activity.request_began(is_multiplexed);
        let (number, bad) = activity.next_request();
        BegunRequest { request, is_multiplexed, number, bad, working, activity: Arc::clone(activity) }
    }

    /// Answers the request with a body that records how much of it the client takes.
    pub(super) async fn answer(self, fast_path: &FastPath, context: &ConnectionContext) -> Response {
        let BegunRequest { request, is_multiplexed, number, bad, working, activity } = self;
        let mut response = match bad {
            None => fast_path.answer(request, context).await,
            Some(bad) => bad.problem().into_response(),
        };
        let responding = (!is_as_good_as_sent(response.body())).then(|| activity.response_began());
        // hyper may keep the extensions.
        let duplex = response.extensions_mut().remove::<Duplex>().map(|_| activity.duplex_began());
        drop(working);
        if duplex.is_none() && !is_multiplexed && activity.ends_with(number) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        counters::answered(&response);
        if let Some(responding) = responding {
            response = response.map(|body| keeping(body, responding));
        }
        match duplex {
            Some(duplex) => response.map(|body| in_pieces(keeping(body, (duplex, OpenStream::new())), None)),
            // In HTTP/2, even the smallest body records whether it is read.
            None if is_multiplexed => response.map(|body| in_pieces(body, None)),
            None if !is_as_good_as_sent(response.body()) => {
                response.map(|body| in_pieces(body, Some(Arc::clone(activity.flushes()))))
            }
            None => response,
        }
    }
}
