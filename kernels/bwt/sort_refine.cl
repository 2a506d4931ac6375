// Sorts all suffixes, given their order by first characters, by prefix doubling (Manber and Myers, "Suffix arrays: a
// new method for on-line string searches", 1990; a group's rank is its beginning, as in Larsson and Sadakane, "Faster
// suffix sorting", 2007).
//
// A group is a set of suffixes that the sort cannot tell apart yet: they have the same first `depth` characters. A
// suffix's rank is the number of suffixes in the groups before its own. A suffix alone in its group is done. Every
// other suffix is in the list of small groups or, if its group has more than GROUP elements, in the list of large
// groups. Element e of the small list is at index e of the block's part of the arrays, element e of the large list at
// index slot - 1 - e. Together the lists are at most as long as the block.
//
// A round gives each element the key 1 + the rank of the suffix `depth` on (0 for the empty suffix), sorts each group
// by key, and so doubles the depth. All elements of a group are at least `depth` long.
//
// A small group is sorted in workgroup memory, where each element counts the smaller ones of its group. The radix sort
// of bwt/sort sorts large groups by (high, low): `high` is the group's rank, whose low bits the sort can leave out.
// Each tile of either list reserves room in the lists of the next round with an atomic addition. The order of groups in
// a list is unspecified and irrelevant.
//
// @pz_cost {
//   threads: max(min(N/896*256, 262144), N/896*32)
//   passes: 1+2*log2(N/8)
//   buffers: sort_high_a=N*4, sort_low_a=N*4, sort_position_a=N*4,
//            sort_high_b=N*4, sort_low_b=N*4, sort_position_b=N*4,
//            sort_rank=N*4, sort_state=1088
//   local_mem: 4740
//   note: two copies of the elements, and the ranks, take 28 bytes for each byte
// }

// @pz_import team
// @pz_import bwt_sort_state

#define GROUP (1u << GROUP_LOG)
#define WINDOW 1024u
#define TILE (WINDOW - GROUP)
// The window's rows of 32 elements, as many rows as a team has lanes, and the rows of each team.
#define ROWS 32u
#define ROWS_OF_TEAM (ROWS / TEAMS)
#if TEAM_LOCAL
#define UNROLLED
#else
#define UNROLLED _Pragma("unroll")
#endif
// Code for one team of a workgroup.
#if TEAM_LOCAL
#define ONE_TEAM(number)
#else
#define ONE_TEAM(number) if (team.index == number % TEAMS)
#endif
#define NONE 0xffffffffu
#define FIRST_DEPTH 8u

// The last element whose bit is set, up to this lane of this row; `none` if there is none. `rows` tells which rows have
// bits.
inline uint last_up_to(__local const uint *bits, uint rows, uint row, uint lane, uint none) {
    uint own = bits[row] & 0xffffffffu >> (31u - lane);
    if (own != 0) return row * 32u + 31u - clz(own);
    rows &= (1u << row) - 1u;
    uint before = 31u - clz(rows | 1u);
    return rows != 0 ? before * 32u + 31u - clz(bits[before]) : none;
}

// The first element after this lane whose bit is set; `none` if there is none.
inline uint first_behind(__local const uint *bits, uint rows, uint row, uint lane, uint none) {
    uint own = bits[row] & 0xfffffffeu << lane;
    if (own != 0) return row * 32u + 31u - clz(own & (0u - own));
    rows &= 0xfffffffeu << row;
    uint behind = 31u - clz(rows & (0u - rows) | 1u);
    return rows != 0 ? behind * 32u + 31u - clz(bits[behind] & (0u - bits[behind])) : none;
}

// Sorts the small groups, sets the ranks, and keeps the groups that remain.
__kernel void order_small(
    __global const uint *high, __global const uint *low, __global const uint *position,
    __global uint *high_out, __global uint *position_out, __global uint *rank, __global uint *state,
    uint slot, uint parts, uint parity)
{
    TEAM_START(team);
    SHARED uint keys[WINDOW];
    SHARED uint starts[ROWS];       // bits: first elements of groups
    SHARED uint kept[ROWS];         // bits: places in the new order of elements to keep
    SHARED uint kept_before[ROWS];
    SHARED uint room;
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
        // Take the groups that begin in the tile. The last one may end after it.
        uint begin = tile * TILE;
        uint limit = min(count - begin, WINDOW);
        uint heads[ROWS_OF_TEAM];
        uint positions[ROWS_OF_TEAM];
        uint own_keys[ROWS_OF_TEAM];
        uint heads_before[ROWS_OF_TEAM];
        UNROLLED
        for (uint k = 0; k < ROWS_OF_TEAM; k++) {
            uint i = (k * TEAMS + team.index) * 32u + team.lane;
            uint e = begin + min(i, limit - 1);
            heads[k] = high[e];
            heads_before[k] = high[e > 0 ? e - 1 : 0];
            own_keys[k] = low[e];
            positions[k] = position[e];
        }
        UNROLLED
        for (uint k = 0; k < ROWS_OF_TEAM; k++) {
            uint row = k * TEAMS + team.index;
            uint i = row * 32u + team.lane;
            keys[i] = own_keys[k];
            uint bits = team_ballot(team, i < limit && (begin + i == 0 || heads[k] != heads_before[k]));
            starts[row] = bits;
            kept[row] = 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        uint rows = team_ballot(team, starts[team.lane] != 0);
        UNROLLED
        for (uint k = 0; k < ROWS_OF_TEAM; k++) {
            uint row = k * TEAMS + team.index;
            uint i = row * 32u + team.lane;
            uint start = i < limit ? last_up_to(starts, rows, row, team.lane, NONE) : NONE;
            uint end = first_behind(starts, rows, row, team.lane, limit);
            uint key = own_keys[k];
            uint less = 0;
            uint before = 0;
            uint same = 0;
            // This leaves out elements whose `start` is NONE.
            if (start < TILE) {
                for (uint j = start; j < end; j++) {
                    uint v = keys[j];
                    less += v < key ? 1u : 0u;
                    same += v == key ? 1u : 0u;
                    before += v == key && j < i ? 1u : 0u;
                }
                if (less > 0) rank[positions[k]] = heads[k] + less;
            }
            heads[k] += less;
            own_keys[k] = NONE;  // from here on, the element's place if it is kept
            if (same > 1) {
                uint place = start + less + before;
                own_keys[k] = place;
                atomic_or(&kept[place >> 5], 1u << (place & 31u));
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        // Every team computes this, and the first one reserves the room.
        uint own = popcount(kept[team.lane]);
        uint upto = team_scan(team, own);
        kept_before[team.lane] = upto - own;
        if (index == 31u) room = atomic_add(&reserve[0], upto);
        barrier(CLK_LOCAL_MEM_FENCE);
        UNROLLED
        for (uint k = 0; k < ROWS_OF_TEAM; k++) {
            uint place = own_keys[k];
            if (place != NONE) {
                uint row = place >> 5;
                uint to = room + kept_before[row] + popcount(kept[row] & ((1u << (place & 31u)) - 1u));
                high_out[to] = heads[k];
                position_out[to] = positions[k];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

// Whether element f of the sorted large list is in the group of a later element e with these keys. If `old`, groups are
// those of the previous round.
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

// The first element of the group of element e. All lanes search together: first at distances of powers of two, then
// at 32 places of the remaining range.
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

// Finds the groups in the sorted large list, sets the ranks, and keeps the remaining groups in the large or small
// list. INITIAL: the list holds all suffixes, sorted by their first FIRST_DEPTH characters.
__kernel void classify(
    __global const uint *high, __global const uint *low, __global const uint *position,
    __global uint *high_out, __global uint *position_out, __global uint *rank, __global uint *state,
    uint slot, uint parts, uint parity)
{
    TEAM_START(team);
    SHARED uint starts[ROWS];       // bits: first elements of groups
    SHARED uint old_starts[ROWS];   // first elements of the previous round's groups
    SHARED uint carried[2];         // where the tile's first group, and that of the previous round, begin in the list
    SHARED uint small[ROWS];        // bits: elements to keep in the small list
    SHARED uint large[ROWS];
    SHARED uint small_before[ROWS];
    SHARED uint large_before[ROWS];
    SHARED uint rooms[2];
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint index = (uint)get_local_id(0);
    uint len = state[block * STATE_WORDS + STATE_LEN];
    uint count = state[block * STATE_WORDS + STATE_LARGE + 2 * parity];
    __global uint *reserve = state + block * STATE_WORDS + STATE_SMALL + 2 * (1 - parity);
    uint tiles = (count + TILE - 1) / TILE;
    // Positions after `longest` belong to suffixes shorter than the depth, if there are any.
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
        uint heads[ROWS_OF_TEAM];
        uint heads_before[ROWS_OF_TEAM];
        uint keys[ROWS_OF_TEAM];
        uint keys_before[ROWS_OF_TEAM];
        uint positions[ROWS_OF_TEAM];
#if INITIAL
        uint positions_before[ROWS_OF_TEAM];
#endif
        UNROLLED
        for (uint k = 0; k < ROWS_OF_TEAM; k++) {
            uint i = (k * TEAMS + team.index) * 32u + team.lane;
            uint e = begin + min(i, limit - 1);
            uint f = e > 0 ? e - 1 : 0;
            heads[k] = high[slot - 1 - e];
            heads_before[k] = high[slot - 1 - f];
            keys[k] = low[slot - 1 - e];
            keys_before[k] = low[slot - 1 - f];
            positions[k] = position[slot - 1 - e];
#if INITIAL
            positions_before[k] = position[slot - 1 - f];
#endif
        }
        UNROLLED
        for (uint k = 0; k < ROWS_OF_TEAM; k++) {
            uint row = k * TEAMS + team.index;
            uint i = row * 32u + team.lane;
            bool is_old = begin + i == 0 || heads[k] != heads_before[k];
            bool is_start = is_old || keys[k] != keys_before[k];
#if INITIAL
            is_start = is_start || all_short || positions[k] > longest || positions_before[k] > longest;
#endif
            uint bits = team_ballot(team, is_start && i < limit);
            uint old_bits = team_ballot(team, is_old && i < limit);
            starts[row] = bits;
            old_starts[row] = old_bits;
        }
        // One team searches for the first group of this round, another for that of the previous round.
        ONE_TEAM(0) {
            uint first = first_of(team, high, low, position, last, begin, longest, false);
            carried[0] = all_short ? begin : first;
        }
#if !INITIAL
        ONE_TEAM(1) {
            uint first = first_of(team, high, low, position, last, begin, longest, true);
            carried[1] = first;
        }
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
        uint rows = team_ballot(team, starts[team.lane] != 0);
#if !INITIAL
        uint old_rows = team_ballot(team, old_starts[team.lane] != 0);
#endif
        UNROLLED
        for (uint k = 0; k < ROWS_OF_TEAM; k++) {
            uint row = k * TEAMS + team.index;
            uint i = row * 32u + team.lane;
            uint place = last_up_to(starts, rows, row, team.lane, NONE);
            uint start = place != NONE ? begin + place : carried[0];
            // The end of a group that continues after the window does not matter: the group is large.
            uint next = begin + first_behind(starts, rows, row, team.lane, limit < WINDOW ? limit : 2 * WINDOW);
#if INITIAL
            bool is_new = true;
            heads[k] = start;
#else
            uint old_place = last_up_to(old_starts, old_rows, row, team.lane, NONE);
            uint old_start = old_place != NONE ? begin + old_place : carried[1];
            bool is_new = start != old_start;
            heads[k] += start - old_start;
#endif
            bool valid = i < limit;
            uint size = next - start;
            if (valid && i < TILE && is_new) rank[positions[k]] = heads[k];
            bool is_small = valid && size > 1 && size <= GROUP && start >= begin && start < begin + TILE;
            bool is_large = valid && size > GROUP && i < TILE;
            uint small_bits = team_ballot(team, is_small);
            uint large_bits = team_ballot(team, is_large);
            small[row] = small_bits;
            large[row] = large_bits;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        // Every team computes this, and the first one reserves the room.
        uint own_small = popcount(small[team.lane]);
        uint own_large = popcount(large[team.lane]);
        uint small_upto = team_scan(team, own_small);
        uint large_upto = team_scan(team, own_large);
        small_before[team.lane] = small_upto - own_small;
        large_before[team.lane] = large_upto - own_large;
        if (index == 31u) {
            rooms[0] = atomic_add(&reserve[0], small_upto);
            rooms[1] = atomic_add(&reserve[1], large_upto);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        UNROLLED
        for (uint k = 0; k < ROWS_OF_TEAM; k++) {
            uint row = k * TEAMS + team.index;
            uint bit = 1u << team.lane;
            if ((small[row] & bit) != 0) {
                uint to = rooms[0] + small_before[row] + popcount(small[row] & (bit - 1u));
                high_out[to] = heads[k];
                position_out[to] = positions[k];
            } else if ((large[row] & bit) != 0) {
                uint to = slot - 1 - (rooms[1] + large_before[row] + popcount(large[row] & (bit - 1u)));
                high_out[to] = heads[k];
                position_out[to] = positions[k];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
