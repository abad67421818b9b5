//! The name of a store, shared by the rows of a transaction.

use std::cmp::Ordering;
use std::ops::Deref;
use std::sync::Arc;

/// A store's name. Names that share their text compare as equal without reading it: a transaction orders its rows by
/// store and key, and most of them are in one store.
#[derive(Clone, Debug)]
pub(crate) struct StoreName(Arc<str>);

impl StoreName {
    pub(crate) fn new(name: &str) -> Self {
        StoreName(Arc::from(name))
    }
}

impl Deref for StoreName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Ord for StoreName {
    fn cmp(&self, other: &Self) -> Ordering {
        if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
    }
}

impl PartialOrd for StoreName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for StoreName {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for StoreName {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_by_their_text_wherever_it_is() {
        let (orders, stock) = (StoreName::new("orders"), StoreName::new("stock"));
        assert!(orders < stock && orders != stock);
        assert!(orders == orders.clone() && orders == StoreName::new("orders"));
    }
}
