// Kernels that send requests through a door, for tests. Every wait is bounded.
//
// @pz_cost {
//   threads: N/4
//   passes: 1
//   buffers: door_counters=4352, results=N
//   local_mem: 0
// }
// @pz_import door_wait

// The sum of the bytes of contents, each times its position, counted from 1.
inline uint sum_of(const volatile DOOR_GLOBAL uchar *from, uint bytes) {
    uint sum = 0u;
    for (uint i = 0u; i < bytes; i++) sum += from[i] * (i + 1u);
    return sum;
}

// results: state, error, bytes, total, weighted sum of the contents, number of the file
inline void report(Door door, uint handle, uint status, __global uint *results) {
    results[0] = status;
    results[1] = status == DOOR_ERROR ? door_error(door, handle) : 0u;
    results[2] = (uint)door_bytes(door, handle);
    results[3] = (uint)door_total(door, handle);
    results[4] = status == DOOR_READY ? sum_of(door_content(door, handle), results[2]) : 0u;
    results[5] = door_file(door, handle);
}

// Work item i opens the file whose path is the `path_len` bytes from byte 64 i of `paths` on, reads `bytes` bytes from
// byte `offset` on, and reports both results.
__kernel void open_and_read(DOOR_BYTES control, DOOR_BYTES counters, DOOR_BYTES host, DOOR_BYTES device,
    __global const uchar *paths, __global uint *results, uint items, uint path_len, uint mode, uint offset, uint bytes, uint looks) {
    uint item = (uint)get_global_id(0);
    if (item >= items) return;
    Door door = door_of(control, counters, host, device);
    results += 16u * item;
    uint handle = door_open(door, paths + 64u * item, path_len, mode);
    if (!door_is_handle(handle)) return;
    uint status = door_wait(door, handle, looks);
    uint file = door_file(door, handle);
    report(door, handle, status, results);
    door_close(door, handle);
    if (status != DOOR_READY) return;
    handle = door_read(door, file, offset, bytes);
    if (!door_is_handle(handle)) return;
    report(door, handle, door_wait(door, handle, looks), results + 8);
    door_close(door, handle);
}

// One work item reads `bytes` bytes of a file as a stream in pieces of `piece`, and reports the sum of the pieces'
// sums, each times the piece's number.
__kernel void stream(DOOR_BYTES control, DOOR_BYTES counters, DOOR_BYTES host, DOOR_BYTES device, __global const uchar *paths,
    __global uint *results, uint file, uint bytes, uint piece, uint looks) {
    if (get_global_id(0) != 0) return;
    Door door = door_of(control, counters, host, device);
    uint handle = door_stream(door, file, 0, bytes, piece);
    if (!door_is_handle(handle)) return;
    results[0] = door_wait(door, handle, looks);
    uint sum = 0u;
    uint stride = door_word(door, handle, DOOR_H_PIECE);
    for (uint done = 0u; done * stride < bytes; done++) {
        uint i = 0u;
        while (i < looks && door_pieces(door, handle) <= done && door_status(door, handle) == DOOR_READY) i++;
        if (door_pieces(door, handle) <= done) break;
        sum += sum_of(door_piece(door, handle, done), min(stride, bytes - done * stride)) * (done + 1u);
        results[1] = done + 1u;
        for (i = 0u; i < looks && !door_next(door, handle); i++) {}
    }
    results[2] = sum;
    door_close(door, handle);
}

// One work item writes `bytes` bytes to a file from byte `offset` on.
__kernel void write(DOOR_BYTES control, DOOR_BYTES counters, DOOR_BYTES host, DOOR_BYTES device, __global const uchar *paths,
    __global uint *results, uint file, uint offset, uint bytes, uint looks) {
    if (get_global_id(0) != 0) return;
    Door door = door_of(control, counters, host, device);
    uint handle = door_write(door, file, offset, bytes);
    if (!door_is_handle(handle)) return;
    results[0] = door_wait(door, handle, looks);
    if (results[0] == DOOR_READY) {
        DOOR_BYTES to = door_content(door, handle);
        for (uint i = 0u; i < bytes; i++) to[i] = (uchar)(i * 7u + 3u);
        if (!door_commit(door, handle)) return;
        report(door, handle, door_wait(door, handle, looks), results);
    }
    door_close(door, handle);
}

// One work item requests `count` reads and ends without polling or closing; if `breaks_off` is not 0, in the middle of
// one more request.
__kernel void die(DOOR_BYTES control, DOOR_BYTES counters, DOOR_BYTES host, DOOR_BYTES device, __global const uchar *paths,
    __global uint *results, uint file, uint count, uint bytes, uint breaks_off) {
    if (get_global_id(0) != 0) return;
    Door door = door_of(control, counters, host, device);
    for (uint i = 0u; i < count; i++) {
        if (door_is_handle(door_read(door, file, 0, bytes))) results[0]++;
    }
    if (breaks_off != 0u) door.counters[DOOR_C_REQUESTS]++;
}
