//! Lists the blocks of files, recovers damaged files, and predicts costs.

use std::io::Cursor;

use pyo3::prelude::*;
use pz::{Auto, DecodeOptions, FrameKind, Level, Listing, ReadAtCursor, Sample};

use crate::arguments::{Keywords, decode_options, encode_options};
use crate::buffer::Input;
use crate::device::Device;
use crate::error::{self, raise};
use crate::source::{PyFile, Source};

/// A frame, as a dictionary.
#[derive(IntoPyObject)]
pub struct FrameInfo {
    number: u64,
    offset: u64,
    compressed_size: u64,
    content_size: u64,
    version: u8,
    pipeline: &'static str,
    level: Option<u8>,
    block_size: u64,
    block_count: u64,
    decode_memory: u64,
    size_in_header: bool,
    blocks: Vec<BlockInfo>,
}

/// A block, as a dictionary.
#[derive(IntoPyObject)]
pub struct BlockInfo {
    number: u64,
    method: &'static str,
    filters: Option<String>,
    offset: u64,
    compressed_size: u64,
    payload_offset: u64,
    payload_size: u64,
    content_offset: u64,
    content_size: u64,
    own_size: Option<u64>,
    payload_checksum: u32,
    content_checksum: u32,
}

impl From<pz::FrameInfo> for FrameInfo {
    fn from(frame: pz::FrameInfo) -> Self {
        Self {
            number: frame.number,
            offset: frame.offset,
            compressed_size: frame.compressed_size,
            content_size: frame.content_size,
            version: frame.version,
            pipeline: frame.pipeline.name(),
            level: frame.level.map(Level::get),
            block_size: frame.block_size,
            block_count: frame.block_count,
            decode_memory: frame.decode_memory,
            size_in_header: frame.size_in_header,
            blocks: frame.blocks.into_iter().map(BlockInfo::from).collect(),
        }
    }
}

impl From<pz::BlockInfo> for BlockInfo {
    fn from(block: pz::BlockInfo) -> Self {
        Self {
            number: block.number,
            method: block.method.name(),
            filters: block.filters.map(|chain| chain.to_string()),
            offset: block.offset,
            compressed_size: block.compressed_size,
            payload_offset: block.payload_offset,
            payload_size: block.payload_size,
            content_offset: block.content_offset,
            content_size: block.content_size,
            own_size: block.own_size,
            payload_checksum: block.payload_checksum,
            content_checksum: block.content_checksum,
        }
    }
}

/// The frames of a file.
#[pyfunction]
pub fn frames(py: Python<'_>, source: &Bound<'_, PyAny>, blocks: bool) -> PyResult<Vec<FrameInfo>> {
    let source = Source::new(py, source)?;
    let listed = py.detach(|| {
        let frames = source.reading(|| {
            let listing = Listing::new(source.cursor(), &DecodeOptions::new())?;
            listing.with_read_ahead(ReadAtCursor::read_ahead).frames(blocks)
        })?;
        Ok(frames.into_iter().map(FrameInfo::from).collect())
    });
    listed.map_err(|error| raise(py, error))
}

/// The result of a recovery, as a dictionary.
#[derive(IntoPyObject)]
pub struct RecoveryReport {
    blocks: u64,
    bytes: u64,
    lost: Vec<(u64, u64)>,
    damaged: Vec<(u64, u64)>,
    end_unknown: bool,
}

/// Writes every undamaged block of `source` to `target`.
#[pyfunction]
#[pyo3(signature = (source, target, fill, **options))]
pub fn recover(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    target: &Bound<'_, PyAny>,
    fill: bool,
    options: Option<Keywords<'_, '_>>,
) -> PyResult<RecoveryReport> {
    let options = decode_options(py, options)?;
    let source = Source::new(py, source)?;
    let mut target = PyFile::new(target, &["write"])?;
    let report = py.detach(|| {
        let report =
            source.reading(|| pz::recover(&mut source.cursor(), &mut target, fill, &options))?;
        let pairs = |ranges: Vec<std::ops::Range<u64>>| {
            ranges.into_iter().map(|range| (range.start, range.end)).collect()
        };
        Ok(RecoveryReport {
            blocks: report.blocks,
            bytes: report.bytes,
            lost: pairs(report.lost),
            damaged: pairs(report.damaged),
            end_unknown: report.end_unknown,
        })
    });
    report.map_err(|error| raise(py, error))
}

/// A prediction, as a dictionary.
#[derive(IntoPyObject)]
pub struct Prediction {
    seconds: f64,
    cpu_seconds: f64,
    cpu_rate: f64,
    cpu_memory: u64,
    device_rate: Option<f64>,
    device_problem: Option<String>,
    device_memory: Option<u64>,
    opening: f64,
    takes_part: bool,
    stages: Vec<(String, f64)>,
}

impl From<pz::Prediction> for Prediction {
    fn from(prediction: pz::Prediction) -> Self {
        let (device_rate, device_problem) = match prediction.device_rate {
            Some(Ok(rate)) => (Some(rate), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        Self {
            seconds: prediction.seconds,
            cpu_seconds: prediction.cpu_seconds,
            cpu_rate: prediction.cpu_rate,
            cpu_memory: prediction.cpu_memory,
            device_rate,
            device_problem,
            device_memory: prediction.device_memory,
            opening: prediction.opening,
            takes_part: prediction.takes_part,
            stages: prediction.stages,
        }
    }
}

/// Predicts how long it takes to compress or decompress `size` bytes of contents. `sample` holds some of them.
#[pyfunction]
#[pyo3(signature = (size, level, decompress, sample, device, device_memory, **options))]
#[expect(clippy::too_many_arguments, reason = "those of the Python function that calls it")]
pub fn cost(
    py: Python<'_>,
    size: u64,
    level: i64,
    decompress: bool,
    sample: Option<&Bound<'_, PyAny>>,
    device: &str,
    device_memory: Option<u64>,
    options: Option<Keywords<'_, '_>>,
) -> PyResult<Prediction> {
    let options = encode_options(py, level, options)?;
    let gpu = match Device::new(py, device, device_memory)? {
        Device::Cpu => None,
        Device::Named(gpu) => Some(gpu),
        Device::Auto(_) => {
            let message =
                "cost() compares the CPU with one device, which must be named".to_string();
            return Err(error::option(py, message));
        }
    };
    let sample = sample.map(Input::new).transpose()?;
    let bytes = sample.as_ref().map(Input::bytes);
    let prediction = py.detach(|| {
        let (pipeline, block_size) = (options.chosen_pipeline(), options.chosen_block_size()?);
        let sample = match bytes {
            Some(bytes) => {
                let threads = std::thread::available_parallelism().map_or(1, usize::from);
                Some(Sample::of(&mut Cursor::new(bytes), bytes.len() as u64, block_size, threads)?)
            }
            None => None,
        };
        let auto = Auto::new();
        if !decompress {
            return auto.predict(gpu.as_ref(), &options, size, sample.as_ref());
        }
        let kind = FrameKind { pipeline, level: Some(options.chosen_level()), block_size };
        let options = DecodeOptions::new();
        auto.predict_decoding(gpu.as_ref(), kind, &options, size, sample.as_ref())
    });
    prediction.map(Prediction::from).map_err(|error| raise(py, error))
}
