//! Looking for a device in a process of its own.
//!
//! A driver that is set up in a process changes its memory in hundreds of places, each of which holds up all threads that are
//! being given pages: restoring a file in memory takes a twelfth longer on a GPU's host. A job that the CPU does sooner than a
//! device could be opened has to know of the device only that it is there.

use std::cell::RefCell;
use std::io::Read;
use std::process::{Child, Command, Stdio};

use crate::device::Device;

/// Whether a device is there, as far as another process has said.
#[derive(Default)]
pub struct DeviceProbe(RefCell<State>);

#[derive(Default)]
enum State {
    #[default]
    Unasked,
    Asked(Child),
    Known(bool),
}

impl DeviceProbe {
    /// Asks, if nobody has, and if it is not known from another run of the program.
    pub fn ask(&self, device: Device) {
        let mut state = self.0.borrow_mut();
        if matches!(*state, State::Unasked) {
            *state = if device.was_seen() {
                State::Known(true)
            } else {
                spawn(device).map_or(State::Known(false), State::Asked)
            };
        }
    }

    /// Waits for the answer. Only a yes means anything: a no may have other reasons.
    pub fn is_there(&self) -> bool {
        let mut state = self.0.borrow_mut();
        if let State::Asked(process) = &mut *state {
            // It says something only of a device that it has found. To end takes it as long again: nobody waits for that.
            let output = process.stdout.take();
            let first = output.map(|mut output| output.read(&mut [0]));
            *state = State::Known(matches!(first, Some(Ok(1))));
        }
        matches!(*state, State::Known(true))
    }
}

/// `pz devices DEVICE`, which prints nothing if there is none.
fn spawn(device: Device) -> Option<Child> {
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.arg("devices").arg(device.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().ok()
}
