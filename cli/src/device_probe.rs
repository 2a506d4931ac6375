//! Looks for a device in a separate process.
//!
//! Loading a driver changes the memory map of the process in hundreds of places, and each change stalls every
//! thread that is touching new pages: in-memory decompression takes a twelfth longer. If the CPU will finish before
//! a device could be opened, the program needs to know only that the device exists.

use std::cell::RefCell;
use std::io::Read;
use std::process::{Child, Command, Stdio};

use crate::device::Device;

/// Finds out through another process whether a device exists.
#[derive(Default)]
pub struct DeviceProbe(RefCell<ProbeState>);

#[derive(Default)]
enum ProbeState {
    #[default]
    Unasked,
    Asked(Child),
    Known(bool),
}

impl DeviceProbe {
    /// Whether an earlier run has found the device.
    pub fn was_seen(&self, device: Device) -> bool {
        let mut state = self.0.borrow_mut();
        if matches!(*state, ProbeState::Unasked) && device.was_seen() {
            *state = ProbeState::Known(true);
        }
        matches!(*state, ProbeState::Known(true))
    }

    /// Starts the search, unless it has started or an earlier run has found the device.
    pub fn ask(&self, device: Device) {
        if !self.was_seen(device) && matches!(*self.0.borrow(), ProbeState::Unasked) {
            let asked = spawn(device).map_or(ProbeState::Known(false), ProbeState::Asked);
            self.0.replace(asked);
        }
    }

    /// Waits for the answer. Only `true` is certain: the search may also fail for reasons other than a missing device.
    pub fn is_there(&self) -> bool {
        let mut state = self.0.borrow_mut();
        if let ProbeState::Asked(process) = &mut *state {
            // It prints something only if it found the device. Do not wait for it to exit: that takes as long
            // again.
            let output = process.stdout.take();
            let first = output.map(|mut output| output.read(&mut [0]));
            *state = ProbeState::Known(matches!(first, Some(Ok(1))));
        }
        matches!(*state, ProbeState::Known(true))
    }
}

/// Runs `pz devices DEVICE`, which prints nothing on standard output if the device is missing.
fn spawn(device: Device) -> Option<Child> {
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.arg("devices").arg(device.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().ok()
}
