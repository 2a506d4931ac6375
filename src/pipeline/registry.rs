//! The devices from which [`Auto`](super::auto::Auto) chooses.

use std::sync::Arc;

use crate::gpu::device::discovery::{self, DeviceEntry};
use crate::gpu::device::{Api, Device, DeviceError, Kind, Limits};

/// A source of devices to choose from.
pub(crate) trait Registry: Send + Sync {
    /// The devices present. Asking for them takes time.
    fn candidates(&self) -> Vec<Box<dyn Candidate>>;
}

/// A device that is present but not open.
pub(crate) trait Candidate: Send {
    fn limits(&self) -> &Limits;
    fn open(&self) -> Result<Arc<dyn Device>, DeviceError>;
}

impl Candidate for DeviceEntry {
    fn limits(&self) -> &Limits {
        Self::limits(self)
    }

    fn open(&self) -> Result<Arc<dyn Device>, DeviceError> {
        Self::open(self)
    }
}

/// The devices of this machine: those of CUDA, and OpenCL's other devices. If there are none, those of WebGPU, which
/// are the same devices but slower.
pub(crate) struct Machine;

impl Registry for Machine {
    fn candidates(&self) -> Vec<Box<dyn Candidate>> {
        let of = |api| {
            let found = discovery::devices(api).unwrap_or_default();
            found.into_iter().filter(|found| is_eligible(found.limits())).collect::<Vec<_>>()
        };
        let found = each_once(of(Api::Cuda), of(Api::OpenCl), DeviceEntry::limits);
        let found = if found.is_empty() { of(Api::WebGpu) } else { found };
        found.into_iter().map(|found| Box::new(found) as Box<dyn Candidate>).collect()
    }
}

/// The devices of one interface, and those of another that are other cards. Cards with the same name count as the same:
/// if the first interface lists only some cards of a name, the user has hidden the rest from it.
fn each_once<T>(first: Vec<T>, mut second: Vec<T>, limits: impl Fn(&T) -> &Limits) -> Vec<T> {
    second.retain(|other| !first.iter().any(|one| limits(one).name == limits(other).name));
    first.into_iter().chain(second).collect()
}

/// Whether [`Auto`](super::auto::Auto) may choose the device.
pub(crate) fn is_eligible(limits: &Limits) -> bool {
    limits.kind != Kind::Software
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::tests::testing::made_up;

    #[test]
    fn a_card_is_used_through_one_interface() {
        let of = |api, names: &[&str]| -> Vec<Limits> {
            names.iter().map(|name| Limits { api, name: (*name).into(), ..made_up() }).collect()
        };
        let chosen = |cuda: &[&str], opencl: &[&str]| -> Vec<String> {
            let each = each_once(of(Api::Cuda, cuda), of(Api::OpenCl, opencl), |limits| limits);
            each.iter().map(|limits| format!("{} {}", limits.api, limits.name)).collect()
        };
        assert_eq!(chosen(&["A"], &["A", "B", "A"]), ["CUDA A", "OpenCL B"]);
        assert_eq!(chosen(&["A", "A"], &["A"]), ["CUDA A", "CUDA A"]);
        assert_eq!(chosen(&[], &["A", "B"]), ["OpenCL A", "OpenCL B"]);
        assert!(chosen(&[], &[]).is_empty());
    }
}
