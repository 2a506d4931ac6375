// Assembles payloads: header, directory, and the chunks' records with their tables and words.
//
// @pz_cost {
//   threads: N/65536*256
//   passes: 2
//   buffers: jobs=32, lz77_models=N/65536*16512, lz77_streams=N/65536*1024, lz77_words=N+N/2+N/4+N/64+1024,
//            payload=N+256, results=32
//   local_mem: 256
// }
// @pz_import team
// @pz_import lz77_code

const STATUS_DOES_NOT_FIT = 1u;

struct Args {
    blocks: u32,
    slot: u32,
    chunk_log: u32,
    chunks_per_block: u32,
    group_log: u32,
    window_log: u32,
    chunk_stride: u32,
    model_stride: u32,
    word_stride: u32,
}
var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> models: array<u32>;
// measure
@group(0) @binding(2) var<storage, read_write> measured: array<u32>;
@group(0) @binding(3) var<storage, read_write> results: array<u32>;
// pack
@group(0) @binding(2) var<storage, read> chunks: array<u32>;
@group(0) @binding(3) var<storage, read> words: array<u32>;
@group(0) @binding(4) var<storage, read> verdicts: array<u32>;
@group(0) @binding(5) var<storage, read_write> payload: array<u32>;

// Bits of a group's tables before the descriptions: the modes, and the symbols of constant models.
fn head_bits(group: u32) -> u32 {
    var bits = 8u;
    for (var i = 0u; i < 3u; i++) {
        bits += select(0u, 8u, models[group + i * MODEL_WORDS + MODEL_MODE] == MODE_CONSTANT);
    }
    return bits;
}

// Computes where the records of a block go, and the length of its payload. One team per block.
// @pz_entry
fn measure(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let block = workgroup_index;
    if block >= args.blocks {
        return;
    }
    let len = team_uniform(min(jobs[8u * block], args.slot));
    let n = (len + (1u << args.chunk_log) - 1u) >> args.chunk_log;
    let models_at = block * args.model_stride;
    let chunks_at = block * args.chunk_stride;
    var count = 1u + 2u * n;
    for (var i = 0u; i < n; i += 32u) {
        let chunk = i + lane;
        var record = 0u;
        var tables = 0u;
        if chunk < n {
            if (chunk & ((1u << args.group_log) - 1u)) == 0u {
                let group = models_at + (chunk >> args.group_log) * 3u * MODEL_WORDS;
                var bits = head_bits(group);
                for (var j = 0u; j < 3u; j++) {
                    bits += models[group + j * MODEL_WORDS + MODEL_BITS];
                }
                tables = (bits + 31u) >> 5u;
            }
            record = tables + measured[chunks_at + chunk * CHUNK_WORDS + CHUNK_STREAM];
        }
        let end = team_scan(record);
        if chunk < n {
            measured[chunks_at + chunk * CHUNK_WORDS + CHUNK_RECORD] = count + end - record;
            measured[chunks_at + chunk * CHUNK_WORDS + CHUNK_TABLES] = tables;
        }
        count += team_broadcast(end, 31u);
    }
    if lane == 0u {
        results[8u * block] = select(STATUS_DOES_NOT_FIT, 0u, 4u * count < len);
        results[8u * block + 1u] = 4u * count;
    }
}

// 32 bits of a description from bit `at` on; it may be negative, and go past the end.
fn description_bits(model: u32, at: i32) -> u32 {
    let bits = i32(models[model + MODEL_BITS]);
    if at <= -32 || at >= bits {
        return 0u;
    }
    let word = at >> 5u;
    let shift = bitcast<u32>(at) & 31u;
    var value = 0u;
    if word >= 0 {
        value = models[model + MODEL_DESCRIPTION + u32(word)] << shift;
    }
    if shift != 0u && 32 * (word + 1) < bits {
        value |= models[model + MODEL_DESCRIPTION + u32(word + 1)] >> (32u - shift);
    }
    return value;
}

// Word `i` of a group's tables.
fn table_word(group: u32, i: u32) -> u32 {
    var value = 0u;
    if i == 0u {
        var place = 16u;
        for (var j = 0u; j < 3u; j++) {
            let mode = models[group + j * MODEL_WORDS + MODEL_MODE];
            value |= mode << (24u + 2u * j);
            if mode == MODE_CONSTANT {
                value |= models[group + j * MODEL_WORDS + MODEL_CONSTANT] << place;
                place -= 8u;
            }
        }
    }
    let at = 32 * i32(i);
    var begin = i32(head_bits(group));
    for (var step = 0u; step < 6u; step++) {
        let model = group + step % 3u * MODEL_WORDS;
        if models[model + MODEL_MODE] == MODE_HUFFMAN + step / 3u {
            value |= description_bits(model, at - begin);
            begin += i32(models[model + MODEL_BITS]);
        }
    }
    // Bits fill bytes from the top, and bytes fill words from the bottom.
    return value >> 24u | (value >> 8u & 0xff00u) | (value << 8u & 0xff0000u) | value << 24u;
}

// Writes the payloads that fit. One workgroup per chunk.
// @pz_entry
fn pack(local_index: u32, workgroup_index: u32) {
    let at = workgroup_index;
    let chunk = at % args.chunks_per_block;
    let block = at / args.chunks_per_block;
    if block >= args.blocks {
        return;
    }
    let len = min(jobs[8u * block], args.slot);
    if chunk << args.chunk_log >= len || verdicts[8u * block] != 0u {
        return;
    }
    let payload_at = block * ((args.slot + 256u) >> 2u);
    let group = block * args.model_stride + (chunk >> args.group_log) * 3u * MODEL_WORDS;
    let words_at = block * args.word_stride + chunk * stream_room(1u << args.chunk_log);
    let chunk_at = block * args.chunk_stride + chunk * CHUNK_WORDS;
    let stream = chunks[chunk_at + CHUNK_STREAM];
    let tables = chunks[chunk_at + CHUNK_TABLES];
    if local_index == 0u {
        if chunk == 0u {
            // A short block needs no larger window than itself.
            var needed = 16u;
            if len > 1u {
                needed = max(log2_floor(len - 1u) + 1u, 16u);
            }
            let c = min(args.chunk_log, needed);
            payload[payload_at] = c | max(min(args.window_log, needed), c) << 8u | args.group_log << 16u;
        }
        let literals = chunks[chunk_at + CHUNK_LITERALS];
        let sequences = chunks[chunk_at + CHUNK_SEQUENCES];
        payload[payload_at + 1u + 2u * chunk] = (tables + stream) | literals << 22u;
        payload[payload_at + 2u + 2u * chunk] = literals >> 10u | sequences << 11u;
    }
    let record_at = payload_at + chunks[chunk_at + CHUNK_RECORD];
    for (var i = local_index; i < tables; i += THREADS) {
        payload[record_at + i] = table_word(group, i);
    }
    var i = local_index;
    let to = record_at + tables;
    // Load first, so that all loads run at once.
    for (; i + 3u * THREADS < stream; i += 4u * THREADS) {
        let a = words[words_at + i];
        let b = words[words_at + i + THREADS];
        let c = words[words_at + i + 2u * THREADS];
        let d = words[words_at + i + 3u * THREADS];
        payload[to + i] = a;
        payload[to + i + THREADS] = b;
        payload[to + i + 2u * THREADS] = c;
        payload[to + i + 3u * THREADS] = d;
    }
    for (; i < stream; i += THREADS) {
        payload[to + i] = words[words_at + i];
    }
}
