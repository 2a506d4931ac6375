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
const UNIT = 40u;
const COLUMNS = 32u;
const UNIT_WORDS = UNIT * COLUMNS;
const PIECE_WORDS = PIECE_UNITS * UNIT_WORDS;

struct Job {
    content_len: u32,
    payload_len: u32,
    payload_start: u32,
    reserved: array<u32, 5>,
}

struct Result {
    status: u32,
    payload_len: u32,
    content_crc: u32,
    payload_crc: u32,
    reserved: array<u32, 4>,
}

struct Args {
    blocks: u32,
    slot: u32,
    contents_count: u32,
    payload_count: u32,
    decoding: u32,
}

var<immediate> args: Args;

var<workgroup> rest: array<u32, UNIT_WORDS>;
var<workgroup> sums: array<u32, COLUMNS>;
var<workgroup> halves: array<u32, 128>;

// A word multiplied by z, by a table for each half of a byte.
fn times_z(s: u32) -> u32 {
    return halves[s & 15u] ^ halves[16u + ((s >> 4u) & 15u)]
        ^ halves[32u + ((s >> 8u) & 15u)] ^ halves[48u + ((s >> 12u) & 15u)]
        ^ halves[64u + ((s >> 16u) & 15u)] ^ halves[80u + ((s >> 20u) & 15u)]
        ^ halves[96u + ((s >> 24u) & 15u)] ^ halves[112u + (s >> 28u)];
}

// The words of the quotient, four of its rows to a vector. Not an array, so that they stay in registers.
var<private> q0: vec4<u32>;
var<private> q1: vec4<u32>;
var<private> q2: vec4<u32>;
var<private> q3: vec4<u32>;
var<private> q4: vec4<u32>;
var<private> q5: vec4<u32>;
var<private> q6: vec4<u32>;
var<private> q7: vec4<u32>;
var<private> q8: vec4<u32>;
var<private> q9: vec4<u32>;

// Half a unit of words: four rows to a vector.
alias Half = array<vec4<u32>, 5>;

// Divides the first half of a unit. Until it is computed, each word of the quotient holds the one UNIT rows before
// it. The distances to the others are the degree of Q minus the degrees of its other terms: 39, 33, 27, 20, 13, 10,
// 7, 5, 4 and 2.
fn divide_first(w: Half) {
    q0.x ^= w[0].x ^ q0.y ^ q1.w ^ q3.y ^ q5.x ^ q6.w ^ q7.z ^ q8.y ^ q8.w ^ q9.x ^ q9.z;
    q0.y ^= w[0].y ^ q0.z ^ q2.x ^ q3.z ^ q5.y ^ q7.x ^ q7.w ^ q8.z ^ q9.x ^ q9.y ^ q9.w;
    q0.z ^= w[0].z ^ q0.w ^ q2.y ^ q3.w ^ q5.z ^ q7.y ^ q8.x ^ q8.w ^ q9.y ^ q9.z ^ q0.x;
    q0.w ^= w[0].w ^ q1.x ^ q2.z ^ q4.x ^ q5.w ^ q7.z ^ q8.y ^ q9.x ^ q9.z ^ q9.w ^ q0.y;
    q1.x ^= w[1].x ^ q1.y ^ q2.w ^ q4.y ^ q6.x ^ q7.w ^ q8.z ^ q9.y ^ q9.w ^ q0.x ^ q0.z;
    q1.y ^= w[1].y ^ q1.z ^ q3.x ^ q4.z ^ q6.y ^ q8.x ^ q8.w ^ q9.z ^ q0.x ^ q0.y ^ q0.w;
    q1.z ^= w[1].z ^ q1.w ^ q3.y ^ q4.w ^ q6.z ^ q8.y ^ q9.x ^ q9.w ^ q0.y ^ q0.z ^ q1.x;
    q1.w ^= w[1].w ^ q2.x ^ q3.z ^ q5.x ^ q6.w ^ q8.z ^ q9.y ^ q0.x ^ q0.z ^ q0.w ^ q1.y;
    q2.x ^= w[2].x ^ q2.y ^ q3.w ^ q5.y ^ q7.x ^ q8.w ^ q9.z ^ q0.y ^ q0.w ^ q1.x ^ q1.z;
    q2.y ^= w[2].y ^ q2.z ^ q4.x ^ q5.z ^ q7.y ^ q9.x ^ q9.w ^ q0.z ^ q1.x ^ q1.y ^ q1.w;
    q2.z ^= w[2].z ^ q2.w ^ q4.y ^ q5.w ^ q7.z ^ q9.y ^ q0.x ^ q0.w ^ q1.y ^ q1.z ^ q2.x;
    q2.w ^= w[2].w ^ q3.x ^ q4.z ^ q6.x ^ q7.w ^ q9.z ^ q0.y ^ q1.x ^ q1.z ^ q1.w ^ q2.y;
    q3.x ^= w[3].x ^ q3.y ^ q4.w ^ q6.y ^ q8.x ^ q9.w ^ q0.z ^ q1.y ^ q1.w ^ q2.x ^ q2.z;
    q3.y ^= w[3].y ^ q3.z ^ q5.x ^ q6.z ^ q8.y ^ q0.x ^ q0.w ^ q1.z ^ q2.x ^ q2.y ^ q2.w;
    q3.z ^= w[3].z ^ q3.w ^ q5.y ^ q6.w ^ q8.z ^ q0.y ^ q1.x ^ q1.w ^ q2.y ^ q2.z ^ q3.x;
    q3.w ^= w[3].w ^ q4.x ^ q5.z ^ q7.x ^ q8.w ^ q0.z ^ q1.y ^ q2.x ^ q2.z ^ q2.w ^ q3.y;
    q4.x ^= w[4].x ^ q4.y ^ q5.w ^ q7.y ^ q9.x ^ q0.w ^ q1.z ^ q2.y ^ q2.w ^ q3.x ^ q3.z;
    q4.y ^= w[4].y ^ q4.z ^ q6.x ^ q7.z ^ q9.y ^ q1.x ^ q1.w ^ q2.z ^ q3.x ^ q3.y ^ q3.w;
    q4.z ^= w[4].z ^ q4.w ^ q6.y ^ q7.w ^ q9.z ^ q1.y ^ q2.x ^ q2.w ^ q3.y ^ q3.z ^ q4.x;
    q4.w ^= w[4].w ^ q5.x ^ q6.z ^ q8.x ^ q9.w ^ q1.z ^ q2.y ^ q3.x ^ q3.z ^ q3.w ^ q4.y;
}

// The same for the second half.
fn divide_second(w: Half) {
    q5.x ^= w[0].x ^ q5.y ^ q6.w ^ q8.y ^ q0.x ^ q1.w ^ q2.z ^ q3.y ^ q3.w ^ q4.x ^ q4.z;
    q5.y ^= w[0].y ^ q5.z ^ q7.x ^ q8.z ^ q0.y ^ q2.x ^ q2.w ^ q3.z ^ q4.x ^ q4.y ^ q4.w;
    q5.z ^= w[0].z ^ q5.w ^ q7.y ^ q8.w ^ q0.z ^ q2.y ^ q3.x ^ q3.w ^ q4.y ^ q4.z ^ q5.x;
    q5.w ^= w[0].w ^ q6.x ^ q7.z ^ q9.x ^ q0.w ^ q2.z ^ q3.y ^ q4.x ^ q4.z ^ q4.w ^ q5.y;
    q6.x ^= w[1].x ^ q6.y ^ q7.w ^ q9.y ^ q1.x ^ q2.w ^ q3.z ^ q4.y ^ q4.w ^ q5.x ^ q5.z;
    q6.y ^= w[1].y ^ q6.z ^ q8.x ^ q9.z ^ q1.y ^ q3.x ^ q3.w ^ q4.z ^ q5.x ^ q5.y ^ q5.w;
    q6.z ^= w[1].z ^ q6.w ^ q8.y ^ q9.w ^ q1.z ^ q3.y ^ q4.x ^ q4.w ^ q5.y ^ q5.z ^ q6.x;
    q6.w ^= w[1].w ^ q7.x ^ q8.z ^ q0.x ^ q1.w ^ q3.z ^ q4.y ^ q5.x ^ q5.z ^ q5.w ^ q6.y;
    q7.x ^= w[2].x ^ q7.y ^ q8.w ^ q0.y ^ q2.x ^ q3.w ^ q4.z ^ q5.y ^ q5.w ^ q6.x ^ q6.z;
    q7.y ^= w[2].y ^ q7.z ^ q9.x ^ q0.z ^ q2.y ^ q4.x ^ q4.w ^ q5.z ^ q6.x ^ q6.y ^ q6.w;
    q7.z ^= w[2].z ^ q7.w ^ q9.y ^ q0.w ^ q2.z ^ q4.y ^ q5.x ^ q5.w ^ q6.y ^ q6.z ^ q7.x;
    q7.w ^= w[2].w ^ q8.x ^ q9.z ^ q1.x ^ q2.w ^ q4.z ^ q5.y ^ q6.x ^ q6.z ^ q6.w ^ q7.y;
    q8.x ^= w[3].x ^ q8.y ^ q9.w ^ q1.y ^ q3.x ^ q4.w ^ q5.z ^ q6.y ^ q6.w ^ q7.x ^ q7.z;
    q8.y ^= w[3].y ^ q8.z ^ q0.x ^ q1.z ^ q3.y ^ q5.x ^ q5.w ^ q6.z ^ q7.x ^ q7.y ^ q7.w;
    q8.z ^= w[3].z ^ q8.w ^ q0.y ^ q1.w ^ q3.z ^ q5.y ^ q6.x ^ q6.w ^ q7.y ^ q7.z ^ q8.x;
    q8.w ^= w[3].w ^ q9.x ^ q0.z ^ q2.x ^ q3.w ^ q5.z ^ q6.y ^ q7.x ^ q7.z ^ q7.w ^ q8.y;
    q9.x ^= w[4].x ^ q9.y ^ q0.w ^ q2.y ^ q4.x ^ q5.w ^ q6.z ^ q7.y ^ q7.w ^ q8.x ^ q8.z;
    q9.y ^= w[4].y ^ q9.z ^ q1.x ^ q2.z ^ q4.y ^ q6.x ^ q6.w ^ q7.z ^ q8.x ^ q8.y ^ q8.w;
    q9.z ^= w[4].z ^ q9.w ^ q1.y ^ q2.w ^ q4.z ^ q6.y ^ q7.x ^ q7.w ^ q8.y ^ q8.z ^ q9.x;
    q9.w ^= w[4].w ^ q0.x ^ q1.z ^ q3.x ^ q4.w ^ q6.z ^ q7.y ^ q8.x ^ q8.z ^ q8.w ^ q9.y;
}

// Turns the quotient into the remainder: word k is the result if the quotient's words from the end on are 0.
fn find_remainder() {
    q0.x ^= q0.y ^ q1.w ^ q3.y ^ q5.x ^ q6.w ^ q7.z ^ q8.y ^ q8.w ^ q9.x ^ q9.z;
    q0.y ^= q0.z ^ q2.x ^ q3.z ^ q5.y ^ q7.x ^ q7.w ^ q8.z ^ q9.x ^ q9.y ^ q9.w;
    q0.z ^= q0.w ^ q2.y ^ q3.w ^ q5.z ^ q7.y ^ q8.x ^ q8.w ^ q9.y ^ q9.z;
    q0.w ^= q1.x ^ q2.z ^ q4.x ^ q5.w ^ q7.z ^ q8.y ^ q9.x ^ q9.z ^ q9.w;
    q1.x ^= q1.y ^ q2.w ^ q4.y ^ q6.x ^ q7.w ^ q8.z ^ q9.y ^ q9.w;
    q1.y ^= q1.z ^ q3.x ^ q4.z ^ q6.y ^ q8.x ^ q8.w ^ q9.z;
    q1.z ^= q1.w ^ q3.y ^ q4.w ^ q6.z ^ q8.y ^ q9.x ^ q9.w;
    q1.w ^= q2.x ^ q3.z ^ q5.x ^ q6.w ^ q8.z ^ q9.y;
    q2.x ^= q2.y ^ q3.w ^ q5.y ^ q7.x ^ q8.w ^ q9.z;
    q2.y ^= q2.z ^ q4.x ^ q5.z ^ q7.y ^ q9.x ^ q9.w;
    q2.z ^= q2.w ^ q4.y ^ q5.w ^ q7.z ^ q9.y;
    q2.w ^= q3.x ^ q4.z ^ q6.x ^ q7.w ^ q9.z;
    q3.x ^= q3.y ^ q4.w ^ q6.y ^ q8.x ^ q9.w;
    q3.y ^= q3.z ^ q5.x ^ q6.z ^ q8.y;
    q3.z ^= q3.w ^ q5.y ^ q6.w ^ q8.z;
    q3.w ^= q4.x ^ q5.z ^ q7.x ^ q8.w;
    q4.x ^= q4.y ^ q5.w ^ q7.y ^ q9.x;
    q4.y ^= q4.z ^ q6.x ^ q7.z ^ q9.y;
    q4.z ^= q4.w ^ q6.y ^ q7.w ^ q9.z;
    q4.w ^= q5.x ^ q6.z ^ q8.x ^ q9.w;
    q5.x ^= q5.y ^ q6.w ^ q8.y;
    q5.y ^= q5.z ^ q7.x ^ q8.z;
    q5.z ^= q5.w ^ q7.y ^ q8.w;
    q5.w ^= q6.x ^ q7.z ^ q9.x;
    q6.x ^= q6.y ^ q7.w ^ q9.y;
    q6.y ^= q6.z ^ q8.x ^ q9.z;
    q6.z ^= q6.w ^ q8.y ^ q9.w;
    q6.w ^= q7.x ^ q8.z;
    q7.x ^= q7.y ^ q8.w;
    q7.y ^= q7.z ^ q9.x;
    q7.z ^= q7.w ^ q9.y;
    q7.w ^= q8.x ^ q9.z;
    q8.x ^= q8.y ^ q9.w;
    q8.y ^= q8.z;
    q8.z ^= q8.w;
    q8.w ^= q9.x;
    q9.x ^= q9.y;
    q9.y ^= q9.z;
    q9.z ^= q9.w;
}

// Length in bytes of a payload with this job and this result.
fn payload_len(job: u32, status: u32, result: u32) -> u32 {
    let len = select(select(0u, result, status == 0u), job, args.decoding != 0u);
    return min(len, args.slot + 256u);
}

// Where the payload of block `block` begins, in words.
fn payload_start(job: u32, block: u32) -> u32 {
    let room = (args.slot + 256u) / 4u;
    // Even for an invalid job, the payload ends within the buffer.
    let last = (args.blocks - 1u) * room;
    return select(block * room, min(min(job, 0x3fffffffu) * 4u, last), args.decoding != 0u);
}

@group(0) @binding(0) var<storage, read> jobs: array<Job>;
@group(0) @binding(1) var<storage, read> results: array<Result>;
@group(0) @binding(2) var<storage, read> contents: array<u32>;
@group(0) @binding(3) var<storage, read> payload: array<u32>;
@group(0) @binding(4) var<storage, read_write> crc_pieces: array<u32>;

// The words of a half's column from `at` on.
fn load_half(is_payload: bool, at: u32) -> Half {
    if is_payload {
        return Half(
            vec4(payload[at], payload[at + 32u], payload[at + 64u], payload[at + 96u]),
            vec4(payload[at + 128u], payload[at + 160u], payload[at + 192u], payload[at + 224u]),
            vec4(payload[at + 256u], payload[at + 288u], payload[at + 320u], payload[at + 352u]),
            vec4(payload[at + 384u], payload[at + 416u], payload[at + 448u], payload[at + 480u]),
            vec4(payload[at + 512u], payload[at + 544u], payload[at + 576u], payload[at + 608u]),
        );
    }
    return Half(
        vec4(contents[at], contents[at + 32u], contents[at + 64u], contents[at + 96u]),
        vec4(contents[at + 128u], contents[at + 160u], contents[at + 192u], contents[at + 224u]),
        vec4(contents[at + 256u], contents[at + 288u], contents[at + 320u], contents[at + 352u]),
        vec4(contents[at + 384u], contents[at + 416u], contents[at + 448u], contents[at + 480u]),
        vec4(contents[at + 512u], contents[at + 544u], contents[at + 576u], contents[at + 608u]),
    );
}

fn load_word(is_payload: bool, at: u32) -> u32 {
    if is_payload {
        return payload[at];
    }
    return contents[at];
}

// The words of a half's column from `at` on. The piece begins at word `data`, and its last word has number `top`; each
// word after that reads as the last one.
fn load_clamped(is_payload: bool, data: u32, at: u32, top: u32) -> Half {
    if is_payload {
        return Half(
            vec4(
                payload[data + min(at, top)], payload[data + min(at + 32u, top)],
                payload[data + min(at + 64u, top)], payload[data + min(at + 96u, top)],
            ),
            vec4(
                payload[data + min(at + 128u, top)], payload[data + min(at + 160u, top)],
                payload[data + min(at + 192u, top)], payload[data + min(at + 224u, top)],
            ),
            vec4(
                payload[data + min(at + 256u, top)], payload[data + min(at + 288u, top)],
                payload[data + min(at + 320u, top)], payload[data + min(at + 352u, top)],
            ),
            vec4(
                payload[data + min(at + 384u, top)], payload[data + min(at + 416u, top)],
                payload[data + min(at + 448u, top)], payload[data + min(at + 480u, top)],
            ),
            vec4(
                payload[data + min(at + 512u, top)], payload[data + min(at + 544u, top)],
                payload[data + min(at + 576u, top)], payload[data + min(at + 608u, top)],
            ),
        );
    }
    return Half(
        vec4(
            contents[data + min(at, top)], contents[data + min(at + 32u, top)],
            contents[data + min(at + 64u, top)], contents[data + min(at + 96u, top)],
        ),
        vec4(
            contents[data + min(at + 128u, top)], contents[data + min(at + 160u, top)],
            contents[data + min(at + 192u, top)], contents[data + min(at + 224u, top)],
        ),
        vec4(
            contents[data + min(at + 256u, top)], contents[data + min(at + 288u, top)],
            contents[data + min(at + 320u, top)], contents[data + min(at + 352u, top)],
        ),
        vec4(
            contents[data + min(at + 384u, top)], contents[data + min(at + 416u, top)],
            contents[data + min(at + 448u, top)], contents[data + min(at + 480u, top)],
        ),
        vec4(
            contents[data + min(at + 512u, top)], contents[data + min(at + 544u, top)],
            contents[data + min(at + 576u, top)], contents[data + min(at + 608u, top)],
        ),
    );
}

// Replaces the last word by `last`, and the words after it by zeros.
fn with_end(rows: vec4<u32>, at: u32, top: u32, last: u32) -> vec4<u32> {
    let places = vec4(at) + vec4(0u, 32u, 64u, 96u);
    return select(select(rows, vec4(last), places == vec4(top)), vec4(0u), places > vec4(top));
}

// Loads half of a unit that is not full or holds the last word.
fn load_last(is_payload: bool, data: u32, at: u32, top: u32, last: u32) -> Half {
    let w = load_clamped(is_payload, data, at, top);
    return Half(
        with_end(w[0], at, top, last),
        with_end(w[1], at + 128u, top, last),
        with_end(w[2], at + 256u, top, last),
        with_end(w[3], at + 384u, top, last),
        with_end(w[4], at + 512u, top, last),
    );
}

// Computes the remainder of each piece: for each block `contents_count` pieces of its contents and `payload_count` of
// its payload.
// @pz_entry
fn reduce_pieces(local_index: u32, workgroup_index: u32) {
    let count = args.contents_count + args.payload_count;
    let block = workgroup_index / count;
    var piece = workgroup_index % count;
    if block >= args.blocks {
        return;
    }

    let is_payload = piece >= args.contents_count;
    var data = block * (args.slot / 4u);
    var len = min(jobs[block].content_len, args.slot);
    if is_payload {
        piece -= args.contents_count;
        data = payload_start(jobs[block].payload_start, block);
        len = payload_len(jobs[block].payload_len, results[block].status, results[block].payload_len);
    }
    let words = (len + 3u) / 4u;
    let start = min(piece * PIECE_WORDS, words);
    let here = min(words - start, PIECE_WORDS);
    data += start;
    if local_index == 0u {
        sums[0] = here;
    }
    if workgroupUniformLoad(&sums[0]) == 0u {
        return;
    }

    // Bytes after the last one are not part of the message.
    var last = load_word(is_payload, data + here - 1u);
    if start + here == words && (len & 3u) != 0u {
        last &= (1u << (8u * (len & 3u))) - 1u;
    }
    let whole = (here - 1u) / UNIT_WORDS;
    var i = local_index;
    for (var unit = 0u; unit < whole; unit++) {
        let first = load_half(is_payload, data + i);
        let second = load_half(is_payload, data + i + UNIT_WORDS / 2u);
        divide_first(first);
        divide_second(second);
        i += UNIT_WORDS;
    }
    let first_half = load_last(is_payload, data, i, here - 1u, last);
    let second_half = load_last(is_payload, data, i + UNIT_WORDS / 2u, here - 1u, last);
    divide_first(first_half);
    divide_second(second_half);
    find_remainder();
    rest[local_index] = q0.x;
    rest[32u + local_index] = q0.y;
    rest[64u + local_index] = q0.z;
    rest[96u + local_index] = q0.w;
    rest[128u + local_index] = q1.x;
    rest[160u + local_index] = q1.y;
    rest[192u + local_index] = q1.z;
    rest[224u + local_index] = q1.w;
    rest[256u + local_index] = q2.x;
    rest[288u + local_index] = q2.y;
    rest[320u + local_index] = q2.z;
    rest[352u + local_index] = q2.w;
    rest[384u + local_index] = q3.x;
    rest[416u + local_index] = q3.y;
    rest[448u + local_index] = q3.z;
    rest[480u + local_index] = q3.w;
    rest[512u + local_index] = q4.x;
    rest[544u + local_index] = q4.y;
    rest[576u + local_index] = q4.z;
    rest[608u + local_index] = q4.w;
    rest[640u + local_index] = q5.x;
    rest[672u + local_index] = q5.y;
    rest[704u + local_index] = q5.z;
    rest[736u + local_index] = q5.w;
    rest[768u + local_index] = q6.x;
    rest[800u + local_index] = q6.y;
    rest[832u + local_index] = q6.z;
    rest[864u + local_index] = q6.w;
    rest[896u + local_index] = q7.x;
    rest[928u + local_index] = q7.y;
    rest[960u + local_index] = q7.z;
    rest[992u + local_index] = q7.w;
    rest[1024u + local_index] = q8.x;
    rest[1056u + local_index] = q8.y;
    rest[1088u + local_index] = q8.z;
    rest[1120u + local_index] = q8.w;
    rest[1152u + local_index] = q9.x;
    rest[1184u + local_index] = q9.y;
    rest[1216u + local_index] = q9.z;
    rest[1248u + local_index] = q9.w;
    // The products of z with each bit of a word, and then with each half of a byte.
    sums[local_index] = crc_multiply(1u << local_index, CRC_WORDS_32);
    workgroupBarrier();
    for (var i = 0u; i < 4u; i++) {
        let half = 2u * i + (local_index >> 4u);
        let bits = vec4(sums[4u * half], sums[4u * half + 1u], sums[4u * half + 2u], sums[4u * half + 3u]);
        let own = select(vec4(0u), bits, (vec4(local_index) >> vec4(0u, 1u, 2u, 3u) & vec4(1u)) != vec4(0u));
        halves[16u * half + (local_index & 15u)] = own.x ^ own.y ^ own.z ^ own.w;
    }
    workgroupBarrier();
    var s = 0u;
    for (var k = 0u; k < UNIT; k++) {
        s = times_z(s) ^ rest[k * COLUMNS + local_index];
    }

    // Join the columns, half of them at a time.
    sums[local_index] = s;
    fold(local_index, 16u, CRC_WORDS_16);
    fold(local_index, 8u, CRC_WORDS_8);
    fold(local_index, 4u, CRC_WORDS_4);
    fold(local_index, 2u, CRC_WORDS_2);
    fold(local_index, 1u, CRC_WORDS_1);
    if local_index == 0u {
        crc_pieces[workgroup_index] = sums[0];
    }
}

fn fold(lane: u32, half: u32, words: u32) {
    workgroupBarrier();
    if lane < half {
        sums[lane] = crc_multiply(sums[lane], words) ^ sums[lane + half];
    }
}

// The exponent of the power of x to multiply by, for a piece of words from word `start` on. The message's last bit
// counts as x^32. The piece counts as its full number of units, and the remainder as one more.
fn exponent(len: u32, start: u32) -> u32 {
    let words = (len + 3u) / 4u;
    let units = (min(words - start, PIECE_WORDS) + UNIT_WORDS - 1u) / UNIT_WORDS + 1u;
    let bits = i32(8u * len) - i32(32u * (start + UNIT_WORDS * units)) + 32;
    return select(u32(bits), bitcast<u32>(bits) + CRC_ORDER, bits < 0);
}

@group(0) @binding(1) var<storage, read> reduced: array<u32>;
@group(0) @binding(2) var<storage, read_write> summed: array<Result>;

var<workgroup> both: array<u32, THREADS>;

// Joins the pieces of a block into its checksums. One workgroup per block: its first half handles the contents, its
// second half the payload.
// @pz_entry
fn sum_pieces(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index;
    if block >= args.blocks {
        return;
    }
    let of_payload = local_index >= THREADS / 2u;
    let pieces = block * (args.contents_count + args.payload_count) + select(0u, args.contents_count, of_payload);
    var len = min(jobs[block].content_len, args.slot);
    if of_payload {
        len = payload_len(jobs[block].payload_len, summed[block].status, summed[block].payload_len);
    }
    let count = (len + 4u * PIECE_WORDS - 1u) / (4u * PIECE_WORDS);
    var sum = 0u;
    for (var p = local_index % (THREADS / 2u); p <= count; p += THREADS / 2u) {
        // A CRC's register begins as all ones, which counts as one more piece.
        var piece = 0xffffffffu;
        var bits = 8u * len;
        if p < count {
            piece = reduced[pieces + p];
            bits = exponent(len, p * PIECE_WORDS);
        }
        sum ^= crc_multiply(piece, crc_power(bits));
    }
    both[local_index] = sum;
    workgroupBarrier();
    if local_index % (THREADS / 2u) == 0u {
        sum = 0xffffffffu;
        for (var j = 0u; j < THREADS / 2u; j++) {
            sum ^= both[local_index + j];
        }
        if of_payload {
            summed[block].payload_crc = sum;
        } else {
            summed[block].content_crc = sum;
        }
    }
}
