//! `pz cost`

use std::time::Instant;

use pz::gpu::coder::{BlockCost, CostError, Decoder, Encoder};
use pz::gpu::device::discovery::{self, DeviceEntry};
use pz::gpu::device::{Api, Kind, Limits};
use pz::internal::{KERNELS, batches, budget};
use pz::{Auto, ComputeRate, FrameKind, Level, Options, Pipeline};
use serde::Serialize;

use super::predict::{self, Forecast};
use crate::args::Cost;
use crate::device::Device;
use crate::failure::Failure;
use crate::settings;
use crate::sizes::{Human, Size};
use crate::table::{self, Table};

/// Shows the cost that each kernel declares, and the batches that follow from it for each device.
pub fn run(args: &Cost) -> Result<(), Failure> {
    let Size(block) = args.block_size.unwrap_or(Size(1 << 20));
    let Ok(block_len) = u32::try_from(block) else {
        return Err(Failure::environment("a block must be smaller than 4 GiB"));
    };
    let memory = settings::gpu_memory(args.gpu_memory)?;
    let device = settings::device(args.device)?;
    let begun = Instant::now();
    let found = chosen(device)?;
    let finding = begun.elapsed();
    let auto = settings::auto(memory);
    let forecast = predict::predict(args, (&found, finding), memory)?;
    let devices = found.iter().map(|found| DeviceCost::of(found, &auto, block_len, memory));
    let cost = Costs { block, kernels: kernels(block)?, devices: devices.collect(), forecast };
    match args.json {
        true => table::print_json(&cost),
        false => table::print(&cost.to_text(args.kernels)),
    }
}

/// The devices that the user asked for.
fn chosen(device: Device) -> Result<Vec<DeviceEntry>, Failure> {
    let one = |api, number: Option<u32>| {
        let absent = |why: String| Failure::environment(format!("device {device}: {why}"));
        let found = discovery::devices(api).map_err(|absence| absent(absence.to_string()))?;
        // The device that a run would use: a software device only if there is no other.
        let is_gpu = |found: &DeviceEntry| found.limits().kind != Kind::Software;
        let first = || found.iter().position(is_gpu).unwrap_or(0);
        let number = number.map_or_else(first, |number| number as usize);
        let found = found.into_iter().nth(number);
        Ok(vec![found.ok_or_else(|| absent("no device has that number".into()))?])
    };
    match device {
        Device::Cpu => Ok(Vec::new()),
        Device::Cuda(number) => one(Api::Cuda, number),
        Device::OpenCl(number) => one(Api::OpenCl, number),
        Device::WebGpu(number) => one(Api::WebGpu, number),
        Device::Auto => {
            let all = Api::ALL.into_iter().filter_map(|api| discovery::devices(api).ok());
            Ok(all.flatten().filter(|found| found.limits().kind != Kind::Software).collect())
        }
    }
}

#[derive(Serialize)]
struct Costs {
    /// Bytes of a block.
    block: u64,
    kernels: Vec<KernelCost>,
    devices: Vec<DeviceCost>,
    /// The prediction for a file, if the user asked for one.
    forecast: Option<Forecast>,
}

/// The cost that a kernel's file declares.
#[derive(Serialize)]
struct KernelCost {
    kernel: &'static str,
    /// Bytes of device memory for a block.
    memory: u64,
    /// Work items of the largest dispatch.
    threads: u64,
    /// Dispatches.
    passes: u64,
    /// Bytes of workgroup memory.
    local_memory: u32,
}

/// The memory and batches of a device.
#[derive(Serialize)]
struct DeviceCost {
    device: String,
    name: String,
    /// Most bytes of its memory that the program may use.
    budget: u64,
    pipelines: Vec<PipelineCost>,
}

/// The cost of one direction of a pipeline.
#[derive(Serialize)]
struct PipelineCost {
    pipeline: String,
    /// The level for encoding; `None` for decoding.
    level: Option<u8>,
    #[serde(flatten)]
    outcome: Outcome,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Outcome {
    Fits(Fit),
    /// The CPU does this work.
    Declined {
        /// Why.
        declined: String,
    },
}

#[derive(Serialize)]
struct Fit {
    /// Bytes of device memory for a block.
    memory: u64,
    /// Bytes of the largest buffer for a block.
    largest_buffer: u64,
    /// Number of batches at once.
    slots: u32,
    /// Blocks in each.
    batch: u32,
    /// Bytes of device memory for all of them.
    total: u64,
    /// Bytes of contents per second on the device alone, if any speed of this device is known.
    bytes_per_second: Option<f64>,
    /// Whether this speed was measured. If not, it is computed from the kernels' costs.
    is_measured: Option<bool>,
}

fn kernels(block: u64) -> Result<Vec<KernelCost>, Failure> {
    let costs = KERNELS.iter().map(|kernel| {
        let cost = kernel.cost()?;
        Ok(KernelCost {
            kernel: kernel.stem,
            memory: cost.memory_bytes(block)?,
            threads: cost.threads.eval(block)?,
            passes: cost.passes.eval(block)?,
            local_memory: cost.local_mem,
        })
    });
    // The costs are compiled in, so an error in them is a bug.
    costs.collect::<Result<_, CostError>>().map_err(Failure::bug)
}

impl DeviceCost {
    fn of(found: &DeviceEntry, auto: &Auto, block_len: u32, memory: Option<u64>) -> Self {
        let limits = found.limits();
        let budget = budget(limits, memory);
        let encoders = Level::all().map(|level| {
            let options = Options::new().level(level).block_size(block_len.into());
            let cost = options.encoding().map_err(|error| error.to_string()).and_then(|encoding| {
                Encoder::cost_of_block(limits, &encoding).map_err(|error| error.to_string())
            });
            let rate = auto.encode_rate(limits, &options).ok().flatten();
            (level.pipeline(), Some(level.get()), cost, rate)
        });
        let decoders =
            Pipeline::ALL.into_iter().filter(|p| *p != Pipeline::Store).map(|pipeline| {
                let kind = FrameKind { pipeline, level: None, block_size: block_len.into() };
                let rate = auto.decode_rate(limits, kind);
                let cost = Decoder::cost_of_block(limits, pipeline, block_len);
                (pipeline, None, cost.map_err(|error| error.to_string()), rate)
            });
        let pipelines = encoders.chain(decoders).map(|(pipeline, level, cost, rate)| {
            let pipeline = pipeline.to_string();
            PipelineCost { pipeline, level, outcome: outcome(limits, budget, cost, rate) }
        });
        Self {
            device: format!("{}:{}", found.api().name(), found.number()),
            name: limits.name.clone(),
            budget,
            pipelines: pipelines.collect(),
        }
    }
}

fn outcome(
    limits: &Limits,
    budget: u64,
    cost: Result<BlockCost, String>,
    rate: Option<ComputeRate>,
) -> Outcome {
    let declined = |why: String| Outcome::Declined { declined: why };
    let block = match cost {
        Ok(block) => block,
        Err(why) => return declined(why),
    };
    let Some(found) = batches(limits, budget, &block) else {
        return declined(format!(
            "a block takes {}, too much for this device",
            Human(block.memory)
        ));
    };
    match found.memory(&block) {
        Ok(total) => Outcome::Fits(Fit {
            memory: block.memory,
            largest_buffer: block.largest_buffer,
            slots: found.slots,
            batch: found.batch,
            total,
            bytes_per_second: rate.map(|rate| rate.rate),
            is_measured: rate.map(|rate| rate.is_measured),
        }),
        Err(error) => declined(error.to_string()),
    }
}

impl Fit {
    /// Megabytes per second on the device alone, with a mark if the figure was not measured.
    fn speed(&self) -> String {
        let mark = if self.is_measured == Some(false) { "~" } else { "" };
        self.bytes_per_second.map_or("-".into(), |rate| format!("{mark}{:.0}", rate / 1e6))
    }
}

impl Costs {
    /// The forecast or the devices come first. The kernels come last, if the user asked for them or if there is
    /// nothing else to show.
    fn to_text(&self, wants_kernels: bool) -> String {
        let parts = match &self.forecast {
            Some(forecast) => vec![forecast.to_text()],
            None => self.devices.iter().map(|device| device.to_text(self.block)).collect(),
        };
        let kernels = (wants_kernels || parts.is_empty()).then(|| self.kernels_to_text());
        parts.into_iter().chain(kernels).collect::<Vec<_>>().join("\n")
    }

    fn kernels_to_text(&self) -> String {
        let head = ["<kernel", "memory", "bytes/byte", "threads", "passes", "workgroup memory"];
        let mut table = Table::new(&head);
        for kernel in &self.kernels {
            table.row(vec![
                kernel.kernel.into(),
                Human(kernel.memory).to_string(),
                format!("{:.2}", kernel.memory as f64 / self.block as f64),
                kernel.threads.to_string(),
                kernel.passes.to_string(),
                Human(kernel.local_memory.into()).to_string(),
            ]);
        }
        format!("For a block of {}:\n\n{}", Human(self.block), table.to_text())
    }
}

impl DeviceCost {
    fn to_text(&self, block: u64) -> String {
        let mut text = format!(
            "{}: {}, with {} to use, for a block of {}\n\n",
            self.device,
            self.name,
            Human(self.budget),
            Human(block)
        );
        let head =
            ["<", "memory a block", "bytes/byte", "blocks a batch", "batches", "memory", "MB/s"];
        let mut table = Table::new(&head);
        let mut declined = String::new();
        for pipeline in &self.pipelines {
            let what = match pipeline.level {
                Some(level) => format!("compress -{level} ({})", pipeline.pipeline),
                None => format!("decompress {}", pipeline.pipeline),
            };
            match &pipeline.outcome {
                Outcome::Fits(fit) => table.row(vec![
                    what,
                    Human(fit.memory).to_string(),
                    format!("{:.2}", fit.memory as f64 / block as f64),
                    fit.batch.to_string(),
                    fit.slots.to_string(),
                    Human(fit.total).to_string(),
                    fit.speed(),
                ]),
                Outcome::Declined { declined: why } => {
                    declined += &format!("{what}: on the CPU ({why})\n");
                }
            }
        }
        if self.pipelines.iter().any(|pipeline| matches!(pipeline.outcome, Outcome::Fits(_))) {
            text += &table.to_text();
        }
        text + &declined
    }
}
