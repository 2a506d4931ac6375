// Pauses between two looks at a handle.
//
// @pz_import door

// @pz_if LIMITED_LOOPS

// The driver ends the loops of a work item after 65,535 turns in all, so each turn has to take time: some microseconds, in
// which a chain of divisions is computed, without a loop.

fn door_divide(v: u32, by: u32) -> u32 {
    var x = v;
    x = (x / by) ^ v;
    x = (x / by) ^ v;
    x = (x / by) ^ v;
    x = (x / by) ^ v;
    x = (x / by) ^ v;
    x = (x / by) ^ v;
    x = (x / by) ^ v;
    x = (x / by) ^ v;
    return x;
}

fn door_divide_more(v: u32, by: u32) -> u32 {
    let x = door_divide(door_divide(door_divide(door_divide(v, by), by), by), by);
    return door_divide(door_divide(door_divide(door_divide(x, by), by), by), by);
}

fn door_pause() {
    let by = atomicLoad(&door_control[DOOR_ZERO]) | 3u;
    let x = door_divide_more(door_divide_more(door_divide_more(door_divide_more(0x9e3779b9u, by), by), by), by);
    let y = door_divide_more(door_divide_more(door_divide_more(door_divide_more(x, by), by), by), by);
    // This is never so, and no compiler knows.
    if y == 0u {
        atomicOr(&door_counters[DOOR_C_TAKEN], 0u);
    }
}

// @pz_else

// A look takes long enough.
fn door_pause() {}

// @pz_end
