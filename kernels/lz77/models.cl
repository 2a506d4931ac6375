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

// Sorts the `n` symbols that occur: count << 8 | symbol, ascending, in `keys`.
inline void sort_symbols(Team t, __local const uint *counts, __local uint *keys, __local uint *unsorted) {
    uint n = 0;
    EACH(k) {
        uint symbol = 32u * k + t.lane, count = counts[symbol];
        uint present = team_ballot(t, count > 0u);
        if (count > 0u) unsorted[n + popcount(present & team_before(t))] = count << 8 | symbol;
        n += popcount(present);
    }
    team_sync(t);
    uint mine[ROUNDS], rank[ROUNDS];
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) {
        uint i = 32u * k + t.lane;
        mine[k] = i < n ? unsorted[i] : 0xffffffffu;
        rank[k] = 0u;
    }
    for (uint i = 0; i < n; i++) {
        uint key = unsorted[i];
#if TEAM_PTX
#pragma unroll
#endif
        EACH(k) rank[k] += key < mine[k] ? 1u : 0u;
    }
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) {
        if (32u * k + t.lane < n) keys[rank[k]] = mine[k];
    }
    team_sync(t);
}

// Huffman's algorithm over sorted keys, on one lane: the number of inner nodes of each depth in `inner`, of 16 words;
// false if a code would be longer than `limit`.
inline bool minimum_redundancy(
    uint n, __local const uint *keys, uint limit, __local uint *weights, __local uint *parents, __local uint *inner
) {
    uint leaf = 0, root = 0;
    uint leaf_weight = keys[0] >> 8, root_weight = 0xffffffffu;
    for (uint made = 0; made + 1u < n; made++) {
        uint weight = 0;
        if (root == made) root_weight = 0xffffffffu;
        for (uint i = 0; i < 2u; i++) {
            if (leaf < n && leaf_weight <= root_weight) {
                weight += leaf_weight;
                leaf++;
                leaf_weight = leaf < n ? keys[leaf] >> 8 : 0xffffffffu;
            } else {
                weight += root_weight;
                parents[root] = made;
                root++;
                root_weight = root < made ? weights[root] : 0xffffffffu;
            }
        }
        weights[made] = weight;
        if (root == made) root_weight = weight;
    }
    for (uint i = 0; i < 16u; i++) inner[i] = 0u;
    // Depths replace the weights.
    weights[n - 2u] = 0u;
    inner[0] = 1u;
    for (uint node = n - 2u; node-- > 0u;) {
        uint depth = weights[parents[node]] + 1u;
        weights[node] = depth;
        if (depth >= limit) return false;
        inner[depth]++;
    }
    return true;
}

// Finds the lengths of an optimal code of limited length, by package-merge: the depth of each sorted key in `depths`.
inline void package_merge(
    Team t, uint n, __local const uint *keys, uint limit, __local uint *packages, __local uint *items, __local uint *is_leaf,
    uint *depths
) {
    uint package_count = 0;
    for (uint i = t.lane; i < 16u * limit; i += 32u) is_leaf[i] = 0u;
    team_sync(t);
    for (uint level = 0; level < limit; level++) {
        // Both lists are sorted, so an item's place is its own index plus the number of smaller items in the other
        // list. Among equal items, leaves come first.
        EACH(k) {
            uint i = 32u * k + t.lane;
            if (i < n) {
                uint weight = keys[i] >> 8, low = 0, high = package_count;
                for (uint step = 0; step < 9u; step++) {
                    uint middle = (low + high) >> 1;
                    bool less = low < high && packages[middle] < weight;
                    low = less ? middle + 1u : low;
                    high = less ? high : middle;
                }
                items[i + low] = weight;
                atomic_or(&is_leaf[16u * level + ((i + low) >> 5)], 1u << ((i + low) & 31u));
            }
            if (i < package_count) {
                uint weight = packages[i], low = 0, high = n;
                for (uint step = 0; step < 9u; step++) {
                    uint middle = (low + high) >> 1;
                    bool less = low < high && keys[middle] >> 8 <= weight;
                    low = less ? middle + 1u : low;
                    high = less ? high : middle;
                }
                items[i + low] = weight;
            }
        }
        team_sync(t);
        // The code takes 2 n - 2 items of the last level, so no level needs more.
        package_count = min(n + package_count, 2u * n - 2u) >> 1;
        EACH(k) {
            uint i = 32u * k + t.lane;
            if (i < package_count) packages[i] = items[2u * i] + items[2u * i + 1u];
        }
        team_sync(t);
    }
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) depths[k] = 0u;
    uint taken = 2u * n - 2u;
    for (uint level = limit; level-- > 0u;) {
        uint leaves = 0;
        if (t.lane < 16u) {
            uint here = taken > 32u * t.lane ? min(taken - 32u * t.lane, 32u) : 0u;
            uint mask = here == 32u ? 0xffffffffu : (1u << here) - 1u;
            leaves = popcount(is_leaf[16u * level + t.lane] & mask);
        }
        leaves = team_sum(t, leaves);
#if TEAM_PTX
#pragma unroll
#endif
        EACH(k) depths[k] += 32u * k + t.lane < leaves ? 1u : 0u;
        taken = 2u * (taken - leaves);
    }
}

// Finds the lengths of an optimal code for the `n` symbols that occur, at least two. No length exceeds `limit`.
inline void code_lengths(
    Team t, uint n, uint limit, __local const uint *counts, __local uint *keys, __local uint *lengths, __local uint *work
) {
    sort_symbols(t, counts, keys, work);
    __local uint *inner = work + 512;
    uint fits = 0;
    if (t.lane == 0u) fits = minimum_redundancy(n, keys, limit, work, work + 256, inner) ? 1u : 0u;
    team_sync(t);
    uint depths[ROUNDS];
    if (team_broadcast(t, fits, 0u) != 0u) {
        // At each depth, leaves take the slots that inner nodes leave free, the heaviest remaining ones first.
#if TEAM_PTX
#pragma unroll
#endif
        EACH(k) depths[k] = 0u;
        uint slots = 1, left = n;
        for (uint depth = 0; depth <= limit; depth++) {
            uint used = inner[depth];
            uint leaves = slots - used;
#if TEAM_PTX
#pragma unroll
#endif
            EACH(k) {
                uint i = 32u * k + t.lane;
                if (i < left && i + leaves >= left) depths[k] = depth;
            }
            left -= leaves;
            slots = 2u * used;
        }
        team_sync(t);
    } else {
        package_merge(t, n, keys, limit, work, work + 512, work + 1024, depths);
    }
    EACH(k) lengths[32u * k + t.lane] = 0u;
    team_sync(t);
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) {
        uint i = 32u * k + t.lane;
        if (i < n) lengths[keys[i] & 255u] = depths[k];
    }
    team_sync(t);
}

// Computes the codes of symbols from their lengths, in the form code from the top down | length.
inline void assign_codes(Team t, __local const uint *lengths, __local uint *next, __global uint *codes) {
    uint rank[ROUNDS];
    if (t.lane < 16u) next[t.lane] = 0u;
    team_sync(t);
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) {
        uint length = lengths[32u * k + t.lane];
        uint same = team_match(t, length, 4u);
        rank[k] = next[length] + popcount(same & team_before(t));
        team_sync(t);
        if ((same & ~(team_before(t) | 1u << t.lane)) == 0u) next[length] += popcount(same);
        team_sync(t);
    }
    // The first code of each length: it follows the last of the length before, one bit longer.
    uint code = 0, first = 0;
    for (uint l = 1; l < 16u; l++) {
        code = l == 1u ? 0u : (code + next[l - 1u]) << 1;
        if (t.lane == l) first = code;
    }
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) {
        uint length = lengths[32u * k + t.lane];
        uint base = team_shuffle(t, first, length);
        codes[32u * k + t.lane] = length == 0u ? 0u : (base + rank[k]) << (32u - length) | length;
    }
}

// Chooses among constant, raw and Huffman, with code lengths as codes.
__kernel void choose_lengths(
    __global const uint *restrict jobs,
    __global const uint *restrict all_counts,
    __global uint *restrict models,
    TASK_ARGS
) {
    TEAM_START(team);
    SHARED uint memory[TEAMS * (3u * 256u + DESCRIPTION_WORDS + 1216u)];
    __local uint *counts = memory + team.index * (3u * 256u + DESCRIPTION_WORDS + 1216u);
    __local uint *keys = counts + 256, *lengths = counts + 512, *description = counts + 768;
    __local uint *work = description + DESCRIPTION_WORDS;
    Task task;
    if (!TASK(task)) return;
    __global uint *model = models + task.model;
    uint first = 0, total;
    uint present = load_counts(team, all_counts + task.counts, counts, &first, &total);
    if (present < 2u) {
        if (team.lane == 0u) {
            model[MODEL_MODE] = MODE_CONSTANT;
            model[MODEL_CONSTANT] = first;
            model[MODEL_LOG] = 0u;
            model[MODEL_BITS] = 0u;
            model[MODEL_SIZE] = 0u;
        }
        EACH(k) model[MODEL_CODES + 32u * k + team.lane] = 0u;
        return;
    }
    for (uint i = team.lane; i < DESCRIPTION_WORDS; i += 32u) description[i] = 0u;
    code_lengths(team, present, HUFFMAN_BITS(task), counts, keys, lengths, work);
    uint bits = 0;
    EACH(k) bits += counts[32u * k + team.lane] * lengths[32u * k + team.lane];
    uint described = describe(team, lengths, false, counts, description, 0u);
    uint size = team_sum(team, bits) + described;
    uint raw_bits = RAW_BITS(task);
    bool is_raw = total * raw_bits <= size;
    team_sync(team);
    if (team.lane == 0u) {
        model[MODEL_MODE] = is_raw ? MODE_RAW : MODE_HUFFMAN;
        model[MODEL_LOG] = 0u;
        model[MODEL_BITS] = is_raw ? 0u : described;
        model[MODEL_SIZE] = is_raw ? total * raw_bits : size;
    }
    for (uint i = team.lane; i < DESCRIPTION_WORDS; i += 32u) model[MODEL_DESCRIPTION + i] = description[i];
    EACH(k) {
        uint symbol = 32u * k + team.lane;
        uint raw = symbol < SYMBOLS(task) ? raw_bits : 0u;
        model[MODEL_CODES + symbol] = is_raw ? raw : lengths[symbol];
    }
}

// Makes the codes of symbols from their lengths.
__kernel void tables_from_lengths(__global const uint *restrict jobs, __global uint *restrict models, TASK_ARGS) {
    TEAM_START(team);
    SHARED uint memory[TEAMS * (256u + 16u)];
    __local uint *lengths = memory + team.index * (256u + 16u), *next = lengths + 256;
    Task task;
    if (!TASK(task)) return;
    __global uint *model = models + task.model;
    uint mode = team_uniform(team, model[MODEL_MODE]);
    if (mode != MODE_RAW && mode != MODE_HUFFMAN) return;
    EACH(k) lengths[32u * k + team.lane] = model[MODEL_CODES + 32u * k + team.lane];
    team_sync(team);
    assign_codes(team, lengths, next, model + MODEL_CODES);
}
