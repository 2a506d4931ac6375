// The optimal parse of LZ77: finds the cheapest path through each segment, by the prices of its chunk's symbols. The
// rule is that of codec::lz77::optimal; `lz77_low` and `lz77_high` hold the candidates.
//
// Each work item parses one segment and visits its positions in order: with a team per segment, most lanes would be
// idle at each position. A workgroup's segments are neighbours, so mostly of the same chunk. A sampling pass parses
// only each 2^SPACING_LOG-th segment; `segments` counts the parsed segments of a block.
//
// Rings in workgroup memory hold the best known step to each of the next RING - 1 positions, a word each:
// `price << 11 | 127 - length << 4 | source`. The source is 0 to 2 for a recent offset, else 3 + place in the list.
// Among words with equal prices, the one with the longer step is less. That step came first, so the smaller word
// follows the rule. Prices are modulo 2^21, which is 4,096 bits each way. A literal costs at most 20 bits, so RING
// positions cost less than FAR: an unknown position's price is that of the position RING before it, plus FAR. And a
// position costs at most 1,400 bits more than a later one, because the parse also tries matches that end in between.
// Candidates longer than all earlier ones at a position are records. Each reachable length belongs to the first record
// of at least that length.
//
// `entries` is free by now, and receives the match that reaches each position: offset | length - 3 << 24, and symbol of
// the offset if it is recent, else 3, | literals before the match << 2. The entry for position p is at p - 1. If a
// literal leads to the segment's end, its entry there has offset 0 and the literals.
//
// Matches are longer than one byte, so only the literal at the previous position can still change the step to the next
// position. The parse tries that literal first. The loads for the next position then run during the rest of the work at
// the previous one.
//
// A match at a recent offset continues at the next position without a comparison, because the parse keeps its length
// beside the offset, 0 if unknown. It is unknown after a listed match, which may be the inherited rest of a longer one.
//
// Some drivers stop an invocation after 65,535 iterations. So `parse` can handle a part of the positions, save its
// state in `lz77_states`, and continue from there. For each of the last RING positions, a workgroup has a row of
// states there: recent offsets | length << 24, and literals since the last match | matches << 15. Then come RING / 4
// rows for the rings, and two for the rest.
//
// Constants: SEGMENT_LOG, 12 to 14; SPACING_LOG, at most the logarithm of a chunk's number of segments; CHUNKS, the
// chunks of a workgroup's segments; NICE_LENGTH, at most RING; EVERY_LENGTH, at most 66; COUNT, whether to count
// symbols for the next pass.
//
// @pz_cost {
//   threads: N/262144*16
//   passes: 4
//   buffers: jobs=32, contents=N, lz77_low=N*16, lz77_high=N*16, lz77_symbols=N/65536*4608, entries=N*8, lz77_states=N/4096*2592,
//            matches=N*3, match_counts=N/64
//   local_mem: 12768
// }
// @pz_import lz77_chunk_prices
// @pz_import lz77_long_length
// @pz_import lz77_price_table
// @pz_import lz77_words

const LONGEST = 256u;
const RING = 128u;
// A position's records, and one more that the loop may read.
const RECORDS = 12u;
const ROWS = RING + RING / 4u + 2u;
// Fields of words in rings.
const SOURCE_MASK = 15u;
const OFFSET_MASK = 0xffffffu;
const FAR = 2680u * BIT * ONE_PRICE;

struct Args {
    slot: u32,
    segments: u32,
    blocks: u32,
    window_log: u32,
    chunk_log: u32,
    symbol_stride: u32,
    state_stride: u32,
    first: u32,
    steps: u32,
}
var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> contents: array<u32>;
@group(0) @binding(2) var<storage, read> low: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> high: array<vec4<u32>>;
@group(0) @binding(4) var<storage, read> symbols: array<u32>;
@group(0) @binding(5) var<storage, read_write> paths: array<vec2<u32>>;
@group(0) @binding(6) var<storage, read_write> states: array<vec4<u32>>;
@group(0) @binding(7) var<storage, read_write> match_counts: array<u32>;

var<workgroup> ring: array<u32, RING * THREADS>;
var<workgroup> record_prices: array<u32, RECORDS * THREADS>;
var<workgroup> record_lengths: array<u32, RECORDS * THREADS>;
var<workgroup> tables: array<vec4<u32>, CHUNKS * TABLE_WORDS / 4u>;

// The lane, its chunk's table, and the records of a position.
var<private> lane: u32;
var<private> table: u32;
var<private> records: u32;
var<private> near: u32;
var<private> far: u32;
var<private> longest: u32;
var<private> record: u32;
var<private> record_offset: u32;
var<private> record_source: u32;

// The loaded data of a position: its bytes, those at the recent offsets, and its list.
struct Asked {
    own: vec2<u32>,
    words: vec3<u32>,
    next: vec3<u32>,
    low: vec4<u32>,
    high: vec4<u32>,
}
var<private> asked: Asked;

// Starts the loads for position `pos`, where the window reaches far enough back.
fn ask_for(pos: u32, recent: vec3<u32>, reach: u32, has_list: bool, place: u32) {
    let most = vec3(block_words - 1u);
    let begin = min(vec3(pos) - select(recent, vec3<u32>(), recent > vec3(reach)) >> vec3(2u), most);
    let next = min(begin + 1u, most);
    let word = pos >> 2u;
    asked.own = vec2(contents[from_word + word], contents[from_word + min(word + 1u, most.x)]);
    asked.words = vec3(contents[from_word + begin.x], contents[from_word + begin.y], contents[from_word + begin.z]);
    asked.next = vec3(contents[from_word + next.x], contents[from_word + next.y], contents[from_word + next.z]);
    asked.low = vec4<u32>();
    if has_list {
        asked.low = low[place];
        asked.high = high[place];
    }
}

// Takes a candidate as a record if it is longer than all before, where the path to the position costs `base`.
fn candidate(base: u32, length: u32, offset: u32, source: u32, symbol: u32) {
    if length > longest {
        longest = length;
        record_offset = offset;
        record_source = source;
        record = base + table_at(TABLE_OFFSETS + symbol) * ONE_PRICE + source;
        record_prices[records * THREADS + lane] = record;
        record_lengths[records * THREADS + lane] = longest;
        near |= select(0u, 1u << (longest - 3u & 31u), longest < 35u);
        far |= select(0u, 1u << (longest - 35u & 31u), longest >= 35u && longest < 67u);
        records += 1u;
    }
}

fn listed(base: u32, word: u32, source: u32, room: u32) {
    if word != 0u {
        let offset = word & 0xffffffu;
        candidate(base, min((word >> 24u) + 3u, room), offset, source, offset_symbol(offset));
    }
}

// Where position `p` is in the rings.
fn place_of(p: u32) -> u32 {
    return (p & (RING - 1u)) * THREADS + lane;
}

fn improve(place: u32, old: u32, price: u32, is_tried: bool) {
    if is_tried && bitcast<i32>(price - old) < 0 {
        ring[place] = price;
    }
}

fn recent_symbol(offset: u32, recent: vec3<u32>) -> u32 {
    var symbol = select(3u, 2u, offset == recent.z);
    symbol = select(symbol, 1u, offset == recent.y);
    return select(symbol, 0u, offset == recent.x);
}

// @pz_entry
fn parse(local_index: u32, workgroup_index: u32) {
    lane = local_index;
    let groups = (args.segments + THREADS - 1u) / THREADS;
    let block = workgroup_index / groups;
    if block >= args.blocks {
        return;
    }
    let first_number = workgroup_index % groups * THREADS;
    let number = first_number + lane << SPACING_LOG;
    let block_len = jobs[block * 8u];
    let start = number << SEGMENT_LOG;
    let end = max(start, min(start + (1u << SEGMENT_LOG), block_len));
    let len = select(0u, end - start, first_number + lane < args.segments);
    block_words = args.slot >> 2u;
    from_word = block * block_words;
    // Where the segment's lists and paths begin.
    let origin = block * args.slot + start;
    let count_word = block * (args.slot >> 8u) + number;
    let lanes = min(args.segments - first_number, THREADS);
    let own_states = block * args.state_stride + first_number * ROWS + lane;

    let first_chunk = first_number >> (args.chunk_log - SEGMENT_LOG - SPACING_LOG);
    for (var c = 0u; c < CHUNKS; c++) {
        if first_chunk + c << args.chunk_log < block_len {
            let begin = block * args.symbol_stride + (first_chunk + c) * SYMBOL_WORDS;
            for (var k = lane; k < TABLE_WORDS / 4u; k += THREADS) {
                tables[c * (TABLE_WORDS / 4u) + k] = vec4(
                    table_word(begin, 4u * k),
                    table_word(begin, 4u * k + 1u),
                    table_word(begin, 4u * k + 2u),
                    table_word(begin, 4u * k + 3u),
                );
            }
        }
    }
    workgroupBarrier();
    table = select(0u, (start >> args.chunk_log) - first_chunk, len != 0u) * TABLE_WORDS;

    // Positions from here on have no candidates.
    let last = max(min(end, max(block_len, 7u) - 7u), start) - start;
    let window_start = start >> args.window_log << args.window_log;
    // The position; the recent offsets there, the known lengths of their matches, the literals since the last match,
    // the number of matches, and the price; then the farthest position reached so far.
    var i = 0u;
    var recent = vec3<u32>();
    var known = vec3<u32>();
    var run = 0u;
    var count = 0u;
    var price = table_at(TABLE_RUNS) * ONE_PRICE;
    var reached = 0u;
    if args.first == 0u {
        if (start & ((1u << args.chunk_log) - 1u)) == 0u {
            recent = vec3(1u, 4u, 8u);
        }
        for (var k = 0u; k < RING; k++) {
            ring[place_of(k)] = price + FAR;
        }
        if first_number + lane < args.segments {
            match_counts[count_word] = 0u;
        }
    } else if len != 0u {
        for (var k = 0u; k < RING / 4u; k++) {
            let four = states[own_states + (RING + k) * lanes];
            ring[place_of(4u * k)] = four.x;
            ring[place_of(4u * k + 1u)] = four.y;
            ring[place_of(4u * k + 2u)] = four.z;
            ring[place_of(4u * k + 3u)] = four.w;
        }
        let a = states[own_states + (RING + RING / 4u) * lanes];
        let b = states[own_states + (RING + RING / 4u + 1u) * lanes];
        i = a.x;
        run = a.y & 0x7fffu;
        count = a.y >> 15u;
        price = a.z;
        reached = a.w;
        recent = b.xyz & vec3(OFFSET_MASK);
        known = b.xyz >> vec3(24u);
    }

    let stop = select(0u, min(args.first + args.steps, len), len != 0u);
    if i < stop {
        ask_for(start + i, select(recent, vec3<u32>(), known != vec3<u32>()), start + i - window_start, i < last, origin + i);
    }
    while i < stop {
        let pos = start + i;
        let place = place_of(i);
        let bytes = bytes_of(asked.own.x, asked.own.y, (pos & 3u) * 8u);
        let extra = run_bits(run);
        let row = min(run, 7u);
        var base = price - (table_at(TABLE_RUNS + row) + extra) * ONE_PRICE;
        let literal = base + 126u * ONE_LENGTH + ONE_PRICE
            * (half_of(table_at(TABLE_LITERALS + (bytes & 255u) / 2u), bytes) + table_at(TABLE_RUNS + min(run + 1u, 7u))
                + run_bits(run + 1u));
        base += (table_at(TABLE_RUNS) + extra) * ONE_PRICE;
        ring[place] = price + FAR;

        // The best step to the next position.
        var arrival = ring[place_of(i + 1u)];
        if bitcast<i32>(literal - arrival) < 0 {
            arrival = literal;
        }
        let arrival_length = 127u - (arrival / ONE_LENGTH & 127u);
        let arrival_source = arrival & SOURCE_MASK;
        var before = vec4<u32>();
        var listed_word = 0u;
        if arrival_length != 1u {
            let left_at = i + 1u - arrival_length;
            before = states[own_states + (left_at & (RING - 1u)) * lanes];
            if arrival_source >= 7u {
                listed_word = high[origin + left_at][arrival_source - 7u & 3u];
            } else if arrival_source >= 3u {
                listed_word = low[origin + left_at][arrival_source - 3u & 3u];
            }
        }

        // The records, and which of their lengths are 3 to 34 and 35 to 66.
        records = 0u;
        near = 0u;
        far = 0u;
        longest = 2u;
        var lengths = vec3<u32>();
        if i < last {
            let room = min(len - i, LONGEST);
            let reach = pos - window_start;
            let shifts = (vec3(pos) - recent & vec3(3u)) * 8u;
            var differ = vec3(
                bytes_of(asked.words.x, asked.next.x, shifts.x),
                bytes_of(asked.words.y, asked.next.y, shifts.y),
                bytes_of(asked.words.z, asked.next.z, shifts.z),
            ) ^ vec3(bytes);
            let is_compared = (recent != vec3<u32>()) & (recent <= vec3(reach)) & (known == vec3<u32>());
            differ = select(vec3(1u), differ, is_compared);
            lengths = select(known, vec3(3u), differ << vec3(8u) == vec3<u32>());
            var more = select(0u, 1u, differ.x == 0u) | select(0u, 2u, differ.y == 0u) | select(0u, 4u, differ.z == 0u);
            while more != 0u {
                let its = more & (~more + 1u);
                more ^= its;
                let offset = select(select(recent.z, recent.y, its == 2u), recent.x, its == 1u);
                let length = long_length(pos, offset, 4u, room);
                lengths = select(lengths, vec3(length), vec3(its) == vec3(1u, 2u, 4u));
            }
            lengths = min(lengths, vec3(room));
            candidate(base, lengths.x, recent.x, 0u, 0u);
            candidate(base, lengths.y, recent.y, 1u, 1u);
            candidate(base, lengths.z, recent.z, 2u, 2u);
            listed(base, asked.low.x, 3u, room);
            listed(base, asked.low.y, 4u, room);
            listed(base, asked.low.z, 5u, room);
            listed(base, asked.low.w, 6u, room);
            if asked.low.w != 0u {
                listed(base, asked.high.x, 7u, room);
                listed(base, asked.high.y, 8u, room);
                listed(base, asked.high.z, 9u, room);
                listed(base, asked.high.w, 10u, room);
            }
        }

        let at = i;
        let is_taken = longest >= NICE_LENGTH;
        if is_taken {
            price = (record & ~(ONE_PRICE - 1u)) + token_price(row, longest);
            // Reset the positions in between, with FAR measured from the new price.
            let behind = max(reached + 1u, i + (longest & (RING - 1u)));
            for (var p = i + 1u; p < behind; p++) {
                ring[place_of(p)] = price + FAR;
            }
            i += longest;
            reached = i;
            known = vec3<u32>();
            let symbol = select(recent_symbol(record_offset, recent), record_source, record_source < 3u);
            paths[origin + i - 1u] = vec2(record_offset | (longest - 3u) << 24u, symbol | run << 2u);
            recent = select(recent, vec3(record_offset, recent.xy), symbol == 3u);
            count += 1u;
            run = 0u;
        } else {
            states[own_states + (i & (RING - 1u)) * lanes] = vec4(recent | lengths << vec3(24u), run | count << 15u);
            reached = max(reached, i + longest);
            i += 1u;
            known = max(lengths, vec3(1u)) - 1u;
            price = arrival & ~(ONE_PRICE - 1u);
            run += 1u;
            if arrival_length != 1u {
                let old = before.xyz & vec3(OFFSET_MASK);
                var offset = select(select(old.z, old.y, arrival_source == 1u), old.x, arrival_source == 0u);
                offset = select(offset, listed_word & OFFSET_MASK, arrival_source >= 3u);
                let symbol = recent_symbol(offset, old);
                paths[origin + at] = vec2(offset | (arrival_length - 3u) << 24u, symbol | (before.w & 0x7fffu) << 2u);
                // The remainders of those matches.
                known = max(before.xyz >> vec3(24u), vec3(arrival_length)) - arrival_length;
                known = select(known, vec3(0u, known.xy), symbol == 3u);
                recent = select(old, vec3(offset, old.xy), symbol == 3u);
                count = (before.w >> 15u) + 1u;
                run = 0u;
            }
        }
        if i < stop {
            ask_for(start + i, select(recent, vec3<u32>(), known != vec3<u32>()), start + i - window_start, i < last, origin + i);
        }

        if !is_taken {
            // Tries four lengths at a time, so that their loads overlap.
            let prices = (table + LENGTHS_ROW * row) / 4u;
            let most = min(longest, EVERY_LENGTH);
            var left = near;
            var far_left = far;
            var rank = lane;
            for (var length = 3u; length <= most; length += 4u) {
                let rank_b = rank + (left & 1u) * THREADS;
                let rank_c = rank_b + (left >> 1u & 1u) * THREADS;
                let rank_d = rank_c + (left >> 2u & 1u) * THREADS;
                let place_a = place + length * THREADS & (RING * THREADS - 1u);
                let place_b = place + length * THREADS + THREADS & (RING * THREADS - 1u);
                let place_c = place + length * THREADS + 2u * THREADS & (RING * THREADS - 1u);
                let place_d = place + length * THREADS + 3u * THREADS & (RING * THREADS - 1u);
                let four = tables[prices + (length - 3u) / 4u];
                let price_a = record_prices[rank] + four.x;
                let price_b = record_prices[rank_b] + four.y;
                let price_c = record_prices[rank_c] + four.z;
                let price_d = record_prices[rank_d] + four.w;
                let old_a = ring[place_a];
                let old_b = ring[place_b];
                let old_c = ring[place_c];
                let old_d = ring[place_d];
                improve(place_a, old_a, price_a, true);
                improve(place_b, old_b, price_b, length + 1u <= most);
                improve(place_c, old_c, price_c, length + 2u <= most);
                improve(place_d, old_d, price_d, length + 3u <= most);
                rank = rank_d + (left >> 3u & 1u) * THREADS;
                left = left >> 4u | far_left << 28u;
                far_left >>= 4u;
            }
            // Try longer lengths only at records, the last ones.
            for (var r = records; r > 0u && longest > EVERY_LENGTH; r--) {
                let length = record_lengths[(r - 1u) * THREADS + lane];
                if length <= EVERY_LENGTH {
                    break;
                }
                let its = record_prices[(r - 1u) * THREADS + lane] + token_price(row, length)
                    + (127u - length) * ONE_LENGTH;
                let there = place_of(at + length);
                improve(there, ring[there], its, true);
            }
        }
    }
    if len != 0u && i == len {
        match_counts[count_word] = count;
        if run != 0u {
            paths[origin + i - 1u] = vec2(0u, run << 2u);
        }
    }

    // Saves the state for the next part.
    if len == 0u || args.first + args.steps > 1u << SEGMENT_LOG {
        return;
    }
    for (var k = 0u; k < RING / 4u; k++) {
        states[own_states + (RING + k) * lanes] = vec4(
            ring[place_of(4u * k)],
            ring[place_of(4u * k + 1u)],
            ring[place_of(4u * k + 2u)],
            ring[place_of(4u * k + 3u)],
        );
    }
    states[own_states + (RING + RING / 4u) * lanes] =
        vec4(i, run | count << 15u, price, reached);
    states[own_states + (RING + RING / 4u + 1u) * lanes] = vec4(recent | known << vec3(24u), 0u);
}

// trace: slot, segments, blocks, chunk_log, symbol_stride
@group(0) @binding(1) var<storage, read> made_paths: array<vec2<u32>>;
@group(0) @binding(2) var<storage, read_write> matches: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read> final_counts: array<u32>;
@group(0) @binding(4) var<storage, read> literals_of: array<u32>;
@group(0) @binding(5) var<storage, read_write> symbol_counts: array<atomic<u32>>;

var<workgroup> histogram: array<atomic<u32>, CHUNKS * COUNT_WORDS>;

fn count_symbol(place: u32) {
// @pz_if COUNT
    atomicAdd(&histogram[place], 1u);
// @pz_end
}

// Follows the cheapest path of each segment backward.
// @pz_entry
fn trace(local_index: u32, workgroup_index: u32) {
    lane = local_index;
    let chunk_log = args.window_log;
    let stride = args.chunk_log;
    let groups = (args.segments + THREADS - 1u) / THREADS;
    let block = workgroup_index / groups;
    if block >= args.blocks {
        return;
    }
    let first_number = workgroup_index % groups * THREADS;
    let number = first_number + lane << SPACING_LOG;
    let block_len = jobs[block * 8u];
    let start = number << SEGMENT_LOG;
    let end = max(start, min(start + (1u << SEGMENT_LOG), block_len));
    let len = select(0u, end - start, first_number + lane < args.segments);
    from_word = block * (args.slot >> 2u);
    let origin = block * args.slot + start;
    let own_matches = (block * (args.slot >> 3u) + (number << (SEGMENT_LOG - 3u))) * 3u;
    let first_chunk = first_number >> (chunk_log - SEGMENT_LOG - SPACING_LOG);
    let counts = select(0u, (start >> chunk_log) - first_chunk, len != 0u) * COUNT_WORDS;
// @pz_if COUNT
    for (var k = lane; k < CHUNKS * COUNT_WORDS; k += THREADS) {
        atomicStore(&histogram[k], 0u);
    }
    workgroupBarrier();
// @pz_end
    var left = 0u;
    var stop = len;
    var literals = 0u;
    if len != 0u {
        left = final_counts[block * (args.slot >> 8u) + number];
        let path = made_paths[origin + len - 1u];
        if path.x == 0u {
            literals = min(path.y >> 2u, len);
        }
        stop = len - literals;
    }
    // Never reads or writes outside the segment, even if it has no path.
    var goes_on = len != 0u;
    while goes_on {
// @pz_if COUNT
        for (var p = start + stop; p < start + stop + literals; p++) {
            count_symbol(counts + LITERALS + (literals_of[from_word + (p >> 2u)] >> ((p & 3u) * 8u) & 255u));
        }
// @pz_end
        goes_on = left > 0u && stop > 0u;
        if goes_on {
            let path = made_paths[origin + stop - 1u];
            let length = min((path.x >> 24u) + 3u, stop);
            let offset = path.x & 0xffffffu;
            let symbol = path.y & 3u;
            literals = min(path.y >> 2u, stop - length);
            left -= 1u;
            stop -= length;
            matches[own_matches + left] = vec2(stop | length << 16u, offset);
            count_symbol(counts + TOKENS + 32u * min(literals, 7u) + length_code(length));
            count_symbol(counts + OFFSETS + select(offset_symbol(offset), symbol, symbol < 3u));
            stop -= literals;
        }
    }
// @pz_if COUNT
    workgroupBarrier();
    for (var c = 0u; c < CHUNKS; c++) {
        if first_chunk + c << chunk_log < block_len {
            for (var k = lane; k < COUNT_WORDS; k += THREADS) {
                let n = atomicLoad(&histogram[c * COUNT_WORDS + k]);
                if n != 0u {
                    let chunk = block * stride + (first_chunk + c) * SYMBOL_WORDS;
                    atomicAdd(&symbol_counts[chunk + SYMBOL_COUNTS + k], n);
                }
            }
        }
    }
// @pz_end
}
