//! The stores: their declarations, which are detached, which nodes push to them, and which records they skip. Contains
//! no state of the pushes themselves. A copy shares everything until either one is changed.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tribunal_types::limits::{SKIPS_PER_STORE_MAX, STORES_MAX, STORES_PER_TENANT_MAX};
use tribunal_types::{
    ControlIndex, DeclaredStore, Detachment, Lsn, NamespaceId, NodeId, Pusher, Skip, StoreId, StoreSpec,
};

use super::effect::{Applied, Effect};
use super::numbering::number_of;
use super::refusal::{Limit, Refusal};

/// All stores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreTable {
    stores: Arc<BTreeMap<StoreId, DeclaredStore>>,
}

/// The effect of a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Declaration {
    /// It creates a store.
    New,
    /// It changes this store.
    Change(StoreId),
    /// This store is already declared this way.
    Known(StoreId),
}

impl StoreTable {
    /// Returns the effect that a declaration would have. `is_fixed` returns whether the existence rule of a store can
    /// no longer change.
    ///
    /// # Errors
    /// If it would be refused.
    pub fn check(&self, spec: &StoreSpec, is_fixed: &dyn Fn(StoreId) -> bool) -> Result<Declaration, Refusal> {
        let Some(known) = self.named(spec.namespace, &spec.name) else {
            let of_tenant = || self.stores().filter(|store| store.spec.namespace == spec.namespace).count();
            if spec.namespace != NamespaceId(0) && of_tenant() >= STORES_PER_TENANT_MAX {
                return Err(Refusal::LimitReached(Limit::StoresOfTenant));
            }
            return if self.stores.len() < STORES_MAX {
                Ok(Declaration::New)
            } else {
                Err(Refusal::LimitReached(Limit::Stores))
            };
        };
        let id = known.spec.id;
        if known.spec == (StoreSpec { id, ..spec.clone() }) {
            return Ok(Declaration::Known(id));
        }
        if known.spec.existence != spec.existence && is_fixed(id) {
            return Err(Refusal::ExistenceFixed);
        }
        Ok(Declaration::Change(id))
    }

    pub(super) fn declare(
        &mut self,
        index: ControlIndex,
        spec: &StoreSpec,
        is_fixed: &dyn Fn(StoreId) -> bool,
    ) -> Applied {
        let (id, created) = match self.check(spec, is_fixed)? {
            Declaration::Known(store) => return Ok(Effect::StoreKnown(store)),
            Declaration::Change(id) => (id, false),
            Declaration::New => {
                let is_used = |number| self.stores.contains_key(&StoreId(number));
                (StoreId(number_of(index, spec.id.0, is_used)?), true)
            }
        };
        let stores = Arc::make_mut(&mut self.stores);
        let before = stores.remove(&id).unwrap_or_default();
        let spec = StoreSpec { id, ..spec.clone() };
        // The node that pushed to the previous storage pushes to this one.
        let (pusher, skips) = (before.pusher, before.skips);
        let store =
            DeclaredStore { spec, declared: index, generation: index, detached: None, pusher, fork: None, skips };
        stores.insert(id, store);
        Ok(Effect::StoreDeclared { store: id, created })
    }

    pub(super) fn detach(&mut self, detachment: &Detachment) -> Effect {
        let store = detachment.store;
        // Ignore a decision about a storage that was replaced or attached since.
        let is_meant = |store: &DeclaredStore| store.detached.is_none() && store.generation == detachment.declared;
        self.change(store, is_meant, Effect::PushDetached(store), |store| store.detached = Some(detachment.clone()))
    }

    pub(super) fn attach(&mut self, index: ControlIndex, store: StoreId) -> Effect {
        self.change(
            store,
            |store| store.detached.is_some(),
            Effect::PushAttached(store),
            |store| {
                (store.detached, store.generation, store.fork) = (None, index, None);
            },
        )
    }

    pub(super) fn assign(
        &mut self,
        index: ControlIndex,
        store: StoreId,
        replaces: ControlIndex,
        node: NodeId,
    ) -> Effect {
        // Ignore a decision about a push that has ended since.
        let is_meant = |store: &DeclaredStore| {
            store.is_external()
                && store.detached.is_none()
                && store.push() == replaces
                && store.pusher.is_none_or(|pusher| pusher.node != node)
        };
        let pusher = Pusher { node, since: index };
        self.change(store, is_meant, Effect::PushAssigned(store), |store| store.pusher = Some(pusher))
    }

    pub(super) fn fork(&mut self, store: StoreId, generation: ControlIndex, fork: Option<Lsn>) -> Effect {
        let is_meant = |store: &DeclaredStore| store.generation == generation && store.fork != fork;
        self.change(store, is_meant, Effect::PushForked(store), |store| store.fork = fork)
    }

    pub(super) fn skip(&mut self, index: ControlIndex, skip: &Skip) -> Applied {
        let store = self.store(skip.store);
        if store.is_some_and(|store| store.skips.len() >= SKIPS_PER_STORE_MAX) {
            return Err(Refusal::LimitReached(Limit::SkipsOfStore));
        }
        let is_new = |store: &DeclaredStore| store.skipped().all(|lsn| lsn != skip.lsn);
        let skipped = Effect::RecordSkipped(skip.store, skip.lsn);
        Ok(self.change(skip.store, is_new, skipped, |store| store.skips.push((index, skip.clone()))))
    }

    fn change(
        &mut self,
        store: StoreId,
        changes: impl FnOnce(&DeclaredStore) -> bool,
        effect: Effect,
        change: impl FnOnce(&mut DeclaredStore),
    ) -> Effect {
        // Check first: an unchanged table stays shared.
        if !self.store(store).is_some_and(changes) {
            return Effect::Unchanged;
        }
        if let Some(store) = Arc::make_mut(&mut self.stores).get_mut(&store) {
            change(store);
        }
        effect
    }

    /// Returns a store.
    #[must_use]
    pub fn store(&self, store: StoreId) -> Option<&DeclaredStore> {
        self.stores.get(&store)
    }

    /// Returns the store with a given name.
    #[must_use]
    pub fn named(&self, namespace: NamespaceId, name: &str) -> Option<&DeclaredStore> {
        self.stores().find(|store| store.spec.namespace == namespace && store.spec.name == name)
    }

    /// Returns all stores in ascending order of id.
    pub fn stores(&self) -> impl Iterator<Item = &DeclaredStore> + Clone {
        self.stores.values()
    }

    pub(super) fn image(&self) -> Vec<DeclaredStore> {
        self.stores().cloned().collect()
    }

    pub(super) fn restore(image: Vec<DeclaredStore>) -> StoreTable {
        StoreTable { stores: Arc::new(image.into_iter().map(|store| (store.spec.id, store)).collect()) }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;

    use tribunal_types::{Epoch, Existence};

    use super::*;

    fn declare_as(all: &mut StoreTable, index: u64, name: &str, adaptor_config: &str) -> Applied {
        let spec = StoreSpec { name: name.into(), adaptor_config: adaptor_config.into(), ..StoreSpec::default() };
        all.declare(ControlIndex(index), &spec, &|_| false)
    }

    fn detach(all: &mut StoreTable, store: u32, declared: u64) -> Effect {
        let (store, declared) = (StoreId(store), ControlIndex(declared));
        all.detach(&Detachment { store, declared, at: Epoch(9), acked: Lsn(4), reason: "dead".into() })
    }

    fn skip(all: &mut StoreTable, index: u64, store: u32, lsn: u64) -> Applied {
        let (store, lsn) = (StoreId(store), Lsn(lsn));
        all.skip(ControlIndex(index), &Skip { store, lsn, at_ms: 0, by: String::new(), reason: String::new() })
    }

    #[test]
    fn a_store_gets_the_index_of_its_first_declaration() {
        let mut all = StoreTable::default();
        let declared = |store, created| Ok(Effect::StoreDeclared { store: StoreId(store), created });
        assert_eq!(declare_as(&mut all, 3, "a", ""), declared(3, true));
        assert_eq!(declare_as(&mut all, 4, "b", ""), declared(4, true));
        assert_eq!(declare_as(&mut all, 5, "a", "x"), declared(3, false), "another storage of the same store");
        assert_eq!(declare_as(&mut all, 6, "a", "x"), Ok(Effect::StoreKnown(StoreId(3))), "proposed twice");
    }

    #[test]
    fn a_store_whose_first_declaration_was_lost_keeps_its_number() {
        let mut all = StoreTable::default();
        let mut declare = |index, id, name: &str| {
            let spec = StoreSpec { id: StoreId(id), name: name.into(), ..StoreSpec::default() };
            all.declare(ControlIndex(index), &spec, &|_| false)
        };
        let created = |store| Ok(Effect::StoreDeclared { store: StoreId(store), created: true });
        assert_eq!(declare(7, 2, "a"), created(2));
        assert_eq!(declare(8, 2, "b"), created(8), "2 is another store's");
        assert_eq!(declare(9, 10, "c"), created(9), "no entry has created 10 yet");
    }

    #[test]
    fn existence_is_fixed_once_there_are_records() {
        let mut all = StoreTable::default();
        declare_as(&mut all, 1, "a", "").unwrap();
        let spec = StoreSpec { name: "a".into(), existence: Existence::Declared, ..StoreSpec::default() };
        assert_eq!(all.declare(ControlIndex(2), &spec, &|_| true), Err(Refusal::ExistenceFixed));
        let changed = Ok(Effect::StoreDeclared { store: StoreId(1), created: false });
        assert_eq!(all.declare(ControlIndex(3), &spec, &|_| false), changed);
    }

    #[test]
    fn a_tenant_has_as_many_stores_as_it_may() {
        let mut all = StoreTable::default();
        let mut declare = |index: u64, namespace, name: String| {
            let spec = StoreSpec { namespace: NamespaceId(namespace), name, ..StoreSpec::default() };
            all.declare(ControlIndex(index), &spec, &|_| false)
        };
        for index in 1..=STORES_PER_TENANT_MAX as u64 {
            declare(index, 9, format!("s{index}")).unwrap();
        }
        assert_eq!(declare(2000, 9, "more".into()), Err(Refusal::LimitReached(Limit::StoresOfTenant)));
        for index in STORES_PER_TENANT_MAX as u64 + 1..=STORES_MAX as u64 {
            declare(index, 0, format!("s{index}")).unwrap();
        }
        assert_eq!(declare(2001, 0, "more".into()), Err(Refusal::LimitReached(Limit::Stores)));
    }

    #[test]
    fn a_detachment_only_applies_to_the_storage_it_was_decided_for() {
        let mut all = StoreTable::default();
        let detached = Effect::PushDetached(StoreId(2));
        assert_eq!(detach(&mut all, 2, 0), Effect::Unchanged, "nothing is declared");
        declare_as(&mut all, 2, "a", "").unwrap();
        assert_eq!(detach(&mut all, 2, 1), Effect::Unchanged, "that was another declaration");
        assert_eq!(detach(&mut all, 2, 2), detached);
        assert_eq!(detach(&mut all, 2, 2), Effect::Unchanged, "once is enough");
        assert_eq!(all.attach(ControlIndex(6), StoreId(2)), Effect::PushAttached(StoreId(2)));
        assert_eq!(all.attach(ControlIndex(7), StoreId(2)), Effect::Unchanged, "once is enough");
        assert_eq!(detach(&mut all, 2, 2), Effect::Unchanged, "it was attached since");
        assert_eq!(detach(&mut all, 2, 6), detached);
        declare_as(&mut all, 9, "a", "elsewhere").unwrap();
        assert!(all.store(StoreId(2)).expect("declared").detached.is_none(), "a new declaration is a new storage");
    }

    fn declare_external(all: &mut StoreTable, index: u64, adaptor_config: &str) {
        let (name, adaptor) = ("a".into(), Some("redis".into()));
        let spec = StoreSpec { name, adaptor, adaptor_config: adaptor_config.into(), ..StoreSpec::default() };
        all.declare(ControlIndex(index), &spec, &|_| false).unwrap();
    }

    #[test]
    fn the_first_of_two_nodes_that_are_named_for_one_push_gets_it() {
        let mut all = StoreTable::default();
        let assign = |all: &mut StoreTable, index, replaces, node| {
            all.assign(ControlIndex(index), StoreId(1), ControlIndex(replaces), NodeId(node))
        };
        let (assigned, unchanged) = (Effect::PushAssigned(StoreId(1)), Effect::Unchanged);
        assert_eq!(assign(&mut all, 1, 0, 1), unchanged, "nothing is declared");
        declare_as(&mut all, 1, "a", "").unwrap();
        assert_eq!(assign(&mut all, 2, 1, 1), unchanged, "nothing is pushed to it");
        declare_external(&mut all, 3, "");
        assert_eq!((assign(&mut all, 4, 3, 1), assign(&mut all, 5, 3, 2)), (assigned.clone(), unchanged.clone()));
        let push =
            |all: &StoreTable| all.store(StoreId(1)).map(|store| (store.pusher.expect("named").node.0, store.push().0));
        assert_eq!(push(&all), Some((1, 4)));
        assert_eq!(assign(&mut all, 6, 4, 1), unchanged, "it pushes already");
        assert_eq!((assign(&mut all, 7, 4, 2), push(&all)), (assigned, Some((2, 7))));
        declare_external(&mut all, 8, "elsewhere");
        assert_eq!(push(&all), Some((2, 8)), "the same node, another push");
        assert_eq!(assign(&mut all, 9, 7, 3), unchanged);
        detach(&mut all, 1, 8);
        assert_eq!(assign(&mut all, 10, 8, 3), unchanged, "nobody pushes");
        all.attach(ControlIndex(11), StoreId(1));
        assert_eq!(push(&all), Some((2, 11)));
    }

    #[test]
    fn a_fork_belongs_to_one_storage_and_outlasts_its_pushers() {
        let mut all = StoreTable::default();
        declare_external(&mut all, 1, "");
        let fork = |all: &mut StoreTable, generation, fork: Option<u64>| {
            all.fork(StoreId(1), ControlIndex(generation), fork.map(Lsn))
        };
        let known = |all: &StoreTable| all.store(StoreId(1)).and_then(|store| store.fork);
        assert_eq!(fork(&mut all, 1, Some(7)), Effect::PushForked(StoreId(1)));
        assert_eq!(fork(&mut all, 1, Some(7)), Effect::Unchanged, "found twice");
        all.assign(ControlIndex(2), StoreId(1), ControlIndex(1), NodeId(3));
        assert_eq!(known(&all), Some(Lsn(7)));
        detach(&mut all, 1, 1);
        all.attach(ControlIndex(4), StoreId(1));
        assert_eq!((known(&all), fork(&mut all, 1, Some(7))), (None, Effect::Unchanged), "it was looked at since");
        fork(&mut all, 4, Some(9));
        assert_eq!((fork(&mut all, 4, None), known(&all)), (Effect::PushForked(StoreId(1)), None));
        fork(&mut all, 4, Some(9));
        declare_external(&mut all, 5, "elsewhere");
        assert_eq!(known(&all), None);
    }

    #[test]
    fn skips_belong_to_one_storage_and_are_kept_permanently() {
        let mut all = StoreTable::default();
        declare_as(&mut all, 1, "a", "").unwrap();
        assert_eq!(skip(&mut all, 2, 1, 7), Ok(Effect::RecordSkipped(StoreId(1), Lsn(7))));
        assert_eq!(skip(&mut all, 3, 1, 7), Ok(Effect::Unchanged), "once is enough");
        all.attach(ControlIndex(4), StoreId(1));
        let skipped = |all: &StoreTable| all.store(StoreId(1)).expect("declared").skipped().collect::<Vec<_>>();
        assert_eq!(skipped(&all), [Lsn(7)], "the same storage still cannot take it");
        declare_as(&mut all, 5, "a", "elsewhere").unwrap();
        assert_eq!(skipped(&all), [], "another storage may");
        assert_eq!(all.store(StoreId(1)).expect("declared").skips.len(), 1, "the audit stays");
    }
}
