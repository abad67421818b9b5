//! An immutable snapshot of the declared stores, and the function that hashes row keys.

use std::collections::HashMap;
use std::sync::Arc;

use tribunal_types::{NamespaceId, RowKey, StoreId, StoreSpec};

/// Computes the keyed 128-bit hash by which the resolver identifies a row. A closure over the cluster's secret, so that
/// this crate never sees the secret.
pub type RowNamer = Arc<dyn Fn(NamespaceId, StoreId, &[u8]) -> RowKey + Send + Sync>;

/// The declared stores. Immutable: every change creates a new catalog.
#[derive(Clone)]
pub struct Catalog {
    names: HashMap<NamespaceId, HashMap<String, Arc<StoreSpec>>>,
    ids: HashMap<StoreId, Arc<StoreSpec>>,
    rows: RowNamer,
}

impl Catalog {
    /// Builds a catalog. If two specs of a namespace have the same name, the last one wins.
    #[must_use]
    pub fn new(specs: impl IntoIterator<Item = StoreSpec>, rows: RowNamer) -> Self {
        let mut catalog = Catalog { names: HashMap::new(), ids: HashMap::new(), rows };
        for spec in specs {
            let spec = Arc::new(spec);
            catalog.names.entry(spec.namespace).or_default().insert(spec.name.clone(), Arc::clone(&spec));
            catalog.ids.insert(spec.id, spec);
        }
        catalog
    }

    /// Returns the store with this name.
    #[must_use]
    pub fn store(&self, namespace: NamespaceId, name: &str) -> Option<&Arc<StoreSpec>> {
        self.names.get(&namespace)?.get(name)
    }

    /// Returns the store with this id.
    #[must_use]
    pub fn by_id(&self, id: StoreId) -> Option<&Arc<StoreSpec>> {
        self.ids.get(&id)
    }

    /// Returns the stores of a namespace, sorted by name.
    #[must_use]
    pub fn list(&self, namespace: NamespaceId) -> Vec<Arc<StoreSpec>> {
        let mut specs: Vec<_> =
            self.names.get(&namespace).into_iter().flat_map(HashMap::values).map(Arc::clone).collect();
        specs.sort_by(|a, b| a.name.cmp(&b.name));
        specs
    }

    /// Returns the stores of all namespaces, in no particular order.
    pub fn all(&self) -> impl Iterator<Item = &Arc<StoreSpec>> {
        self.ids.values()
    }

    /// Returns the number of stores in a namespace.
    #[must_use]
    pub fn count(&self, namespace: NamespaceId) -> usize {
        self.names.get(&namespace).map_or(0, HashMap::len)
    }

    /// Returns the number of stores in all namespaces.
    #[must_use]
    pub fn total(&self) -> usize {
        self.ids.len()
    }

    /// Returns the hash that identifies a row.
    #[must_use]
    pub fn row(&self, namespace: NamespaceId, store: StoreId, key: &[u8]) -> RowKey {
        (self.rows)(namespace, store, key)
    }
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog").field("stores", &self.ids).finish_non_exhaustive()
    }
}
