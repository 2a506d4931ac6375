// Copies parts of one buffer to another, from any byte to any byte, such as contents to the caller's buffer.
//
// @pz_cost {
//   threads: N/32768*256
//   passes: 1
//   buffers: contents=N, moves=N/4096*32+128, payload=N+256
//   local_mem: 0
//   note: moves holds four moves for each block, and one for each 4 KiB of it; the caller's buffers may have any size
// }

struct Args {
    first_move: u32,
    count: u32,
    groups: u32,
    source_bytes: u32,
    end_low: u32,
    end_high: u32,
}

var<immediate> args: Args;

// Bytes `start` to `start + bytes` of the source go to the destination from byte `to_low + 2^32 to_high` on. If `fill`
// is not 0, its lowest byte goes there instead, over and over.
struct Move {
    start: u32,
    bytes: u32,
    to_low: u32,
    to_high: u32,
    fill: u32,
    reserved: array<u32, 3>,
}

@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read> moves: array<Move>;
@group(0) @binding(2) var<storage, read_write> destination: array<atomic<u32>>;

// `groups` workgroups for each of `count` moves from the `first_move`-th on, each for UNITS units of 16 bytes of the
// destination. Only the first and the last word can be shared with other moves, and their other bytes stay as they are.
// Moves that exceed the `source_bytes` bytes of the source, or byte `end_low + 2^32 end_high` of the destination, do
// nothing.
// @pz_entry
fn move_bytes(local_index: u32, workgroup_index: u32) {
    if workgroup_index / args.groups >= args.count {
        return;
    }
    let m = moves[args.first_move + workgroup_index / args.groups];
    if m.fill == 0u && (m.start > args.source_bytes || m.bytes > args.source_bytes - m.start) {
        return;
    }
    // Both ends in words: there are fewer than 2^32 words. The caller may use a part of the last one.
    let room = (args.end_high << 30u) | (args.end_low >> 2u);
    if m.to_high > 3u || m.bytes > 0xfffffff0u {
        return;
    }
    let before = m.to_low % 4u;
    let end = before + m.bytes;
    let base = (m.to_high << 30u) | (m.to_low >> 2u);
    let spare = args.end_low % 4u;
    if base > room || end / 4u > room - base || (end / 4u == room - base && end % 4u > spare) {
        return;
    }
    let first = workgroup_index % args.groups * (4u * UNITS);
    let last = min(first + 4u * UNITS, (end + 3u) / 4u);
    let fill = (m.fill & 255u) * 0x01010101u;
    for (var i = first + local_index; i < last; i += THREADS) {
        let begin = select(4u * i, before, i == 0u);
        let stop = min(end, 4u * i + 4u);
        var byte = m.start + begin - before;
        if stop - begin == 4u {
            var word = fill;
            if m.fill == 0u {
                let shift = byte % 4u * 8u;
                word = source[byte / 4u] >> shift;
                if shift != 0u {
                    word |= source[byte / 4u + 1u] << (32u - shift);
                }
            }
            atomicStore(&destination[base + i], word);
        } else {
            var bits = 0u;
            var mask = 0u;
            for (var k = begin; k < stop; k++) {
                let shift = (k % 4u) * 8u;
                var word = fill;
                if m.fill == 0u {
                    word = source[byte / 4u] >> (byte % 4u * 8u);
                }
                bits |= (word & 255u) << shift;
                mask |= 255u << shift;
                byte += 1u;
            }
            atomicAnd(&destination[base + i], ~mask);
            atomicOr(&destination[base + i], bits);
        }
    }
}
