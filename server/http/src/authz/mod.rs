//! Authorization over HTTP: one layer before all handlers, and the same checks for commits on the fast path. It
//! authenticates the caller, checks whether the caller's roles permit the route, and whether the tenant's quota has
//! room for another request.
//!
//! The requirement of a route follows from the pattern that the router matched, never from the raw path: a crafted path
//! that reaches a handler is subject to that handler's rule ([`rules`]). The tenant of a request is the caller's,
//! regardless of the request's content ([`crate::request::caller::tenant`]).

pub(crate) mod admission;
pub(crate) mod answering;
pub(crate) mod credential;
mod requested_change;
pub(crate) mod rules;
