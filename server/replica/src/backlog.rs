//! Items that wait for a later batch because the open one is full. Tenants take turns, in bytes.

use tribunal_types::{NamespaceId, TxnId};

use crate::event::Commit;
use crate::turns::{TakesTurns, Turns};

/// Everything that waits.
pub(crate) type Backlog<I> = Turns<Deferred<I>>;

/// Bytes that a tenant may take per turn.
const TURN_BYTES: usize = 64 * 1024;
/// Bytes of an item that is only an id.
const ID_BYTES: usize = 64;

/// An item that waits.
pub(crate) enum Deferred<I> {
    Commit(Commit<I>),
    Abort(NamespaceId, TxnId, I),
    Fence(NamespaceId, TxnId, I),
}

impl<I> TakesTurns for Deferred<I> {
    const TURN: usize = TURN_BYTES;

    fn namespace(&self) -> NamespaceId {
        match self {
            Deferred::Commit(commit) => commit.txn.namespace,
            Deferred::Abort(namespace, ..) | Deferred::Fence(namespace, ..) => *namespace,
        }
    }

    fn cost(&self) -> usize {
        match self {
            Deferred::Commit(commit) => commit.txn.memory_bytes(),
            Deferred::Abort(..) | Deferred::Fence(..) => ID_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;
    use alloc::vec::Vec;

    use tribunal_types::TxnRequest;

    use super::*;

    /// Returns a commit of a tenant, with about `bytes` bytes.
    fn commit(namespace: u32, number: u32, bytes: usize) -> Deferred<u32> {
        let txn = TxnRequest { namespace: NamespaceId(namespace), values: alloc::vec![0; bytes], ..Default::default() };
        Deferred::Commit(Commit { txn: Box::new(txn), waiter: number })
    }

    fn id(item: &Deferred<u32>) -> (u32, u32) {
        let (Deferred::Commit(Commit { waiter, .. }) | Deferred::Abort(_, _, waiter) | Deferred::Fence(_, _, waiter)) =
            item;
        (item.namespace().0, *waiter)
    }

    fn taken(backlog: &mut Backlog<u32>, count: usize) -> Vec<(u32, u32)> {
        core::iter::from_fn(|| backlog.take()).take(count).map(|item| id(&item)).collect()
    }

    #[test]
    fn a_tenant_does_not_wait_for_all_items_of_another_one() {
        let mut backlog = Backlog::default();
        (0..1_000).for_each(|n| backlog.add(commit(1, n, TURN_BYTES)));
        (0..3).for_each(|n| backlog.add(commit(2, n, 100)));
        let first = taken(&mut backlog, 5);
        let of_two: Vec<u32> = first.iter().filter(|(tenant, _)| *tenant == 2).map(|(_, n)| *n).collect();
        assert_eq!(of_two, [0, 1, 2], "{first:?}");
    }

    #[test]
    fn tenants_get_the_same_bytes_whatever_their_items_size() {
        let mut backlog = Backlog::default();
        (0..100).for_each(|n| backlog.add(commit(1, n, 20 * TURN_BYTES)));
        (0..100_000).for_each(|n| backlog.add(commit(2, n, 1_000)));
        let mut bytes = [0; 2];
        for _ in 0..5_000 {
            let item = backlog.take().expect("both have more");
            bytes[item.namespace().0 as usize - 1] += item.cost();
        }
        let [one, two] = bytes;
        assert!(one.abs_diff(two) <= 21 * TURN_BYTES, "{bytes:?}");
    }

    #[test]
    fn the_items_of_a_tenant_keep_their_order_through_put_back() {
        let mut backlog = Backlog::default();
        for n in 0..40 {
            backlog.add(commit(n % 3, n, 10_000 * n as usize));
        }
        backlog.add(Deferred::Abort(NamespaceId(0), TxnId([1; 16]), 40));
        backlog.add(Deferred::Fence(NamespaceId(1), TxnId([1; 16]), 41));
        let mut seen: Vec<(u32, u32)> = Vec::new();
        // Takes a run, keeps half of it, as a batch that becomes full.
        while !backlog.is_empty() {
            let mut run: Vec<_> = core::iter::from_fn(|| backlog.take()).take(6).collect();
            run.split_off(run.len().div_ceil(2)).into_iter().rev().for_each(|item| backlog.put_back(item));
            seen.extend(run.iter().map(id));
        }
        assert_eq!(seen.len(), 42);
        for tenant in 0..3 {
            let of_tenant: Vec<u32> = seen.iter().filter(|(of, _)| *of == tenant).map(|(_, n)| *n).collect();
            assert!(of_tenant.is_sorted() && of_tenant.len() >= 13, "{of_tenant:?}");
        }
    }

    #[test]
    fn everything_is_taken_at_the_end() {
        let mut backlog = Backlog::default();
        (0..10).for_each(|n| backlog.add(commit(n % 2, n, 0)));
        let all: Vec<(u32, u32)> = backlog.take_all().map(|item| id(&item)).collect();
        assert_eq!(all.len(), 10);
        assert!(backlog.is_empty() && backlog.take().is_none());
    }
}
