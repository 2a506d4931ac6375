// Waits for a handle of a door.
//
// @pz_import door

// @pz_if LIMITED_LOOPS

// The driver ends the loops of a work item after 65,535 iterations in all, so each iteration must take some
// microseconds. A chain of divisions, without a loop, fills them.

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
    // Never true, which no compiler knows.
    if y == 0u {
        atomicOr(&door_counters[DOOR_C_TAKEN], 0u);
    }
}

// @pz_else

// Polling itself takes long enough.
fn door_pause() {}

// @pz_end

// Polls until the handle is no longer loading, at most `looks` times.
fn door_wait(handle: u32, looks: u32) -> u32 {
    var status = DOOR_LOADING;
    for (var i = 0u; i < looks && status == DOOR_LOADING; i++) {
        status = door_status(handle);
        if status == DOOR_LOADING {
            door_pause();
        }
    }
    return status;
}

// After it, the whole workgroup sees earlier writes of the host and of work items.
fn door_barrier() {
    storageBarrier();
    workgroupBarrier();
}
