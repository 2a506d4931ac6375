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

const PIECE_WORDS = 1u << (PIECE_LOG - 2u);

struct Job {
    contents_len: u32,
    payload_len: u32,
    payload_start: u32,
    reserved: array<u32, 5>,
}

struct Result {
    status: u32,
    payload_len: u32,
    contents_crc: u32,
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

var<workgroup> table: array<u32, 128u * COPIES>;
var<workgroup> sums: array<u32, THREADS>;

// A row further. `column` is that of the work item's copy of the table.
fn step_row(column: u32, s: u32) -> u32 {
    return table[(s & 15u) * COPIES + column]
        ^ table[16u * COPIES + (s >> 4u & 15u) * COPIES + column]
        ^ table[32u * COPIES + (s >> 8u & 15u) * COPIES + column]
        ^ table[48u * COPIES + (s >> 12u & 15u) * COPIES + column]
        ^ table[64u * COPIES + (s >> 16u & 15u) * COPIES + column]
        ^ table[80u * COPIES + (s >> 20u & 15u) * COPIES + column]
        ^ table[96u * COPIES + (s >> 24u & 15u) * COPIES + column]
        ^ table[112u * COPIES + (s >> 28u) * COPIES + column];
}

// Bytes of a payload of which its job and its result say this.
fn payload_len(job: u32, status: u32, result: u32) -> u32 {
    let len = select(select(0u, result, status == 0u), job, args.decoding != 0u);
    return min(len, args.slot + 256u);
}

// Where the payload of block `block` begins, in words.
fn payload_start(job: u32, block: u32) -> u32 {
    let room = (args.slot + 256u) / 4u;
    // Hostile or not, no payload reaches beyond the buffer.
    let last = (args.blocks - 1u) * room;
    return select(block * room, min(min(job, 0x3fffffffu) * 4u, last), args.decoding != 0u);
}

@group(0) @binding(0) var<storage, read> jobs: array<Job>;
@group(0) @binding(1) var<storage, read> results: array<Result>;
@group(0) @binding(2) var<storage, read> contents: array<u32>;
@group(0) @binding(3) var<storage, read> payload: array<u32>;
@group(0) @binding(4) var<storage, read_write> crc_pieces: array<u32>;

fn load(is_payload: bool, at: u32) -> u32 {
    if is_payload {
        return payload[at];
    }
    return contents[at];
}

// The remainder of each piece: for each block `contents_count` pieces of its contents and `payload_count` of its payload.
@compute @workgroup_size(THREADS)
fn reduce_pieces(
    @builtin(local_invocation_index) lane: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    let count = args.contents_count + args.payload_count;
    let group = wg.y * wgs.x + wg.x;
    let block = group / count;
    var piece = group % count;
    if block >= args.blocks {
        return;
    }

    let is_payload = piece >= args.contents_count;
    var data = block * (args.slot / 4u);
    var len = min(jobs[block].contents_len, args.slot);
    if is_payload {
        piece -= args.contents_count;
        data = payload_start(jobs[block].payload_start, block);
        len = payload_len(jobs[block].payload_len, results[block].status, results[block].payload_len);
    }
    let words = (len + 3u) / 4u;
    let start = min(piece * PIECE_WORDS, words);
    let here = min(words - start, PIECE_WORDS);
    data += start;
    if lane == 0u {
        sums[0] = here;
    }
    if workgroupUniformLoad(&sums[0]) == 0u {
        return;
    }

    if lane < 128u {
        // For 4 bits, where they stand in a word.
        let entry = crc_multiply((lane & 15u) << ((lane >> 4u) * 4u), CRC_WORDS_256);
        // Not all work items to the same bank at once.
        for (var c = 0u; c < COPIES; c++) {
            table[lane * COPIES + (lane + c) % COPIES] = entry;
        }
    }
    workgroupBarrier();

    let rows = (here + THREADS - 1u) / THREADS;
    let column = lane % COPIES;
    var s = 0u;
    var i = lane;
    var whole = rows - 1u;
    // Loads first, so that they are under way together.
    for (; whole >= 4u; whole -= 4u) {
        let w0 = load(is_payload, data + i);
        let w1 = load(is_payload, data + i + THREADS);
        let w2 = load(is_payload, data + i + 2u * THREADS);
        let w3 = load(is_payload, data + i + 3u * THREADS);
        s = step_row(column, s) ^ w0;
        s = step_row(column, s) ^ w1;
        s = step_row(column, s) ^ w2;
        s = step_row(column, s) ^ w3;
        i += 4u * THREADS;
    }
    for (; whole > 0u; whole--) {
        s = step_row(column, s) ^ load(is_payload, data + i);
        i += THREADS;
    }
    var last = 0u;
    if i < here {
        last = load(is_payload, data + i);
        // What is behind the last byte is not part of the message.
        if start + i == words - 1u && (len & 3u) != 0u {
            last &= (1u << (8u * (len & 3u))) - 1u;
        }
    }
    s = step_row(column, s) ^ last;

    // The columns together, half of them at a time.
    sums[lane] = s;
    fold(lane, 128u, CRC_WORDS_128);
    fold(lane, 64u, CRC_WORDS_64);
    fold(lane, 32u, CRC_WORDS_32);
    fold(lane, 16u, CRC_WORDS_16);
    fold(lane, 8u, CRC_WORDS_8);
    fold(lane, 4u, CRC_WORDS_4);
    fold(lane, 2u, CRC_WORDS_2);
    fold(lane, 1u, CRC_WORDS_1);
    if lane == 0u {
        crc_pieces[group] = sums[0];
    }
}

fn fold(lane: u32, half: u32, words: u32) {
    workgroupBarrier();
    if lane < half {
        sums[lane] = crc_multiply(sums[lane], words) ^ sums[lane + half];
    }
}

// The power of x that the piece from word `start` on is to be multiplied by. The message's last bit counts as x^32, and the
// piece is as long as all its rows.
fn weight(len: u32, start: u32) -> u32 {
    let words = (len + 3u) / 4u;
    let rows = (min(words - start, PIECE_WORDS) + 255u) / 256u;
    let bits = i32(8u * len) - i32(32u * (start + 256u * rows)) + 32;
    return crc_power(select(u32(bits), bitcast<u32>(bits) + CRC_ORDER, bits < 0));
}

@group(0) @binding(1) var<storage, read> reduced: array<u32>;
@group(0) @binding(2) var<storage, read_write> summed: array<Result>;

var<workgroup> both: array<u32, 2u * THREADS>;

// A workgroup for each block: the checksums from the pieces.
@compute @workgroup_size(THREADS)
fn sum_pieces(
    @builtin(local_invocation_index) lane: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    let block = wg.y * wgs.x + wg.x;
    if block >= args.blocks {
        return;
    }
    var pieces = block * (args.contents_count + args.payload_count);
    for (var which = 0u; which < 2u; which++) {
        var len = min(jobs[block].contents_len, args.slot);
        if which == 1u {
            len = payload_len(jobs[block].payload_len, summed[block].status, summed[block].payload_len);
        }
        let count = (len + 4u * PIECE_WORDS - 1u) / (4u * PIECE_WORDS);
        var sum = 0u;
        for (var p = lane; p < count; p += THREADS) {
            sum ^= crc_multiply(reduced[pieces + p], weight(len, p * PIECE_WORDS));
        }
        // The register begins as all ones, which is one more piece.
        if lane == THREADS - 1u {
            sum ^= crc_multiply(0xffffffffu, crc_power(8u * len));
        }
        both[which * THREADS + lane] = sum;
        pieces += args.contents_count;
    }
    workgroupBarrier();
    if lane < 2u {
        var sum = 0xffffffffu;
        for (var j = 0u; j < THREADS; j++) {
            sum ^= both[lane * THREADS + j];
        }
        if lane == 0u {
            summed[block].contents_crc = sum;
        } else {
            summed[block].payload_crc = sum;
        }
    }
}
