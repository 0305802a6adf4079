//! The cluster map as this node knows it: out of its own rows of root, or, while it joins, out of the answer that admitted it.
//!
//! Promises: the newest map that was applied here, never an older one than before. Refuses to know: what is done with it.

use arc_swap::ArcSwapOption;
use metadata::node::Metadata;
use metadata::read::root;
use std::sync::Arc;
use types::NodeId;
use types::cluster::{KeyHash, Map};

/// The newest map. Cheap to clone.
#[derive(Clone, Default)]
pub struct MapWatch {
    map: Arc<ArcSwapOption<Map>>,
}

impl MapWatch {
    /// The map; `None` before the birth of the cluster.
    pub fn now(&self) -> Option<Arc<Map>> {
        self.map.load_full()
    }

    /// Takes a map, unless a newer one is known.
    pub fn take(&self, map: Map) {
        let map = Arc::new(map);
        self.map.rcu(|known| match known {
            Some(known) if known.epoch >= map.epoch => Some(known.clone()),
            _ => Some(map.clone()),
        });
    }

    /// Looks at the rows; whether there was something new.
    pub fn look(&self, metadata: &Metadata) -> bool {
        let before = self.now().map(|map| map.epoch);
        match root::map(&metadata.snapshot()) {
            Ok(Some(map)) if Some(map.epoch) > before => self.take(map),
            Ok(_) => {}
            Err(error) => tracing::error!(%error, "the cluster map cannot be read"),
        }
        self.now().map(|map| map.epoch) != before
    }

    /// The nodes of the map that count or may come to count, but `this`.
    pub fn others(&self, this: NodeId) -> Vec<NodeId> {
        let map = self.now();
        map.iter().flat_map(|map| map.trusted()).map(|node| node.id).filter(|id| *id != this).collect()
    }
}

/// Who may speak: those of the map.
impl rpc::tcp::Trust for MapWatch {
    fn node_of(&self, key: [u8; 32]) -> Option<NodeId> {
        self.now()?.node_of(KeyHash(key))
    }

    fn key_of(&self, node: NodeId) -> Option<[u8; 32]> {
        Some(self.now()?.trusted().find(|found| found.id == node)?.key.0)
    }

    fn address_of(&self, node: NodeId) -> Option<String> {
        Some(self.now()?.trusted().find(|found| found.id == node)?.start.addresses.rpc.clone())
    }
}
