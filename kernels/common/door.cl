// The door, through which a running kernel requests parts of files. A host thread reads the requests and answers them.
//
// This file is both OpenCL C and CUDA C++, and needs no other file, so callers can put it before their own kernels. The
// layout is that of src/door/layout.rs, which documents the host's side.
//
// No function waits. A kernel sends a request, goes on with other work, and polls: door_status tells whether the
// contents have arrived. A kernel that loops over door_status needs its own limit, because the host may be gone. Any
// work item that knows a handle may use it, but only one may close it.
//
//     Door door = door_of(control, counters, host, device);   // the kernel's first four parameters
//     uint handle = door_read(door, file, offset, bytes);
//     if (door_is_handle(handle)) {
//         for (uint i = 0; i < LOOKS && door_status(door, handle) == DOOR_LOADING; i++) door_pause();
//         if (door_status(door, handle) == DOOR_READY) use(door_content(door, handle), door_bytes(door, handle));
//         door_close(door, handle);
//     }

#ifdef __OPENCL_VERSION__
#define DOOR_FN static inline
#define DOOR_GLOBAL __global
#define DOOR_LONG ulong
#else
#define DOOR_FN static __device__ __forceinline__
#define DOOR_GLOBAL
#define DOOR_LONG unsigned long long
#endif
#define DOOR_WORDS volatile DOOR_GLOBAL unsigned int *
#define DOOR_BYTES DOOR_GLOBAL unsigned char *

// Words of the control memory: the header, then the ring, the handles and the paths.
#define DOOR_VERSION 0u
#define DOOR_RING 1u
#define DOOR_CONSUMED 16u
#define DOOR_HEADER 32u
#define DOOR_ENTRY 16u
#define DOOR_HANDLES 1024u
#define DOOR_PATH 64u

// Words of a request.
#define DOOR_R_OP 0u
#define DOOR_R_HANDLE 1u
#define DOOR_R_FILE 2u
#define DOOR_R_PIECE 3u
#define DOOR_R_OFFSET 4u
#define DOOR_R_LENGTH 6u
#define DOOR_R_PATH 8u
#define DOOR_R_TURN 15u

// Words of a handle.
#define DOOR_H_STATUS 0u
#define DOOR_H_ERROR 1u
#define DOOR_H_PLACE 2u
#define DOOR_H_BYTES 4u
#define DOOR_H_TOTAL 6u
#define DOOR_H_POOL 8u
#define DOOR_H_FILE 9u
#define DOOR_H_PIECE 10u
#define DOOR_H_WINDOW 11u
#define DOOR_H_PIECES 12u
#define DOOR_H_CLOSED 15u

// Words of the counters: requests made; requests that the host had taken when last checked; a bit for each handle in
// use; the number of uses of each handle.
#define DOOR_C_REQUESTS 0u
#define DOOR_C_TAKEN 1u
#define DOOR_C_USED 32u
#define DOOR_C_GENERATION 64u

// The operation of a request.
#define DOOR_OPEN 1u
#define DOOR_READ 2u
#define DOOR_STREAM 3u
#define DOOR_NEXT 4u
#define DOOR_WRITE 5u
#define DOOR_COMMIT 6u
#define DOOR_NOTHING 7u

// How to open a file: its own bytes; the contents of an archive; for writing, created if it does not exist.
#define DOOR_PLAIN 0u
#define DOOR_CONTENTS 1u
#define DOOR_WRITABLE 2u

// The state of a handle.
#define DOOR_UNUSED 0u
#define DOOR_LOADING 1u
#define DOOR_READY 2u
#define DOOR_ERROR 3u
#define DOOR_CLOSED 4u
// The status of every handle once the host has shut the door.
#define DOOR_SHUT 0xffffffffu

// Why a request failed: no error; no room, so try again later; not permitted; no such file; outside the contents; the
// file has changed since it was opened; any other reason.
#define DOOR_NO_ERROR 0u
#define DOOR_FULL 1u
#define DOOR_REFUSED 2u
#define DOOR_MISSING 3u
#define DOOR_RANGE 4u
#define DOOR_CHANGED 5u
#define DOOR_FAILED 6u

// Returned in place of a handle: the table of handles or the ring is full.
#define DOOR_TABLE_FULL 0xffffffffu
#define DOOR_RING_FULL 0xfffffffeu

// How often a work item competes with others before it reports a full table or ring.
#define DOOR_TRIES 4096u

// ---- Differences between the languages ------------------------------------------------------------------------------
//
// door_see and door_tell synchronise with the host: once one side sees a word that the other told, it also sees all
// that the other wrote before. door_exchange, door_set, door_clear and door_count reach only other work items.

#ifdef __OPENCL_VERSION__

// OpenCL 1.2 has no atomics that reach the host. On devices that support a door, host and kernel share the processor's
// coherent caches, so atomic operations with fences are enough.
DOOR_FN uint door_see(DOOR_WORDS word) {
    uint value = atomic_or(word, 0u);
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    return value;
}

DOOR_FN void door_tell(DOOR_WORDS word, uint value) {
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    atomic_xchg(word, value);
}

DOOR_FN uint door_exchange(DOOR_WORDS word, uint old, uint value) { return atomic_cmpxchg(word, old, value); }
DOOR_FN uint door_set(DOOR_WORDS word, uint bits) { return atomic_or(word, bits); }
DOOR_FN uint door_clear(DOOR_WORDS word, uint bits) { return atomic_and(word, ~bits); }
DOOR_FN uint door_count(DOOR_WORDS word) { return atomic_inc(word); }
DOOR_FN void door_pause(void) {}
// The time in nanoseconds, and in clock ticks; 0 where there is no clock.
DOOR_FN DOOR_LONG door_time(void) { return 0; }
DOOR_FN DOOR_LONG door_ticks(void) { return 0; }
// 16 bytes of contents. The memory may have held other contents before, so the load must bypass caches.
DOOR_FN uint4 door_load(const DOOR_GLOBAL uint4 *from) { return *(volatile const DOOR_GLOBAL uint4 *)from; }

#else

DOOR_FN unsigned int door_see(DOOR_WORDS word) {
    unsigned int value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

DOOR_FN void door_tell(DOOR_WORDS word, unsigned int value) {
    asm volatile("fence.acq_rel.sys; st.relaxed.sys.global.u32 [%0], %1;" :: "l"(word), "r"(value) : "memory");
}

DOOR_FN unsigned int door_exchange(DOOR_WORDS word, unsigned int old, unsigned int value) {
    return atomicCAS((unsigned int *)word, old, value);
}
DOOR_FN unsigned int door_set(DOOR_WORDS word, unsigned int bits) { return atomicOr((unsigned int *)word, bits); }
DOOR_FN unsigned int door_clear(DOOR_WORDS word, unsigned int bits) { return atomicAnd((unsigned int *)word, ~bits); }
DOOR_FN unsigned int door_count(DOOR_WORDS word) { return atomicAdd((unsigned int *)word, 1u); }
DOOR_FN void door_pause(void) { __nanosleep(100); }
DOOR_FN DOOR_LONG door_time(void) {
    DOOR_LONG time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}
DOOR_FN DOOR_LONG door_ticks(void) { return (DOOR_LONG)clock64(); }
DOOR_FN uint4 door_load(const uint4 *from) {
    uint4 v;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from) : "memory");
    return v;
}

#endif

// ---- The kernel's side of the door ----------------------------------------------------------------------------------

typedef struct {
    DOOR_WORDS control;   // the ring, the handles and the paths, in host memory
    DOOR_WORDS counters;  // shared by work items
    DOOR_BYTES host;      // contents in host memory
    DOOR_BYTES device;    // contents in device memory, if any
    unsigned int ring;    // requests that the ring holds, a power of two
} Door;

DOOR_FN Door door_of(DOOR_BYTES control, DOOR_BYTES counters, DOOR_BYTES host, DOOR_BYTES device) {
    Door door;
    door.control = (DOOR_WORDS)control;
    door.counters = (DOOR_WORDS)counters;
    door.host = host;
    door.device = device;
    door.ring = door.control[DOOR_RING];
    return door;
}

// Whether the value is a handle. If not, it says what is full.
DOOR_FN bool door_is_handle(unsigned int handle) { return handle < DOOR_RING_FULL; }

DOOR_FN DOOR_WORDS door_entry(Door door, unsigned int handle) {
    return door.control + DOOR_HEADER + (door.ring + (handle & (DOOR_HANDLES - 1u))) * DOOR_ENTRY;
}

// The handle for the next use of this number, which the caller has just taken.
DOOR_FN unsigned int door_use(Door door, unsigned int number) {
    unsigned int generation = 0u;
    while (generation == 0u || generation == 0x3fffffu) {
        generation = (door_count(door.counters + DOOR_C_GENERATION + number) + 1u) & 0x3fffffu;
    }
    return generation << 10 | number;
}

// Takes a free handle, `first` if possible. Its lowest 10 bits are its number, and the upper bits count its uses.
DOOR_FN unsigned int door_claim(Door door, unsigned int first) {
    unsigned int number = first & (DOOR_HANDLES - 1u);
    unsigned int bit = 1u << (number & 31u);
    unsigned int at = number / 32u;
    if ((door_set(door.counters + DOOR_C_USED + at, bit) & bit) == 0u) return door_use(door, number);
    unsigned int full = 0u;
    for (unsigned int i = 0u; i < DOOR_TRIES && full < DOOR_HANDLES / 32u; i++) {
        unsigned int used = door.counters[DOOR_C_USED + at];
        bit = ~used & (used + 1u);
        if (bit == 0u) {
            at = (at + 1u) & (DOOR_HANDLES / 32u - 1u);
            full++;
            continue;
        }
        if ((door_set(door.counters + DOOR_C_USED + at, bit) & bit) != 0u) continue;
        number = at * 32u;
        for (unsigned int rest = bit; rest > 1u; rest >>= 1) number++;
        return door_use(door, number);
    }
    return DOOR_TABLE_FULL;
}

DOOR_FN void door_release(Door door, unsigned int handle) {
    unsigned int number = handle & (DOOR_HANDLES - 1u);
    door_clear(door.counters + DOOR_C_USED + number / 32u, 1u << (number & 31u));
}

// Puts a request into the ring; false if the ring is full.
DOOR_FN bool door_ask(Door door, unsigned int op, unsigned int handle, unsigned int file, DOOR_LONG offset,
    DOOR_LONG length, unsigned int piece, unsigned int path) {
    unsigned int number = 0u;
    bool has_number = false;
    for (unsigned int i = 0u; i < DOOR_TRIES && !has_number; i++) {
        unsigned int taken = door.counters[DOOR_C_TAKEN];
        number = door.counters[DOOR_C_REQUESTS];
        if (number - taken >= door.ring) {
            taken = door_see(door.control + DOOR_CONSUMED);
            door.counters[DOOR_C_TAKEN] = taken;
            number = door.counters[DOOR_C_REQUESTS];
            // `taken` may be newer than `number` if another work item was faster.
            if (number - taken >= door.ring && (int)(number - taken) > 0) return false;
            if (number - taken >= door.ring) continue;
        }
        has_number = door_exchange(door.counters + DOOR_C_REQUESTS, number, number + 1u) == number;
    }
    if (!has_number) return false;
    DOOR_WORDS entry = door.control + DOOR_HEADER + (number & (door.ring - 1u)) * DOOR_ENTRY;
    entry[DOOR_R_OP] = op;
    entry[DOOR_R_HANDLE] = handle;
    entry[DOOR_R_FILE] = file;
    entry[DOOR_R_PIECE] = piece;
    entry[DOOR_R_OFFSET] = (unsigned int)offset;
    entry[DOOR_R_OFFSET + 1u] = (unsigned int)((DOOR_LONG)offset >> 32);
    entry[DOOR_R_LENGTH] = (unsigned int)length;
    entry[DOOR_R_LENGTH + 1u] = (unsigned int)((DOOR_LONG)length >> 32);
    entry[DOOR_R_PATH] = path;
    door_tell(entry + DOOR_R_TURN, number / door.ring + 1u);
    return true;
}

// Takes a handle and sends a request for it.
DOOR_FN unsigned int door_begin(Door door, unsigned int op, unsigned int file, DOOR_LONG offset, DOOR_LONG length,
    unsigned int piece) {
    unsigned int handle = door_claim(door, file + (unsigned int)offset / 4096u);
    if (handle == DOOR_TABLE_FULL) return handle;
    if (door_ask(door, op, handle, file, offset, length, piece, 0u)) return handle;
    door_release(door, handle);
    return DOOR_RING_FULL;
}

// Requests `length` bytes of a file from byte `offset` on.
DOOR_FN unsigned int door_read(Door door, unsigned int file, DOOR_LONG offset, unsigned int length) {
    return door_begin(door, DOOR_READ, file, offset, length, 0u);
}

// Requests `length` bytes of a file from byte `offset` on, in pieces of `piece` bytes, a few at a time.
DOOR_FN unsigned int door_stream(Door door, unsigned int file, DOOR_LONG offset, DOOR_LONG length, unsigned int piece) {
    return door_begin(door, DOOR_STREAM, file, offset, length, piece);
}

// Requests room for `length` bytes to write to a file from byte `offset` on. When the handle is ready, the kernel fills
// door_content and calls door_commit.
DOOR_FN unsigned int door_write(Door door, unsigned int file, DOOR_LONG offset, unsigned int length) {
    return door_begin(door, DOOR_WRITE, file, offset, length, 0u);
}

// Opens a file by its path, of `length` bytes, relative to one of the folders that the host allowed. When the handle is
// ready, door_file is the file's number and door_total its length.
DOOR_FN unsigned int door_open(Door door, const DOOR_GLOBAL unsigned char *path, unsigned int length, unsigned int mode) {
    unsigned int handle = door_claim(door, length);
    if (handle == DOOR_TABLE_FULL) return handle;
    unsigned int number = handle & (DOOR_HANDLES - 1u);
    DOOR_WORDS words = door.control + DOOR_HEADER + (door.ring + DOOR_HANDLES) * DOOR_ENTRY + number * DOOR_PATH;
    for (unsigned int i = 0u; i < DOOR_PATH && i * 4u < length; i++) {
        unsigned int word = 0u;
        for (unsigned int k = 0u; k < 4u && i * 4u + k < length; k++) word |= (unsigned int)path[i * 4u + k] << 8u * k;
        words[i] = word;
    }
    if (door_ask(door, DOOR_OPEN, handle, mode, 0, 0, 0u, length)) return handle;
    door_release(door, handle);
    return DOOR_RING_FULL;
}

// The state of a handle. All that the host wrote before it set the state is visible afterwards.
DOOR_FN unsigned int door_status(Door door, unsigned int handle) {
    unsigned int status = door_see(door_entry(door, handle) + DOOR_H_STATUS);
    if (status == DOOR_SHUT) return DOOR_ERROR;
    return status >> 3 == handle >> 10 ? status & 7u : DOOR_LOADING;
}

DOOR_FN unsigned int door_word(Door door, unsigned int handle, unsigned int word) { return door_entry(door, handle)[word]; }

DOOR_FN DOOR_LONG door_long(Door door, unsigned int handle, unsigned int word) {
    return (DOOR_LONG)door_word(door, handle, word + 1u) << 32 | door_word(door, handle, word);
}

// Why the request failed, if its state is DOOR_ERROR.
DOOR_FN unsigned int door_error(Door door, unsigned int handle) {
    unsigned int status = door_see(door_entry(door, handle) + DOOR_H_STATUS);
    return status == DOOR_SHUT ? DOOR_FAILED : door_word(door, handle, DOOR_H_ERROR);
}

// The number of bytes loaded, or of the room to write to.
DOOR_FN DOOR_LONG door_bytes(Door door, unsigned int handle) { return door_long(door, handle, DOOR_H_BYTES); }
// Length of the file or of the stream in bytes.
DOOR_FN DOOR_LONG door_total(Door door, unsigned int handle) { return door_long(door, handle, DOOR_H_TOTAL); }
// The number of the opened file.
DOOR_FN unsigned int door_file(Door door, unsigned int handle) { return door_word(door, handle, DOOR_H_FILE); }

// The contents of a ready handle. They begin at a multiple of 256 bytes.
DOOR_FN DOOR_BYTES door_content(Door door, unsigned int handle) {
    DOOR_BYTES pool = door_word(door, handle, DOOR_H_POOL) != 0u ? door.device : door.host;
    return pool + door_long(door, handle, DOOR_H_PLACE);
}

// The number of pieces of a stream loaded so far.
DOOR_FN unsigned int door_pieces(Door door, unsigned int handle) {
    return door_see(door_entry(door, handle) + DOOR_H_PIECES);
}

// Piece `number` of a stream, which has been loaded and not yet released. All but the last are as long as
// door_piece_bytes.
DOOR_FN DOOR_BYTES door_piece(Door door, unsigned int handle, unsigned int number) {
    unsigned int slot = number % door_word(door, handle, DOOR_H_WINDOW);
    return door_content(door, handle) + (DOOR_LONG)slot * door_word(door, handle, DOOR_H_PIECE);
}

// Releases the oldest piece of a stream, to make room for another. False if the ring is full: then try again later.
DOOR_FN bool door_next(Door door, unsigned int handle) {
    return door_ask(door, DOOR_NEXT, handle, 0u, 0, 0, 0u, 0u);
}

// Writes the bytes that the kernel has put into door_content to the file. The state is DOOR_LOADING until they are
// written, then DOOR_READY without contents. False if the ring is full: then try again later.
DOOR_FN bool door_commit(Door door, unsigned int handle) {
    DOOR_WORDS status = door_entry(door, handle) + DOOR_H_STATUS;
    unsigned int generation = handle >> 10;
    // The host changes the state only after it gets the request.
    *status = generation << 3 | DOOR_LOADING;
    if (door_ask(door, DOOR_COMMIT, handle, 0u, 0, 0, 0u, 0u)) return true;
    *status = generation << 3 | DOOR_READY;
    return false;
}

// Gives back a handle in any state, with its contents. This always succeeds.
DOOR_FN void door_close(Door door, unsigned int handle) {
    door_tell(door_entry(door, handle) + DOOR_H_CLOSED, handle >> 10);
    door_release(door, handle);
}
