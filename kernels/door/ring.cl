// Rings the bell: sends an empty request, so that the host wakes up.
//
// @pz_cost {
//   threads: 32
//   passes: 1
//   buffers: door_counters=4352
//   local_mem: 0
//   note: one work item makes all requests
// }
// @pz_import door

__kernel void ring(DOOR_BYTES control, DOOR_BYTES counters, DOOR_BYTES host, DOOR_BYTES device) {
    if (get_global_id(0) != 0) return;
    // If the ring is full, the host is awake anyway.
    door_ask(door_of(control, counters, host, device), DOOR_NOTHING, 0u, 0u, 0, 0, 0u, 0u);
}
