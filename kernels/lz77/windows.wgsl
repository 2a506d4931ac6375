// Writes the contents of LZ77 windows from records of their sequences.
//
// One workgroup per window. It writes the chunks in order, in steps of four bytes per work item. lz77_decode has put
// the chunks' literals into their last bytes and recorded their sequences: see common/lz77_records. The sequence of a
// byte determines which byte it repeats. If that is a byte of the same step, the workgroup first traces it to a byte
// before the step. Then it loads all bytes, and only after that stores them, because a store may overwrite literals
// that other work items read. During the loads, it looks up the sources of the next step.
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

struct Args {
    blocks: u32,
    max_chunks: u32,
    slot: u32,
    per_block: u32,
    stride: u32,
    turn: u32,
    turns: u32,
}
var<immediate> args: Args;

@group(0) @binding(0) var<storage, read_write> contents: array<u32>;
@group(0) @binding(1) var<storage, read> results: array<u32>;
@group(0) @binding(2) var<storage, read> lz77_chunks: array<u32>;
@group(0) @binding(3) var<storage, read> lz77_places: array<u32>;
@group(0) @binding(4) var<storage, read> lz77_distances: array<u32>;
@group(0) @binding(5) var<storage, read> lz77_starts: array<u32>;

// Bytes of a step.
const STEP: u32 = 4u * THREADS;
// Marks the source of a literal. Other sources are bytes that are not written yet.
const FINAL: u32 = 0x80000000u;
// How many hops to follow a source before all sources are replaced, and how often to do that: chains have at most
// 4096 links.
const HOPS: u32 = 8u;
const ROUNDS: u32 = 4u;

var<workgroup> sources: array<vec4<u32>, THREADS>;
var<workgroup> unfinished: u32;
var<workgroup> shared_value: u32;

// The chunk. Positions count from the start of the block.
var<private> records: u32;      // where the chunk's are,
var<private> starts: u32;       // and its words in `lz77_starts`
var<private> chunk_start: u32;
var<private> chunk_last: u32;   // byte
var<private> first_literal: u32;

// A value that all work items hold already, known to be uniform.
fn uniform_of(v: u32, item: u32) -> u32 {
    if item == 0u {
        shared_value = v;
    }
    return workgroupUniformLoad(&shared_value);
}

fn is_inside(source: vec4<u32>, from_: u32) -> bool {
    return any(vec4<i32>(source) >= vec4(i32(from_)));
}

// The source of byte `at`, which belongs to sequence `index` of its chunk. Bytes from `from_` on, the start of the
// step, are not yet written, so a match that repeats its own bytes goes back by whole periods to before them.
fn source_of(at: u32, index: u32, from_: u32) -> u32 {
    let place = lz77_places[records + index];
    let word = lz77_distances[records + index];
    let start = chunk_start + (place & 0xfffffu);
    let matched = place >> 20u | (word >> 24u) << 12u;
    let offset = word & 0xffffffu;
    if at < start {
        return (at - chunk_start - matched + first_literal) | FINAL;
    }
    let source = at - offset;
    let first = max(start, from_);
    if source >= from_ && at - first >= offset {
        return first - offset + (at - first) % offset;
    }
    return source;
}

// The sources of a work item's four bytes, the first of them at `at`. Bytes after the chunk have the source of its last
// byte.
fn sources_of(at: u32, from_: u32) -> vec4<u32> {
    let all_ = min(vec4(at, at + 1u, at + 2u, at + 3u), vec4(chunk_last));
    let first = all_.x - chunk_start;
    let word = starts + (first / 32u) * 2u;
    let bits = lz77_starts[word];
    let bit = first & 31u;
    let before = lz77_starts[word + 1u] + countOneBits(bits & ((1u << bit) - 1u));
    let own = vec4(before) + countOneBits(vec4(bits >> bit) & ((vec4(2u) << (all_ - all_.xxxx)) - vec4(1u)));
    return vec4(
        source_of(all_.x, own.x, from_),
        source_of(all_.y, own.y, from_),
        source_of(all_.z, own.z, from_),
        source_of(all_.w, own.w, from_),
    );
}

fn hop(source: u32, from_: u32) -> u32 {
    if i32(source) >= i32(from_) {
        let at = (source - from_) & (STEP - 1u);
        return sources[at >> 2u][at & 3u];
    }
    return source;
}

fn follow(before: vec4<u32>, from_: u32) -> vec4<u32> {
    var source = before;
    for (var i = 0u; i < HOPS; i++) {
        if !is_inside(source, from_) {
            break;
        }
        source = vec4(hop(source.x, from_), hop(source.y, from_), hop(source.z, from_), hop(source.w, from_));
    }
    return source;
}

// The word of the bytes at `source` in the block that begins at word `base`.
fn load_bytes(base: u32, source: vec4<u32>) -> vec4<u32> {
    let at = source & vec4(~FINAL);
    return vec4(
        contents[base + at.x / 4u],
        contents[base + at.y / 4u],
        contents[base + at.z / 4u],
        contents[base + at.w / 4u],
    );
}

fn join_bytes(words: vec4<u32>, source: vec4<u32>) -> u32 {
    let bytes = (words >> ((source & vec4(3u)) * 8u)) & vec4(255u);
    return bytes.x | bytes.y << 8u | bytes.z << 16u | bytes.w << 24u;
}

// @pz_entry
fn lz77_windows(local_index: u32, workgroup_index: u32) {
    let block = min(workgroup_index / args.per_block, args.blocks - 1u);
    let head = CHUNK_WORDS * block * (args.max_chunks + 1u);
    let logs = lz77_chunks[head + BLOCK_LOGS];
    let chunk_log = logs & 255u;
    let in_window = 1u << (((logs >> 8u) & 255u) - chunk_log);
    let window = (workgroup_index % args.per_block) * args.stride;
    let is_active = workgroup_index < args.blocks * args.per_block && results[8u * block] == 0u && (window & (in_window - 1u)) == 0u;
    let after = min(window + min(in_window, args.turn + args.turns), lz77_chunks[head + BLOCK_CHUNKS]);
    let end = uniform_of(select(0u, after, is_active), local_index);
    let block_len = lz77_chunks[head + BLOCK_LEN];
    let base = block * (args.slot / 4u);
    if local_index == 0u {
        unfinished = 0u;
    }
    for (var chunk = uniform_of(window + args.turn, local_index); chunk < end; chunk++) {
        chunk_start = chunk << chunk_log;
        let length = uniform_of(min(1u << chunk_log, block_len - chunk_start), local_index);
        chunk_last = chunk_start + length - 1u;
        records = block * (args.slot / 4u + SPARE_RECORDS) + chunk_start / 4u;
        starts = block * (args.slot / 16u) + chunk_start / 16u;
        first_literal = chunk_start + length - lz77_chunks[head + CHUNK_WORDS * (chunk + 1u) + CHUNK_LITERALS];
        var source = sources_of(chunk_start + 4u * local_index, chunk_start);
        for (var step = 0u; step < length; step += STEP) {
            let from_ = chunk_start + step;
            let at = from_ + 4u * local_index;
            sources[local_index] = source;
            storageBarrier();
            workgroupBarrier();
            source = follow(source, from_);
            if is_inside(source, from_) {
                unfinished = 1u;
            }
            var words = load_bytes(base, source);
            let next = sources_of(at + STEP, from_ + STEP);
            // Load all bytes before storing any.
            var more = workgroupUniformLoad(&unfinished);
            let again = more;
            for (var round = 0u; round < ROUNDS && more != 0u; round++) {
                sources[local_index] = source;
                if local_index == 0u {
                    unfinished = 0u;
                }
                workgroupBarrier();
                source = follow(source, from_);
                workgroupBarrier();
                if is_inside(source, from_) {
                    unfinished = 1u;
                }
                more = workgroupUniformLoad(&unfinished);
            }
            for (var once = 0u; once < again; once++) {
                words = load_bytes(base, source);
                workgroupBarrier();
            }
            if at <= chunk_last {
                contents[base + at / 4u] = join_bytes(words, source);
            }
            source = next;
        }
    }
}
