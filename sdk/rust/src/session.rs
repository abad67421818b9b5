//! A client's own commits, so that its later transactions see them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tribunal_types::Epoch;

use crate::{Committed, Outcome};

/// The latest commit of a client to each store.
#[derive(Default)]
pub(crate) struct Session {
    latest: Mutex<BTreeMap<String, (Epoch, String)>>,
}

impl Session {
    /// Records a commit. Commits may be recorded in any order.
    pub(crate) fn record(&self, outcome: &Outcome) {
        let Outcome::Committed(Committed { epoch, lsn, session: Some(token), .. }) = outcome else { return };
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        for store in lsn.keys() {
            match latest.get_mut(store) {
                Some(known) if known.0 >= *epoch => {}
                Some(known) => *known = (*epoch, token.clone()),
                None => drop(latest.insert(store.clone(), (*epoch, token.clone()))),
            }
        }
    }

    /// Drops a token that the service does not know, and those of later epochs: its log has been replaced by one that
    /// does not reach them.
    pub(crate) fn forget(&self, token: &str) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = latest.values().find(|(_, known)| known == token).map(|(epoch, _)| *epoch);
        if let Some(refused) = refused {
            latest.retain(|_, (epoch, _)| *epoch < refused);
        }
    }

    /// Returns the epoch of the latest commit to a store.
    pub(crate) fn epoch(&self, store: &str) -> Option<Epoch> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.get(store).map(|(epoch, _)| *epoch)
    }

    /// Returns the token of the latest commit to these stores, or to any store if `stores` is empty.
    pub(crate) fn token(&self, stores: &[String]) -> Option<String> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let named = latest.iter().filter(|(store, _)| stores.is_empty() || stores.contains(store));
        named.map(|(_, known)| known).max_by_key(|(epoch, _)| *epoch).map(|(_, token)| token.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit(epoch: u64, store: &str) -> Outcome {
        Outcome::Committed(Committed {
            epoch: Epoch(epoch),
            lsn: BTreeMap::from([(store.to_owned(), tribunal_types::Lsn(1))]),
            session: Some(format!("token-{epoch}")),
            ..Committed::default()
        })
    }

    #[test]
    fn the_token_is_that_of_the_latest_commit_to_the_stores() {
        let session = Session::default();
        assert_eq!(session.token(&[]), None);
        for outcome in [commit(7, "a"), commit(9, "b"), commit(8, "a"), commit(6, "a")] {
            session.record(&outcome);
        }
        let token = |stores: &[&str]| session.token(&stores.iter().map(|&store| store.to_owned()).collect::<Vec<_>>());
        assert_eq!(token(&["a"]).as_deref(), Some("token-8"));
        assert_eq!(token(&["a", "b"]).as_deref(), Some("token-9"));
        assert_eq!(token(&[]).as_deref(), Some("token-9"));
        assert_eq!(token(&["c"]), None);
        session.forget("token-7");
        assert_eq!(token(&[]).as_deref(), Some("token-9"), "another call has forgotten it already");
        session.forget("token-8");
        assert_eq!(token(&[]), None, "those after it are of the same log");
        for outcome in [commit(7, "a"), commit(9, "b")] {
            session.record(&outcome);
        }
        session.forget("token-9");
        assert_eq!(token(&[]).as_deref(), Some("token-7"));
    }
}
