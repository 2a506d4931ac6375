// Chooses FSE models for groups where they are smaller, and builds their tables. One team per model of a group.
//
// Every number here equals that of the CPU's encoder: equal counts give equal models.
//
// @pz_cost {
//   threads: N/65536*3/2*64
//   passes: 2
//   buffers: jobs=32, lz77_counts=N/65536*3072, lz77_models=N/65536*16512
//   local_mem: 13312
// }
// @pz_import log2
// @pz_import team
// @pz_import lz77_code
// @pz_import lz77_group

// 2^33 / d, rounded down, for an odd d above 1.
inline uint reciprocal(uint d) {
    uint quotient = 0xffffffffu / d, rest = 0u - quotient * d;
    return 2u * quotient + (rest >= d - rest ? 1u : 0u);
}

// ln(1 + 1 / n) in units of 2^-32, n from 1 to 2047, by the series of 2 artanh(1 / (2 n + 1)). Where the denominator of
// a term has more than 32 bits, the term is 1 or 0.
inline uint worth(uint n) {
    uint y = 2u * n + 1u;
    uint sum = reciprocal(y);
    if (y <= 1127u) sum += reciprocal(3u * y * y * y);
    else if (y <= 1419u) sum += 1u;
    if (y <= 61u) sum += reciprocal(5u * y * y * y * y * y);
    else if (y <= 69u) sum += 1u;
    if (y <= 17u) sum += reciprocal(7u * y * y * y * y * y * y * y);
    else if (y <= 19u) sum += 1u;
    return sum;
}

inline ulong loss_of(uint count, uint norm) {
    return norm <= 1u ? 0xffffffffffffffffUL : (ulong)count * worth(norm - 1u);
}

inline ulong gain_of(uint count, uint norm) {
    return norm == 0u ? 0UL : (ulong)count * worth(norm);
}

// The smallest symbol among the lanes with the largest `value`, and that value.
inline uint team_largest(Team t, ulong value, uint symbol, ulong *largest) {
    uint high = team_max(t, (uint)(value >> 32));
    bool is_high = (uint)(value >> 32) == high;
    uint low = team_max(t, is_high ? (uint)value : 0u);
    *largest = (ulong)high << 32 | low;
    return ~team_max(t, is_high && (uint)value == low ? ~symbol : 0u);
}

// Divides 2^log states among the symbols that occur, as well as possible. There are at least two symbols, and fewer
// than states.
inline void normalize_counts(Team t, __local const uint *counts, uint total, uint log, __local uint *norms) {
    uint count[ROUNDS], norm[ROUNDS];
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) {
        count[k] = counts[32u * k + t.lane];
        norm[k] = 0u;
    }
    // Give rare symbols the one state that they need, until no other symbol is rare.
    uint states = 1u << log;
    for (uint i = 0; i < 256u; i++) {
        uint rare = 0, rare_total = 0;
#if TEAM_PTX
#pragma unroll
#endif
        EACH(k) {
            if (count[k] != 0u && norm[k] == 0u && (ulong)count[k] * states <= (ulong)total) {
                norm[k] = 1u;
                rare++;
                rare_total += count[k];
            }
        }
        rare = team_sum(t, rare);
        total -= team_sum(t, rare_total);
        states -= rare;
        if (rare == 0u || total == 0u) break;
    }
    uint sum = 0;
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) {
        if (count[k] != 0u && norm[k] == 0u) {
            norm[k] = max((uint)(((ulong)count[k] * states + (total >> 1)) / total), 1u);
            sum += norm[k];
        }
    }
    uint size = 1u << log;
    sum = size - states + team_sum(t, sum);

    // Correct the result: a few states may be left over, missing, or better used elsewhere.
    ulong loss[ROUNDS], gain[ROUNDS];
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) {
        loss[k] = loss_of(count[k], norm[k]);
        gain[k] = gain_of(count[k], norm[k]);
    }
    for (uint i = 0; i < 8192u; i++) {
        ulong least = loss[0], most = gain[0];
        uint cheapest = t.lane, dearest = t.lane;
#if TEAM_PTX
#pragma unroll
#endif
        EACH(k) {
            if (loss[k] < least) {
                least = loss[k];
                cheapest = 32u * k + t.lane;
            }
            if (gain[k] > most) {
                most = gain[k];
                dearest = 32u * k + t.lane;
            }
        }
        ulong least_of_all, most_of_all;
        cheapest = team_largest(t, ~least, cheapest, &least_of_all);
        dearest = team_largest(t, most, dearest, &most_of_all);
        bool misplaced = most_of_all > ~least_of_all;
        if (sum == size && !misplaced) break;
        uint from = sum >= size ? cheapest : 256u, to = sum <= size ? dearest : 256u;
#if TEAM_PTX
#pragma unroll
#endif
        EACH(k) {
            uint symbol = 32u * k + t.lane;
            if (symbol == from || symbol == to) {
                norm[k] += (symbol == to ? 1u : 0u) - (symbol == from ? 1u : 0u);
                loss[k] = loss_of(count[k], norm[k]);
                gain[k] = gain_of(count[k], norm[k]);
            }
        }
        sum = sum < size ? sum + 1u : sum > size ? sum - 1u : sum;
    }
#if TEAM_PTX
#pragma unroll
#endif
    EACH(k) norms[32u * k + t.lane] = norm[k];
    team_sync(t);
}

// Bits of a message with these counts, rounded up.
inline uint fse_bits(Team t, __local const uint *counts, __local const uint *norms, uint log) {
    uint whole = 0, part = 0;
    EACH(k) {
        uint count = counts[32u * k + t.lane];
        if (count != 0u) {
            ulong bits = (ulong)count * ((log << 16) - log2_fixed(norms[32u * k + t.lane]));
            whole += (uint)(bits >> 16);
            part += (uint)bits & 0xffffu;
        }
    }
    return team_sum(t, whole) + ((team_sum(t, part) + 0xffffu) >> 16);
}

// The ideal place of occurrence `j` of a symbol.
inline uint preferred(uint norm, uint log, uint j) {
    uint distance = (1u << (log + 16u)) / max(norm, 1u);
    return norm == 1u ? (1u << log) - 1u : (distance / 2u + j * distance) >> 16;
}

// The encoding table: each symbol's word in `codes`, bits that leave a state | next << 20, and the states of all
// symbols in turn in `next`, two in a word. `order` gets the symbols that have norms, and `mask` a bit at each one's
// first occurrence among all occurrences in a row.
inline void encoding_table(
    Team t, __local const uint *norms, uint log, __local uint *begins, __local uint *places,
    __local uchar *order, __local uint *mask, __global uint *codes, __global ushort *next
) {
    // Each word of `places` holds two counters.
    uint size = team_uniform(t, 1u << log);
    for (uint i = t.lane; i < 1024u; i += 32u) places[i] = 0u;
    mask[t.lane] = 0u;
    mask[32u + t.lane] = 0u;
    team_sync(t);
    uint sum = 0u, ranks = 0u;
    EACH(k) {
        uint symbol = 32u * k + t.lane, norm = norms[symbol];
        uint end = team_scan(t, norm), begin = sum + end - norm;
        uint present = team_ballot(t, norm != 0u);
        begins[symbol] = begin;
        sum += team_broadcast(t, end, 31u);
        if (norm != 0u) {
            uint bits = log - log2_floor(max(norm - 1u, 1u));
            codes[symbol] = ((bits << 16) - (norm << bits)) | (begin - norm) << 20;
            order[(ranks + popcount(present & team_before(t))) & 255u] = (uchar)symbol;
            atomic_or(&mask[begin >> 5 & 63u], 1u << (begin & 31u));
        } else {
            codes[symbol] = 0u;
        }
        ranks += popcount(present);
    }
    team_sync(t);
    // A counting sort by places. A symbol has each place only once, and symbols come in order. Count,
    uint upto = team_before(t) | 1u << t.lane;
    ranks = 0u;
    for (uint i = 0u; i < size >> 5; i++) {
        uint here = mask[i];
        uint symbol = order[(ranks + popcount(here & upto) - 1u) & 255u];
        uint place = preferred(norms[symbol], log, 32u * i + t.lane - begins[symbol]) & (size - 1u);
        atomic_add(&places[place >> 1], 1u << (16u * (place & 1u)));
        ranks += popcount(here);
    }
    team_sync(t);
    // turn counts into starts, with a run of words for each lane,
    uint run = max(size >> 6, 1u), first = run * t.lane, count = 0;
    for (uint i = first; i < min(first + run, size >> 1); i++) count += (places[i] & 0xffffu) + (places[i] >> 16);
    uint begin = team_scan(t, count) - count;
    for (uint i = first; i < min(first + run, size >> 1); i++) {
        uint middle = begin + (places[i] & 0xffffu), end = middle + (places[i] >> 16);
        places[i] = begin | middle << 16;
        begin = end;
    }
    team_sync(t);
    // and number the occurrences.
    ranks = 0u;
    for (uint i = 0u; i < size >> 5; i++) {
        uint here = mask[i];
        uint symbol = order[(ranks + popcount(here & upto) - 1u) & 255u];
        uint place = preferred(norms[symbol], log, 32u * i + t.lane - begins[symbol]) & (size - 1u), shift = 16u * (place & 1u);
        uint same = team_match_digit(t, place, 11u);
        uint earlier = popcount(same & team_before(t));
        next[32u * i + t.lane] = (ushort)((places[place >> 1] >> shift & 0xffffu) + earlier + size);
        team_sync(t);
        if (earlier == 0u) atomic_add(&places[place >> 1], popcount(same) << shift);
        team_sync(t);
        ranks += popcount(here);
    }
}

// Chooses FSE where that is smaller, with norms as codes.
__kernel void choose_norms(
    __global const uint *restrict jobs,
    __global const uint *restrict all_counts,
    __global uint *restrict models,
    TASK_ARGS
) {
    TEAM_START(team);
    SHARED uint memory[TEAMS * (3u * 256u + DESCRIPTION_WORDS)];
    __local uint *counts = memory + team.index * (3u * 256u + DESCRIPTION_WORDS);
    __local uint *norms = counts + 256, *lengths = counts + 512, *description = counts + 768;
    Task task;
    if (!TASK(task)) return;
    __global uint *model = models + task.model;
    uint first = 0, total;
    uint present = load_counts(team, all_counts + task.counts, counts, &first, &total);
    if (present < 2u) return;
    uint log = clamp(log2_floor(total), 5u, FSE_LOG(task));
    if (present >= 1u << log) return;
    for (uint i = team.lane; i < DESCRIPTION_WORDS; i += 32u) description[i] = 0u;
    normalize_counts(team, counts, total, log, norms);
    uint size = fse_bits(team, counts, norms, log);
    // The description states a norm like a code of this length.
    EACH(k) {
        uint norm = norms[32u * k + team.lane];
        lengths[32u * k + team.lane] = norm == 0u ? 0u : log - log2_floor(norm);
    }
    if (team.lane == 0u) put_bits(description, 0u, log, 4u);
    team_sync(team);
    uint described = describe(team, lengths, true, norms, description, 4u);
    size += described + 32u * task.chunks * log;
    bool is_smaller = size < team_uniform(team, model[MODEL_SIZE]);
    team_sync(team);
    if (!is_smaller) return;
    if (team.lane == 0u) {
        model[MODEL_MODE] = MODE_FSE;
        model[MODEL_LOG] = log;
        model[MODEL_BITS] = described;
        model[MODEL_SIZE] = size;
    }
    for (uint i = team.lane; i < DESCRIPTION_WORDS; i += 32u) model[MODEL_DESCRIPTION + i] = description[i];
    EACH(k) model[MODEL_CODES + 32u * k + team.lane] = norms[32u * k + team.lane];
}

// Makes the tables of FSE from norms.
__kernel void tables_from_norms(__global const uint *restrict jobs, __global uint *restrict models, TASK_ARGS) {
    TEAM_START(team);
    SHARED uint memory[TEAMS * (2u * 256u + 1024u)];
    SHARED uint masks[TEAMS * 64u];
    SHARED uchar orders[TEAMS * 256u];
    __local uint *norms = memory + team.index * (2u * 256u + 1024u), *begins = norms + 256, *places = norms + 512;
    Task task;
    if (!TASK(task)) return;
    __global uint *model = models + task.model;
    if (team_uniform(team, model[MODEL_MODE]) != MODE_FSE) return;
    EACH(k) norms[32u * k + team.lane] = model[MODEL_CODES + 32u * k + team.lane];
    team_sync(team);
    encoding_table(team, norms, model[MODEL_LOG], begins, places, orders + 256u * team.index, masks + 64u * team.index,
        model + MODEL_CODES, (__global ushort *)(model + MODEL_NEXT));
}
