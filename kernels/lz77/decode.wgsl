// Decodes the contents of LZ77 chunks, from tables and words.
//
// One team per chunk. It first decodes the literals into the last bytes of the chunk's own contents: later writes never
// pass a literal that has not been read. Then it takes the sequences in batches of 64, two per lane, and writes their
// bytes in groups of 128. A bit mask of sequence starts and a table of the batch, in workgroup memory, show the
// sequence of each byte. If a group repeats its own bytes, the team first traces them to bytes before the group. The
// loads of a group run while the team finds the sources of the next one, and then the team stores the group: see
// group_step.
//
// If `is_ordered`, teams take chunks in the order that lz77_order found.
//
// In windows of several chunks, dispatch k decodes chunk k of each window. With RECORDS, a single dispatch decodes
// only the literals of all chunks and records their sequences, from which lz77_windows writes the contents. See
// src/format/lz77.md.
//
// @pz_cost {
//   threads: N/262144*128
//   passes: N/65536
//   buffers: contents=N, payload=N+256, results=32, lz77_chunks=N/65536*16+16, lz77_tables=N/65536*17440, lz77_places=N+1024, lz77_distances=N+1024, lz77_starts=N/4, lz77_order=N/65536*4
//   local_mem: 24576
//   note: a chunk for each 64 KiB, at least one, and a team for each; a pass for each chunk of a window, most often 1;
//     workgroup memory for four teams without FSE, or two with FSE
// }
// @pz_import team
// @pz_import lz77_chunks

struct Args {
    blocks: u32,
    max_chunks: u32,
    slot: u32,
    per_block: u32,
    stride: u32,
    turn: u32,
    is_ordered: u32,
}
var<immediate> args: Args;

@group(0) @binding(0) var<storage, read_write> contents: array<u32>;
@group(0) @binding(1) var<storage, read> payload: array<u32>;
@group(0) @binding(2) var<storage, read_write> results: array<u32>;
@group(0) @binding(3) var<storage, read> lz77_chunks: array<u32>;
@group(0) @binding(4) var<storage, read> lz77_tables: array<u32>;
// @pz_if RECORDS
@group(0) @binding(5) var<storage, read_write> lz77_places: array<u32>;
@group(0) @binding(6) var<storage, read_write> lz77_distances: array<u32>;
@group(0) @binding(7) var<storage, read_write> lz77_starts: array<u32>;
// @pz_else
@group(0) @binding(5) var<storage, read> lz77_order: array<u32>;
// @pz_end

// @pz_import lz77_symbols
// @pz_import lz77_records

// @pz_if RECORDS
// @pz_else
// Bytes of a batch that the mask of starts covers at once.
const SPAN: u32 = 1024u;
const SPAN_WORDS: u32 = SPAN / 32u;
// Marks the source of a literal. Other sources are bytes that are not written yet.
const FINAL: u32 = 0x80000000u;

const SEQUENCES: u32 = 64u; // of a batch

// A sequence of the batch. The upper half of `x` is where its match starts in the batch, and the lower half is the
// number of match bytes before it; `y` leads from a byte to the one that it repeats.
var<workgroup> owners: array<vec2<u32>, TEAMS * SEQUENCES>;
var<workgroup> starts: array<atomic<u32>, TEAMS * SPAN_WORDS>; // mask of sequence starts
var<workgroup> counts: array<u32, TEAMS * SPAN_WORDS>;         // sequences that start before each word of it, minus 1

// ---- Contents -------------------------------------------------------------------------------------------------------

// The group that is loaded but not stored: its start, and the part of the batch to store.
var<private> pending_start: u32;
var<private> pending_from: u32;
var<private> pending_end: u32;
// The current group, the part of the batch to write, and where the mask of starts begins.
var<private> group_start: u32;
var<private> part_from: u32;
var<private> part_end: u32;
var<private> span_start: u32;

// Four words, each with a byte of a lane's word, and the byte's shift in each.
struct Loaded {
    words: vec4<u32>,
    shifts: vec4<u32>,
}

fn store_group(loaded: Loaded) {
    let at = pending_start + 4u * lane;
    let last = at + 4u;
    if at < pending_end && last > pending_from {
        let bytes = (loaded.words >> loaded.shifts) & vec4(255u);
        var word = bytes.x | bytes.y << 8u | bytes.z << 16u | bytes.w << 24u;
        if at < pending_from || last > pending_end {
            // Keep bytes outside the batch: earlier ones are done, and later ones may be literals.
            var keep = 0u;
            if at < pending_from {
                keep = 0xffffffffu >> (8u * (last - pending_from));
            }
            if last > pending_end {
                keep |= 0xffffffffu << (8u * (pending_end - at));
            }
            word = (word & ~keep) | (contents[base + at / 4u] & keep);
        }
        contents[base + at / 4u] = word;
    }
}

// Bytes from here on are not written yet: the start of the group, or of the batch.
var<private> inside_from: u32;

// Whether any of the sources is at `from` or after it.
fn reaches(source: vec4<u32>, from_: u32) -> bool {
    return any(vec4<i32>(source) >= vec4(i32(from_)));
}

// The source that a source inside the group derives from: a match that repeats its own bytes goes back by whole periods
// to before the group.
fn folded(at: u32, source: u32, match_start: u32) -> u32 {
    if i32(source) < i32(inside_from) {
        return source;
    }
    let offset = at - source;
    let first = max(match_start, inside_from);
    let distance = at - first;
    if distance >= offset {
        return first - offset + distance % offset;
    }
    return source;
}

fn hop(source: u32) -> u32 {
    if i32(source) >= i32(inside_from) {
        return scratch[team_index * GROUP + ((source - group_start) & (GROUP - 1u))];
    }
    return source;
}

fn put_sources(source: vec4<u32>) {
    scratch[team_index * GROUP + 4u * lane] = source.x;
    scratch[team_index * GROUP + 4u * lane + 1u] = source.y;
    scratch[team_index * GROUP + 4u * lane + 2u] = source.z;
    scratch[team_index * GROUP + 4u * lane + 3u] = source.w;
}

// Finds the sources of the current group and starts loading its bytes. If they depend on the pending group, in
// `values`, stores that first; otherwise afterwards.
fn group_step(values: ptr<function, Loaded>, loaded: ptr<function, Loaded>) {
    // The owners of the lane's four bytes: the last sequences that start at or before them.
    let bit = group_start - span_start + 4u * lane;
    let word = team_index * SPAN_WORDS + bit / 32u;
    let span_mask = atomicLoad(&starts[word]);
    let mask = span_mask >> (bit & 31u);
    let before = counts[word] + countOneBits(span_mask & ((1u << (bit & 31u)) - 1u));
    // Bytes outside the batch have the source of the nearest byte inside.
    let first_at = group_start + 4u * lane;
    let at = clamp(vec4(first_at) + vec4(0u, 1u, 2u, 3u), vec4(part_from), vec4(part_end - 1u));
    let owner = team_index * SEQUENCES + ((vec4(before) + vec4(
        countOneBits(mask & 1u),
        countOneBits(mask & 3u),
        countOneBits(mask & 7u),
        countOneBits(mask & 15u),
    )) & vec4(SEQUENCES - 1u));
    let o0 = owners[owner.x];
    let o1 = owners[owner.y];
    let o2 = owners[owner.z];
    let o3 = owners[owner.w];
    let places = vec4(o0.x, o1.x, o2.x, o3.x);
    let match_start = vec4(position) + (places >> vec4(16u));
    var source = at + select(
        vec4(o0.y, o1.y, o2.y, o3.y),
        vec4(literal - position + FINAL) - (places & vec4(0xffffu)),
        at < match_start,
    );
    if team_any(reaches(source, pending_start)) {
        store_group(*values);
        pending_end = 0u;
        team_sync();
        inside_from = max(group_start, part_from);
        if team_any(reaches(source, inside_from)) {
            source = vec4(
                folded(at.x, source.x, match_start.x),
                folded(at.y, source.y, match_start.y),
                folded(at.z, source.z, match_start.z),
                folded(at.w, source.w, match_start.w),
            );
            put_sources(source);
            team_sync();
            // Each round doubles how far back a source reaches, and a group has at most 128 links. Drivers must not see
            // that these are seven rounds: unrolled, they take long to compile.
            for (var links = 1u; links < GROUP; links += links) {
                source = vec4(hop(source.x), hop(source.y), hop(source.z), hop(source.w));
                if !team_any(reaches(source, inside_from)) {
                    break;
                }
                team_sync();
                put_sources(source);
                team_sync();
            }
            team_sync();
        }
    }
    let from_ = source & vec4(~FINAL);
    (*loaded).words = vec4(
        contents[base + from_.x / 4u],
        contents[base + from_.y / 4u],
        contents[base + from_.z / 4u],
        contents[base + from_.w / 4u],
    );
    (*loaded).shifts = (from_ & vec4(3u)) * 8u;
    store_group(*values);
    team_sync();
    pending_start = group_start;
    pending_from = part_from;
    pending_end = part_end;
    group_start += GROUP;
}

// Decodes a batch. `values` is the pending group. If the batch breaks a rule, returns true and writes nothing.
fn run_batch(even: Sequence, odd: Sequence, values: ptr<function, Loaded>) -> bool {
    let b = batch_places(even, odd);
    let mine = team_index * SEQUENCES + 2u * lane;
    owners[mine] = vec2((b.start0 + even.literals) << 16u | (b.start0 - b.literals0), 0u - even.offset);
    owners[mine + 1u] = vec2((b.start1 + odd.literals) << 16u | (b.start1 - b.literals1), 0u - odd.offset);
    // If no literal is ahead of the output, the chunk has no more matches, and its literals are in place.
    let batch_end = team_uniform(select(position + b.total, position, position == literal));
    let first_group = position & ~(GROUP - 1u);
    var started = 0u;
    let masks = team_index * SPAN_WORDS;
    for (var span = team_uniform(first_group); span < batch_end; span += SPAN) {
        atomicStore(&starts[masks + lane], 0u);
        team_sync();
        // The first sequence also owns the bytes before the batch that share its group.
        let bit0 = select(position + b.start0, first_group, lane == 0u) - span;
        if bit0 < SPAN && b.start0 < b.total {
            atomicOr(&starts[masks + (bit0 >> 5u)], 1u << (bit0 & 31u));
        }
        let bit1 = position + b.start1 - span;
        if bit1 < SPAN && b.start1 < b.total {
            atomicOr(&starts[masks + (bit1 >> 5u)], 1u << (bit1 & 31u));
        }
        team_sync();
        let count = countOneBits(atomicLoad(&starts[masks + lane]));
        let upto = team_scan(count);
        counts[masks + lane] = started + upto - count - 1u;
        started += team_broadcast(upto, 31u);
        team_sync();
        span_start = span;
        group_start = span;
        part_from = position;
        part_end = min(batch_end, span + SPAN);
        let part_groups = (part_end - span + GROUP - 1u) / GROUP;
// @pz_if TEAM_SUBGROUP
        // Two bodies, so that each group's bytes have their own registers.
        var others: Loaded;
        for (var i = 0u; i < part_groups; i += 2u) {
            group_step(values, &others);
            if i + 1u >= part_groups {
                *values = others;
                break;
            }
            group_step(&others, values);
        }
// @pz_else
        for (var i = 0u; i < part_groups; i++) {
            var loaded: Loaded;
            group_step(values, &loaded);
            *values = loaded;
        }
// @pz_end
    }
    position += b.total;
    literal += b.literals;
    return b.bad;
}

// @pz_end

// @pz_entry
fn lz77_decode(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let place = workgroup_index * TEAMS + team_index;
    let is_team = place < args.blocks * args.per_block;
    var team = place;
// @pz_if RECORDS
// @pz_else
    if args.is_ordered != 0u {
        team = lz77_order[select(0u, place, is_team)];
    }
// @pz_end
    let block = min(team / args.per_block, args.blocks - 1u);
    let chunk = team % args.per_block * args.stride + args.turn % args.stride;
    let head = CHUNK_WORDS * block * (args.max_chunks + 1u);
    var is_active = is_team && chunk < lz77_chunks[head + BLOCK_CHUNKS];
    let logs = lz77_chunks[head + BLOCK_LOGS];
    let chunk_log = logs & 255u;
    let group_log = (logs >> 16u) & 255u;
    let in_window = chunk & ((1u << (((logs >> 8u) & 255u) - chunk_log)) - 1u);
// @pz_if RECORDS
// @pz_else
    is_active = is_active && in_window == args.turn;
// @pz_end
    let group = select(0u, chunk >> group_log, is_active);
    let tables = GROUP_WORDS * (block * args.max_chunks + group);
    is_active = is_active && lz77_tables[tables + TABLES_STATUS] == 0u;
    if team_uniform(select(0u, 1u, is_active)) == 0u {
        return;
    }
    let modes = lz77_tables[tables + TABLES_MODES];
    let fse_logs = lz77_tables[tables + TABLES_LOGS];
    let descriptor = head + CHUNK_WORDS * (chunk + 1u);
    var start = lz77_chunks[descriptor + CHUNK_START];
    var words = lz77_chunks[descriptor + CHUNK_RECORD];
    let literals = lz77_chunks[descriptor + CHUNK_LITERALS];
    var sequences = team_uniform(lz77_chunks[descriptor + CHUNK_SEQUENCES]);
    if (chunk & ((1u << group_log) - 1u)) == 0u {
        let described = lz77_tables[tables + TABLES_WORDS];
        start += described;
        words -= described;
    }
    let block_len = lz77_chunks[head + BLOCK_LEN];
    let chunk_start = chunk << chunk_log;
    let chunk_len = min(1u << chunk_log, block_len - chunk_start);

    position = in_window << chunk_log;
    base = block * (args.slot / 4u) + (chunk_start - position) / 4u;
    chunk_end = position + chunk_len;
    literal = chunk_end - literals;
    lanes_start(start, words);
    var status = 0u;
    if words != 0u && payload[start + words - 1u] == 0u {
        status = 30u;
    }

    symbol_table = tables + TABLES_HEAD;
// @pz_if FSE
    literal_fse = (modes & 3u) == 3u && literals != 0u;
    let literal_log = select(0u, fse_logs & 255u, literal_fse);
    lanes_refill_if(literal_fse);
    literal_state = first_bits(in_high, literal_log);
    lanes_skip(literal_log);
// @pz_end
    let shift = (chunk_len - literals) & 3u;
    let grid_end = team_uniform(select(shift + literals, 0u, literals == 0u));
    read_literals(base + (literal - shift) / 4u, shift, grid_end);
// @pz_if FSE
    if team_any(literal_fse && literal_state != 0u) {
        status = 31u;
    }
// @pz_end

    symbol_table += SYMBOL_TABLE;
    offset_table = symbol_table + SYMBOL_TABLE;
    recent = 8u >> select(lane, 3u, lane == 2u);
// @pz_if FSE
    token_fse = ((modes >> 2u) & 3u) == 3u && sequences != 0u;
    offset_fse = ((modes >> 4u) & 3u) == 3u && sequences != 0u;
    let token_log = select(0u, (fse_logs >> 8u) & 255u, token_fse);
    let offset_log = select(0u, (fse_logs >> 16u) & 255u, offset_fse);
    lanes_refill_if(token_fse || offset_fse);
    token_state = first_bits(in_high, token_log);
    offset_state = first_bits(in_high << token_log, offset_log);
    lanes_skip(token_log + offset_log);
// @pz_end

// @pz_if RECORDS
    record_at = block * (args.slot / 4u + SPARE_RECORDS) + chunk_start / 4u;
    record_starts = block * (args.slot / 16u) + chunk_start / 16u;
    record_begin = position;
    record_length = chunk_len;
    record_span = 0u;
    record_started = 0u;
    record_literals = 0u;
    atomicStore(&record_mask[team_index * 32u + lane], 0u);
    team_sync();
    // Plans ensure this: there is room for the records, and the numbers fit.
    let spare = select(0u, SPARE_RECORDS, chunk_start + chunk_len == block_len);
    if team_uniform(select(0u, 1u, sequences > chunk_len / 4u + spare || chunk_len > (1u << 19u))) != 0u {
        sequences = 0u;
        status = 36u;
    }
// @pz_else
    pending_start = position;
    pending_end = 0u;
    var values: Loaded;
// @pz_end
    for (var i = 0u; i < sequences; i += 64u) {
// @pz_if TEAM_SUBGROUP
        var even = read_sequence(i + 2u * lane < sequences);
        var odd = read_sequence(i + 2u * lane + 1u < sequences);
// @pz_else
        var even: Sequence;
        var odd: Sequence;
        for (var parity = 0u; parity < 2u; parity++) {
            even = odd;
            odd = read_sequence(i + 2u * lane + parity < sequences);
        }
// @pz_end
        resolve_offsets(&even, &odd);
// @pz_if RECORDS
        let is_bad = record_batch(even, odd, i, sequences);
// @pz_else
        let is_bad = run_batch(even, odd, &values);
// @pz_end
        if is_bad {
            status = 32u;
            break;
        }
    }
// @pz_if RECORDS
    record_flush();
// @pz_else
    store_group(values);
// @pz_end
// @pz_if FSE
    if team_any((token_fse && token_state != 0u) || (offset_fse && offset_state != 0u)) {
        status = 33u;
    }
// @pz_end
    if !lanes_at_end() && status == 0u {
        status = 34u;
    }
    if (position != chunk_end || literal != chunk_end) && status == 0u {
        status = 35u;
    }
    if status != 0u && lane == 0u {
        results[8u * block] = status;
    }
}
