// Writes payloads: copies all their parts, one directly after another.
//
// @pz_cost {
//   threads: N/8192*256+256
//   passes: 2
//   buffers: jobs=32, sort_position_a=N*4, encode_state=256, encode_segments=N/8192*32+32, encode_lists=N/8192*256+256,
//            encode_described=N/64+263168, start_rows=N/64+4, payload=N+256, results=32
//   local_mem: 0
//   note: measure has a lane for each block; in assemble, all lanes copy
// }

// @pz_import bwt_encode

struct Args { slot: u32, parts: u32, start_log: u32, segment_log: u32 }
var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
fn row_bits(len: u32) -> u32 {
    if len <= 1u {
        return 0u;
    }
    return firstLeadingBit(len - 1u) + 1u;
}

@group(0) @binding(1) var<storage, read_write> measured: array<u32>;
@group(0) @binding(2) var<storage, read_write> measured_segments: array<u32>;
@group(0) @binding(3) var<storage, read_write> results: array<u32>;

// Computes the place of each part. One work item per block.
// @pz_entry
fn measure(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index * THREADS + local_index;
    if block >= arrayLength(&jobs) / 8u {
        return;
    }
    let at_state = block * ENCODE_STATE;
    let segments = segments_at(block, args.slot);
    let len = jobs[block * 8u];
    var coded = 0u;
    for (var s = 0u; s < measured[at_state + ENCODE_SEGMENTS]; s++) {
        measured_segments[segments + s * SEGMENT_WORDS + SEGMENT_BEFORE] = coded;
        coded += measured_segments[segments + s * SEGMENT_WORDS + SEGMENT_CODED];
    }
    var header = 12u;
    for (var i = 0u; i < 8u; i++) {
        header += countOneBits(measured[at_state + ENCODE_USED + i]);
    }
    header += ((((len - 1u) >> args.start_log) + 1u) * row_bits(len) + 7u) / 8u;
    for (var i = 0u; i < 3u; i++) {
        header += measured[at_state + ENCODE_LENGTHS + i];
    }
    header = (header + 3u) & ~3u;
    measured[at_state + ENCODE_HEADER] = header;
    measured[at_state + ENCODE_WORDS] = coded;
    let fits = measured[at_state + ENCODE_FULL] == 0u && header + 4u * coded <= args.slot + 256u;
    results[block * 8u] = select(1u, 0u, fits);
    results[block * 8u + 1u] = select(0u, header + 4u * coded, fits);
}

@group(0) @binding(1) var<storage, read> final_state: array<u32>;
@group(0) @binding(2) var<storage, read> final_segments: array<u32>;
@group(0) @binding(3) var<storage, read> lists: array<u32>;
@group(0) @binding(4) var<storage, read> texts: array<u32>;
@group(0) @binding(5) var<storage, read> rows: array<u32>;
@group(0) @binding(6) var<storage, read> coded_words: array<u32>;
@group(0) @binding(7) var<storage, read_write> payload: array<u32>;

fn text_at(at: u32) -> u32 {
    return texts[at >> 2u] >> (8u * (at & 3u));
}

// Writes the payloads of the blocks that fit.
// @pz_entry
fn assemble(local_index: u32, workgroup_index: u32) {
    let parts = args.parts;
    let slot = args.slot;
    let block = workgroup_index / parts;
    let part = workgroup_index % parts;
    if block >= arrayLength(&jobs) / 8u {
        return;
    }
    let at_state = block * ENCODE_STATE;
    let len = jobs[block * 8u];
    let header = final_state[at_state + ENCODE_HEADER];
    if final_state[at_state + ENCODE_FULL] != 0u || header + 4u * final_state[at_state + ENCODE_WORDS] > slot + 256u {
        return;
    }
    let segments = segments_at(block, slot);
    let at_list = lists_at(block, slot);
    let at_rows = block * (slot / 256u + 1u);
    let at_payload = block * (slot / 4u + 64u);
    let text = block * described_room(slot);

    var symbols = 0u;
    for (var i = 0u; i < 8u; i++) {
        symbols += countOneBits(final_state[at_state + ENCODE_USED + i]);
    }
    let bits = row_bits(len);
    let row_count = ((len - 1u) >> args.start_log) + 1u;
    let rows_at = 3u + symbols;
    let lengths_at = rows_at + (row_count * bits + 7u) / 8u;
    let directory_at = lengths_at + 9u;
    let ranks_at = directory_at + final_state[at_state + ENCODE_LENGTHS];
    let runs_at = ranks_at + final_state[at_state + ENCODE_LENGTHS + 1u];
    let end = runs_at + final_state[at_state + ENCODE_LENGTHS + 2u];
    for (var i = part * THREADS + local_index; i < header / 4u; i += parts * THREADS) {
        var v = 0u;
        for (var k = 0u; k < 4u; k++) {
            let at = i * 4u + k;
            var byte = 0u;
            if at >= end {
                byte = 0u;
            } else if at >= runs_at {
                byte = text_at(text + directory_room(slot) + RANKS_ROOM + at - runs_at);
            } else if at >= ranks_at {
                byte = text_at(text + directory_room(slot) + at - ranks_at);
            } else if at >= directory_at {
                byte = text_at(text + at - directory_at);
            } else if at >= lengths_at {
                let j = at - lengths_at;
                byte = final_state[at_state + ENCODE_LENGTHS + j / 3u] >> (8u * (j % 3u));
            } else if at >= rows_at {
                // Take all rows that have bits in this byte.
                let begin_bit = (at - rows_at) * 8u;
                for (var r = begin_bit / bits; r < row_count && r * bits < begin_bit + 8u; r++) {
                    let row = rows[at_rows + r] - 1u;
                    let begin = r * bits;
                    if begin >= begin_bit {
                        byte |= row << (begin - begin_bit);
                    } else {
                        byte |= row >> (begin_bit - begin);
                    }
                }
            } else if at >= 3u {
                byte = lists[at_list + ((at - 3u) >> 2u)] >> (8u * ((at - 3u) & 3u));
            } else if at == 0u {
                byte = (args.segment_log - 10u) | (args.start_log - 8u) << 4u;
            } else if at == 1u {
                byte = final_state[at_state + ENCODE_SETS] - 1u;
            } else {
                byte = symbols - 1u;
            }
            v |= (byte & 255u) << (8u * k);
        }
        payload[at_payload + i] = v;
    }
    let segment_count = final_state[at_state + ENCODE_SEGMENTS];
    for (var s = part; s < segment_count; s += parts) {
        let segment = segments + s * SEGMENT_WORDS;
        var most = len;
        if s + 1u < segment_count {
            most = final_segments[segment + SEGMENT_WORDS + SEGMENT_BEGIN];
        }
        let coded = final_segments[segment + SEGMENT_CODED];
        let to = at_payload + header / 4u + final_segments[segment + SEGMENT_BEFORE];
        let base = block * slot + most - coded;
        for (var i = local_index; i < coded; i += THREADS) {
            payload[to + i] = coded_words[base + i];
        }
    }
}
