// The windows of a module that runs on its own.

struct Args {
    lanes: u32,
    input_len: u32,
    output_len: u32,
    state_len: u32,
    pixels_len: u32,
    width: u32,
    time: u32,
    fuel: u32,
}

var<immediate> args: Args;

@group(0) @binding(0) var<storage, read> arguments: array<u32>;
@group(0) @binding(1) var<storage, read> input: array<u32>;
@group(0) @binding(2) var<storage, read_write> output: array<atomic<u32>>;
@group(0) @binding(3) var<storage, read_write> state: array<atomic<u32>>;
@group(0) @binding(4) var<storage, read_write> pixels: array<u32>;
@group(0) @binding(5) var<storage, read_write> results: array<u32>;

// A layout lacks the buffers that a kernel does not name, so this names them. No run has that many lanes.
fn name_buffers() {
    if args.lanes == 0xffffffffu {
        let windows = input[0] + atomicLoad(&output[0]) + atomicLoad(&state[0]);
        results[0] = arguments[0] + windows + pixels[0];
    }
}

fn in8(at: u32) -> u32 {
    if !is_within(at, args.input_len) {
        return 0u;
    }
    return (input[at >> 2u] >> (8u * (at & 3u))) & 255u;
}

fn in32(at: u32) -> u32 {
    if !is_within(at, args.input_len >> 2u) {
        return 0u;
    }
    return input[at];
}

// Other lanes may write the other bytes of the word at the same time.
fn out8(at: u32, value: u32) {
    if is_within(at, args.output_len) {
        let shift = 8u * (at & 3u);
        atomicAnd(&output[at >> 2u], ~(255u << shift));
        atomicOr(&output[at >> 2u], (value & 255u) << shift);
    }
}

fn out32(at: u32, value: u32) {
    if is_within(at, args.output_len >> 2u) {
        atomicStore(&output[at], value);
    }
}

fn state_add(at: u32, value: u32) -> u32 {
    if !is_within(at, args.state_len) {
        return 0u;
    }
    return atomicAdd(&state[at], value);
}

fn read_state(at: u32) -> u32 {
    if !is_within(at, args.state_len) {
        return 0u;
    }
    return atomicLoad(&state[at]);
}

fn write_state(at: u32, value: u32) {
    if is_within(at, args.state_len) {
        atomicStore(&state[at], value);
    }
}

fn set_pixel(x: u32, y: u32, colour: u32) {
    if !is_within(x, args.width) {
        return;
    }
    if is_within(y, args.pixels_len / args.width) {
        pixels[y * args.width + x] = colour;
    }
}

fn thread_id() -> u32 {
    return number;
}

fn get_time() -> u32 {
    return args.time;
}
