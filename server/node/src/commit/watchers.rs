//! Who waits for an id to get its verdict, without a transaction of their own in the batch.
//!
//! The sequencer notifies them when an epoch has decided the id, so none of them polls. Bounded: a question that does not
//! fit is answered with what is known now.

use std::collections::HashMap;

use tokio::sync::oneshot;
use tribunal_types::{NamespaceId, TxnId};

use crate::commit::message::KnownNow;

/// Waiting questions of a node.
const WATCHERS_MAX: usize = 65_536;
/// Waiting questions below which those of disconnected clients are not looked for.
const PURGE_MIN: usize = 1_024;

/// The waiting questions.
#[derive(Default)]
pub struct Watchers {
    waiting: HashMap<(NamespaceId, TxnId), Vec<oneshot::Sender<KnownNow>>>,
    count: usize,
    purge_at: usize,
}

impl Watchers {
    /// Takes a question in; gives it back if there are too many.
    pub fn add(
        &mut self,
        namespace: NamespaceId,
        id: TxnId,
        reply: oneshot::Sender<KnownNow>,
    ) -> Option<oneshot::Sender<KnownNow>> {
        if self.count >= self.purge_at.max(PURGE_MIN) {
            self.purge();
        }
        if self.count >= WATCHERS_MAX {
            return Some(reply);
        }
        self.waiting.entry((namespace, id)).or_default().push(reply);
        self.count += 1;
        None
    }

    /// Returns whether there is no waiting question.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns those who wait for an id.
    pub fn take(&mut self, namespace: NamespaceId, id: TxnId) -> Vec<oneshot::Sender<KnownNow>> {
        let taken = self.waiting.remove(&(namespace, id)).unwrap_or_default();
        self.count -= taken.len();
        taken
    }

    /// Forgets questions of disconnected clients. The next look is taken when as many again have come.
    fn purge(&mut self) {
        self.waiting.retain(|_, replies| {
            replies.retain(|reply| !reply.is_closed());
            !replies.is_empty()
        });
        self.count = self.waiting.values().map(Vec::len).sum();
        self.purge_at = self.count * 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u64) -> TxnId {
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&n.to_be_bytes());
        TxnId(bytes)
    }

    #[test]
    fn dropped_watchers_make_room_and_too_many_are_rejected() {
        let mut watchers = Watchers::default();
        for n in 0..WATCHERS_MAX as u64 {
            // The receiver is dropped at once: this client has disconnected.
            assert!(watchers.add(NamespaceId(0), id(n), oneshot::channel().0).is_none());
        }
        assert!(watchers.count <= PURGE_MIN, "{}", watchers.count);
        let mut kept = Vec::new();
        let turned_away = (0..=WATCHERS_MAX as u64).find(|&n| {
            let (reply, known) = oneshot::channel();
            kept.push(known);
            watchers.add(NamespaceId(1), id(n), reply).is_some()
        });
        assert_eq!(turned_away, Some(WATCHERS_MAX as u64));
        let mut told = watchers.take(NamespaceId(1), id(7));
        assert_eq!(told.len(), 1);
        assert!(told.remove(0).send(KnownNow::Expired).is_ok());
        assert_eq!(kept[7].try_recv(), Ok(KnownNow::Expired));
        assert!(watchers.take(NamespaceId(1), id(7)).is_empty());
    }
}
