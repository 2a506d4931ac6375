//! Compiles kernels, once per device. If the driver hands out compiled code, the cache keeps it for the next run.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::WebGpuDevice;
use crate::gpu::device::program::{ProgramKey, check_workgroup, prepare};
use crate::gpu::device::program_cache::{Cache, Key};
use crate::gpu::device::{DeviceError, Dispatch};
use crate::gpu::model::kernel::Kernel;
use crate::gpu::model::plan::{Plan, Run};
use crate::sync::Mutex;

/// A compiled entry point.
pub(super) struct Pipeline {
    pub pipeline: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
}

/// A kernel file, compiled for one workgroup size and one set of constants.
struct Module {
    shader: wgpu::ShaderModule,
    source: String,
}

/// A value that is created once, or the error: a failure is not retried.
type Once<T> = Arc<OnceLock<Result<Arc<T>, DeviceError>>>;

/// The programs of a device.
pub(super) struct Programs {
    modules: Mutex<HashMap<ProgramKey, Once<Module>>>,
    pipelines: Mutex<HashMap<(ProgramKey, &'static str), Once<Pipeline>>>,
    cache: Cache,
}

/// An entry point to compile.
#[derive(Clone, Copy)]
struct Entry<'a> {
    kernel: &'static Kernel,
    name: &'static str,
    defines: &'a [(&'static str, u32)],
    threads: u32,
}

impl<'a> Entry<'a> {
    fn of(work: &Dispatch<'a>) -> Self {
        let Dispatch { kernel, entry, defines, threads, .. } = *work;
        Self { kernel, name: entry, defines, threads }
    }

    fn of_run(run: &'a Run) -> Self {
        let Run { kernel, entry, defines, threads, .. } = run;
        Self { kernel, name: entry, defines, threads: *threads }
    }

    fn module(&self) -> ProgramKey {
        ProgramKey::new(self.kernel, self.threads, self.defines)
    }

    fn failed(&self, error: DeviceError) -> DeviceError {
        match error {
            DeviceError::Failed(log) => DeviceError::Build { kernel: self.kernel.stem, log },
            other => other,
        }
    }
}

impl Programs {
    pub fn new(cache: Cache) -> Self {
        Self { modules: Mutex::default(), pipelines: Mutex::default(), cache }
    }

    /// The entry point that `work` names.
    pub fn pipeline(
        &self,
        device: &WebGpuDevice,
        work: &Dispatch<'_>,
    ) -> Result<Arc<Pipeline>, DeviceError> {
        self.entry(device, Entry::of(work))
    }

    /// Compiles the programs of `plans` that are not compiled yet, several at a time.
    ///
    /// # Errors
    /// One of the errors, if some entry points do not compile.
    pub fn prepare(&self, device: &WebGpuDevice, plans: &[Plan]) -> Result<(), DeviceError> {
        let key = |run: &Run| (ProgramKey::of_run(run), run.entry);
        prepare(&device.limits, plans, key, |run: &Run| {
            self.entry(device, Entry::of_run(run)).map(|_| ())
        })
    }

    fn entry(&self, device: &WebGpuDevice, entry: Entry<'_>) -> Result<Arc<Pipeline>, DeviceError> {
        let key = (entry.module(), entry.name);
        let pipeline = Arc::clone(self.pipelines.lock().entry(key).or_default());
        pipeline.get_or_init(|| self.compile(device, entry)).clone()
    }

    fn compile(
        &self,
        device: &WebGpuDevice,
        entry: Entry<'_>,
    ) -> Result<Arc<Pipeline>, DeviceError> {
        check_workgroup(&device.limits, entry.kernel, entry.threads)?;
        let module = Arc::clone(self.modules.lock().entry(entry.module()).or_default());
        let module = module.get_or_init(|| module_of(device, entry)).clone()?;
        let kept = Kept::load(&self.cache, device, &module.source, entry.name);
        let cache = kept.as_ref().map(|kept| &kept.cache);
        let made = device.scoped(0, || {
            let pipeline =
                device.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                    label: Some(entry.name),
                    layout: None,
                    module: &module.shader,
                    entry_point: Some(entry.name),
                    compilation_options: wgpu::PipelineCompilationOptions {
                        // Kernels write workgroup memory before they read it.
                        zero_initialize_workgroup_memory: false,
                        ..Default::default()
                    },
                    cache,
                });
            let layout = pipeline.get_bind_group_layout(0);
            Arc::new(Pipeline { pipeline, layout })
        });
        let pipeline = made.map_err(|error| entry.failed(error))?;
        if let Some(kept) = kept {
            kept.save(&self.cache);
        }
        Ok(pipeline)
    }
}

fn module_of(device: &WebGpuDevice, entry: Entry<'_>) -> Result<Arc<Module>, DeviceError> {
    let source = entry.kernel.source(&device.limits, entry.threads, entry.defines);
    let description = wgpu::ShaderModuleDescriptor {
        label: Some(entry.kernel.stem),
        source: wgpu::ShaderSource::Wgsl(source.as_str().into()),
    };
    let mut checks = wgpu::ShaderRuntimeChecks::checked();
    checks.force_loop_bounding = false;
    // SAFETY: all checks are on except the one for endless loops, and our kernels have none: the declared sizes of a
    // loop's data bound its trip count, and fuel bounds the loops of modules' kernels.
    let made = device
        .scoped(0, || unsafe { device.device.create_shader_module_trusted(description, checks) });
    let shader = made.map_err(|error| entry.failed(error))?;
    Ok(Arc::new(Module { shader, source }))
}

/// The driver's compiled code for one entry point. Each has its own file, so that runs with different entry points do
/// not overwrite each other's files, and no run reads code that it does not need.
struct Kept {
    key: Key,
    cache: wgpu::PipelineCache,
    /// The file's earlier contents.
    data: Option<Vec<u8>>,
}

impl Kept {
    /// `None` if there is no cache, or the driver does not hand out compiled code.
    fn load(cache: &Cache, device: &WebGpuDevice, source: &str, entry: &str) -> Option<Self> {
        if !cache.is_there() || !device.device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let adapter = wgpu::util::pipeline_cache_key(&device.device.adapter_info())?;
        let key = Key::new(&device.limits, source, &[&adapter, entry].join(" "));
        let data = cache.load(key);
        let description = wgpu::PipelineCacheDescriptor {
            label: None,
            data: data.as_deref(),
            // If the driver or wgpu rejects the data, start with an empty cache.
            fallback: true,
        };
        // SAFETY: `data` came from `get_data` in an earlier run by this user, for a device and driver of the same
        // names. The cache reads only files that this user alone can have written, the name contains a hash of device
        // and driver, and a checksum detects damage. The driver also checks its own header.
        let made =
            device.scoped(0, || unsafe { device.device.create_pipeline_cache(&description) });
        Some(Self { key, cache: made.ok()?, data })
    }

    /// Saves the compiled code if it has changed.
    fn save(self, cache: &Cache) {
        match self.cache.get_data() {
            Some(data) if self.data.as_ref() != Some(&data) => cache.save(self.key, &data),
            _ => {}
        }
    }
}
