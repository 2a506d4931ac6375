// Sorts all suffixes of each block by their first eight bytes, and lists of suffixes by pairs of numbers: a stable radix
// sort, lowest digit first, of (high, low) with the suffix's position. A pass counts the digits of each tile
// (`histogram`), sums the counts up (`scan`), and moves the elements (`scatter`): no workgroup waits for another.
//
// Each block has its own list. Element e of a list is at index slot - 1 - e of the block's part of the arrays, so that
// the lists of `bwt_sort_refine` can grow from the other end. Before the first pass the suffixes are in the order of
// their lengths, so a suffix that is cut off by the block's end, and padded with zeros, comes before longer ones with
// the same key.
//
// The state of a block: its length, the lengths of its lists in the order small, large for even and then for odd
// rounds, and from STATE_DIGITS on how many elements have each digit.
//
// @pz_cost {
//   threads_per_element: 1
//   passes: 25
//   buffers: jobs=32, contents=N,
//            sort_high_a=N*4, sort_low_a=N*4, sort_position_a=N*4,
//            sort_high_b=N*4, sort_low_b=N*4, sort_position_b=N*4,
//            sort_counts=N/4+1024, sort_state=1088
//   local_mem: 27648
//   note: 24 bytes a byte for two copies of the elements; counts of 256 digits for every tile of 4096 elements
// }

// @pz_import team

#define TILE 4096u
#define ITEMS 16u
#define SUBTILE (THREADS * ITEMS)
#define STATE_WORDS 272u
#define STATE_LARGE 2u
#define STATE_DIGITS 16u
#define NO_DIGIT 256u

// Four bytes from position p on as a number, the first the highest; those past the block's end are 0.
inline uint bytes_at(__global const uint *words, uint p, uint len, uint slot) {
    if (p >= len) return 0;
    uint at = p >> 2;
    uint shift = (p & 3u) * 8u;
    uint v = words[at] >> shift;
    if (shift > 0 && at + 1 < slot / 4) v |= words[at + 1] << (32u - shift);
    uint left = len - p;
    if (left < 4) v &= (1u << (left * 8u)) - 1u;
    return v << 24 | (v & 0xff00u) << 8 | (v >> 8 & 0xff00u) | v >> 24;
}

__kernel void keys(
    __global const uint *jobs, __global const uint *contents, __global uint *high, __global uint *low,
    __global uint *position, __global uint *state, uint slot, uint parts)
{
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint index = (uint)get_local_id(0);
    uint len = jobs[block * 8u];
    if (part == 0) {
        for (uint i = index; i < STATE_DIGITS; i += THREADS) {
            state[block * STATE_WORDS + i] = i == 0 || i == STATE_LARGE ? len : 0;
        }
    }
    size_t base = (size_t)block * slot;
    __global const uint *words = contents + base / 4;
    for (uint p = part * THREADS + index; p < len; p += parts * THREADS) {
        size_t at = base + slot - len + p;
        high[at] = bytes_at(words, p, len, slot);
        low[at] = bytes_at(words, p + 4, len, slot);
        position[at] = p;
    }
}

// Counts the digits at `shift` of the keys of each tile. `which` is where the state has the list's length.
__kernel void histogram(
    __global const uint *key, __global uint *counts, __global const uint *state,
    uint slot, uint parts, uint which, uint shift)
{
    TEAM_START(team);
    __local uint bins[256];
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint index = (uint)get_local_id(0);
    uint count = state[block * STATE_WORDS + which];
    uint tiles = (count + TILE - 1) / TILE;
    key += (size_t)block * slot;
    counts += (size_t)block * ((slot + 3) / 4 + 1024) / 4;
    for (uint tile = part; tile < tiles; tile += parts) {
        for (uint d = index; d < 256; d += THREADS) bins[d] = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = 0; i < TILE; i += ITEMS * THREADS) {
            // All loads are on their way before the first is waited for.
            uint digits[ITEMS];
            #pragma unroll
            for (uint k = 0; k < ITEMS; k++) {
                uint e = tile * TILE + i + k * THREADS + index;
                digits[k] = e < count ? key[slot - 1 - e] >> shift & 255u : NO_DIGIT;
            }
            #pragma unroll
            for (uint k = 0; k < ITEMS; k++) {
                uint same = team_match(team, digits[k], 9);
                if ((same & team_before(team)) == 0 && digits[k] != NO_DIGIT) {
                    atomic_add(&bins[digits[k]], popcount(same));
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint d = index; d < 256; d += THREADS) counts[d * tiles + tile] = bins[d];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

// Turns each digit's counts into sums of those of the tiles before, and gives the state their total. A team takes a digit
// at a time.
__kernel void scan(__global uint *counts, __global uint *state, uint slot, uint parts, uint which) {
    TEAM_START(team);
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint tiles = (state[block * STATE_WORDS + which] + TILE - 1) / TILE;
    counts += (size_t)block * ((slot + 3) / 4 + 1024) / 4;
    if (tiles == 0) return;
    for (uint first = part * TEAMS; first < 256; first += parts * TEAMS) {
        uint digit = first + team.index;
        __global uint *of_digit = counts + digit * tiles;
        uint sum = 0;
        for (uint t = 0; t < tiles; t += 32) {
            uint tile = t + team.lane;
            uint v = tile < tiles ? of_digit[tile] : 0;
            uint to = team_scan(team, v);
            if (tile < tiles) of_digit[tile] = sum + to - v;
            sum += team_broadcast(team, to, 31);
        }
        if (team.lane == 0) state[block * STATE_WORDS + STATE_DIGITS + digit] = sum;
    }
}

// Sums of the 256 numbers of `from` before each; every team does it, the first writes them.
inline void sums_before(Team team, __local const uint *from, __local uint *to) {
    uint sum = 0;
    for (uint i = 0; i < 256; i += 32) {
        uint v = from[i + team.lane];
        uint s = team_scan(team, v);
        if (team.index == 0) to[i + team.lane] = sum + s - v;
        sum += team_broadcast(team, s, 31);
    }
}

// Moves the elements from the one list to where they belong in the other. Elements with one digit keep their order.
__kernel void scatter(
    __global const uint *high, __global const uint *low, __global const uint *position,
    __global uint *high_out, __global uint *low_out, __global uint *position_out,
    __global const uint *counts, __global const uint *state,
    uint slot, uint parts, uint which, uint shift, uint use_high)
{
    TEAM_START(team);
    __local uint ranks[TEAMS * 256u];  // elements of a digit in the teams before, while a team counts: its own so far
    __local uint totals[256];          // elements of each digit in this subtile
    __local uint firsts[256];          // elements of the digits before
    __local uint bases[256];           // where the first of a digit goes to
    __local uint staged[SUBTILE];
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint index = (uint)get_local_id(0);
    uint count = state[block * STATE_WORDS + which];
    uint tiles = (count + TILE - 1) / TILE;
    size_t base = (size_t)block * slot;
    // Element e is at last - e of these.
    size_t last = base + slot - 1;
    counts += (size_t)block * ((slot + 3) / 4 + 1024) / 4;
    __global const uint *key = use_high ? high : low;
    __local uint *own = ranks + team.index * 256u;
    for (uint tile = part; tile < tiles; tile += parts) {
        for (uint d = index; d < 256; d += THREADS) totals[d] = state[block * STATE_WORDS + STATE_DIGITS + d];
        barrier(CLK_LOCAL_MEM_FENCE);
        sums_before(team, totals, bases);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint d = index; d < 256; d += THREADS) bases[d] += counts[d * tiles + tile];

        for (uint subtile = 0; subtile < TILE; subtile += SUBTILE) {
            uint begin = tile * TILE + subtile;
            uint valid = count > begin ? min(count - begin, SUBTILE) : 0;
            for (uint d = index; d < TEAMS * 256u; d += THREADS) ranks[d] = 0;
            barrier(CLK_LOCAL_MEM_FENCE);

            // All loads are on their way before the first is waited for.
            uint keys[ITEMS];
            #pragma unroll
            for (uint i = 0; i < ITEMS; i++) {
                uint e = (team.index * ITEMS + i) * 32u + team.lane;
                keys[i] = e < valid ? key[last - (begin + e)] : 0;
            }

            // Each team ranks its own elements, 32 at a time.
            uint to[ITEMS];  // digit << 16 | rank in the team; then the place in the subtile
            #pragma unroll
            for (uint i = 0; i < ITEMS; i++) {
                uint e = (team.index * ITEMS + i) * 32u + team.lane;
                uint digit = e < valid ? keys[i] >> shift & 255u : NO_DIGIT;
                uint same = team_match(team, digit, 9);
                uint before = popcount(same & team_before(team));
                uint sum = digit != NO_DIGIT ? own[digit] : 0;
                team_sync(team);
                if (before == 0 && digit != NO_DIGIT) own[digit] = sum + popcount(same);
                team_sync(team);
                to[i] = digit << 16 | (sum + before);
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint d = index; d < 256; d += THREADS) {
                uint sum = 0;
                for (uint t = 0; t < TEAMS; t++) {
                    uint v = ranks[t * 256u + d];
                    ranks[t * 256u + d] = sum;
                    sum += v;
                }
                totals[d] = sum;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            sums_before(team, totals, firsts);
            barrier(CLK_LOCAL_MEM_FENCE);

            // Through workgroup memory, so that neighbours are written together.
            #pragma unroll
            for (uint i = 0; i < ITEMS; i++) {
                uint e = (team.index * ITEMS + i) * 32u + team.lane;
                if (e < valid) {
                    uint digit = to[i] >> 16;
                    to[i] = firsts[digit] + own[digit] + (to[i] & 0xffffu);
                    staged[to[i]] = keys[i];
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            uint goes[ITEMS];
            #pragma unroll
            for (uint i = 0; i < ITEMS; i++) {
                uint at = i * THREADS + index;
                if (at < valid) {
                    uint k = staged[at];
                    uint digit = k >> shift & 255u;
                    goes[i] = bases[digit] + at - firsts[digit];
                    if (use_high) high_out[last - goes[i]] = k;
                    else low_out[last - goes[i]] = k;
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll
            for (uint i = 0; i < ITEMS; i++) {
                uint e = (team.index * ITEMS + i) * 32u + team.lane;
                if (e < valid) staged[to[i]] = (use_high ? low : high)[last - (begin + e)];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll
            for (uint i = 0; i < ITEMS; i++) {
                uint at = i * THREADS + index;
                if (at < valid) (use_high ? low_out : high_out)[last - goes[i]] = staged[at];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll
            for (uint i = 0; i < ITEMS; i++) {
                uint e = (team.index * ITEMS + i) * 32u + team.lane;
                if (e < valid) staged[to[i]] = position[last - (begin + e)];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll
            for (uint i = 0; i < ITEMS; i++) {
                uint at = i * THREADS + index;
                if (at < valid) position_out[last - goes[i]] = staged[at];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint d = index; d < 256; d += THREADS) bases[d] += totals[d];
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
}
