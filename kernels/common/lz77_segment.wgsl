// Shared by the LZ77 parses: a team's segment, comparing its bytes with earlier ones, and taking matches.
//
// The list of segment s of a block begins at entry s * segment length * 3 / 8 of the block's part of `matches`,
// because a match takes at least three bytes. An entry has two words: the start in the segment plus length << 16, and
// the offset.
//
// A file that imports this binds jobs, contents, matches and match_counts. Constants: SEGMENT_LOG, at most 15.
// @pz_import team
// @pz_import lz77_words

struct Args {
    slot: u32,
    segments: u32,
    blocks: u32,
    window_log: u32,
}

var<immediate> args: Args;

// Of the team's segment.
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

// The number of equal bytes at `at` and `offset` before it, up to the segment's end. `known` of them are known.
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

// Whether the team has a segment. If it has, sets the segment's state.
fn segment_start(local_index: u32, group: u32) -> bool {
    team_start(local_index);
    let index = group * TEAMS + team_index;
    let block = index / args.segments;
    let number = index % args.segments;
    if block >= args.blocks {
        return false;
    }
    let len = jobs[block * 8u];
    block_words = args.slot >> 2u;
    from_word = block * block_words;
    start = number << SEGMENT_LOG;
    end = min(start + (1u << SEGMENT_LOG), len);
    last = min(end, max(len, 7u) - 7u);
    window_start = start >> args.window_log << args.window_log;
    list = (block * (args.slot >> 3u) + (number << (SEGMENT_LOG - 3u))) * 3u;
    count_word = block * (args.slot >> 8u) + number;
    count = 0u;
    // Some drivers stop an invocation after a number of iterations. Then there must be no matches, rather than wrong
    // ones.
    segment_end();
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
