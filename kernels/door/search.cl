// Searches files for a byte string. The kernel stays on the device and requests one unit of the files after another
// through a door: while a workgroup searches a unit, the host fetches its next one.
//
// @pz_cost {
//   threads: N/8
//   passes: 1
//   buffers: door_counters=4352, search_files=N, search_pattern=256, search_found=N*2+64
//   local_mem: 16
//   note: N is 16 bytes for each file; there is room for two matches a file on average, and the host asks again for
//     more
// }
// @pz_import door

// A file: its number at the door, its length, and the number of its first unit.
typedef struct {
    uint number, len_low, len_high, first_unit;
} SearchFile;

// Words of the results before the matches.
#define FOUND_COUNT 0u
#define FOUND_UNITS 1u
#define FOUND_FAILED 2u
#define FOUND_ERROR 3u
#define FOUND_ERROR_FILE 4u
#define FOUND_PLACES 16u

// The file that contains `unit`: the last one whose first unit is not after it. Empty files have no units.
inline uint search_file_of(__global const SearchFile *files, uint count, uint unit) {
    uint low = 0u, high = count;
    while (high - low > 1u) {
        uint middle = (low + high) / 2u;
        if (files[middle].first_unit <= unit) low = middle;
        else high = middle;
    }
    return low;
}

// Requests a unit, and enough bytes behind it to complete a match at its end.
inline uint search_ask(Door door, __global const SearchFile *files, uint count, uint unit, uint unit_bytes, uint pattern_len) {
    SearchFile file = files[search_file_of(files, count, unit)];
    ulong len = (ulong)file.len_high << 32 | file.len_low;
    ulong offset = (ulong)(unit - file.first_unit) * unit_bytes;
    return door_read(door, file.number, offset, (uint)min(len - offset, (ulong)(unit_bytes + pattern_len - 1u)));
}

// Whether the pattern is at byte `at` of the contents.
inline bool search_matches(const volatile DOOR_GLOBAL uchar *at, __global const uchar *pattern, uint pattern_len) {
    for (uint i = 0u; i < pattern_len; i++) {
        if (at[i] != pattern[i]) return false;
    }
    return true;
}

inline void search_note(__global uint *found, uint max_found, uint file, ulong at) {
    uint index = atomic_add(found + FOUND_COUNT, 1u);
    if (index >= max_found) return;
    found[FOUND_PLACES + 4u * index] = file;
    found[FOUND_PLACES + 4u * index + 1u] = (uint)at;
    found[FOUND_PLACES + 4u * index + 2u] = (uint)(at >> 32);
}

// Searches the units of `count` files from `first` to before `end`. A workgroup polls at most `looks` times for each
// unit.
__kernel void search(DOOR_BYTES control, DOOR_BYTES counters, DOOR_BYTES host, DOOR_BYTES device,
    __global const SearchFile *files, __global const uchar *pattern, __global uint *found, uint count, uint first, uint end,
    uint unit_bytes, uint pattern_len, uint max_found, uint looks) {
    SHARED uint shared[4];
    Door door = door_of(control, counters, host, device);
    uint local_id = (uint)get_local_id(0);
    uint groups = (uint)get_num_groups(0);
    uint first_byte = pattern[0];
    // Only the first work item makes requests.
    uint next = DOOR_RING_FULL;
    for (uint unit = first + (uint)get_group_id(0); unit < end; unit += groups) {
        if (local_id == 0u) {
            uint handle = next;
            uint status = DOOR_LOADING;
            bool has_next = unit + groups >= end;
            for (uint i = 0u; i < looks && status == DOOR_LOADING; i++) {
                if (!door_is_handle(handle)) {
                    handle = search_ask(door, files, count, unit, unit_bytes, pattern_len);
                } else if (!has_next) {
                    next = search_ask(door, files, count, unit + groups, unit_bytes, pattern_len);
                    has_next = true;
                }
                if (door_is_handle(handle)) status = door_status(door, handle);
                if (status == DOOR_ERROR && door_error(door, handle) == DOOR_FULL) {
                    // All workgroups may be waiting for room, so each first closes the handle of its next unit.
                    if (door_is_handle(next)) door_close(door, next);
                    next = DOOR_RING_FULL;
                    has_next = true;
                    door_close(door, handle);
                    handle = DOOR_RING_FULL;
                    status = DOOR_LOADING;
                }
                if (status == DOOR_LOADING) door_pause();
            }
            shared[0] = handle;
            shared[1] = status;
            if (status == DOOR_READY) {
                atomic_add(found + FOUND_UNITS, 1u);
            } else if (atomic_add(found + FOUND_FAILED, 1u) == 0u) {
                found[FOUND_ERROR] = status == DOOR_ERROR ? door_error(door, handle) : DOOR_FULL;
                found[FOUND_ERROR_FILE] = search_file_of(files, count, unit);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        uint handle = shared[0];
        if (shared[1] == DOOR_READY) {
            uint file = search_file_of(files, count, unit);
            ulong offset = (ulong)(unit - files[file].first_unit) * unit_bytes;
            uint bytes = (uint)door_bytes(door, handle);
            DOOR_BYTES contents = door_content(door, handle);
            // A match that begins behind the unit belongs to the next unit.
            uint starts = bytes < pattern_len ? 0u : min(bytes - pattern_len + 1u, unit_bytes);
            for (uint i = local_id; 16u * i < starts; i += THREADS) {
                uint4 v = door_load((const DOOR_GLOBAL uint4 *)contents + i);
                uint words[4] = {v.x, v.y, v.z, v.w};
                for (uint k = 0u; k < 16u && 16u * i + k < starts; k++) {
                    if ((words[k / 4u] >> k % 4u * 8u & 255u) != first_byte) continue;
                    uint at = 16u * i + k;
                    if (search_matches(contents + at, pattern, pattern_len)) search_note(found, max_found, file, offset + at);
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        if (local_id == 0u && door_is_handle(handle)) door_close(door, handle);
    }
}
