// The windows of a module that filters: a unit of a block's contents before, and the same unit after. `module_run` has
// the windows of a module that runs on its own.
// @pz_import filter

struct Args {
    blocks: u32,
    slot: u32,
    // Work items of a block.
    lanes: u32,
    stage: u32,
    number: u32,
    fuel: u32,
    lane_log: u32,
}

var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> jobs: array<u32>;
@group(0) @binding(1) var<storage, read> before: array<u32>;
@group(0) @binding(2) var<storage, read_write> after: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read_write> results: array<atomic<u32>>;

// The unit's first word, and its length in bytes.
var<private> unit_start: u32;
var<private> unit_len: u32;
// The arguments, each in two words.
var<private> arguments: array<u32, 16>;

const RESULT_WORDS = 8u;

// A layout lacks the buffers that a kernel does not name, so this names them. No run has that many lanes.
fn name_buffers() {
    if args.lanes == 0xffffffffu {
        atomicStore(&results[0], before[0] + atomicLoad(&after[0]));
    }
}

// Begins a work item. Returns whether it runs a lane.
fn begin(item: u32) -> bool {
    name_buffers();
    let block = item / args.lanes;
    if block >= args.blocks {
        return false;
    }
    let word = jobs[block * JOB_WORDS + JOB_UNDO + args.stage];
    if filter_id(word) != FILTER_MODULE || ((word >> 8u) & 255u) != args.number {
        return false;
    }
    let content_len = min(jobs[block * JOB_WORDS], args.slot);
    let unit_log = clamp(jobs[block * JOB_WORDS + JOB_UNIT_LOG], 18u, 20u);
    let lane_log = min(args.lane_log, 20u);
    let per_unit = 1u << (max(unit_log, lane_log) - lane_log);
    let start = ((item % args.lanes) / per_unit) << unit_log;
    if start >= content_len {
        return false;
    }
    unit_start = block * (args.slot / 4u) + start / 4u;
    unit_len = min(content_len - start, 1u << unit_log);
    number = (item % args.lanes) % per_unit;
    let count = (unit_len + (1u << lane_log) - 1u) >> lane_log;
    if number >= count {
        return false;
    }
    arguments[0] = number;
    arguments[2] = count;
    arguments[4] = unit_len;
    arguments[6] = unit_len;
    arguments[8] = word >> 16u;
    let position = jobs[block * JOB_WORDS + JOB_POSITION];
    // A block begins at a multiple of 2^16 bytes, and a unit at a multiple of 2^18 bytes in its block.
    arguments[10] = (position << 16u) + start;
    arguments[11] = (position >> 16u) + select(0u, 1u, arguments[10] < start);
    // The last lane may stand for few bytes.
    let share = min(unit_len - (number << lane_log), 1u << lane_log);
    fuel = min(args.fuel, 65536u + 256u * share);
    return true;
}

// Ends a work item. After a trap, the block's status reports it.
fn end(item: u32) {
    if trap != 0u {
        atomicStore(&results[item / args.lanes * RESULT_WORDS], 256u + trap);
    }
}

fn in8(at: u32) -> u32 {
    if !is_within(at, unit_len) {
        return 0u;
    }
    return (before[unit_start + (at >> 2u)] >> (8u * (at & 3u))) & 255u;
}

fn in32(at: u32) -> u32 {
    if !is_within(at, unit_len >> 2u) {
        return 0u;
    }
    return before[unit_start + at];
}

// Other lanes may write the other bytes of the word at the same time.
fn out8(at: u32, value: u32) {
    if is_within(at, unit_len) {
        let shift = 8u * (at & 3u);
        let word = unit_start + (at >> 2u);
        atomicAnd(&after[word], ~(255u << shift));
        atomicOr(&after[word], (value & 255u) << shift);
    }
}

fn out32(at: u32, value: u32) {
    if is_within(at, unit_len >> 2u) {
        atomicStore(&after[unit_start + at], value);
    }
}

// Filters have neither state nor picture.

fn state_add(at: u32, value: u32) -> u32 {
    set_trap(TRAP_WINDOW);
    return 0u;
}

fn read_state(at: u32) -> u32 {
    set_trap(TRAP_WINDOW);
    return 0u;
}

fn write_state(at: u32, value: u32) {
    set_trap(TRAP_WINDOW);
}

fn set_pixel(x: u32, y: u32, colour: u32) {
    set_trap(TRAP_WINDOW);
}

fn thread_id() -> u32 {
    return number;
}

fn get_time() -> u32 {
    return 0u;
}
