// Checks the header of an LZ77 payload, and finds the record of each chunk.
//
// One team per block. It also checks an assumption of other kernels: groups have at least 2^least_group_log chunks. See
// src/format/lz77.md.
//
// @pz_cost {
//   threads: 128
//   passes: 1
//   buffers: jobs=32, payload=N+256, results=32, lz77_chunks=N/65536*16+16
//   local_mem: 256
//   note: a chunk for each 64 KiB, at least one, and a team for each block
// }
// @pz_import team
// @pz_import lz77_chunks

struct Args {
    blocks: u32,
    max_chunks: u32,
    slot: u32,
    payload_units: u32,
    least_group_log: u32,
}
var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> payload: array<u32>;
@group(0) @binding(2) var<storage, read_write> results: array<u32>;
@group(0) @binding(3) var<storage, read_write> lz77_chunks: array<u32>;

// @pz_entry
fn lz77_layout(local_index: u32, workgroup_index: u32) {
    team_start(local_index);
    let team = workgroup_index * TEAMS + team_index;
    // Teams without a block take part too, to keep control flow uniform.
    let is_block = team < args.blocks;
    let block = select(0u, team, is_block);
    let content_len = jobs[8u * block];
    let payload_len = jobs[8u * block + 1u];
    let first = jobs[8u * block + 2u];
    let out = CHUNK_WORDS * block * (args.max_chunks + 1u);

    var status = 0u;
    if content_len == 0u || content_len > args.slot || payload_len < 4u || payload_len % 4u != 0u
        || first > args.payload_units || (payload_len + 15u) / 16u > args.payload_units - first {
        status = 1u;
    }
    let words = 4u * first;
    var header = 0u;
    if status == 0u {
        header = payload[words];
    }
    let chunk_log = header & 255u;
    let window_log = (header >> 8u) & 255u;
    let group_log = (header >> 16u) & 255u;
    if status == 0u && (header >> 24u != 0u || chunk_log < 16u || chunk_log > 20u || window_log < chunk_log
        || window_log > 24u || group_log > 4u || group_log < args.least_group_log) {
        status = 2u;
    }
    var count = 0u;
    var left = 0u; // words of records
    if status == 0u {
        count = ((content_len - 1u) >> chunk_log) + 1u;
        if count > args.max_chunks || payload_len / 4u < 1u + 2u * count {
            status = 3u;
            count = 0u;
        } else {
            left = payload_len / 4u - 1u - 2u * count;
        }
    }
    let chunks = team_uniform(select(0u, count, is_block));

    let start = words + 1u + 2u * count; // at most 2^30, like all sums of words below
    var sum = 0u;
    var bad = false;
    for (var base = 0u; base < chunks; base += 32u) {
        let c = base + lane;
        var record = 0u;
        var literals = 0u;
        var sequences = 0u;
        if c < chunks {
            let low = payload[words + 1u + 2u * c];
            let high = payload[words + 2u + 2u * c];
            record = low & 0x3fffffu;
            literals = low >> 22u | (high & 0x7ffu) << 10u;
            sequences = high >> 11u;
            let chunk_len = min(1u << chunk_log, content_len - (c << chunk_log));
            bad = bad || literals > chunk_len || sequences > chunk_len;
        }
        let end = team_scan(record);
        if c < chunks {
            let chunk = out + CHUNK_WORDS * (c + 1u);
            lz77_chunks[chunk + CHUNK_START] = start + sum + end - record;
            lz77_chunks[chunk + CHUNK_RECORD] = record;
            lz77_chunks[chunk + CHUNK_LITERALS] = literals;
            lz77_chunks[chunk + CHUNK_SEQUENCES] = sequences;
        }
        sum += team_broadcast(end, 31u);
    }
    if team_any(bad) {
        status = 4u;
    }
    if status == 0u && sum != left {
        status = 5u;
    }
    if lane == 0u && is_block {
        // A block without chunks is not decoded.
        lz77_chunks[out + BLOCK_CHUNKS] = select(0u, count, status == 0u);
        lz77_chunks[out + BLOCK_LOGS] = header;
        lz77_chunks[out + BLOCK_LEN] = content_len;
        results[8u * block] = status;
    }
}
