//! Finds two stores that would fill one storage. Each would take the other's watermark for its own and leave out the
//! records before it, and nothing would show that: only the built-in adaptors know which store a watermark belongs to.
//!
//! Stores share a storage if the same adaptor has equal settings, or if they send the same watermark query to one address:
//! settings that differ in their order, in omitted defaults or in the adaptor's name can mean the same. This is checked
//! when a client declares or attaches a store, never when the log is replayed: a log with such stores still starts.
//!
//! A store of another namespace counts only if it fills its storage, or a tenant could keep others from storages that it
//! cannot reach itself. If its adaptor keeps the store's name beside the watermark, it does not count at all: then the push
//! of the later store finds that the storage is taken.
//!
//! Two nodes can accept such stores at the same time. Then the order in the control log decides: the node that proposed the
//! later one finds the earlier one once its own entry is applied, and detaches the later one.

use std::sync::Arc;

use crossbeam_channel::Sender;
use serde_json::{Map, Value};
use tribunal_push::{Adaptor, SqlEndpoint};
use tribunal_service::{PushState, ServiceError};
use tribunal_types::{Command, ControlChange, DeclaredStore, Detachment, StoreId, StoreSpec};

use crate::commit::message::Message;
use crate::commit::progress::Progress;
use crate::commit::refusals::refused;
use crate::service::{NodeService, agreed};
use crate::stores::catalog::Stores;
use crate::stores::pushes::Pushes;
use crate::stores::storages::names_stores;

/// Why a store was detached that got its storage later than another one.
pub(crate) const TAKEN: &str = "another store, declared or attached at the same time, fills its storage";

/// A store's storage, as far as its declaration tells.
#[derive(PartialEq)]
struct Settings {
    /// `host:port` in lower case; for a database, with its name and the role, whose schemas may be its own.
    address: String,
    /// The other settings.
    rest: Map<String, Value>,
}

impl Settings {
    /// Returns a store's settings; `None` if they are not an object with an endpoint. `role` returns the role that logs in to
    /// a database whose address names none.
    fn of(spec: &StoreSpec, role: impl FnOnce() -> Option<String>) -> Option<Settings> {
        let mut rest: Map<String, Value> = serde_json::from_str(&spec.adaptor_config).ok()?;
        let endpoint = rest.remove("endpoint")?;
        let endpoint = endpoint.as_str()?;
        let address = match endpoint.parse::<SqlEndpoint>() {
            Ok(SqlEndpoint { address, database, user }) => {
                format!("{}@{}/{database}", user.or_else(role).unwrap_or_default(), address.to_ascii_lowercase())
            }
            Err(_) => endpoint.to_ascii_lowercase(),
        };
        Some(Settings { address, rest })
    }
}

impl Pushes {
    /// Returns the first attached store of `others` that fills the storage of `spec`. Starts the adaptors of stores at the
    /// same address: may take a while.
    fn shares_storage(
        &self,
        spec: &StoreSpec,
        mut others: impl Iterator<Item = DeclaredStore>,
    ) -> Option<DeclaredStore> {
        let settings = self.settings_of(spec).filter(|_| !spec.is_embedded())?;
        let mut query = None;
        others.find(|other| {
            let is_itself = (other.spec.namespace, &other.spec.name) == (spec.namespace, &spec.name);
            if is_itself || !other.is_external() || other.detached.is_some() {
                return false;
            }
            if other.spec.namespace != spec.namespace && (names_stores(&other.spec) || !self.fills_storage(other)) {
                return false;
            }
            let Some(of_other) = self.settings_of(&other.spec).filter(|found| found.address == settings.address) else {
                return false;
            };
            if other.spec.adaptor == spec.adaptor && of_other == settings {
                return true;
            }
            let own = query.get_or_insert_with(|| self.watermark_query(spec));
            own.is_some() && *own == self.watermark_query(&other.spec)
        })
    }

    /// Returns whether a store's storage responds.
    fn fills_storage(&self, store: &DeclaredStore) -> bool {
        self.status(store.spec.id).state == PushState::Running
    }

    fn settings_of(&self, spec: &StoreSpec) -> Option<Settings> {
        Settings::of(spec, || self.role_of(spec))
    }

    /// Returns the query by which a store's adaptor reads the watermark; `None` if the adaptor is missing or fails.
    fn watermark_query(&self, spec: &StoreSpec) -> Option<Command> {
        let adaptor = self.adaptor_of(spec, spec.adaptor.as_deref()?).ok()?;
        Some(adaptor.watermark().ok()?.command)
    }
}

impl NodeService {
    /// Refuses to give a store a storage that another attached store fills.
    pub(crate) fn must_have_own_storage(&self, spec: &StoreSpec, pointer: &str) -> Result<(), ServiceError> {
        let others = self.stores.all().into_iter();
        match tokio::task::block_in_place(|| self.pushes.shares_storage(spec, others)) {
            Some(other) => Err(self.storage_in_use(spec, &other.spec, pointer, "")),
            None => Ok(()),
        }
    }

    /// Returns what a task needs to settle races for storages, however soon its client disconnects.
    pub(crate) fn storage_claims(&self) -> StorageClaims {
        StorageClaims {
            messages: self.messages.clone(),
            stores: Arc::clone(&self.stores),
            pushes: Arc::clone(&self.pushes),
            progress: Arc::clone(&self.shared.progress),
        }
    }

    /// Refuses a store that was detached because its storage was taken.
    pub(crate) fn must_have_got_storage(&self, taken: Option<Taken>, pointer: &str) -> Result<(), ServiceError> {
        let aside = ". The store exists, detached from its storage";
        taken.map_or(Ok(()), |Taken { own, by }| Err(self.storage_in_use(&own, &by, pointer, aside)))
    }

    /// Words the refusal, with `aside` at its end. It does not name a store of another tenant; the node's log does.
    fn storage_in_use(&self, spec: &StoreSpec, other: &StoreSpec, pointer: &str, aside: &str) -> ServiceError {
        let (store, of) = (self.shown_store(spec), self.shown_store(other));
        tracing::warn!(store, other = of, "a store was refused the storage that another one fills");
        let (other, or) = if other.namespace == spec.namespace {
            (format!("store '{}'", other.name), "first declare the other store with another storage, or without one")
        } else {
            ("a store of another namespace".to_owned(), "ask the operator of the service, whose log names both")
        };
        let detail = format!(
            "{other} already fills the storage that these settings name: each of the two would take the other's watermark for \
             its own, and rows would be missing. Give '{}' a prefix, table, database or address of its own; or {or}{aside}",
            spec.name
        );
        ServiceError::ClientMistake { code: "storage_in_use", pointer: pointer.to_owned(), detail }
    }
}

/// Settles which of two stores gets a storage that was given to both at once.
pub(crate) struct StorageClaims {
    messages: Sender<Message>,
    stores: Arc<Stores>,
    pushes: Arc<Pushes>,
    progress: Arc<Progress>,
}

/// A store, and the one that got its storage before it.
pub(crate) struct Taken {
    own: StoreSpec,
    by: StoreSpec,
}

impl StorageClaims {
    /// Detaches a store that was just declared or attached, if another one got its storage earlier in the control log.
    ///
    /// # Errors
    /// If the change is not agreed on in time: both stores remain attached.
    pub(crate) async fn give_up_if_taken(&self, store: StoreId) -> Result<Option<Taken>, ServiceError> {
        let Some(own) = self.stores.declared(store).filter(|own| own.detached.is_none()) else { return Ok(None) };
        let earlier = self.stores.all().into_iter().filter(|other| other.generation < own.generation);
        let Some(other) = tokio::task::block_in_place(|| self.pushes.shares_storage(&own.spec, earlier)) else {
            return Ok(None);
        };
        let detachment = Detachment {
            store,
            declared: own.generation,
            at: self.progress.last(),
            acked: self.progress.store(store).unwrap_or_default().acked,
            reason: TAKEN.to_owned(),
        };
        agreed(&self.messages, ControlChange::DetachPush(detachment)).await?.map_err(refused)?;
        Ok(Some(Taken { own: own.spec, by: other.spec }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_compared_as_values_and_addresses_without_case() {
        let settings = |config: &str| {
            let spec = StoreSpec { adaptor_config: config.to_owned(), ..StoreSpec::default() };
            Settings::of(&spec, || Some("a".to_owned()))
        };
        let is_same = |a, b| settings(a).is_some() && settings(a) == settings(b);
        assert!(is_same(
            r#"{"endpoint":"Cache:6379","prefix":"a","ttl":{"x":1,"y":2}}"#,
            r#"{ "ttl": {"y": 2, "x": 1}, "prefix": "\u0061", "endpoint": "cache:6379" }"#
        ));
        assert!(is_same(r#"{"endpoint":"postgres://a@Db/x"}"#, r#"{"endpoint":"postgresql://a@db:5432/x"}"#));
        assert!(is_same(r#"{"endpoint":"postgres://a@db/x"}"#, r#"{"endpoint":"postgres://db/x"}"#), "it logs in as a");
        for other in [
            r#"{"endpoint":"cache:6380","prefix":"a"}"#,
            r#"{"endpoint":"cache:6379","prefix":"A"}"#,
            r#"{"endpoint":"cache:6379"}"#,
            r#"{"endpoint":7,"prefix":"a"}"#,
            "",
        ] {
            assert!(!is_same(r#"{"endpoint":"cache:6379","prefix":"a"}"#, other), "{other}");
        }
        for other in [r#"{"endpoint":"postgres://a@db/X"}"#, r#"{"endpoint":"postgres://b@db/x"}"#] {
            assert!(!is_same(r#"{"endpoint":"postgres://a@db/x"}"#, other), "{other}");
        }
    }
}
