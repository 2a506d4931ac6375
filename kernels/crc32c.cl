// CRC-32C of the contents and the payload of each block of a batch.
//
// A workgroup of 256 reduces a piece of a block. Its words stand in rows of 256: each work item reduces a column, a word at
// a time, and the sum of the columns, each multiplied by what its place in the row asks for, is the piece's remainder.
// The table for a step (8 for 4 bits each) is in workgroup memory COPIES times, a copy for each bank: 32 work items then
// look up without conflicts. Another dispatch sums the pieces of each block up.
//
// COPIES: 1 or 32. PIECE_LOG: the logarithm of the bytes of a piece.
//
// @pz_cost {
//   threads_per_element: 0.001953125
//   passes: 2
//   buffers: jobs=32, contents=N, payload=N+256, results=32, crc_pieces=N/64+16
//   local_mem: 17408
// }
// @pz_import crc

#define PIECE_WORDS (1u << (PIECE_LOG - 2))

typedef struct {
    uint contents_len, payload_len, payload_start, reserved[5];
} Job;

typedef struct {
    uint status, payload_len, contents_crc, payload_crc, reserved[4];
} Result;

// A row further. `column` is that of the work item's copy of the table, in bytes.
inline uint step(__local const char *table, uint column, uint s) {
#define AT(k, nibble) (*(__local const uint *)(table + (k) * (64 * COPIES) + ((nibble) * (4 * COPIES) | column)))
    return AT(0, s & 15u) ^ AT(1, s >> 4 & 15u) ^ AT(2, s >> 8 & 15u) ^ AT(3, s >> 12 & 15u)
        ^ AT(4, s >> 16 & 15u) ^ AT(5, s >> 20 & 15u) ^ AT(6, s >> 24 & 15u) ^ AT(7, s >> 28);
#undef AT
}

// Bytes of the payload of block `block`.
inline uint payload_len(__global const Job *jobs, __global const Result *results, uint block, uint slot, uint decoding) {
    uint len = decoding ? jobs[block].payload_len : results[block].status == 0 ? results[block].payload_len : 0u;
    return min(len, slot + 256);
}

// Where it begins, in words.
inline ulong payload_start(__global const Job *jobs, uint block, uint blocks, uint slot, uint decoding) {
    if (!decoding) return (ulong)block * ((slot + 256) / 4);
    // Hostile or not, no payload reaches beyond the buffer.
    ulong last = (ulong)(blocks - 1) * ((slot + 256) / 4);
    return min((ulong)jobs[block].payload_start * 4, last);
}

// The remainder of each piece: for each block `contents_count` pieces of its contents and `payload_count` of its payload.
__kernel void reduce_pieces(__global const Job *jobs, __global const Result *results, __global const uint *contents,
    __global const uint *payload, __global uint *crc_pieces, uint blocks, uint slot, uint contents_count,
    uint payload_count, uint decoding) {
    __local uint table[128 * COPIES];
    __local uint sums[THREADS];
    uint lane = (uint)get_local_id(0);
    uint count = contents_count + payload_count;
    uint group = (uint)get_group_id(0);
    uint block = group / count;
    uint piece = group % count;
    if (block >= blocks) return;

    __global const uint *data;
    uint len;
    if (piece < contents_count) {
        data = contents + (ulong)block * (slot / 4);
        len = min(jobs[block].contents_len, slot);
    } else {
        piece -= contents_count;
        data = payload + payload_start(jobs, block, blocks, slot, decoding);
        len = payload_len(jobs, results, block, slot, decoding);
    }
    uint words = (len + 3) / 4;
    uint start = piece * PIECE_WORDS;
    if (start >= words) return;
    uint here = min(words - start, PIECE_WORDS);
    data += start;

    if (lane < 128) {
        // For 4 bits, where they stand in a word.
        uint entry = crc_multiply((lane & 15u) << (lane >> 4) * 4, CRC_WORDS_256);
        // Not all work items to the same bank at once.
        for (uint c = 0; c < COPIES; c++) table[lane * COPIES + (lane + c) % COPIES] = entry;
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    uint rows = (here + THREADS - 1) / THREADS;
    uint column = lane % COPIES * 4;
    uint s = 0;
    uint whole = rows - 1;
    // A pointer, since sums of 32 bits might wrap around and could not be part of a load.
    __global const uint *own = data + lane;
    // Loads first, so that they are under way together.
    for (; whole >= 8; whole -= 8, own += 8 * THREADS) {
        uint w[8];
#pragma unroll
        for (uint r = 0; r < 8; r++) w[r] = own[r * THREADS];
#pragma unroll
        for (uint r = 0; r < 8; r++) s = step((__local const char *)table, column, s) ^ w[r];
    }
    for (; whole > 0; whole--, own += THREADS) s = step((__local const char *)table, column, s) ^ *own;
    uint i = (rows - 1) * THREADS + lane;
    uint last = 0;
    if (i < here) {
        last = *own;
        // What is behind the last byte is not part of the message.
        if (start + i == words - 1 && (len & 3) != 0) last &= (1u << 8 * (len & 3)) - 1;
    }
    s = step((__local const char *)table, column, s) ^ last;

    // The columns together, half of them at a time.
    sums[lane] = s;
#define FOLD(half)                                                                                              \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                               \
    if (lane < half) sums[lane] = crc_multiply(sums[lane], CRC_WORDS_##half) ^ sums[lane + half];
    FOLD(128) FOLD(64) FOLD(32) FOLD(16) FOLD(8) FOLD(4) FOLD(2) FOLD(1)
#undef FOLD
    if (lane == 0) crc_pieces[group] = sums[0];
}

// The power of x that a piece of `words` words from word `start` on is to be multiplied by. The message's last bit counts as
// x^32, and the piece is as long as all its rows.
inline uint weight(uint len, uint start) {
    uint words = (len + 3) / 4;
    uint rows = (min(words - start, PIECE_WORDS) + 255) / 256;
    int bits = (int)(8 * len) - (int)(32 * (start + 256 * rows)) + 32;
    return crc_power(bits < 0 ? (uint)bits + CRC_ORDER : (uint)bits);
}

// A workgroup for each block: the checksums from the pieces.
__kernel void sum_pieces(__global const Job *jobs, __global const uint *crc_pieces, __global Result *results, uint blocks,
    uint slot, uint contents_count, uint payload_count, uint decoding) {
    __local uint sums[2 * THREADS];
    uint lane = (uint)get_local_id(0);
    uint block = (uint)get_group_id(0);
    if (block >= blocks) return;
    __global const uint *pieces = crc_pieces + (ulong)block * (contents_count + payload_count);
    for (uint which = 0; which < 2; which++) {
        uint len = which == 0 ? min(jobs[block].contents_len, slot) : payload_len(jobs, results, block, slot, decoding);
        uint count = (len + 4 * PIECE_WORDS - 1) / (4 * PIECE_WORDS);
        uint sum = 0;
        for (uint p = lane; p < count; p += THREADS) sum ^= crc_multiply(pieces[p], weight(len, p * PIECE_WORDS));
        // The register begins as all ones, which is one more piece.
        if (lane == THREADS - 1) sum ^= crc_multiply(0xffffffffu, crc_power(8 * len));
        sums[which * THREADS + lane] = sum;
        pieces += contents_count;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane < 2) {
        uint sum = 0xffffffffu;
        for (uint j = 0; j < THREADS; j++) sum ^= sums[lane * THREADS + j];
        if (lane == 0) results[block].contents_crc = sum;
        else results[block].payload_crc = sum;
    }
}
