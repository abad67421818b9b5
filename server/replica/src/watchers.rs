//! Watches of ids that wait for a verdict, without a transaction of their own in the batch.
//!
//! A replica answers them when an epoch has decided the id, so clients do not poll. Bounded: a watch that does not fit
//! is answered with the current status.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use tribunal_types::{NamespaceId, TxnId};

use crate::event::Waiters;

/// Maximum number of pending watches of a node.
const WATCHERS_MAX: usize = 65_536;
/// Number of pending watches below which watches of disconnected clients are not purged.
const PURGE_MIN: usize = 1_024;

/// The pending watches.
pub(crate) struct Watchers<W: Waiters> {
    /// Ordered: clients choose the ids, and could make them collide in a hash table.
    waiting: BTreeMap<(NamespaceId, TxnId), Vec<W::Watch>>,
    count: usize,
    purge_at: usize,
}

impl<W: Waiters> Default for Watchers<W> {
    fn default() -> Self {
        Watchers { waiting: BTreeMap::new(), count: 0, purge_at: 0 }
    }
}

impl<W: Waiters> Watchers<W> {
    /// Adds a watch; returns it if there are too many.
    pub(crate) fn add(&mut self, namespace: NamespaceId, id: TxnId, watch: W::Watch) -> Option<W::Watch> {
        if self.count >= self.purge_at.max(PURGE_MIN) {
            self.purge();
        }
        if self.count >= WATCHERS_MAX {
            return Some(watch);
        }
        self.waiting.entry((namespace, id)).or_default().push(watch);
        self.count += 1;
        None
    }

    /// Returns whether there is no pending watch.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Removes and returns the watches of an id.
    pub(crate) fn take(&mut self, namespace: NamespaceId, id: TxnId) -> Vec<W::Watch> {
        let taken = self.waiting.remove(&(namespace, id)).unwrap_or_default();
        self.count -= taken.len();
        taken
    }

    /// Drops watches of disconnected clients. The next purge is due when the number of watches has doubled.
    fn purge(&mut self) {
        self.waiting.retain(|_, watches| {
            watches.retain(|watch| !W::has_left(watch));
            !watches.is_empty()
        });
        self.count = self.waiting.values().map(Vec::len).sum();
        self.purge_at = self.count * 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names a watch, and whether its client has disconnected.
    struct Named;

    impl Waiters for Named {
        type Item = ();
        type Import = ();
        type Control = ();
        type Watch = (u64, bool);

        fn has_left(&(_, left): &(u64, bool)) -> bool {
            left
        }
    }

    fn id(n: u64) -> TxnId {
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&n.to_be_bytes());
        TxnId(bytes)
    }

    #[test]
    fn those_who_left_make_room_and_too_many_are_rejected() {
        let mut watchers = Watchers::<Named>::default();
        for n in 0..WATCHERS_MAX as u64 {
            assert_eq!(watchers.add(NamespaceId(0), id(n), (n, true)), None);
        }
        assert!(watchers.count <= PURGE_MIN, "{}", watchers.count);
        let turned_away = (0..=WATCHERS_MAX as u64).find_map(|n| watchers.add(NamespaceId(1), id(n), (n, false)));
        assert_eq!(turned_away, Some((WATCHERS_MAX as u64, false)));
        assert_eq!(watchers.take(NamespaceId(1), id(7)), [(7, false)]);
        assert_eq!(watchers.take(NamespaceId(1), id(7)), []);
    }
}
