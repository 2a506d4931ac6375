// The greedy parse of LZ77: the matches of a segment. It takes the first match found; the rules are those of the module
// codec::lz77::greedy, and `found` is what lz77_latest makes. Candidates are verified here.
//
// A team has several segments, each of which LANES lanes go through together: they look at as many positions at once for
// one that may have a match, and compare the bytes of that, most of them forward and the rest backward. All segments of a
// team take their steps at the same time.
//
// Constants: SEGMENT_LOG, at most 15; LANES, 8, 16 or 32.
//
// @pz_cost {
//   threads_per_element: 0.004
//   passes: 1
//   buffers: jobs=32, contents=N, found=N*4, matches=N*3, match_counts=N/64
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
@group(0) @binding(2) var<storage, read> found: array<u32>;
@group(0) @binding(3) var<storage, read_write> matches: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> match_counts: array<u32>;

// Lanes that compare what follows; the rest compare what comes before.
const FORWARD = LANES / 4u * 3u;

// The block's first word of the contents.
var<private> from_word: u32;
// The first lane of the segment.
var<private> first_lane: u32;

// Of the lanes of a segment alone.
fn part_ballot(p: bool) -> u32 {
    return team_ballot(p) >> first_lane & (0xffffffffu >> (32u - LANES));
}

fn part_shuffle(v: u32, source: u32) -> u32 {
    return team_shuffle(v, first_lane | source);
}

// The four bytes from `at` on, which may be up to three before the block, or behind its slot: bytes there read as any.
fn read32(at: i32) -> u32 {
    let word = at >> 2u;
    let shift = (bitcast<u32>(at) & 3u) * 8u;
    let low = contents[from_word + u32(max(word, 0i))];
    let high = contents[from_word + min(u32(word + 1i), (args.slot >> 2u) - 1u)];
    return low >> shift | high << 1u << (31u - shift);
}

// How the bytes at `at` differ from those `offset` before.
fn difference(at: i32, offset: u32) -> u32 {
    return read32(at) ^ read32(at - i32(offset));
}

// Equal bytes at the beginning, and at the end, of words that differ as `differ` says: 4 where they do not.
fn equal_first(differ: u32) -> u32 {
    return countTrailingZeros(differ) >> 3u;
}

fn equal_last(differ: u32) -> u32 {
    return countLeadingZeros(differ) >> 3u;
}

@compute @workgroup_size(THREADS)
fn greedy(
    @builtin(local_invocation_index) local_index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    team_start(local_index);
    let part_lane = lane & (LANES - 1u);
    first_lane = lane & ~(LANES - 1u);
    let index = ((wg.y * wgs.x + wg.x) * TEAMS + team_index) * (32u / LANES) + lane / LANES;
    let exists = index < args.blocks * args.segments;
    let block = select(0u, index / args.segments, exists);
    let number = select(0u, index % args.segments, exists);
    let len = jobs[block * 8u];
    from_word = block * (args.slot >> 2u);
    let slot_start = block * args.slot;
    let list = (block * (args.slot >> 3u) + (number << (SEGMENT_LOG - 3u))) * 3u;
    let count_word = block * (args.slot >> 8u) + number;
    let start = number << SEGMENT_LOG;
    let end = min(start + (1u << SEGMENT_LOG), len);
    let window_start = start >> args.window_log << args.window_log;
    let last = select(0u, min(end, max(len, 7u) - 7u), exists);
    if exists && part_lane == 0u {
        // Some drivers end an invocation after a number of iterations. Then there are no matches rather than any.
        match_counts[count_word] = 0u;
    }
    var count = 0u;
    var pos = start;
    var anchor = start;
    // The offsets of the last two different matches, the last one first.
    var recent = 0u;
    var second = 0u;
    loop {
        let is_active = pos < last;
        if !team_any(is_active) {
            break;
        }
        let mine = select(0u, min(pos + part_lane, last - 1u), is_active);
        let bytes = read32(i32(mine));
        var offset = found[slot_start + mine];
        if is_active && recent != 0u && read32(i32(mine - recent)) == bytes {
            offset = recent;
        }
        if is_active && pos == anchor && second != 0u && part_lane == 0u && read32(i32(pos - second)) == bytes {
            offset = second;
        }
        let hits = part_ballot(is_active && offset != 0u && pos + part_lane < last);
        let has = hits != 0u;
        let lead = select(0u, countTrailingZeros(hits), has);
        let at = pos + lead;
        offset = part_shuffle(offset, lead);

        let room_back = select(0u, min(at - offset - window_start, at - anchor), has);
        let is_forward = part_lane < FORWARD;
        let back = 4u * (part_lane - FORWARD);
        let p = select(i32(at - back) - 4i, i32(at + 4u * part_lane), is_forward);
        // Behind the end, and before what may be taken, nothing is equal.
        var differ = 0x80000001u;
        if select(back < room_back, has && u32(p) < end, is_forward) {
            differ = difference(p, offset);
        }
        let n = select(equal_last(differ), equal_first(differ), is_forward);
        var ends = part_ballot(differ != 0u);
        let ends_ahead = ends & ((1u << FORWARD) - 1u);
        let ends_back = ends >> FORWARD;

        var end_lane = select(FORWARD - 1u, countTrailingZeros(ends_ahead), ends_ahead != 0u);
        var length = 4u * end_lane + part_shuffle(n, end_lane);
        var is_open = has && ends_ahead == 0u;
        loop {
            if !team_any(is_open) {
                break;
            }
            let q = at + length + 4u * part_lane;
            differ = 1u;
            if is_open && q < end {
                differ = difference(i32(q), offset);
            }
            ends = part_ballot(differ != 0u);
            end_lane = select(LANES - 1u, countTrailingZeros(ends), ends != 0u);
            let more = 4u * end_lane + part_shuffle(equal_first(differ), end_lane);
            length += select(0u, more, is_open);
            is_open = is_open && ends == 0u;
        }
        length = min(length, end - at);
        let takes = has && length >= 4u;

        end_lane = select(LANES - FORWARD - 1u, countTrailingZeros(ends_back), ends_back != 0u);
        var before = 4u * end_lane + part_shuffle(n, FORWARD + end_lane);
        is_open = takes && ends_back == 0u;
        loop {
            if !team_any(is_open) {
                break;
            }
            let q = before + 4u * part_lane;
            differ = 0x80000000u;
            if is_open && q < room_back {
                differ = difference(i32(at - q) - 4i, offset);
            }
            ends = part_ballot(differ != 0u);
            end_lane = select(LANES - 1u, countTrailingZeros(ends), ends != 0u);
            let more = 4u * end_lane + part_shuffle(equal_last(differ), end_lane);
            before += select(0u, more, is_open);
            is_open = is_open && ends == 0u;
        }
        before = min(before, room_back);

        if takes {
            if part_lane == 0u {
                matches[list + count] = vec2(at - before - start | (before + length) << 16u, offset);
            }
            count += 1u;
            second = select(second, recent, offset != recent);
            recent = offset;
            anchor = at + length;
            pos = anchor;
        } else {
            pos = select(pos + LANES, at + 1u, has);
        }
    }
    if exists && part_lane == 0u {
        match_counts[count_word] = count;
    }
}
