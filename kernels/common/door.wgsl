// The door, through which a running kernel requests parts of files. A host thread reads the requests and answers them.
//
// The functions are those of door.cl, which explains their use. This file needs no other file, so callers can put it
// before their own kernels. The first three bindings of group 0 belong to the door. Contents are words of door_host,
// beginning at door_content.
//
//     let handle = door_read(file, vec2(offset, 0u), bytes);
//     if door_is_handle(handle) {
//         for (var i = 0u; i < LOOKS && door_status(handle) == DOOR_LOADING; i++) {}
//         if door_status(handle) == DOOR_READY { use_words(door_content(handle), door_bytes(handle).x); }
//         door_close(handle);
//     }
//
// WGSL's atomic operations are not ordered, and its barriers are for whole workgroups. So:
// - Words that the host reads in an order are written by exchanges: once their results are known, the words are
//   written, and later words depend on the results (`door_after`).
// - Only the work item that saw the status may use the contents at once. The others use them after a barrier,
//   storageBarrier() and workgroupBarrier(). Another barrier goes before closing the handle or committing a write.
// - The memory may have held other contents before, so contents are loaded by atomic operations, which bypass caches.
//
// A number of 64 bits is a vector of its low and its high word.

@group(0) @binding(0) var<storage, read_write> door_control: array<atomic<u32>>;
@group(0) @binding(1) var<storage, read_write> door_counters: array<atomic<u32>>;
@group(0) @binding(2) var<storage, read_write> door_host: array<atomic<u32>>;

// Words of the control memory: the header, then the ring, the handles and the paths.
const DOOR_VERSION = 0u;
const DOOR_RING = 1u;
const DOOR_ZERO = 2u;
const DOOR_CONSUMED = 16u;
const DOOR_HEADER = 32u;
const DOOR_ENTRY = 16u;
const DOOR_HANDLES = 1024u;
const DOOR_PATH = 64u;

// Words of a request.
const DOOR_R_OP = 0u;
const DOOR_R_HANDLE = 1u;
const DOOR_R_FILE = 2u;
const DOOR_R_PIECE = 3u;
const DOOR_R_OFFSET = 4u;
const DOOR_R_LENGTH = 6u;
const DOOR_R_PATH = 8u;
const DOOR_R_TURN = 15u;

// Words of a handle.
const DOOR_H_STATUS = 0u;
const DOOR_H_ERROR = 1u;
const DOOR_H_PLACE = 2u;
const DOOR_H_BYTES = 4u;
const DOOR_H_TOTAL = 6u;
const DOOR_H_POOL = 8u;
const DOOR_H_FILE = 9u;
const DOOR_H_PIECE = 10u;
const DOOR_H_WINDOW = 11u;
const DOOR_H_PIECES = 12u;
const DOOR_H_CLOSED = 15u;

// Words of the counters: requests made; requests that the host had taken when last checked; a bit for each handle in
// use; the number of uses of each handle.
const DOOR_C_REQUESTS = 0u;
const DOOR_C_TAKEN = 1u;
const DOOR_C_USED = 32u;
const DOOR_C_GENERATION = 64u;

// The operation of a request.
const DOOR_OPEN = 1u;
const DOOR_READ = 2u;
const DOOR_STREAM = 3u;
const DOOR_NEXT = 4u;
const DOOR_WRITE = 5u;
const DOOR_COMMIT = 6u;
const DOOR_NOTHING = 7u;

// How to open a file: its own bytes; the contents of an archive; for writing, created if it does not exist.
const DOOR_PLAIN = 0u;
const DOOR_CONTENTS = 1u;
const DOOR_WRITABLE = 2u;

// The state of a handle.
const DOOR_UNUSED = 0u;
const DOOR_LOADING = 1u;
const DOOR_READY = 2u;
const DOOR_ERROR = 3u;
const DOOR_CLOSED = 4u;
// The status of every handle once the host has shut the door.
const DOOR_SHUT = 0xffffffffu;

// Why a request failed: no error; no room, so try again later; not permitted; no such file; outside the contents; the
// file has changed since it was opened; any other reason.
const DOOR_NO_ERROR = 0u;
const DOOR_FULL = 1u;
const DOOR_REFUSED = 2u;
const DOOR_MISSING = 3u;
const DOOR_RANGE = 4u;
const DOOR_CHANGED = 5u;
const DOOR_FAILED = 6u;

// Returned in place of a handle: the table of handles or the ring is full.
const DOOR_TABLE_FULL = 0xffffffffu;
const DOOR_RING_FULL = 0xfffffffeu;

// How often a work item competes with others before it reports a full table or ring.
const DOOR_TRIES = 4096u;

// ---- Order ----------------------------------------------------------------------------------------------------------

// `value`, once `results` are known. The loaded word is always 0, which no compiler knows.
fn door_after(value: u32, results: u32) -> u32 {
    return value + (results & atomicLoad(&door_control[DOOR_ZERO]));
}

// Writes a word that the host reads. Its result goes to door_after.
fn door_put(at: u32, value: u32) -> u32 {
    return atomicExchange(&door_control[at], value);
}

// ---- The kernel's side of the door ----------------------------------------------------------------------------------

// Requests that the ring holds, a power of two.
fn door_ring() -> u32 {
    return atomicLoad(&door_control[DOOR_RING]);
}

// Whether the value is a handle. If not, it says what is full.
fn door_is_handle(handle: u32) -> bool {
    return handle < DOOR_RING_FULL;
}

fn door_entry(handle: u32) -> u32 {
    return DOOR_HEADER + (door_ring() + (handle & (DOOR_HANDLES - 1u))) * DOOR_ENTRY;
}

// The handle for the next use of this number, which the caller has just taken.
fn door_use(number: u32) -> u32 {
    var generation = 0u;
    while generation == 0u || generation == 0x3fffffu {
        generation = (atomicAdd(&door_counters[DOOR_C_GENERATION + number], 1u) + 1u) & 0x3fffffu;
    }
    return (generation << 10u) | number;
}

// Takes a free handle, `first` if possible. Its lowest 10 bits are its number, and the upper bits count its uses.
fn door_claim(first: u32) -> u32 {
    let number = first & (DOOR_HANDLES - 1u);
    var bit = 1u << (number & 31u);
    var at = number / 32u;
    if (atomicOr(&door_counters[DOOR_C_USED + at], bit) & bit) == 0u {
        return door_use(number);
    }
    var full = 0u;
    for (var i = 0u; i < DOOR_TRIES && full < DOOR_HANDLES / 32u; i++) {
        let used = atomicLoad(&door_counters[DOOR_C_USED + at]);
        bit = ~used & (used + 1u);
        if bit == 0u {
            at = (at + 1u) & (DOOR_HANDLES / 32u - 1u);
            full++;
            continue;
        }
        if (atomicOr(&door_counters[DOOR_C_USED + at], bit) & bit) != 0u {
            continue;
        }
        return door_use(at * 32u + firstTrailingBit(bit));
    }
    return DOOR_TABLE_FULL;
}

fn door_release(handle: u32, results: u32) {
    let number = handle & (DOOR_HANDLES - 1u);
    atomicAnd(&door_counters[DOOR_C_USED + number / 32u], door_after(~(1u << (number & 31u)), results));
}

// Puts a request into the ring; false if the ring is full.
fn door_ask(op: u32, handle: u32, file: u32, offset: vec2<u32>, length: vec2<u32>, piece: u32, path: u32, results: u32) -> bool {
    let ring = door_ring();
    var number = 0u;
    var has_number = false;
    for (var i = 0u; i < DOOR_TRIES && !has_number; i++) {
        var taken = atomicLoad(&door_counters[DOOR_C_TAKEN]);
        number = atomicLoad(&door_counters[DOOR_C_REQUESTS]);
        if number - taken >= ring {
            taken = atomicLoad(&door_control[DOOR_CONSUMED]);
            atomicStore(&door_counters[DOOR_C_TAKEN], taken);
            number = atomicLoad(&door_counters[DOOR_C_REQUESTS]);
            // `taken` may be newer than `number` if another work item was faster.
            if number - taken >= ring && i32(number - taken) > 0 {
                return false;
            }
            if number - taken >= ring {
                continue;
            }
        }
        has_number = atomicCompareExchangeWeak(&door_counters[DOOR_C_REQUESTS], number, number + 1u).exchanged;
    }
    if !has_number {
        return false;
    }
    let entry = DOOR_HEADER + (number & (ring - 1u)) * DOOR_ENTRY;
    var written = results;
    written |= door_put(entry + DOOR_R_OP, op);
    written |= door_put(entry + DOOR_R_HANDLE, handle);
    written |= door_put(entry + DOOR_R_FILE, file);
    written |= door_put(entry + DOOR_R_PIECE, piece);
    written |= door_put(entry + DOOR_R_OFFSET, offset.x);
    written |= door_put(entry + DOOR_R_OFFSET + 1u, offset.y);
    written |= door_put(entry + DOOR_R_LENGTH, length.x);
    written |= door_put(entry + DOOR_R_LENGTH + 1u, length.y);
    written |= door_put(entry + DOOR_R_PATH, path);
    atomicStore(&door_control[entry + DOOR_R_TURN], door_after(number / ring + 1u, written));
    return true;
}

// Takes a handle and sends a request for it.
fn door_begin(op: u32, file: u32, offset: vec2<u32>, length: vec2<u32>, piece: u32) -> u32 {
    let handle = door_claim(file + offset.x / 4096u);
    if handle == DOOR_TABLE_FULL {
        return handle;
    }
    if door_ask(op, handle, file, offset, length, piece, 0u, 0u) {
        return handle;
    }
    door_release(handle, 0u);
    return DOOR_RING_FULL;
}

// Requests `length` bytes of a file from byte `offset` on.
fn door_read(file: u32, offset: vec2<u32>, length: u32) -> u32 {
    return door_begin(DOOR_READ, file, offset, vec2(length, 0u), 0u);
}

// Requests `length` bytes of a file from byte `offset` on, in pieces of `piece` bytes, a few at a time.
fn door_stream(file: u32, offset: vec2<u32>, length: vec2<u32>, piece: u32) -> u32 {
    return door_begin(DOOR_STREAM, file, offset, length, piece);
}

// Requests room for `length` bytes to write to a file from byte `offset` on. When the handle is ready, the kernel fills
// the words from door_content on, by atomicStore, and calls door_commit behind a barrier.
fn door_write(file: u32, offset: vec2<u32>, length: u32) -> u32 {
    return door_begin(DOOR_WRITE, file, offset, vec2(length, 0u), 0u);
}

// Opening a file by its path, relative to one of the folders that the host allowed, takes three steps: door_claim takes
// a handle, door_path writes the path's bytes, four in a word, and door_open sends the request. When the handle is
// ready, door_file is the file's number and door_total its length. The result of all calls of door_path, joined by |,
// goes to door_open.
fn door_path(handle: u32, word: u32, bytes: u32) -> u32 {
    let paths = DOOR_HEADER + (door_ring() + DOOR_HANDLES) * DOOR_ENTRY;
    return door_put(paths + (handle & (DOOR_HANDLES - 1u)) * DOOR_PATH + min(word, DOOR_PATH - 1u), bytes);
}

// Opens the file whose path, of `length` bytes, has been written for `handle`. If the ring is full, frees the handle
// and returns false.
fn door_open(handle: u32, length: u32, mode: u32, results: u32) -> bool {
    if door_ask(DOOR_OPEN, handle, mode, vec2(0u), vec2(0u), 0u, length, results) {
        return true;
    }
    door_release(handle, 0u);
    return false;
}

// The state of a handle.
fn door_status(handle: u32) -> u32 {
    let status = atomicLoad(&door_control[door_entry(handle) + DOOR_H_STATUS]);
    if status == DOOR_SHUT {
        return DOOR_ERROR;
    }
    return select(DOOR_LOADING, status & 7u, (status >> 3u) == (handle >> 10u));
}

fn door_word(handle: u32, word: u32) -> u32 {
    return atomicLoad(&door_control[door_entry(handle) + word]);
}

fn door_long(handle: u32, word: u32) -> vec2<u32> {
    return vec2(door_word(handle, word), door_word(handle, word + 1u));
}

// Why the request failed, if its state is DOOR_ERROR.
fn door_error(handle: u32) -> u32 {
    return select(door_word(handle, DOOR_H_ERROR), DOOR_FAILED, door_word(handle, DOOR_H_STATUS) == DOOR_SHUT);
}

// The number of bytes loaded, or of the room to write to.
fn door_bytes(handle: u32) -> vec2<u32> {
    return door_long(handle, DOOR_H_BYTES);
}

// Length of the file or of the stream in bytes.
fn door_total(handle: u32) -> vec2<u32> {
    return door_long(handle, DOOR_H_TOTAL);
}

// The number of the opened file.
fn door_file(handle: u32) -> u32 {
    return door_word(handle, DOOR_H_FILE);
}

// The first word of a ready handle's contents in door_host: a multiple of 64.
fn door_content(handle: u32) -> u32 {
    let place = door_long(handle, DOOR_H_PLACE);
    return (place.x >> 2u) | (place.y << 30u);
}

// Byte `i` of the contents from word `content` on.
fn door_byte(content: u32, i: u32) -> u32 {
    return (atomicLoad(&door_host[content + i / 4u]) >> (i % 4u * 8u)) & 255u;
}

// The number of pieces of a stream loaded so far.
fn door_pieces(handle: u32) -> u32 {
    return door_word(handle, DOOR_H_PIECES);
}

// The first word of piece `number` of a stream, which has been loaded and not yet released.
fn door_piece(handle: u32, number: u32) -> u32 {
    let slot = number % max(door_word(handle, DOOR_H_WINDOW), 1u);
    return door_content(handle) + slot * (door_word(handle, DOOR_H_PIECE) / 4u);
}

// Releases the oldest piece of a stream, to make room for another. False if the ring is full: then try again later.
fn door_next(handle: u32) -> bool {
    return door_ask(DOOR_NEXT, handle, 0u, vec2(0u), vec2(0u), 0u, 0u, 0u);
}

// Writes the bytes that the kernel has put into door_host to the file. The state is DOOR_LOADING until they are
// written, then DOOR_READY without contents. False if the ring is full: then try again later.
fn door_commit(handle: u32) -> bool {
    let status = door_entry(handle) + DOOR_H_STATUS;
    let generation = (handle >> 10u) << 3u;
    // The host changes the state only after it gets the request.
    let before = door_put(status, generation | DOOR_LOADING);
    if door_ask(DOOR_COMMIT, handle, 0u, vec2(0u), vec2(0u), 0u, 0u, before) {
        return true;
    }
    atomicStore(&door_control[status], generation | DOOR_READY);
    return false;
}

// Gives back a handle in any state, with its contents. This always succeeds.
fn door_close(handle: u32) {
    let before = door_put(door_entry(handle) + DOOR_H_CLOSED, handle >> 10u);
    door_release(handle, before);
}
