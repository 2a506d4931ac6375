// Chooses FSE models for groups where they are smaller, and builds their tables. One team per model of a group.
//
// Every number here equals that of the CPU's encoder: equal counts give equal models.
//
// @pz_cost {
//   threads: N/65536*3/2*64
//   passes: 2
//   buffers: jobs=32, lz77_counts=N/65536*3072, lz77_models=N/65536*16512
//   local_mem: 13312
// }
// @pz_import log2
// @pz_import team
// @pz_import lz77_code
// @pz_import lz77_group

// Divides a 64-bit number by `d`, which is less than 2^31. The quotient has at most 32 bits.
fn divide(n: vec2<u32>, d: u32) -> u32 {
    var rest = n.y;
    var quotient = 0u;
    for (var i = 0u; i < 32u; i++) {
        rest = rest << 1u | (n.x >> (31u - i) & 1u);
        let fits = rest >= d;
        rest -= select(0u, d, fits);
        quotient = quotient << 1u | select(0u, 1u, fits);
    }
    return quotient;
}

// 2^33 / d, rounded down, for an odd d above 1.
fn reciprocal(d: u32) -> u32 {
    let quotient = 0xffffffffu / d;
    let rest = 0u - quotient * d;
    return 2u * quotient + select(0u, 1u, rest >= d - rest);
}

// ln(1 + 1 / n) in units of 2^-32, n from 1 to 2047, by the series of 2 artanh(1 / (2 n + 1)). Where the denominator of
// a term has more than 32 bits, the term is 1 or 0.
fn worth(n: u32) -> u32 {
    let y = 2u * n + 1u;
    var sum = reciprocal(y);
    if y <= 1127u {
        sum += reciprocal(3u * y * y * y);
    } else if y <= 1419u {
        sum += 1u;
    }
    if y <= 61u {
        sum += reciprocal(5u * y * y * y * y * y);
    } else if y <= 69u {
        sum += 1u;
    }
    if y <= 17u {
        sum += reciprocal(7u * y * y * y * y * y * y * y);
    } else if y <= 19u {
        sum += 1u;
    }
    return sum;
}

// A symbol's loss if it gave up its last state, with all bits inverted, and its gain from one more.
fn margins_of(count: u32, norm: u32) -> vec4<u32> {
    var loss = vec2(0xffffffffu);
    var gain = vec2(0u);
    if norm > 1u {
        loss = multiply(count, worth(norm - 1u));
    }
    if norm > 0u {
        gain = multiply(count, worth(norm));
    }
    return vec4(~loss, gain);
}

fn is_more(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.y > b.y || (a.y == b.y && a.x > b.x);
}

// The largest `value` of all lanes, and the smallest symbol among the lanes that have it.
fn team_largest(value: vec2<u32>, symbol: u32) -> vec3<u32> {
    let high = team_max(value.y);
    let low = team_max(select(0u, value.x, value.y == high));
    let at = ~team_max(select(0u, ~symbol, value.y == high && value.x == low));
    return vec3(low, high, at);
}

// Divides 2^log states among the symbols that occur, as well as possible. There are at least two symbols, and fewer
// than states.
fn normalize_counts(all: u32, log: u32) {
    var norm: array<u32, 8>;
    var margins: array<vec4<u32>, 8>;
    // Give rare symbols the one state that they need, until no other symbol is rare.
    var total = all;
    var states = 1u << log;
    for (var i = 0u; i < 256u; i++) {
        var rare = 0u;
        var rare_total = 0u;
        for (var k = 0u; k < rounds(); k++) {
            let count = counts[32u * k + lane];
            let share = multiply(count, states);
            if count != 0u && norm[k] == 0u && share.y == 0u && share.x <= total {
                norm[k] = 1u;
                rare++;
                rare_total += count;
            }
        }
        rare = team_sum(rare);
        total -= team_sum(rare_total);
        states -= rare;
        if rare == 0u || total == 0u {
            break;
        }
    }
    var sum = 0u;
    for (var k = 0u; k < rounds(); k++) {
        let count = counts[32u * k + lane];
        if count != 0u && norm[k] == 0u {
            var share = multiply(count, states);
            let low = share.x + (total >> 1u);
            share = vec2(low, share.y + select(0u, 1u, low < share.x));
            norm[k] = max(divide(share, total), 1u);
            sum += norm[k];
        }
        margins[k] = margins_of(count, norm[k]);
    }
    let size = 1u << log;
    sum = size - states + team_sum(sum);

    // Correct the result: a few states may be left over, missing, or better used elsewhere.
    for (var i = 0u; i < 8192u; i++) {
        var least = margins[0].xy;
        var most = margins[0].zw;
        var cheapest = lane;
        var dearest = lane;
        for (var k = 1u; k < rounds(); k++) {
            if is_more(margins[k].xy, least) {
                least = margins[k].xy;
                cheapest = 32u * k + lane;
            }
            if is_more(margins[k].zw, most) {
                most = margins[k].zw;
                dearest = 32u * k + lane;
            }
        }
        let taken = team_largest(least, cheapest);
        let given = team_largest(most, dearest);
        let misplaced = is_more(given.xy, ~taken.xy);
        if sum == size && !misplaced {
            break;
        }
        let giver = select(256u, taken.z, sum >= size);
        let taker = select(256u, given.z, sum <= size);
        for (var k = 0u; k < rounds(); k++) {
            let symbol = 32u * k + lane;
            if symbol == giver || symbol == taker {
                norm[k] += select(0u, 1u, symbol == taker) - select(0u, 1u, symbol == giver);
                margins[k] = margins_of(counts[symbol], norm[k]);
            }
        }
        if sum < size {
            sum++;
        } else if sum > size {
            sum--;
        }
    }
    for (var k = 0u; k < rounds(); k++) {
        norms[32u * k + lane] = norm[k];
    }
    team_sync();
}

// Bits of a message with these counts, rounded up.
fn fse_bits(log: u32) -> u32 {
    var whole = 0u;
    var part = 0u;
    for (var k = 0u; k < rounds(); k++) {
        let count = counts[32u * k + lane];
        if count != 0u {
            let bits = multiply(count, (log << 16u) - log2_fixed(norms[32u * k + lane]));
            whole += bits.y << 16u | bits.x >> 16u;
            part += bits.x & 0xffffu;
        }
    }
    whole = team_sum(whole);
    return whole + ((team_sum(part) + 0xffffu) >> 16u);
}

// The ideal place of occurrence `j` of a symbol.
fn preferred(norm: u32, log: u32, j: u32) -> u32 {
    if norm == 1u {
        return (1u << log) - 1u;
    }
    let distance = (1u << (log + 16u)) / max(norm, 1u);
    return (distance / 2u + j * distance) >> 16u;
}

var<workgroup> begins: array<u32, 256>;
// Two counters to a word.
var<workgroup> places: array<atomic<u32>, 1024>;
// The symbols that have norms, in order, and a mask with a bit at the first occurrence of each among all occurrences in
// a row.
var<workgroup> order: array<u32, 256>;
var<workgroup> start_mask: array<atomic<u32>, 64>;

// The place of occurrence `at` of all. Its word of the mask is `here`, and `ranks` symbols begin before that word.
fn occurrence(at: u32, ranks: u32, here: u32, log: u32) -> u32 {
    let symbol = order[(ranks + countOneBits(here & (team_before() | 1u << lane)) - 1u) & 255u];
    return preferred(norms[symbol], log, at - begins[symbol]) & ((1u << log) - 1u);
}

// The encoding table: each symbol's word, bits that leave a state | next << 20, and the states of all symbols in turn,
// two in a word.
fn encoding_table(log: u32, model: u32) {
    let size = 1u << log;
    for (var i = lane; i < 1024u; i += 32u) {
        atomicStore(&places[i], 0u);
    }
    for (var i = lane; i < 64u; i += 32u) {
        atomicStore(&start_mask[i], 0u);
    }
    team_sync();
    var ranks = 0u;
    var sum = 0u;
    for (var k = 0u; k < rounds(); k++) {
        let symbol = 32u * k + lane;
        let norm = norms[symbol];
        let norm_end = team_scan(norm);
        let begin = sum + norm_end - norm;
        let present = team_ballot(norm != 0u);
        begins[symbol] = begin;
        sum += team_broadcast(norm_end, 31u);
        var code = 0u;
        if norm != 0u {
            let bits = log - log2_floor(max(norm - 1u, 1u));
            code = ((bits << 16u) - (norm << bits)) | (begin - norm) << 20u;
            order[(ranks + countOneBits(present & team_before())) & 255u] = symbol;
            atomicOr(&start_mask[(begin >> 5u) & 63u], 1u << (begin & 31u));
        }
        ranks += countOneBits(present);
        tables[model + MODEL_CODES + symbol] = code;
    }
    team_sync();
    // A counting sort by places. A symbol has each place only once, and symbols come in order. Count,
    ranks = 0u;
    for (var i = 0u; i < size; i += 32u) {
        let here = atomicLoad(&start_mask[i >> 5u]);
        let place = occurrence(i + lane, ranks, here, log);
        atomicAdd(&places[place >> 1u], 1u << (16u * (place & 1u)));
        ranks += countOneBits(here);
    }
    team_sync();
    // turn counts into starts, with a run of words for each lane,
    let run = max(size >> 6u, 1u);
    let first = run * lane;
    let end = min(first + run, size >> 1u);
    var count = 0u;
    for (var i = first; i < end; i++) {
        let w = atomicLoad(&places[i]);
        count += (w & 0xffffu) + (w >> 16u);
    }
    var begin = team_scan(count) - count;
    for (var i = first; i < end; i++) {
        let w = atomicLoad(&places[i]);
        let middle = begin + (w & 0xffffu);
        atomicStore(&places[i], begin | middle << 16u);
        begin = middle + (w >> 16u);
    }
    team_sync();
    // and number the occurrences.
    ranks = 0u;
    for (var i = 0u; i < size; i += 32u) {
        let here = atomicLoad(&start_mask[i >> 5u]);
        let place = occurrence(i + lane, ranks, here, log);
        let shift = 16u * (place & 1u);
        let same = team_match(place, 11u);
        let earlier = countOneBits(same & team_before());
        let state = ((atomicLoad(&places[place >> 1u]) >> shift) & 0xffffu) + earlier + size;
        team_sync();
        if earlier == 0u {
            atomicAdd(&places[place >> 1u], countOneBits(same) << shift);
        }
        let other = team_shuffle(state, lane | 1u);
        team_sync();
        if (lane & 1u) == 0u {
            tables[model + MODEL_NEXT + ((i + lane) >> 1u)] = state | other << 16u;
        }
        ranks += countOneBits(here);
    }
}

// Chooses FSE where that is smaller, with norms as codes.
// @pz_entry
fn choose_norms(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let task = find_task(workgroup_index);
    if team_uniform(u32(task.exists)) == 0u {
        return;
    }
    let model = task.model;
    let loaded = load_counts(task.counts);
    if team_uniform(loaded.present) < 2u {
        return;
    }
    let log = team_uniform(clamp(log2_floor(loaded.total), 5u, select(8u, 11u, task.stream < 2u)));
    if team_uniform(loaded.present) >= 1u << log {
        return;
    }
    normalize_counts(team_uniform(loaded.total), log);
    var size = fse_bits(log);
    // The description states a norm like a code of this length.
    for (var k = 0u; k < rounds(); k++) {
        let norm = norms[32u * k + lane];
        lengths[32u * k + lane] = select(log - log2_floor(norm), 0u, norm == 0u);
    }
    if lane == 0u {
        put_bits(0u, log, 4u);
    }
    team_sync();
    let described = describe(true, 4u);
    size += described + 32u * task.chunks * log;
    let is_smaller = team_uniform(u32(size < models[model + MODEL_SIZE]));
    team_sync();
    if is_smaller == 0u {
        return;
    }
    if lane == 0u {
        models[model + MODEL_MODE] = MODE_FSE;
        models[model + MODEL_LOG] = log;
        models[model + MODEL_BITS] = described;
        models[model + MODEL_SIZE] = size;
    }
    for (var i = lane; i < DESCRIPTION_WORDS; i += 32u) {
        models[model + MODEL_DESCRIPTION + i] = atomicLoad(&description[i]);
    }
    for (var k = 0u; k < rounds(); k++) {
        models[model + MODEL_CODES + 32u * k + lane] = norms[32u * k + lane];
    }
}

// Makes the tables of FSE from norms.
// @pz_entry
fn tables_from_norms(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let task = find_task(workgroup_index);
    if team_uniform(u32(task.exists)) == 0u {
        return;
    }
    if team_uniform(tables[task.model + MODEL_MODE]) != MODE_FSE {
        return;
    }
    for (var k = 0u; k < rounds(); k++) {
        norms[32u * k + lane] = tables[task.model + MODEL_CODES + 32u * k + lane];
    }
    team_sync();
    encoding_table(team_uniform(tables[task.model + MODEL_LOG]), task.model);
}
