//! Effects of control entries on the pushes of this node.

use std::sync::Arc;

use tribunal_core::control::{Effect, ReplicatedState};
use tribunal_types::{Detachment, Skip, StoreId};

use crate::stores::pushes::Pushes;

/// Applies a control entry's effect to the pushes. Does not block.
pub fn follow_with_push(replicated: &ReplicatedState, pushes: &Arc<Pushes>, effect: &Effect) {
    let declared = |store: StoreId| replicated.stores().store(store).cloned();
    match effect {
        Effect::StoreDeclared { store, .. } | Effect::PushAttached(store) | Effect::PushAssigned(store) => {
            declared(*store).into_iter().for_each(|store| pushes.declare(store));
        }
        Effect::PushDetached(store) => {
            let Some(store) = declared(*store) else { return };
            if let Some(Detachment { acked, reason, .. }) = &store.detached {
                let (store, store_id, acked) = (&*store.spec.name, store.spec.id.0, acked.0);
                tracing::error!(store, store_id, acked, reason, "store detached: truncation no longer waits for it");
            }
            pushes.detach(store);
        }
        Effect::PushForked(store) => declared(*store).into_iter().for_each(|store| pushes.forked(store)),
        Effect::RecordSkipped(store, lsn) => {
            let Some(store) = declared(*store) else { return };
            if let Some((_, Skip { by, reason, .. })) = store.skips.last() {
                let (name, store_id) = (&*store.spec.name, store.spec.id.0);
                tracing::warn!(store = name, store_id, lsn = lsn.0, by, reason, "record skipped");
            }
            pushes.skip(store, *lsn);
        }
        _ => {}
    }
}
