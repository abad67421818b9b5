//! Readers of a cluster's logs: offsets of consumers, webhooks, and the nodes that deliver to these. A single node
//! stores its readers beside the log; they do not appear here.
//!
//! No verdict depends on readers. They are here so that every node has the same state, backed by a majority, and keeps
//! its log for them.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tribunal_types::limits::{OFFSETS_MAX, OFFSETS_PER_TENANT_MAX};
use tribunal_types::{
    ConsumerOffset, ControlIndex, HeldWebhook, Lsn, NamespaceId, NodeId, Pusher, ReaderMove, StoreId, Webhook,
};

use super::effect::{Effect, ReaderMoved};

type Key = (NamespaceId, String, StoreId);

/// All readers. A copy shares everything until either one is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReaderTable {
    offsets: Arc<BTreeMap<Key, ConsumerOffset>>,
    webhooks: Arc<BTreeMap<StoreId, HeldWebhook>>,
}

impl ReaderTable {
    pub(super) fn register(&mut self, index: ControlIndex, webhook: &Webhook, resumes: bool) -> Effect {
        let store = webhook.store;
        let before = self.webhooks.get(&store);
        let resumed = before.filter(|_| resumes).map(|before| (before.webhook.log, before.webhook.watermark));
        let (log, watermark) = resumed.unwrap_or((webhook.log, webhook.watermark));
        // The node that delivered to the previous receiver delivers to this one.
        let deliverer = before.and_then(|before| before.deliverer);
        let webhook = Webhook { log, watermark, ..webhook.clone() };
        Arc::make_mut(&mut self.webhooks).insert(store, HeldWebhook { webhook, registered: index, deliverer });
        Effect::WebhookRegistered(store)
    }

    pub(super) fn remove(&mut self, store: StoreId) -> Effect {
        if !self.webhooks.contains_key(&store) {
            return Effect::Unchanged;
        }
        Arc::make_mut(&mut self.webhooks).remove(&store);
        Effect::WebhookRemoved(store)
    }

    pub(super) fn assign(
        &mut self,
        index: ControlIndex,
        store: StoreId,
        replaces: ControlIndex,
        node: NodeId,
    ) -> Effect {
        // Ignore a decision about a delivery that has ended since.
        let is_meant = |held: &HeldWebhook| {
            held.delivery() == replaces && held.deliverer.is_none_or(|deliverer| deliverer.node != node)
        };
        if !self.webhooks.get(&store).is_some_and(is_meant) {
            return Effect::Unchanged;
        }
        if let Some(held) = Arc::make_mut(&mut self.webhooks).get_mut(&store) {
            held.deliverer = Some(Pusher { node, since: index });
        }
        Effect::WebhookAssigned(store)
    }

    pub(super) fn change(&mut self, moves: &[ReaderMove]) -> Effect {
        Effect::ReadersMoved(moves.iter().map(|change| self.change_one(change)).collect())
    }

    fn change_one(&mut self, change: &ReaderMove) -> ReaderMoved {
        match change {
            ReaderMove::Offset(offset) => self.set(offset),
            ReaderMove::Forget { namespace, name, store } => self.forget(*namespace, name, *store),
            ReaderMove::Delivered { store, delivery, lsn } => self.delivered(*store, *delivery, *lsn),
        }
    }

    fn set(&mut self, offset: &ConsumerOffset) -> ReaderMoved {
        let ConsumerOffset { namespace, name, store, .. } = offset;
        let key = (*namespace, name.clone(), *store);
        if !self.offsets.contains_key(&key)
            && let Some(max) = self.full(*namespace)
        {
            return ReaderMoved::Full(max);
        }
        Arc::make_mut(&mut self.offsets).insert(key, offset.clone());
        ReaderMoved::Offset { namespace: *namespace, name: name.clone(), store: *store }
    }

    fn forget(&mut self, namespace: NamespaceId, name: &str, store: Option<StoreId>) -> ReaderMoved {
        let of_consumer = self.of(namespace, name).map(|offset| offset.store);
        let stores: Vec<StoreId> = of_consumer.filter(|of| store.is_none_or(|store| store == *of)).collect();
        if !stores.is_empty() {
            let offsets = Arc::make_mut(&mut self.offsets);
            stores.iter().for_each(|store| _ = offsets.remove(&(namespace, name.into(), *store)));
        }
        ReaderMoved::Forgotten { namespace, name: name.into(), stores }
    }

    fn delivered(&mut self, store: StoreId, delivery: ControlIndex, lsn: Lsn) -> ReaderMoved {
        let is_meant = |held: &HeldWebhook| held.delivery() == delivery;
        if !self.webhooks.get(&store).is_some_and(is_meant) {
            return ReaderMoved::Void;
        }
        if let Some(held) = Arc::make_mut(&mut self.webhooks).get_mut(&store) {
            held.webhook.watermark = lsn;
        }
        ReaderMoved::Delivered(store)
    }

    /// Returns the maximum number of offsets if it leaves no room for another offset of the tenant.
    fn full(&self, namespace: NamespaceId) -> Option<usize> {
        let from = (namespace, String::new(), StoreId(0));
        let of_tenant = || self.offsets.range(from..).take_while(|((of, ..), _)| *of == namespace).count();
        if namespace != NamespaceId(0) && of_tenant() >= OFFSETS_PER_TENANT_MAX {
            return Some(OFFSETS_PER_TENANT_MAX);
        }
        (self.offsets.len() >= OFFSETS_MAX).then_some(OFFSETS_MAX)
    }

    fn of<'a>(&'a self, namespace: NamespaceId, name: &'a str) -> impl Iterator<Item = &'a ConsumerOffset> {
        let from = (namespace, String::from(name), StoreId(0));
        let of = self.offsets.range(from..).map(|(_, offset)| offset);
        of.take_while(move |offset| offset.namespace == namespace && offset.name == name)
    }

    /// Returns a consumer's offset in a store.
    #[must_use]
    pub fn offset(&self, namespace: NamespaceId, name: &str, store: StoreId) -> Option<&ConsumerOffset> {
        self.offsets.get(&(namespace, name.into(), store))
    }

    /// Returns all offsets, by namespace, name and store.
    pub fn offsets(&self) -> impl Iterator<Item = &ConsumerOffset> {
        self.offsets.values()
    }

    /// Returns the receiver of a store's log.
    #[must_use]
    pub fn webhook(&self, store: StoreId) -> Option<&HeldWebhook> {
        self.webhooks.get(&store)
    }

    /// Returns all receivers in ascending order of store.
    pub fn webhooks(&self) -> impl Iterator<Item = &HeldWebhook> + Clone {
        self.webhooks.values()
    }

    /// Returns a copy that shares nothing: both may change frequently without copying again.
    #[must_use]
    pub fn unshared(&self) -> ReaderTable {
        let (offsets, webhooks) = self.image();
        ReaderTable::restore(offsets, webhooks)
    }

    /// Copies the changes of an entry with this effect from `other`. Shares nothing with it.
    pub fn follow(&mut self, other: &ReaderTable, effect: &Effect) {
        match effect {
            Effect::WebhookRegistered(store) | Effect::WebhookAssigned(store) | Effect::WebhookRemoved(store) => {
                self.take_webhook(other, *store);
            }
            Effect::ReadersMoved(moved) => moved.iter().for_each(|moved| self.take_moved(other, moved)),
            _ => {}
        }
    }

    fn take_moved(&mut self, other: &ReaderTable, moved: &ReaderMoved) {
        match moved {
            ReaderMoved::Offset { namespace, name, store } => {
                self.take_offset(other, (*namespace, name.clone(), *store))
            }
            ReaderMoved::Forgotten { namespace, name, stores } => {
                stores.iter().for_each(|store| self.take_offset(other, (*namespace, name.clone(), *store)));
            }
            ReaderMoved::Delivered(store) => self.take_webhook(other, *store),
            ReaderMoved::Full(_) | ReaderMoved::Void => {}
        }
    }

    fn take_offset(&mut self, other: &ReaderTable, key: Key) {
        let offsets = Arc::make_mut(&mut self.offsets);
        match other.offsets.get(&key) {
            Some(offset) => drop(offsets.insert(key, offset.clone())),
            None => drop(offsets.remove(&key)),
        }
    }

    fn take_webhook(&mut self, other: &ReaderTable, store: StoreId) {
        let webhooks = Arc::make_mut(&mut self.webhooks);
        match other.webhooks.get(&store) {
            Some(held) => drop(webhooks.insert(store, held.clone())),
            None => drop(webhooks.remove(&store)),
        }
    }

    pub(super) fn image(&self) -> (Vec<ConsumerOffset>, Vec<HeldWebhook>) {
        (self.offsets().cloned().collect(), self.webhooks().cloned().collect())
    }

    pub(super) fn restore(offsets: Vec<ConsumerOffset>, webhooks: Vec<HeldWebhook>) -> ReaderTable {
        let key = |offset: &ConsumerOffset| (offset.namespace, offset.name.clone(), offset.store);
        ReaderTable {
            offsets: Arc::new(offsets.into_iter().map(|offset| (key(&offset), offset)).collect()),
            webhooks: Arc::new(webhooks.into_iter().map(|held| (held.webhook.store, held)).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec;

    use tribunal_types::LogId;

    use super::*;

    fn offset(namespace: u32, name: &str, store: u32, lsn: u64) -> ConsumerOffset {
        let (namespace, name) = (NamespaceId(namespace), name.into());
        ConsumerOffset { namespace, name, store: StoreId(store), lsn: Lsn(lsn), ..ConsumerOffset::default() }
    }

    fn moved(all: &mut ReaderTable, change: ReaderMove) -> ReaderMoved {
        match all.change(&[change]) {
            Effect::ReadersMoved(mut moved) if moved.len() == 1 => moved.remove(0),
            effect => panic!("{effect:?}"),
        }
    }

    fn set(all: &mut ReaderTable, namespace: u32, name: &str, store: u32, lsn: u64) -> ReaderMoved {
        moved(all, ReaderMove::Offset(offset(namespace, name, store, lsn)))
    }

    fn forget(all: &mut ReaderTable, namespace: u32, name: &str, store: Option<u32>) -> Vec<u32> {
        let (namespace, name, store) = (NamespaceId(namespace), name.into(), store.map(StoreId));
        match moved(all, ReaderMove::Forget { namespace, name, store }) {
            ReaderMoved::Forgotten { stores, .. } => stores.into_iter().map(|store| store.0).collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_last_offset_of_a_consumer_counts_and_others_are_untouched() {
        let mut all = ReaderTable::default();
        for (name, store, lsn) in [("a", 1, 5), ("a", 2, 7), ("b", 1, 3), ("ab", 1, 4), ("a", 1, 6)] {
            set(&mut all, 0, name, store, lsn);
        }
        set(&mut all, 9, "a", 1, 1);
        let lsn = |all: &ReaderTable, name, store| Some(all.offset(NamespaceId(0), name, StoreId(store))?.lsn.0);
        assert_eq!((lsn(&all, "a", 1), lsn(&all, "a", 2), lsn(&all, "b", 2)), (Some(6), Some(7), None));
        set(&mut all, 0, "a", 1, 2);
        assert_eq!(lsn(&all, "a", 1), Some(2), "a consumer may go back");
        assert_eq!(forget(&mut all, 0, "a", Some(2)), [2]);
        assert_eq!(forget(&mut all, 0, "a", Some(2)), [] as [u32; 0], "it is gone");
        set(&mut all, 0, "a", 2, 8);
        assert_eq!(forget(&mut all, 0, "a", None), [1, 2]);
        assert_eq!(forget(&mut all, 1, "a", None), [] as [u32; 0], "of another tenant");
        let left: Vec<_> = all.offsets().map(|offset| (offset.namespace.0, &*offset.name)).collect();
        assert_eq!(left, [(0, "ab"), (0, "b"), (9, "a")]);
    }

    #[test]
    fn a_tenant_has_as_many_offsets_as_it_may_and_may_still_move_them() {
        let mut all = ReaderTable::default();
        for n in 0..OFFSETS_PER_TENANT_MAX {
            set(&mut all, 7, &format!("c{n}"), 1, 1);
        }
        assert_eq!(set(&mut all, 7, "more", 1, 1), ReaderMoved::Full(OFFSETS_PER_TENANT_MAX));
        assert!(matches!(set(&mut all, 7, "c0", 1, 2), ReaderMoved::Offset { .. }));
        for n in OFFSETS_PER_TENANT_MAX..OFFSETS_MAX {
            set(&mut all, 0, &format!("c{n}"), 1, 1);
        }
        assert_eq!(set(&mut all, 0, "more", 1, 1), ReaderMoved::Full(OFFSETS_MAX));
        assert_eq!(set(&mut all, 8, "more", 1, 1), ReaderMoved::Full(OFFSETS_MAX));
        forget(&mut all, 7, "c0", None);
        assert!(matches!(set(&mut all, 8, "more", 1, 1), ReaderMoved::Offset { .. }));
    }

    fn hook(watermark: u64) -> Webhook {
        let (url, secret) = ("https://a".into(), "0123456789abcdef".into());
        Webhook { store: StoreId(1), url, secret, watermark: Lsn(watermark), ..Webhook::default() }
    }

    fn delivered(all: &mut ReaderTable, delivery: u64, lsn: u64) -> ReaderMoved {
        let (store, delivery) = (StoreId(1), ControlIndex(delivery));
        moved(all, ReaderMove::Delivered { store, delivery, lsn: Lsn(lsn) })
    }

    #[test]
    fn only_the_present_delivery_moves_the_watermark() {
        let mut all = ReaderTable::default();
        let assign = |all: &mut ReaderTable, index, replaces, node| {
            all.assign(ControlIndex(index), StoreId(1), ControlIndex(replaces), NodeId(node))
        };
        let (assigned, unchanged) = (Effect::WebhookAssigned(StoreId(1)), Effect::Unchanged);
        assert_eq!(assign(&mut all, 1, 0, 1), unchanged, "nothing is registered");
        assert_eq!(delivered(&mut all, 0, 4), ReaderMoved::Void);
        all.register(ControlIndex(2), &hook(3), true);
        assert_eq!((assign(&mut all, 3, 2, 1), assign(&mut all, 4, 2, 2)), (assigned.clone(), unchanged.clone()));
        assert_eq!(delivered(&mut all, 3, 9), ReaderMoved::Delivered(StoreId(1)));
        assert_eq!(assign(&mut all, 5, 3, 1), unchanged, "it delivers already");
        assert_eq!(assign(&mut all, 6, 3, 2), assigned);
        assert_eq!(delivered(&mut all, 3, 12), ReaderMoved::Void, "another node delivers");
        let at = |all: &ReaderTable| all.webhook(StoreId(1)).map(|held| held.webhook.watermark.0);
        assert_eq!(at(&all), Some(9));
        assert_eq!(delivered(&mut all, 6, 7), ReaderMoved::Delivered(StoreId(1)));
        assert_eq!(at(&all), Some(7), "the receiver has lost records");
        all.register(ControlIndex(7), &hook(2), false);
        assert_eq!((at(&all), delivered(&mut all, 6, 12)), (Some(2), ReaderMoved::Void), "registered again since");
        let held = all.webhook(StoreId(1)).expect("registered");
        assert_eq!((held.delivery(), held.deliverer.map(|by| by.node)), (ControlIndex(7), Some(NodeId(2))));
        assert_eq!(delivered(&mut all, 7, 5), ReaderMoved::Delivered(StoreId(1)));
        let other = LogId([7; 16]);
        all.register(ControlIndex(8), &Webhook { log: other, ..hook(0) }, true);
        let held = all.webhook(StoreId(1)).expect("registered");
        assert_eq!((held.webhook.watermark, held.webhook.log), (Lsn(5), LogId::default()), "it continues there");
        assert_eq!((all.remove(StoreId(1)), all.remove(StoreId(1))), (Effect::WebhookRemoved(StoreId(1)), unchanged));
        all.register(ControlIndex(9), &hook(1), true);
        assert_eq!(at(&all), Some(1), "nothing is left of a webhook that was removed");
    }

    #[test]
    fn a_copy_that_follows_every_effect_is_the_same() {
        let mut all = ReaderTable::default();
        let mut copy = all.unshared();
        let namespace = NamespaceId(0);
        let delivered = |delivery, lsn| ReaderMove::Delivered { store: StoreId(1), delivery, lsn: Lsn(lsn) };
        for n in 1..=60 {
            let index = ControlIndex(n);
            let delivery = all.webhook(StoreId(1)).map_or(index, HeldWebhook::delivery);
            let effect = match n % 6 {
                0 => all.register(index, &hook(n), n % 12 == 0),
                1 => all.assign(index, StoreId(1), delivery, NodeId(n as u16)),
                2 => all.change(&[ReaderMove::Offset(offset(0, "a", n as u32, n)), delivered(delivery, n)]),
                3 if n % 9 == 0 => all.remove(StoreId(1)),
                3 => all.change(&[ReaderMove::Forget { namespace, name: "a".into(), store: None }]),
                4 => all.change(&[ReaderMove::Offset(offset(0, "b", 1, n)), delivered(index, n)]),
                _ => Effect::Unchanged,
            };
            copy.follow(&all, &effect);
            assert_eq!(copy, all, "{n}: {effect:?}");
        }
        assert!(all.offset(namespace, "b", StoreId(1)).is_some() && all.webhook(StoreId(1)).is_some());
    }

    #[test]
    fn readers_are_restored_from_an_image() {
        let mut all = ReaderTable::default();
        set(&mut all, 3, "a", 1, 5);
        set(&mut all, 0, "a", 2, 6);
        all.register(ControlIndex(4), &hook(3), false);
        all.assign(ControlIndex(5), StoreId(1), ControlIndex(4), NodeId(2));
        let (offsets, webhooks) = all.image();
        assert_eq!(ReaderTable::restore(offsets, webhooks), all);
        let copy = all.clone();
        let both = vec![ReaderMove::Offset(offset(3, "a", 1, 6)), ReaderMove::Offset(offset(3, "a", 1, 7))];
        all.change(&both);
        assert_eq!(
            copy.offset(NamespaceId(3), "a", StoreId(1)).map(|at| at.lsn),
            Some(Lsn(5)),
            "a copy stays as it is"
        );
        assert_eq!(all.offset(NamespaceId(3), "a", StoreId(1)).map(|at| at.lsn), Some(Lsn(7)), "in their order");
    }
}
