// Chooses constant, raw or Huffman models for groups, and builds their codes. One team per model of a group.
//
// Every number here equals that of the CPU's encoder: equal counts give equal models.
//
// @pz_cost {
//   threads: N/65536*3/2*64
//   passes: 2
//   buffers: jobs=32, lz77_counts=N/65536*3072, lz77_models=N/65536*16512
//   local_mem: 16600
// }
// @pz_import team
// @pz_import lz77_code
// @pz_import lz77_group

// Sorted: count << 8 | symbol.
var<workgroup> keys: array<u32, 256>;
// Space for one algorithm at a time, and the number of inner nodes of each depth.
var<workgroup> work: array<u32, 1024>;
var<workgroup> inner: array<u32, 16>;
var<workgroup> is_leaf: array<atomic<u32>, 192>;

// Sorts the symbols that occur: count << 8 | symbol, ascending, in `keys`.
fn sort_symbols() {
    var n = 0u;
    for (var k = 0u; k < rounds(); k++) {
        let symbol = 32u * k + lane;
        let count = counts[symbol];
        let present = team_ballot(count > 0u);
        if count > 0u {
            work[n + countOneBits(present & team_before())] = count << 8u | symbol;
        }
        n += countOneBits(present);
    }
    team_sync();
    var mine: array<u32, 8>;
    var rank: array<u32, 8>;
    for (var k = 0u; k < rounds(); k++) {
        let i = 32u * k + lane;
        mine[k] = 0xffffffffu;
        if i < n {
            mine[k] = work[i];
        }
    }
    for (var i = 0u; i < n; i++) {
        let key = work[i];
        for (var k = 0u; k < rounds(); k++) {
            rank[k] += select(0u, 1u, key < mine[k]);
        }
    }
    for (var k = 0u; k < rounds(); k++) {
        if 32u * k + lane < n {
            keys[rank[k]] = mine[k];
        }
    }
    team_sync();
}

// Huffman's algorithm over sorted keys, on one lane: the number of inner nodes of each depth in `inner`; 0 if a code
// would be longer than `limit`.
fn minimum_redundancy(n: u32, limit: u32) -> u32 {
    var leaf = 0u;
    var root = 0u;
    var leaf_weight = keys[0] >> 8u;
    var root_weight = 0xffffffffu;
    // Weights are in the first 256 words of `work`, parents in the next.
    for (var made = 0u; made + 1u < n; made++) {
        var weight = 0u;
        if root == made {
            root_weight = 0xffffffffu;
        }
        for (var i = 0u; i < 2u; i++) {
            if leaf < n && leaf_weight <= root_weight {
                weight += leaf_weight;
                leaf++;
                leaf_weight = 0xffffffffu;
                if leaf < n {
                    leaf_weight = keys[leaf] >> 8u;
                }
            } else {
                weight += root_weight;
                work[256u + root] = made;
                root++;
                root_weight = 0xffffffffu;
                if root < made {
                    root_weight = work[root];
                }
            }
        }
        work[made] = weight;
        if root == made {
            root_weight = weight;
        }
    }
    for (var i = 0u; i < 16u; i++) {
        inner[i] = 0u;
    }
    // Depths replace the weights.
    work[n - 2u] = 0u;
    inner[0] = 1u;
    for (var node = n - 2u; node > 0u; node--) {
        let depth = work[work[256u + node - 1u]] + 1u;
        work[node - 1u] = depth;
        if depth >= limit {
            return 0u;
        }
        inner[depth]++;
    }
    return 1u;
}

// The depth of each sorted key.
var<private> depths: array<u32, 8>;

// Finds the lengths of an optimal code of limited length, by package-merge. Packages are in the first 512 words of
// `work`, items in the next.
fn package_merge(n: u32, limit: u32) {
    var package_count = 0u;
    for (var i = lane; i < 192u; i += 32u) {
        atomicStore(&is_leaf[i], 0u);
    }
    team_sync();
    for (var level = 0u; level < limit; level++) {
        // Both lists are sorted, so an item's place is its own index plus the number of smaller items in the other
        // list. Among equal items, leaves come first.
        for (var k = 0u; k < rounds(); k++) {
            let i = 32u * k + lane;
            if i < n {
                let weight = keys[i] >> 8u;
                var low = 0u;
                var high = package_count;
                for (var step = 0u; step < 9u; step++) {
                    let middle = (low + high) >> 1u;
                    let less = low < high && work[middle] < weight;
                    low = select(low, middle + 1u, less);
                    high = select(middle, high, less);
                }
                work[512u + i + low] = weight;
                atomicOr(&is_leaf[16u * level + ((i + low) >> 5u)], 1u << ((i + low) & 31u));
            }
            if i < package_count {
                let weight = work[i];
                var low = 0u;
                var high = n;
                for (var step = 0u; step < 9u; step++) {
                    let middle = (low + high) >> 1u;
                    let less = low < high && keys[middle & 255u] >> 8u <= weight;
                    low = select(low, middle + 1u, less);
                    high = select(middle, high, less);
                }
                work[512u + i + low] = weight;
            }
        }
        team_sync();
        // The code takes 2 n - 2 items of the last level, so no level needs more.
        package_count = min(n + package_count, 2u * n - 2u) >> 1u;
        for (var k = 0u; k < rounds(); k++) {
            let i = 32u * k + lane;
            if i < package_count {
                work[i] = work[512u + 2u * i] + work[512u + 2u * i + 1u];
            }
        }
        team_sync();
    }
    depths = array<u32, 8>();
    var taken = 2u * n - 2u;
    for (var level = limit; level > 0u; level--) {
        var leaves = 0u;
        if lane < 16u {
            var here = 0u;
            if taken > 32u * lane {
                here = min(taken - 32u * lane, 32u);
            }
            let mask = select((1u << (here & 31u)) - 1u, 0xffffffffu, here == 32u);
            leaves = countOneBits(atomicLoad(&is_leaf[16u * (level - 1u) + lane]) & mask);
        }
        leaves = team_sum(leaves);
        for (var k = 0u; k < rounds(); k++) {
            depths[k] += select(0u, 1u, 32u * k + lane < leaves);
        }
        taken = 2u * (taken - leaves);
    }
}

// Finds the lengths of an optimal code for the `n` symbols that occur, at least two. No length exceeds `limit`.
fn code_lengths(n: u32, limit: u32) {
    sort_symbols();
    var fits = 0u;
    if lane == 0u {
        fits = minimum_redundancy(n, limit);
    }
    team_sync();
    if team_broadcast(fits, 0u) != 0u {
        // At each depth, leaves take the slots that inner nodes leave free, the heaviest remaining ones first.
        depths = array<u32, 8>();
        var slots = 1u;
        var left = n;
        for (var depth = 0u; depth <= limit; depth++) {
            let used = inner[depth];
            let leaves = slots - used;
            for (var k = 0u; k < rounds(); k++) {
                let i = 32u * k + lane;
                if i < left && i + leaves >= left {
                    depths[k] = depth;
                }
            }
            left -= leaves;
            slots = 2u * used;
        }
        team_sync();
    } else {
        package_merge(n, limit);
    }
    for (var k = 0u; k < rounds(); k++) {
        lengths[32u * k + lane] = 0u;
    }
    team_sync();
    for (var k = 0u; k < rounds(); k++) {
        let i = 32u * k + lane;
        if i < n {
            lengths[keys[i] & 255u] = depths[k];
        }
    }
    team_sync();
}

// Computes the codes of symbols from their lengths, in the form code from the top down | length.
fn assign_codes(model: u32) {
    var rank: array<u32, 8>;
    if lane < 16u {
        inner[lane] = 0u;
    }
    team_sync();
    for (var k = 0u; k < rounds(); k++) {
        let length = lengths[32u * k + lane];
        let same = team_match(length, 4u);
        rank[k] = inner[length & 15u] + countOneBits(same & team_before());
        team_sync();
        if (same & ~(team_before() | 1u << lane)) == 0u {
            inner[length & 15u] += countOneBits(same);
        }
        team_sync();
    }
    // The first code of each length: it follows the last of the length before, one bit longer.
    var code = 0u;
    var first = 0u;
    for (var l = 1u; l < 16u; l++) {
        code = select((code + inner[l - 1u]) << 1u, 0u, l == 1u);
        if lane == l {
            first = code;
        }
    }
    for (var k = 0u; k < rounds(); k++) {
        let length = lengths[32u * k + lane];
        let base = team_shuffle(first, length);
        let value = (base + rank[k]) << (32u - length) | length;
        tables[model + MODEL_CODES + 32u * k + lane] = select(value, 0u, length == 0u);
    }
}

// Chooses among constant, raw and Huffman, with code lengths as codes.
// @pz_entry
fn choose_lengths(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let task = find_task(workgroup_index);
    if team_uniform(u32(task.exists)) == 0u {
        return;
    }
    let model = task.model;
    let loaded = load_counts(task.counts);
    let present = team_uniform(loaded.present);
    if present < 2u {
        if lane == 0u {
            models[model + MODEL_MODE] = MODE_CONSTANT;
            models[model + MODEL_CONSTANT] = loaded.first;
            models[model + MODEL_LOG] = 0u;
            models[model + MODEL_BITS] = 0u;
            models[model + MODEL_SIZE] = 0u;
        }
        for (var k = 0u; k < rounds(); k++) {
            models[model + MODEL_CODES + 32u * k + lane] = 0u;
        }
        return;
    }
    let raw_bits = select(6u, 8u, task.stream < 2u);
    let symbols = select(48u, 256u, task.stream < 2u);
    code_lengths(present, select(8u, 10u, task.stream < 2u));
    var bits = 0u;
    for (var k = 0u; k < rounds(); k++) {
        bits += counts[32u * k + lane] * lengths[32u * k + lane];
    }
    let described = describe(false, 0u);
    let size = team_sum(bits) + described;
    let is_raw = loaded.total * raw_bits <= size;
    team_sync();
    if lane == 0u {
        models[model + MODEL_MODE] = select(MODE_HUFFMAN, MODE_RAW, is_raw);
        models[model + MODEL_LOG] = 0u;
        models[model + MODEL_BITS] = select(described, 0u, is_raw);
        models[model + MODEL_SIZE] = select(size, loaded.total * raw_bits, is_raw);
    }
    for (var i = lane; i < DESCRIPTION_WORDS; i += 32u) {
        models[model + MODEL_DESCRIPTION + i] = atomicLoad(&description[i]);
    }
    for (var k = 0u; k < rounds(); k++) {
        let symbol = 32u * k + lane;
        let raw = select(0u, raw_bits, symbol < symbols);
        models[model + MODEL_CODES + symbol] = select(lengths[symbol], raw, is_raw);
    }
}

// Makes the codes of symbols from their lengths.
// @pz_entry
fn tables_from_lengths(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let task = find_task(workgroup_index);
    if team_uniform(u32(task.exists)) == 0u {
        return;
    }
    let mode = team_uniform(tables[task.model + MODEL_MODE]);
    if mode != MODE_RAW && mode != MODE_HUFFMAN {
        return;
    }
    for (var k = 0u; k < rounds(); k++) {
        lengths[32u * k + lane] = tables[task.model + MODEL_CODES + 32u * k + lane];
    }
    team_sync();
    assign_codes(task.model);
}
