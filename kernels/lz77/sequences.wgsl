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

struct Args {
    blocks: u32,
    slot: u32,
    chunk_log: u32,
    chunks_per_block: u32,
    literal_stride: u32,
    segment_log: u32,
    counts_stride: u32,
    sequence_stride: u32,
    chunk_stride: u32,
    group_log: u32,
    count_stride: u32,
}
var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
// cut
// @pz_if MATCHES
@group(0) @binding(1) var<storage, read> contents: array<u32>;
@group(0) @binding(2) var<storage, read> matches: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> match_counts: array<u32>;
@group(0) @binding(4) var<storage, read_write> literals: array<u32>;
@group(0) @binding(5) var<storage, read_write> cut_tokens: array<u32>;
@group(0) @binding(6) var<storage, read_write> cut_offsets: array<u32>;
@group(0) @binding(7) var<storage, read_write> cut_chunks: array<u32>;
// @pz_else
@group(0) @binding(1) var<storage, read_write> cut_tokens: array<u32>;
@group(0) @binding(2) var<storage, read_write> cut_offsets: array<u32>;
@group(0) @binding(3) var<storage, read_write> cut_chunks: array<u32>;
// @pz_end
// classify
@group(0) @binding(1) var<storage, read> tokens: array<u32>;
@group(0) @binding(2) var<storage, read_write> offsets: array<u32>;
@group(0) @binding(3) var<storage, read> chunks: array<u32>;
@group(0) @binding(4) var<storage, read_write> counts: array<atomic<u32>>;

// The literals of a batch: where each lane's literals begin among the chunk's, and the distance to their source.
var<workgroup> gather_first: array<u32, 32>;
var<workgroup> gather_source: array<u32, 32>;
var<workgroup> gather_carry: u32;

// The lane of the literal at place `at`: the last one whose literals begin at or before it.
fn literal_lane(at: u32) -> u32 {
    var i = select(0u, 16u, gather_first[16] <= at);
    i += select(0u, 8u, gather_first[i + 8u] <= at);
    i += select(0u, 4u, gather_first[i + 4u] <= at);
    i += select(0u, 2u, gather_first[i + 2u] <= at);
    i += select(0u, 1u, gather_first[i + 1u] <= at);
    return i;
}

// The number of sequences that hold only literals, at most MAX_LITERALS each, before the one in which the match begins.
fn literal_pieces(count: u32) -> u32 {
    return select(0u, (max(count, 1u) - 1u) / MAX_LITERALS, count > MAX_LITERALS);
}

// Length of piece `i` of the `n` of a match: the rest must not be shorter than a match can be.
fn match_piece(length: u32, n: u32, i: u32) -> u32 {
    if n < 2u {
        return length;
    }
    if i + 2u < n {
        return MAX_MATCH;
    }
    let rest = length - MAX_MATCH * (n - 2u);
    let part = select(MAX_MATCH, MAX_MATCH - MIN_MATCH, rest < MAX_MATCH + MIN_MATCH);
    return select(part, rest - part, i + 1u == n);
}

// @pz_if MATCHES
// The bytes at four places.
fn bytes_at(at: vec4<u32>) -> vec4<u32> {
    let word = at >> vec4(2u);
    let words = vec4(contents[word.x], contents[word.y], contents[word.z], contents[word.w]);
    return words >> ((at & vec4(3u)) * 8u) & vec4(255u);
}

// The number of equal bytes of a block from `pos` on and from `offset` before it, up to `end`.
fn team_common_length(block_at: u32, pos: u32, offset: u32, end: u32) -> u32 {
    var n = 0u;
    var differ = 0u;
    while differ == 0u {
        let at = min(vec4(pos + n + 4u * lane) + vec4(0u, 1u, 2u, 3u), vec4(end));
        let equal = (bytes_at(block_at + at) == bytes_at(block_at + at - offset)) & (at < vec4(end));
        let count = select(select(select(select(4u, 3u, !equal.w), 2u, !equal.z), 1u, !equal.y), 0u, !equal.x);
        differ = team_ballot(count < 4u);
        let first = select(31u, countTrailingZeros(differ), differ != 0u);
        n += 4u * first + team_broadcast(count, first);
    }
    return n;
}
// @pz_end

// @pz_entry
fn cut(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let at = workgroup_index;
    let block = at / args.chunks_per_block;
    let chunk = at % args.chunks_per_block;
    if block >= args.blocks {
        return;
    }
    let len = team_uniform(min(jobs[8u * block], args.slot));
    let begin = chunk << args.chunk_log;
    if begin >= len {
        return;
    }
    let end = min(len, begin + (1u << args.chunk_log));
    let room = sequence_room(1u << args.chunk_log);
    let sequences_at = block * args.sequence_stride + chunk * room;
    let chunk_at = block * args.chunk_stride + chunk * CHUNK_WORDS;
    let most = sequence_room(end - begin);

    var sequence_count = 0u;
    var literal_count = end - begin;
    var last_end = begin; // of the matches so far
// @pz_if MATCHES
    let contents_at = block * args.slot;
    let literals_at = block * args.literal_stride + (begin >> 2u);
    literal_count = 0u;
    let segment_len = 1u << args.segment_log;
    let list_len = segment_len / 8u * 3u;
    // The sequence that later matches may continue. It is written as soon as a match does not continue it.
    var pending_run = 0u;
    var pending_start = 0u;
    var pending_offset = 0u;
    var carry = 0u; // the literals of an unfinished word

    let segments = (end - begin + segment_len - 1u) >> args.segment_log;
    let first_segment = begin >> args.segment_log;
    let last_segment = first_segment + segments - 1u;
    let lists = block * (args.slot / 8u * 3u);
    // Load matches ahead of their turn, and the first ones of a segment before their number is known.
    var next_n = match_counts[block * args.counts_stride + first_segment];
    var next_first = matches[lists + first_segment * list_len + lane];
    for (var s = 0u; s <= segments; s++) {
        // After the last segment comes an empty match at the chunk's end, for the literals before it.
        let is_end = s == segments;
        let n = team_uniform(select(min(next_n, list_len), 1u, is_end));
        var next = next_first;
        let segment = min(first_segment + s, last_segment);
        let list = lists + segment * list_len;
        let after = min(segment + 1u, last_segment);
        next_n = match_counts[block * args.counts_stride + after];
        next_first = matches[lists + after * list_len + lane];

        let segment_begin = segment << args.segment_log;
        var skipped = 0u;
        if s != 0u && !is_end {
            // A match that ended with its segment goes on, unless the first match here continues it.
            let first = team_broadcast(next.x, 0u);
            let first_offset = team_broadcast(next.y, 0u);
            let continues = n != 0u && (first & 0xffffu) == 0u && first_offset == pending_offset;
            if last_end == segment_begin && pending_offset - 1u < last_end && !continues {
                last_end += team_common_length(contents_at, last_end, pending_offset, end);
            }
            // Skip the matches that it covers, and one that would be left shorter than the shortest match.
            var few = 32u;
            while few == 32u && skipped < n {
                let stop = segment_begin + (next.x & 0xffffu) + (next.x >> 16u);
                let is_covered = skipped + lane < n && stop < last_end + MIN_MATCH;
                few = countOneBits(team_ballot(is_covered));
                skipped += few;
                if few != 0u {
                    next = matches[list + min(skipped + lane, list_len - 1u)];
                }
            }
        }
        for (var j = skipped; j < n; j += 32u) {
            let active_lanes = min(n - j, 32u);
            var start = end;
            var stop = end;
            var offset = 0xffffffffu;
            let m = next;
            next = matches[list + min(j + 32u + lane, list_len - 1u)];
            if lane < active_lanes && !is_end {
                start = segment_begin + (m.x & 0xffffu);
                stop = min(start + (m.x >> 16u), end);
                start = clamp(start, last_end, end);
                offset = m.y;
            }
            var before = team_shuffle_up(stop, 1u);
            var offset_before = team_shuffle_up(offset, 1u);
            if lane == 0u {
                before = last_end;
                offset_before = pending_offset;
            }
            before = min(before, start);
            let is_head = lane < active_lanes && !(offset == offset_before && start == before);
            let heads = team_ballot(is_head);
            let run = select(0u, start - before, is_head);

            // Copy the literals, a word of four per lane.
            let sum = team_scan(run);
            gather_first[lane] = literal_count + sum - run;
            gather_source[lane] = before - (literal_count + sum - run);
            let literal_end = literal_count + team_broadcast(sum, 31u);
            if lane == 0u {
                gather_carry = carry;
            }
            team_sync();
            let first_word = literal_count >> 2u;
            let words = select(0u, ((literal_end + 3u) >> 2u) - first_word, literal_end != literal_count);
            for (var w = lane; w < words; w += 32u) {
                let place = (first_word + w) << 2u;
                var value = select(0u, carry, w == 0u);
                // Loads the nearest literal instead of bytes outside, so that all four loads run at once.
                let i = clamp(vec4(place) + vec4(0u, 1u, 2u, 3u), vec4(literal_count), vec4(literal_end - 1u));
                let is_new = i == vec4(place) + vec4(0u, 1u, 2u, 3u);
                let bytes = i + vec4(gather_source[literal_lane(i.x)], gather_source[literal_lane(i.y)],
                                     gather_source[literal_lane(i.z)], gather_source[literal_lane(i.w)]);
                let shifted = bytes_at(contents_at + bytes) << vec4(0u, 8u, 16u, 24u);
                let news = select(vec4(0u), shifted, is_new);
                value |= news.x | news.y | news.z | news.w;
                if place + 4u <= literal_end {
                    literals[literals_at + (place >> 2u)] = value;
                } else {
                    gather_carry = value;
                }
            }
            team_sync();
            carry = select(0u, gather_carry, (literal_end & 3u) != 0u);
            literal_count = literal_end;

            // Each match that does not continue the one before ends that one's sequence.
            let earlier = heads & team_before();
            let source = select(0u, log2_floor(earlier), earlier != 0u);
            var run_before = team_shuffle(run, source);
            var start_before = team_shuffle(start, source);
            var sequence_offset = team_shuffle(offset, source);
            if earlier == 0u {
                run_before = pending_run;
                start_before = pending_start;
                sequence_offset = pending_offset;
            }
            let length = before - start_before;
            let run_pieces = literal_pieces(run_before);
            let match_pieces = (length + MAX_MATCH - 1u) / MAX_MATCH;
            let pieces = select(0u, run_pieces + match_pieces, is_head && sequence_offset != 0u);
            let pieces_end = team_scan(pieces);
            let total = team_broadcast(pieces_end, 31u);
            let place = sequence_count + pieces_end - pieces;
            for (var i = 0u; i < pieces; i++) {
                if place + i < most {
                    var l = 0u;
                    var m = 0u;
                    if i < run_pieces {
                        l = MAX_LITERALS;
                    } else {
                        l = select(0u, run_before - MAX_LITERALS * run_pieces, i == run_pieces);
                        m = match_piece(length, match_pieces, i - run_pieces);
                    }
                    cut_tokens[sequences_at + place + i] = l | m << 9u;
                    cut_offsets[sequences_at + place + i] = select(0u, sequence_offset, m != 0u);
                }
            }
            sequence_count += total;
            let last = select(0u, log2_floor(heads), heads != 0u);
            let last_run = team_broadcast(run, last);
            let last_start = team_broadcast(start, last);
            let last_offset = team_broadcast(offset, last);
            if heads != 0u {
                pending_run = last_run;
                pending_start = last_start;
                pending_offset = last_offset;
            }
            let last_stop = team_broadcast(stop, active_lanes - 1u);
            if !is_end {
                last_end = last_stop;
            }
        }
    }
    if lane == 0u && (literal_count & 3u) != 0u {
        literals[literals_at + (literal_count >> 2u)] = carry;
    }
// @pz_end
    // The literals after the last match.
    let rest = end - last_end;
    if rest > 0u {
        let pieces = literal_pieces(rest) + 1u;
        for (var i = lane; i < pieces; i += 32u) {
            if sequence_count + i < most {
                let token = select(rest - MAX_LITERALS * (pieces - 1u), MAX_LITERALS, i + 1u < pieces);
                cut_tokens[sequences_at + sequence_count + i] = token;
                cut_offsets[sequences_at + sequence_count + i] = 0u;
            }
        }
        sequence_count += pieces;
    }
    if lane == 0u {
        cut_chunks[chunk_at + CHUNK_LITERALS] = literal_count;
        cut_chunks[chunk_at + CHUNK_SEQUENCES] = min(sequence_count, most);
    }
}

var<workgroup> recent_offsets: array<u32, 32>;
var<workgroup> histogram: array<atomic<u32>, 320>;

// The queue of recent offsets, and the queue from before the lane's own sequence.
var<private> recent: vec3<u32>;
var<private> own_recent: vec3<u32>;

fn recent_step(i: u32) {
    let o = recent_offsets[i];
    own_recent = select(own_recent, recent, lane == i);
    let known = any(recent == vec3(o)) || o == 0u;
    recent = select(vec3(o, recent.x, recent.y), recent, known);
}

fn recent_steps(i: u32) {
    recent_step(i);
    recent_step(i + 1u);
    recent_step(i + 2u);
    recent_step(i + 3u);
    recent_step(i + 4u);
    recent_step(i + 5u);
    recent_step(i + 6u);
    recent_step(i + 7u);
}

// Gives offsets their symbols, and counts the symbols of tokens and offsets.
// @pz_entry
fn classify(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let at = workgroup_index;
    let block = at / args.chunks_per_block;
    let chunk = at % args.chunks_per_block;
    if block >= args.blocks {
        return;
    }
    if chunk << args.chunk_log >= team_uniform(min(jobs[8u * block], args.slot)) {
        return;
    }
    let sequences_at = block * args.sequence_stride + chunk * sequence_room(1u << args.chunk_log);
    let counts_at = block * args.count_stride + (chunk >> args.group_log) * 3u * COUNT_WORDS;
    let n = team_uniform(chunks[block * args.chunk_stride + chunk * CHUNK_WORDS + CHUNK_SEQUENCES]);
    for (var i = lane; i < 320u; i += 32u) {
        atomicStore(&histogram[i], 0u);
    }
    team_sync();
    recent = vec3(1u, 4u, 8u);
    for (var i = 0u; i < n; i += 32u) {
        var token = 0u;
        var offset = 0u;
        let is_active = i + lane < n;
        if is_active {
            token = tokens[sequences_at + i + lane];
            offset = offsets[sequences_at + i + lane];
        }
        recent_offsets[lane] = offset;
        team_sync();
        recent_steps(0u);
        recent_steps(8u);
        recent_steps(16u);
        recent_steps(24u);
        team_sync();
        let x = offset + 3u;
        let k = max(log2_floor(x), 2u) - 1u;
        var symbol = 3u + 2u * (k - 1u) + (x >> k & 1u);
        var extra = x & ((1u << k) - 1u);
        if offset == own_recent.x || offset == 0u {
            symbol = 0u;
            extra = 0u;
        } else if offset == own_recent.y {
            symbol = 1u;
            extra = 0u;
        } else if offset == own_recent.z {
            symbol = 2u;
            extra = 0u;
        }
        if is_active {
            offsets[sequences_at + i + lane] = symbol | extra << 6u;
            atomicAdd(&histogram[token_symbol(token & 511u, token >> 9u)], 1u);
            atomicAdd(&histogram[256u + symbol], 1u);
        }
    }
    team_sync();
    for (var i = lane; i < 304u; i += 32u) {
        let count = atomicLoad(&histogram[i]);
        if count != 0u {
            atomicAdd(&counts[counts_at + COUNT_WORDS + i], count);
        }
    }
}
