// Waits for a handle of a door.
//
// @pz_import door

// Polls until the handle is no longer loading, at most `looks` times.
inline uint door_wait(Door door, uint handle, uint looks) {
    uint status = DOOR_LOADING;
    for (uint i = 0u; i < looks && status == DOOR_LOADING; i++) {
        status = door_status(door, handle);
        if (status == DOOR_LOADING) door_pause();
    }
    return status;
}
