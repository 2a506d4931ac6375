// The contents of LZ77 windows, from records of their sequences.
//
// A workgroup has a window, and writes its chunks one after the other, in steps of four bytes for each work item. The
// chunks' literals are in their last bytes, where lz77_decode has put them, and their sequences are recorded: see
// common/lz77_records. What a byte repeats is told by its sequence. In a step, sources among the step's own bytes are
// replaced by what these derive from; then all bytes are loaded, and then all are stored, since what is written may be
// literals that others read. While the bytes are on their way, the sources of the next step are looked up.
//
// A row of 32 work items has 128 bytes of a step next to each other, and loads 32 of them at a time: they are in few places
// then. Each work item stores four in a row, which it is given by others.
//
// @pz_cost {
//   threads_per_element: 0.0001220703125
//   passes: 256
//   buffers: contents=N, results=32, lz77_chunks=N/64+64, lz77_places=N+1024, lz77_distances=N+1024, lz77_starts=N/4
//   local_mem: 32768
//   note: 512 work items for each window of 4 MiB, as an example; as many passes as a window has chunks, or one; workgroup
//         memory for steps of 4096 bytes
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
@group(0) @binding(5) var<storage, read> lz77_starts: array<vec4<u32>>;

// Bytes of a step.
const STEP: u32 = 4u * THREADS;
// Set in the source of a literal: nothing that is still to be written.
const FINAL: u32 = 0x80000000u;
// How far a source is followed through others before all are put anew, and how often that may be: chains have at most
// 4096 links.
const HOPS: u32 = 8u;
const ROUNDS: u32 = 4u;

var<workgroup> sources: array<u32, STEP>;
var<workgroup> staged: array<vec4<u32>, THREADS>;
var<workgroup> unfinished: u32;
var<workgroup> shared_value: u32;

// The chunk, in which positions count from its start. Sources count from the start of the block.
var<private> records: u32;      // where the chunk's are,
var<private> starts: u32;       // and its pairs of words in `lz77_starts`, two in each vector
var<private> block_start: u32;  // where the chunk is in the block
var<private> chunk_last: u32;   // byte
var<private> first_literal: u32;

// Of the work item's bytes: what tells their sequences, the words of which the records consist, and what they repeat.
var<private> start_words: array<vec4<u32>, 2>;
var<private> places: vec4<u32>;
var<private> distances: vec4<u32>;
var<private> source: vec4<u32>;

// A value that all work items hold already, known to be uniform.
fn uniform_of(v: u32, item: u32) -> u32 {
    if item == 0u {
        shared_value = v;
    }
    return workgroupUniformLoad(&shared_value);
}

fn is_inside(from_: u32) -> bool {
    return any(vec4<i32>(source) >= vec4(i32(block_start + from_)));
}

// For the bytes of the row that begin at `at`.
fn load_starts(at: u32) {
    let index = starts + min(at, chunk_last & ~127u) / 64u;
    start_words[0] = lz77_starts[index];
    start_words[1] = lz77_starts[index + 1u];
}

fn find_records(upto: u32) {
    let masks = vec4(start_words[0].xz, start_words[1].xz);
    let own = vec4(start_words[0].yw, start_words[1].yw) + countOneBits(masks & vec4(upto)) + vec4(records);
    places = vec4(lz77_places[own.x], lz77_places[own.y], lz77_places[own.z], lz77_places[own.w]);
    distances = vec4(lz77_distances[own.x], lz77_distances[own.y], lz77_distances[own.z], lz77_distances[own.w]);
}

// What the work item's bytes from `at` on repeat, by their records. Sources from `from_` on, the start of the step, are not yet
// written: a match that repeats its own bytes goes back by whole periods to before them. Bytes after the chunk do as its last.
fn find_sources(at: u32, from_: u32) {
    let own = min(vec4(at, at + 32u, at + 64u, at + 96u), vec4(chunk_last));
    let start = places & vec4(0xfffffu);
    let matched = places >> vec4(20u) | ((distances >> vec4(12u)) & vec4(0xff000u));
    let distance = distances & vec4(0xffffffu);
    let literal = (own - matched + vec4(first_literal + block_start)) | vec4(FINAL);
    source = select(own - distance + vec4(block_start), literal, own < start);
    if is_inside(from_) {
        let repeated = own - max(start, vec4(from_));
        let repeats = vec4<i32>(repeated) >= vec4<i32>(distance);
        if any(repeats) {
            // Below 2^20 a quotient is farther from the next integer than the error of a division.
            let periods = vec4<u32>((vec4<f32>(repeated) + vec4(0.5)) / vec4<f32>(max(distance, vec4(1u))));
            source = select(source, source - periods * distance, repeats);
        }
    }
}

fn put_sources(at: u32) {
    sources[at] = source.x;
    sources[at + 32u] = source.y;
    sources[at + 64u] = source.z;
    sources[at + 96u] = source.w;
}

fn hop(from_source: u32, inside_from: u32) -> u32 {
    if i32(from_source) >= i32(inside_from) {
        return sources[(from_source - inside_from) & (STEP - 1u)];
    }
    return from_source;
}

fn follow(from_: u32) {
    let inside_from = block_start + from_;
    for (var i = 0u; i < HOPS; i++) {
        if !is_inside(from_) {
            break;
        }
        source = vec4(
            hop(source.x, inside_from),
            hop(source.y, inside_from),
            hop(source.z, inside_from),
            hop(source.w, inside_from),
        );
    }
}

// The words of the bytes in the block that begins at word `base`.
fn load_words(base: u32) -> vec4<u32> {
    let at = (source & vec4(~FINAL)) / vec4(4u) + vec4(base);
    return vec4(contents[at.x], contents[at.y], contents[at.z], contents[at.w]);
}

// Puts the bytes where those find them that store them: byte i of the step is component i mod 4 of vector i / 4.
fn put_bytes(words: vec4<u32>, from_source: vec4<u32>, own: u32) {
    let bytes = (words >> ((from_source & vec4(3u)) * 8u)) & vec4(255u);
    staged[own / 4u][own & 3u] = bytes.x;
    staged[own / 4u + 8u][own & 3u] = bytes.y;
    staged[own / 4u + 16u][own & 3u] = bytes.z;
    staged[own / 4u + 24u][own & 3u] = bytes.w;
}

@compute @workgroup_size(THREADS)
fn lz77_windows(@builtin(local_invocation_index) item: u32, @builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) wgs: vec3<u32>) {
    let group = wg.y * wgs.x + wg.x;
    let block = min(group / args.per_block, args.blocks - 1u);
    let head = CHUNK_WORDS * block * (args.max_chunks + 1u);
    let logs = lz77_chunks[head + BLOCK_LOGS];
    let chunk_log = logs & 255u;
    let in_window = 1u << (((logs >> 8u) & 255u) - chunk_log);
    let window = (group % args.per_block) * args.stride;
    let is_active = group < args.blocks * args.per_block && results[8u * block] == 0u && (window & (in_window - 1u)) == 0u;
    let after = min(window + min(in_window, args.turn + args.turns), lz77_chunks[head + BLOCK_CHUNKS]);
    let end = uniform_of(select(0u, after, is_active), item);
    let block_len = lz77_chunks[head + BLOCK_LEN];
    let base = block * (args.slot / 4u);
    if item == 0u {
        unfinished = 0u;
    }
    let lane = item & 31u;
    let upto = 0xffffffffu >> (31u - lane);
    // The row's first byte in a step, and the work item's.
    let row = (item - lane) * 4u;
    let own = row + lane;
    for (var chunk = uniform_of(window + args.turn, item); chunk < end; chunk++) {
        block_start = chunk << chunk_log;
        let length = uniform_of(min(1u << chunk_log, block_len - block_start), item);
        chunk_last = length - 1u;
        records = block * (args.slot / 4u + SPARE_RECORDS) + block_start / 4u;
        starts = block * (args.slot / 64u) + block_start / 64u;
        first_literal = length - lz77_chunks[head + CHUNK_WORDS * (chunk + 1u) + CHUNK_LITERALS];
        load_starts(row);
        find_records(upto);
        find_sources(own, 0u);
        load_starts(row + STEP);
        for (var from_ = 0u; from_ < length; from_ += STEP) {
            let inside_from = block_start + from_;
            put_sources(own);
            // What the step before has stored, in contents that others load from here on, is seen by the whole workgroup after
            // the first one, and what is in workgroup memory after the second.
            storageBarrier();
            workgroupBarrier();
            find_records(upto);
            follow(from_);
            if is_inside(from_) {
                unfinished = 1u;
            }
            let from_source = source;
            let words = load_words(base);
            load_starts(row + from_ + 2u * STEP);
            find_sources(own + from_ + STEP, from_ + STEP);
            put_bytes(words, from_source, own);
            // Before anything is stored, all is loaded.
            var more = workgroupUniformLoad(&unfinished);
            if more != 0u {
                let next = source;
                source = from_source;
                for (var round = 0u; round < ROUNDS && more != 0u; round++) {
                    put_sources(own);
                    if item == 0u {
                        unfinished = 0u;
                    }
                    workgroupBarrier();
                    follow(from_);
                    workgroupBarrier();
                    if is_inside(from_) {
                        unfinished = 1u;
                    }
                    more = workgroupUniformLoad(&unfinished);
                }
                put_bytes(load_words(base), source, own);
                source = next;
                workgroupBarrier();
            }
            let at = from_ + 4u * item;
            if at < length {
                let bytes = staged[item];
                contents[base + (block_start + at) / 4u] = bytes.x | bytes.y << 8u | bytes.z << 16u | bytes.w << 24u;
            }
        }
    }
}
