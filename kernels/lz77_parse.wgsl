// Parses of LZ77: the matches of a segment, by a team for each segment.
//
// `greedy` takes the first match found; `lazy` the best one of a few neighbouring positions. The rules are those of the
// modules codec::lz77::greedy and codec::lz77::lazy; `found` and `entries` are what lz77_find makes, and candidates
// are verified here. Thirty-two positions are looked at at once for one that may have a match; all the matches that a
// step of `lazy` chooses among are measured at the same time, each by LANES lanes, and those of 16 bytes and more then by
// all lanes.
//
// The list of segment s of a block begins at entry s * segment length / 4 of the block's part of `matches`. An entry is
// two words: start in the segment and length << 16; offset.
//
// Constants: SEGMENT_LOG, at most 15; for `lazy`, CANDIDATES and LAZY, the further positions looked at.
//
// @pz_cost {
//   threads_per_element: 0.004
//   passes: 1
//   buffers: jobs=32, contents=N, entries=N*8, found=N*4, matches=N*2, match_counts=N/64
//   local_mem: 256
// }

// @pz_import team

struct Args {
    slot: u32,
    segments: u32,
    blocks: u32,
    window_log: u32,
}

var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> contents: array<u32>;
// @pz_if LAZY
@group(0) @binding(2) var<storage, read> entries: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> found: array<u32>;
@group(0) @binding(4) var<storage, read_write> matches: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> match_counts: array<u32>;
// @pz_else
@group(0) @binding(2) var<storage, read> found: array<u32>;
@group(0) @binding(3) var<storage, read_write> matches: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> match_counts: array<u32>;
// @pz_end

// Of the team's segment; `from` is the block's first word of the contents.
var<private> from_word: u32;
var<private> window_start: u32;
var<private> start: u32;
var<private> end: u32;
// Positions from here on have no candidates.
var<private> last: u32;
var<private> list: u32;
var<private> count_word: u32;
var<private> count: u32;
var<private> pos: u32;
// Behind the last match.
var<private> anchor: u32;
// The offsets of the last two different matches, the last one first.
var<private> recent: u32;
var<private> second: u32;

// The four bytes from `at` on. Bytes behind the slot read as any.
fn read32(at: u32) -> u32 {
    let word = at >> 2u;
    let shift = (at & 3u) * 8u;
    let next = min(word + 1u, (args.slot >> 2u) - 1u);
    return contents[from_word + word] >> shift | contents[from_word + next] << 1u << (31u - shift);
}

// The four bytes before `at`, which is not 0; bytes before the block read as any.
fn read32_before(at: u32) -> u32 {
    let word = at + 3u >> 2u;
    let shift = (at & 3u) * 8u;
    let low = contents[from_word + max(word, 2u) - 2u];
    let high = contents[from_word + word - 1u];
    // At a multiple of 4 the upper word is whole.
    return select(low >> shift | high << 1u << (31u - shift), high, shift == 0u);
}

// Equal bytes at the beginning of words that differ as `differ` says.
fn equal_bytes(differ: u32) -> u32 {
    return countTrailingZeros(differ) >> 3u;
}

// The number of equal bytes from `at` and from `offset` before it on, up to the segment's end, where `known` are known.
fn extended(at: u32, offset: u32, known: u32) -> u32 {
    var length = known;
    loop {
        let p = at + length + 4u * lane;
        // Behind the end nothing is equal.
        var differ = 1u;
        if p < end {
            differ = read32(p) ^ read32(p - offset);
        }
        let ends = team_ballot(differ != 0u);
        if ends != 0u {
            let lead = countTrailingZeros(ends);
            length += 4u * lead + team_broadcast(equal_bytes(differ), lead);
            break;
        }
        length += 128u;
    }
    return min(length, end - at);
}

// The number of equal bytes before `at` and before `offset` before it, at most `room`.
fn extended_back(at: u32, offset: u32, room: u32) -> u32 {
    var length = 0u;
    loop {
        let back = length + 4u * lane;
        var differ = 0x80000000u;
        if back < room {
            differ = read32_before(at - back) ^ read32_before(at - back - offset);
        }
        let ends = team_ballot(differ != 0u);
        if ends != 0u {
            let lead = countTrailingZeros(ends);
            length += 4u * lead + team_broadcast(countLeadingZeros(differ) >> 3u, lead);
            break;
        }
        length += 128u;
    }
    return min(length, room);
}

// Whether the team has a segment; sets what is known of it.
fn segment_start(local_index: u32, group: u32) -> bool {
    team_start(local_index);
    let index = group * TEAMS + team_index;
    let block = index / args.segments;
    let number = index % args.segments;
    if block >= args.blocks {
        return false;
    }
    let len = jobs[block * 8u];
    from_word = block * (args.slot >> 2u);
    start = number << SEGMENT_LOG;
    end = min(start + (1u << SEGMENT_LOG), len);
    last = min(end, max(len, 7u) - 7u);
    window_start = start >> args.window_log << args.window_log;
    list = block * (args.slot >> 2u) + (number << (SEGMENT_LOG - 2u));
    count_word = block * (args.slot >> 8u) + number;
    count = 0u;
    pos = start;
    anchor = start;
    recent = 0u;
    second = 0u;
    return true;
}

fn segment_end() {
    if lane == 0u {
        match_counts[count_word] = count;
    }
}

// Takes a match with the bytes before it that are equal as well.
fn take(at: u32, length: u32, offset: u32) {
    let before = extended_back(at, offset, min(at - offset - window_start, at - anchor));
    if lane == 0u {
        matches[list + count] = vec2(at - before - start | (before + length) << 16u, offset);
    }
    count += 1u;
    if offset != recent {
        second = recent;
        recent = offset;
    }
    pos = at + length;
    anchor = pos;
}

// @pz_if LAZY

// Offsets that a position has a choice of, positions that are measured at the same time, and lanes and words for each.
const CHOICES = CANDIDATES + 1u;
const PAIRS = CHOICES * (LAZY + 1u);
const LANES = select(select(1u, 2u, PAIRS <= 16u), 4u, PAIRS <= 8u);
const AT_ONCE = min(LAZY + 1u, 32u / LANES / CHOICES);
const WORDS = 4u / LANES;

@compute @workgroup_size(THREADS)
fn lazy(
    @builtin(local_invocation_index) local_index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    let is_there = segment_start(local_index, wg.y * wgs.x + wg.x);
    if team_uniform(u32(is_there)) == 0u {
        return;
    }
    let pair = lane / LANES;
    let part = lane % LANES;
    let choice = pair % CHOICES;
    let slot_start = from_word * 4u;
    loop {
        if team_uniform(u32(pos < last)) == 0u {
            break;
        }
        let mine = min(pos + lane, last - 1u);
        let bytes = read32(mine);
        var hit = found[slot_start + mine] != 0u;
        if recent != 0u && read32(mine - recent) == bytes {
            hit = true;
        }
        if pos == anchor && second != 0u && lane == 0u && read32(pos - second) == bytes {
            hit = true;
        }
        let hits = team_ballot(hit && pos + lane < last);
        if hits == 0u {
            pos += 32u;
            continue;
        }
        pos += countTrailingZeros(hits);
        let cheap = select(recent, second, pos == anchor);

        var best_at = pos;
        var best_length = 0u;
        var best_offset = 0u;
        var best_gain = 0i;
        var first = 0u;
        loop {
            if team_uniform(first) > LAZY {
                break;
            }
            let ahead = first + pair / CHOICES;
            let at = pos + ahead;
            var offset = 0u;
            if pair / CHOICES < AT_ONCE && ahead <= LAZY && at < last {
                if choice == 0u {
                    offset = select(recent, cheap, ahead == 0u);
                } else {
                    let row = found[slot_start + at];
                    if (row >> (23u + choice) & 1u) != 0u {
                        offset = at - entries[slot_start + (row & 0xffffffu) - choice].y;
                    }
                }
            }
            // Bytes that are equal in this lane's part.
            var n = 0u;
            if offset != 0u {
                for (var w = 0u; w < WORDS; w++) {
                    let p = at + 4u * (part * WORDS + w);
                    var differ = 1u;
                    if p < end {
                        differ = read32(p) ^ read32(p - offset);
                    }
                    if n == 4u * w {
                        n += select(4u, equal_bytes(differ), differ != 0u);
                    }
                }
            }
            let ends = team_ballot(n < 4u * WORDS);
            let own_ends = ends >> (pair * LANES) & ((1u << LANES) - 1u);
            let end_part = select(0u, countTrailingZeros(own_ends), own_ends != 0u);
            let end_n = team_shuffle(n, pair * LANES + end_part);
            var length = select(16u, 4u * WORDS * end_part + end_n, own_ends != 0u);
            length = select(0u, min(length, end - at), offset != 0u);
            // The long ones, one after the other.
            var more = team_ballot(offset != 0u && part == 0u && own_ends == 0u && at + 16u < end);
            loop {
                if team_uniform(more) == 0u {
                    break;
                }
                let lead = countTrailingZeros(more);
                more &= more - 1u;
                let whole = extended(team_broadcast(at, lead), team_broadcast(offset, lead), 16u);
                if pair * LANES == lead {
                    length = whole;
                }
            }
            // The best of each position: of equals the first, the cheap one before all.
            var key = 0u;
            if length >= 4u {
                let bits = firstLeadingBit(offset + 3u);
                let gain = 4u * length + 1u - select(bits + 1u, 0u, choice == 0u);
                if i32(gain) >= 3i {
                    key = gain << 6u | (63u - choice);
                }
            }
            var i = 0u;
            loop {
                // A position that has no match does not look ahead.
                let is_over = i == AT_ONCE || (first + i > 0u && best_gain == 0i);
                if team_uniform(u32(is_over)) != 0u {
                    break;
                }
                let most = team_max(select(0u, key, pair / CHOICES == i));
                let lead = (i * CHOICES + 63u - (most & 63u)) * LANES;
                let its_length = team_shuffle(length, lead);
                let its_offset = team_shuffle(offset, lead);
                let gain = i32(most >> 6u);
                let distance = first + i;
                let least = best_gain + 1i + 3i * i32(pos + distance - best_at);
                if select(gain > least, gain != 0i, distance == 0u) {
                    best_at = pos + distance;
                    best_gain = gain;
                    best_length = its_length;
                    best_offset = its_offset;
                }
                i += 1u;
            }
            if team_uniform(u32(best_gain == 0i)) != 0u {
                break;
            }
            first += AT_ONCE;
        }
        if team_uniform(u32(best_gain == 0i)) != 0u {
            pos += 1u;
            continue;
        }
        take(best_at, best_length, best_offset);
    }
    segment_end();
}

// @pz_else

@compute @workgroup_size(THREADS)
fn greedy(
    @builtin(local_invocation_index) local_index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    let is_there = segment_start(local_index, wg.y * wgs.x + wg.x);
    if team_uniform(u32(is_there)) == 0u {
        return;
    }
    let slot_start = from_word * 4u;
    loop {
        if team_uniform(u32(pos < last)) == 0u {
            break;
        }
        let mine = min(pos + lane, last - 1u);
        let bytes = read32(mine);
        var offset = found[slot_start + mine];
        if recent != 0u && read32(mine - recent) == bytes {
            offset = recent;
        }
        if pos == anchor && second != 0u && lane == 0u && read32(pos - second) == bytes {
            offset = second;
        }
        let hits = team_ballot(offset != 0u && pos + lane < last);
        if hits == 0u {
            pos += 32u;
            continue;
        }
        let lead = countTrailingZeros(hits);
        let at = pos + lead;
        offset = team_broadcast(offset, lead);
        let length = extended(at, offset, 0u);
        if team_uniform(length) < 4u {
            pos = at + 1u;
            continue;
        }
        take(at, length, offset);
    }
    segment_end();
}

// @pz_end
