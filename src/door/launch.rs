//! Runs pz's own kernels for doors; `internal` shows it to the program, which measures doors.

use std::sync::Arc;
use std::time::Duration;

use super::{Door, OwnBuffer};
use crate::gpu::device::{Api, BufferId, Device, DeviceError, Dispatch, Kind, Queue};
use crate::gpu::model::cost::CostError;
use crate::gpu::model::kernel::Kernel;

/// A kernel at a door, and its own buffers.
pub struct Launch<'d> {
    door: &'d Door,
    device: Arc<dyn Device>,
    kernel: &'static Kernel,
    /// The argument N of the kernel's cost.
    n: u64,
    own: Vec<OwnBuffer>,
}

/// The entry point to run, and its arguments.
pub struct Entry<'e> {
    /// Its name in the kernel's file.
    pub name: &'static str,
    /// Its arguments, in the order in which it declares them.
    pub args: &'e [u32],
    /// Workgroups.
    pub groups: u32,
    /// Work items per workgroup.
    pub threads: u32,
}

fn no_device() -> DeviceError {
    DeviceError::Unsupported("no device's kernels ask at this door".into())
}

fn wrong(error: CostError) -> DeviceError {
    DeviceError::Failed(error.to_string())
}

impl<'d> Launch<'d> {
    /// Prepares to run a kernel at a device's door; its cost is that for `n`.
    pub fn new(door: &'d Door, kernel: &'static Kernel, n: u64) -> Result<Self, DeviceError> {
        let device = door.device.clone().ok_or_else(no_device)?;
        Ok(Self { door, device, kernel, n, own: Vec::new() })
    }

    /// How often a work item looks at a handle before it gives up: for half a minute or longer. A look takes a
    /// microsecond on a GPU, where it goes over the bus, and some nanoseconds on a processor.
    pub fn looks(&self) -> u32 {
        if self.device.limits().kind == Kind::Software { 1 << 30 } else { 1 << 25 }
    }

    /// Allocates the kernel's buffer of this name, with `contents` at its beginning and zeros after them.
    pub fn buffer(mut self, name: &str, contents: &[u8]) -> Result<Self, DeviceError> {
        let bytes = self.kernel.cost().and_then(|cost| cost.buffer(name)?.eval(self.n));
        let bytes = bytes.map_err(wrong)?.next_multiple_of(4).max(4);
        let id = self.device.allocate(bytes)?;
        let own = OwnBuffer::new(&self.device, id);
        let mut queue = self.device.queue()?;
        queue.clear(id, 0, bytes)?;
        let mut padded = contents.to_vec();
        padded.resize(padded.len().next_multiple_of(4), 0);
        if padded.len() as u64 > bytes {
            let what = format!("{} bytes for the buffer {name}", padded.len());
            return Err(DeviceError::Unsupported(what));
        }
        queue.write(id, 0, &padded)?;
        queue.finish()?;
        drop(queue);
        self.own.push(own);
        Ok(self)
    }

    /// Runs an entry point, and calls `meanwhile` while it runs, where the device lets the host go on. Gives the kernel
    /// up after `deadline`.
    pub fn run(
        &self,
        entry: &Entry<'_>,
        deadline: Duration,
        meanwhile: impl FnOnce(),
    ) -> Result<(), DeviceError> {
        let mut queue = self.start(entry, deadline)?;
        let _listening = self.door.listen();
        meanwhile();
        queue.finish()
    }

    /// Starts an entry point, and returns the queue that it runs in.
    pub fn start(
        &self,
        entry: &Entry<'_>,
        deadline: Duration,
    ) -> Result<Box<dyn Queue + '_>, DeviceError> {
        let door = self.door.buffers().ok_or_else(no_device)?;
        let mut buffers = vec![door.control, door.counters, door.host];
        // In WGSL all outputs have one name, and there is no pool in the device's own memory.
        if self.device.limits().api != Api::WebGpu {
            buffers.push(door.device);
        }
        buffers.extend(self.own.iter().map(|own| own.id));
        let ends_long_loops = self.device.limits().ends_long_loops();
        let defines: &[_] = if ends_long_loops { &[("LIMITED_LOOPS", 1)] } else { &[] };
        let mut queue = self.device.queue()?;
        queue.set_deadline(deadline);
        queue.dispatch(&Dispatch {
            kernel: self.kernel,
            entry: entry.name,
            defines,
            buffers: &buffers,
            args: entry.args,
            groups: entry.groups,
            threads: entry.threads,
        })?;
        queue.flush()?;
        Ok(queue)
    }

    /// The first words of the buffer that was allocated as number `at`.
    pub fn words(&self, at: usize, count: usize) -> Result<Vec<u32>, DeviceError> {
        let mut words = vec![0; count];
        let id = self.own.get(at).map_or(BufferId(0), |own| own.id);
        self.device.queue()?.read(id, 0, bytemuck::cast_slice_mut(&mut words))?;
        Ok(words)
    }
}
