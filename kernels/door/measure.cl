// Kernels that send requests through a door, at full speed or with pauses, to measure it.
//
// @pz_cost {
//   threads: N/4
//   passes: 1
//   buffers: door_counters=4352, door_times=N, door_results=64
//   local_mem: 4112
//   note: N is 4 bytes for each request
// }
// @pz_import door_wait

// Words of the results.
#define RESULT_SUM 0u
#define RESULT_DONE 1u
#define RESULT_FAILED 2u
#define RESULT_TICKS 4u
#define RESULT_NANOSECONDS 6u

// The offset of request `number`: whole pieces, in pseudo-random order if `scattered`.
inline ulong measured_offset(uint number, uint scattered, uint size, uint pieces) {
    uint at = scattered != 0u ? (uint)((ulong)(number * 2654435761u) * pieces >> 32) : min(number, pieces - 1u);
    return (ulong)at * size;
}

// The share of request `number` in the sum, from the words of its contents that this work item reads, each weighted by
// its place.
inline uint measured_sum(DOOR_BYTES from, uint size, uint number, uint first, uint step) {
    uint sum = 0u;
    for (uint i = first; i < size / 16u; i += step) {
        uint4 v = door_load((const DOOR_GLOBAL uint4 *)from + i);
        uint weight = 8u * i + 2u * number + 1u;
        sum += v.x * weight + v.y * (weight + 2u) + v.z * (weight + 4u) + v.w * (weight + 6u);
    }
    return sum;
}

// The first work item requests `size` bytes `count` times, one request after another, with `pause` nanoseconds in
// between where there is a clock. The whole workgroup reads the contents, so that little time passes between requests.
// `times` are in ticks.
__kernel void one_by_one(DOOR_BYTES control, DOOR_BYTES counters, DOOR_BYTES host, DOOR_BYTES device, __global uint *times,
    __global uint *results, uint file, uint pieces, uint size, uint count, uint looks, uint pause) {
    SHARED uint state[2];
    Door door = door_of(control, counters, host, device);
    uint sum = 0u, done = 0u;
    bool has_failed = false;
    uint local_id = (uint)get_local_id(0);
    ulong began = door_time(), began_ticks = door_ticks();
    for (uint n = 0u; n < count && !has_failed; n++) {
        if (local_id == 0u) {
            ulong until = door_time() + pause;
            for (uint i = 0u; pause != 0u && i < looks && door_time() < until; i++) door_pause();
            ulong start = door_ticks();
            uint handle = door_read(door, file, measured_offset(n, 1u, size, pieces), size);
            state[0] = handle;
            state[1] = door_is_handle(handle) ? door_wait(door, handle, looks) : DOOR_ERROR;
            times[n] = (uint)(door_ticks() - start);
        }
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        uint handle = state[0];
        has_failed = state[1] != DOOR_READY;
        if (!has_failed) {
            sum += measured_sum(door_content(door, handle), size, n, local_id, THREADS);
            done++;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (local_id == 0u && door_is_handle(handle)) door_close(door, handle);
    }
    atomic_add(results + RESULT_SUM, sum);
    if (local_id != 0u) return;
    ulong ticks = door_ticks() - began_ticks, nanoseconds = door_time() - began;
    results[RESULT_DONE] = done;
    results[RESULT_FAILED] = count - done;
    results[RESULT_TICKS] = (uint)ticks;
    results[RESULT_TICKS + 1u] = (uint)(ticks >> 32);
    results[RESULT_NANOSECONDS] = (uint)nanoseconds;
    results[RESULT_NANOSECONDS + 1u] = (uint)(nanoseconds >> 32);
}

// Requests the piece at byte `at`, repeatedly while the ring or the table of handles is full.
inline uint measured_ask(Door door, uint file, ulong at, uint size, uint looks) {
    uint handle = DOOR_RING_FULL;
    for (uint i = 0u; i < looks && !door_is_handle(handle); i++) {
        handle = door_read(door, file, at, size);
        if (!door_is_handle(handle)) door_pause();
    }
    return handle;
}

// Each workgroup keeps up to `each` handles in use, at most 1,024. It takes the answers in the order of its requests,
// and makes a new request for each handle that it closes. Pieces go to the workgroups in turn.
__kernel void many(DOOR_BYTES control, DOOR_BYTES counters, DOOR_BYTES host, DOOR_BYTES device, __global uint *times,
    __global uint *results, uint file, uint pieces, uint size, uint count, uint looks, uint each, uint scattered) {
    SHARED uint handles[1024];
    SHARED uint state[4];
    Door door = door_of(control, counters, host, device);
    uint sum = 0u, done = 0u;
    bool has_failed = false;
    uint local_id = (uint)get_local_id(0), group = (uint)get_group_id(0), groups = (uint)get_num_groups(0);
    // The number of its pieces. Its piece `k` is piece `group + k * groups` of all.
    uint own = group < count ? (count - group - 1u) / groups + 1u : 0u;
    for (uint k = local_id; k < min(each, own); k += THREADS) {
        ulong at = measured_offset(group + k * groups, scattered, size, pieces);
        handles[k] = measured_ask(door, file, at, size, looks);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint k = 0u; k < own && !has_failed; k++) {
        uint number = group + k * groups, slot = k % each;
        uint handle = handles[slot];
        if (local_id == 0u) state[0] = door_is_handle(handle) ? door_wait(door, handle, looks) : DOOR_ERROR;
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        has_failed = state[0] != DOOR_READY;
        if (!has_failed) {
            sum += measured_sum(door_content(door, handle), size, number, local_id, THREADS);
            done += local_id == 0u ? 1u : 0u;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (local_id == 0u) {
            if (door_is_handle(handle)) door_close(door, handle);
            if (!has_failed && k + each < own) {
                ulong at = measured_offset(number + each * groups, scattered, size, pieces);
                handles[slot] = measured_ask(door, file, at, size, looks);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    atomic_add(results + RESULT_SUM, sum);
    if (local_id == 0u) {
        atomic_add(results + RESULT_DONE, done);
        if (has_failed) atomic_add(results + RESULT_FAILED, 1u);
    }
}

// Makes no requests. Polls a handle for `microseconds`, at most `looks` times; without a clock, exactly `looks` times.
__kernel void idle(DOOR_BYTES control, DOOR_BYTES counters, DOOR_BYTES host, DOOR_BYTES device, __global uint *times,
    __global uint *results, uint file, uint pieces, uint size, uint count, uint looks, uint microseconds) {
    if (get_global_id(0) != 0) return;
    Door door = door_of(control, counters, host, device);
    ulong began = door_time();
    uint seen = 0u;
    for (uint i = 0u; i < looks; i++) {
        if (began != 0u && door_time() - began >= (ulong)microseconds * 1000u) break;
        seen += door_status(door, 1024u) == DOOR_READY ? 1u : 0u;
        door_pause();
    }
    results[RESULT_DONE] = seen;
}
