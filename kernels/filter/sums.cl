// Undoes differences: each element becomes the sum, or the exclusive or, of itself and those before it at multiples of
// a stride. Other kernels handle adjacent elements of at most 4 bytes, and rows of some lengths. Lists of values are
// summed in a dispatch of their own.
//
// One workgroup of 256 per unit, which goes from tile to tile. In a tile, work items sum parts of the columns, and
// exchange the sums. Strides of more than 256 elements need no tiles: the elements that an element depends on are
// already written.
//
// @pz_cost {
//   threads: N/262144*256
//   passes: 9
//   buffers: jobs=32, contents=N
//   local_mem: 14592
// }
// @pz_import filter

// Words of a tile, and the most columns.
#define TILE 2048u
#define COLUMNS 256u
// The turn for lists of values.
#define LIST_TURN 2u
// The place of element i of a tile, spread so that work items with neighbouring rows use different memory banks.
#define PLACE(i) ((i) + (i) / 32)

inline ulong joined(ulong a, ulong b, bool is_xor) {
    return is_xor ? a ^ b : a + b;
}

// Element `at` of a unit.
inline ulong element(__global const uint *unit, uint at, uint width) {
    if (width == 8) return (ulong)unit[2 * at + 1] << 32 | unit[2 * at];
    uint word = unit[at * width / 4];
    return word >> 8 * (at * width & 3);
}

// Adds to each element the one `stride` before it, in steps of one stride, by chunks of 8 bytes.
inline void add_rows(__global uint *unit, uint count, uint width, uint stride, bool is_xor) {
    uint in_chunk = 8 / width;
    uint chunks = (count + in_chunk - 1) / in_chunk;
    uint at_once = stride / in_chunk;
    ulong mask = width < 8 ? ((ulong)1 << 8 * width) - 1 : ~(ulong)0;
    for (uint first = 0; first < chunks; first += at_once) {
        uint end = min(first + at_once, chunks);
        for (uint chunk = first + (uint)get_local_id(0); chunk < end; chunk += THREADS) {
            ulong old = (ulong)unit[2 * chunk + 1] << 32 | unit[2 * chunk];
            ulong changed = 0;
            for (uint i = 0; i < in_chunk; i++) {
                uint at = chunk * in_chunk + i;
                ulong v = old >> 8 * width * i;
                if (at >= stride && at < count) v = joined(v, element(unit, at - stride, width), is_xor);
                changed |= (v & mask) << 8 * width * i;
            }
            unit[2 * chunk] = (uint)changed;
            unit[2 * chunk + 1] = (uint)(changed >> 32);
        }
        barrier(CLK_GLOBAL_MEM_FENCE);
    }
}

// Element `i` of a tile.
inline ulong value(__local const uint *values, uint i, bool is_wide) {
    uint low = values[PLACE(i)];
    return is_wide ? (ulong)values[PLACE(TILE / 2 + i)] << 32 | low : low;
}

// `count` workgroups per block, enough for units of 2^18 bytes. With longer units, some have nothing to do.
__kernel void sums(__global const Job *jobs, __global uint *contents, uint blocks, uint slot, uint count, uint stage,
    uint turn) {
    // Elements of a tile: a word each, and a second one if they have 8 bytes.
    SHARED uint values[PLACE(TILE)];
    // The last sum of each column in the previous tile.
    SHARED ulong carried[COLUMNS];
    SHARED ulong parts[2 * COLUMNS];
    uint lane = (uint)get_local_id(0);
    uint block = (uint)get_group_id(0) / count;
    if (block >= blocks) return;
    uint word = jobs[block].undo[stage];
    bool is_xor = FILTER_ID(word) == FILTER_XOR;
    uint turns = is_xor ? 1u : FILTER_ID(word) == FILTER_DELTA ? FILTER_ORDER(word) : 0u;
    bool is_list = FILTER_ID(word) == FILTER_DICTIONARY;
    if (is_list ? turn != LIST_TURN : turn >= turns || SUMS_ARE_ADJACENT(word) || row_period(word) != 0) return;
    uint width = is_list ? LIST_WIDTH(word) : FILTER_WIDTH(word);
    uint stride = is_list ? 1u : max(FILTER_PARAMETER(word), 1u);
    uint content_len = min(jobs[block].content_len, slot);
    uint unit_log = UNIT_LOG(jobs[block]), number = (uint)get_group_id(0) % count;
    if (number >= (content_len + (1u << unit_log) - 1) >> unit_log) return;
    uint start = number << unit_log;
    uint unit_len = min(content_len - start, 1u << unit_log), unit_count = unit_len / width;
    uint unit_start = is_list ? list_start(word, unit_count) * (width / 4) : 0u;
    if (is_list) unit_count = unit_len < MIN_LISTED ? 0u : list_capacity(word, unit_count);
    __global uint *unit = contents + (ulong)block * (slot / 4) + start / 4 + unit_start;
    if (stride > COLUMNS) {
        add_rows(unit, unit_count, width, stride, is_xor);
        return;
    }

    bool is_wide = width == 8;
    uint tile = is_wide ? TILE / 2 : TILE;
    uint in_word = is_wide ? 1u : 4 / width;
    // Work item g * stride + c sums part g of column c.
    uint groups = COLUMNS / stride;
    uint group = lane / stride, column = lane % stride;
    carried[lane] = 0;
    for (uint first = 0; first < unit_count; first += tile, unit += TILE / in_word) {
        uint here = min(unit_count - first, tile);
        uint words = is_wide ? 2 * here : (here + in_word - 1) / in_word;
        for (uint i = lane; i < words; i += THREADS) {
            uint w = unit[i];
            if (is_wide) values[PLACE(i / 2 + (i & 1) * tile)] = w;
            else for (uint k = 0; k < in_word; k++) values[PLACE(i * in_word + k)] = w >> 8 * width * k;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        uint rows = (here + stride - 1) / stride;
        uint own = (rows + groups - 1) / groups;
        uint begin = group * own * stride + column;
        uint end = group < groups ? min((group + 1) * own * stride, here) : 0u;
        ulong sum = 0;
        for (uint i = begin; i < end; i += stride) {
            sum = joined(sum, value(values, i, is_wide), is_xor);
        }
        parts[lane] = sum;
        barrier(CLK_LOCAL_MEM_FENCE);
        uint from = 0;
        for (uint by = stride; by < COLUMNS; by *= 2) {
            ulong total = parts[from + lane];
            if (lane >= by) total = joined(total, parts[from + lane - by], is_xor);
            from = COLUMNS - from;
            parts[from + lane] = total;
            barrier(CLK_LOCAL_MEM_FENCE);
        }
        sum = carried[column];
        if (group > 0) sum = joined(sum, parts[from + lane - stride], is_xor);
        for (uint i = begin; i < end; i += stride) {
            sum = joined(sum, value(values, i, is_wide), is_xor);
            values[PLACE(i)] = (uint)sum;
            if (is_wide) values[PLACE(tile + i)] = (uint)(sum >> 32);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        // If another tile follows, this one is full.
        if (lane < stride && here == tile) {
            carried[lane] = value(values, tile - stride + lane, is_wide);
        }
        uint mask = width < 4 ? (1u << 8 * width) - 1 : 0xffffffffu;
        for (uint i = lane; i < words; i += THREADS) {
            uint w = 0;
            if (is_wide) w = values[PLACE(i / 2 + (i & 1) * tile)];
            else for (uint k = 0; k < in_word; k++) w |= (values[PLACE(i * in_word + k)] & mask) << 8 * width * k;
            unit[i] = w;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
