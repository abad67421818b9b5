//! The declared stores at one moment, and how rows get their names.

use std::collections::HashMap;
use std::sync::Arc;

use tribunal_types::{NamespaceId, RowKey, StoreId, StoreSpec};

/// Names a row: the keyed 128-bit hash that the resolver uses. A closure over the cluster's secret, so that this
/// crate never sees it.
pub type RowNamer = Arc<dyn Fn(NamespaceId, StoreId, &[u8]) -> RowKey + Send + Sync>;

/// The declared stores at one moment. Immutable: a change makes a new one.
#[derive(Clone)]
pub struct Catalog {
    names: HashMap<NamespaceId, HashMap<String, Arc<StoreSpec>>>,
    ids: HashMap<StoreId, Arc<StoreSpec>>,
    rows: RowNamer,
}

impl Catalog {
    /// Builds a catalog. Of two specs with one name in one namespace the last one stands.
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

    /// Finds a store by its name.
    #[must_use]
    pub fn store(&self, namespace: NamespaceId, name: &str) -> Option<&Arc<StoreSpec>> {
        self.names.get(&namespace)?.get(name)
    }

    /// Finds a store by its number.
    #[must_use]
    pub fn by_id(&self, id: StoreId) -> Option<&Arc<StoreSpec>> {
        self.ids.get(&id)
    }

    /// Returns the stores of a namespace by name.
    #[must_use]
    pub fn list(&self, namespace: NamespaceId) -> Vec<Arc<StoreSpec>> {
        let mut specs: Vec<_> =
            self.names.get(&namespace).into_iter().flat_map(HashMap::values).map(Arc::clone).collect();
        specs.sort_by(|a, b| a.name.cmp(&b.name));
        specs
    }

    /// Returns how many stores a namespace has.
    #[must_use]
    pub fn count(&self, namespace: NamespaceId) -> usize {
        self.names.get(&namespace).map_or(0, HashMap::len)
    }

    /// Returns how many stores there are.
    #[must_use]
    pub fn total(&self) -> usize {
        self.ids.len()
    }

    /// Names a row.
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
