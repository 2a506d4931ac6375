// Counts the literals of groups. Each workgroup counts at most 32 KiB of a chunk's literals.
//
// @pz_cost {
//   threads: N/262144*2048
//   passes: 1
//   buffers: jobs=32, contents=N, payload=N+256, lz77_streams=N/65536*1024, lz77_counts=N/65536*3072
//   local_mem: 16384
// }
// @pz_import lz77_code

// Each counter has eight copies side by side, for different lanes, because equal symbols in neighbouring lanes are
// common and would contend.
const COPIES = 8u;
const PIECE_LOG = 15u;

struct Args {
    blocks: u32,
    slot: u32,
    chunk_log: u32,
    chunks_per_block: u32,
    literal_stride: u32,
    group_log: u32,
    chunk_stride: u32,
    count_stride: u32,
}
var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> literals: array<u32>;
@group(0) @binding(2) var<storage, read> chunks: array<u32>;
@group(0) @binding(3) var<storage, read_write> counts: array<atomic<u32>>;

var<workgroup> histogram: array<atomic<u32>, 2048>;
var<workgroup> piece_end: u32;

fn count_word(w: u32, copy: u32) {
    atomicAdd(&histogram[(w & 255u) * COPIES + copy], 1u);
    atomicAdd(&histogram[(w >> 8u & 255u) * COPIES + copy], 1u);
    atomicAdd(&histogram[(w >> 16u & 255u) * COPIES + copy], 1u);
    atomicAdd(&histogram[(w >> 24u) * COPIES + copy], 1u);
}

// @pz_entry
fn count(local_index: u32, workgroup_index: u32) {
    let pieces = 1u << (args.chunk_log - PIECE_LOG);
    let at = workgroup_index;
    let piece = at % pieces;
    let chunk = at / pieces % args.chunks_per_block;
    let block = at / pieces / args.chunks_per_block;
    let begin = piece << PIECE_LOG;
    if local_index == 0u {
        var last = 0u;
        if block < args.blocks && (chunk << args.chunk_log) < min(jobs[8u * block], args.slot) {
            let n = chunks[block * args.chunk_stride + chunk * CHUNK_WORDS + CHUNK_LITERALS];
            last = min(n, begin + (1u << PIECE_LOG));
        }
        piece_end = last;
    }
    let end = workgroupUniformLoad(&piece_end);
    if begin >= end {
        return;
    }
    let literals_at = block * args.literal_stride + (chunk << args.chunk_log >> 2u);
    let counts_at = block * args.count_stride + (chunk >> args.group_log) * 3u * COUNT_WORDS;
    for (var i = local_index; i < 256u * COPIES; i += THREADS) {
        atomicStore(&histogram[i], 0u);
    }
    workgroupBarrier();
    let copy = local_index & (COPIES - 1u);
    var word = literals_at + (begin >> 2u) + local_index;
    let words_end = literals_at + (end >> 2u);
    // Load first, so that all loads run at once.
    for (; word + 3u * THREADS < words_end; word += 4u * THREADS) {
        let a = literals[word];
        let b = literals[word + THREADS];
        let c = literals[word + 2u * THREADS];
        let d = literals[word + 3u * THREADS];
        count_word(a, copy);
        count_word(b, copy);
        count_word(c, copy);
        count_word(d, copy);
    }
    for (; word < words_end; word += THREADS) {
        count_word(literals[word], copy);
    }
    if local_index < (end & 3u) {
        let symbol = literals[literals_at + (end >> 2u)] >> (8u * local_index) & 255u;
        atomicAdd(&histogram[symbol * COPIES], 1u);
    }
    workgroupBarrier();
    for (var i = local_index; i < 256u; i += THREADS) {
        var sum = 0u;
        for (var j = 0u; j < COPIES; j++) {
            sum += atomicLoad(&histogram[i * COPIES + ((j + local_index) & (COPIES - 1u))]);
        }
        if sum != 0u {
            atomicAdd(&counts[counts_at + i], sum);
        }
    }
}
