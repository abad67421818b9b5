//! Requests and bytes that each tenant has in flight, and their limits.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use axum::http::{HeaderMap, Method, Version};
use tokio::sync::Notify;
use tribunal_types::NamespaceId;
use tribunal_types::limits::BODY_BYTES_MAX;

/// Limits of a tenant's work in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantQuota {
    /// Requests.
    pub requests_max: usize,
    /// Bytes of request bodies, as announced (a body of unknown length counts as the largest), and of responses until they
    /// are taken.
    pub bytes_max: usize,
}

/// All tenants' work in flight.
#[derive(Debug)]
pub struct Tenants {
    quota: TenantQuota,
    tenants: Mutex<HashMap<NamespaceId, Arc<InFlight>>>,
}

/// Bits of [`InFlight::held`] that count bytes: 4 TiB. The others count requests.
const BYTES_BITS: u32 = 42;
/// One request, in [`InFlight::held`].
const REQUEST: u64 = 1 << BYTES_BITS;
/// The most requests that can be counted.
const REQUESTS_MAX: usize = (u64::MAX >> BYTES_BITS) as usize;

#[derive(Debug, Default)]
struct InFlight {
    /// Requests and bytes in one word: an attempt is checked against both limits, and counts towards neither if it is refused.
    held: AtomicU64,
    /// Notifies streams that wait for room.
    released: Notify,
    /// The number of these streams: notifying takes a lock, which commits must not wait for.
    waiting: AtomicUsize,
}

impl InFlight {
    /// Counts a request and its `bytes`, if there is room. If no bytes are in flight, any size fits.
    fn enter(&self, bytes: usize, quota: TenantQuota) -> bool {
        let requests_max = quota.requests_max.min(REQUESTS_MAX);
        self.add_if(REQUEST + bytes as u64, |requests, before| {
            requests < requests_max && (before == 0 || before.saturating_add(bytes) <= quota.bytes_max)
        })
    }

    /// Counts `bytes` of a request that already counts `own`, if there is room. If nothing else is in flight, any size fits.
    fn take(&self, bytes: usize, own: usize, bytes_max: usize) -> bool {
        self.add_if(bytes as u64, |_, before| bytes == 0 || before <= own || before.saturating_add(bytes) <= bytes_max)
    }

    /// Adds to what is held, if what is held so far, in requests and bytes, leaves room for it. Otherwise changes nothing:
    /// others might fail because of it, and nothing would wake them.
    fn add_if(&self, added: u64, fits: impl Fn(usize, usize) -> bool) -> bool {
        // Sequentially consistent with `release`: either this sees what is released, or it is seen waiting.
        let added = self.held.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |held| {
            let (requests, bytes) = (held >> BYTES_BITS, held & (REQUEST - 1));
            fits(requests as usize, bytes as usize).then_some(held + added)
        });
        added.is_ok()
    }

    /// Counts bytes whether or not there is room for them.
    fn add(&self, bytes: usize) {
        self.held.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn release(&self, bytes: usize) {
        self.subtract(bytes as u64);
    }

    fn leave(&self, bytes: usize) {
        self.subtract(REQUEST + bytes as u64);
    }

    fn subtract(&self, released: u64) {
        self.held.fetch_sub(released, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.released.notify_waiters();
        }
    }
}

/// The permit of a request in flight, released when this is dropped.
#[derive(Debug)]
pub struct Permit {
    tenant: Arc<InFlight>,
    bytes: usize,
    bytes_max: usize,
    kept: Option<Arc<Reserved>>,
}

impl Permit {
    /// Counts bytes of a response that must be sent, too.
    pub fn add(&mut self, bytes: usize) {
        self.tenant.add(bytes);
        self.bytes += bytes;
    }

    /// Counts bytes of a response, too. Returns false if the tenant has no room for them.
    #[must_use]
    pub fn try_add(&mut self, bytes: usize) -> bool {
        let fits = self.tenant.take(bytes, self.bytes, self.bytes_max);
        if fits {
            self.bytes += bytes;
        }
        fits
    }

    /// Returns the tenant's remaining quota, which the request may use.
    #[must_use]
    pub fn room(&self) -> Room {
        Room { tenant: Arc::clone(&self.tenant), bytes_max: self.bytes_max }
    }

    /// Holds the reservation for the response.
    pub fn keep(&mut self, reserved: Arc<Reserved>) {
        self.kept = Some(reserved);
    }
}

/// The remaining quota of a tenant.
#[derive(Clone, Debug)]
pub struct Room {
    tenant: Arc<InFlight>,
    bytes_max: usize,
}

impl Room {
    /// Reserves `bytes`; `None` if the tenant has no room for them. Alone, any size fits.
    #[must_use]
    pub fn reserve(&self, bytes: usize) -> Option<Reserved> {
        let fits = self.tenant.take(bytes, 0, self.bytes_max);
        fits.then(|| Reserved { tenant: Arc::clone(&self.tenant), bytes })
    }

    /// Reserves `bytes`, and waits until there is room for them, for `timeout` at most.
    pub async fn reserve_within(&self, bytes: usize, timeout: Duration) -> Option<Reserved> {
        let reserve = async {
            self.tenant.waiting.fetch_add(1, Ordering::SeqCst);
            let _waiting = Waiting(&self.tenant.waiting);
            loop {
                // Register before the attempt, so that no notification is missed.
                let released = self.tenant.released.notified();
                if let Some(reserved) = self.reserve(bytes) {
                    return reserved;
                }
                released.await;
            }
        };
        tokio::time::timeout(timeout, reserve).await.ok()
    }
}

/// A stream that waits for room, until this is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Bytes that count towards a tenant's quota until this is dropped.
#[derive(Debug)]
pub struct Reserved {
    tenant: Arc<InFlight>,
    bytes: usize,
}

impl Reserved {
    /// Counts `bytes` instead. An excess over the reservation is small, and counts whether or not there is room for it.
    pub fn resize(&mut self, bytes: usize) {
        match bytes.checked_sub(self.bytes) {
            Some(more) => self.tenant.add(more),
            None => self.tenant.release(self.bytes - bytes),
        }
        self.bytes = bytes;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.tenant.release(self.bytes);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.tenant.leave(self.bytes);
    }
}

impl Tenants {
    /// Builds the registry with nothing in flight.
    #[must_use]
    pub fn new(quota: TenantQuota) -> Tenants {
        Tenants { quota, tenants: Mutex::default() }
    }

    /// Returns the remaining quota of a tenant.
    pub fn room(&self, namespace: NamespaceId) -> Room {
        Room { tenant: self.tenant(namespace), bytes_max: self.quota.bytes_max }
    }

    fn tenant(&self, namespace: NamespaceId) -> Arc<InFlight> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(tenants.entry(namespace).or_default())
    }

    /// Issues a permit; `None` if the tenant has exhausted its quota. A single request always fits, regardless of its
    /// size.
    pub fn enter(&self, namespace: NamespaceId, bytes: usize) -> Option<Permit> {
        let tenant = self.tenant(namespace);
        let fits = tenant.enter(bytes, self.quota);
        fits.then(|| Permit { tenant, bytes, bytes_max: self.quota.bytes_max, kept: None })
    }
}

/// Returns the bytes to reserve for a body, from the request's head.
#[must_use]
pub fn body_bytes(method: &Method, version: Version, headers: &HeaderMap) -> usize {
    // In HTTP/1, a request with neither a length nor an encoding has no body.
    let says_nothing = !headers.contains_key(CONTENT_LENGTH) && !headers.contains_key(TRANSFER_ENCODING);
    if matches!(*method, Method::GET | Method::HEAD | Method::DELETE) || says_nothing && version < Version::HTTP_2 {
        return 0;
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    length.unwrap_or(BODY_BYTES_MAX).min(BODY_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_body_counts_by_its_announced_length() {
        let bytes = |method, version, header: Option<(_, &'static str)>| {
            let headers = header.map(|(name, value)| (name, HeaderValue::from_static(value)));
            body_bytes(&method, version, &headers.into_iter().collect())
        };
        assert_eq!(bytes(Method::POST, Version::HTTP_11, Some((CONTENT_LENGTH, "12"))), 12);
        assert_eq!(bytes(Method::POST, Version::HTTP_11, None), 0, "as of `curl -X POST`");
        assert_eq!(bytes(Method::POST, Version::HTTP_11, Some((TRANSFER_ENCODING, "chunked"))), BODY_BYTES_MAX);
        assert_eq!(bytes(Method::POST, Version::HTTP_2, None), BODY_BYTES_MAX);
        assert_eq!(bytes(Method::GET, Version::HTTP_2, None), 0);
    }

    #[test]
    fn one_tenants_requests_leave_room_for_others() {
        let tenants = Tenants::new(TenantQuota { requests_max: 2, bytes_max: 100 });
        let (one, two) = (NamespaceId(1), NamespaceId(2));
        let first = tenants.enter(one, 90).expect("the first fits");
        assert!(tenants.enter(one, 20).is_none(), "too many bytes");
        let second = tenants.enter(one, 10).expect("a rejected request holds no permit");
        assert!(tenants.enter(one, 0).is_none(), "too many requests");
        assert!(tenants.enter(two, 1000).is_some(), "alone, any size fits");
        drop((first, second));
        assert!(tenants.enter(one, 100).is_some());
    }

    #[test]
    fn a_request_that_is_refused_for_its_bytes_takes_no_other_ones_place() {
        let tenants = Tenants::new(TenantQuota { requests_max: 2, bytes_max: 100 });
        let one = NamespaceId(1);
        let _first = tenants.enter(one, 90).expect("it fits");
        let large = || (0..2_000_000).all(|_| tenants.enter(one, 20).is_none());
        std::thread::scope(|scope| {
            // Several, so that some are interrupted amid an attempt.
            let large = [(); 4].map(|()| scope.spawn(large));
            while !large.iter().all(|large| large.is_finished()) {
                assert!(tenants.enter(one, 10).is_some(), "there is room for a second request");
            }
            assert!(large.into_iter().all(|large| large.join().expect("no panic")), "too many bytes");
        });
    }

    #[test]
    fn what_is_reserved_counts_until_it_is_dropped() {
        let tenants = Tenants::new(TenantQuota { requests_max: 9, bytes_max: 100 });
        let mut permit = tenants.enter(NamespaceId(1), 10).expect("it fits");
        assert!(permit.room().reserve(91).is_none());
        let reserved = permit.room().reserve(90).expect("what was refused does not count");
        assert!(permit.room().reserve(1).is_none());
        permit.keep(Arc::new(reserved));
        drop(permit);
        assert!(tenants.enter(NamespaceId(1), 100).is_some());
    }

    #[tokio::test]
    async fn a_waiter_gets_the_room_that_is_released() {
        let tenants = Tenants::new(TenantQuota { requests_max: 9, bytes_max: 100 });
        let room = tenants.enter(NamespaceId(1), 0).expect("it fits").room();
        let mut first = room.reserve(1000).expect("alone, any size fits");
        assert!(room.reserve_within(1, Duration::from_millis(20)).await.is_none());
        let waiting = tokio::spawn(async move { room.reserve_within(60, Duration::from_secs(60)).await });
        tokio::task::yield_now().await;
        first.resize(40);
        let second = waiting.await.expect("no panic").expect("there is room");
        assert!(tenants.enter(NamespaceId(1), 1).is_none(), "both count");
        drop((first, second));
        assert!(tenants.enter(NamespaceId(1), 100).is_some());
    }

    #[test]
    fn a_response_that_does_not_fit_is_not_counted() {
        let tenants = Tenants::new(TenantQuota { requests_max: 9, bytes_max: 100 });
        let mut alone = tenants.enter(NamespaceId(1), 10).expect("it fits");
        let mut other = tenants.enter(NamespaceId(1), 0).expect("it fits");
        assert!(!other.try_add(91) && other.try_add(90));
        drop(other);
        assert!(alone.try_add(1000), "beside its own body, any size fits");
    }

    #[test]
    fn an_answer_counts_until_its_permit_is_dropped() {
        let tenants = Tenants::new(TenantQuota { requests_max: 9, bytes_max: 100 });
        let mut first = tenants.enter(NamespaceId(1), 0).expect("the first fits");
        first.add(101);
        assert!(tenants.enter(NamespaceId(1), 0).is_none(), "an answer waits to be taken");
        drop(first);
        assert!(tenants.enter(NamespaceId(1), 100).is_some());
    }
}
