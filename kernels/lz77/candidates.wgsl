// Lists the candidates of each position for the optimal parse of LZ77, by the rule of codec::lz77::candidate_lists.
//
// `entries` holds the sorted entries of a four-byte hash. From them come three arrays of words: positions; marks, with
// a bit for each earlier entry that is a candidate, the nearest in bit 0; and the sorted index of each position. They
// are separate because writes to them are in random order, and a small array stays in a cache. `found` comes from
// lz77/latest, for a three-byte hash. `lz77_low` holds four distances for each position, from lz77/suffixes.
//
// A position's list has eight words, offset | length - 3 << 24, by increasing offset and length, padded with zeros.
// Four go to `lz77_low` and four to `lz77_high`; those in `lz77_high` are unspecified if one in `lz77_low` is 0. A
// position with fewer than eight bytes up to the block's end has no candidates.
//
// Constants: HASH_BITS, the upper bits of an entry's first word; CANDIDATES, the candidates of a position by this hash;
// INHERITED_LENGTH.
//
// @pz_cost {
//   threads: N
//   passes: 3
//   buffers: jobs=32, contents=N, found=N*4, entries=N*8, sorted_positions=N*4, sorted_marks=N*4,
//            sorted_places=N*4, lz77_low=N*16, lz77_high=N*16
//   local_mem: 256
// }
// @pz_import team
// @pz_import lz77_long_length

const LIST = 8u;
const LONGEST = 256u;
// Beyond this offset a match of three bytes costs more than three literals.
const SHORT_REACH = 1u << 12u;
const NONE = 0xffffffffu;

// mark: slot, blocks, window_log; list: slot, blocks, chunk_log; inherit: slot, chunks, blocks, chunk_log.
struct Args {
    slot: u32,
    a: u32,
    b: u32,
    c: u32,
}
var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
// list
@group(0) @binding(1) var<storage, read> contents: array<u32>;
@group(0) @binding(2) var<storage, read> found: array<u32>;
@group(0) @binding(3) var<storage, read> positions: array<u32>;
@group(0) @binding(4) var<storage, read> marks_of: array<u32>;
@group(0) @binding(5) var<storage, read> places: array<u32>;
@group(0) @binding(6) var<storage, read_write> low: array<vec4<u32>>;
@group(0) @binding(7) var<storage, read_write> high: array<vec4<u32>>;
// mark
@group(0) @binding(1) var<storage, read> sorted: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> own_positions: array<u32>;
@group(0) @binding(3) var<storage, read_write> own_marks: array<u32>;
@group(0) @binding(4) var<storage, read_write> own_places: array<u32>;
// inherit
@group(0) @binding(1) var<storage, read_write> inherited: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read> high_words: array<vec4<u32>>;

// A work item for each entry: marks the candidates among the entries before it.
// @pz_entry
fn mark(local_index: u32, workgroup_index: u32) {
    let blocks = args.a;
    let window_log = args.b;
    let groups = (args.slot + THREADS - 1u) / THREADS;
    let block = workgroup_index / groups;
    let index = workgroup_index % groups * THREADS + local_index;
    if block >= blocks {
        return;
    }
    let len = jobs[block * 8u];
    if len < 8u || index >= len - 7u {
        return;
    }
    let slot_start = block * args.slot;
    let entry = sorted[slot_start + index];
    let reach = entry.y & ((1u << window_log) - 1u);
    var marks = 0u;
    for (var k = 0u; k < min(CANDIDATES, index); k++) {
        let other = sorted[slot_start + index - 1u - k];
        if (other.x ^ entry.x) >> (32u - HASH_BITS) == 0u && entry.y - other.y <= reach {
            marks |= 1u << k;
        }
    }
    own_positions[slot_start + index] = entry.y;
    own_marks[slot_start + index] = marks;
    own_places[slot_start + entry.y] = index;
}

// The distance of the nearest marked entry before the one at `place`; NONE if there is none.
fn distance_to(pos: u32, place: u32, marks: u32) -> u32 {
    if marks == 0u {
        return NONE;
    }
    return pos - positions[place - 1u - countTrailingZeros(marks)];
}

// The row with `word` at place `at`.
fn with_word(row: vec4<u32>, at: u32, word: u32) -> vec4<u32> {
    return select(row, vec4(word), vec4(0u, 1u, 2u, 3u) == vec4(at));
}

// A work item for each position.
// @pz_entry
fn list(local_index: u32, workgroup_index: u32) {
    let blocks = args.a;
    let groups = (args.slot + THREADS - 1u) / THREADS;
    let block = workgroup_index / groups;
    let pos = workgroup_index % groups * THREADS + local_index;
    if block >= blocks {
        return;
    }
    let len = jobs[block * 8u];
    if len < 8u || pos >= len - 7u {
        return;
    }
    block_words = args.slot >> 2u;
    from_word = block * block_words;
    let slot_start = block * args.slot;
    let chunk_end = min(len, (pos >> args.b) + 1u << args.b);
    let room = min(chunk_end - pos, LONGEST);

    // The sorted index of the position's entry, and the remaining marks.
    let near = slot_start + places[slot_start + pos];
    var marks = marks_of[near];
    var near_distance = distance_to(pos, near, marks);
    marks &= max(marks, 1u) - 1u;
    // The candidates by suffixes, by increasing distance.
    var far = low[slot_start + pos];
    // No match of three bytes is nearer than this one.
    var offset = found[slot_start + pos];
    if offset == 0u {
        offset = min(near_distance, far.x);
    }

    var first = vec4<u32>();
    var second = vec4<u32>();
    var count = 0u;
    var longest = 2u;
    // The four bytes in which a candidate must equal the position to beat the longest so far.
    var probe = pos;
    var shift = 8u;
    var probed = read32(pos) << 8u;
    while offset != NONE {
        if read32(probe - offset) << shift == probed {
            let length = long_length(pos, offset, 0u, room);
            if length > longest && (length > 3u || offset <= SHORT_REACH) {
                let word = offset | (length - 3u) << 24u;
                let at = min(count, LIST - 1u);
                first = with_word(first, at, word);
                second = with_word(second, at - 4u, word);
                count = at + 1u;
                longest = length;
                if length >= room {
                    break;
                }
                probe = pos + length - 3u;
                shift = 0u;
                probed = read32(probe);
            }
        }
        let nearest = offset;
        if near_distance <= nearest {
            near_distance = distance_to(pos, near, marks);
            marks &= max(marks, 1u) - 1u;
        }
        if far.x <= nearest {
            far = vec4(far.yzw, NONE);
        }
        offset = min(near_distance, far.x);
    }
    low[slot_start + pos] = first;
    if first.w != 0u {
        high[slot_start + pos] = second;
    }
}

// The last word that is not 0.
fn last_word(a: vec4<u32>) -> u32 {
    var word = a.x;
    word = select(word, a.y, a.y != 0u);
    word = select(word, a.z, a.z != 0u);
    return select(word, a.w, a.w != 0u);
}

// If the longest candidate of a position extends INHERITED_LENGTH beyond the next 32 positions, makes its remainder the
// only candidate of these. One team per chunk.
// @pz_entry
fn inherit(local_index: u32, workgroup_index: u32) {
    let chunks = args.a;
    let blocks = args.b;
    team_start(local_index);
    let index = workgroup_index * TEAMS + team_index;
    let block = index / chunks;
    let start = index % chunks << args.c;
    var n = 0u;
    if block < blocks {
        let len = jobs[block * 8u];
        let end = min(max(len, 7u) - 7u, start + (1u << args.c));
        n = max(end, start) - start;
    }
    let chunk_start = block * args.slot + start;
    // The match that the next positions may inherit.
    var length = 0u;
    var offset = 0u;
    var first = 0u;
    loop {
        if team_uniform(u32(first < n)) == 0u {
            break;
        }
        // Each lane knows the last candidate of 32 positions.
        let mine = first + 32u * lane + 31u;
        var word = 0u;
        if mine < n {
            var four = inherited[chunk_start + mine];
            word = last_word(four);
            if four.w != 0u {
                four = high_words[chunk_start + mine];
                if four.x != 0u {
                    word = last_word(four);
                }
            }
        }
        let longs = team_ballot(word >> 24u > INHERITED_LENGTH - 3u);
        var batch = 0u;
        loop {
            let goes_on = batch < 32u && first + 32u * batch < n
                && (length > INHERITED_LENGTH || longs >> min(batch, 31u) != 0u);
            if team_uniform(u32(goes_on)) == 0u {
                break;
            }
            let batch_start = first + 32u * batch;
            let size = min(32u, n - batch_start);
            let its = team_broadcast(word, batch);
            if length >= size + INHERITED_LENGTH {
                if lane < size {
                    let at = chunk_start + batch_start + lane;
                    inherited[at] = vec4(offset | (length - lane - 4u) << 24u, 0u, 0u, 0u);
                }
                length -= size;
            } else {
                length = select(0u, (its >> 24u) + 3u, its != 0u);
                offset = its & 0xffffffu;
            }
            batch += 1u;
        }
        first += 1024u;
    }
}
