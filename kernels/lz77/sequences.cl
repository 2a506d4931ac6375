// Cuts the matches of a block into the sequences of its chunks, and collects the literals. One team per chunk. The rule
// is that of the module codec::lz77::stream::sequences.
//
// With matches, the literals of a chunk go to `payload`, which is free until later, at the offset of the chunk's
// contents. Without matches, the contents are the literals.
//
// A sequence is a word in `lz77_tokens`, literals | length << 9, and one in `lz77_offsets`: first its offset, later
// symbol | extra bits << 6.
//
// @pz_cost {
//   threads: N/131072*64
//   passes: 2
//   buffers: jobs=32, contents=N, matches=N*3, match_counts=N/64, payload=N+256,
//            lz77_tokens=N+N/4+N/16+N/64+N/64+256, lz77_offsets=N+N/4+N/16+N/64+N/64+256,
//            lz77_streams=N/65536*1024, lz77_counts=N/65536*3072
//   local_mem: 2816
// }
// @pz_import team
// @pz_import lz77_code

// The literals of a batch: where each lane's literals begin among the chunk's, and the distance to their source.
typedef struct {
    uint first[32];
    uint source[32];
    uint carry;
} Gather;

// The lane of the literal at place `at`: the last one whose literals begin at or before it.
inline uint literal_lane(__local const Gather *g, uint at) {
    uint i = g->first[16] <= at ? 16u : 0u;
    i += g->first[i + 8u] <= at ? 8u : 0u;
    i += g->first[i + 4u] <= at ? 4u : 0u;
    i += g->first[i + 2u] <= at ? 2u : 0u;
    i += g->first[i + 1u] <= at ? 1u : 0u;
    return i;
}

// The number of sequences that hold only literals, at most MAX_LITERALS each, before the one in which the match begins.
inline uint literal_pieces(uint literals) {
    return literals > MAX_LITERALS ? (literals - 1u) / MAX_LITERALS : 0u;
}

// Length of piece `i` of the `n` of a match: the rest must not be shorter than a match can be.
inline uint match_piece(uint length, uint n, uint i) {
    if (i + 2u < n || n < 2u) return n < 2u ? length : MAX_MATCH;
    uint rest = length - MAX_MATCH * (n - 2u);
    uint part = rest < MAX_MATCH + MIN_MATCH ? MAX_MATCH - MIN_MATCH : MAX_MATCH;
    return i + 1u == n ? rest - part : part;
}

#if MATCHES
// The number of equal bytes from `pos` on and from `offset` before it, up to `end`.
inline uint team_common_length(Team team, __global const uchar *contents, uint pos, uint offset, uint end) {
    for (uint n = 0;; n += 128u) {
        uint equal = 4u;
#pragma unroll
        for (uint b = 4u; b-- > 0u;) {
            uint at = min(pos + n + 4u * team.lane + b, end);
            bool is_equal = at < end && contents[at] == contents[at - offset];
            equal = is_equal ? equal : b;
        }
        uint differ = team_ballot(team, equal < 4u);
        if (differ != 0u) {
            uint first = log2_floor(differ & (0u - differ));
            return n + 4u * first + team_broadcast(team, equal, first);
        }
    }
}
#endif

__kernel void cut(
    __global const uint *restrict jobs,
#if MATCHES
    __global const uchar *restrict contents,
    __global const uint2 *restrict matches,
    __global const uint *restrict match_counts,
    __global uint *restrict literals,
#endif
    __global uint *restrict tokens,
    __global uint *restrict offsets,
    __global uint *restrict chunks,
    uint blocks, uint slot, uint chunk_log, uint chunks_per_block, uint literal_stride, uint segment_log, uint counts_stride,
    uint sequence_stride, uint chunk_stride, uint group_log, uint count_stride
) {
    TEAM_START(team);
#if MATCHES
    SHARED Gather gathers[TEAMS];
    __local Gather *g = &gathers[team.index];
#endif
    uint at = (uint)get_group_id(0) * TEAMS + team.index;
    uint block = at / chunks_per_block, chunk = at % chunks_per_block;
    if (block >= blocks) return;
    uint len = min(jobs[8u * block], slot);
    uint begin = chunk << chunk_log;
    if (begin >= len) return;
    uint end = min(len, begin + (1u << chunk_log));
    uint room = sequence_room(1u << chunk_log);
    tokens += (ulong)block * sequence_stride + (ulong)chunk * room;
    offsets += (ulong)block * sequence_stride + (ulong)chunk * room;
    chunks += (ulong)block * chunk_stride + chunk * CHUNK_WORDS;
    uint most = sequence_room(end - begin);

    uint sequence_count = 0;
    uint literal_count = end - begin;
    uint last_end = begin;  // of the matches so far
#if MATCHES
    contents += (ulong)block * slot;
    literals += (ulong)block * literal_stride + (begin >> 2);
    literal_count = 0;
    uint segment_len = 1u << segment_log, list_len = segment_len / 8u * 3u;
    // The sequence that later matches may continue. It is written as soon as a match does not continue it.
    uint pending_run = 0, pending_start = 0, pending_offset = 0;
    uint carry = 0;  // the literals of an unfinished word

    uint segments = (end - begin + segment_len - 1u) >> segment_log;
    uint segment = begin >> segment_log, last_segment = segment + segments - 1u;
    matches += (ulong)block * (slot / 8u * 3u);
    match_counts += (ulong)block * counts_stride;
    // Load matches ahead of their turn, and the first ones of a segment before their number is known.
    uint next_n = match_counts[segment];
    uint2 next_first = matches[(ulong)segment * list_len + team.lane];
    for (uint s = 0; s <= segments; s++) {
        // After the last segment comes an empty match at the chunk's end, for the literals before it.
        bool is_end = s == segments;
        uint n = team_uniform(team, is_end ? 1u : min(next_n, list_len));
        uint2 next = next_first;
        segment = min((begin >> segment_log) + s, last_segment);
        __global const uint2 *list = matches + (ulong)segment * list_len;
        uint after = min(segment + 1u, last_segment);
        next_n = match_counts[after];
        next_first = matches[(ulong)after * list_len + team.lane];

        uint segment_begin = segment << segment_log, skipped = 0;
        if (s != 0 && !is_end) {
            // A match that ended with its segment goes on, unless the first match here continues it.
            uint first = team_broadcast(team, next.x, 0u), first_offset = team_broadcast(team, next.y, 0u);
            bool continues = n != 0u && (first & 0xffffu) == 0u && first_offset == pending_offset;
            if (last_end == segment_begin && pending_offset - 1u < last_end && !continues) {
                last_end += team_common_length(team, contents, last_end, pending_offset, end);
            }
            // Skip the matches that it covers, and one that would be left shorter than the shortest match.
            for (uint few = 32u; few == 32u && skipped < n;) {
                uint stop = segment_begin + (next.x & 0xffffu) + (next.x >> 16);
                bool is_covered = skipped + team.lane < n && stop < last_end + MIN_MATCH;
                few = popcount(team_ballot(team, is_covered));
                skipped += few;
                if (few != 0u) next = list[min(skipped + team.lane, list_len - 1u)];
            }
        }
        for (uint j = skipped; j < n; j += 32u) {
            uint active = min(n - j, 32u);
            uint start = end, stop = end, offset = 0xffffffffu;
            uint2 m = next;
            next = list[min(j + 32u + team.lane, list_len - 1u)];
            if (team.lane < active && !is_end) {
                start = segment_begin + (m.x & 0xffffu);
                stop = min(start + (m.x >> 16), end);
                start = clamp(start, last_end, end);
                offset = m.y;
            }
            uint before = team_shuffle_up(team, stop, 1u);
            uint offset_before = team_shuffle_up(team, offset, 1u);
            if (team.lane == 0u) {
                before = last_end;
                offset_before = pending_offset;
            }
            before = min(before, start);
            bool is_head = team.lane < active && !(offset == offset_before && start == before);
            uint heads = team_ballot(team, is_head);
            uint run = is_head ? start - before : 0u;

            // Copy the literals, a word of four per lane.
            uint sum = team_scan(team, run);
            g->first[team.lane] = literal_count + sum - run;
            g->source[team.lane] = before - (literal_count + sum - run);
            uint literal_end = literal_count + team_broadcast(team, sum, 31u);
            if (team.lane == 0u) g->carry = carry;
            team_sync(team);
            uint first_word = literal_count >> 2;
            uint words = literal_end != literal_count ? ((literal_end + 3u) >> 2) - first_word : 0u;
            for (uint w = 0; w < words; w += 32u) {
                uint place = (first_word + w + team.lane) << 2;
                uint value = w + team.lane == 0u ? carry : 0u;
                // Loads the nearest literal instead of bytes outside, so that all four loads run at once.
                uint bytes[4];
#pragma unroll
                for (uint b = 0; b < 4u; b++) {
                    uint i = clamp(place + b, literal_count, literal_end - 1u);
                    bytes[b] = contents[i + g->source[literal_lane(g, i)]];
                }
#pragma unroll
                for (uint b = 0; b < 4u; b++) {
                    bool is_new = place + b >= literal_count && place + b < literal_end;
                    value |= is_new ? bytes[b] << (8u * b) : 0u;
                }
                if (place < literal_end) {
                    if (place + 4u <= literal_end) literals[place >> 2] = value;
                    else g->carry = value;
                }
            }
            team_sync(team);
            carry = (literal_end & 3u) != 0u ? g->carry : 0u;
            literal_count = literal_end;

            // Each match that does not continue the one before ends that one's sequence.
            uint earlier = heads & team_before(team);
            uint from = earlier != 0u ? log2_floor(earlier) : 0u;
            uint run_before = team_shuffle(team, run, from);
            uint start_before = team_shuffle(team, start, from);
            uint sequence_offset = team_shuffle(team, offset, from);
            if (earlier == 0u) {
                run_before = pending_run;
                start_before = pending_start;
                sequence_offset = pending_offset;
            }
            uint length = before - start_before;
            uint run_pieces = literal_pieces(run_before);
            uint match_pieces = (length + MAX_MATCH - 1u) / MAX_MATCH;
            uint pieces = is_head && sequence_offset != 0u ? run_pieces + match_pieces : 0u;
            uint place = team_scan(team, pieces);
            uint total = team_broadcast(team, place, 31u);
            place += sequence_count - pieces;
            uint steps = team_max(team, pieces);
            for (uint i = 0; i < steps; i++) {
                if (i < pieces && place + i < most) {
                    uint l = i < run_pieces ? MAX_LITERALS : i == run_pieces ? run_before - MAX_LITERALS * run_pieces : 0u;
                    uint m = i < run_pieces ? 0u : match_piece(length, match_pieces, i - run_pieces);
                    tokens[place + i] = l | m << 9;
                    offsets[place + i] = m != 0u ? sequence_offset : 0u;
                }
            }
            sequence_count += total;
            if (heads != 0u) {
                uint last = log2_floor(heads);
                pending_run = team_broadcast(team, run, last);
                pending_start = team_broadcast(team, start, last);
                pending_offset = team_broadcast(team, offset, last);
            }
            if (!is_end) last_end = team_broadcast(team, stop, active - 1u);
        }
    }
    if (team.lane == 0u && (literal_count & 3u) != 0u) literals[literal_count >> 2] = carry;
#endif
    // The literals after the last match.
    uint rest = end - last_end;
    if (rest > 0u) {
        uint pieces = literal_pieces(rest) + 1u;
        for (uint i = team.lane; i < pieces; i += 32u) {
            if (sequence_count + i < most) {
                tokens[sequence_count + i] = i + 1u < pieces ? MAX_LITERALS : rest - MAX_LITERALS * (pieces - 1u);
                offsets[sequence_count + i] = 0u;
            }
        }
        sequence_count += pieces;
    }
    if (team.lane == 0u) {
        chunks[CHUNK_LITERALS] = literal_count;
        chunks[CHUNK_SEQUENCES] = min(sequence_count, most);
    }
}

// One step of the queue of recent offsets, for all lanes. Lane `i` keeps the queue from before its sequence.
#define RECENT_STEP(i)                                       \
    {                                                        \
        uint o = buffer[i];                                  \
        if (team.lane == i) {                                \
            mine_a = a;                                      \
            mine_b = b;                                      \
            mine_c = c;                                      \
        }                                                    \
        bool known = o == a || o == b || o == c || o == 0u;  \
        c = known ? c : b;                                   \
        b = known ? b : a;                                   \
        a = known ? a : o;                                   \
    }
#define RECENT_STEPS(i) RECENT_STEP(i) RECENT_STEP(i + 1u) RECENT_STEP(i + 2u) RECENT_STEP(i + 3u)

// Gives offsets their symbols, and counts the symbols of tokens and offsets.
__kernel void classify(
    __global const uint *restrict jobs,
    __global const uint *restrict tokens,
    __global uint *restrict offsets,
    __global const uint *restrict chunks,
    __global uint *restrict counts,
    uint blocks, uint slot, uint chunk_log, uint chunks_per_block, uint literal_stride, uint segment_log, uint counts_stride,
    uint sequence_stride, uint chunk_stride, uint group_log, uint count_stride
) {
    TEAM_START(team);
    SHARED uint buffers[TEAMS * 32];
    SHARED uint histograms[TEAMS * 320];
    uint at = (uint)get_group_id(0) * TEAMS + team.index;
    uint block = at / chunks_per_block, chunk = at % chunks_per_block;
    if (block >= blocks) return;
    if (chunk << chunk_log >= min(jobs[8u * block], slot)) return;
    __local uint *buffer = buffers + 32u * team.index;
    __local uint *histogram = histograms + 320u * team.index;
    uint room = sequence_room(1u << chunk_log);
    tokens += (ulong)block * sequence_stride + (ulong)chunk * room;
    offsets += (ulong)block * sequence_stride + (ulong)chunk * room;
    counts += (ulong)block * count_stride + (chunk >> group_log) * 3u * COUNT_WORDS;
    uint n = team_uniform(team, chunks[(ulong)block * chunk_stride + chunk * CHUNK_WORDS + CHUNK_SEQUENCES]);
    for (uint i = team.lane; i < 320u; i += 32u) histogram[i] = 0u;
    team_sync(team);

    uint a = 1u, b = 4u, c = 8u;
    uint next_token = 0, next_offset = 0;
    if (team.lane < n) {
        next_token = tokens[team.lane];
        next_offset = offsets[team.lane];
    }
    for (uint i = 0; i < n; i += 32u) {
        uint token = next_token, offset = next_offset;
        bool is_active = i + team.lane < n;
        next_offset = 0;
        if (i + 32u + team.lane < n) {
            next_token = tokens[i + 32u + team.lane];
            next_offset = offsets[i + 32u + team.lane];
        }
        buffer[team.lane] = offset;
        team_sync(team);
        uint mine_a = 0, mine_b = 0, mine_c = 0;
        RECENT_STEPS(0u) RECENT_STEPS(4u) RECENT_STEPS(8u) RECENT_STEPS(12u)
        RECENT_STEPS(16u) RECENT_STEPS(20u) RECENT_STEPS(24u) RECENT_STEPS(28u)
        team_sync(team);
        uint x = offset + 3u;
        uint k = log2_floor(x) - 1u;
        uint symbol = 3u + 2u * (k - 1u) + (x >> k & 1u);
        uint extra = x & ((1u << k) - 1u);
        if (offset == mine_a || offset == mine_b || offset == mine_c || offset == 0u) {
            symbol = offset == mine_a || offset == 0u ? 0u : offset == mine_b ? 1u : 2u;
            extra = 0u;
        }
        if (is_active) {
            offsets[i + team.lane] = symbol | extra << 6;
            atomic_inc(&histogram[token_symbol(token & 511u, token >> 9)]);
            atomic_inc(&histogram[256u + symbol]);
        }
    }
    team_sync(team);
    for (uint i = team.lane; i < 304u; i += 32u) {
        if (histogram[i] != 0u) atomic_add(&counts[COUNT_WORDS + i], histogram[i]);
    }
}
