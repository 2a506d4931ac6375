// The contents of LZ77 windows, from records of their sequences.
//
// A workgroup has a window, and writes its chunks one after the other, in steps of four bytes for each work item. The
// chunks' literals are in their last bytes, where lz77_decode has put them, and their sequences are recorded: see
// common/lz77_records. What a byte repeats is told by its sequence. In a step, sources among the step's own bytes are
// replaced by what these derive from; then all bytes are loaded, and then all are stored, since what is written may be
// literals that others read. While the bytes are on their way, the sources of the next step are looked up.
//
// @pz_cost {
//   threads_per_element: 0.0001220703125
//   passes: 256
//   buffers: contents=N, results=32, lz77_chunks=N/64+64, lz77_places=N+1024, lz77_distances=N+1024, lz77_starts=N/4
//   local_mem: 16400
//   note: 512 work items for each window of 4 MiB, as an example; as many passes as a window has chunks, or one; workgroup
//         memory for workgroups of 1024
// }
// @pz_import lz77_records

// Bytes of a step.
#define STEP (4u * THREADS)
// Set in the source of a literal: nothing that is still to be written.
#define FINAL 0x80000000u
// How far a source is followed through others before all are put anew, and how often that may be: chains have at most
// 4096 links.
#define HOPS 8u
#define ROUNDS 4u

// A chunk. Positions count from the start of the block.
typedef struct {
    __global const uint *places;
    __global const uint *offsets;
    __global const uint2 *starts;
    uint start;
    uint last;    // byte
    uint literal; // the first
} Chunk;

inline bool is_inside(uint4 source, uint from) {
    int4 inside = as_int4(source) >= (int4)((int)from);
    return any(inside);
}

// What byte `at` repeats: by the sequence `index` of its chunk. Sources from `from` on, that of the step, are not yet
// written: a match that repeats its own bytes goes back by whole periods to before them.
inline uint source_of(const Chunk *c, uint at, uint index, uint from) {
    uint place = c->places[index];
    uint offset = c->offsets[index];
    uint match = c->start + (place & 0xfffffu);
    uint matched = place >> 20 | (offset >> 24) << 12;
    offset &= 0xffffffu;
    if (at < match) return (at - c->start - matched + c->literal) | FINAL;
    uint source = at - offset;
    uint first = max(match, from);
    if (source >= from && at - first >= offset) source = first - offset + (at - first) % offset;
    return source;
}

// The sources of a work item's four bytes, the first of them at `at`. Bytes after the chunk do as its last.
inline uint4 sources_of(const Chunk *c, uint at, uint from) {
    uint4 all = min((uint4)(at, at + 1u, at + 2u, at + 3u), (uint4)(c->last));
    uint first = all.x - c->start;
    uint2 starts = c->starts[first / 32u];
    uint bit = first & 31u;
    uint before = starts.y + popcount(starts.x & ((1u << bit) - 1u));
    uint mask = starts.x >> bit;
    uint4 own = popcount((uint4)(mask) & ((uint4)(2u) << (all - all.x)) - 1u) + before;
    return (uint4)(source_of(c, all.x, own.x, from), source_of(c, all.y, own.y, from),
                   source_of(c, all.z, own.z, from), source_of(c, all.w, own.w, from));
}

inline uint4 hop(__local const uint *sources, uint4 source, uint from) {
    if ((int)source.x >= (int)from) source.x = sources[(source.x - from) & (STEP - 1u)];
    if ((int)source.y >= (int)from) source.y = sources[(source.y - from) & (STEP - 1u)];
    if ((int)source.z >= (int)from) source.z = sources[(source.z - from) & (STEP - 1u)];
    if ((int)source.w >= (int)from) source.w = sources[(source.w - from) & (STEP - 1u)];
    return source;
}

inline uint4 follow(__local const uint *sources, uint4 source, uint from) {
    for (uint i = 0u; i < HOPS && is_inside(source, from); i++) source = hop(sources, source, from);
    return source;
}

inline uint4 load_bytes(__global const uchar *contents, uint4 source) {
    source &= ~FINAL;
    return (uint4)(contents[source.x], contents[source.y], contents[source.z], contents[source.w]);
}

__kernel void lz77_windows(__global uchar *contents, __global const uint *results, __global const uint *lz77_chunks,
                           __global const uint *lz77_places, __global const uint *lz77_distances,
                           __global const uint2 *lz77_starts, uint blocks, uint max_chunks, uint slot, uint per_block,
                           uint stride, uint turn, uint turns) {
    __local uint4 sources4[THREADS];
    __local uint unfinished;
    __local uint *sources = (__local uint *)sources4;
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
    if (item == 0u) unfinished = 0u;

    for (chunk += turn; chunk < end; chunk++) {
        Chunk c;
        c.start = chunk << chunk_log;
        uint length = min(1u << chunk_log, block_len - c.start);
        ulong record = RECORDS_OF(block, slot) + c.start / 4u;
        c.places = lz77_places + record;
        c.offsets = lz77_distances + record;
        c.starts = lz77_starts + ((ulong)block * slot + c.start) / 32u;
        c.last = c.start + length - 1u;
        c.literal = c.start + length - head[CHUNK_WORDS * (chunk + 1u) + CHUNK_LITERALS];
        uint4 source = sources_of(&c, c.start + 4u * item, c.start);
        for (uint from = c.start; from <= c.last; from += STEP) {
            uint at = from + 4u * item;
            sources4[item] = source;
            barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
            source = follow(sources, source, from);
            if (is_inside(source, from)) unfinished = 1u;
            uint4 bytes = load_bytes(contents, source);
            uint4 next = sources_of(&c, at + STEP, from + STEP);
            barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
            uint more = unfinished;
            uint again = more;
            for (uint round = 0u; round < ROUNDS && more != 0u; round++) {
                sources4[item] = source;
                barrier(CLK_LOCAL_MEM_FENCE);
                if (item == 0u) unfinished = 0u;
                source = follow(sources, source, from);
                barrier(CLK_LOCAL_MEM_FENCE);
                if (is_inside(source, from)) unfinished = 1u;
                barrier(CLK_LOCAL_MEM_FENCE);
                more = unfinished;
            }
            for (uint once = 0u; once < again; once++) {
                bytes = load_bytes(contents, source);
                barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
            }
            if (at <= c.last) *(__global uint *)(contents + at) = bytes.x | bytes.y << 8 | bytes.z << 16 | bytes.w << 24;
            source = next;
        }
    }
}
