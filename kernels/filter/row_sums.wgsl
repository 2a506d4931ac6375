// Undoes differences between rows of a few bytes, such as pixels or samples of several channels: each element becomes
// the sum, or the exclusive or, of itself and the same element of all earlier rows.
//
// A period is the fewest rows that fill whole words: PERIOD words. One workgroup of 256 per unit, which goes from tile
// to tile. In a tile, each work item holds WORDS words, whole periods, in registers. A period hands its last row on to
// the next, repeated to the length of a period.
//
// @pz_cost {
//   threads: N/262144*256
//   passes: 36
//   buffers: jobs=32, contents=N
//   local_mem: 16384
// }
// @pz_import filter

struct Args {
    blocks: u32,
    slot: u32,
    count: u32,
    stage: u32,
    turn: u32,
}

var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read_write> contents: array<vec4<u32>>;

alias Period = array<u32, PERIOD>;

// The period that each work item hands on, later the sum of all up to it. Two copies: one to read, one to write.
var<workgroup> sums: array<u32, 2u * PERIOD * THREADS>;

// The kind of elements: `high` has their highest bits in a word; wide ones have two words.
var<private> high: u32;
var<private> is_xor: bool;
var<private> is_wide: bool;
// Bytes of a row.
var<private> row: u32;

// The sums of the elements of two periods, or their exclusive or.
fn joined(a: Period, b: Period) -> Period {
    var first = a;
    var second = b;
    var result: Period;
    var carry = 0u;
    for (var i = 0u; i < PERIOD; i++) {
        let x = first[i];
        let y = second[i];
        let sum = (((x & ~high) + (y & ~high)) ^ ((x ^ y) & high)) + carry;
        result[i] = select(sum, x ^ y, is_xor);
        carry = select(0u, 1u, is_wide && (i & 1u) == 0u && result[i] < y);
    }
    return result;
}

// The period with each row joined with the row `bytes` before it.
fn joined_moved(words: Period, bytes: u32) -> Period {
    var own = words;
    var moved: Period;
    let whole = bytes / 4u;
    let bits = 8u * (bytes & 3u);
    for (var i = 0u; i < PERIOD; i++) {
        if i >= whole {
            moved[i] = own[i - whole] << bits;
        }
        if bits != 0u && i > whole {
            moved[i] |= own[i - whole - 1u] >> (32u - bits);
        }
    }
    return joined(words, moved);
}

// The period with each row joined with all earlier rows.
fn joined_rows(words: Period) -> Period {
    var result = words;
// @pz_if IS_SPLIT
// @pz_if IN_THREES
    if row == 3u {
        result = joined_moved(result, 3u);
    }
    if row <= 6u {
        result = joined_moved(result, 6u);
    }
// @pz_else
    if row == 1u {
        result = joined_moved(result, 1u);
    }
    if row <= 2u {
        result = joined_moved(result, 2u);
    }
// @pz_end
// @pz_end
    return result;
}

// The last row of a period, repeated to the length of a period.
fn spread(words: Period) -> Period {
    var result = words;
// @pz_if IS_SPLIT
// @pz_if IN_THREES
    if row == 3u {
        let last = words[2] >> 8u;
        result[0] = last | (last << 24u);
        result[1] = (last >> 8u) | (last << 16u);
        result[2] = (last >> 16u) | (last << 8u);
    } else if row == 6u {
        let low = (words[1] >> 16u) | (words[2] << 16u);
        let rest = words[2] >> 16u;
        result[0] = low;
        result[1] = rest | (low << 16u);
        result[2] = (low >> 16u) | (rest << 16u);
    }
// @pz_else
    if row == 1u {
        result[0] = (words[0] >> 24u) * 0x01010101u;
    } else if row == 2u {
        result[0] = (words[0] >> 16u) * 0x00010001u;
    }
// @pz_end
// @pz_end
    return result;
}

// The period that work item `lane` has written to the half of `sums` that begins at `half`.
fn handed_on(half: u32, lane: u32) -> Period {
    var result: Period;
    for (var i = 0u; i < PERIOD; i++) {
        result[i] = sums[half + i * THREADS + lane];
    }
    return result;
}

fn hand_on(half: u32, lane: u32, words: Period) {
    var all = words;
    for (var i = 0u; i < PERIOD; i++) {
        sums[half + i * THREADS + lane] = all[i];
    }
}

// `count` workgroups per block, enough for units of 2^18 bytes. With longer units, some have nothing to do.
// @pz_entry
fn row_sums(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index / args.count;
    if block >= args.blocks {
        return;
    }
    let word = jobs[block * JOB_WORDS + JOB_UNDO + args.stage];
    is_xor = filter_id(word) == FILTER_XOR;
    if row_period(word) != PERIOD || args.turn >= select(filter_order(word), 1u, is_xor) {
        return;
    }
    let content_len = min(jobs[block * JOB_WORDS], args.slot);
    let unit_log = clamp(jobs[block * JOB_WORDS + JOB_UNIT_LOG], 18u, 20u);
    let number = workgroup_index % args.count;
    if number >= ((content_len + (1u << unit_log) - 1u) >> unit_log) {
        return;
    }
    let start = number << unit_log;
    let width = filter_width(word);
    row = width * max(filter_parameter(word), 1u);
    let bits = min(8u * width, 32u);
    high = (0xffffffffu / (0xffffffffu >> (32u - bits))) << (bits - 1u);
    is_wide = width == 8u && !is_xor;
    // An incomplete last element stays as it is.
    let len = min(content_len - start, 1u << unit_log) / width * width;
    let unit = block * (args.slot / 16u) + start / 16u;
    var carried: Period;
    var half = 0u;
    for (var tile = 0u; tile < len; tile += 4u * WORDS * THREADS) {
        let at = tile + 4u * WORDS * local_index;
        var words: array<u32, WORDS>;
        for (var i = 0u; i < WORDS; i += 4u) {
            var v = vec4<u32>(0u);
            // The load is within the slot, which is a multiple of 256 bytes.
            if at + 4u * i < len {
                v = contents[unit + at / 16u + i / 4u];
            }
            for (var k = 0u; k < 4u; k++) {
                words[i + k] = v[k];
            }
        }
        var total: Period;
        for (var i = 0u; i < WORDS; i += PERIOD) {
            var period: Period;
            for (var k = 0u; k < PERIOD; k++) {
                period[k] = words[i + k];
            }
            // The first period has no predecessor: `total` is 0.
            period = joined(joined_rows(period), total);
            total = spread(period);
            for (var k = 0u; k < PERIOD; k++) {
                words[i + k] = period[k];
            }
        }
        half = PERIOD * THREADS - half;
        hand_on(half, local_index, total);
        workgroupBarrier();
        for (var by = 1u; by < THREADS; by *= 4u) {
            for (var k = 1u; k < 4u; k++) {
                if local_index >= k * by {
                    total = joined(total, handed_on(half, local_index - k * by));
                }
            }
            half = PERIOD * THREADS - half;
            hand_on(half, local_index, total);
            workgroupBarrier();
        }
        var before = carried;
        if local_index > 0u {
            before = joined(before, handed_on(half, local_index - 1u));
        }
        carried = joined(carried, handed_on(half, THREADS - 1u));
        for (var i = 0u; i < WORDS; i += PERIOD) {
            var period: Period;
            for (var k = 0u; k < PERIOD; k++) {
                period[k] = words[i + k];
            }
            period = joined(period, before);
            for (var k = 0u; k < PERIOD; k++) {
                words[i + k] = period[k];
            }
        }
        for (var i = 0u; i < WORDS; i += 4u) {
            let byte = at + 4u * i;
            if byte < len {
                let place = unit + byte / 16u;
                var v = vec4<u32>(words[i], words[i + 1u], words[i + 2u], words[i + 3u]);
                if byte + 16u > len {
                    let old = contents[place];
                    for (var k = 0u; k < 4u; k++) {
                        v[k] = within(byte + 4u * k, len, v[k], old[k]);
                    }
                }
                contents[place] = v;
            }
        }
    }
}
