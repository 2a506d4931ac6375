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
// @pz_import door_wait

// A file: its number at the door, its length, and the number of its first unit.
struct SearchFile { number: u32, len_low: u32, len_high: u32, first_unit: u32 }

@group(0) @binding(3) var<storage, read> files: array<SearchFile>;
@group(0) @binding(4) var<storage, read> pattern: array<u32>;
@group(0) @binding(5) var<storage, read_write> found: array<atomic<u32>>;

struct Search {
    count: u32,
    first: u32,
    end: u32,
    unit_bytes: u32,
    pattern_len: u32,
    max_found: u32,
    looks: u32,
}
var<immediate> args: Search;

// Words of the results before the matches.
const FOUND_COUNT = 0u;
const FOUND_UNITS = 1u;
const FOUND_FAILED = 2u;
const FOUND_ERROR = 3u;
const FOUND_ERROR_FILE = 4u;
const FOUND_PLACES = 16u;

var<workgroup> shared_handle: u32;
var<workgroup> shared_status: u32;

// The file that contains `unit`: the last one whose first unit is not after it. Empty files have no units.
fn search_file_of(unit: u32) -> u32 {
    var low = 0u;
    var high = args.count;
    while high - low > 1u {
        let middle = (low + high) / 2u;
        if files[middle].first_unit <= unit {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

// Where `unit` begins in its file. A file has fewer than 2^32 units, whose length is a power of two.
fn search_offset(file: u32, unit: u32) -> vec2<u32> {
    let number = unit - files[file].first_unit;
    let shift = firstTrailingBit(args.unit_bytes);
    return vec2(number << shift, number >> (32u - shift));
}

// Requests a unit, and enough bytes behind it to complete a match at its end.
fn search_ask(unit: u32) -> u32 {
    let at = search_file_of(unit);
    let file = files[at];
    let offset = search_offset(at, unit);
    let low = file.len_low - offset.x;
    let high = file.len_high - offset.y - select(0u, 1u, file.len_low < offset.x);
    let most = args.unit_bytes + args.pattern_len - 1u;
    return door_read(file.number, offset, select(min(low, most), most, high != 0u));
}

fn search_pattern(i: u32) -> u32 {
    return (pattern[i / 4u] >> (i % 4u * 8u)) & 255u;
}

// Whether the pattern is at byte `at` of the contents.
fn search_matches(content: u32, at: u32) -> bool {
    for (var i = 0u; i < args.pattern_len; i++) {
        if door_byte(content, at + i) != search_pattern(i) {
            return false;
        }
    }
    return true;
}

fn search_note(file: u32, offset: vec2<u32>, at: u32) {
    let index = atomicAdd(&found[FOUND_COUNT], 1u);
    if index >= args.max_found {
        return;
    }
    let low = offset.x + at;
    atomicStore(&found[FOUND_PLACES + 4u * index], file);
    atomicStore(&found[FOUND_PLACES + 4u * index + 1u], low);
    atomicStore(&found[FOUND_PLACES + 4u * index + 2u], offset.y + select(0u, 1u, low < at));
}

// Searches the units of `count` files from `first` to before `end`. A workgroup polls at most `looks` times for each
// unit.
// @pz_entry
fn search(local_index: u32, workgroup_index: u32) {
    let groups = workgroups.x * workgroups.y;
    let first_byte = search_pattern(0u);
    // Only the first work item makes requests.
    var next = DOOR_RING_FULL;
    for (var unit = args.first + workgroup_index; unit < args.end; unit += groups) {
        if local_index == 0u {
            var handle = next;
            var status = DOOR_LOADING;
            var has_next = unit + groups >= args.end;
            for (var i = 0u; i < args.looks && status == DOOR_LOADING; i++) {
                if !door_is_handle(handle) {
                    handle = search_ask(unit);
                } else if !has_next {
                    next = search_ask(unit + groups);
                    has_next = true;
                }
                if door_is_handle(handle) {
                    status = door_status(handle);
                }
                if status == DOOR_ERROR && door_error(handle) == DOOR_FULL {
                    // All workgroups may be waiting for room, so each first closes the handle of its next unit.
                    if door_is_handle(next) {
                        door_close(next);
                    }
                    next = DOOR_RING_FULL;
                    has_next = true;
                    door_close(handle);
                    handle = DOOR_RING_FULL;
                    status = DOOR_LOADING;
                }
                if status == DOOR_LOADING {
                    door_pause();
                }
            }
            shared_handle = handle;
            shared_status = status;
            if status == DOOR_READY {
                atomicAdd(&found[FOUND_UNITS], 1u);
            } else if atomicAdd(&found[FOUND_FAILED], 1u) == 0u {
                var error = DOOR_FULL;
                if status == DOOR_ERROR {
                    error = door_error(handle);
                }
                atomicStore(&found[FOUND_ERROR], error);
                atomicStore(&found[FOUND_ERROR_FILE], search_file_of(unit));
            }
        }
        door_barrier();
        let handle = workgroupUniformLoad(&shared_handle);
        if workgroupUniformLoad(&shared_status) == DOOR_READY {
            let file = search_file_of(unit);
            let offset = search_offset(file, unit);
            let bytes = door_bytes(handle).x;
            let content = door_content(handle);
            // A match that begins behind the unit belongs to the next unit.
            var starts = 0u;
            if bytes >= args.pattern_len {
                starts = min(bytes - args.pattern_len + 1u, args.unit_bytes);
            }
            for (var i = local_index; 4u * i < starts; i += THREADS) {
                let word = atomicLoad(&door_host[content + i]);
                for (var k = 0u; k < 4u && 4u * i + k < starts; k++) {
                    if ((word >> (8u * k)) & 255u) != first_byte {
                        continue;
                    }
                    let at = 4u * i + k;
                    if search_matches(content, at) {
                        search_note(file, offset, at);
                    }
                }
            }
        }
        door_barrier();
        if local_index == 0u && door_is_handle(handle) {
            door_close(handle);
        }
    }
}
