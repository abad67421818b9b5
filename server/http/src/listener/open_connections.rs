//! All open connections, and which of them is closed when there is no room for a new one: the oldest of an
//! unauthenticated caller, otherwise one of the tenant with the most: the one that has been idle longest, and only if none
//! is idle, one whose response waits to be taken. So neither strangers nor one tenant can keep the others out. A
//! connection with a request in flight is never closed; quotas bound their number.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tribunal_types::NamespaceId;

use super::connection::{Activity, Quiet};

/// List length below which the list is never cleaned.
const ENTRIES_MIN: usize = 1024;

/// All open connections, in the order of their beginning.
#[derive(Debug, Default)]
pub struct OpenConnections(Mutex<List>);

#[derive(Debug, Default)]
struct List {
    queue: VecDeque<Weak<Activity>>,
    /// Length above which the list is cleaned again: twice the length after the last cleaning.
    clean_at: usize,
}

impl OpenConnections {
    /// Adds a new connection.
    pub fn add(&self, activity: &Arc<Activity>) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.queue.push_back(Arc::downgrade(activity));
        if list.queue.len() > list.clean_at.max(ENTRIES_MIN) {
            list.queue.retain(|activity| activity.strong_count() > 0);
            list.clean_at = 2 * list.queue.len();
        }
    }

    /// Closes a connection without a request in flight; returns whether there was one.
    pub fn evict(&self) -> bool {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut tenants = HashMap::<NamespaceId, Quietest>::new();
        for activity in list.queue.iter().filter_map(Weak::upgrade) {
            let (tenant, quiet) = (activity.tenant().get(), activity.quiet());
            if tenant.is_none() && quiet.is_some() {
                activity.evict();
                return true;
            }
            let Some(tenant) = tenant else { continue };
            let of_tenant = tenants.entry(tenant).or_default();
            of_tenant.connections += 1;
            let Some(quiet) = quiet else { continue };
            if of_tenant.one.as_ref().is_none_or(|(_, quietest)| quiet > *quietest) {
                of_tenant.one = Some((activity, quiet));
            }
        }
        let most = tenants.into_values().filter(|of_tenant| of_tenant.one.is_some());
        let most = most.max_by_key(|of_tenant| of_tenant.connections);
        let quietest = most.and_then(|of_tenant| of_tenant.one);
        if let Some((activity, _)) = &quietest {
            activity.evict();
        }
        quietest.is_some()
    }
}

/// The connections of a tenant, and the quietest of them without a request in flight.
#[derive(Default)]
struct Quietest {
    connections: usize,
    one: Option<(Arc<Activity>, Quiet)>,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_oldest_idle_stranger_is_closed_first() {
        let connections = OpenConnections::default();
        let [gone, known, working, idle] = std::array::from_fn(|_| Arc::new(Activity::new()));
        for activity in [&gone, &known, &working, &idle] {
            connections.add(activity);
        }
        drop(gone);
        known.tenant().set(NamespaceId(1));
        let request = working.request_began(false);
        let evicts = |expected: &Activity| connections.evict() && expected.quiet().is_none();
        assert!(evicts(&idle));
        assert!(evicts(&known), "the other one works");
        assert!(!connections.evict());
        drop(request);
        assert!(evicts(&working));
        assert!(!connections.evict());
    }

    #[test]
    fn the_tenant_with_the_most_connections_loses_its_quietest_one() {
        let connections = OpenConnections::default();
        let open = |tenant: u32| {
            let activity = Arc::new(Activity::new());
            connections.add(&activity);
            activity.tenant().set(NamespaceId(tenant));
            activity.tenant().set(NamespaceId(9));
            activity
        };
        let [few, responding, recent, oldest] = [open(0), open(1), open(1), open(1)];
        let response = responding.response_began();
        std::thread::sleep(Duration::from_millis(5));
        drop(recent.request_began(false));
        let evicts = |expected: &Activity| connections.evict() && expected.quiet().is_none();
        assert!(evicts(&oldest), "it has been idle longest");
        assert!(evicts(&recent), "the other one of its tenant has a response");
        assert!([&few, &responding].iter().all(|activity| activity.quiet().is_some()));
        let third = open(1);
        drop(third.request_began(false));
        let more = third.response_began();
        assert!(evicts(&responding), "none of its tenant is idle");
        drop((response, more));
        assert!(connections.evict() && connections.evict() && !connections.evict());
    }

    #[test]
    fn connections_that_ended_are_forgotten() {
        let connections = OpenConnections::default();
        for _ in 0..10 * ENTRIES_MIN {
            connections.add(&Arc::new(Activity::new()));
        }
        assert!(connections.0.lock().unwrap().queue.len() <= ENTRIES_MIN + 1);
    }
}
