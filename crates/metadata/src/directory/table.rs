//! A map that is read without locks and changed by replacing a part of it.

use arc_swap::ArcSwap;
use std::array;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Parts of a table: a change copies one of them, so 10,000 buckets cost 160 pointers a change.
const PARTS: usize = 64;

type Part<K, V> = ArcSwap<BTreeMap<K, V>>;

/// One writer at a time (the applier of root), any number of readers.
pub struct Table<K, V> {
    parts: [Part<K, V>; PARTS],
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Table { parts: array::from_fn(|_| ArcSwap::from_pointee(BTreeMap::new())) }
    }
}

impl<K: Ord + Hash + Clone, V: Clone> Table<K, V> {
    fn part<Q: Hash + ?Sized>(&self, key: &Q) -> &Part<K, V> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        &self.parts[(hasher.finish() % PARTS as u64) as usize]
    }

    /// The value of `key`.
    pub fn get<Q: Ord + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.part(key).load().get(key).cloned()
    }

    /// Sets or removes the value of `key`.
    pub fn set(&self, key: K, value: Option<V>) {
        self.part(&key).rcu(|old| {
            let mut new = BTreeMap::clone(old);
            match &value {
                Some(value) => new.insert(key.clone(), value.clone()),
                None => new.remove(&key),
            };
            new
        });
    }

    /// Values that `wanted` says, in order of their keys.
    pub fn collect(&self, wanted: impl Fn(&V) -> bool) -> Vec<V> {
        let mut found = BTreeMap::new();
        for part in &self.parts {
            let part = part.load();
            found.extend(part.iter().filter(|(_, v)| wanted(v)).map(|(k, v)| (k.clone(), v.clone())));
        }
        found.into_values().collect()
    }
}
