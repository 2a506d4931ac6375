//! Optimal code lengths, with and without a limit.
//!
//! Few codes reach the limit. So Huffman's algorithm with two queues over sorted counts (Moffat and Katajainen,
//! "In-place calculation of minimum-redundancy codes", 1995) goes first, and package-merge (Larmore and Hirschberg, "A
//! fast algorithm for optimal length-limited Huffman codes", 1990), which is exact too, only runs if a code is too
//! long.

use super::{MAX_LEN, MAX_SYMBOLS};
use crate::codec::each_nonzero;

/// The symbols that occur in a message, and how often.
pub struct Occurring {
    /// `count << 8 | symbol`.
    keys: [u64; MAX_SYMBOLS],
    /// Number of symbols that occur.
    symbols: usize,
    /// Length of the message.
    total: u64,
}

impl Occurring {
    /// The symbols whose counts are not 0.
    ///
    /// # Panics
    /// If there are more than [`MAX_SYMBOLS`] counts.
    pub fn new(freqs: &[u32]) -> Self {
        assert!(freqs.len() <= MAX_SYMBOLS);
        let (mut keys, mut symbols, mut total) = ([0; MAX_SYMBOLS], 0, 0);
        each_nonzero(freqs, |symbol, freq| {
            keys[symbols & 0xff] = u64::from(freq) << 8 | symbol as u64;
            symbols += 1;
            total += u64::from(freq);
        });
        Self { keys, symbols, total }
    }

    /// The number of symbols that occur.
    pub fn symbols(&self) -> usize {
        self.symbols
    }

    /// The length of the message in symbols.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// A symbol that occurs; 0 if there is none.
    pub fn any(&self) -> u8 {
        self.keys[0] as u8
    }

    /// Finds the lengths of an optimal code, as [`code_lengths`] does. Returns the size in bits that it gives to the
    /// message.
    ///
    /// # Panics
    /// As for [`code_lengths`], if `lengths` are shorter than the counts were.
    pub fn code_lengths(&mut self, max_len: u8, lengths: &mut [u8]) -> u64 {
        assert!(max_len <= MAX_LEN && self.symbols <= 1 << max_len);
        lengths.fill(0);
        if self.symbols < 2 {
            return 0;
        }
        let keys = &mut self.keys[..self.symbols];
        keys.sort_unstable();
        let mut depths = [0u8; MAX_SYMBOLS];
        let depths = &mut depths[..keys.len()];
        if !minimum_redundancy(keys, max_len, depths) {
            package_merge(keys, max_len, depths);
        }
        let mut bits = 0;
        for (&key, &depth) in keys.iter().zip(depths.iter()) {
            lengths[key as usize & 0xff] = depth;
            bits += (key >> 8) * u64::from(depth);
        }
        bits
    }
}

/// Finds the lengths of an optimal prefix code whose longest word has at most `max_len` bits.
///
/// Among equally frequent symbols the larger ones get the shorter codes. With fewer than two symbols
/// there is no code, and every length is 0.
///
/// # Panics
/// If `max_len` exceeds [`MAX_LEN`], there are more than [`MAX_SYMBOLS`] counts or more symbols
/// occur than `1 << max_len`, or `lengths` and `freqs` differ in length.
pub fn code_lengths(freqs: &[u32], max_len: u8, lengths: &mut [u8]) {
    assert!(lengths.len() == freqs.len());
    Occurring::new(freqs).code_lengths(max_len, lengths);
}

/// Huffman's algorithm. Returns false if a code would be longer than `max_len`. Takes `count << 8 | symbol` in rising
/// order.
fn minimum_redundancy(keys: &[u64], max_len: u8, depths: &mut [u8]) -> bool {
    let n = keys.len();
    // The tree's inner nodes in the order of their creation, which is that of their weights.
    let mut weights = [0u64; MAX_SYMBOLS];
    let mut parents = [0u8; MAX_SYMBOLS];
    let (mut leaf, mut root) = (0, 0);
    for made in 0..n - 1 {
        let mut weight = 0;
        for _ in 0..2 {
            if leaf < n && (root == made || keys[leaf] >> 8 <= weights[root]) {
                weight += keys[leaf] >> 8;
                leaf += 1;
            } else {
                weight += weights[root];
                parents[root] = made as u8;
                root += 1;
            }
        }
        weights[made] = weight;
    }
    // From the root down, the depths of inner nodes fall monotonically with their weights, and so do the depths of the
    // leaves: at each depth, leaves take the slots that inner nodes leave free.
    let mut inner_depths = [0u8; MAX_SYMBOLS];
    for node in (0..n - 2).rev() {
        let depth = inner_depths[usize::from(parents[node])] + 1;
        inner_depths[node] = depth;
        // An inner node has a child one level deeper.
        if depth >= max_len {
            return false;
        }
    }
    let mut free = n;
    let mut inner = n - 1;
    let mut slots = 1;
    let mut depth = 0;
    while free > 0 {
        let above = inner;
        while inner > 0 && inner_depths[inner - 1] == depth {
            inner -= 1;
        }
        let used = above - inner;
        let leaves = slots - used;
        depths[free - leaves..free].fill(depth);
        free -= leaves;
        slots = 2 * used;
        depth += 1;
    }
    true
}

/// Optimal lengths under a limit. Takes `count << 8 | symbol` in rising order.
fn package_merge(keys: &[u64], max_len: u8, depths: &mut [u8]) {
    /// Room for an alphabet and a sentinel at each end; a power of two, so that masked indices need no check.
    const ROOM: usize = 2 * MAX_SYMBOLS;
    let n = keys.len();
    // Each list stands between a sentinel below every weight and one above.
    let mut leaves = [0u64; ROOM];
    for (leaf, &key) in leaves[1..].iter_mut().zip(keys) {
        *leaf = key >> 8;
    }
    leaves[n + 1] = u64::MAX;
    let mut packages = [0u64; ROOM];
    let mut package_count = 0;
    // One bit for each item of each level's list: set for a leaf.
    let mut is_leaf = [[0u64; ROOM / 64]; MAX_LEN as usize];
    let mut items = [0u64; ROOM];
    for level in is_leaf[..usize::from(max_len)].iter_mut() {
        packages[package_count + 1] = u64::MAX;
        // Merging is a chain of dependent steps. Merging from both ends at once makes two shorter chains. Of equal
        // items, leaves come first.
        let count = n + package_count;
        let (mut leaf, mut package) = (1, 1);
        let (mut last_leaf, mut last_package) = (n, package_count);
        for i in 0..count.div_ceil(2) {
            let (a, b) = (leaves[leaf % ROOM], packages[package % ROOM]);
            let from_leaves = a <= b;
            items[i % ROOM] = if from_leaves { a } else { b };
            level[i / 64 % level.len()] |= u64::from(from_leaves) << (i % 64);
            leaf += usize::from(from_leaves);
            package += usize::from(!from_leaves);

            let k = count - 1 - i;
            let (a, b) = (leaves[last_leaf % ROOM], packages[last_package % ROOM]);
            let from_leaves = a > b;
            items[k % ROOM] = if from_leaves { a } else { b };
            let bit = 1 << (k % 64);
            let word = &mut level[k / 64 % (ROOM / 64)];
            *word = *word & !bit | u64::from(from_leaves) << (k % 64);
            last_leaf -= usize::from(from_leaves);
            last_package -= usize::from(!from_leaves);
        }
        // The last level contributes `2 * n - 2` items, so no level needs more.
        package_count = count.min(2 * n - 2) / 2;
        for (package, pair) in packages[1..].iter_mut().zip(items.chunks_exact(2)) {
            *package = pair[0] + pair[1];
        }
    }
    // Each leaf that a level contributes adds one to its symbol's length. Each package stands for two items of the
    // level below.
    let mut taken = 2 * n - 2;
    depths.fill(0);
    for level in is_leaf[..usize::from(max_len)].iter().rev() {
        let mut leaves_taken = 0;
        for (word, bits) in level.iter().enumerate() {
            let here = taken.saturating_sub(64 * word).min(64);
            let mask = if here == 64 { u64::MAX } else { (1 << here) - 1 };
            leaves_taken += (bits & mask).count_ones() as usize;
        }
        for depth in &mut depths[..leaves_taken] {
            *depth += 1;
        }
        taken = 2 * (taken - leaves_taken);
    }
}
