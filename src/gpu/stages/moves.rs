//! Copies between buffers, from any byte to any byte.
//!
//! After decoding, [`run`] moves the wanted parts from `contents` to the caller's buffers. Bytes that need no decoding
//! are uploaded to `contents`.

use std::ops::Range;

use crate::gpu::model::cost::CostError;
use crate::gpu::model::kernel::MOVE_BYTES;
use crate::gpu::model::plan::{Plan, Run};

/// Work items per workgroup.
const THREADS: u32 = 256;
/// 16-byte units of the destination that a workgroup writes.
const UNITS: u32 = 2048;

/// A move, as the kernel reads it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Move {
    /// Offset in the source, in bytes.
    pub(crate) from: u32,
    /// Number of bytes.
    pub(crate) bytes: u32,
    /// Offset in the destination in bytes: the lower half, then the upper one.
    pub(crate) to: [u32; 2],
    /// 0 to copy, or the byte to fill with, as [`Move::fill`] encodes it.
    pub(crate) fill: u32,
    /// Always 0.
    pub(crate) reserved: [u32; 3],
}

impl Move {
    /// Moves `bytes` bytes.
    pub(crate) fn new(from: u32, bytes: u32, to: u64) -> Self {
        let to = [to as u32, (to >> 32) as u32];
        Self { from, bytes, to, ..Self::default() }
    }

    /// Fills `bytes` bytes with `byte`.
    pub(crate) fn fill(byte: u8, bytes: u32, to: u64) -> Self {
        Self { fill: 0x100 | u32::from(byte), ..Self::new(0, bytes, to) }
    }
}

/// The number of moves that the buffer `moves` of `plan` holds.
pub(crate) fn max_moves(plan: &Plan) -> usize {
    let moves = plan.buffers.iter().find(|buffer| buffer.name == "moves");
    moves.map_or(0, |moves| moves.bytes as usize / size_of::<Move>())
}

/// Adds the buffer `contents`, for contents that no step of the plan writes.
///
/// # Errors
/// Fails if the kernel's cost is wrong.
pub(crate) fn add_contents(plan: &mut Plan) -> Result<(), CostError> {
    plan.buffer(&MOVE_BYTES, "contents").map(drop)
}

/// Adds the buffer `moves`.
///
/// # Errors
/// Fails if the kernel's cost is wrong.
pub(crate) fn add_moves(plan: &mut Plan) -> Result<(), CostError> {
    plan.buffer(&MOVE_BYTES, "moves")?;
    plan.idle.push(&MOVE_BYTES);
    Ok(())
}

/// The lengths that bound the reads and writes of moves, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    /// The source's length.
    pub(crate) source: u32,
    /// The destination's length.
    pub(crate) destination: u64,
}

/// A dispatch that carries out `moves`, a range of the buffer of moves, each of up to `longest` bytes. The caller adds
/// the dispatch's buffers: the source, the moves and the destination.
pub(crate) fn run(moves: Range<u32>, longest: u32, ends: Ends) -> Run {
    // The destination may begin at the end of a unit.
    let longest = longest.saturating_add(15);
    let groups = longest.div_ceil(16 * UNITS).max(1);
    let count = moves.end - moves.start;
    Run {
        stage: "place",
        kernel: &MOVE_BYTES,
        entry: "move_bytes",
        defines: vec![("UNITS", UNITS)],
        buffers: Vec::new(),
        args: vec![
            moves.start,
            count,
            groups,
            ends.source,
            ends.destination as u32,
            (ends.destination >> 32) as u32,
        ],
        groups: count * groups,
        threads: THREADS,
    }
}
