//! What control entries mean for the pushes of this node.

use std::sync::Arc;

use tribunal_core::control::{Effect, ReplicatedState};
use tribunal_types::{Detachment, Skip, StoreId};

use crate::stores::pushes::Pushes;

/// Carries out what a control entry means for pushes. Does not wait for anything.
pub fn follow_with_push(replicated: &ReplicatedState, pushes: &Arc<Pushes>, effect: &Effect) {
    let declared = |store: StoreId| replicated.stores().store(store).cloned();
    match effect {
        Effect::StoreDeclared { store, .. } | Effect::PushAttached(store) | Effect::PushAssigned(store) => {
            declared(*store).into_iter().for_each(|store| pushes.declare(store));
        }
        Effect::PushDetached(store) => {
            let Some(store) = declared(*store) else { return };
            if let Some(Detachment { store, acked, reason, .. }) = &store.detached {
                let (store, acked) = (store.0, acked.0);
                tracing::error!(store, acked, reason, "store detached: truncation no longer waits for it");
            }
            pushes.detach(store);
        }
        Effect::PushForked(store) => declared(*store).into_iter().for_each(|store| pushes.forked(store)),
        Effect::RecordSkipped(store, lsn) => {
            let skip = replicated.stores().store(*store).and_then(|store| store.skips.last());
            if let Some((_, Skip { by, reason, .. })) = skip {
                tracing::warn!(store = store.0, lsn = lsn.0, by, reason, "record skipped");
            }
            pushes.skip(*store, *lsn);
        }
        _ => {}
    }
}
