// Chooses the models of groups and makes their tables and descriptions. A team has one model of a group.
//
// Every number here is the one that the processor's encoder gets: equal counts give equal models.
//
// @pz_cost {
//   threads_per_element: 0.00146485
//   passes: 4
//   buffers: jobs=32, lz77_counts=N/16+4096, lz77_models=N/4+N/64+16640
//   local_mem: 20484
// }
// @pz_import team
// @pz_import lz77_code

const DESCRIPTION_WORDS = MODEL_CODES - MODEL_DESCRIPTION;
const ROUNDS = 8u; // A lane has symbols lane, lane + 32, and so on.

// The prefix codes of code lengths: for each context five words, with three lengths in each of the form bits | code << 3.
const LENGTH_CODES = array<u32, 125>(
    0x1fe7d800u, 0xed150e5u, 0x643d45cu, 0xa0086cu, 0x23u, 0x1e6fdc01u, 0xd57bbffu, 0xe5375f6u, 0x2b08cedu, 0x64u,
    0xe508c01u, 0xed0cc2bu, 0x3dff5de6u, 0x3f7fbfe7u, 0x3ffu, 0xa00864u, 0x741b012u, 0x3dff5de6u, 0x3f7fbfe7u, 0x3ffu,
    0x6439423u, 0x11b02bu, 0x1ee3b5e6u, 0x3f7fbfe7u, 0x3ffu, 0x64395e6u, 0x230046cu, 0x1ee3b42bu, 0x3f7fbfe7u, 0x3ffu,
    0x3dff5c64u, 0x6c00412u, 0x3e7798e5u, 0x3f7fbcedu, 0x3ffu, 0x3eff9ce5u, 0x5400423u, 0x6c1905cu, 0x3f73d4edu, 0x3ffu,
    0x3dff5c64u, 0x2b00423u, 0x1e61d06cu, 0x3f7fbfe7u, 0x3ffu, 0x3eff9dc6u, 0x1049ceu, 0x1de75833u, 0x3f77b9e6u, 0x3ffu,
    0x3eff9c64u, 0xa009e6u, 0xe51b012u, 0x3f73b5eeu, 0x3ffu, 0x3dff5de6u, 0x12193e7u, 0xe51b001u, 0x3f7fbcedu, 0x3ffu,
    0x3eff9c64u, 0x23397f7u, 0x6c0ac01u, 0x1ee798edu, 0x3ffu, 0x3eff9ce5u, 0x233b7f7u, 0x2b02802u, 0xf51b064u, 0x3ffu,
    0x3eff9ce5u, 0x543b7f7u, 0x230045cu, 0xf51b064u, 0x3ffu, 0x3eff9ce5u, 0x643b7f7u, 0xa00823u, 0xf51b02bu, 0x3ffu,
    0x3fffdc54u, 0xe57b9e6u, 0x11905cu, 0xed1b023u, 0x1f6u, 0x3eff9c64u, 0xe5ffff7u, 0x2b08cedu, 0x6c02802u, 0xf5u,
    0x3eff9c23u, 0x1e6ffff7u, 0x643b4e5u, 0x6c0ac01u, 0x1eeu, 0x3eff9c64u, 0x1e6ffff7u, 0x6c395eeu, 0x2b00423u, 0xedu,
    0x3dff5c23u, 0x3f7fbfe7u, 0xed397ffu, 0x330042bu, 0x1e6u, 0x3eff9c23u, 0x1e6ffff7u, 0xed395eeu, 0x10ac64u, 0x6cu,
    0x3dff5c12u, 0x3f7fbfe7u, 0xe579bffu, 0x1190edu, 0x6cu, 0x3eff9c23u, 0x1e6ffff7u, 0xed395eeu, 0x2b1b064u, 0x1u,
    0x3eff9c12u, 0x1d6ffff7u, 0x1ee799deu, 0x6c190e5u, 0x1u,
);

struct Args {
    blocks: u32,
    slot: u32,
    chunk_log: u32,
    groups_per_block: u32,
    group_log: u32,
    count_stride: u32,
    model_stride: u32,
}
var<immediate> args: Args;

// Where barriers are slow to compile, loops around them must not be unrolled: the compiler does not know that slots have
// at least so many bytes.
// @pz_if TEAM_LOCAL
fn rounds() -> u32 {
    return min(ROUNDS, args.slot);
}
// @pz_else
fn rounds() -> u32 {
    return ROUNDS;
}
// @pz_end

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
// choose_lengths, choose_norms
@group(0) @binding(1) var<storage, read> all_counts: array<u32>;
@group(0) @binding(2) var<storage, read_write> models: array<u32>;
// tables_from_lengths, tables_from_norms
@group(0) @binding(1) var<storage, read_write> tables: array<u32>;

var<workgroup> counts: array<u32, 256>;
// Sorted: count << 8 | symbol.
var<workgroup> keys: array<u32, 256>;
var<workgroup> lengths: array<u32, 256>;
var<workgroup> norms: array<u32, 256>;
var<workgroup> description: array<atomic<u32>, 96>;
// Room for one algorithm at a time, and numbers of inner nodes of each depth.
var<workgroup> work: array<u32, 1024>;
var<workgroup> inner: array<u32, 16>;
var<workgroup> is_leaf: array<atomic<u32>, 192>;

// ---- Huffman

// Sorts the symbols that occur: count << 8 | symbol, rising, in `keys`.
fn sort_symbols() {
    var n = 0u;
    for (var k = 0u; k < rounds(); k++) {
        let symbol = 32u * k + lane;
        let count = counts[symbol];
        let present = team_ballot(count > 0u);
        if count > 0u {
            work[n + countOneBits(present & team_before())] = count << 8u | symbol;
        }
        n += countOneBits(present);
    }
    team_sync();
    var mine: array<u32, 8>;
    var rank: array<u32, 8>;
    for (var k = 0u; k < rounds(); k++) {
        let i = 32u * k + lane;
        mine[k] = 0xffffffffu;
        if i < n {
            mine[k] = work[i];
        }
    }
    for (var i = 0u; i < n; i++) {
        let key = work[i];
        for (var k = 0u; k < rounds(); k++) {
            rank[k] += select(0u, 1u, key < mine[k]);
        }
    }
    for (var k = 0u; k < rounds(); k++) {
        if 32u * k + lane < n {
            keys[rank[k]] = mine[k];
        }
    }
    team_sync();
}

// Huffman's algorithm over sorted keys, on one lane: numbers of inner nodes of each depth in `inner`; 0 if a code would be
// longer than `limit`.
fn minimum_redundancy(n: u32, limit: u32) -> u32 {
    var leaf = 0u;
    var root = 0u;
    var leaf_weight = keys[0] >> 8u;
    var root_weight = 0xffffffffu;
    // Weights are in the first 256 words of `work`, parents in the next.
    for (var made = 0u; made + 1u < n; made++) {
        var weight = 0u;
        if root == made {
            root_weight = 0xffffffffu;
        }
        for (var i = 0u; i < 2u; i++) {
            if leaf < n && leaf_weight <= root_weight {
                weight += leaf_weight;
                leaf++;
                leaf_weight = 0xffffffffu;
                if leaf < n {
                    leaf_weight = keys[leaf] >> 8u;
                }
            } else {
                weight += root_weight;
                work[256u + root] = made;
                root++;
                root_weight = 0xffffffffu;
                if root < made {
                    root_weight = work[root];
                }
            }
        }
        work[made] = weight;
        if root == made {
            root_weight = weight;
        }
    }
    for (var i = 0u; i < 16u; i++) {
        inner[i] = 0u;
    }
    // The depths take the places of the weights.
    work[n - 2u] = 0u;
    inner[0] = 1u;
    for (var node = n - 2u; node > 0u; node--) {
        let depth = work[work[256u + node - 1u]] + 1u;
        work[node - 1u] = depth;
        if depth >= limit {
            return 0u;
        }
        inner[depth]++;
    }
    return 1u;
}

// The depth of each sorted key.
var<private> depths: array<u32, 8>;

// The lengths of an optimal code that is limited, by package-merge. Packages are in the first 512 words of `work`, items
// in the next.
fn package_merge(n: u32, limit: u32) {
    var package_count = 0u;
    for (var i = lane; i < 192u; i += 32u) {
        atomicStore(&is_leaf[i], 0u);
    }
    team_sync();
    for (var level = 0u; level < limit; level++) {
        // Both lists are sorted: the place of an item is its own index and the number of items of the other list before
        // it. Among equals leaves come first.
        for (var k = 0u; k < rounds(); k++) {
            let i = 32u * k + lane;
            if i < n {
                let weight = keys[i] >> 8u;
                var low = 0u;
                var high = package_count;
                for (var step = 0u; step < 9u; step++) {
                    let middle = (low + high) >> 1u;
                    let less = low < high && work[middle] < weight;
                    low = select(low, middle + 1u, less);
                    high = select(middle, high, less);
                }
                work[512u + i + low] = weight;
                atomicOr(&is_leaf[16u * level + ((i + low) >> 5u)], 1u << ((i + low) & 31u));
            }
            if i < package_count {
                let weight = work[i];
                var low = 0u;
                var high = n;
                for (var step = 0u; step < 9u; step++) {
                    let middle = (low + high) >> 1u;
                    let less = low < high && keys[middle & 255u] >> 8u <= weight;
                    low = select(low, middle + 1u, less);
                    high = select(middle, high, less);
                }
                work[512u + i + low] = weight;
            }
        }
        team_sync();
        // Of the last level 2 n - 2 items are taken, so no level needs more.
        package_count = min(n + package_count, 2u * n - 2u) >> 1u;
        for (var k = 0u; k < rounds(); k++) {
            let i = 32u * k + lane;
            if i < package_count {
                work[i] = work[512u + 2u * i] + work[512u + 2u * i + 1u];
            }
        }
        team_sync();
    }
    depths = array<u32, 8>();
    var taken = 2u * n - 2u;
    for (var level = limit; level > 0u; level--) {
        var leaves = 0u;
        if lane < 16u {
            var here = 0u;
            if taken > 32u * lane {
                here = min(taken - 32u * lane, 32u);
            }
            let mask = select((1u << (here & 31u)) - 1u, 0xffffffffu, here == 32u);
            leaves = countOneBits(atomicLoad(&is_leaf[16u * (level - 1u) + lane]) & mask);
        }
        leaves = team_sum(leaves);
        for (var k = 0u; k < rounds(); k++) {
            depths[k] += select(0u, 1u, 32u * k + lane < leaves);
        }
        taken = 2u * (taken - leaves);
    }
}

// The lengths of an optimal code of the `n` symbols that occur, at least two, none longer than `limit`.
fn code_lengths(n: u32, limit: u32) {
    sort_symbols();
    var fits = 0u;
    if lane == 0u {
        fits = minimum_redundancy(n, limit);
    }
    team_sync();
    if team_broadcast(fits, 0u) != 0u {
        // At each depth, the slots that inner nodes leave free are leaves, and the heaviest of those left.
        depths = array<u32, 8>();
        var slots = 1u;
        var left = n;
        for (var depth = 0u; depth <= limit; depth++) {
            let used = inner[depth];
            let leaves = slots - used;
            for (var k = 0u; k < rounds(); k++) {
                let i = 32u * k + lane;
                if i < left && i + leaves >= left {
                    depths[k] = depth;
                }
            }
            left -= leaves;
            slots = 2u * used;
        }
        team_sync();
    } else {
        package_merge(n, limit);
    }
    for (var k = 0u; k < rounds(); k++) {
        lengths[32u * k + lane] = 0u;
    }
    team_sync();
    for (var k = 0u; k < rounds(); k++) {
        let i = 32u * k + lane;
        if i < n {
            lengths[keys[i] & 255u] = depths[k];
        }
    }
    team_sync();
}

// ---- Descriptions

// Appends the low `count` bits of `value`, at least one, at bit `at` of words that are filled from the top.
fn put_bits(at: u32, value: u32, count: u32) {
    let end = (at & 31u) + count;
    if end <= 32u {
        atomicOr(&description[at >> 5u], value << (32u - end));
    } else {
        atomicOr(&description[at >> 5u], value >> (end - 32u));
        atomicOr(&description[(at >> 5u) + 1u], value << (64u - end));
    }
}

// Describes lengths, and norms with them, from bit `start` on; returns where that ends.
fn describe(has_norms: bool, start: u32) -> u32 {
    var at = start;
    var end = 0u;
    for (var k = 0u; k < rounds(); k++) {
        let present = team_ballot(lengths[32u * k + lane] != 0u);
        if present != 0u {
            end = 32u * k + log2_floor(present) + 1u;
        }
    }
    var before_round = 0u; // The last symbol that has a length before those of the round, plus one.
    for (var k = 0u; k < rounds(); k++) {
        let symbol = 32u * k + lane;
        let length = lengths[symbol];
        var near = 0u;
        var far = 0u;
        if symbol >= 1u {
            near = lengths[symbol - 1u];
        }
        if symbol >= 2u {
            far = lengths[symbol - 2u];
        }
        let present = team_ballot(length != 0u);
        let earlier = present & team_before();
        let last = select(before_round, 32u * k + log2_floor(earlier) + 1u, earlier != 0u);
        if present != 0u {
            before_round = 32u * k + log2_floor(present) + 1u;
        }
        let after_run = near == 0u && far == 0u;
        var run = 0u;
        var run_bits = 0u;
        var value = 0u;
        var bits = 0u;
        if symbol < end && !(after_run && length == 0u) {
            if after_run {
                run = select(symbol - last - 1u, symbol + 1u, last == 0u);
                run_bits = 2u * log2_floor(run) + 1u;
            }
            var context = near + far;
            if near == 0u {
                context = select(0u, 1u, far != 0u);
            } else if far == 0u {
                context = 2u * near;
            }
            let code = LENGTH_CODES[5u * context + length / 3u] >> (10u * (length % 3u)) & 1023u;
            bits = code & 7u;
            value = code >> 3u;
            if has_norms && length != 0u {
                let norm = norms[symbol];
                let more = log2_floor(norm);
                value = value << more | (norm - (1u << more));
                bits += more;
            }
        }
        let sum = team_scan(run_bits + bits);
        if bits != 0u {
            let place = at + sum - run_bits - bits;
            if run_bits != 0u {
                put_bits(place, run, run_bits);
            }
            put_bits(place + run_bits, value, bits);
        }
        at += team_broadcast(sum, 31u);
    }
    return at;
}

// ---- FSE

// The product of two numbers: the lower and the upper 32 bits.
fn multiply(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return vec2(other << 16u | (low & 0xffffu), (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u));
}

// A number of 64 bits, whose quotient has at most 32, divided by `d`, which is less than 2^31.
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

// 2^33 / d rounded down, for an odd d above 1.
fn reciprocal(d: u32) -> u32 {
    let quotient = 0xffffffffu / d;
    let rest = 0u - quotient * d;
    return 2u * quotient + select(0u, 1u, rest >= d - rest);
}

// ln(1 + 1 / n) in units of 2^-32, n from 1 to 2047, by the series of 2 artanh(1 / (2 n + 1)). Where the denominator of a
// term has more than 32 bits, the term is 1 or 0.
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

// What a symbol would lose with its last state, all bits inverted, and what it would gain by one more.
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

// The largest `value` of all lanes, and the smallest symbol among those lanes' that have it.
fn team_largest(value: vec2<u32>, symbol: u32) -> vec3<u32> {
    let high = team_max(value.y);
    let low = team_max(select(0u, value.x, value.y == high));
    let at = ~team_max(select(0u, ~symbol, value.y == high && value.x == low));
    return vec3(low, high, at);
}

// Shares out 2^log states among the symbols that occur, as well as can be: at least two symbols, fewer than states.
fn normalize_counts(all: u32, log: u32) {
    var norm: array<u32, 8>;
    var margins: array<vec4<u32>, 8>;
    // Rare symbols get the one state that they must have, until none is rare among the others.
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

    // A few states are over or missing, or better placed elsewhere.
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

// log2(1 + i / 256) with 16 bits of fraction: each time that the square passes 2, a bit is set.
fn log2_mantissa(i: u32) -> u32 {
    if i == 256u {
        return 1u << 16u;
    }
    var x = (256u + i) << 22u;
    var log = 0u;
    for (var bit = 0u; bit < 16u; bit++) {
        let square = multiply(x, x);
        x = square.y << 2u | square.x >> 30u;
        let passed = x >> 31u;
        x >>= passed;
        log = log << 1u | passed;
    }
    return log;
}

// log2(x) with 16 bits of fraction.
fn log2_fixed(x: u32) -> u32 {
    let exponent = log2_floor(x);
    let mantissa = x << (31u - exponent);
    let index = mantissa >> 23u & 255u;
    let below = log2_mantissa(index);
    let step = log2_mantissa(index + 1u) - below;
    return (exponent << 16u) + below + ((step * (mantissa >> 7u & 0xffffu)) >> 16u);
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

// Where occurrence `j` of a symbol would like to be.
fn preferred(norm: u32, log: u32, j: u32) -> u32 {
    if norm == 1u {
        return (1u << log) - 1u;
    }
    let distance = (1u << (log + 16u)) / norm;
    return (distance / 2u + j * distance) >> 16u;
}

var<workgroup> begins: array<u32, 256>;
// Two counters in a word.
var<workgroup> places: array<atomic<u32>, 1024>;
var<workgroup> states_of: array<u32, 2048>;

// The encoding table: each symbol's word, bits that leave a state | next << 20, and the states of all symbols in turn, two
// in a word.
fn encoding_table(log: u32, model: u32) {
    let size = 1u << log;
    for (var i = lane; i < 1024u; i += 32u) {
        atomicStore(&places[i], 0u);
    }
    var sum = 0u;
    for (var k = 0u; k < rounds(); k++) {
        let symbol = 32u * k + lane;
        let norm = norms[symbol];
        let norm_end = team_scan(norm);
        let begin = sum + norm_end - norm;
        begins[symbol] = begin;
        sum += team_broadcast(norm_end, 31u);
        var code = 0u;
        if norm != 0u {
            let bits = log - log2_floor(max(norm - 1u, 1u));
            code = ((bits << 16u) - (norm << bits)) | (begin - norm) << 20u;
        }
        tables[model + MODEL_CODES + symbol] = code;
    }
    team_sync();
    // A counting sort by places, of which a symbol has each only once; symbols come in order.
    for (var symbol = 0u; symbol < 256u; symbol++) {
        let norm = norms[symbol];
        for (var j = lane; j < norm; j += 32u) {
            let place = preferred(norm, log, j) & (size - 1u);
            atomicAdd(&places[place >> 1u], 1u << (16u * (place & 1u)));
        }
    }
    team_sync();
    // From counts to beginnings: a lane has a run of words.
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
    for (var symbol = 0u; symbol < 256u; symbol++) {
        let norm = norms[symbol];
        for (var j = lane; j < norm; j += 32u) {
            let place = preferred(norm, log, j) & (size - 1u);
            let shift = 16u * (place & 1u);
            let old = atomicAdd(&places[place >> 1u], 1u << shift);
            states_of[(begins[symbol] + j) & 2047u] = (old >> shift & 0xffffu) + size;
        }
        team_sync();
    }
    for (var i = lane; i < (size >> 1u); i += 32u) {
        tables[model + MODEL_NEXT + i] = states_of[2u * i] | states_of[2u * i + 1u] << 16u;
    }
}

// ---- Models

// The codes of symbols by their lengths: code from the top down | length.
fn assign_codes(model: u32) {
    var rank: array<u32, 8>;
    if lane < 16u {
        inner[lane] = 0u;
    }
    team_sync();
    for (var k = 0u; k < rounds(); k++) {
        let length = lengths[32u * k + lane];
        let same = team_match(length, 4u);
        rank[k] = inner[length & 15u] + countOneBits(same & team_before());
        team_sync();
        if (same & ~(team_before() | 1u << lane)) == 0u {
            inner[length & 15u] += countOneBits(same);
        }
        team_sync();
    }
    // The first code of each length: it follows the last of the length before, one bit longer.
    var code = 0u;
    var first = 0u;
    for (var l = 1u; l < 16u; l++) {
        code = select((code + inner[l - 1u]) << 1u, 0u, l == 1u);
        if lane == l {
            first = code;
        }
    }
    for (var k = 0u; k < rounds(); k++) {
        let length = lengths[32u * k + lane];
        let base = team_shuffle(first, length);
        let value = (base + rank[k]) << (32u - length) | length;
        tables[model + MODEL_CODES + 32u * k + lane] = select(value, 0u, length == 0u);
    }
}

// The model that a team has.
struct Task {
    exists: bool,
    stream: u32,
    chunks: u32, // of its group
    counts: u32, // where its words begin
    model: u32,
}

fn find_task(at: u32) -> Task {
    let stream = at % 3u;
    let group = at / 3u % args.groups_per_block;
    let block = at / 3u / args.groups_per_block;
    var task = Task(false, stream, 0u, 0u, 0u);
    var len = 0u;
    if block < args.blocks {
        len = min(jobs[8u * block], args.slot);
    }
    len = team_uniform(len);
    if group << (args.chunk_log + args.group_log) >= len {
        return task;
    }
    task.exists = true;
    task.chunks = min(((len - 1u) >> args.chunk_log) + 1u - (group << args.group_log), 1u << args.group_log);
    task.counts = block * args.count_stride + (group * 3u + stream) * COUNT_WORDS;
    task.model = block * args.model_stride + (group * 3u + stream) * MODEL_WORDS;
    return task;
}

struct Loaded {
    present: u32,
    first: u32,
    total: u32,
}

// Loads counts.
fn load_counts(start: u32) -> Loaded {
    var loaded = Loaded(0u, 0u, 0u);
    for (var k = 0u; k < rounds(); k++) {
        let count = all_counts[start + 32u * k + lane];
        counts[32u * k + lane] = count;
        let mask = team_ballot(count != 0u);
        if loaded.present == 0u && mask != 0u {
            loaded.first = 32u * k + countTrailingZeros(mask);
        }
        loaded.present += countOneBits(mask);
        loaded.total += count;
    }
    for (var i = lane; i < 96u; i += 32u) {
        atomicStore(&description[i], 0u);
    }
    loaded.total = team_sum(loaded.total);
    team_sync();
    return loaded;
}

// Chooses among constant, raw and Huffman, with code lengths as codes.
@compute @workgroup_size(THREADS)
fn choose_lengths(
    @builtin(local_invocation_index) local_index: u32, @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    team_start(local_index);
    let task = find_task(wg.y * wgs.x + wg.x);
    if team_uniform(u32(task.exists)) == 0u {
        return;
    }
    let model = task.model;
    let loaded = load_counts(task.counts);
    let present = team_uniform(loaded.present);
    if present < 2u {
        if lane == 0u {
            models[model + MODEL_MODE] = MODE_CONSTANT;
            models[model + MODEL_CONSTANT] = loaded.first;
            models[model + MODEL_LOG] = 0u;
            models[model + MODEL_BITS] = 0u;
            models[model + MODEL_SIZE] = 0u;
        }
        for (var k = 0u; k < rounds(); k++) {
            models[model + MODEL_CODES + 32u * k + lane] = 0u;
        }
        return;
    }
    let raw_bits = select(6u, 8u, task.stream < 2u);
    let symbols = select(48u, 256u, task.stream < 2u);
    code_lengths(present, select(8u, 10u, task.stream < 2u));
    var bits = 0u;
    for (var k = 0u; k < rounds(); k++) {
        bits += counts[32u * k + lane] * lengths[32u * k + lane];
    }
    let described = describe(false, 0u);
    let size = team_sum(bits) + described;
    let is_raw = loaded.total * raw_bits <= size;
    team_sync();
    if lane == 0u {
        models[model + MODEL_MODE] = select(MODE_HUFFMAN, MODE_RAW, is_raw);
        models[model + MODEL_LOG] = 0u;
        models[model + MODEL_BITS] = select(described, 0u, is_raw);
        models[model + MODEL_SIZE] = select(size, loaded.total * raw_bits, is_raw);
    }
    for (var i = lane; i < DESCRIPTION_WORDS; i += 32u) {
        models[model + MODEL_DESCRIPTION + i] = atomicLoad(&description[i]);
    }
    for (var k = 0u; k < rounds(); k++) {
        let symbol = 32u * k + lane;
        let raw = select(0u, raw_bits, symbol < symbols);
        models[model + MODEL_CODES + symbol] = select(lengths[symbol], raw, is_raw);
    }
}

// Chooses FSE where that is smaller, with norms as codes.
@compute @workgroup_size(THREADS)
fn choose_norms(
    @builtin(local_invocation_index) local_index: u32, @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    team_start(local_index);
    let task = find_task(wg.y * wgs.x + wg.x);
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
    // A norm is like a code of this length.
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

// Makes the codes of symbols from their lengths.
@compute @workgroup_size(THREADS)
fn tables_from_lengths(
    @builtin(local_invocation_index) local_index: u32, @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    team_start(local_index);
    let task = find_task(wg.y * wgs.x + wg.x);
    if team_uniform(u32(task.exists)) == 0u {
        return;
    }
    let mode = team_uniform(tables[task.model + MODEL_MODE]);
    if mode != MODE_RAW && mode != MODE_HUFFMAN {
        return;
    }
    for (var k = 0u; k < rounds(); k++) {
        lengths[32u * k + lane] = tables[task.model + MODEL_CODES + 32u * k + lane];
    }
    team_sync();
    assign_codes(task.model);
}

// Makes the tables of FSE from norms.
@compute @workgroup_size(THREADS)
fn tables_from_norms(
    @builtin(local_invocation_index) local_index: u32, @builtin(workgroup_id) wg: vec3<u32>,
    @builtin(num_workgroups) wgs: vec3<u32>,
) {
    team_start(local_index);
    let task = find_task(wg.y * wgs.x + wg.x);
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
