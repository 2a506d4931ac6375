// The optimal parse of LZ77: the cheapest way through a segment, by the prices of its chunk's symbols. The rule is that of
// codec::lz77::optimal; candidates are those in `lz77_lists`.
//
// A team has a segment and goes through its positions in order. What is known of the positions ahead, LONGEST at most, is
// in rings in workgroup memory. At a position the lanes first compare the recent offsets and have a candidate each. Those
// candidates that are longer than all before them, the records, divide the lengths that can be reached: each length
// belongs to the first record that is as long, so that lanes try all lengths at the same time, each at a place of its own.
//
// `entries`, not needed any more, take how positions are reached by matches: offset | length - 3 << 24, and symbol of the
// offset if it is recent, else 3, | literals before the match << 2. At position p it stands at p - 1.
//
// Loops are few: some drivers end an invocation after 65,535 iterations, and count one for each loop that they come by.
//
// Constants: SEGMENT_LOG, at most 14; NICE_LENGTH; EVERY_LENGTH, at most 66; COUNT, whether symbols are counted for the
// next pass.
//
// @pz_cost {
//   threads_per_element: 0.002
//   passes: 2
//   buffers: jobs=32, contents=N, lz77_lists=N*32, lz77_symbols=N/8+4608, entries=N*8, matches=N*3, match_counts=N/64
//   local_mem: 29508
// }
// @pz_import team
// @pz_import lz77_words
// @pz_import lz77_chunk_prices

const LONGEST = 256u;
const RING = 256u;
const UNREACHED = 0xffffffffu;
// Lanes that compare a recent offset, each four bytes; and where lanes have the candidates of the list.
const LANES = 10u;
const FIRST_LISTED = 3u;
const LAST_LISTED = 10u;
const MOST_RECORDS = 12u;

struct Args {
    slot: u32,
    segments: u32,
    blocks: u32,
    window_log: u32,
    chunk_log: u32,
    symbol_stride: u32,
}
var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> contents: array<u32>;
@group(0) @binding(2) var<storage, read> lists: array<u32>;
@group(0) @binding(3) var<storage, read_write> symbols: array<atomic<u32>>;
@group(0) @binding(4) var<storage, read_write> ways: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read_write> matches: array<vec2<u32>>;
@group(0) @binding(6) var<storage, read_write> match_counts: array<u32>;

// The cheapest ways found to the positions ahead: prices, and offset | length - 3 << 24, or 0 for a literal.
var<workgroup> ring_prices: array<u32, TEAMS * RING>;
var<workgroup> ring_steps: array<u32, TEAMS * RING>;
// Positions behind: recent offsets; literals since the last match | matches << 15.
var<workgroup> states: array<vec4<u32>, TEAMS * RING>;
// Prices of symbols, and in the end counts.
var<workgroup> table: array<atomic<u32>, TEAMS * PRICE_WORDS>;
// Of each record: price before that of its length; offset | length - 3 << 24.
var<workgroup> record_prices: array<u32, TEAMS * MOST_RECORDS>;
var<workgroup> records: array<u32, TEAMS * MOST_RECORDS>;

// Where the team's part of them begins.
var<private> ring: u32;
var<private> own_table: u32;
var<private> own_records: u32;

fn price_at(place: u32) -> u32 {
    return atomicLoad(&table[own_table + place]);
}

fn count_symbol(place: u32) {
    atomicAdd(&table[own_table + place], 1u);
}

// The match code of a length, and the price of its extra bits.
fn length_code(length: u32) -> u32 {
    return select(17u + firstLeadingBit(max(length, 22u) - 14u), length - 2u, length < 22u);
}

fn length_bits(length: u32) -> u32 {
    return select(firstLeadingBit(max(length, 22u) - 14u) * BIT, 0u, length < 22u);
}

// The price of the extra bits of a run of literals.
fn run_bits(run: u32) -> u32 {
    let log = firstLeadingBit(max(run, 7u) - 6u);
    return select(select(12u, 3u + log, log < 7u) * BIT, 0u, run < 7u);
}

// The symbol of an offset that is not recent.
fn offset_symbol(offset: u32) -> u32 {
    let x = offset + 3u;
    let k = firstLeadingBit(x) - 1u;
    return 3u + 2u * (k - 1u) + (x >> k & 1u);
}

// Differences between the four bytes at `p` and those `offset` before; at `limit` and behind nothing is equal.
fn difference(p: u32, offset: u32, limit: u32) -> u32 {
    if p >= limit {
        return 1u;
    }
    return read32(p) ^ read32(p - offset);
}

fn equal_bytes(differ: u32) -> u32 {
    return select(countTrailingZeros(differ) >> 3u, 4u, differ == 0u);
}

// A way to the position `length` on from `at`.
fn attempt(at: u32, length: u32, price: u32, step: u32) {
    let place = ring + (at + length & (RING - 1u));
    if price < ring_prices[place] {
        ring_prices[place] = price;
        ring_steps[place] = step;
    }
}

// Makes a place of the rings before `next` one of which nothing is known.
fn skip(p: u32, next: u32) {
    if p < next {
        ring_prices[ring + (p & (RING - 1u))] = UNREACHED;
    }
}

// A way by a match of `length`, whose code has the price at `code` and extra bits that cost `bits`, by the record of this rank.
fn attempt_record(at: u32, rank: u32, length: u32, code: u32, bits: u32) {
    let record = records[own_records + rank];
    let its = (record >> 24u) + 3u;
    if length == its || (length <= EVERY_LENGTH && its < NICE_LENGTH) {
        let price = record_prices[own_records + rank] + price_at(code) + bits;
        attempt(at, length, price, (record & 0xffffffu) | (length - 3u) << 24u);
    }
}

@compute @workgroup_size(THREADS)
fn parse(
    @builtin(local_invocation_index) local_index: u32,
    @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    team_start(local_index);
    let index = (wg.y * wgs.x + wg.x) * TEAMS + team_index;
    let block = index / args.segments;
    let number = index % args.segments;
    let start = number << SEGMENT_LOG;
    let count_word = block * (args.slot >> 8u) + number;
    var block_len = 0u;
    if block < args.blocks {
        block_len = jobs[block * 8u];
        // Some drivers end an invocation after a number of iterations. Then there are no matches rather than any.
        if lane == 0u {
            match_counts[count_word] = 0u;
        }
    }
    if team_uniform(u32(start < block_len)) == 0u {
        return;
    }
    ring = team_index * RING;
    own_table = team_index * PRICE_WORDS;
    own_records = team_index * MOST_RECORDS;
    block_words = args.slot >> 2u;
    from_word = block * block_words;
    let end = min(start + (1u << SEGMENT_LOG), block_len);
    let len = end - start;
    // Positions from here on have no candidates.
    let last = max(min(end, max(block_len, 7u) - 7u), start) - start;
    let window_start = start >> args.window_log << args.window_log;
    let own_lists = 8u * (block * args.slot + start);
    let own_ways = block * args.slot + start;
    let own_matches = (block * (args.slot >> 3u) + (number << (SEGMENT_LOG - 3u))) * 3u;
    let own_symbols = block * args.symbol_stride + (start >> args.chunk_log) * SYMBOL_WORDS;

    for (var k = lane; k < PRICE_WORDS; k += 32u) {
        atomicStore(&table[own_table + k], atomicLoad(&symbols[own_symbols + k]));
    }
    for (var k = lane; k < RING; k += 32u) {
        ring_prices[ring + k] = UNREACHED;
    }
    team_sync();
    if lane == 0u {
        ring_prices[ring] = price_at(RUNS);
        ring_steps[ring] = 0u;
    }

    // The recent offsets, the literals since the last match, and the matches of the way to the position.
    let is_first = (start & ((1u << args.chunk_log) - 1u)) == 0u;
    var recent = select(vec3<u32>(), vec3(1u, 4u, 8u), is_first);
    var run = UNREACHED;
    var count = 0u;
    // What the lane compares at each position, and the lengths that it tries.
    let part = lane % LANES;
    let slot_of = lane / LANES;
    let near_length = 3u + lane;
    let far_length = 35u + lane;
    let near_code = TOKENS + length_code(near_length);
    let far_code = TOKENS + length_code(far_length);
    let near_bits = length_bits(near_length);
    let far_bits = length_bits(far_length);
    let is_listed = lane >= FIRST_LISTED && lane <= LAST_LISTED;
    var listed_next = 0u;
    if is_listed && 0u < last {
        listed_next = lists[own_lists + lane - FIRST_LISTED];
    }

    var i = 0u;
    loop {
        team_sync();
        let price = ring_prices[ring + (i & (RING - 1u))];
        let step = ring_steps[ring + (i & (RING - 1u))];
        let listed = listed_next;
        listed_next = 0u;
        if is_listed && i + 1u < last {
            listed_next = lists[own_lists + 8u * (i + 1u) + lane - FIRST_LISTED];
        }
        if step != 0u {
            let before = states[ring + (i - (step >> 24u) - 3u & (RING - 1u))];
            let offset = step & 0xffffffu;
            var symbol = select(3u, 2u, offset == before.z);
            symbol = select(symbol, 1u, offset == before.y);
            symbol = select(symbol, 0u, offset == before.x);
            if lane == 0u {
                ways[own_ways + i - 1u] = vec2(step, symbol | (before.w & 0x7fffu) << 2u);
            }
            recent = select(before.xyz, vec3(offset, before.xy), symbol == 3u);
            count = (before.w >> 15u) + 1u;
            run = 0u;
        } else {
            run += 1u;
        }
        if team_uniform(u32(i == len)) != 0u {
            break;
        }
        let pos = start + i;
        let run_code = min(run, 7u);
        var base = price - price_at(RUNS + run_code) - run_bits(run);
        let byte = contents[from_word + (pos >> 2u)] >> (pos & 3u) * 8u & 255u;
        let literal = base + price_at(LITERALS + byte) + price_at(RUNS + min(run + 1u, 7u)) + run_bits(run + 1u);
        base += price_at(RUNS) + run_bits(run);

        // The recent offsets.
        let limit = min(end, pos + LONGEST);
        var offset = select(select(0u, recent.z, slot_of == 2u), recent.y, slot_of == 1u);
        offset = select(offset, recent.x, slot_of == 0u);
        var differ = 1u;
        if i < last && offset != 0u && offset <= pos - window_start {
            differ = difference(pos + 4u * part, offset, limit);
        }
        let ends = team_ballot(differ != 0u);
        let own_ends = select(1u, ends >> (LANES * min(slot_of, 2u)) & ((1u << LANES) - 1u), slot_of < 3u);
        let lead = select(LANES - 1u, countTrailingZeros(own_ends), own_ends != 0u);
        var length = 4u * lead + team_shuffle(equal_bytes(differ), LANES * slot_of + lead);
        // Those that may be longer, one after the other.
        var more = u32((ends & 0x3ffu) == 0u) | u32((ends & 0xffc00u) == 0u) << 1u
            | u32((ends & 0x3ff00000u) == 0u) << 2u;
        loop {
            if team_uniform(more) == 0u {
                break;
            }
            let its = countTrailingZeros(more);
            more &= more - 1u;
            let its_offset = select(select(recent.z, recent.y, its == 1u), recent.x, its == 0u);
            let first = difference(pos + 4u * LANES + 4u * lane, its_offset, limit);
            let second = difference(pos + 4u * LANES + 128u + 4u * lane, its_offset, limit);
            let first_ends = team_ballot(first != 0u);
            let second_ends = team_ballot(second != 0u);
            let is_near = first_ends != 0u;
            let its_lead = countTrailingZeros(select(second_ends, first_ends, is_near));
            let known = select(4u * LANES + 128u, 4u * LANES, is_near) + 4u * its_lead
                + team_broadcast(equal_bytes(select(second, first, is_near)), its_lead);
            if slot_of == its {
                length = known;
            }
        }
        length = min(length, limit - pos);

        // The records, and which of their lengths are 3 to 34 and 35 to 66.
        var record_count = 0u;
        var near = 0u;
        var far = 0u;
        if team_any(listed != 0u || length > 2u) {
            let length_a = team_shuffle(length, 0u);
            let length_b = team_shuffle(length, LANES);
            let length_c = team_shuffle(length, 2u * LANES);
            var tried = 2u;
            length = length_a;
            if lane > 0u {
                tried = max(tried, length_a);
                length = length_b;
            }
            if lane > 1u {
                tried = max(tried, length_b);
                length = length_c;
            }
            if lane > 2u {
                tried = max(tried, length_c);
                length = select(0u, min((listed >> 24u) + 3u, len - i), listed != 0u);
            }
            let shorter = team_shuffle_up(length, 1u);
            if lane > FIRST_LISTED {
                tried = max(tried, shorter);
            }
            let is_record = lane <= LAST_LISTED && length > tried;
            let are_records = team_ballot(is_record);
            record_count = countOneBits(are_records);
            if is_record {
                offset = select(select(recent.z, recent.y, lane == 1u), recent.x, lane == 0u);
                offset = select(offset, listed & 0xffffffu, lane > 2u);
                let symbol = select(offset_symbol(offset), lane, lane < 3u);
                let rank = own_records + countOneBits(are_records & team_before());
                record_prices[rank] = base + price_at(OFFSETS + symbol);
                records[rank] = offset | (length - 3u) << 24u;
            }
            near = team_sum(select(0u, 1u << (length - 3u & 31u), is_record && length < 35u));
            far = team_sum(select(0u, 1u << (length - 35u & 31u), is_record && length >= 35u && length < 67u));
        }
        if lane == 0u {
            ring_prices[ring + (i & (RING - 1u))] = UNREACHED;
        }
        team_sync();
        var next = i + 1u;
        if record_count != 0u {
            let row = 32u * run_code;
            let longest = (records[own_records + record_count - 1u] >> 24u) + 3u;
            if longest >= NICE_LENGTH {
                next = i + longest;
            }
            var rank = countOneBits(near & team_before());
            if rank < record_count {
                attempt_record(i, rank, near_length, near_code + row, near_bits);
            }
            if longest >= 35u {
                rank = countOneBits(near) + countOneBits(far & team_before());
                if rank < record_count {
                    attempt_record(i, rank, far_length, far_code + row, far_bits);
                }
            }
            // Longer ones are tried at the lengths of records only.
            rank = countOneBits(near) + countOneBits(far) + lane;
            if rank < record_count {
                let its = (records[own_records + rank] >> 24u) + 3u;
                attempt_record(i, rank, its, TOKENS + length_code(its) + row, length_bits(its));
            }
        }
        if lane == 31u {
            attempt(i, 1u, literal, 0u);
        }
        if lane == 0u {
            states[ring + (i & (RING - 1u))] = vec4(recent, run | count << 15u);
        }
        next = team_uniform(next);
        if next != i + 1u {
            team_sync();
            // What lies between is not gone through.
            let p = i + 1u + lane;
            skip(p, next);
            skip(p + 32u, next);
            skip(p + 64u, next);
            skip(p + 96u, next);
            skip(p + 128u, next);
            skip(p + 160u, next);
            skip(p + 192u, next);
            skip(p + 224u, next);
            listed_next = 0u;
            if is_listed && next < last {
                listed_next = lists[own_lists + 8u * next + lane - FIRST_LISTED];
            }
        }
        i = next;
    }

    // Backward along the cheapest way.
    if lane == 0u {
        match_counts[count_word] = count;
    }
// @pz_if COUNT
    team_sync();
    for (var k = lane; k < COUNT_WORDS; k += 32u) {
        atomicStore(&table[own_table + k], 0u);
    }
    team_sync();
// @pz_end
    var literals = run;
    var stop = len - run;
    var left = count;
    loop {
        if team_uniform(left) == 0u {
            break;
        }
        left -= 1u;
        // The lane that wrote it reads it.
        var way = vec2<u32>();
        if lane == 0u {
            way = ways[own_ways + stop - 1u];
        }
        way = vec2(team_broadcast(way.x, 0u), team_broadcast(way.y, 0u));
        let length = (way.x >> 24u) + 3u;
        let offset = way.x & 0xffffffu;
        let before = way.y >> 2u;
        let symbol = way.y & 3u;
        if lane == 0u {
            matches[own_matches + left] = vec2(stop - length | length << 16u, offset);
        }
        count_match(start + stop, literals, before, length, select(offset_symbol(offset), symbol, symbol < 3u));
        literals = before;
        stop -= length + before;
    }
    count_literals(start + stop, literals);
// @pz_if COUNT
    team_sync();
    for (var k = lane; k < COUNT_WORDS; k += 32u) {
        let n = price_at(k);
        if n != 0u {
            atomicAdd(&symbols[own_symbols + SYMBOL_COUNTS + k], n);
        }
    }
// @pz_end
}

// Counts the symbols of a match, and the literals behind it.
fn count_match(pos: u32, literals: u32, before: u32, length: u32, symbol: u32) {
    count_literals(pos, literals);
// @pz_if COUNT
    if lane == 0u {
        count_symbol(TOKENS + 32u * min(before, 7u) + length_code(length));
    }
    if lane == 1u {
        count_symbol(OFFSETS + symbol);
    }
// @pz_end
}

fn count_literals(begin: u32, n: u32) {
// @pz_if COUNT
    for (var p = begin + lane; p < begin + n; p += 32u) {
        count_symbol(LITERALS + (contents[from_word + (p >> 2u)] >> (p & 3u) * 8u & 255u));
    }
// @pz_end
}
