// Kernels that send requests through a door, for tests. Every wait is bounded.
//
// @pz_cost {
//   threads: N/4
//   passes: 1
//   buffers: door_counters=4352, results=N
//   local_mem: 0
// }
// @pz_import door_wait

@group(0) @binding(3) var<storage, read> paths: array<u32>;
@group(0) @binding(4) var<storage, read_write> results: array<u32>;

// 0. An entry point has only the buffers that it names, and all entry points must have the same.
fn named() -> u32 {
    return (arrayLength(&door_host) + arrayLength(&paths)) & 0u;
}

// The sum of the bytes of contents, each times its position, counted from 1.
fn sum_of(content: u32, bytes: u32) -> u32 {
    var sum = 0u;
    for (var i = 0u; i < bytes; i += 4u) {
        let word = atomicLoad(&door_host[content + i / 4u]);
        // Bytes after the end do not count.
        let kept = select(0xffffffffu, (1u << (min(bytes - i, 3u) * 8u)) - 1u, bytes - i < 4u) & word;
        sum += (kept & 255u) * (i + 1u) + ((kept >> 8u) & 255u) * (i + 2u);
        sum += ((kept >> 16u) & 255u) * (i + 3u) + (kept >> 24u) * (i + 4u);
    }
    return sum;
}

// From word `at` of the results on: state, error, bytes, total, weighted sum of the contents, number of the file
fn report(handle: u32, status: u32, at: u32) {
    results[at] = status;
    results[at + 1u] = 0u;
    if status == DOOR_ERROR {
        results[at + 1u] = door_error(handle);
    }
    results[at + 2u] = door_bytes(handle).x;
    results[at + 3u] = door_total(handle).x;
    results[at + 4u] = 0u;
    if status == DOOR_READY {
        results[at + 4u] = sum_of(door_content(handle), results[at + 2u]);
    }
    results[at + 5u] = door_file(handle);
}

// The first of these is the longest, and sets a module's room for arguments.
struct OpenAndRead { items: u32, path_len: u32, mode: u32, offset: u32, bytes: u32, looks: u32 }
var<immediate> open_args: OpenAndRead;

// Work item i opens the file whose path is the `path_len` bytes from byte 64 i of `paths` on, reads `bytes` bytes from
// byte `offset` on, and reports both results.
// @pz_entry
fn open_and_read(local_index: u32, workgroup_index: u32) {
    let item = workgroup_index * THREADS + local_index;
    if item >= open_args.items {
        return;
    }
    var handle = door_claim(open_args.path_len);
    if !door_is_handle(handle) {
        return;
    }
    var written = 0u;
    for (var i = 0u; 4u * i < open_args.path_len; i++) {
        written |= door_path(handle, i, paths[16u * item + i]);
    }
    if !door_open(handle, open_args.path_len, open_args.mode, written) {
        return;
    }
    let status = door_wait(handle, open_args.looks);
    let file = door_file(handle);
    report(handle, status, 16u * item);
    door_close(handle);
    if status != DOOR_READY {
        return;
    }
    handle = door_read(file, vec2(open_args.offset, 0u), open_args.bytes);
    if !door_is_handle(handle) {
        return;
    }
    report(handle, door_wait(handle, open_args.looks), 16u * item + 8u);
    door_close(handle);
}

struct Stream { file: u32, bytes: u32, piece: u32, looks: u32 }
var<immediate> stream_args: Stream;

// One work item reads `bytes` bytes of a file as a stream in pieces of `piece`, and reports the sum of the pieces'
// sums, each times the piece's number.
// @pz_entry
fn stream(local_index: u32, workgroup_index: u32) {
    if workgroup_index * THREADS + local_index != 0u {
        return;
    }
    let looks = stream_args.looks;
    let handle = door_stream(stream_args.file, vec2(0u), vec2(stream_args.bytes, 0u), stream_args.piece);
    if !door_is_handle(handle) {
        return;
    }
    results[0] = door_wait(handle, looks) + named();
    var sum = 0u;
    let stride = door_word(handle, DOOR_H_PIECE);
    for (var done = 0u; done * stride < stream_args.bytes; done++) {
        for (var i = 0u; i < looks && door_pieces(handle) <= done && door_status(handle) == DOOR_READY; i++) {
            door_pause();
        }
        if door_pieces(handle) <= done {
            break;
        }
        sum += sum_of(door_piece(handle, done), min(stride, stream_args.bytes - done * stride)) * (done + 1u);
        results[1] = done + 1u;
        for (var i = 0u; i < looks && !door_next(handle); i++) {
            door_pause();
        }
    }
    results[2] = sum;
    door_close(handle);
}

struct Write { file: u32, offset: u32, bytes: u32, looks: u32 }
var<immediate> write_args: Write;

var<workgroup> shared_handle: u32;
var<workgroup> shared_status: u32;

// Byte `i` of the written contents.
fn byte_to_write(i: u32) -> u32 {
    return (i * 7u + 3u) & 255u;
}

// A workgroup writes `bytes` bytes to a file from byte `offset` on.
// @pz_entry
fn write(local_index: u32, workgroup_index: u32) {
    if local_index == 0u {
        shared_handle = door_write(write_args.file, vec2(write_args.offset, 0u), write_args.bytes);
        shared_status = DOOR_ERROR;
        if door_is_handle(shared_handle) {
            shared_status = door_wait(shared_handle, write_args.looks);
            results[0] = shared_status + named();
        }
    }
    door_barrier();
    let handle = workgroupUniformLoad(&shared_handle);
    let status = workgroupUniformLoad(&shared_status);
    if status == DOOR_READY {
        let content = door_content(handle);
        for (var i = local_index; 4u * i < write_args.bytes; i += THREADS) {
            let word = byte_to_write(4u * i) | (byte_to_write(4u * i + 1u) << 8u) | (byte_to_write(4u * i + 2u) << 16u)
                | (byte_to_write(4u * i + 3u) << 24u);
            atomicStore(&door_host[content + i], word);
        }
    }
    door_barrier();
    if local_index != 0u || !door_is_handle(handle) {
        return;
    }
    if status == DOOR_READY {
        if !door_commit(handle) {
            return;
        }
        report(handle, door_wait(handle, write_args.looks), 0u);
    }
    door_close(handle);
}

struct Die { file: u32, count: u32, bytes: u32, breaks_off: u32 }
var<immediate> die_args: Die;

// One work item requests `count` reads and ends without polling or closing; if `breaks_off` is not 0, in the middle of
// one more request.
// @pz_entry
fn die(local_index: u32, workgroup_index: u32) {
    if workgroup_index * THREADS + local_index != 0u {
        return;
    }
    for (var i = 0u; i < die_args.count; i++) {
        if door_is_handle(door_read(die_args.file, vec2(0u), die_args.bytes)) {
            results[0]++;
        }
    }
    if die_args.breaks_off != 0u {
        atomicAdd(&door_counters[DOOR_C_REQUESTS], 1u);
    }
    results[1] = named();
}
