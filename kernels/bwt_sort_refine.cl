// From suffixes sorted by their first characters to all suffixes sorted, by prefix doubling (Manber and Myers, "Suffix
// arrays: a new method for on-line string searches", 1990; the rank of a group is where it begins, as in Larsson and
// Sadakane, "Faster suffix sorting", 2007).
//
// A suffix's rank is the number of suffixes in the groups before its own, where a group is what the sort so far cannot
// tell apart: suffixes with the same first `depth` characters. A suffix alone in its group is done. The others are in a
// list of small groups, or in one of large groups, of more than GROUP: element e of the small list is at index e of the
// block's part of the arrays, element e of the large list at index slot - 1 - e. Together they are at most as long as
// the block. A round takes the rank of the suffix `depth` on as an element's key (1 more, and 0 for the empty suffix),
// sorts each group by it, and so doubles the depth. All elements of a group are at least `depth` long.
//
// Small groups are sorted in workgroup memory, where each element counts the smaller ones of its group. Large ones go
// through the radix sort of `bwt_sort` by (high, low), with `high` the group's rank, whose low bits it can leave out.
// Each tile of either list reserves room in the lists of the next round with an atomic addition: the order of
// groups in a list is left to chance, and matters to nothing.
//
// @pz_cost {
//   threads_per_element: 1
//   passes: 4
//   buffers: sort_high_a=N*4, sort_low_a=N*4, sort_position_a=N*4,
//            sort_high_b=N*4, sort_low_b=N*4, sort_position_b=N*4,
//            sort_rank=N*4, sort_state=1088
//   local_mem: 19456
//   note: 28 bytes a byte: two copies of the elements, and ranks
// }

// @pz_import team

#define GROUP (1u << GROUP_LOG)
#define TILE 1024u
#define WINDOW (TILE + GROUP)
#define ROWS (WINDOW / 32u)
#define STATE_WORDS 272u
#define STATE_LEN 0u
#define STATE_SMALL 1u
#define STATE_LARGE 2u
#define NONE 0xffffffffu
#define FIRST_DEPTH 8u

// The keys of the small list's elements.
__kernel void gather_small(
    __global const uint *position, __global const uint *rank, __global uint *low, __global const uint *state,
    uint slot, uint parts, uint parity, uint depth)
{
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint len = state[block * STATE_WORDS + STATE_LEN];
    uint count = state[block * STATE_WORDS + STATE_SMALL + 2 * parity];
    size_t base = (size_t)block * slot;
    for (uint e = part * THREADS + (uint)get_local_id(0); e < count; e += parts * THREADS) {
        uint p = position[base + e] + depth;
        low[base + e] = p < len ? rank[base + p] + 1 : 0;
    }
}

// The keys of the large list's elements, which move to the other copy. The next round's lists become empty.
__kernel void gather_large(
    __global const uint *high, __global const uint *position, __global uint *high_out, __global uint *low_out,
    __global uint *position_out, __global const uint *rank, __global uint *state,
    uint slot, uint parts, uint parity, uint depth)
{
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint index = (uint)get_local_id(0);
    uint len = state[block * STATE_WORDS + STATE_LEN];
    uint count = state[block * STATE_WORDS + STATE_LARGE + 2 * parity];
    if (part == 0 && index < 2) state[block * STATE_WORDS + STATE_SMALL + 2 * (1 - parity) + index] = 0;
    size_t base = (size_t)block * slot;
    for (uint e = part * THREADS + index; e < count; e += parts * THREADS) {
        size_t at = base + slot - 1 - e;
        uint p = position[at];
        high_out[at] = high[at];
        low_out[at] = p + depth < len ? rank[base + p + depth] + 1 : 0;
        position_out[at] = p;
    }
}

// Sorts the small groups, sets the ranks, and keeps the groups that remain.
__kernel void order_small(
    __global const uint *high, __global const uint *low, __global const uint *position,
    __global uint *high_out, __global uint *position_out, __global uint *rank, __global uint *state,
    uint slot, uint parts, uint parity)
{
    TEAM_START(team);
    __local uint heads[WINDOW];
    __local uint keys[WINDOW];
    __local uint new_heads[WINDOW];  // in order; NONE where there is nothing to keep
    __local uint new_positions[WINDOW];
    __local uint kept[ROWS];         // bits
    __local uint kept_before[ROWS];
    __local uint room;
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint index = (uint)get_local_id(0);
    uint count = state[block * STATE_WORDS + STATE_SMALL + 2 * parity];
    __global uint *reserve = state + block * STATE_WORDS + STATE_SMALL + 2 * (1 - parity);
    uint tiles = (count + TILE - 1) / TILE;
    size_t base = (size_t)block * slot;
    high += base;
    low += base;
    position += base;
    high_out += base;
    position_out += base;
    rank += base;
    for (uint tile = part; tile < tiles; tile += parts) {
        // Groups that begin in the tile, of which the last may end behind it.
        uint begin = tile * TILE;
        uint limit = min(count - begin, WINDOW);
        for (uint i = index; i < WINDOW; i += THREADS) {
            if (i < limit) {
                heads[i] = high[begin + i];
                keys[i] = low[begin + i];
            }
            new_heads[i] = NONE;
        }
        bool continued = begin > 0 && high[begin - 1] == high[begin];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = index; i < limit; i += THREADS) {
            uint head = heads[i];
            uint key = keys[i];
            uint less = 0;
            uint before = 0;
            uint after = 0;
            uint start = i;
            while (start > 0 && heads[start - 1] == head) {
                start--;
                less += keys[start] < key ? 1u : 0u;
                before += keys[start] == key ? 1u : 0u;
            }
            if (start >= TILE || (start == 0 && continued)) continue;
            for (uint j = i + 1; j < limit && heads[j] == head; j++) {
                less += keys[j] < key ? 1u : 0u;
                after += keys[j] == key ? 1u : 0u;
            }
            uint p = position[begin + i];
            if (less > 0) rank[p] = head + less;
            if (before + after > 0) {
                new_heads[start + less + before] = head + less;
                new_positions[start + less + before] = p;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint r = 0; r < ROWS; r += TEAMS) {
            uint row = r + team.index;
            uint i = row * 32u + team.lane;
            uint bits = team_ballot(team, row < ROWS && new_heads[min(i, WINDOW - 1)] != NONE);
            if (team.lane == 0 && row < ROWS) kept[row] = bits;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint row = index; row < ROWS; row += THREADS) {
            uint sum = 0;
            for (uint r = 0; r < row; r++) sum += popcount(kept[r]);
            kept_before[row] = sum;
            if (row == ROWS - 1) room = atomic_add(&reserve[0], sum + popcount(kept[row]));
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = index; i < limit; i += THREADS) {
            uint bits = kept[i >> 5];
            if ((bits >> (i & 31u) & 1u) == 0) continue;
            uint to = room + kept_before[i >> 5] + popcount(bits & ((1u << (i & 31u)) - 1u));
            high_out[to] = new_heads[i];
            position_out[to] = new_positions[i];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

// Whether element f of the sorted large list is in the group of element e, which is behind it and has these keys. Groups
// are those of the round before if `old`.
inline bool together(
    __global const uint *high, __global const uint *low, __global const uint *position,
    size_t last, uint f, uint h, uint l, uint longest, bool old)
{
#if INITIAL
    return high[last - f] == h && low[last - f] == l && position[last - f] <= longest;
#else
    return high[last - f] == h && (old || low[last - f] == l);
#endif
}

// The first element of the group of element e. All lanes look together: first at distances of powers of two, then at
// 32 places of what is left.
inline uint first_of(
    Team team, __global const uint *high, __global const uint *low, __global const uint *position,
    size_t last, uint e, uint longest, bool old)
{
    uint h = high[last - e];
    uint l = low[last - e];
#if INITIAL
    // A suffix shorter than the depth is alone.
    if (team_any(team, position[last - e] > longest)) return e;
#endif
    uint reach = 1u << team.lane;
    bool is_in = reach <= e && together(high, low, position, last, e - min(reach, e), h, l, longest, old);
    uint out = ~team_ballot(team, is_in);
    uint steps = 31u - clz(out & (0u - out));
    if (steps == 0) return e;
    uint in = e - (1u << (steps - 1));                          // the first known to be in the group
    uint least = e >= 1u << steps ? e - (1u << steps) + 1 : 0;  // the first that may be
    for (uint i = 0; i < 8 && least < in; i++) {
        uint step = (in - least + 31u) / 32u;
        uint at = least + team.lane * step;
        is_in = at >= in || together(high, low, position, last, at, h, l, longest, old);
        uint ins = team_ballot(team, is_in);
        if (ins == 0) {
            least += 31u * step + 1;
        } else {
            uint lane = 31u - clz(ins & (0u - ins));
            in = min(in, least + lane * step);
            if (lane > 0) least += (lane - 1) * step + 1;
        }
    }
    return in;
}

// Finds the groups in the sorted large list, sets the ranks, and keeps the groups that remain as large or small ones.
// INITIAL: the list is that of all suffixes, sorted by their first FIRST_DEPTH characters.
__kernel void classify(
    __global const uint *high, __global const uint *low, __global const uint *position,
    __global uint *high_out, __global uint *position_out, __global uint *rank, __global uint *state,
    uint slot, uint parts, uint parity)
{
    TEAM_START(team);
    __local uint starts[ROWS];       // bits: first elements of groups
    __local uint old_starts[ROWS];   // first elements of the groups of the round before
    __local uint start_before[ROWS]; // the last first element in the rows before, as a place in the list
    __local uint old_before[ROWS];
    __local uint next_start[ROWS];   // the first first element in the rows behind
    __local uint heads[WINDOW];
    __local uint small[ROWS];        // bits: elements to keep in the small list
    __local uint large[ROWS];
    __local uint sums_before[2 * ROWS];
    __local uint rooms[2];
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint index = (uint)get_local_id(0);
    uint len = state[block * STATE_WORDS + STATE_LEN];
    uint count = state[block * STATE_WORDS + STATE_LARGE + 2 * parity];
    __global uint *reserve = state + block * STATE_WORDS + STATE_SMALL + 2 * (1 - parity);
    uint tiles = (count + TILE - 1) / TILE;
    // Positions behind `longest` are those of suffixes shorter than the depth, where there are such.
    uint longest = len >= FIRST_DEPTH ? len - FIRST_DEPTH : 0;
    bool all_short = len < FIRST_DEPTH;
    size_t base = (size_t)block * slot;
    size_t last = slot - 1;
    high += base;
    low += base;
    position += base;
    high_out += base;
    position_out += base;
    rank += base;
    for (uint tile = part; tile < tiles; tile += parts) {
        uint begin = tile * TILE;
        uint limit = min(count - begin, WINDOW);
        for (uint r = 0; r < ROWS; r += TEAMS) {
            uint row = r + team.index;
            uint i = row * 32u + team.lane;
            bool is_start = false;
            bool is_old = false;
            if (row < ROWS && i < limit) {
                uint e = begin + i;
                uint f = e > 0 ? e - 1 : 0;
                is_old = e == 0 || high[last - e] != high[last - f];
                is_start = is_old || low[last - e] != low[last - f];
#if INITIAL
                is_start = is_start || all_short || position[last - e] > longest || position[last - f] > longest;
#endif
            }
            uint bits = team_ballot(team, is_start);
            uint old_bits = team_ballot(team, is_old);
            if (team.lane == 0 && row < ROWS) {
                starts[row] = bits;
                old_starts[row] = old_bits;
            }
        }
        uint carried = all_short ? begin : first_of(team, high, low, position, last, begin, longest, false);
#if INITIAL
        uint old_carried = 0;
#else
        uint old_carried = first_of(team, high, low, position, last, begin, longest, true);
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint row = index; row < ROWS; row += THREADS) {
            uint start = carried;
            uint old_start = old_carried;
            for (uint r = 0; r < row; r++) {
                if (starts[r] != 0) start = begin + r * 32u + 31u - clz(starts[r]);
                if (old_starts[r] != 0) old_start = begin + r * 32u + 31u - clz(old_starts[r]);
            }
            uint next = limit < WINDOW ? begin + limit : NONE;
            for (uint r = ROWS - 1; r > row; r--) {
                uint bits = starts[r];
                if (bits != 0) next = begin + r * 32u + 31u - clz(bits & (0u - bits));
            }
            start_before[row] = start;
            old_before[row] = old_start;
            next_start[row] = next;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint r = 0; r < ROWS; r += TEAMS) {
            uint row = r + team.index;
            uint i = row * 32u + team.lane;
            bool is_small = false;
            bool is_large = false;
            if (row < ROWS && i < limit) {
                uint to_here = 0xffffffffu >> (31u - team.lane);
                uint bits = starts[row] & to_here;
                uint start = bits != 0 ? begin + row * 32u + 31u - clz(bits) : start_before[row];
                uint behind = starts[row] & ~to_here;
                uint next = behind != 0 ? begin + row * 32u + 31u - clz(behind & (0u - behind)) : next_start[row];
#if INITIAL
                uint head = start;
                bool is_new = true;
#else
                uint old_bits = old_starts[row] & to_here;
                uint old_start = old_bits != 0 ? begin + row * 32u + 31u - clz(old_bits) : old_before[row];
                uint head = high[last - (begin + i)] + (start - old_start);
                bool is_new = start != old_start;
#endif
                uint size = next - start;
                if (i < TILE && is_new) rank[position[last - (begin + i)]] = head;
                heads[i] = head;
                is_small = size > 1 && size <= GROUP && start >= begin && start < begin + TILE;
                is_large = size > GROUP && i < TILE;
            }
            uint small_bits = team_ballot(team, is_small);
            uint large_bits = team_ballot(team, is_large);
            if (team.lane == 0 && row < ROWS) {
                small[row] = small_bits;
                large[row] = large_bits;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint k = index; k < 2 * ROWS; k += THREADS) {
            __local const uint *bits = k < ROWS ? small : large;
            uint row = k < ROWS ? k : k - ROWS;
            uint sum = 0;
            for (uint r = 0; r < row; r++) sum += popcount(bits[r]);
            sums_before[k] = sum;
            if (row == ROWS - 1) {
                uint list = k < ROWS ? 0 : 1;
                rooms[list] = atomic_add(&reserve[list], sum + popcount(bits[row]));
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = index; i < limit; i += THREADS) {
            uint row = i >> 5;
            uint bit = 1u << (i & 31u);
            if ((small[row] & bit) != 0) {
                uint to = rooms[0] + sums_before[row] + popcount(small[row] & (bit - 1u));
                high_out[to] = heads[i];
                position_out[to] = position[last - (begin + i)];
            } else if ((large[row] & bit) != 0) {
                uint to = rooms[1] + sums_before[ROWS + row] + popcount(large[row] & (bit - 1u));
                high_out[last - to] = heads[i];
                position_out[last - to] = position[last - (begin + i)];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
