//! Queues of tenants that take turns, so that none of them waits for everything that another one has sent: deficit round
//! robin (Shreedhar and Varghese, SIGCOMM 1995, section 3). Invariant: the items of a tenant are taken in the order in
//! which they were added.

use alloc::collections::{BTreeMap, VecDeque};

use tribunal_types::NamespaceId;

/// An item of a tenant that waits for its turn.
pub trait TakesTurns {
    /// Cost that a tenant may take per turn, on average: an item that costs more needs several turns.
    const TURN: usize;

    /// Returns the tenant.
    fn namespace(&self) -> NamespaceId;

    /// Returns the cost, in the unit of [`TakesTurns::TURN`]. Always the same for one item.
    fn cost(&self) -> usize;
}

/// The items of one tenant.
struct TenantQueue<T> {
    items: VecDeque<T>,
    /// What the tenant may still take in its turn.
    credit: usize,
}

/// The items of all tenants.
pub struct Turns<T> {
    /// No queue is empty.
    tenants: BTreeMap<NamespaceId, TenantQueue<T>>,
    /// Every tenant with items, once, in the order of their turns.
    turns: VecDeque<NamespaceId>,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Turns { tenants: BTreeMap::new(), turns: VecDeque::new() }
    }
}

impl<T: TakesTurns> Turns<T> {
    /// Returns whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Adds the last item of its tenant.
    pub fn add(&mut self, item: T) {
        let namespace = item.namespace();
        let queue = self.tenants.entry(namespace).or_insert_with(|| {
            self.turns.push_back(namespace);
            TenantQueue { items: VecDeque::new(), credit: T::TURN }
        });
        queue.items.push_back(item);
    }

    /// Returns the next item, which stays the next one: turns pass until a tenant may take its first item.
    pub fn peek(&mut self) -> Option<&T> {
        loop {
            let namespace = *self.turns.front()?;
            let queue = self.tenants.get_mut(&namespace)?;
            if queue.credit >= queue.items.front()?.cost() {
                break;
            }
            queue.credit += T::TURN;
            self.turns.rotate_left(1);
        }
        self.tenants.get(self.turns.front()?)?.items.front()
    }

    /// Takes the next item.
    pub fn take(&mut self) -> Option<T> {
        self.peek()?;
        let namespace = *self.turns.front()?;
        let queue = self.tenants.get_mut(&namespace)?;
        let item = queue.items.pop_front()?;
        queue.credit -= item.cost();
        if queue.items.is_empty() {
            self.tenants.remove(&namespace);
            self.turns.pop_front();
        }
        Some(item)
    }

    /// Returns the item that was taken last and not put back since: it is the next one of its tenant again. Its tenant keeps
    /// its turn if no item of another one was taken after it.
    pub fn put_back(&mut self, item: T) {
        let namespace = item.namespace();
        let queue = self.tenants.entry(namespace).or_insert_with(|| {
            self.turns.push_front(namespace);
            TenantQueue { items: VecDeque::new(), credit: 0 }
        });
        queue.credit += item.cost();
        queue.items.push_front(item);
    }

    /// Takes all items: those of a tenant in their order.
    pub fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.turns.clear();
        core::mem::take(&mut self.tenants).into_values().flat_map(|queue| queue.items)
    }
}
