//! What the control log contains about stores: their declarations, which of them are detached, which records they skip.
//!
//! Changed by control entries only, in their order, so that a restart and another node come to the same. Knows nothing
//! of how a push is doing.

use std::collections::BTreeMap;

use tribunal_types::{Bounds, ControlChange, ControlIndex, Detachment, Lsn, Skip, StoreId, StoreSpec};

/// Skipped records that one store may have: each is an operator's decision, and all are kept.
pub const SKIPS_PER_STORE_MAX: usize = 10_000;

/// One store.
#[derive(Clone, Debug)]
pub struct DeclaredStore {
    /// Its declaration.
    pub spec: StoreSpec,
    /// The control entry that declared or attached it last. Acknowledgements from before it are void.
    pub generation: ControlIndex,
    /// Why the log does not wait for it, if it does not.
    pub detached: Option<Detachment>,
    /// Records that its storages never got, with the control entries that skip them, oldest first.
    pub skips: Vec<(ControlIndex, Skip)>,
    /// The control entry of the declaration alone: skips from before it were of another storage.
    declared: ControlIndex,
}

impl DeclaredStore {
    /// Returns the records that the present storage is not given.
    pub fn skipped(&self) -> impl Iterator<Item = Lsn> + '_ {
        self.skips.iter().filter(|(index, _)| *index > self.declared).map(|(_, skip)| skip.lsn)
    }
}

/// All stores.
#[derive(Clone, Debug, Default)]
pub struct StoreRegistry {
    stores: BTreeMap<StoreId, DeclaredStore>,
    bounds: Option<Bounds>,
}

impl StoreRegistry {
    /// Takes over a control entry; returns whether it changed anything here.
    pub fn apply(&mut self, index: ControlIndex, change: &ControlChange) -> bool {
        match change {
            ControlChange::DeclareStore(spec) => {
                let skips = self.stores.remove(&spec.id).map(|before| before.skips).unwrap_or_default();
                let store =
                    DeclaredStore { spec: spec.clone(), generation: index, detached: None, skips, declared: index };
                self.stores.insert(spec.id, store);
                true
            }
            ControlChange::DetachPush(detachment) => self.change(detachment.store, |store| {
                // Decided about a storage that was replaced or attached since: it is not meant.
                if store.detached.is_some() || store.generation != detachment.declared {
                    return false;
                }
                store.detached = Some(detachment.clone());
                true
            }),
            ControlChange::AttachPush { store } => self.change(*store, |store| {
                let attached = store.detached.take().is_some();
                if attached {
                    store.generation = index;
                }
                attached
            }),
            ControlChange::SkipRecord(skip) => self.change(skip.store, |store| {
                store.skips.push((index, skip.clone()));
                true
            }),
            ControlChange::SetBounds(bounds) => self.bounds.replace(*bounds) != Some(*bounds),
            ControlChange::ForgetPlugin { .. } | ControlChange::ActivatePlugin { .. } | ControlChange::Lost => false,
            ControlChange::CreateKey(_) | ControlChange::RevokeKey { .. } => false,
        }
    }

    fn change(&mut self, store: StoreId, change: impl FnOnce(&mut DeclaredStore) -> bool) -> bool {
        self.stores.get_mut(&store).is_some_and(change)
    }

    /// Returns a store.
    #[must_use]
    pub fn store(&self, store: StoreId) -> Option<&DeclaredStore> {
        self.stores.get(&store)
    }

    /// Returns all stores, ascending id.
    pub fn stores(&self) -> impl Iterator<Item = &DeclaredStore> {
        self.stores.values()
    }

    /// Returns the resolver's memory bounds, if the control log contains any.
    #[must_use]
    pub fn bounds(&self) -> Option<Bounds> {
        self.bounds
    }

    /// Returns the id that the next new store gets.
    #[must_use]
    pub fn next_id(&self) -> StoreId {
        StoreId(self.stores.keys().next_back().map_or(1, |id| id.0 + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tribunal_types::Epoch;

    const S: StoreId = StoreId(1);

    fn declare() -> ControlChange {
        ControlChange::DeclareStore(StoreSpec { id: S, ..StoreSpec::default() })
    }

    fn detach(declared: u64) -> ControlChange {
        let declared = ControlIndex(declared);
        ControlChange::DetachPush(Detachment { store: S, declared, at: Epoch(9), acked: Lsn(4), reason: "dead".into() })
    }

    fn skip(lsn: u64) -> ControlChange {
        ControlChange::SkipRecord(Skip { store: S, lsn: Lsn(lsn), at_ms: 0, by: String::new(), reason: String::new() })
    }

    #[test]
    fn a_detachment_only_applies_to_the_storage_it_was_decided_for() {
        let mut all = StoreRegistry::default();
        assert!(!all.apply(ControlIndex(1), &detach(0)), "nothing is declared");
        assert!(all.apply(ControlIndex(2), &declare()));
        assert!(!all.apply(ControlIndex(3), &detach(1)), "that was another declaration");
        assert!(all.apply(ControlIndex(4), &detach(2)));
        assert!(!all.apply(ControlIndex(5), &detach(2)), "once is enough");
        assert!(all.apply(ControlIndex(6), &ControlChange::AttachPush { store: S }));
        assert!(!all.apply(ControlIndex(7), &detach(2)), "it was attached since");
        assert!(all.apply(ControlIndex(8), &detach(6)));
        assert!(all.apply(ControlIndex(9), &declare()));
        assert!(all.store(S).expect("declared").detached.is_none(), "a new declaration is a new storage");
    }

    #[test]
    fn skips_belong_to_one_storage_and_are_kept_permanently() {
        let mut all = StoreRegistry::default();
        all.apply(ControlIndex(1), &declare());
        all.apply(ControlIndex(2), &skip(7));
        all.apply(ControlIndex(3), &ControlChange::AttachPush { store: S });
        let skipped = |all: &StoreRegistry| all.store(S).expect("declared").skipped().collect::<Vec<_>>();
        assert_eq!(skipped(&all), [Lsn(7)], "the same storage still cannot take it");
        all.apply(ControlIndex(4), &declare());
        assert_eq!(skipped(&all), [], "another storage may");
        assert_eq!(all.store(S).expect("declared").skips.len(), 1, "the audit stays");
    }
}
