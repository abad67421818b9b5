//! The stores known to the resolver: how existence is decided, which are multi-version, each log's head, and when a row
//! of each was last deleted.

use alloc::vec::Vec;

use tribunal_types::{Epoch, Existence, Lsn, NamespaceId, StoreId, StoreSpec, Version};

use crate::planted::{Bug, planted};

/// A store's rules and the last position of its log.
#[derive(Clone, Debug)]
pub(crate) struct StoreState {
    pub(crate) id: StoreId,
    /// `None` until declared: a store with only a log counts as tracked.
    pub(crate) spec: Option<StoreSpec>,
    pub(crate) head: Lsn,
    /// The last epoch that deleted a row, or may have; 0 if none has. Counted from [`Generation::SECOND`] on.
    ///
    /// [`Generation::SECOND`]: tribunal_types::Generation::SECOND
    pub(crate) deleted: Epoch,
}

/// All stores in ascending order of id; there are few.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stores {
    list: Vec<StoreState>,
}

impl Stores {
    fn position(&self, store: StoreId) -> Result<usize, usize> {
        self.list.binary_search_by_key(&store, |s| s.id)
    }

    fn state_mut(&mut self, store: StoreId) -> &mut StoreState {
        let at = self.position(store).unwrap_or_else(|at| {
            self.list.insert(at, StoreState { id: store, spec: None, head: Lsn(0), deleted: Epoch(0) });
            at
        });
        &mut self.list[at]
    }

    pub(crate) fn declare(&mut self, spec: StoreSpec) {
        let id = spec.id;
        self.state_mut(id).spec = Some(spec);
    }

    fn spec(&self, store: StoreId) -> Option<&StoreSpec> {
        self.position(store).ok().and_then(|at| self.list[at].spec.as_ref())
    }

    /// Returns the namespace used in a store's row names.
    pub(crate) fn namespace(&self, store: StoreId) -> NamespaceId {
        self.spec(store).map_or(NamespaceId(0), |spec| spec.namespace)
    }

    /// Returns whether the engine's read set decides existence for rows without history above the floor.
    pub(crate) fn is_declared(&self, store: StoreId) -> bool {
        self.spec(store).is_some_and(|s| s.existence == Existence::Declared)
    }

    pub(crate) fn is_multi_version(&self, store: StoreId) -> bool {
        self.spec(store).is_some_and(|s| s.multi_version)
    }

    /// Returns whether any store is multi-version.
    pub(crate) fn any_multi_version(&self) -> bool {
        self.list.iter().any(|s| s.spec.as_ref().is_some_and(|spec| spec.multi_version))
    }

    pub(crate) fn head(&self, store: StoreId) -> Lsn {
        self.position(store).map_or(Lsn(0), |at| self.list[at].head)
    }

    pub(crate) fn set_head(&mut self, store: StoreId, head: Lsn) {
        self.state_mut(store).head = head;
    }

    /// Advances a store's log by one position and returns it.
    #[inline]
    pub(crate) fn advance(&mut self, store: StoreId) -> Lsn {
        let state = self.state_mut(store);
        state.head = state.head.next();
        state.head
    }

    /// Notes that an epoch has deleted a row of a store, or may have.
    pub(crate) fn note_deletion(&mut self, store: StoreId, epoch: Epoch) {
        let deleted = &mut self.state_mut(store).deleted;
        *deleted = epoch.max(*deleted);
    }

    /// Notes that every store with records may have had deletions up to an epoch: they were not tracked before.
    pub(crate) fn assume_deletions(&mut self, upto: Epoch) {
        let written = self.list.iter_mut().filter(|store| store.head > Lsn(0));
        written.for_each(|store| store.deleted = upto.max(store.deleted));
    }

    /// Returns whether a row that is not in the map may have had this version before a forgotten deletion. Deletions
    /// above the floor are not forgotten: the map still contains their rows.
    pub(crate) fn may_be_deleted(&self, store: StoreId, version: Version, floor: Epoch) -> bool {
        let deleted = self.position(store).map_or(Epoch(0), |at| self.list[at].deleted);
        let forgotten = deleted.min(floor);
        forgotten > Epoch(0) && version.epoch() <= forgotten && !planted(Bug::DeletionsForgotten)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &StoreState> {
        self.list.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undeclared_store_is_tracked_and_has_a_log() {
        let mut stores = Stores::default();
        assert_eq!(stores.advance(StoreId(9)), Lsn(1));
        assert!(!stores.is_declared(StoreId(9)));
        stores.declare(StoreSpec { id: StoreId(9), existence: Existence::Declared, ..StoreSpec::default() });
        assert!(stores.is_declared(StoreId(9)));
        assert_eq!((stores.advance(StoreId(9)), stores.head(StoreId(1))), (Lsn(2), Lsn(0)));
    }

    #[test]
    fn versions_up_to_the_last_forgotten_deletion_may_be_deleted() {
        let mut stores = Stores::default();
        let may_be = |stores: &Stores, epoch, floor| {
            let version = Version::new(Epoch(epoch), 7).expect("fits");
            stores.may_be_deleted(StoreId(9), version, Epoch(floor))
        };
        assert!(!may_be(&stores, 0, 100), "nothing was deleted");
        stores.note_deletion(StoreId(9), Epoch(20));
        stores.note_deletion(StoreId(9), Epoch(10));
        assert!(may_be(&stores, 0, 100) && may_be(&stores, 20, 100) && !may_be(&stores, 21, 100));
        assert!(may_be(&stores, 15, 15) && !may_be(&stores, 16, 15), "the map knows what was deleted above the floor");
        assert!(!may_be(&stores, 0, 0), "nothing is forgotten");
        stores.assume_deletions(Epoch(30));
        assert!(!may_be(&stores, 25, 100), "it has no records");
        stores.set_head(StoreId(9), Lsn(1));
        stores.assume_deletions(Epoch(30));
        assert!(may_be(&stores, 30, 100) && !may_be(&stores, 31, 100));
    }
}
