//! Runs plans: allocates the buffers that a plan names, and gives its steps to a queue.

use super::{BufferId, Device, DeviceError, Dispatch, Queue};
use crate::gpu::model::plan::{Buffer, Plan, Step};

/// The buffers of a plan on a device, freed when dropped. A plan may run many times on them.
pub struct PlanMemory<'d> {
    device: &'d dyn Device,
    names: Vec<&'static str>,
    buffers: Vec<BufferId>,
    bytes: u64,
    /// Whether each belongs to the caller, who frees it.
    borrowed: Vec<bool>,
}

impl<'d> PlanMemory<'d> {
    /// Allocates all buffers that `plan` needs, or none.
    ///
    /// # Errors
    /// Fails if [`Device::allocate`] does.
    #[cfg(test)]
    pub fn allocate(device: &'d dyn Device, plan: &Plan) -> Result<Self, DeviceError> {
        Self::allocate_but(device, plan, &[])
    }

    /// Allocates the buffers that `plan` needs, except those in `borrowed`: these are used as they are and not freed.
    ///
    /// # Errors
    /// Fails if [`Device::allocate`] does.
    pub fn allocate_but(
        device: &'d dyn Device,
        plan: &Plan,
        borrowed: &[(&'static str, BufferId)],
    ) -> Result<Self, DeviceError> {
        let mut memory = Self {
            device,
            names: Vec::new(),
            buffers: Vec::new(),
            bytes: plan.memory(),
            borrowed: Vec::new(),
        };
        for buffer in &plan.buffers {
            let given = borrowed.iter().find(|(name, _)| *name == buffer.name);
            let id = given.map_or_else(|| device.allocate(buffer.bytes), |(_, id)| Ok(*id))?;
            memory.buffers.push(id);
            memory.names.push(buffer.name);
            memory.borrowed.push(given.is_some());
        }
        Ok(memory)
    }

    /// Size of all buffers in bytes, including borrowed ones.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The buffer named `name`, if the plan has such a buffer.
    pub fn find(&self, name: &str) -> Option<BufferId> {
        self.at(name).map(|at| self.buffers[at])
    }

    /// The buffer named `name`.
    ///
    /// # Panics
    /// If the plan has no such buffer.
    pub fn named(&self, name: &str) -> BufferId {
        self.find(name).unwrap_or_else(|| panic!("the plan has no buffer '{name}'"))
    }

    /// Replaces the borrowed buffer named `name` with `other`, for the next plans.
    ///
    /// # Panics
    /// If no buffer of that name is borrowed.
    pub fn replace(&mut self, name: &str, other: BufferId) {
        let at = self.at(name).filter(|&at| self.borrowed[at]);
        let at = at.unwrap_or_else(|| panic!("no buffer '{name}' is borrowed"));
        self.buffers[at] = other;
    }

    fn at(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|own| *own == name)
    }

    fn get(&self, buffer: Buffer) -> BufferId {
        self.buffers[buffer.0]
    }
}

impl Drop for PlanMemory<'_> {
    fn drop(&mut self) {
        let own = self.buffers.iter().zip(&self.borrowed).filter(|(_, is_borrowed)| !**is_borrowed);
        own.for_each(|(buffer, _)| self.device.free(*buffer));
    }
}

/// Queues the steps of `plan` on `queue`, without waiting for them.
///
/// # Errors
/// Fails if [`Queue::dispatch`] or [`Queue::clear`] does.
pub fn submit(
    plan: &Plan,
    memory: &PlanMemory<'_>,
    queue: &mut dyn Queue,
) -> Result<(), DeviceError> {
    for step in &plan.steps {
        match step {
            Step::Clear(buffer) => {
                queue.clear(memory.get(*buffer), 0, plan.buffers[buffer.0].bytes)?;
            }
            Step::Run(run) => {
                let buffers: Vec<_> = run.buffers.iter().map(|b| memory.get(*b)).collect();
                queue.dispatch(&Dispatch {
                    kernel: run.kernel,
                    entry: run.entry,
                    defines: &run.defines,
                    buffers: &buffers,
                    args: &run.args,
                    groups: run.groups,
                    threads: run.threads,
                })?;
            }
        }
    }
    Ok(())
}
