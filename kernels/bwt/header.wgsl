// BWT payloads: reads the fixed fields, the list and the start rows, and finds the order in which to decode segments.
//
// @pz_cost {
//   threads: 32
//   passes: 2
//   buffers: jobs=32, payload=N+256, results=32,
//            bwt_blocks=512, bwt_state=3840, bwt_rows=N/64,
//            bwt_segments=N/1024*20+20
//   local_mem: 2304
//   note: a team for each block
// }
// @pz_import team
// @pz_import bwt

struct Args {
    slot: u32,
    blocks: u32,
}

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> payload: array<u32>;
@group(0) @binding(2) var<storage, read_write> results: array<u32>;
@group(0) @binding(3) var<storage, read_write> bwt_blocks: array<u32>;
@group(0) @binding(4) var<storage, read_write> bwt_state: array<u32>;
@group(0) @binding(5) var<storage, read_write> bwt_rows: array<u32>;
var<immediate> args: Args;

var<private> payload_at: u32; // the payload, in words

var<workgroup> used: array<atomic<u32>, 8>;
var<workgroup> list: array<u32, 256>;

fn byte_of(at: u32) -> u32 {
    return (payload[payload_at + (at >> 2u)] >> (8u * (at & 3u))) & 255u;
}

// Reads the fixed fields, the list and the rows, and finds the parts. Sets the status of each block.
// @pz_entry
fn header(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let block = workgroup_index;
    if block >= args.blocks {
        return;
    }
    let slot = args.slot;
    let info = block * BLOCK_WORDS;
    let n = jobs[block * JOB_WORDS];
    let size = jobs[block * JOB_WORDS + 1u];
    let payload_start = jobs[block * JOB_WORDS + 2u];
    payload_at = payload_start * 4u;

    var bad = select(0u, 1u, n == 0u || n > slot || size < 3u);
    var first = 0u;
    var sets = 1u;
    var symbols = 1u;
    if bad == 0u {
        first = byte_of(0u);
        sets = byte_of(1u) + 1u;
        symbols = byte_of(2u) + 1u;
    }
    let segment_log = 10u + (first & 15u);
    let start_log = 8u + (first >> 4u);
    if segment_log > 16u {
        bad = 2u;
    }
    if sets > MAX_SETS {
        bad = 3u;
    }
    if bad == 0u && 3u + symbols > size {
        bad = 4u;
    }

    // The list: the listed symbols, each once, then the missing ones in order.
    if lane < 8u {
        atomicStore(&used[lane], 0u);
    }
    team_sync();
    var twice = false;
    if bad == 0u {
        for (var i = lane; i < symbols; i += 32u) {
            let symbol = byte_of(3u + i);
            let bit = 1u << (symbol & 31u);
            let before = atomicOr(&used[symbol >> 5u], bit);
            twice = twice || (before & bit) != 0u;
            list[i] = symbol;
        }
    }
    if team_any(twice) {
        bad = 5u;
    }
    team_sync();
    if bad == 0u {
        var place = symbols;
        for (var word = 0u; word < 8u; word++) {
            let others = ~atomicLoad(&used[word]);
            if ((others >> lane) & 1u) != 0u {
                list[place + countOneBits(others & team_before())] = word * 32u + lane;
            }
            place += countOneBits(others);
        }
    }
    team_sync();
    if bad == 0u {
        for (var i = lane; i < 64u; i += 32u) {
            bwt_blocks[info + BLOCK_LIST + i] = list[4u * i] | (list[4u * i + 1u] << 8u)
                | (list[4u * i + 2u] << 16u) | (list[4u * i + 3u] << 24u);
        }
    }

    // Rows.
    var at = 3u + symbols;
    var starts = 0u;
    var width = 0u;
    if bad == 0u {
        starts = ((n - 1u) >> start_log) + 1u;
        width = 32u - countLeadingZeros(n - 1u);
    }
    let packed_end = at + (starts * width + 7u) / 8u;
    if bad == 0u && packed_end + 9u > size {
        bad = 6u;
    }
    var outside = false;
    if bad == 0u {
        for (var i = lane; i < starts; i += 32u) {
            let bit = i * width;
            let p = at + (bit >> 3u);
            var field = 0u;
            for (var k = 0u; k < 4u; k++) {
                if p + k < packed_end {
                    field |= byte_of(p + k) << (8u * k);
                }
            }
            let row = (field >> (bit & 7u)) & ((1u << width) - 1u);
            outside = outside || row >= n;
            bwt_rows[block * (slot / 256u) + i] = row + 1u;
        }
        let filled = (starts * width) & 7u;
        if filled != 0u {
            outside = outside || (byte_of(packed_end - 1u) >> filled) != 0u;
        }
    }
    if team_any(outside) {
        bad = 7u;
    }

    // The parts, followed by zeros up to the words.
    at = packed_end + 9u;
    for (var part = 0u; part < 3u; part++) {
        var len = 0u;
        if bad == 0u {
            for (var k = 0u; k < 3u; k++) {
                len |= byte_of(packed_end + 3u * part + k) << (8u * k);
            }
            if len > size - at {
                bad = 8u;
                len = 0u;
            }
        }
        if lane == 0u {
            bwt_state[(block * 3u + part) * STATE_WORDS] = 0u;
            bwt_blocks[info + BLOCK_PARTS + 2u * part] = at;
            bwt_blocks[info + BLOCK_PARTS + 2u * part + 1u] = len;
        }
        at += len;
    }
    let words_at = (at + 3u) & ~3u;
    if bad == 0u && words_at > size {
        bad = 9u;
    }
    if bad == 0u {
        for (var p = at; p < words_at; p++) {
            if byte_of(p) != 0u {
                bad = 10u;
            }
        }
    }
    if lane == 0u {
        bwt_blocks[info] = n;
        bwt_blocks[info + BLOCK_SEGMENTS] = 0u;
        bwt_blocks[info + BLOCK_SETS] = sets;
        bwt_blocks[info + BLOCK_START_LOG] = start_log;
        bwt_blocks[info + BLOCK_STARTS] = starts;
        bwt_blocks[info + BLOCK_SEGMENT_LOG] = segment_log;
        bwt_blocks[info + BLOCK_WORDS_AT] = words_at / 4u;
        bwt_blocks[info + BLOCK_PAYLOAD] = payload_start;
        results[block * RESULT_WORDS] = bad;
    }
    if lane < MAX_SETS {
        bwt_blocks[info + BLOCK_SET_SIZES + lane] = 0u;
    }
}

@group(0) @binding(0) var<storage, read> arrange_results: array<u32>;
@group(0) @binding(1) var<storage, read> arrange_blocks: array<u32>;
@group(0) @binding(2) var<storage, read_write> arrange_segments: array<u32>;

// Classes of segments by the logarithm of their number of words, in quarters.
const LENGTHS = 64u;
var<workgroup> next: array<atomic<u32>, MAX_SETS * LENGTHS>;

// A segment's set and length class, long segments first.
fn kind_of(packed: u32) -> u32 {
    let words = max(packed & 0xffffu, 4u);
    let log = firstLeadingBit(words);
    let length = log * 4u + ((words >> (log - 2u)) & 3u);
    return min(packed >> 16u, MAX_SETS - 1u) * LENGTHS + (LENGTHS - 1u) - length;
}

// Finds the order in which to decode segments: by table set, with segments of about equal length together, so that the
// lanes of a team finish together. The order of segments of one kind is unspecified and irrelevant.
// @pz_entry
fn arrange(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let block = workgroup_index;
    if block >= args.blocks {
        return;
    }
    let info = block * BLOCK_WORDS;
    let segments = segments_at(block, args.slot);
    let order = segments + order_at(args.slot);
    let is_good = arrange_results[block * RESULT_WORDS] == 0u;
    let count = team_uniform(select(0u, arrange_blocks[info + BLOCK_SEGMENTS], is_good));
    for (var i = lane; i < MAX_SETS * LENGTHS; i += 32u) {
        atomicStore(&next[i], 0u);
    }
    team_sync();
    for (var segment = lane; segment < count; segment += 32u) {
        atomicAdd(&next[kind_of(arrange_segments[segments + segment * SEGMENT_WORDS + 3u])], 1u);
    }
    team_sync();
    var before = 0u;
    for (var i = 0u; i < MAX_SETS * LENGTHS; i += 32u) {
        let own = atomicLoad(&next[i + lane]);
        let upto = team_scan(own);
        atomicStore(&next[i + lane], before + upto - own);
        before += team_broadcast(upto, 31u);
    }
    team_sync();
    for (var segment = lane; segment < count; segment += 32u) {
        let place = atomicAdd(&next[kind_of(arrange_segments[segments + segment * SEGMENT_WORDS + 3u])], 1u);
        arrange_segments[order + min(place, count - 1u)] = segment;
    }
}
