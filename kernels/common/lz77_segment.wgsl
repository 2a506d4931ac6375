// Shared by the LZ77 parses in which teams parse segments: bounds of segments, comparing bytes with earlier ones, and
// taking matches.
//
// LANES lanes parse a segment together, so a team parses 32 / LANES segments, in lockstep: every lane does the work of
// a step, and each segment then decides whether to use the result.
//
// The list of segment s of a block begins at entry s * segment length * 3 / 8 of the block's part of `matches`,
// because a match takes at least three bytes. An entry has two words: the start in the segment plus length << 16, and
// the offset.
//
// A file that imports this binds jobs, contents, matches and match_counts. Segments have 1 << segment_log bytes, and
// segment_log is at most 15. Constants: LANES, 4, 8, 16 or 32; WIDE, whether LANES is 32.
// @pz_import team
// @pz_import lz77_words

struct Args {
    slot: u32,
    segments: u32,
    blocks: u32,
    window_log: u32,
    segment_log: u32,
}

var<immediate> args: Args;

// The first lane of the segment in the team, and this lane's number among those of the segment.
var<private> first_lane: u32;
var<private> part_lane: u32;
var<private> exists: bool;
var<private> window_start: u32;
var<private> start: u32;
var<private> end: u32;
// Positions from here on have no candidates; 0 if there is no segment.
var<private> last: u32;
// Where the segment's matches and their count go, and the count so far.
var<private> list: u32;
var<private> count_word: u32;
var<private> count: u32;
// The position of the parse, and the end of the last match.
var<private> pos: u32;
var<private> anchor: u32;
// The offsets of the last two different matches, the last one first.
var<private> recent: u32;
var<private> second: u32;

// Sets the segment's state, and returns its block.
fn segment_start(local_index: u32, workgroup_index: u32) -> u32 {
    team_start(local_index);
    part_lane = lane & (LANES - 1u);
    first_lane = lane & ~(LANES - 1u);
    let index = (workgroup_index * TEAMS + team_index) * (32u / LANES) + lane / LANES;
    exists = index < args.blocks * args.segments;
    let block = select(0u, index / args.segments, exists);
    let number = select(0u, index % args.segments, exists);
    let len = jobs[block * 8u];
    block_words = args.slot >> 2u;
    from_word = block * block_words;
    list = (block * (args.slot >> 3u) + (number << (args.segment_log - 3u))) * 3u;
    count_word = block * (args.slot >> 8u) + number;
    start = number << args.segment_log;
    end = min(start + (1u << args.segment_log), len);
    window_start = start >> args.window_log << args.window_log;
    last = select(0u, min(end, max(len, 7u) - 7u), exists);
    count = 0u;
    // Some drivers stop an invocation after a number of iterations. If that happens, no matches are better than wrong
    // ones.
    segment_end();
    pos = start;
    anchor = start;
    recent = 0u;
    second = 0u;
    return block;
}

fn segment_end() {
    if exists && part_lane == 0u {
        match_counts[count_word] = count;
    }
}

// Team functions for the lanes of one segment.
fn part_ballot(p: bool) -> u32 {
    return team_ballot(p) >> first_lane & (0xffffffffu >> (32u - LANES));
}

fn part_shuffle(v: u32, source: u32) -> u32 {
    return team_shuffle(v, first_lane | (source & (LANES - 1u)));
}

fn part_max(v: u32) -> u32 {
// @pz_if WIDE
    return team_max(v);
// @pz_else
    var most = max(v, team_shuffle(v, lane ^ 1u));
    most = max(most, team_shuffle(most, lane ^ 2u));
    if LANES >= 8u {
        most = max(most, team_shuffle(most, lane ^ 4u));
    }
    if LANES >= 16u {
        most = max(most, team_shuffle(most, lane ^ 8u));
    }
    return most;
// @pz_end
}

// The four bytes at `at`. They may begin up to three bytes before the block, or behind its slot; bytes outside have any
// value.
fn bytes_at(at: i32) -> u32 {
    let word = at >> 2u;
    let low = contents[from_word + u32(max(word, 0i))];
    let high = contents[from_word + min(u32(word + 1i), block_words - 1u)];
    return bytes_of(low, high, (bitcast<u32>(at) & 3u) * 8u);
}

// The exclusive or of the bytes at `at` and those `offset` before.
fn difference(at: i32, offset: u32) -> u32 {
    return bytes_at(at) ^ bytes_at(at - i32(offset));
}

// The number of equal bytes at the end of two words with the exclusive or `differ`; 4 if it is 0.
fn equal_last(differ: u32) -> u32 {
    return countLeadingZeros(differ) >> 3u;
}

// The number of equal bytes at `at` and `offset` before it, up to the segment's end. The first `known` are known
// to be equal, and `may_be_more` tells whether there may be more.
fn extended(at: u32, offset: u32, known: u32, may_be_more: bool) -> u32 {
    var length = known;
    var is_open = may_be_more;
    loop {
        if !team_any(is_open) {
            break;
        }
        let p = at + length + 4u * part_lane;
        // Bytes behind the end count as different.
        var differ = 1u;
        if is_open && p < end {
            differ = difference(i32(p), offset);
        }
        let ends = part_ballot(differ != 0u);
        let end_lane = select(LANES - 1u, countTrailingZeros(ends), ends != 0u);
        let more = 4u * end_lane + part_shuffle(equal_first(differ), end_lane);
        length += select(0u, more, is_open);
        is_open = is_open && ends == 0u;
    }
    return min(length, end - at);
}

// The number of equal bytes before `at` and before `offset` before it, at most `room`. `known` of them are already
// known, and `may_be_more` tells whether there may be more.
fn extended_back(at: u32, offset: u32, room: u32, known: u32, may_be_more: bool) -> u32 {
    var length = known;
    var is_open = may_be_more;
    loop {
        if !team_any(is_open) {
            break;
        }
        let back = length + 4u * part_lane;
        var differ = 0x80000000u;
        if is_open && back < room {
            differ = difference(i32(at - back) - 4i, offset);
        }
        let ends = part_ballot(differ != 0u);
        let end_lane = select(LANES - 1u, countTrailingZeros(ends), ends != 0u);
        let more = 4u * end_lane + part_shuffle(equal_last(differ), end_lane);
        length += select(0u, more, is_open);
        is_open = is_open && ends == 0u;
    }
    return min(length, room);
}

// Takes a match that begins `before` bytes before `at` and has `length` bytes from `at` on.
fn take(at: u32, before: u32, length: u32, offset: u32) {
    if part_lane == 0u {
        matches[list + count] = vec2(at - before - start | (before + length) << 16u, offset);
    }
    count += 1u;
    if offset != recent {
        second = recent;
        recent = offset;
    }
    anchor = at + length;
    pos = anchor;
}
