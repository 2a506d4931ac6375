//! A cache with a budget in bytes. It drops the least recently used value first.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// How full a cache is, and how it has been used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CacheStatistics {
    /// Look-ups that found a value.
    pub hits: u64,
    /// Look-ups that found none.
    pub misses: u64,
    /// Values dropped to make room.
    pub evictions: u64,
    /// Bytes in the cache.
    pub bytes: u64,
    /// The most bytes that may be in it.
    pub budget: u64,
}

/// Values by key, each with its number of bytes. The budget counts these bytes, not those of the tables.
pub(super) struct Cache<K, V> {
    entries: HashMap<K, CacheEntry<V>>,
    /// The keys by the number of their last use.
    by_use: BTreeMap<u64, K>,
    uses: u64,
    statistics: CacheStatistics,
}

struct CacheEntry<V> {
    value: V,
    bytes: u64,
    used: u64,
}

impl<K: Copy + Eq + Hash, V> Cache<K, V> {
    /// An empty cache for at most `budget` bytes.
    pub(super) fn new(budget: u64) -> Self {
        let statistics = CacheStatistics { budget, ..CacheStatistics::default() };
        Self { entries: HashMap::new(), by_use: BTreeMap::new(), uses: 0, statistics }
    }

    pub(super) fn statistics(&self) -> CacheStatistics {
        self.statistics
    }

    pub(super) fn budget(&self) -> u64 {
        self.statistics.budget
    }

    /// Whether `key` is there. This does not count as a use.
    pub(super) fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    /// The value of `key`, which is now the most recently used.
    pub(super) fn get(&mut self, key: &K) -> Option<&V> {
        let Some(entry) = self.entries.get_mut(key) else {
            self.statistics.misses += 1;
            return None;
        };
        self.statistics.hits += 1;
        self.uses += 1;
        self.by_use.remove(&entry.used);
        self.by_use.insert(self.uses, *key);
        entry.used = self.uses;
        Some(&entry.value)
    }

    /// Makes room for a value of `bytes` bytes, and keeps it, unless it is larger than the budget.
    pub(super) fn insert(&mut self, key: K, value: V, bytes: u64) {
        self.remove(&key);
        if bytes > self.statistics.budget {
            return;
        }
        while self.statistics.bytes + bytes > self.statistics.budget
            && self.remove_oldest().is_some()
        {}
        self.uses += 1;
        self.by_use.insert(self.uses, key);
        self.entries.insert(key, CacheEntry { value, bytes, used: self.uses });
        self.statistics.bytes += bytes;
    }

    /// Removes the least recently used value.
    pub(super) fn remove_oldest(&mut self) -> Option<V> {
        let (_, oldest) = self.by_use.first_key_value()?;
        let oldest = *oldest;
        self.statistics.evictions += 1;
        self.remove(&oldest)
    }

    fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.remove(key)?;
        self.by_use.remove(&entry.used);
        self.statistics.bytes -= entry.bytes;
        Some(entry.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pseudo-random numbers from 0 to 1.
    fn numbers() -> impl Iterator<Item = f64> {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        std::iter::repeat_with(move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1_u64 << 53) as f64
        })
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut cache = Cache::new(10);
        for key in 0..3 {
            cache.insert(key, key, 3);
        }
        assert!(cache.get(&0).is_some());
        cache.insert(3, 3, 4);
        assert!(!cache.contains(&1) && cache.contains(&0) && cache.contains(&2));
        assert_eq!(cache.statistics().bytes, 10);
        // A value of another length replaces the one before.
        cache.insert(3, 3, 1);
        assert_eq!(cache.statistics().bytes, 7);
        cache.insert(4, 4, 11);
        assert!(!cache.contains(&4) && cache.statistics().bytes == 7);
        cache.insert(5, 5, 10);
        assert_eq!((cache.statistics().bytes, cache.statistics().evictions), (10, 4));
        let mut none = Cache::new(0);
        none.insert(1, 1, 1);
        assert!(none.get(&1).is_none());
        none.insert(2, 2, 0);
        assert!(none.get(&2).is_some());
    }

    /// The cache keeps its budget after each step, with values of any length, and holds the same keys as a plain list
    /// that is searched from end to end.
    #[test]
    fn a_naive_cache_holds_the_same() {
        let budget = 1000;
        let mut cache = Cache::new(budget);
        let mut naive: Vec<(u32, u64)> = Vec::new();
        let mut numbers = numbers();
        let mut evictions = 0;
        for _ in 0..20_000 {
            let key = (numbers.next().unwrap().powi(3) * 100.0) as u32;
            let place = naive.iter().position(|(known, _)| *known == key);
            assert_eq!(cache.get(&key).is_some(), place.is_some());
            match place {
                Some(place) => {
                    let entry = naive.remove(place);
                    naive.push(entry);
                }
                None => {
                    let bytes = (numbers.next().unwrap() * 120.0) as u64;
                    while naive.iter().map(|(_, bytes)| bytes).sum::<u64>() + bytes > budget {
                        naive.remove(0);
                        evictions += 1;
                    }
                    naive.push((key, bytes));
                    cache.insert(key, (), bytes);
                }
            }
            let held: u64 = naive.iter().map(|(_, bytes)| bytes).sum();
            assert_eq!(cache.statistics().bytes, held);
            assert!(held <= budget);
        }
        assert_eq!(cache.statistics().evictions, evictions);
        assert_eq!(cache.by_use.len(), cache.entries.len());
    }

    /// Under a Zipf load, an item stays until about as many others as fit have been used. The hit rates follow from
    /// this: the model of H. Che, Y. Tung and Z. Wang, "Hierarchical Web Caching Systems" (2002).
    #[test]
    fn hit_rates_are_those_of_the_model() {
        let items = 2000;
        for (exponent, fits) in [(0.8, 100), (0.8, 500), (1.1, 50), (1.1, 400)] {
            let weights: Vec<f64> = (1..=items).map(|i| f64::from(i).powf(-exponent)).collect();
            let total: f64 = weights.iter().sum();
            let rates: Vec<f64> = weights.iter().map(|weight| weight / total).collect();
            let held = |time: f64| rates.iter().map(|rate| 1.0 - (-rate * time).exp()).sum::<f64>();
            let (mut low, mut high) = (0.0, 1e9);
            for _ in 0..100 {
                let middle = (low + high) / 2.0;
                if held(middle) < f64::from(fits) { low = middle } else { high = middle }
            }
            let model: f64 = rates.iter().map(|rate| rate * (1.0 - (-rate * low).exp())).sum();

            let mut cumulative = rates.clone();
            for i in 1..cumulative.len() {
                cumulative[i] += cumulative[i - 1];
            }
            let mut cache = Cache::new(u64::from(fits as u32) * 10);
            let load = 200_000;
            let mut before = CacheStatistics::default();
            for (step, number) in numbers().take(load).enumerate() {
                if step == load / 4 {
                    before = cache.statistics();
                }
                let item = cumulative.partition_point(|sum| *sum < number);
                if cache.get(&item).is_none() {
                    cache.insert(item, (), 10);
                }
            }
            let after = cache.statistics();
            assert_eq!(after.hits + after.misses, load as u64);
            assert_eq!(after.evictions, after.misses - fits as u64);
            let hits = (after.hits - before.hits) as f64 / (load - load / 4) as f64;
            assert!((hits - model).abs() < 0.01, "{exponent}, {fits}: {hits} and {model}");
        }
    }
}
