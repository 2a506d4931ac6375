// Computes the CRC-32C of each block's contents and payload, or of contents alone.
//
// A workgroup of 32 reduces a piece of a block. The piece's words form rows of 32, and each work item treats a column
// as a polynomial in z = x^(32 * 32). Since z is x squared ten times, a multiple Q of the checksum's polynomial, taken
// at z, is still a multiple of it. So the work item divides its column by such a Q(z). That only adds whole words: the
// next word of the quotient is the next of the column, plus the earlier quotient words that Q's other terms select. Q
// has few terms, and a low degree because the quotient's last words stay in registers: z^40 + z^38 + z^36 + z^35 + z^33
// + z^30 + z^27 + z^20 + z^13 + z^7 + z + 1. The remainder has UNIT words. Multiplying by z joins these, and
// multiplying by powers of x^32 joins the columns. Another dispatch combines the pieces of each block.
//
// PIECE_UNITS: units of UNIT rows in a piece.
//
// @pz_cost both {
//   threads: N/20480*32+(N+256)/20480*32
//   passes: 2
//   buffers: jobs=32, contents=N, payload=N+256, results=32, crc_pieces=N/20480*4+(N+256)/20480*4
//   local_mem: 5760
// }
//
// @pz_cost contents {
//   threads: max(N/20480*32, 64)
//   passes: 2
//   buffers: jobs=32, contents=N, no_payload=4, results=32, content_pieces=N/20480*4
//   local_mem: 5760
//   note: no_payload stands for payloads, and is never read
// }
// @pz_import crc

// Rows divided at a time: as many as Q's degree, so that each word of the quotient has its own register.
#define UNIT 40u
#define COLUMNS 32u
#define UNIT_WORDS (UNIT * COLUMNS)
#define PIECE_WORDS (PIECE_UNITS * UNIT_WORDS)

typedef struct {
    uint content_len, payload_len, payload_start, reserved[5];
} Job;

typedef struct {
    uint status, payload_len, content_crc, payload_crc, reserved[4];
} Result;

// Words to load together.
#define AHEAD 20u

// Computes word k of a unit's quotient. Its register still holds the word UNIT before it. The distances are the
// degree of Q minus the degrees of its other terms.
#define BACK(k, distance) q[((k) + UNIT - (distance)) % UNIT]
#define DIVIDE(k, w)                                                                                               \
    q[k] ^= (w) ^ BACK(k, 39) ^ BACK(k, 33) ^ BACK(k, 27) ^ BACK(k, 20) ^ BACK(k, 13) ^ BACK(k, 10) ^ BACK(k, 7) \
        ^ BACK(k, 5) ^ BACK(k, 4) ^ BACK(k, 2)

// Computes word k of the remainder: the result if the quotient's words from the end on are 0. By now `q` holds only
// words after k, of the quotient or of the remainder itself.
inline uint remainder_word(const uint *q, uint k) {
    uint r = q[k];
#define LEFT(distance) (k < distance ? BACK(k, distance) : 0u)
    return r ^ LEFT(39) ^ LEFT(33) ^ LEFT(27) ^ LEFT(20) ^ LEFT(13) ^ LEFT(10) ^ LEFT(7) ^ LEFT(5) ^ LEFT(4) ^ LEFT(2);
#undef LEFT
}

// A word multiplied by z, by a table for each half of a byte.
inline uint times_z(__local const uint *halves, uint s) {
    return halves[s & 15u] ^ halves[16 + (s >> 4 & 15u)] ^ halves[32 + (s >> 8 & 15u)] ^ halves[48 + (s >> 12 & 15u)]
        ^ halves[64 + (s >> 16 & 15u)] ^ halves[80 + (s >> 20 & 15u)] ^ halves[96 + (s >> 24 & 15u)] ^ halves[112 + (s >> 28)];
}

// Bytes of the payload of block `block`.
inline uint payload_len(__global const Job *jobs, __global const Result *results, uint block, uint slot, uint decoding) {
    uint len = decoding ? jobs[block].payload_len : results[block].status == 0 ? results[block].payload_len : 0u;
    return min(len, slot + 256);
}

// Where that payload begins, in words.
inline ulong payload_start(__global const Job *jobs, uint block, uint blocks, uint slot, uint decoding) {
    if (!decoding) return (ulong)block * ((slot + 256) / 4);
    // Even for an invalid job, the payload ends within the buffer.
    ulong last = (ulong)(blocks - 1) * ((slot + 256) / 4);
    return min((ulong)jobs[block].payload_start * 4, last);
}

// Computes the remainder of each piece: for each block `contents_count` pieces of its contents and `payload_count` of
// its payload.
__kernel void reduce_pieces(__global const Job *jobs, __global const Result *results, __global const uint *contents,
    __global const uint *payload, __global uint *crc_pieces, uint blocks, uint slot, uint contents_count,
    uint payload_count, uint decoding) {
    SHARED uint rest[UNIT * COLUMNS];
    SHARED uint sums[COLUMNS];
    SHARED uint halves[128];
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
        len = min(jobs[block].content_len, slot);
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

    uint q[UNIT];
#pragma unroll
    for (uint k = 0; k < UNIT; k++) q[k] = 0;
    // A pointer, so that the compiler folds offsets into the loads. It cannot fold sums of 32 bits, which may wrap
    // around.
    __global const uint *own = data + lane;
    // The last unit may lack words, and the bytes after the last one are not part of the message.
    uint whole = (here - 1) / UNIT_WORDS;
    uint last = data[here - 1];
    if (start + here == words && (len & 3) != 0) last &= (1u << 8 * (len & 3)) - 1;
#pragma unroll 1
    for (uint unit = 0; unit < whole; unit++, own += UNIT_WORDS) {
#pragma unroll
        for (uint part = 0; part < UNIT; part += AHEAD) {
            // Load first, so that all loads run at once.
            uint w[AHEAD];
#pragma unroll
            for (uint k = 0; k < AHEAD; k++) w[k] = own[(part + k) * COLUMNS];
#pragma unroll
            for (uint k = 0; k < AHEAD; k++) DIVIDE(part + k, w[k]);
        }
    }
    uint left = here - whole * UNIT_WORDS;
#pragma unroll
    for (uint part = 0; part < UNIT; part += AHEAD) {
        uint w[AHEAD];
#pragma unroll
        for (uint k = 0; k < AHEAD; k++) {
            uint i = (part + k) * COLUMNS + lane;
            w[k] = i < left ? own[(part + k) * COLUMNS] : 0u;
            w[k] = i == left - 1 ? last : w[k];
        }
#pragma unroll
        for (uint k = 0; k < AHEAD; k++) DIVIDE(part + k, w[k]);
    }
#pragma unroll
    for (uint k = 0; k < UNIT; k++) {
        q[k] = remainder_word(q, k);
        rest[k * COLUMNS + lane] = q[k];
    }
    // The products of z with each bit of a word, and then with each half of a byte.
    sums[lane] = crc_multiply(1u << lane, CRC_WORDS_32);
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (uint i = 0; i < 4; i++) {
        uint nibble = 2 * i + (lane >> 4);
        uint entry = 0;
#pragma unroll
        for (uint bit = 0; bit < 4; bit++) entry ^= (lane >> bit & 1) != 0 ? sums[4 * nibble + bit] : 0u;
        halves[16 * nibble + (lane & 15)] = entry;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    uint s = 0;
#pragma unroll 4
    for (uint k = 0; k < UNIT; k++) s = times_z(halves, s) ^ rest[k * COLUMNS + lane];

    // Join the columns, half of them at a time.
    sums[lane] = s;
#define FOLD(half)                                                                                              \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                               \
    if (lane < half) sums[lane] = crc_multiply(sums[lane], CRC_WORDS_##half) ^ sums[lane + half];
    FOLD(16) FOLD(8) FOLD(4) FOLD(2) FOLD(1)
#undef FOLD
    if (lane == 0) crc_pieces[group] = sums[0];
}

// The exponent of the power of x to multiply by, for a piece of words from word `start` on. The message's last bit
// counts as x^32. The piece counts as its full number of units, and the remainder as one more.
inline uint exponent(uint len, uint start) {
    uint words = (len + 3) / 4;
    uint units = (min(words - start, PIECE_WORDS) + UNIT_WORDS - 1) / UNIT_WORDS + 1;
    int bits = (int)(8 * len) - (int)(32 * (start + UNIT_WORDS * units)) + 32;
    return bits < 0 ? (uint)bits + CRC_ORDER : (uint)bits;
}

// Joins the pieces of a block into its checksums. One workgroup per block: its first half handles the contents, its
// second half the payload.
__kernel void sum_pieces(__global const Job *jobs, __global const uint *crc_pieces, __global Result *results, uint blocks,
    uint slot, uint contents_count, uint payload_count, uint decoding) {
    SHARED uint sums[THREADS];
    uint lane = (uint)get_local_id(0);
    uint block = (uint)get_group_id(0);
    if (block >= blocks) return;
    bool of_payload = lane >= THREADS / 2;
    __global const uint *pieces =
        crc_pieces + (ulong)block * (contents_count + payload_count) + (of_payload ? contents_count : 0u);
    uint len = of_payload ? payload_len(jobs, results, block, slot, decoding) : min(jobs[block].content_len, slot);
    uint count = (len + 4 * PIECE_WORDS - 1) / (4 * PIECE_WORDS);
    uint sum = 0;
    for (uint p = lane % (THREADS / 2); p <= count; p += THREADS / 2) {
        // A CRC's register begins as all ones, which counts as one more piece.
        uint piece = p < count ? pieces[p] : 0xffffffffu;
        sum ^= crc_multiply(piece, crc_power(p < count ? exponent(len, p * PIECE_WORDS) : 8 * len));
    }
    sums[lane] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lane % (THREADS / 2) == 0) {
        sum = 0xffffffffu;
        for (uint j = 0; j < THREADS / 2; j++) sum ^= sums[lane + j];
        if (of_payload) results[block].payload_crc = sum;
        else results[block].content_crc = sum;
    }
}
