// The deep lazy parse of LZ77: takes the best of many candidates, unless a position soon after has a better one. The
// rule is that of the module codec::lz77::deep; `entries` comes from lz77/sort, and `found` from lz77/link. First each
// lane checks one candidate, at the bytes that show soonest whether it can beat the best match so far, and compares it
// if so. Then all lanes continue matches of LANE_BYTES and more.
//
// Constants: CANDIDATES; LANES, which is 32; SAME, the bits of an entry's first word that candidates have in common.
//
// @pz_cost {
//   threads: N/65536*128
//   passes: 1
//   buffers: jobs=32, contents=N, entries=N*8, found=N*4, matches=N*3, match_counts=N/64
//   local_mem: 256
// }
// @pz_import lz77_segment
// @pz_import lz77_common_length
const COMPARED = 4u;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> contents: array<u32>;
@group(0) @binding(2) var<storage, read> entries: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> found: array<u32>;
@group(0) @binding(4) var<storage, read_write> matches: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> match_counts: array<u32>;

// Bytes that a lane compares by itself.
const LANE_BYTES = 64u;
// How many positions to try after one that has a match, the length from which on to try none, and the number of
// literals after which the step between positions grows by one.
const LAZY = 2u;
const LONG_ENOUGH = 64u;
const SKIP_LOG = 6u;

struct Found {
    length: u32,
    offset: u32,
    gain: i32,
}

// The best match of a position, if its gain is more than `least`; otherwise one whose gain is not. The offset `cheap`
// (0 for none) costs less than others.
fn best_at(at: u32, cheap: u32, least: i32) -> Found {
    var best = Found(0u, 0u, 0i);
    let slot_start = from_word * 4u;
    let row = found[slot_start + at];
    if team_uniform(cheap) != 0u {
        let length = extended(at, cheap, 0u, true);
        if length >= 4u {
            best = Found(length, cheap, 4i * i32(length));
        }
    }
    if team_uniform(row) == 0u {
        return best;
    }
    let index = row & 0xffffffu;
    let hash = entries[slot_start + index].x;
    var first = 0u;
    loop {
        if team_uniform(first) >= CANDIDATES {
            break;
        }
        let k = first + lane;
        var offset = 0u;
        var same = false;
        if k < min(CANDIDATES, index) {
            let other = entries[slot_start + index - 1u - k];
            same = (other.x ^ hash) >> 16u == 0u;
            let distance = at - other.y;
            if ((other.x ^ hash) & SAME) == 0u && distance <= at - window_start {
                offset = distance;
            }
        }
        // The shortest length that gains more than the best so far; a match must be at least this long.
        let bits = firstLeadingBit(offset + 3u);
        let needed = max((u32(max(best.gain, least)) + bits) / 4u + 1u, 4u);
        var open = offset != 0u && at + needed <= end;
        if open {
            open = difference(i32(at + needed) - 4i, offset) == 0u;
        }
        var n = 0u;
        let is_close = open;
        while open && n < LANE_BYTES {
            let equal = common_length(at + n, offset);
            n += equal;
            open = equal == 16u && at + n < end;
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
        var key = 0u;
        if length >= 5u || (length == 4u && offset < 1u << 13u) {
            let gain = 4i * i32(length) - i32(bits);
            if gain > 0i {
                key = u32(gain) << 7u | (127u - k);
            }
        }
        let most = team_max(key);
        let lead = 127u - (most & 127u) - first;
        let its_length = team_shuffle(length, lead);
        let its_offset = team_shuffle(offset, lead);
        if i32(most >> 7u) > best.gain {
            best = Found(its_length, its_offset, i32(most >> 7u));
        }
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
    loop {
        if team_uniform(u32(pos < last)) == 0u {
            break;
        }
        // The positions that are next if none before them has a match.
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
        let cheap = select(recent, second, at == anchor);
        if cheap != 0u && difference(i32(at), cheap) == 0u {
            hit = true;
        }
        let hits = team_ballot(hit && mine < last);
        if hits == 0u {
            pos = team_broadcast(mine + 1u + (mine - anchor >> SKIP_LOG), 31u);
            continue;
        }
        pos = team_broadcast(mine, countTrailingZeros(hits));
        var best = best_at(pos, select(recent, second, pos == anchor), 0i);
        if team_uniform(u32(best.gain == 0i)) != 0u {
            pos += 1u + (pos - anchor >> SKIP_LOG);
            continue;
        }
        var match_at = pos;
        var tried = pos + 1u;
        loop {
            let goes_on = tried <= match_at + LAZY && tried < last && best.length < LONG_ENOUGH;
            if team_uniform(u32(goes_on)) == 0u {
                break;
            }
            // Each position further on costs another literal.
            let least = best.gain + 1i + 3i * i32(tried - match_at);
            let other = best_at(tried, recent, least);
            if other.gain > least {
                best = other;
                match_at = tried;
            }
            tried += 1u;
        }
        let room = min(match_at - best.offset - window_start, match_at - anchor);
        let before = extended_back(match_at, best.offset, room, 0u, true);
        take(match_at, before, best.length, best.offset);
    }
    segment_end();
}
