// Writes the contents of LZ77 windows from records of their sequences.
//
// One workgroup per window. It writes the chunks in order, in steps of LANE_BYTES bytes per work item. lz77_decode has
// put the chunks' literals into their last bytes and recorded their sequences: see common/lz77_records. The sequence of
// a byte determines which byte it repeats. If that is a byte of the same step, the workgroup first traces it to a byte
// before the step. Then it loads all bytes and stores them. During the loads, it looks up the sources of the next step.
//
// Each row of 32 work items handles adjacent bytes of a step, and a work item handles bytes 32 apart, so that each load
// of a row touches few places.
//
// Constants: LANE_BYTES, a multiple of 4.
//
// @pz_cost {
//   threads: N/262144*1024
//   passes: 1
//   buffers: contents=N, results=32, lz77_chunks=N/65536*16+16, lz77_places=N+1024, lz77_distances=N+1024, lz77_starts=N/4
//   local_mem: 32768
//   note: as an example, 512 work items for each window of 4 MiB; a pass for each chunk of a window, or one; workgroup
//     memory for steps of 4096 bytes
// }
// @pz_import lz77_records

// Bytes of a step.
#define STEP (LANE_BYTES * THREADS)
// Bytes of a row.
#define ROW (LANE_BYTES * 32u)
// Marks the source of a literal. Other sources are bytes that are not written yet.
#define FINAL 0x80000000u

// For each of a work item's bytes.
#define EACH for (uint g = 0u; g < LANE_BYTES; g++)

#if TEAM_PTX
// After this barrier, the workgroup sees its earlier writes to workgroup memory and device memory. The language's own
// fence may reach farther, and costs more.
#define STEP_BARRIER() asm volatile("bar.sync 0;" ::: "memory")
#else
#define STEP_BARRIER() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#endif

// A chunk. Its positions count from its own start, its sources from the start of the block.
typedef struct {
    __global const uint *places;
    __global const uint *offsets;
    __global const uint2 *starts;
    uint block_start; // where the chunk is in the block
    uint last;        // byte
    uint literal;     // source of the first
} Chunk;

#if TEAM_PTX

inline float quotient(float v, float by) {
    float q;
    asm("div.approx.ftz.f32 %0, %1, %2;" : "=f"(q) : "f"(v), "f"(by));
    return q;
}

#else

inline float quotient(float v, float by) {
    return v / by;
}

#endif

// Whether a source is at `from` or after it.
inline bool is_inside(const uint *source, uint from) {
    int most = (int)source[0];
    #pragma unroll
    for (uint g = 1u; g < LANE_BYTES; g++) most = max(most, (int)source[g]);
    return most >= (int)from;
}

// Loads the words that determine the sequences of the row's bytes from `at` on.
inline void load_starts(const Chunk *c, uint at, uint2 *starts) {
    __global const uint4 *from = (__global const uint4 *)c->starts + min(at, c->last & ~(ROW - 1u)) / 64u;
    #pragma unroll
    for (uint g = 0u; g < LANE_BYTES; g += 2u) {
        uint4 two = from[g / 2u];
        starts[g] = FIRST_TWO(two);
        starts[g + 1u] = LAST_TWO(two);
    }
}

// Looks up the sequences of the work item's bytes.
inline void find_records(const Chunk *c, uint upto, const uint2 *starts, uint *places, uint *offsets) {
    #pragma unroll
    EACH {
        uint own = starts[g].y + popcount(starts[g].x & upto);
        places[g] = c->places[own];
        offsets[g] = c->offsets[own];
    }
}

// Finds the sources of the work item's bytes from `at` on. Bytes from `from` on, the start of the step, are not yet
// written, so a match that repeats its own bytes goes back by whole periods to before them. Bytes after the chunk have
// the source of its last byte.
inline void find_sources(const Chunk *c, uint at, uint from, const uint *places, const uint *offsets, uint *source) {
    uint own[LANE_BYTES];
    #pragma unroll
    EACH {
        own[g] = min(at + 32u * g, c->last);
        uint matched = places[g] >> 20 | (offsets[g] >> 12 & 0xff000u);
        uint literal = own[g] - matched + c->literal;
        uint matching = c->block_start + own[g] - (offsets[g] & 0xffffffu);
        source[g] = own[g] < (places[g] & 0xfffffu) ? literal : matching;
    }
    if (is_inside(source, c->block_start + from)) {
        uint repeated[LANE_BYTES];
        bool repeats = false;
        #pragma unroll
        EACH {
            repeated[g] = own[g] - max(places[g] & 0xfffffu, from);
            repeats |= (int)repeated[g] >= (int)(offsets[g] & 0xffffffu);
        }
        if (repeats) {
            #pragma unroll
            EACH {
                uint distance = offsets[g] & 0xffffffu;
                // Below 2^20, the error of the division is less than a quotient's distance from the next integer.
                uint periods = (uint)quotient((float)repeated[g] + 0.5f, (float)distance);
                if ((int)repeated[g] >= (int)distance) source[g] -= periods * distance;
            }
        }
    }
}

__kernel void lz77_windows(__global uchar *contents, __global const uint *results, __global const uint *lz77_chunks,
                           __global const uint *lz77_places, __global const uint *lz77_distances,
                           __global const uint2 *lz77_starts, uint blocks, uint max_chunks, uint slot, uint per_block,
                           uint stride, uint turn, uint turns) {
    // The sources of this step, and of the one before, which some work items may still be writing.
    SHARED uint sources_of[2u * STEP];
    uint item = (uint)get_local_id(0);
    uint group = (uint)get_group_id(0);
    uint block = group / per_block;
    if (block >= blocks || results[8u * block] != 0u) return;
    __global const uint *head = lz77_chunks + CHUNK_WORDS * ((ulong)block * (max_chunks + 1u));
    uint logs = head[BLOCK_LOGS];
    uint chunk_log = logs & 255u;
    uint in_window = 1u << ((logs >> 8 & 255u) - chunk_log);
    uint chunk = group % per_block * stride;
    if ((chunk & (in_window - 1u)) != 0u) return;
    uint end = min(chunk + min(in_window, turn + turns), head[BLOCK_CHUNKS]);
    uint block_len = head[BLOCK_LEN];
    contents += (ulong)block * slot;
    uint lane = item & 31u;
    uint upto = 0xffffffffu >> (31u - lane);
    // The row's first byte in a step, and the work item's.
    uint row = (item - lane) * LANE_BYTES;
    uint own = row + lane;
    uint turned = 0u;

    for (chunk += turn; chunk < end; chunk++) {
        Chunk c;
        c.block_start = chunk << chunk_log;
        uint length = min(1u << chunk_log, block_len - c.block_start);
        ulong record = RECORDS_OF(block, slot) + c.block_start / 4u;
        c.places = lz77_places + record;
        c.offsets = lz77_distances + record;
        c.starts = lz77_starts + ((ulong)block * slot + c.block_start) / 32u;
        c.last = length - 1u;
        uint first_literal = length - head[CHUNK_WORDS * (chunk + 1u) + CHUNK_LITERALS];
        c.literal = (c.block_start + first_literal) | FINAL;
        __global uchar *to = contents + c.block_start + own;
        uint source[LANE_BYTES], places[LANE_BYTES], offsets[LANE_BYTES];
        uint2 starts[LANE_BYTES];
        load_starts(&c, row, starts);
        find_records(&c, upto, starts, places, offsets);
        find_sources(&c, own, 0u, places, offsets, source);
        load_starts(&c, row + STEP, starts);
        for (uint from = 0u; from < length; from += STEP) {
            uint at = from + own;
            uint inside_from = c.block_start + from;
            // Volatile, since other work items read words that this replaces. The old and the new word lead to the
            // same bytes.
            volatile __local uint *sources = sources_of + turned;
            turned = STEP - turned;
            #pragma unroll
            EACH sources[own + 32u * g] = source[g];
            STEP_BARRIER();
            find_records(&c, upto, starts, places, offsets);
            // Each hop goes back by at least a byte. Sources are replaced at once, so later chains are shorter.
            for (uint hops = 0u; hops < STEP && is_inside(source, inside_from); hops++) {
                #pragma unroll
                EACH {
                    if ((int)source[g] >= (int)inside_from) {
                        source[g] = sources[source[g] - inside_from];
                        sources[own + 32u * g] = source[g];
                    }
                }
            }
            uint bytes[LANE_BYTES];
            #pragma unroll
            EACH bytes[g] = contents[source[g] & ~FINAL];
            load_starts(&c, from + row + 2u * STEP, starts);
            find_sources(&c, at + STEP, from + STEP, places, offsets, source);
            // Load all bytes before any are stored over literals.
            uint late = from + STEP > first_literal ? 1u : 0u;
            for (uint once = 0u; once < late; once++) STEP_BARRIER();
            #pragma unroll
            EACH {
                if (at + 32u * g < length) to[32u * g] = (uchar)bytes[g];
            }
            to += STEP;
        }
    }
}
