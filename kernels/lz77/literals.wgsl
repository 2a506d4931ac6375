// Decodes LZ77 chunks that hold only literals, from tables and words.
//
// One team per chunk. The teams of a workgroup decode chunks of the same group and share its table, so that workgroup
// memory has room for as many teams as a processor can run. The only check on the sequences is that none has a match: a
// chunk with as many literals as bytes has no room for one. See src/format/lz77.md.
//
// @pz_cost {
//   threads: N/262144*128
//   passes: 1
//   buffers: contents=N, payload=N+256, results=32, lz77_chunks=N/65536*16+16, lz77_tables=N/65536*17440, lz77_places=N+1024, lz77_distances=N+1024, lz77_starts=N/4, lz77_order=N/65536*4
//   local_mem: 10244
//   note: a chunk for each 64 KiB, at least one, and a team for each; workgroup memory for four teams; every plan that
//     decodes has the last four buffers, because memory is taken before the payloads are known
// }
// @pz_import team
// @pz_import lz77_chunks

struct Args {
    blocks: u32,
    max_chunks: u32,
    slot: u32,
    per_block: u32,
}
var<immediate> args: Args;

@group(0) @binding(0) var<storage, read_write> contents: array<u32>;
@group(0) @binding(1) var<storage, read> payload: array<u32>;
@group(0) @binding(2) var<storage, read_write> results: array<u32>;
@group(0) @binding(3) var<storage, read> lz77_chunks: array<u32>;
@group(0) @binding(4) var<storage, read> lz77_tables: array<u32>;

// @pz_import lanes

const ROW: u32 = 128u;
const MAX_LITERALS: u32 = 511u;

var<workgroup> table: array<u32, SYMBOL_TABLE>;
// Found by the first work item: how many entries to load, and from where.
var<workgroup> table_size: u32;

// The number of bits of `in_high` and `in_low` that the lane has read, minus 1: at most 31 after the beginning of a
// row.
var<private> used_bits: u32;

// Begins a row if `is_row`, which is the same in all lanes: each lane with fewer than 32 bits takes a word.
fn take_words(is_row: bool) {
    let need = used_bits > 31u && is_row;
    let word = lanes_next_word(need);
    in_high = select(in_high, in_low, need);
    in_low = select(in_low, word, need);
    used_bits -= select(0u, 32u, need);
}

// The next 32 bits.
fn next_bits() -> u32 {
    return ((in_high << 1u) << used_bits) | (in_low >> (31u - used_bits));
}

fn next_state(entry: u32, bits: u32) -> u32 {
    let count = entry & 31u;
    return ((entry >> 20u) << count) | first_bits(bits, count);
}

// For FSE coded literals: the state, n to 2 n - 1 for n states, and n - 1.
var<private> literal_state: u32;
var<private> state_mask: u32;

fn literal_entry(fse: bool, bits: u32) -> u32 {
    let index = select(bits >> (32u - PREFIX_LOG), literal_state & state_mask, fse);
    return table[index];
}

// Reads two literals of a row into 16 bits, those at `place` and after it, where they are before `end`.
fn literal_pair(fse: bool, place: u32, end: u32) -> u32 {
    take_words(true);
    var bits = next_bits();
    let has0 = place < end;
    let e0 = literal_entry(fse, bits);
    literal_state = select(literal_state, next_state(e0, bits), has0);
    let n0 = select(0u, e0 & 31u, has0);
    bits <<= n0;
    let has1 = place + 1u < end;
    let e1 = literal_entry(fse, bits);
    literal_state = select(literal_state, next_state(e1, bits), has1);
    used_bits += n0 + select(0u, e1 & 31u, has1);
    return ((e0 >> 8u) & 255u) | (e1 & 0xff00u);
}

// The same, if both literals exist and are FSE coded.
fn fse_pair() -> u32 {
    take_words(true);
    let bits = next_bits();
    let e0 = table[literal_state & state_mask];
    literal_state = next_state(e0, bits);
    let e1 = table[literal_state & state_mask];
    literal_state = next_state(e1, bits << (e0 & 31u));
    used_bits += (e0 + e1) & 31u;
    return ((e0 >> 8u) & 255u) | (e1 & 0xff00u);
}

// A stream of tokens or of offsets. There are few of them, so their table stays in device memory.
struct Stream {
    table: u32,
    log: u32,
    fse: bool,
    state: u32,
}

fn stream_entry(s: Stream, bits: u32) -> u32 {
    let index = select(bits >> (32u - s.log), s.state, s.fse);
    return lz77_tables[s.table + (index & ((1u << s.log) - 1u))];
}

var<private> tokens: Stream;
var<private> offsets: Stream;

// Reads a sequence and returns its number of literals; 0 if it has a match or breaks a rule.
fn read_run(is_active: bool) -> u32 {
    take_words(true);
    var bits = next_bits();
    var entry = stream_entry(tokens, bits);
    if is_active {
        tokens.state = next_state(entry, bits);
    }
    var used = entry & 31u;
    bits <<= used;
    let token = (entry >> 8u) & 255u;
    var literals = token >> 5u;
    if literals == 7u {
        let e = bits >> 29u;
        let k = select(e, 9u, e == 7u);
        literals = 6u + (1u << e) + first_bits(bits << 3u, k);
        used += 3u + k;
    }
    used_bits += select(0u, used, is_active);
    take_words(true);
    bits = next_bits();
    entry = stream_entry(offsets, bits);
    if is_active {
        offsets.state = next_state(entry, bits);
        used_bits += entry & 31u;
    }
    let offset = (entry >> 8u) & 255u;
    let is_run = (token & 31u) == 0u && offset == 0u && literals <= MAX_LITERALS;
    return select(0u, literals, is_run && is_active);
}

// @pz_entry
fn lz77_literals(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    // Shared by the workgroup's teams.
    let block = min(workgroup_index / args.per_block, args.blocks - 1u);
    let first_chunk = workgroup_index % args.per_block * TEAMS;
    let head = CHUNK_WORDS * block * (args.max_chunks + 1u);
    let chunks = lz77_chunks[head + BLOCK_CHUNKS];
    let logs = lz77_chunks[head + BLOCK_LOGS];
    let chunk_log = logs & 31u;
    let group_log = (logs >> 16u) & 15u;
    let is_there = workgroup_index < args.blocks * args.per_block && first_chunk < chunks;
    let tables = GROUP_WORDS * (block * args.max_chunks + select(0u, first_chunk >> group_log, is_there));
    let modes = lz77_tables[tables + TABLES_MODES];
    let fse_logs = lz77_tables[tables + TABLES_LOGS];
    let fse = (modes & 3u) == 3u;
    let log = select(PREFIX_LOG, min(fse_logs & 15u, 11u), fse);
    if local_index == 0u {
        table_size = select(0u, 1u << log, is_there && lz77_tables[tables + TABLES_STATUS] == 0u);
    }
    let size = workgroupUniformLoad(&table_size);
    if size == 0u {
        return;
    }
    for (var i = local_index; i < size; i += THREADS) {
        table[i] = lz77_tables[tables + TABLES_HEAD + i];
    }
    workgroupBarrier();

    let chunk = first_chunk + team_index;
    if team_uniform(select(0u, 1u, chunk < chunks)) == 0u {
        return;
    }
    let descriptor = head + CHUNK_WORDS * (chunk + 1u);
    var start = lz77_chunks[descriptor + CHUNK_START];
    var words = lz77_chunks[descriptor + CHUNK_RECORD];
    let sequences = team_uniform(lz77_chunks[descriptor + CHUNK_SEQUENCES]);
    if (chunk & ((1u << group_log) - 1u)) == 0u {
        let described = lz77_tables[tables + TABLES_WORDS];
        start += described;
        words -= described;
    }
    let chunk_start = chunk << chunk_log;
    let chunk_len = team_uniform(min(1u << chunk_log, lz77_chunks[head + BLOCK_LEN] - chunk_start));
    var status = 0u;
    if words != 0u && payload[start + words - 1u] == 0u {
        status = 30u;
    }
    // Plans ensure this.
    if lz77_chunks[descriptor + CHUNK_LITERALS] != chunk_len || TEAMS > (1u << group_log) {
        status = 37u;
    }

    lanes_start(start, words);
    used_bits = 63u;
    take_words(fse);
    literal_state = 1u << log;
    state_mask = literal_state - 1u;
    if fse {
        literal_state |= first_bits(next_bits(), log);
        used_bits += log;
    }
    let to = block * (args.slot / 4u) + chunk_start / 4u + lane;
    var row = 0u;
// @pz_if TEAM_SUBGROUP
    // Whole rows of FSE coded literals take a faster path.
    for (let whole = team_uniform(select(0u, chunk_len / ROW, fse)); row < whole; row++) {
        let low = fse_pair();
        let high = fse_pair();
        contents[to + 32u * row] = low | high << 16u;
    }
// @pz_end
    for (; row < (chunk_len + ROW - 1u) / ROW; row++) {
        let place = row * ROW + 4u * lane;
        var word = 0u;
        for (var half = 0u; half < 2u; half++) {
            word |= literal_pair(fse, place + 2u * half, chunk_len) << (16u * half);
        }
        // Whole words are written, so bytes after the literals are written too: those are beyond the block's end, and
        // the slot has whole words.
        if place < chunk_len {
            contents[to + 32u * row] = word;
        }
    }
    if team_any(fse && literal_state != state_mask + 1u) {
        status = 31u;
    }

    tokens.table = tables + TABLES_HEAD + SYMBOL_TABLE;
    tokens.fse = ((modes >> 2u) & 3u) == 3u && sequences != 0u;
    tokens.log = select(PREFIX_LOG, min((fse_logs >> 8u) & 15u, 11u), tokens.fse);
    offsets.table = tokens.table + SYMBOL_TABLE;
    offsets.fse = ((modes >> 4u) & 3u) == 3u && sequences != 0u;
    offsets.log = select(OFFSET_LOG, min((fse_logs >> 16u) & 15u, 8u), offsets.fse);
    let token_bits = select(0u, tokens.log, tokens.fse);
    let offset_bits = select(0u, offsets.log, offsets.fse);
    take_words(tokens.fse || offsets.fse);
    let bits = next_bits();
    tokens.state = 1u << tokens.log | first_bits(bits, token_bits);
    offsets.state = 1u << offsets.log | first_bits(bits << token_bits, offset_bits);
    used_bits += token_bits + offset_bits;
    var sum = 0u;
    var bad = false;
    for (var i = 0u; i < sequences; i += 64u) {
        for (var parity = 0u; parity < 2u; parity++) {
            let is_active = i + 2u * lane + parity < sequences;
            let literals = read_run(is_active);
            bad = bad || (is_active && literals == 0u);
            sum += literals;
        }
    }
    if team_any(bad) {
        status = 32u;
    }
    if team_any((tokens.fse && tokens.state != (1u << tokens.log)) || (offsets.fse && offsets.state != (1u << offsets.log))) {
        status = 33u;
    }
    // Words that no lane has taken, or remaining bits that are not 0.
    var left = (in_low << 1u) << (used_bits & 31u);
    if used_bits <= 31u {
        left = next_bits() | left;
    }
    if team_any(left != 0u || in_taken < in_end) {
        status = 34u;
    }
    if team_sum(sum) != chunk_len {
        status = 35u;
    }
    if status != 0u && lane == 0u {
        results[8u * block] = status;
    }
}
