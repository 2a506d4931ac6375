// The deep lazy parse of LZ77: takes the best of many candidates, unless a position soon after has a better one. The
// rule is that of the module codec::lz77::deep; `entries` comes from lz77/sort, and `found` from lz77/link. Lanes first
// compare the bytes at the recent offsets, one offset per lane, then those at the position's candidates. A lane first
// checks the bytes that decide whether its match can beat the best so far, and only then compares the others. Then all
// lanes together continue matches of LANE_BYTES and more.
//
// The thorough variant also has `near`, from lz77/latest: the distance of each position's nearest candidate by a hash
// of three bytes, 0 for none.
//
// Constants: CANDIDATES; LANES, which is 32; SAME, the bits of an entry's first word that candidates have in common;
// THOROUGH, whether this is the thorough variant.
//
// @pz_cost quick {
//   threads: N/65536*128
//   passes: 1
//   buffers: jobs=32, contents=N, entries=N*8, found=N*4, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
//
// @pz_cost thorough {
//   threads: N/65536*256
//   passes: 1
//   buffers: jobs=32, contents=N, entries=N*8, found=N*4, rows_one=N*4, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
// @pz_import lz77_segment
// @pz_import lz77_common_length
const COMPARED = 2u;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> contents: array<u32>;
@group(0) @binding(2) var<storage, read> entries: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> found: array<u32>;
// @pz_if THOROUGH
@group(0) @binding(4) var<storage, read> near: array<u32>;
@group(0) @binding(5) var<storage, read_write> matches: array<vec2<u32>>;
@group(0) @binding(6) var<storage, read_write> match_counts: array<u32>;
// @pz_else
@group(0) @binding(4) var<storage, read_write> matches: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> match_counts: array<u32>;
// @pz_end

// Bytes that a lane compares alone.
const LANE_BYTES = 64u;
// The number of literals after which the step between positions grows by one, as a logarithm.
const SKIP_LOG = 6u;
// The shortest match, and the gain that makes up for a literal. `patience` is the number of positions to try after one
// with a match, from the bits of its offset and LITERAL_BITS, the assumed bits of a literal; none after a match of
// LONG_ENOUGH or more. Short matches by the near hash reach back at most NEAR_REACH.
const MIN_MATCH = 3u;
const LITERAL_GAIN = 3i;
const NEAR_REACH = 1u << 8u;
// @pz_if THOROUGH
const LONG_ENOUGH = 128u;
const LITERAL_BITS = 7u;
// @pz_else
const LONG_ENOUGH = 64u;
const LITERAL_BITS = 9u;
// @pz_end

struct Found {
    length: u32,
    offset: u32,
    gain: i32,
}

// The number of positions to try after one with this match.
fn patience(f: Found) -> u32 {
    return (4u * f.length - u32(f.gain) + 6u) / LITERAL_BITS;
}

// Whether `count` bytes, 3 or 4, at `at` equal those `offset` before; not if that is 0.
fn repeats(at: u32, offset: u32, count: u32) -> bool {
    if offset == 0u {
        return false;
    }
    return difference(i32(at), offset) << (32u - 8u * count) == 0u;
}

// The better of `best` and the lanes' matches. Each lane tries the match `offset` bytes back, 0 for none, whose offset
// takes `bits` bits. The match counts if it has at least `shortest` bytes and gains more than `least`. Among equal
// gains, the first lane wins.
fn best_of_lanes(at: u32, offset: u32, bits: u32, shortest: u32, best: Found, least: i32) -> Found {
    // The shortest length that gains enough.
    let needed = max((u32(max(best.gain, least)) + bits) / 4u + 1u, shortest);
    // The last four bytes of such a match, or all three.
    let probed = min(needed, 4u);
    var open = at + needed <= end && repeats(at + needed - probed, offset, probed);
    let is_close = open;
    if team_uniform(u32(team_any(open))) == 0u {
        return best;
    }
    var n = 0u;
    while open && n < LANE_BYTES {
        let equal = common_length(at + n, offset);
        n += equal;
        open = equal == 4u * COMPARED && at + n < end;
    }
    var length = select(0u, min(n, end - at), is_close);
    var rest = team_ballot(open);
    loop {
        if team_uniform(rest) == 0u {
            break;
        }
        let lead = countTrailingZeros(rest);
        rest &= rest - 1u;
        let whole = extended(at, team_broadcast(offset, lead), LANE_BYTES, true);
        if lane == lead {
            length = whole;
        }
    }
    let gain = 4u * length - bits;
    let most = team_max(select(0u, gain << 5u | (31u - lane), length >= needed));
    if team_uniform(most) == 0u {
        return best;
    }
    let lead = 31u - (most & 31u);
    return Found(team_shuffle(length, lead), team_shuffle(offset, lead), i32(most >> 5u));
}

// The best match of a position, if its gain is more than `least`; otherwise one without gain. `known` holds the
// decoder's recent offsets (0 for none).
fn best_at(at: u32, known: vec3<u32>, least: i32) -> Found {
    let slot_start = from_word * 4u;
    let row = found[slot_start + at];
    let index = row & 0xffffffu;
    let hash = entries[slot_start + index].x;
    // Each lane loads its candidate early, because such loads take long.
    var other = entries[slot_start + max(index, lane + 1u) - 1u - lane];
    // First, three lanes compare the bytes at one recent offset each.
    var offset = 0u;
    if lane < 3u {
        offset = known[lane];
    }
    var bits = 0u;
    var shortest = MIN_MATCH;
// @pz_if THOROUGH
    if lane == 3u {
        offset = near[slot_start + at];
        bits = firstLeadingBit(offset + 3u);
        shortest = select(4u, 3u, offset <= NEAR_REACH);
    }
// @pz_end
    var best = best_of_lanes(at, offset, bits, shortest, Found(0u, 0u, 0i), least);
    if team_uniform(row) == 0u {
        return best;
    }
    var first = 0u;
    loop {
        if team_uniform(first) >= CANDIDATES {
            break;
        }
        let k = first + lane;
        offset = 0u;
        var same = false;
        if k < min(CANDIDATES, index) {
            if first != 0u {
                other = entries[slot_start + index - 1u - k];
            }
            same = (other.x ^ hash) >> 16u == 0u;
            let distance = at - other.y;
            if ((other.x ^ hash) & SAME) == 0u && distance <= at - window_start {
                offset = distance;
            }
        }
        bits = firstLeadingBit(offset + 3u);
        best = best_of_lanes(at, offset, bits, select(5u, 4u, offset < 1u << 13u), best, least);
        // Entries of the same hash are adjacent.
        if !team_any(same && lane == 31u) {
            break;
        }
        first += 32u;
    }
    return best;
}

// @pz_entry
fn deep(local_index: u32, workgroup_index: u32) {
    let slot_start = segment_start(local_index, workgroup_index) * args.slot;
    var known = vec3<u32>();
    loop {
        if team_uniform(u32(pos < last)) == 0u {
            break;
        }
        // The next positions to try, one per lane, if none before them has a match.
        var mine = pos;
        if pos - anchor + 31u < 1u << SKIP_LOG {
            mine += lane;
        } else {
            for (var i = 0u; i < lane; i++) {
                mine += 1u + (mine - anchor >> SKIP_LOG);
            }
        }
        let at = min(mine, last - 1u);
        var hit = found[slot_start + at] != 0u;
        hit |= repeats(at, known.x, MIN_MATCH) || repeats(at, known.y, MIN_MATCH) || repeats(at, known.z, MIN_MATCH);
// @pz_if THOROUGH
        let nearest = near[slot_start + at];
        hit |= repeats(at, nearest, select(4u, 3u, nearest <= NEAR_REACH));
// @pz_end
        let hits = team_ballot(hit && mine < last);
        if hits == 0u {
            pos = team_broadcast(mine + 1u + (mine - anchor >> SKIP_LOG), 31u);
            continue;
        }
        pos = team_broadcast(mine, countTrailingZeros(hits));
        var best = best_at(pos, known, 0i);
        if team_uniform(u32(best.gain == 0i)) != 0u {
            pos += 1u + (pos - anchor >> SKIP_LOG);
            continue;
        }
        var match_at = pos;
        var tried = pos + 1u;
        loop {
            let goes_on = tried <= match_at + patience(best) && tried < last && best.length < LONG_ENOUGH;
            if team_uniform(u32(goes_on)) == 0u {
                break;
            }
            // Each further position costs another literal.
            let least = best.gain + 1i + LITERAL_GAIN * i32(tried - match_at);
            let other = best_at(tried, known, least);
            if other.gain > least {
                best = other;
                match_at = tried;
            }
            tried += 1u;
        }
        let room = min(match_at - best.offset - window_start, match_at - anchor);
        let before = extended_back(match_at, best.offset, room, 0u, true);
        take(match_at, before, best.length, best.offset);
        if all(known != vec3(best.offset)) {
            known = vec3(best.offset, known.xy);
        }
    }
    segment_end();
}
