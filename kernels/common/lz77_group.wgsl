// Shared by the kernels that choose the models of groups: the model of each team, its counts, and its description.
const DESCRIPTION_WORDS = MODEL_CODES - MODEL_DESCRIPTION;
const ROUNDS = 8u; // Each lane handles symbols lane, lane + 32, and so on.

// The prefix codes of code lengths: for each context five words, with three lengths in each of the form bits | code <<
// 3.
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

// Where barriers are slow to compile, the loops around them must not be unrolled. The compiler does not know the
// least number of bytes in a slot.
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
var<workgroup> lengths: array<u32, 256>;
var<workgroup> norms: array<u32, 256>;
var<workgroup> description: array<atomic<u32>, 96>;

// The model that a team works on.
struct Task {
    exists: bool,
    stream: u32,
    chunks: u32, // of the model's group
    counts: u32, // where their words begin
    model: u32,
}

fn find_task(at: u32) -> Task {
    // Teams that run together work on the same stream, because streams take different times.
    let groups = max(args.blocks * args.groups_per_block, 1u);
    let stream = at / groups;
    let group = at % groups % args.groups_per_block;
    let block = at % groups / args.groups_per_block;
    var task = Task(false, stream, 0u, 0u, 0u);
    var len = 0u;
    if stream < 3u {
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

// Writes the description of lengths, and of norms with them, from bit `start` on; returns its end.
fn describe(has_norms: bool, start: u32) -> u32 {
    var at = start;
    var end = 0u;
    for (var k = 0u; k < rounds(); k++) {
        let present = team_ballot(lengths[32u * k + lane] != 0u);
        if present != 0u {
            end = 32u * k + log2_floor(present) + 1u;
        }
    }
    var before_round = 0u; // The last symbol before this round that has a length, plus one.
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
