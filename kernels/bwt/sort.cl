// A stable radix sort, lowest digit first, of elements (high, low) with a suffix's position. It sorts all suffixes of
// each block by their first eight bytes, and later lists of suffixes by pairs of numbers. A pass counts the digits of
// each tile (`histogram`), sums the counts (`scan`), and moves the elements (`scatter`). No workgroup waits for
// another.
//
// Each block has its own list. Element e of a list is at index slot - 1 - e of the block's part of the arrays, so
// that the small lists of bwt/sort_refine can grow from the other end. Before the first pass, the suffixes are
// ordered by length. So a suffix that the block's end cuts off, padded with zeros, comes before longer suffixes with
// the same key.
//
// @pz_cost {
//   threads: max(8192, max(min(N/4096*256, 65536), N/4096*32))
//   passes: 25+3*log2(N/8)*(1+2*(log2(N/128)/8))
//   buffers: jobs=32, contents=N,
//            sort_high_a=N*4, sort_low_a=N*4, sort_position_a=N*4,
//            sort_high_b=N*4, sort_low_b=N*4, sort_position_b=N*4,
//            sort_counts=N/4+1024, sort_state=1088
//   local_mem: 27712
//   note: two copies of the elements take 24 bytes for each byte; each tile of 4096 elements has counts of 256 digits;
//     WGSL takes 8 KB less workgroup memory
// }

// @pz_import team
// @pz_import tile_scan
// @pz_import bwt_sort_state

#define TILE 4096u
#define ITEMS 16u
#define SUBTILE (THREADS * ITEMS)
// Counters of a digit, each for some of the lanes, so that equal digits in neighbouring lanes rarely contend.
#define COUNTERS 4u
// Makes the compiler recompute values derived from this one, rather than keep them in registers.
#if TEAM_PTX
#define AFRESH(value) asm volatile("mov.u32 %0, %1;" : "=r"(value) : "r"(value))
#else
#define AFRESH(value)
#endif
// Digits of a work item.
#define DIGITS (256u / THREADS)

// The four bytes from position p on as a number, the first byte on top. Bytes past the block's end are 0.
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

// Counts the digits at `shift` of the keys of each tile. `which` is the index of the list's length in the state.
__kernel void histogram(
    __global const uint *key, __global uint *counts, __global const uint *state,
    uint slot, uint parts, uint which, uint shift)
{
    SHARED uint bins[256 * COUNTERS];
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint index = (uint)get_local_id(0);
    uint count = state[block * STATE_WORDS + which];
    uint tiles = (count + TILE - 1) / TILE;
    key += (size_t)block * slot;
    counts += (size_t)block * ((slot + 3) / 4 + 1024) / 4;
    __local uint *own = bins + index % COUNTERS;
    for (uint tile = part; tile < tiles; tile += parts) {
        for (uint d = index; d < 256 * COUNTERS; d += THREADS) bins[d] = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint begin = tile * TILE; begin < (tile + 1) * TILE; begin += SUBTILE) {
            // Start all loads before waiting for the first.
            uint keys[ITEMS];
            #pragma unroll
            for (uint i = 0; i < ITEMS; i++) {
                uint e = begin + i * THREADS + index;
                keys[i] = e < count ? key[slot - 1 - e] : 0;
            }
            #pragma unroll
            for (uint i = 0; i < ITEMS; i++) {
                if (begin + i * THREADS + index < count) atomic_inc(&own[(keys[i] >> shift & 255u) * COUNTERS]);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint d = index; d < 256; d += THREADS) {
            uint sum = 0;
            for (uint i = 0; i < COUNTERS; i++) sum += bins[d * COUNTERS + i];
            counts[d * tiles + tile] = sum;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

// Sums a digit's counts over the earlier tiles, and over all tiles in the state. A team handles one digit at a time.
__kernel void scan(__global uint *counts, __global uint *state, uint slot, uint parts, uint which) {
    TEAM_START(team);
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint tiles = (state[block * STATE_WORDS + which] + TILE - 1) / TILE;
    counts += (size_t)block * ((slot + 3) / 4 + 1024) / 4;
    if (tiles == 0) return;
    for (uint first = part * TEAMS; first < 256; first += parts * TEAMS) {
        uint digit = first + team.index;
        uint total = scan_tiles(team, counts + digit * tiles, tiles);
        if (team.lane == 0) state[block * STATE_WORDS + STATE_DIGITS + digit] = total;
    }
}

// Moves the elements from one list to their places in the other, by digits of `key`. Elements with equal digits keep
// their order.
__kernel void scatter(
    __global const uint *key, __global const uint *other, __global const uint *position,
    __global uint *key_out, __global uint *other_out, __global uint *position_out,
    __global const uint *counts, __global const uint *state, uint slot, uint parts, uint which, uint shift)
{
    TEAM_START(team);
    SHARED uint ranks[TEAMS * 256u];  // while a team counts: its elements of a digit so far; then: the next one's place
    SHARED uint firsts[256];          // elements of lower digits in the subtile
    SHARED uint ends[256];            // the sum of where an element of the digit goes and its place in the subtile
    SHARED uint done[256];            // elements of a digit in earlier subtiles
    SHARED uint sums[8];              // of 32 digits each, in the subtile, and in the list
    SHARED uint all_sums[8];
    SHARED uint staged[SUBTILE];
    uint block = (uint)get_group_id(0) / parts;
    uint part = (uint)get_group_id(0) % parts;
    uint index = (uint)get_local_id(0);
    uint count = state[block * STATE_WORDS + which];
    uint tiles = (count + TILE - 1) / TILE;
    size_t base = (size_t)block * slot;
    key += base;
    other += base;
    position += base;
    key_out += base;
    other_out += base;
    position_out += base;
    counts += (size_t)block * ((slot + 3) / 4 + 1024) / 4;
    state += block * STATE_WORDS + STATE_DIGITS;
    __local uint *own = ranks + team.index * 256u;
    for (uint tile = part; tile < tiles; tile += parts) {
        for (uint d = index; d < 256; d += THREADS) done[d] = 0;
        for (uint begin = tile * TILE; begin < (tile + 1) * TILE; begin += SUBTILE) {
            uint valid = count > begin ? min(count - begin, SUBTILE) : 0;
            // The work item's first element, and its index in the arrays; each further one is 32 places earlier.
            uint first = team.index * ITEMS * 32u + team.lane;
            long at_first = (long)(slot - 1) - begin - first;
            // The number of elements from there on, and from the work item's first place in the new order on.
            int left = (int)valid - (int)first;
            int left_in_order = (int)valid - (int)index;
            // Start all loads before waiting for the first. Missing elements after the last one sort last.
            uint keys[ITEMS];
            #pragma unroll
            for (uint i = 0; i < ITEMS; i++) {
                keys[i] = left > (int)(i * 32u) ? (key + at_first)[-(int)(i * 32u)] : 0xffffffffu;
            }
            uint all[DIGITS];
            uint here[DIGITS];
            #pragma unroll
            for (uint k = 0; k < DIGITS; k++) {
                all[k] = state[k * THREADS + index];
                here[k] = counts[(k * THREADS + index) * tiles + tile];
            }
            for (uint d = index; d < TEAMS * 256u; d += THREADS) ranks[d] = 0;
            barrier(CLK_LOCAL_MEM_FENCE);

            // Each team ranks its own elements, 32 at a time.
            uint to[ITEMS];
            #pragma unroll
            for (uint i = 0; i < ITEMS; i++) to[i] = team_match_digit(team, keys[i] >> shift & 255u, 8);
            #pragma unroll
            for (uint i = 0; i < ITEMS; i++) {
                AFRESH(keys[i]);
                uint digit = keys[i] >> shift & 255u;
                uint before = popcount(to[i] & team_before(team));
                uint sum = own[digit];
                team_sync(team);
                if (before == 0) own[digit] = sum + popcount(to[i]);
                team_sync(team);
                to[i] = sum + before;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll
            for (uint k = 0; k < DIGITS; k++) {
                uint d = k * THREADS + index;
                uint sum = 0;
                for (uint t = 0; t < TEAMS; t++) sum += ranks[t * 256u + d];
                uint upto = team_scan(team, sum);
                uint all_upto = team_scan(team, all[k]);
                firsts[d] = upto - sum;
                ends[d] = slot - 1 - (all_upto - all[k] + here[k] + done[d]);
                done[d] += sum;
                if (team.lane == 31) {
                    sums[d >> 5] = upto;
                    all_sums[d >> 5] = all_upto;
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll
            for (uint k = 0; k < DIGITS; k++) {
                uint d = k * THREADS + index;
                uint place = firsts[d];
                uint end = ends[d];
                for (uint r = 0; r < d >> 5; r++) {
                    place += sums[r];
                    end -= all_sums[r];
                }
                ends[d] = end + place;
                for (uint t = 0; t < TEAMS; t++) {
                    uint sum = ranks[t * 256u + d];
                    ranks[t * 256u + d] = place;
                    place += sum;
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);

            // Pass the elements through workgroup memory, so that neighbours are written together. The loads of each
            // array run during the writes of the previous one.
            #pragma unroll
            for (uint i = 0; i < ITEMS; i++) {
                AFRESH(keys[i]);
                to[i] += own[keys[i] >> shift & 255u];
                staged[to[i]] = keys[i];
                if (left > (int)(i * 32u)) keys[i] = (other + at_first)[-(int)(i * 32u)];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            uint goes[ITEMS];
            #pragma unroll
            for (uint i = 0; i < ITEMS; i++) {
                if (left_in_order > (int)(i * THREADS)) {
                    uint k = staged[i * THREADS + index];
                    goes[i] = ends[k >> shift & 255u] - index - i * THREADS;
                    key_out[goes[i]] = k;
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll
            for (uint i = 0; i < ITEMS; i++) {
                staged[to[i]] = keys[i];
                if (left > (int)(i * 32u)) keys[i] = (position + at_first)[-(int)(i * 32u)];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll
            for (uint i = 0; i < ITEMS; i++) {
                AFRESH(goes[i]);
                if (left_in_order > (int)(i * THREADS)) other_out[goes[i]] = staged[i * THREADS + index];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll
            for (uint i = 0; i < ITEMS; i++) {
                staged[to[i]] = keys[i];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll
            for (uint i = 0; i < ITEMS; i++) {
                AFRESH(goes[i]);
                if (left_in_order > (int)(i * THREADS)) position_out[goes[i]] = staged[i * THREADS + index];
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
}
