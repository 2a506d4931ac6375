//! The devices from which [`Auto`](super::auto::Auto) chooses.

use std::sync::Arc;

use crate::gpu::device::discovery::{self, Found};
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

impl Candidate for Found {
    fn limits(&self) -> &Limits {
        Self::limits(self)
    }

    fn open(&self) -> Result<Arc<dyn Device>, DeviceError> {
        Self::open(self)
    }
}

/// The devices of this machine: those of CUDA and the others of OpenCL or, if there are none, those of WebGPU, which are
/// the same devices but slower.
pub(crate) struct Machine;

impl Registry for Machine {
    fn candidates(&self) -> Vec<Box<dyn Candidate>> {
        let of = |api| {
            let found = discovery::devices(api).unwrap_or_default();
            found.into_iter().filter(|found| is_eligible(found.limits())).collect::<Vec<_>>()
        };
        let mut found = of(Api::Cuda);
        let mut others = of(Api::OpenCl);
        others.retain(|other| !found.iter().any(|one| is_same_card(one.limits(), other.limits())));
        found.extend(others);
        if found.is_empty() {
            found = of(Api::WebGpu);
        }
        found.into_iter().map(|found| Box::new(found) as Box<dyn Candidate>).collect()
    }
}

/// Whether two interfaces offer the same card, or another one of its kind. A card that one interface does not offer is
/// one that the user has hidden from it.
fn is_same_card(one: &Limits, other: &Limits) -> bool {
    one.name == other.name
}

/// Whether [`Auto`](super::auto::Auto) may choose the device.
pub(crate) fn is_eligible(limits: &Limits) -> bool {
    limits.kind != Kind::Software
}
