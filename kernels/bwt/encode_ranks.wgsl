// Computes the ranks of runs: how many other symbols occur before a run's symbol occurs again (`codec/bwt/runs.rs`).
//
// Each chunk of 1024 runs is ranked from right to left, with a list of all symbols in the order of their next
// occurrence. A segment's list is the list at its first run.
//
// The list at the end of a chunk follows from each symbol's first occurrence after it. Four buffers serve to find
// those: the first occurrences in each chunk (`firsts`) and in each group of chunks (`group_firsts`), and the next
// occurrences after each group (`group_next`) and after each chunk (`next`). Symbols that do not occur again come last:
// first those that the block uses, ascending, then the rest.
//
// @pz_cost {
//   threads: max(N/1024*32, 256)
//   passes: 5
//   buffers: sort_low_a=N*4, sort_low_b=N*4, encode_groups=N/131072*1024, encode_state=256,
//            encode_segments=N/8192*32+32, encode_lists=N/8192*256+256
//   local_mem: 8192
//   note: sort_low_b holds 256 words for each chunk
// }

// @pz_import team
// @pz_import bwt_encode

const NONE = 0xffffffffu;

struct Args { slot: u32, parts: u32 }
var<immediate> args: Args;
@group(0) @binding(0) var<storage, read> run_infos: array<u32>;
@group(0) @binding(1) var<storage, read_write> tables: array<u32>;
@group(0) @binding(2) var<storage, read> state: array<u32>;
var<workgroup> first: array<atomic<u32>, TEAMS * 256u>;

fn group_words(slot: u32) -> u32 {
    return (slot + 131071u) / 131072u * 256u;
}

// Finds the first occurrence of each symbol in each chunk.
// @pz_entry
fn firsts(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let parts = args.parts;
    let block = workgroup_index / parts;
    if block >= arrayLength(&state) / ENCODE_STATE {
        return;
    }
    let base = block * args.slot;
    let runs = state[block * ENCODE_STATE + ENCODE_RUNS];
    let chunks = (runs + CHUNK - 1u) / CHUNK;
    let own = team_index * 256u;
    // All teams of a workgroup repeat this equally often.
    for (var chunks_before = workgroup_index % parts * TEAMS; chunks_before < chunks; chunks_before += parts * TEAMS) {
        let chunk = chunks_before + team_index;
        for (var s = lane; s < 256u; s += 32u) {
            atomicStore(&first[own + s], NONE);
        }
        workgroupBarrier();
        for (var i = 0u; i < CHUNK; i += 32u) {
            let run = chunk * CHUNK + i + lane;
            if run < runs {
                atomicMin(&first[own + (run_infos[base + run] & 255u)], run);
            }
        }
        workgroupBarrier();
        if chunk < chunks {
            for (var s = lane; s < 256u; s += 32u) {
                tables[base + chunk * 256u + s] = atomicLoad(&first[own + s]);
            }
        }
        workgroupBarrier();
    }
}

@group(0) @binding(0) var<storage, read> chunk_tables: array<u32>;
@group(0) @binding(1) var<storage, read_write> group_tables: array<u32>;

// Finds the first occurrence of each symbol in each group of chunks. One workgroup per group.
// @pz_entry
fn group_firsts(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index / args.parts;
    let group = workgroup_index % args.parts;
    if block >= arrayLength(&state) / ENCODE_STATE {
        return;
    }
    let chunks = (state[block * ENCODE_STATE + ENCODE_RUNS] + CHUNK - 1u) / CHUNK;
    if group * GROUP_CHUNKS >= chunks {
        return;
    }
    for (var s = local_index; s < 256u; s += THREADS) {
        var least = NONE;
        for (var chunk = group * GROUP_CHUNKS; chunk < min(chunks, (group + 1u) * GROUP_CHUNKS); chunk++) {
            least = min(least, chunk_tables[block * args.slot + chunk * 256u + s]);
        }
        group_tables[block * group_words(args.slot) + group * 256u + s] = least;
    }
}

@group(0) @binding(0) var<storage, read_write> groups: array<u32>;
@group(0) @binding(1) var<storage, read> group_state: array<u32>;

// Finds the first occurrence of each symbol after each group. One workgroup per block.
// @pz_entry
fn group_next(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index;
    if block >= arrayLength(&group_state) / ENCODE_STATE {
        return;
    }
    let chunks = (group_state[block * ENCODE_STATE + ENCODE_RUNS] + CHUNK - 1u) / CHUNK;
    let base = block * group_words(args.slot);
    for (var s = local_index; s < 256u; s += THREADS) {
        var behind = NONE;
        for (var group = (chunks + GROUP_CHUNKS - 1u) / GROUP_CHUNKS; group > 0u; group--) {
            let at = base + (group - 1u) * 256u + s;
            let here = groups[at];
            groups[at] = behind;
            behind = min(behind, here);
        }
    }
}

@group(0) @binding(0) var<storage, read_write> next_tables: array<u32>;
@group(0) @binding(1) var<storage, read> next_groups: array<u32>;

// Finds the first occurrence of each symbol after each chunk. One workgroup per group.
// @pz_entry
fn next(local_index: u32, workgroup_index: u32) {
    let block = workgroup_index / args.parts;
    let group = workgroup_index % args.parts;
    if block >= arrayLength(&state) / ENCODE_STATE {
        return;
    }
    let chunks = (state[block * ENCODE_STATE + ENCODE_RUNS] + CHUNK - 1u) / CHUNK;
    if group * GROUP_CHUNKS >= chunks {
        return;
    }
    for (var s = local_index; s < 256u; s += THREADS) {
        var behind = next_groups[block * group_words(args.slot) + group * 256u + s];
        for (var chunk = min(chunks, (group + 1u) * GROUP_CHUNKS); chunk > group * GROUP_CHUNKS; chunk--) {
            let at = block * args.slot + (chunk - 1u) * 256u + s;
            let here = next_tables[at];
            next_tables[at] = behind;
            behind = min(behind, here);
        }
    }
}

@group(0) @binding(0) var<storage, read_write> infos: array<u32>;
@group(0) @binding(1) var<storage, read> behind_chunks: array<u32>;
@group(0) @binding(3) var<storage, read> segments: array<u32>;
@group(0) @binding(4) var<storage, read_write> lists: array<u32>;
var<workgroup> keys: array<u32, TEAMS * 256u>;

// Ranks the runs of each chunk. Each lane holds eight positions of the list.
// @pz_entry
fn ranks(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let parts = args.parts;
    let block = workgroup_index / parts;
    if block >= arrayLength(&state) / ENCODE_STATE {
        return;
    }
    let base = block * args.slot;
    let at_state = block * ENCODE_STATE;
    let at_segments = segments_at(block, args.slot);
    let at_lists = lists_at(block, args.slot);
    let runs = state[at_state + ENCODE_RUNS];
    let segment_count = state[at_state + ENCODE_SEGMENTS];
    let chunks = (runs + CHUNK - 1u) / CHUNK;
    let own = team_index * 256u;
    let lane_bit = 1u << lane;
    for (var chunks_before = workgroup_index % parts * TEAMS; chunks_before < chunks; chunks_before += parts * TEAMS) {
        let chunk = chunks_before + team_index;
        let is_there = chunk < chunks;
        // Symbols that occur again come first, then the block's other symbols, then the rest.
        for (var s = lane; s < 256u; s += 32u) {
            var at = NONE;
            if is_there {
                at = behind_chunks[base + chunk * 256u + s];
            }
            if at == NONE {
                let used = (state[at_state + ENCODE_USED + (s >> 5u)] >> (s & 31u) & 1u) != 0u;
                at = 0x80000000u + select(256u, 0u, used) + s;
            }
            keys[own + s] = at;
        }
        workgroupBarrier();
        var places: array<u32, 8>;
        var mine: array<u32, 8>;
        for (var k = 0u; k < 8u; k++) {
            mine[k] = keys[own + k * 32u + lane];
            places[k] = 0u;
        }
        for (var s = 0u; s < 256u; s++) {
            let other = keys[own + s];
            for (var k = 0u; k < 8u; k++) {
                places[k] += select(0u, 1u, other < mine[k]);
            }
        }
        workgroupBarrier();
        for (var k = 0u; k < 8u; k++) {
            keys[own + places[k]] = k * 32u + lane;
        }
        workgroupBarrier();
        let eight = own + lane * 8u;
        var w0 = keys[eight] | keys[eight + 1u] << 8u | keys[eight + 2u] << 16u | keys[eight + 3u] << 24u;
        var w1 = keys[eight + 4u] | keys[eight + 5u] << 8u | keys[eight + 6u] << 16u | keys[eight + 7u] << 24u;
        workgroupBarrier();

        // The last segment that begins before the end of the chunk.
        let end = min(runs, (chunk + 1u) * CHUNK);
        var segment = 0u;
        var high = segment_count;
        while high - segment > 1u {
            let middle = (segment + high) / 2u;
            if segments[at_segments + middle * SEGMENT_WORDS + SEGMENT_RUN] < end {
                segment = middle;
            } else {
                high = middle;
            }
        }
        var boundary = segments[at_segments + segment * SEGMENT_WORDS + SEGMENT_RUN];
        for (var i = CHUNK; i > 0u; i -= 32u) {
            let begin = chunk * CHUNK + i - 32u;
            var info = 0u;
            if begin + lane < end {
                info = infos[base + begin + lane];
            }
            let letters = (info & 255u) * 0x01010101u;
            for (var from_end = 0u; from_end < 32u; from_end++) {
                let k = 31u - from_end;
                let is_run = begin + k < end;
                let all = team_shuffle(letters, k);
                let x0 = w0 ^ all;
                let x1 = w1 ^ all;
                // The lowest of these bits marks the zero byte. There is exactly one in all lanes.
                let z0 = (x0 - 0x01010101u) & ~x0 & 0x80808080u;
                let z1 = (x1 - 0x01010101u) & ~x1 & 0x80808080u;
                let before = select(team_shuffle_up(w1, 1u), all, lane == 0u);
                let holds = (z0 | z1) != 0u;
                let holder = team_ballot(holds);
                if !is_run {
                    continue;
                }
                if holds {
                    keys[own + 2u * k] = z0;
                    keys[own + 2u * k + 1u] = z1 | lane;
                }
                // Move the bytes up to that one by a place, and all bytes of earlier lanes.
                let moved0 = z0 ^ (z0 - 1u);
                let moved1 = select(z1 ^ (z1 - 1u), 0u, z0 != 0u);
                let s0 = w0 << 8u | before >> 24u;
                let s1 = w1 << 8u | w0 >> 24u;
                if holder >= lane_bit {
                    w0 = (s0 & moved0) | (w0 & ~moved0);
                    w1 = (s1 & moved1) | (w1 & ~moved1);
                }
                if begin + k == boundary {
                    lists[at_lists + segment * 64u + lane * 2u] = w0;
                    lists[at_lists + segment * 64u + lane * 2u + 1u] = w1;
                    if segment > 0u {
                        segment--;
                        boundary = segments[at_segments + segment * SEGMENT_WORDS + SEGMENT_RUN];
                    }
                }
            }
            team_sync();
            let z0 = keys[own + 2u * lane];
            let z1 = keys[own + 2u * lane + 1u];
            let byte = firstTrailingBit(select(z1 & 0x80808080u, z0, z0 != 0u)) >> 3u;
            let rank = (z1 & 31u) * 8u + select(4u, 0u, z0 != 0u) + byte;
            if begin + lane < end {
                infos[base + begin + lane] = info | max(rank, 1u) << 8u;
            }
            team_sync();
        }
    }
}
