// The lazy parse of LZ77: the best match of a few neighbouring positions. The rule is that of the module
// codec::lz77::lazy. All the matches that a step chooses among are measured at the same time, each by LANES lanes, and
// those of 16 bytes and more then by all lanes. `found` is what lz77_latest_two or lz77_latest_four makes: a row of distances
// for each position.
//
// Constants: CANDIDATES, of each hash, 2 or 4; FOUR, whether 4; TWO, whether there are two; LAZY, the further positions looked at.
// @pz_import lz77_segment

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> contents: array<u32>;
// @pz_if FOUR
alias Row = vec4<u32>;
// @pz_else
alias Row = vec2<u32>;
// @pz_end
@group(0) @binding(2) var<storage, read> found: array<Row>;
// @pz_if TWO
@group(0) @binding(3) var<storage, read> found_second: array<Row>;
@group(0) @binding(4) var<storage, read_write> matches: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> match_counts: array<u32>;
// @pz_else
@group(0) @binding(3) var<storage, read_write> matches: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read_write> match_counts: array<u32>;
// @pz_end

// Offsets that a position has a choice of: the cheap one, and the candidates of one hash or two. Then positions that are measured at the same time, and lanes and words for each.
// @pz_if TWO
const CHOICES = 2u * CANDIDATES + 1u;
// @pz_else
const CHOICES = CANDIDATES + 1u;
// @pz_end
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
        var hit = any(found[slot_start + mine] != Row());
// @pz_if TWO
        hit |= any(found_second[slot_start + mine] != Row());
// @pz_end
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
// @pz_if TWO
                } else if choice > CANDIDATES {
                    offset = found_second[slot_start + at][choice - CANDIDATES - 1u];
// @pz_end
                } else {
                    offset = found[slot_start + at][choice - 1u];
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
