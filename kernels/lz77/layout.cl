// Checks the header of an LZ77 payload, and finds the record of each chunk.
//
// One team per block. It also checks an assumption of other kernels: groups have at least 2^least_group_log chunks. See
// src/format/lz77.md.
//
// @pz_cost {
//   threads: 128
//   passes: 1
//   buffers: jobs=32, payload=N+256, results=32, lz77_chunks=N/65536*16+16
//   local_mem: 256
//   note: a chunk for each 64 KiB, at least one, and a team for each block
// }
// @pz_import team
// @pz_import lz77_chunks

__kernel void lz77_layout(__global const uint *jobs, __global const uint *payload, __global uint *results,
                          __global uint *lz77_chunks, uint blocks, uint max_chunks, uint slot, uint payload_units, uint least_group_log) {
    TEAM_START(t);
    uint block = team_uniform(t, (uint)get_group_id(0) * TEAMS + t.index);
    if (block >= blocks) return;
    uint content_len = jobs[8u * block];
    uint payload_len = jobs[8u * block + 1u];
    uint first = jobs[8u * block + 2u];
    __global uint *out = lz77_chunks + CHUNK_WORDS * ((ulong)block * (max_chunks + 1u));

    uint status = 0u;
    if (content_len == 0u || content_len > slot || payload_len < 4u || payload_len % 4u != 0u
        || first > payload_units || (payload_len + 15u) / 16u > payload_units - first) {
        status = 1u;
    }
    __global const uint *words = payload + 4ul * first;
    uint header = 0u;
    if (status == 0u) header = words[0];
    uint chunk_log = header & 255u;
    uint window_log = header >> 8 & 255u;
    uint group_log = header >> 16 & 255u;
    if (header >> 24 != 0u || chunk_log < 16u || chunk_log > 20u || window_log < chunk_log || window_log > 24u
        || group_log > 4u || group_log < least_group_log) {
        status = status != 0u ? status : 2u;
    }
    uint count = 0u;
    uint left = 0u; // words of records
    if (status == 0u) {
        count = ((content_len - 1u) >> chunk_log) + 1u;
        if (count > max_chunks || payload_len / 4u < 1u + 2u * count) {
            status = 3u;
            count = 0u;
        } else {
            left = payload_len / 4u - 1u - 2u * count;
        }
    }
    status = team_uniform(t, status);
    count = team_uniform(t, count);

    uint start = 4u * first + 1u + 2u * count; // at most 2^30, like all sums of `words` below
    uint sum = 0u;
    bool bad = false;
    for (uint base = 0u; base < count; base += 32u) {
        uint c = base + t.lane;
        uint record = 0u, literals = 0u, sequences = 0u;
        if (c < count) {
            uint low = words[1u + 2u * c];
            uint high = words[2u + 2u * c];
            record = low & 0x3fffffu;
            literals = low >> 22 | (high & 0x7ffu) << 10;
            sequences = high >> 11;
            uint chunk_len = min(1u << chunk_log, content_len - (c << chunk_log));
            bad |= literals > chunk_len || sequences > chunk_len;
        }
        uint end = team_scan(t, record);
        if (c < count) {
            __global uint *chunk = out + CHUNK_WORDS * (c + 1u);
            chunk[CHUNK_START] = start + sum + end - record;
            chunk[CHUNK_RECORD] = record;
            chunk[CHUNK_LITERALS] = literals;
            chunk[CHUNK_SEQUENCES] = sequences;
        }
        sum += team_broadcast(t, end, 31u);
    }
    if (team_any(t, bad)) status = 4u;
    if (status == 0u && sum != left) status = 5u;
    if (t.lane == 0u) {
        // A block without chunks is not decoded.
        out[BLOCK_CHUNKS] = status == 0u ? count : 0u;
        out[BLOCK_LOGS] = header;
        out[BLOCK_LEN] = content_len;
        results[8u * block] = status;
    }
}
