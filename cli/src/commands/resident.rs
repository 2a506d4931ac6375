//! `pz bench --resident`: measures how fast a device works on blocks in its own memory, stage by stage.

use std::sync::Arc;

use pz::gpu::coder::CoderError;
use pz::gpu::device::Device;
use pz::{Level, Options};
use serde::Serialize;

use crate::args::Bench;
use crate::failure::Failure;
use crate::filters::Candidate;
use crate::measure::resident::{Measurement, Subject};
use crate::settings;
use crate::sizes::{Human, Size};
use crate::table::{self, Table};

/// Runs of each direction; the medians count.
const RUNS: usize = 5;

/// One direction at one level.
#[derive(Serialize)]
pub struct Row {
    file: String,
    device: String,
    level: u8,
    filter: String,
    pipeline: String,
    block_size: u64,
    ratio: f64,
    direction: &'static str,
    blocks: u32,
    bytes: u64,
    device_memory: u64,
    gb_s: f64,
    milliseconds: f64,
    wall_milliseconds: f64,
    stages: Vec<Stage>,
}

#[derive(Serialize)]
struct Stage {
    stage: &'static str,
    milliseconds: f64,
}

/// Measures `data` at each of `levels` with `filter` on `device`, in both directions. Adds the results to `rows`, and
/// prints them unless they are to be JSON.
pub fn measure(
    file: &str,
    data: &[u8],
    (levels, candidate): (&[Level], &Candidate),
    (name, device): (&str, &Arc<dyn Device>),
    args: &Bench,
    rows: &mut Vec<Row>,
) -> Result<(), Failure> {
    let total = args.total.map_or(data.len() as u64, |Size(bytes)| bytes);
    let permitted = args.gpu_memory.map(|Size(bytes)| bytes);
    for &level in levels {
        let options = settings::encode_with(&args.encoding, level, 0, args.memory)?;
        let Candidate { name: filter, filter: chain } = candidate;
        let options = chain.apply(options);
        let subject = Subject::new(data, &options, total);
        let subject = subject.map_err(|error| chain.name_modules(error.into()))?;
        for direction in ["encode", "decode"] {
            let measured = match direction {
                "encode" => subject.encode(&**device, permitted, RUNS),
                _ => subject.decode(&**device, permitted, RUNS),
            };
            match measured {
                Ok(measured) => {
                    let row = Row::new(
                        file,
                        name,
                        (level, filter.as_str()),
                        &options,
                        subject.ratio(),
                        direction,
                        &measured,
                    )?;
                    if !args.json {
                        table::print(&if args.csv { row.to_csv() } else { row.to_text() })?;
                    }
                    rows.push(row);
                }
                Err(CoderError::Plan(why)) => {
                    let line = format!("pz: {name}: -{level} {direction}: declined: {why}");
                    eprintln!("{line}");
                }
                Err(error) => return Err(failure(&error)),
            }
        }
    }
    Ok(())
}

fn failure(error: &CoderError) -> Failure {
    Failure::environment(error.to_string())
}

impl Row {
    fn new(
        file: &str,
        device: &str,
        (level, filter): (Level, &str),
        options: &Options,
        ratio: f64,
        direction: &'static str,
        measured: &Measurement,
    ) -> Result<Self, Failure> {
        let milliseconds = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        let time = milliseconds(measured.time());
        Ok(Self {
            file: file.into(),
            device: device.into(),
            level: level.get(),
            filter: filter.into(),
            pipeline: options.chosen_pipeline().to_string(),
            block_size: options.chosen_block_size()?,
            ratio,
            direction,
            blocks: measured.blocks,
            bytes: measured.bytes,
            device_memory: measured.memory,
            gb_s: measured.bytes as f64 / time.max(1e-6) / 1e6,
            milliseconds: time,
            wall_milliseconds: milliseconds(measured.wall),
            stages: measured
                .stages
                .iter()
                .map(|s| Stage { stage: s.stage, milliseconds: milliseconds(s.time) })
                .collect(),
        })
    }

    fn to_text(&self) -> String {
        let mut text = format!(
            "{} on {}: -{} {}, filter {}, blocks of {}, ratio {:.3}: {} {:.1} GB/s\n  {} bytes in {} blocks, {} of \
             device memory, {:.3} ms ({:.3} ms from start to end)\n",
            self.file,
            self.device,
            self.level,
            self.pipeline,
            self.filter,
            Human(self.block_size),
            self.ratio,
            self.direction,
            self.gb_s,
            self.bytes,
            self.blocks,
            Human(self.device_memory),
            self.milliseconds,
            self.wall_milliseconds,
        );
        let mut stages = Table::new(&["<  stage", "ms", "GB/s"]);
        for Stage { stage, milliseconds } in &self.stages {
            let speed = self.bytes as f64 / milliseconds.max(1e-6) / 1e6;
            let cells =
                vec![format!("<  {stage}"), format!("{milliseconds:.3}"), format!("{speed:.0}")];
            stages.row(cells);
        }
        text += &stages.to_text();
        text
    }

    fn to_csv(&self) -> String {
        let line = |stage: &str, milliseconds: f64| {
            format!(
                "{},{},{},{},{},{:.4},{},{},{},{},{stage},{milliseconds:.4},{}\n",
                super::bench::csv_field(&self.file),
                self.device,
                self.level,
                self.pipeline,
                self.block_size,
                self.ratio,
                self.direction,
                self.blocks,
                self.bytes,
                self.device_memory,
                super::bench::csv_field(&self.filter),
            )
        };
        let stages = self.stages.iter().map(|s| line(s.stage, s.milliseconds));
        stages.chain([line("all", self.milliseconds)]).collect()
    }
}

/// The first line of comma-separated values.
pub const CSV_HEAD: &str = "file,device,level,pipeline,block_size,ratio,direction,blocks,bytes,\
    device_memory,stage,ms,filter\n";
