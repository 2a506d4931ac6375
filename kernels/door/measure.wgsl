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
const RESULT_SUM = 0u;
const RESULT_DONE = 1u;
const RESULT_FAILED = 2u;

@group(0) @binding(3) var<storage, read_write> times: array<u32>;
@group(0) @binding(4) var<storage, read_write> results: array<atomic<u32>>;

struct Args {
    file: u32,
    pieces: u32,
    size: u32,
    count: u32,
    looks: u32,
    // `one_by_one`: nanoseconds; `many`: handles of a workgroup; `idle`: microseconds.
    pause_or_each: u32,
    scattered: u32,
}
var<immediate> args: Args;

// Handles of a workgroup in `many`.
var<workgroup> handles: array<u32, 1024>;
var<workgroup> shared_handle: u32;
var<workgroup> shared_status: u32;

// The product of two words.
fn long_product(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let first = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let second = (a & 0xffffu) * (b >> 16u) + (first & 0xffffu);
    return vec2((second << 16u) | (low & 0xffffu), (a >> 16u) * (b >> 16u) + (first >> 16u) + (second >> 16u));
}

// The offset of request `number`: whole pieces, in pseudo-random order if `scattered`.
fn measured_offset(number: u32, scattered: u32, size: u32, pieces: u32) -> vec2<u32> {
    let at = select(min(number, pieces - 1u), long_product(number * 2654435761u, pieces).y, scattered != 0u);
    return long_product(at, size);
}

// The share of request `number` in the sum, from the words of its contents that this work item reads, each weighted by
// its place.
fn measured_sum(from_word: u32, size: u32, number: u32, first: u32, step: u32) -> u32 {
    var sum = 0u;
    for (var i = first; i < size / 4u; i += step) {
        sum += atomicLoad(&door_host[from_word + i]) * (2u * i + 2u * number + 1u);
    }
    return sum;
}

// The first work item requests `size` bytes `count` times, one request after another. The whole workgroup reads the
// contents, so that little time passes between requests. There is no clock, so `pause` and `times` are unused.
// @pz_entry
fn one_by_one(local_index: u32, workgroup_index: u32) {
    var sum = 0u;
    var done = 0u;
    for (var n = 0u; n < args.count; n++) {
        if local_index == 0u {
            let handle = door_read(args.file, measured_offset(n, 1u, args.size, args.pieces), args.size);
            shared_handle = handle;
            shared_status = DOOR_ERROR;
            if door_is_handle(handle) {
                shared_status = door_wait(handle, args.looks);
            }
        }
        door_barrier();
        let handle = workgroupUniformLoad(&shared_handle);
        let has_failed = workgroupUniformLoad(&shared_status) != DOOR_READY;
        if !has_failed {
            sum += measured_sum(door_content(handle), args.size, n, local_index, THREADS);
            done++;
        }
        door_barrier();
        if local_index == 0u && door_is_handle(handle) {
            door_close(handle);
        }
        if has_failed {
            break;
        }
    }
    atomicAdd(&results[RESULT_SUM], sum);
    if local_index == 0u {
        atomicStore(&results[RESULT_DONE], done);
        atomicStore(&results[RESULT_FAILED], args.count - done);
        times[0] = 0u;
    }
}

// Requests a piece, repeatedly while the ring or the table of handles is full.
fn measured_ask(file: u32, at: vec2<u32>, size: u32, looks: u32) -> u32 {
    var handle = DOOR_RING_FULL;
    for (var i = 0u; i < looks && !door_is_handle(handle); i++) {
        handle = door_read(file, at, size);
        if !door_is_handle(handle) {
            door_pause();
        }
    }
    return handle;
}

// Each workgroup keeps up to `each` handles in use, at most 1,024. It takes the answers in the order of its requests,
// and makes a new request for each handle that it closes. Pieces go to the workgroups in turn.
// @pz_entry
fn many(local_index: u32, workgroup_index: u32) {
    let group = workgroup_index;
    let groups = workgroups.x * workgroups.y;
    let each = args.pause_or_each;
    let size = args.size;
    var sum = 0u;
    var done = 0u;
    // The number of its pieces. Its piece `k` is piece `group + k * groups` of all.
    var own = 0u;
    if group < args.count {
        own = (args.count - group - 1u) / groups + 1u;
    }
    for (var k = local_index; k < min(each, own); k += THREADS) {
        let at = measured_offset(group + k * groups, args.scattered, size, args.pieces);
        handles[k] = measured_ask(args.file, at, size, args.looks);
    }
    workgroupBarrier();
    var failed = 0u;
    for (var k = 0u; k < own; k++) {
        let number = group + k * groups;
        let slot = k % each;
        if local_index == 0u {
            shared_handle = handles[slot];
            shared_status = DOOR_ERROR;
            if door_is_handle(shared_handle) {
                shared_status = door_wait(shared_handle, args.looks);
            }
        }
        door_barrier();
        let handle = workgroupUniformLoad(&shared_handle);
        let has_failed = workgroupUniformLoad(&shared_status) != DOOR_READY;
        if !has_failed {
            sum += measured_sum(door_content(handle), size, number, local_index, THREADS);
            done++;
        }
        door_barrier();
        if local_index == 0u {
            if door_is_handle(handle) {
                door_close(handle);
            }
            if !has_failed && k + each < own {
                let at = measured_offset(number + each * groups, args.scattered, size, args.pieces);
                handles[slot] = measured_ask(args.file, at, size, args.looks);
            }
        }
        if has_failed {
            failed = 1u;
            break;
        }
    }
    atomicAdd(&results[RESULT_SUM], sum);
    if local_index == 0u {
        atomicAdd(&results[RESULT_DONE], done);
        atomicAdd(&results[RESULT_FAILED], failed);
        times[0] = 0u;
    }
}

// Makes no requests. Polls a handle `looks` times, as there is no clock.
// @pz_entry
fn idle(local_index: u32, workgroup_index: u32) {
    if workgroup_index != 0u || local_index != 0u {
        return;
    }
    var seen = 0u;
    for (var i = 0u; i < args.looks; i++) {
        seen += select(0u, 1u, door_status(1024u) == DOOR_READY);
    }
    // An entry point has only the buffers that it names, so name all of them.
    let none = (arrayLength(&door_host) + arrayLength(&door_counters)) & 0u;
    atomicStore(&results[RESULT_DONE], seen + none);
    times[0] = 0u;
}
