//! Operator actions on a store's push: show its state, resume it, skip a record, attach it again.
//!
//! Every change to a storage's future content goes through the control log first, so that it survives a restart and can
//! be audited; resuming changes nothing and does not.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossbeam_channel::Sender;
use tribunal_core::control::{Limit, Refusal};
use tribunal_member::Frame;
use tribunal_push::AttachRefusal;
use tribunal_service::{PushState, ServiceError, SkipRequest, StoreStatus};
use tribunal_types::limits::SKIPS_PER_STORE_MAX;
use tribunal_types::{ControlChange, DeclaredStore, Detachment, Lsn, NodeId, NodeStage, Skip, StoreId, StoreSpec};

use crate::cluster::outgoing;
use crate::commit::message::Message;
use crate::commit::refusals::{change_unknown, refused};
use crate::service::{NodeService, agreed};
use crate::stores::shared_storage::TAKEN;

/// How long a member may take to learn of the other nodes' commits.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(10);

impl NodeService {
    /// Returns the state of a store.
    pub(crate) fn standing(&self, store: StoreId) -> Result<StoreStatus, ServiceError> {
        let watermarks = self.watermarks_of(store)?;
        let push = self.pushes.status(store);
        let progress = self.shared.progress.store(store).unwrap_or_default();
        let pusher = self.pusher(store);
        let head = watermarks.head;
        let detachment = self.stores.detached(store);
        let state = if detachment.is_some() { PushState::Detached } else { push.state };
        let mut status = StoreStatus {
            pushed_by: pusher,
            acked: progress.acked,
            rows: progress.rows,
            stored_bytes: self.pushes.stored_bytes_of_store(store),
            watermarks,
            lag_ms: shown_lag_ms(state, progress.acked >= head, push.lag_ms, || {
                let age_ms = |position| self.record_times.age_after(&self.records, store, position);
                self.push_position(store).map_or(0, age_ms)
            }),
            push: state,
            last_error: push.last_error,
            stopped_at: push.poison,
            durability: push.durability.map(tribunal_push::StorageDurability::name),
        };
        if let Some(detachment) = detachment {
            status.last_error = Some(self.way_out(&detachment));
        }
        Ok(status)
    }

    /// Returns the last record that a store's storage is known to have; `None` if it has not reported since the start of
    /// this node.
    pub(crate) fn push_position(&self, store: StoreId) -> Option<Lsn> {
        let progress = self.shared.progress.store(store).unwrap_or_default();
        let detached = self.stores.detached(store).map(|detachment| detachment.acked);
        let is_known = progress.reported || detached.is_some() || progress.acked > Lsn(0);
        is_known.then(|| progress.acked.max(detached.unwrap_or_default()))
    }

    /// Returns the node that pushes to a store's storage, if the control log names one.
    fn pusher(&self, store: StoreId) -> Option<NodeId> {
        let declared = self.stores.declared(store).filter(|store| store.is_external() && store.detached.is_none());
        declared.and_then(|store| store.pusher).map(|pusher| pusher.node).filter(|_| self.joined.is_some())
    }

    /// Returns whether another node pushes.
    pub(crate) fn is_elsewhere(&self, pusher: Option<NodeId>) -> bool {
        pusher.is_some_and(|node| node != self.group.node)
    }

    /// Returns a reason for each store whose push or webhook may need an operator; only their count if `names_stores`
    /// is false.
    pub(crate) fn push_problems(&self, names_stores: bool) -> Vec<String> {
        let mut problems = Vec::new();
        for store in self.stores.all() {
            let Ok(status) = self.standing(store.spec.id) else { continue };
            // The pushing node reports this.
            let elsewhere = self.is_elsewhere(status.pushed_by);
            // That is a reason of its own.
            let damaged = status.push == PushState::Damaged;
            if !elsewhere && !damaged && needs_attention(status.push, store.spec.is_embedded()) {
                let of = self.shown_store(&store.spec);
                problems.push(format!("the push to store {of} is {}; see `tribunal store ls`", status.push.name()));
            }
        }
        problems.extend(self.webhook_problems());
        if !names_stores && !problems.is_empty() {
            return vec![format!("pushes that need attention: {}; an operator's key shows which", problems.len())];
        }
        problems
    }

    /// Returns a reason for each embedded store with damaged rows; only their count if `names_stores` is false.
    pub(crate) fn damages(&self, names_stores: bool) -> Vec<String> {
        let stores = self.stores.all().into_iter().map(|store| store.spec).filter(StoreSpec::is_embedded);
        let is_damaged = |spec: &StoreSpec| self.pushes.status(spec.id).state == PushState::Damaged;
        let damaged: Vec<StoreSpec> = stores.filter(is_damaged).collect();
        if !names_stores && !damaged.is_empty() {
            return vec![format!("damaged embedded stores: {}; an operator's key shows which", damaged.len())];
        }
        let named = damaged.iter().map(|spec| {
            format!(
                "the embedded store {} is damaged on this node's disk; see `tribunal store ls`",
                self.shown_store(spec)
            )
        });
        named.collect()
    }

    /// Returns why the log of a node that runs alone cannot repair a damaged embedded store, if so.
    fn beyond_repair(&self, store: StoreId) -> Option<String> {
        if self.joined.is_some() || self.records.oldest(store) == Lsn(1) {
            return None;
        }
        let push = self.pushes.status(store);
        // Without its note on the disk, the damaged files were replaced.
        push.last_error.filter(|_| push.state == PushState::Damaged && self.pushes.damage_on_disk(store).is_some())
    }

    fn way_out(&self, detachment: &Detachment) -> String {
        let Detachment { store, at, acked, reason, .. } = detachment;
        let oldest = self.records.oldest(*store);
        let damage = || self.pushes.damage_on_disk(*store).filter(|_| oldest > Lsn(1));
        let go_on = if reason == TAKEN {
            "declare it with a storage of its own".to_owned()
        } else if let Some(damage) = damage() {
            format!("it is damaged ({damage}), and attached as it is, it has only its intact rows")
        } else if acked.next() >= oldest {
            "repair the storage and attach the store: the log still has every record that it needs".to_owned()
        } else {
            format!(
                "load the storage from elsewhere with everything up to some LSN n >= {}, then attach the store with \
                 loaded_lsn n; or declare the store again with another storage",
                oldest.0.saturating_sub(1)
            )
        };
        format!(
            "detached at epoch {at}, because {reason}. It had acknowledged LSN {acked}; the log is kept from LSN {oldest}. {go_on}"
        )
    }

    /// Retries a stopped push.
    pub(crate) async fn resume(&self, store: StoreId) -> Result<(), ServiceError> {
        self.resume_webhook(store);
        if self.is_detached(store) {
            return Err(mistake("store_detached", "nothing is pushed to a detached store; attach it".into()));
        }
        match (self.pusher(store), &self.joined) {
            (Some(node), Some(joined)) if node != self.group.node => {
                if !joined.peers.status().peers.get(&node).is_some_and(tribunal_peer::PeerStatus::is_connected) {
                    let detail = format!(
                        "node {node} pushes to this store, and this node is not connected with it; ask node {node}. If it \
                         stays away, another node takes over"
                    );
                    return Err(ServiceError::Unavailable { detail });
                }
                let _ = outgoing::send(&joined.peers, node, &Frame::ResumePush(store));
                Ok(())
            }
            _ => {
                if let Some(reason) = self.beyond_repair(store) {
                    return Err(mistake("store_damaged", reason));
                }
                self.pushes.resume(store).await.map_err(|detail| ServiceError::Unavailable { detail })?;
                self.pushes.tried(store).await;
                Ok(())
            }
        }
    }

    /// Retries the delivery to a store's webhook, on whichever node it runs.
    fn resume_webhook(&self, store: StoreId) {
        self.webhooks.resume(store);
        let deliverer = self.webhooks.readers.webhook(store).and_then(|held| self.deliverer(&held));
        if let (Some(node), Some(joined)) = (deliverer, &self.joined)
            && node != self.group.node
        {
            let _ = outgoing::send(&joined.peers, node, &Frame::ResumePush(store));
        }
    }

    /// Skips the record that a push stopped at.
    pub(crate) async fn skip(&self, request: SkipRequest) -> Result<(), ServiceError> {
        let SkipRequest { store, lsn, by } = request;
        let push = self.pushes.status(store);
        if push.poison != Some(lsn) {
            let detail = match push.poison {
                Some(at) => format!("the push stopped at LSN {at}, not at {lsn}"),
                None => "only the record that the push stopped at can be skipped, and it has not stopped at one".into(),
            };
            return Err(ServiceError::ClientMistake { code: "not_stopped_there", pointer: "/lsn".into(), detail });
        }
        if self.stores.declared(store).is_some_and(|store| store.skips.len() >= SKIPS_PER_STORE_MAX) {
            return Err(refused(Refusal::LimitReached(Limit::SkipsOfStore)));
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let reason = push.last_error.unwrap_or_default();
        let skip = ControlChange::SkipRecord(Skip { store, lsn, at_ms, by, reason });
        self.control(skip).await?.map_err(refused)?;
        self.pushes.tried(store).await;
        Ok(())
    }

    /// Returns the records that a store's storages never received, oldest decision first.
    pub(crate) fn skips_of(&self, store: StoreId) -> Vec<Skip> {
        let skips = self.stores.declared(store).map(|store| store.skips).unwrap_or_default();
        skips.into_iter().map(|(_, skip)| skip).collect()
    }

    /// Returns why a store that is not detached cannot be attached, if so: only a storage to which nothing is pushed
    /// may be given a position.
    fn not_attachable(&self, declared: &DeclaredStore) -> Option<ServiceError> {
        let push = self.pushes.status(declared.spec.id);
        let detail = match push.poison {
            _ if push.state != PushState::Stopped => {
                "only a store that is detached, or whose push has stopped, can be attached".to_owned()
            }
            _ if declared.spec.is_embedded() && self.has_other_members() => {
                let name = &declared.spec.name;
                format!(
                    "only this node's copy of the store has stopped, and attaching would end those of the other nodes: \
                     `tribunal store resume {name}` at this node repairs it"
                )
            }
            Some(lsn) => {
                format!("the push stopped at LSN {lsn}, which its storage rejects: resume it, or skip that record")
            }
            None => return None,
        };
        Some(mistake("not_detached", detail))
    }

    /// Returns whether other members of a cluster have copies of the embedded stores.
    fn has_other_members(&self) -> bool {
        let members = || self.shared.view.roles().members;
        self.joined.is_some() && members().nodes().filter(|node| node.stage != NodeStage::Left).count() > 1
    }

    /// Resumes pushing to a detached store, or to one whose push stopped because the log no longer has the records it
    /// needs.
    pub(crate) async fn attach(&self, store: StoreId, loaded: Option<Lsn>) -> Result<(), ServiceError> {
        let declared = self.stores.declared(store).ok_or_else(|| mistake("not_detached", "it has no push".into()))?;
        if declared.detached.is_none()
            && let Some(refusal) = self.not_attachable(&declared)
        {
            return Err(refusal);
        }
        self.must_have_own_storage(&declared.spec, "")?;
        if self.joined.is_some() {
            // Its storage may have records that other nodes know and this one does not.
            let learned = self.acknowledged(Instant::now() + CATCH_UP_TIMEOUT).await;
            learned.map_err(|reason| ServiceError::Unavailable {
                detail: format!(
                    "this node cannot tell whether it knows all that the storage has: {reason}. Nothing was changed"
                ),
            })?;
        }
        // What the storage needs stays in the log from here on.
        let attaching = tokio::task::block_in_place(|| self.pushes.attaching(store));
        let prepared = self.pushes.prepare(&declared, loaded).await;
        if prepared.is_err() && declared.spec.is_embedded() && declared.detached.is_none() && self.joined.is_none() {
            // It was closed for this. A refusal changes nothing, so it stops again for the same reason. A member would copy
            // the state of others instead, and remains stopped.
            let _ = self.pushes.resume(store).await;
            self.pushes.tried(store).await;
        }
        match prepared {
            Ok(_) => {}
            Err(error @ AttachRefusal::Truncated { oldest, .. }) => {
                let from = oldest.0.saturating_sub(1);
                let detail = format!(
                    "{error}: what lies between is gone. Load the storage from elsewhere with everything up to some \
                     LSN n >= {from}, and say so by loaded_lsn; the log itself continues there"
                );
                return Err(mistake("storage_behind_log", detail));
            }
            Err(error @ AttachRefusal::LoadedOutside { .. }) => {
                let (code, detail) = ("loaded_lsn_impossible", error.to_string());
                return Err(ServiceError::ClientMistake { code, pointer: "/loaded_lsn".into(), detail });
            }
            Err(error @ (AttachRefusal::Foreign { .. } | AttachRefusal::Refused(_))) => {
                return Err(mistake("storage_refuses", error.to_string()));
            }
            Err(error @ (AttachRefusal::Unreachable(_) | AttachRefusal::Log(_))) => {
                return Err(ServiceError::Unavailable { detail: error.to_string() });
            }
        }
        // A single entry can only attach a detached store, so detach first.
        let detachment = declared.detached.is_none().then(|| {
            let acked = self.shared.progress.store(store).unwrap_or_default().acked;
            let stopped = self.pushes.status(store).last_error.unwrap_or_default();
            let reason = format!("its push had stopped, and an operator attaches it again: {stopped}");
            let (declared, at) = (declared.generation, self.shared.progress.last());
            Detachment { store, declared, at, acked, reason }
        });
        self.check_takes_changes()?;
        let (messages, pushes, claims) = (self.messages.clone(), Arc::clone(&self.pushes), self.storage_claims());
        let attached = tokio::spawn(async move {
            attach_agreed(&messages, store, detachment).await?;
            let taken = claims.give_up_if_taken(store).await?;
            pushes.settled(store).await;
            drop(attaching);
            Ok(taken)
        });
        // Runs to completion even if the client disconnects: half-done, the store is detached.
        let taken = attached.await.unwrap_or_else(|_| Err(change_unknown()))?;
        self.must_have_got_storage(taken, "")
    }
}

/// Proposes a store's attachment; before that, its detachment, if given.
async fn attach_agreed(
    messages: &Sender<Message>,
    store: StoreId,
    detachment: Option<Detachment>,
) -> Result<(), ServiceError> {
    if let Some(detachment) = detachment {
        agreed(messages, ControlChange::DetachPush(detachment)).await?.map_err(refused)?;
    }
    agreed(messages, ControlChange::AttachPush { store }).await?.map(drop).map_err(refused)
}

/// Returns the lag of a push: 0 if and only if the storage has the whole log. `age_ms` is the age of the first record
/// that the storage lacks, 0 if that is unknown: then the push's own figure counts, which begins at its process' start.
fn shown_lag_ms(state: PushState, has_all: bool, told_ms: u64, age_ms: impl FnOnce() -> u64) -> u64 {
    if has_all || state == PushState::LogOnly {
        return 0;
    }
    match age_ms() {
        0 => told_ms.max(1),
        age_ms => age_ms,
    }
}

/// Returns whether a push needs an operator. An external storage may be away for a moment; an embedded store that waits
/// cannot read the log, or write to the disk.
fn needs_attention(push: PushState, embedded: bool) -> bool {
    matches!(push, PushState::Stopped | PushState::Detached | PushState::Damaged)
        || (embedded && push == PushState::BackingOff)
}

fn mistake(code: &'static str, detail: String) -> ServiceError {
    ServiceError::ClientMistake { code, pointer: String::new(), detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_that_retries_needs_attention_if_the_store_is_embedded() {
        for (push, storage, embedded) in [
            (PushState::Running, false, false),
            (PushState::BackingOff, false, true),
            (PushState::Stopped, true, true),
            (PushState::Detached, true, true),
        ] {
            assert_eq!((needs_attention(push, false), needs_attention(push, true)), (storage, embedded), "{push:?}");
        }
    }

    #[test]
    fn a_push_at_the_head_has_no_lag_whatever_was_told_before() {
        for state in PushState::ALL {
            assert_eq!(shown_lag_ms(state, true, 250, || 250), 0, "{state:?}");
        }
        let lag = |state| shown_lag_ms(state, false, 0, || 0);
        assert_eq!(
            PushState::ALL.map(lag).iter().filter(|ms| **ms == 0).count(),
            1,
            "nobody lags a store that is only its log"
        );
        assert_eq!(shown_lag_ms(PushState::Running, false, 7, || 9), 9, "its process has started since");
        assert_eq!(shown_lag_ms(PushState::BackingOff, false, 700, || 9), 9, "it was idle before");
        assert_eq!(shown_lag_ms(PushState::BackingOff, false, 7, || 0), 7, "the storage was not reached yet");
    }
}
