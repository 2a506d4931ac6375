// Copies parts of one buffer to another, from any byte to any byte, such as contents to the caller's buffer.
//
// @pz_cost {
//   threads: N/32768*256
//   passes: 1
//   buffers: contents=N, moves=N/4096*32+128, payload=N+256
//   local_mem: 0
//   note: moves holds four moves for each block, and one for each 4 KiB of it; the caller's buffers may have any size
// }

// Bytes `from` to `from + bytes` of the source go to the destination from byte `to_low + 2^32 to_high` on. If `fill` is
// not 0, its lowest byte goes there instead, over and over.
typedef struct {
    uint from, bytes, to_low, to_high, fill, reserved[3];
} Move;

// 16 bytes of the source, from byte `at` on.
inline uint4 bytes_at(__global const uint *source, uint at) {
    source += at / 4;
    uint shift = at % 4 * 8;
    if (shift == 0) return UINT4(source[0], source[1], source[2], source[3]);
    uint a = source[0], b = source[1], c = source[2], d = source[3], e = source[4], left = 32 - shift;
    return UINT4(a >> shift | b << left, b >> shift | c << left, c >> shift | d << left, d >> shift | e << left);
}

// `groups` workgroups for each of `count` moves from number `first_move` on, each for UNITS units of 16 bytes of the
// destination. Only the first and the last unit can be shared with other moves; their bytes are written one by one.
// Moves that exceed the `source_bytes` bytes of the source, or byte `end_low + 2^32 end_high` of the destination, do
// nothing.
__kernel void move_bytes(__global const uint *source, __global const Move *moves, __global uchar *destination,
    uint first_move, uint count, uint groups, uint source_bytes, uint end_low, uint end_high) {
    uint group = (uint)get_group_id(0);
    if (group / groups >= count) return;
    Move m = moves[first_move + group / groups];
    if (m.fill == 0 && (m.from > source_bytes || m.bytes > source_bytes - m.from)) return;
    ulong to = (ulong)m.to_high << 32 | m.to_low;
    ulong room = (ulong)end_high << 32 | end_low;
    if (to > room || m.bytes > room - to) return;
    uint before = m.to_low % 16;
    uint end = before + m.bytes;
    destination += to - before;
    uint first = group % groups * UNITS;
    uint last = min(first + UNITS, (end + 15) / 16);
    uint fill = (m.fill & 255) * 0x01010101u;
    for (uint i = first + (uint)get_local_id(0); i < last; i += THREADS) {
        uint begin = i == 0 ? before : 16 * i;
        uint stop = min(end, 16 * i + 16);
        uint from = m.from + begin - before;
        if (stop - begin == 16) {
            uint4 unit = m.fill != 0 ? UINT4(fill) : bytes_at(source, from);
            ((__global uint4 *)destination)[i] = unit;
        } else {
            for (uint k = begin; k < stop; k++, from++) {
                uint word = m.fill != 0 ? fill : source[from / 4] >> from % 4 * 8;
                destination[k] = (uchar)word;
            }
        }
    }
}
