//! Measurements of devices, for `pz bench`. All that is timed is also checked.
//!
//! | module | |
//! |---|---|
//! | `resident` | how fast a device works on data in its own memory, stage by stage |
//! | `door` | how fast a door answers running kernels |

pub mod door;
pub mod resident;
